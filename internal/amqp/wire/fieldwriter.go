package wire

import (
	"encoding/binary"
	"time"
)

// fieldWriter writes the fields of a composite type, which is a list (1.4).
type fieldWriter struct {
	*encoder
	at int
}

// begin begins the list of a composite type. The caller writes its fields, then calls end.
func (e *encoder) begin(code uint64) fieldWriter {
	e.b = append(e.b, 0x00, ConstructorSmallUlong, byte(code))
	return fieldWriter{e, e.open(ConstructorList8)}
}

// end ends the list, of so many fields.
func (w fieldWriter) end(count int) { w.close(w.at, count) }

func (w fieldWriter) ubyte(v uint8) { w.b = append(w.b, ConstructorUbyte, v) }

func (w fieldWriter) optionalUbyte(v *uint8) {
	if v == nil {
		w.null()
	} else {
		w.ubyte(*v)
	}
}

func (w fieldWriter) optionalUshort(v *uint16) {
	if v == nil {
		w.null()
	} else {
		w.ushort(*v)
	}
}

func (w fieldWriter) optionalUint(v *uint32) {
	if v == nil {
		w.null()
	} else {
		w.uint(*v)
	}
}

func (w fieldWriter) optionalUlong(v *uint64) {
	if v == nil {
		w.null()
	} else {
		w.ulong(*v)
	}
}

func (w fieldWriter) optionalTime(v time.Time) {
	if v.IsZero() {
		w.null()
	} else {
		w.b = binary.BigEndian.AppendUint64(append(w.b, ConstructorTimestamp), uint64(v.UnixMilli()))
	}
}

func (w fieldWriter) optionalString(v *string) {
	if v == nil {
		w.null()
	} else {
		w.string(*v)
	}
}

// stringOrNull writes null for an empty string.
func (w fieldWriter) stringOrNull(v string) {
	if v == "" {
		w.null()
	} else {
		w.string(v)
	}
}

func (w fieldWriter) optionalSymbol(v *Symbol) {
	if v == nil {
		w.null()
	} else {
		w.symbol(*v)
	}
}

// symbolOrNull writes null for an empty symbol.
func (w fieldWriter) symbolOrNull(v Symbol) {
	if v == "" {
		w.null()
	} else {
		w.symbol(v)
	}
}

// optionalBinary writes null for nil.
func (w fieldWriter) optionalBinary(v []byte) {
	if v == nil {
		w.null()
	} else {
		w.binary(v)
	}
}

// symbols writes an array, or null if there are none.
func (w fieldWriter) symbols(v []Symbol) {
	if len(v) == 0 {
		w.null()
	} else {
		w.symbolArray(v)
	}
}

// optionalMap writes null for nil.
func (w fieldWriter) optionalMap(v Map) {
	if v == nil {
		w.null()
	} else {
		w.mapping(v)
	}
}
