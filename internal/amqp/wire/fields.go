package wire

import "time"

// fields reads the fields of a composite type, which is a list (1.4). Missing fields at its end
// are null; fields behind the last one of the standard are skipped. The first error stays in the
// decoder. A pointer besides d, even of a string, would move the decoder to the heap: the compiler
// does not tell the fields of a struct apart.
type fields struct {
	d     *decoder
	code  uint64 // of the type
	left  int
	outer int
}

// composite begins to read the list of a composite type, whose descriptor has been read.
func (d *decoder) composite(code uint64) fields {
	f := fields{d: d, code: code}
	at := d.at
	constructor, err := d.byte()
	switch {
	case err != nil:
	case constructor == constructorList0:
		err = d.deeper()
		f.outer, d.end = d.end, d.at
	case constructor == ConstructorList8 || constructor == ConstructorList32:
		f.left, f.outer, err = d.enterElements(constructor)
	default:
		err = d.fail(at, "it is not a list")
	}
	f.failed("", err)
	return f
}

// done reads what is left of the list and returns the first error.
func (f *fields) done() error {
	for ; f.d.err == nil && f.left > 0; f.left-- {
		_, err := f.d.value()
		f.failed("", err)
	}
	if f.d.err == nil {
		f.failed("", f.d.leave(f.outer))
	}
	return f.d.err
}

func (f *fields) failed(field string, err error) {
	if err == nil || f.d.err != nil {
		return
	}
	f.d.err = err
	if e, ok := err.(*DecodeError); ok && e.Field == "" { //nolint:errorlint // ours, never wrapped
		e.Field = names[f.code]
		if field != "" {
			e.Field += ": " + field
		}
	}
}

func (f *fields) wrong(field, want string) {
	f.failed(field, f.d.fail(f.d.at, "it is not of type "+want))
}

// next returns the constructor of the next field; ok is false if that is null, missing, or cannot
// be read.
func (f *fields) next(field string) (constructor byte, ok bool) {
	if f.d.err != nil || f.left == 0 {
		return 0, false
	}
	f.left--
	constructor, err := f.d.byte()
	f.failed(field, err)
	return constructor, err == nil && constructor != ConstructorNull
}

// must reports that a mandatory field is missing unless it was there.
func (f *fields) must(field string, ok bool) {
	if !ok && f.d.err == nil {
		f.failed(field, f.d.fail(f.d.at, "it is missing"))
	}
}

func (f *fields) bool(field string) bool {
	v, _ := f.optionalBool(field)
	return v
}

func (f *fields) optionalBool(field string) (v, ok bool) {
	constructor, ok := f.next(field)
	if !ok {
		return false, false
	}
	switch constructor {
	case constructorTrue:
		return true, true
	case constructorFalse:
		return false, true
	case ConstructorBoolean:
		b, err := f.d.byte()
		if err == nil && b > 1 {
			err = f.d.fail(f.d.at-1, "a boolean is neither 0 nor 1")
		}
		f.failed(field, err)
		return b == 1, err == nil
	}
	f.wrong(field, "boolean")
	return false, false
}

// number reads an unsigned number whose constructor is one of those given.
func (f *fields) number(field, want string, zero, narrow, wide byte) (uint64, bool) {
	constructor, ok := f.next(field)
	if !ok {
		return 0, false
	}
	if constructor != wide && (constructor != narrow && constructor != zero || zero == 0) {
		f.wrong(field, want)
		return 0, false
	}
	n, err := f.d.unsigned(constructor)
	f.failed(field, err)
	return n, err == nil
}

func (f *fields) ubyte(field string) (uint8, bool) {
	n, ok := f.number(field, "ubyte", 0, 0, ConstructorUbyte)
	return uint8(n), ok
}

func (f *fields) ushort(field string) (uint16, bool) {
	n, ok := f.number(field, "ushort", 0, 0, ConstructorUshort)
	return uint16(n), ok
}

func (f *fields) uint(field string) (uint32, bool) {
	n, ok := f.number(field, "uint", constructorUint0, ConstructorSmallUint, ConstructorUint)
	return uint32(n), ok
}

func (f *fields) ulong(field string) (uint64, bool) {
	return f.number(field, "ulong", constructorUlong0, ConstructorSmallUlong, ConstructorUlong)
}

func (f *fields) mustUint(field string) uint32 {
	n, ok := f.uint(field)
	f.must(field, ok)
	return n
}

func (f *fields) time(field string) (t time.Time) {
	if n, ok := f.number(field, "timestamp", 0, 0, ConstructorTimestamp); ok {
		t = timestamp(n)
	}
	return t
}

// isText reports whether the constructor is of a string or symbol. Peers confuse the two, so that
// fields of either type take both.
func isText(constructor byte) bool {
	c := constructor &^ 0x10
	return c == ConstructorString8 || c == ConstructorSymbol8
}

func (f *fields) string(field string) (v string, ok bool) {
	constructor, ok := f.next(field)
	if !ok {
		return "", false
	}
	if !isText(constructor) {
		f.wrong(field, "string")
		return "", false
	}
	v, err := f.d.string(constructor)
	f.failed(field, err)
	return v, err == nil
}

func (f *fields) symbol(field string) (v Symbol, ok bool) {
	constructor, ok := f.next(field)
	if !ok {
		return "", false
	}
	if !isText(constructor) {
		f.wrong(field, "symbol")
		return "", false
	}
	v, err := f.d.symbol(constructor)
	f.failed(field, err)
	return v, err == nil
}

func (f *fields) optionalSymbol(field string) Symbol {
	v, _ := f.symbol(field)
	return v
}

// binary returns nil for null. The bytes are those of the input.
func (f *fields) binary(field string) []byte {
	constructor, ok := f.next(field)
	if !ok {
		return nil
	}
	if constructor != ConstructorBinary8 && constructor != ConstructorBinary32 {
		f.wrong(field, "binary")
		return nil
	}
	b, err := f.d.octets(constructor)
	f.failed(field, err)
	return b
}

// symbols reads a field that may have several values: null, a symbol, or an array of them (1.4).
func (f *fields) symbols(field string) []Symbol {
	constructor, ok := f.next(field)
	if !ok {
		return nil
	}
	if constructor == ConstructorSymbol8 || constructor == ConstructorSymbol32 {
		v, err := f.d.symbol(constructor)
		f.failed(field, err)
		return []Symbol{v}
	}
	if constructor != ConstructorArray8 && constructor != ConstructorArray32 {
		f.wrong(field, "symbol, nor an array of them")
		return nil
	}
	v, err := f.d.array(constructor)
	if f.failed(field, err); err != nil {
		return nil
	}
	array := v.(Array)
	symbols := make([]Symbol, len(array))
	for i, element := range array {
		if symbols[i], ok = element.(Symbol); !ok {
			f.wrong(field, "symbol, nor an array of them")
			return nil
		}
	}
	return symbols
}

// pairs returns nil for null and an empty map for an empty one.
func (f *fields) pairs(field string) Map {
	constructor, ok := f.next(field)
	if !ok {
		return nil
	}
	if constructor != ConstructorMap8 && constructor != ConstructorMap32 {
		f.wrong(field, "map")
		return nil
	}
	m, err := f.d.pairs(constructor)
	f.failed(field, err)
	return m
}

// any reads a field of any type.
func (f *fields) any(field string) any {
	if f.d.err != nil || f.left == 0 {
		return nil
	}
	f.left--
	v, err := f.d.value()
	f.failed(field, err)
	return v
}

// described reads the descriptor of a field that is a composite type of this package. ok is false
// for null.
func (f *fields) described(field string) (s descriptor, ok bool) {
	constructor, ok := f.next(field)
	if !ok {
		return s, false
	}
	if constructor != 0x00 {
		f.wrong(field, "that the standard demands")
		return s, false
	}
	s, err := f.d.descriptor()
	f.failed(field, err)
	return s, err == nil
}

func pointer[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}
