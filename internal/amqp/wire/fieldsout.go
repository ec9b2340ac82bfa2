package wire

import (
	"encoding/binary"
	"time"
)

// beginComposite begins the list of a composite type. The caller appends its fields, then calls
// close with their number.
func (e *encoder) beginComposite(code uint64) (at int) {
	e.b = append(e.b, 0x00, ConstructorSmallUlong, byte(code))
	return e.open(ConstructorList8)
}

func (e *encoder) ubyte(v uint8) { e.b = append(e.b, ConstructorUbyte, v) }

func (e *encoder) optionalUbyte(v *uint8) {
	if v == nil {
		e.null()
	} else {
		e.ubyte(*v)
	}
}

func (e *encoder) optionalUshort(v *uint16) {
	if v == nil {
		e.null()
	} else {
		e.ushort(*v)
	}
}

func (e *encoder) optionalUint(v *uint32) {
	if v == nil {
		e.null()
	} else {
		e.uint(*v)
	}
}

func (e *encoder) optionalUlong(v *uint64) {
	if v == nil {
		e.null()
	} else {
		e.ulong(*v)
	}
}

func (e *encoder) optionalBool(v *bool) {
	if v == nil {
		e.null()
	} else {
		e.bool(*v)
	}
}

func (e *encoder) optionalTime(v time.Time) {
	if v.IsZero() {
		e.null()
	} else {
		e.b = binary.BigEndian.AppendUint64(append(e.b, ConstructorTimestamp), uint64(v.UnixMilli()))
	}
}

func (e *encoder) optionalString(v *string) {
	if v == nil {
		e.null()
	} else {
		e.string(*v)
	}
}

// stringOrNull writes null for an empty string.
func (e *encoder) stringOrNull(v string) {
	if v == "" {
		e.null()
	} else {
		e.string(v)
	}
}

func (e *encoder) optionalSymbol(v *Symbol) {
	if v == nil {
		e.null()
	} else {
		e.symbol(*v)
	}
}

// symbolOrNull writes null for an empty symbol.
func (e *encoder) symbolOrNull(v Symbol) {
	if v == "" {
		e.null()
	} else {
		e.symbol(v)
	}
}

// optionalBinary writes null for nil.
func (e *encoder) optionalBinary(v []byte) {
	if v == nil {
		e.null()
	} else {
		e.binary(v)
	}
}

// symbols writes an array, or null if there are none.
func (e *encoder) symbols(v []Symbol) {
	if len(v) == 0 {
		e.null()
	} else {
		e.symbolArray(v)
	}
}

// optionalMap writes null for nil.
func (e *encoder) optionalMap(v Map) {
	if v == nil {
		e.null()
	} else {
		e.mapping(v)
	}
}
