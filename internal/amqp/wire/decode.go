package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// DecodeError says what is wrong with encoded data and where. It holds nothing of the data.
type DecodeError struct {
	Offset  int    // in the bytes given
	Field   string // "attach: handle", or "" outside composite types
	Problem string
}

func (e *DecodeError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("amqp: decode: at byte %d: %s", e.Offset, e.Problem)
	}
	return fmt.Sprintf("amqp: decode: at byte %d: %s: %s", e.Offset, e.Field, e.Problem)
}

// Decode decodes the value at the beginning of b and returns what follows it. Values of binary
// type share memory with b. The error is a *DecodeError. Composite types of the standard, such as
// error, are returned as Described. DecodePerformative, DecodeMessage and DecodeComposite know
// them.
func Decode(b []byte) (v any, rest []byte, err error) {
	d := newDecoder(b)
	if v, err = d.value(); err != nil {
		return nil, nil, err
	}
	return v, d.in[d.at:], nil
}

// decoder reads in from at to end, which inside of a list, map or array is where that ends.
type decoder struct {
	in       []byte
	at, end  int
	depth    int
	elements int   // how many more there may be
	empty    int   // how many more of them may have no bytes
	err      error // the first one of fields

	annotated bool // there were delivery annotations
}

// maxEmptyElements is how many elements without bytes all arrays of one decoded value may have. An
// array of null, for example, has a count and nothing else, so that its size limits nothing.
const maxEmptyElements = 256

func newDecoder(b []byte) decoder {
	return decoder{in: b, end: len(b), elements: MaxElements, empty: maxEmptyElements}
}

// emptyList and emptyMap are values that need no allocation.
var (
	emptyList  any = List{}
	emptyMap   any = Map{}
	emptyArray any = Array{}
)

func (d *decoder) fail(at int, problem string) error {
	return &DecodeError{Offset: at, Problem: problem}
}

func (d *decoder) truncated() error { return d.fail(d.end, "the data end too early") }

func (d *decoder) value() (any, error) {
	constructor, err := d.byte()
	if err != nil {
		return nil, err
	}
	if constructor != 0x00 {
		return d.primitive(constructor)
	}
	if err := d.deeper(); err != nil {
		return nil, err
	}
	defer d.shallower()
	descriptor, err := d.descriptor()
	if err != nil {
		return nil, err
	}
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	return Described{descriptor.any(), v}, nil
}

// descriptor is a numeric or a symbolic descriptor.
type descriptor struct {
	code uint64
	name []byte // nil if numeric
}

func (s descriptor) any() any {
	if s.name != nil {
		return Symbol(s.name)
	}
	return s.code
}

// known returns the numeric descriptor. That of an unknown symbolic one is 0.
func (s descriptor) known() uint64 {
	if s.name != nil {
		return codes[string(s.name)]
	}
	return s.code
}

// descriptor reads a descriptor, of which the 0x00 has been read.
func (d *decoder) descriptor() (s descriptor, err error) {
	at := d.at
	constructor, err := d.byte()
	if err != nil {
		return s, err
	}
	switch constructor {
	case ConstructorSmallUlong, ConstructorUlong, constructorUlong0:
		s.code, err = d.unsigned(constructor)
	case ConstructorSymbol8, ConstructorSymbol32:
		if s.name, err = d.octets(constructor); err == nil && !ascii(s.name) {
			err = d.fail(at, "a symbol is not ASCII")
		}
	default:
		err = d.fail(at, "a descriptor is neither ulong nor symbol")
	}
	return s, err
}

func (d *decoder) byte() (byte, error) {
	if d.at >= d.end {
		return 0, d.truncated()
	}
	d.at++
	return d.in[d.at-1], nil
}

// take returns the next n bytes of the input itself.
func (d *decoder) take(n int) ([]byte, error) {
	if n < 0 || n > d.end-d.at {
		return nil, d.truncated()
	}
	d.at += n
	return d.in[d.at-n : d.at : d.at], nil
}

// unsigned reads a number of 0 to 8 bytes, as the upper half of the constructor says.
func (d *decoder) unsigned(constructor byte) (uint64, error) {
	b, err := d.take(width(constructor))
	if err != nil {
		return 0, err
	}
	switch len(b) {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), nil
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), nil
	case 8:
		return binary.BigEndian.Uint64(b), nil
	}
	return 0, nil
}

// width returns how many bytes a value of fixed width has, 0 to 16 (1.2.1).
func width(constructor byte) int {
	if half := constructor >> 4; half > 4 {
		return 1 << (half - 5)
	}
	return 0
}

// octets reads a value of variable width: its size in 1 or 4 bytes, then its bytes.
func (d *decoder) octets(constructor byte) ([]byte, error) {
	size, err := d.length(constructor)
	if err != nil {
		return nil, err
	}
	return d.take(size)
}

// length reads a size or count in 1 or 4 bytes.
func (d *decoder) length(constructor byte) (int, error) {
	size := 1
	if constructor&0x10 != 0 {
		size = 4
	}
	b, err := d.take(size)
	if err != nil {
		return 0, err
	}
	if size == 1 {
		return int(b[0]), nil
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > math.MaxInt {
		return 0, d.truncated()
	}
	return int(n), nil
}

func (d *decoder) primitive(constructor byte) (any, error) {
	at := d.at - 1
	switch constructor {
	case ConstructorNull:
		return nil, nil
	case constructorTrue:
		return true, nil
	case constructorFalse:
		return false, nil
	case constructorUint0:
		return uint32(0), nil
	case constructorUlong0:
		return uint64(0), nil
	case ConstructorBinary8, ConstructorBinary32:
		return d.octets(constructor)
	case ConstructorString8, ConstructorString32:
		return d.string(constructor)
	case ConstructorSymbol8, ConstructorSymbol32:
		return d.symbol(constructor)
	case constructorList0:
		return emptyList, nil
	case ConstructorList8, ConstructorList32:
		return d.list(constructor)
	case ConstructorMap8, ConstructorMap32:
		return d.mapping(constructor)
	case ConstructorArray8, ConstructorArray32:
		return d.array(constructor)
	case ConstructorDecimal128, ConstructorUUID:
		b, err := d.take(16)
		if err != nil {
			return nil, err
		}
		if constructor == ConstructorUUID {
			return UUID(b), nil
		}
		return Decimal128(b), nil
	}
	if !numeric(constructor) {
		return nil, d.fail(at, "an unknown constructor")
	}
	n, err := d.unsigned(constructor)
	if err != nil {
		return nil, err
	}
	return d.number(at, constructor, n)
}

// numeric reports whether the constructor is of a value of 1 to 8 bytes.
func numeric(constructor byte) bool {
	switch constructor >> 4 {
	case 0x5:
		return constructor <= ConstructorBoolean
	case 0x6:
		return constructor <= ConstructorShort
	case 0x7:
		return constructor <= ConstructorDecimal32
	case 0x8:
		return constructor <= ConstructorDecimal64
	}
	return false
}

// isConstructor reports whether the standard has the constructor.
func isConstructor(constructor byte) bool {
	switch constructor {
	case ConstructorDecimal128, ConstructorUUID,
		ConstructorBinary8, ConstructorString8, ConstructorSymbol8, ConstructorBinary32, ConstructorString32, ConstructorSymbol32,
		ConstructorList8, ConstructorMap8, ConstructorList32, ConstructorMap32, ConstructorArray8, ConstructorArray32:
		return true
	}
	return ConstructorNull <= constructor && constructor <= constructorList0 || numeric(constructor)
}

func (d *decoder) number(at int, constructor byte, n uint64) (any, error) {
	switch constructor {
	case ConstructorUbyte:
		return uint8(n), nil
	case ConstructorByte:
		return int8(n), nil
	case ConstructorUshort:
		return uint16(n), nil
	case ConstructorShort:
		return int16(n), nil
	case ConstructorUint, ConstructorSmallUint:
		return uint32(n), nil
	case ConstructorUlong, ConstructorSmallUlong:
		return n, nil
	case ConstructorSmallInt:
		return int32(int8(n)), nil
	case ConstructorInt:
		return int32(n), nil
	case ConstructorSmallLong:
		return int64(int8(n)), nil
	case ConstructorLong:
		return int64(n), nil
	case ConstructorFloat:
		return math.Float32frombits(uint32(n)), nil
	case ConstructorDouble:
		return math.Float64frombits(n), nil
	case ConstructorTimestamp:
		return timestamp(n), nil
	case ConstructorDecimal32:
		return Decimal32(binary.BigEndian.AppendUint32(nil, uint32(n))), nil
	case ConstructorDecimal64:
		return Decimal64(binary.BigEndian.AppendUint64(nil, n)), nil
	case ConstructorBoolean:
		if n > 1 {
			return nil, d.fail(at, "a boolean is neither 0 nor 1")
		}
		return n == 1, nil
	case ConstructorChar:
		if n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
			return nil, d.fail(at, "a char is not a Unicode character")
		}
		return Char(n), nil
	}
	return nil, d.fail(at, "an unknown constructor")
}

func timestamp(n uint64) time.Time { return time.UnixMilli(int64(n)).UTC() }

func (d *decoder) string(constructor byte) (string, error) {
	at := d.at - 1
	b, err := d.octets(constructor)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", d.fail(at, "a string is not valid UTF-8")
	}
	return string(b), nil
}

func (d *decoder) symbol(constructor byte) (Symbol, error) {
	at := d.at - 1
	b, err := d.octets(constructor)
	if err != nil {
		return "", err
	}
	if !ascii(b) {
		return "", d.fail(at, "a symbol is not ASCII")
	}
	return Symbol(b), nil
}

func (d *decoder) deeper() error {
	if d.depth >= MaxDepth {
		return d.deeperThan(d.at)
	}
	d.depth++
	return nil
}

func (d *decoder) deeperThan(at int) error {
	return d.fail(at, fmt.Sprintf("values nest deeper than %d levels", MaxDepth))
}

func (d *decoder) shallower() { d.depth-- }
