package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// Append appends the encoding of v to dst. Besides the types of the package comment it takes
// TypedArray, and []Symbol as an array. It also takes pointers to the composite types of this
// package, such as *Error. An error means that v has no encoding. It is of a Go type without one,
// an array of several types, text that is not UTF-8, a symbol that is not ASCII, or too deep
// nesting. The bytes returned with an error are dst.
func Append(dst []byte, v any) ([]byte, error) {
	e := encoder{b: dst}
	e.value(v)
	return e.done(dst)
}

// encoder appends to b. After the first error it may append rubbish, which done drops.
type encoder struct {
	b     []byte
	depth int
	err   error
}

func (e *encoder) done(dst []byte) ([]byte, error) {
	if e.err != nil {
		return dst, e.err
	}
	return e.b, nil
}

func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

var (
	errTooDeepToWrite = fmt.Errorf("amqp: encode: the value nests deeper than %d levels", MaxDepth)
	errTooLargeToHold = errors.New("amqp: encode: the value is larger than 4 GiB")
	errNotUTF8        = errors.New("amqp: encode: a string is not valid UTF-8")
	errNotASCII       = errors.New("amqp: encode: a symbol is not ASCII")
	errNoCharacter    = errors.New("amqp: encode: a char is not a Unicode character")
)

func (e *encoder) value(v any) {
	switch v := v.(type) {
	case nil:
		e.null()
	case bool:
		e.bool(v)
	case uint8:
		e.b = append(e.b, ConstructorUbyte, v)
	case uint16:
		e.ushort(v)
	case uint32:
		e.uint(v)
	case uint64:
		e.ulong(v)
	case int8:
		e.b = append(e.b, ConstructorByte, byte(v))
	case int16:
		e.b = binary.BigEndian.AppendUint16(append(e.b, ConstructorShort), uint16(v))
	case int32:
		e.int(v)
	case int64:
		e.long(v)
	case float32:
		e.b = binary.BigEndian.AppendUint32(append(e.b, ConstructorFloat), math.Float32bits(v))
	case float64:
		e.b = binary.BigEndian.AppendUint64(append(e.b, ConstructorDouble), math.Float64bits(v))
	case Decimal32:
		e.b = append(append(e.b, ConstructorDecimal32), v[:]...)
	case Decimal64:
		e.b = append(append(e.b, ConstructorDecimal64), v[:]...)
	case Decimal128:
		e.b = append(append(e.b, ConstructorDecimal128), v[:]...)
	case Char:
		e.b = append(e.b, ConstructorChar)
		e.char(v)
	case time.Time:
		e.b = binary.BigEndian.AppendUint64(append(e.b, ConstructorTimestamp), uint64(v.UnixMilli()))
	case UUID:
		e.b = append(append(e.b, ConstructorUUID), v[:]...)
	case []byte:
		e.binary(v)
	case string:
		e.string(v)
	case Symbol:
		e.symbol(v)
	default:
		e.compound(v)
	}
}

func (e *encoder) compound(v any) {
	switch v := v.(type) {
	case List:
		e.list(v)
	case Map:
		e.mapping(v)
	case Array:
		e.array(v)
	case TypedArray:
		e.typedArray(v)
	case []Symbol:
		e.symbolArray(v)
	case Described:
		e.described(v)
	case Composite:
		e.composite(v)
	default:
		e.fail(fmt.Errorf("amqp: encode: a value of type %T has no AMQP type", v))
	}
}

func (e *encoder) null() { e.b = append(e.b, ConstructorNull) }

func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, constructorTrue)
	} else {
		e.b = append(e.b, constructorFalse)
	}
}

func (e *encoder) ushort(v uint16) {
	e.b = append(e.b, ConstructorUshort, byte(v>>8), byte(v))
}

func (e *encoder) uint(v uint32) {
	switch {
	case v == 0:
		e.b = append(e.b, constructorUint0)
	case v <= math.MaxUint8:
		e.b = append(e.b, ConstructorSmallUint, byte(v))
	default:
		e.b = binary.BigEndian.AppendUint32(append(e.b, ConstructorUint), v)
	}
}

func (e *encoder) ulong(v uint64) {
	switch {
	case v == 0:
		e.b = append(e.b, constructorUlong0)
	case v <= math.MaxUint8:
		e.b = append(e.b, ConstructorSmallUlong, byte(v))
	default:
		e.b = binary.BigEndian.AppendUint64(append(e.b, ConstructorUlong), v)
	}
}

func (e *encoder) int(v int32) {
	if v == int32(int8(v)) {
		e.b = append(e.b, ConstructorSmallInt, byte(v))
	} else {
		e.b = binary.BigEndian.AppendUint32(append(e.b, ConstructorInt), uint32(v))
	}
}

func (e *encoder) long(v int64) {
	if v == int64(int8(v)) {
		e.b = append(e.b, ConstructorSmallLong, byte(v))
	} else {
		e.b = binary.BigEndian.AppendUint64(append(e.b, ConstructorLong), uint64(v))
	}
}

// char appends a character without a constructor.
func (e *encoder) char(v Char) {
	if !utf8.ValidRune(rune(v)) {
		e.fail(errNoCharacter)
	}
	e.b = binary.BigEndian.AppendUint32(e.b, uint32(v))
}

func (e *encoder) binary(v []byte) {
	e.size(ConstructorBinary8, len(v))
	e.b = append(e.b, v...)
}

func (e *encoder) string(v string) {
	if !utf8.ValidString(v) {
		e.fail(errNotUTF8)
	}
	e.size(ConstructorString8, len(v))
	e.b = append(e.b, v...)
}

func (e *encoder) symbol(v Symbol) {
	if !ascii(v) {
		e.fail(errNotASCII)
	}
	e.size(ConstructorSymbol8, len(v))
	e.b = append(e.b, v...)
}

func ascii[T ~string | ~[]byte](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// size appends the constructor, of the narrow encoding or the wide one, and a size.
func (e *encoder) size(narrow byte, size int) {
	switch {
	case size <= math.MaxUint8:
		e.b = append(e.b, narrow, byte(size))
	case uint64(size) <= math.MaxUint32:
		e.b = binary.BigEndian.AppendUint32(append(e.b, narrow+0x10), uint32(size))
	default:
		e.fail(errTooLargeToHold)
	}
}

// open begins a list, map or array in its narrow encoding and returns where it began. The caller
// appends the elements, then calls close.
func (e *encoder) open(narrow byte) (at int) {
	e.deeper()
	e.b = append(e.b, narrow, 0, 0)
	return len(e.b) - 3
}

// close ends what open began at the place. It widens the encoding if size or count need that.
func (e *encoder) close(at, count int) {
	e.depth--
	const narrowHead, wideHead = 3, 9
	content := len(e.b) - at - narrowHead
	if content < math.MaxUint8 && count <= math.MaxUint8 {
		e.b[at+1], e.b[at+2] = byte(content+1), byte(count)
		return
	}
	if uint64(content) > math.MaxUint32-4 || uint64(count) > math.MaxUint32 {
		e.fail(errTooLargeToHold)
		return
	}
	var room [wideHead - narrowHead]byte
	e.b = append(e.b, room[:]...)
	copy(e.b[at+wideHead:], e.b[at+narrowHead:at+narrowHead+content])
	e.b[at] += 0x10
	binary.BigEndian.PutUint32(e.b[at+1:], uint32(content+4))
	binary.BigEndian.PutUint32(e.b[at+5:], uint32(count))
}

func (e *encoder) deeper() {
	if e.depth++; e.depth > MaxDepth {
		e.fail(errTooDeepToWrite)
	}
}

func (e *encoder) list(v List) {
	at := e.open(ConstructorList8)
	for _, element := range v {
		if e.err != nil {
			return
		}
		e.value(element)
	}
	e.close(at, len(v))
}

func (e *encoder) mapping(v Map) {
	at := e.open(ConstructorMap8)
	for i := range v {
		if e.err != nil {
			return
		}
		e.value(v[i].Key)
		e.value(v[i].Value)
	}
	e.close(at, 2*len(v))
}

func (e *encoder) described(v Described) {
	e.deeper()
	e.descriptor(v.Descriptor)
	if e.err == nil {
		e.value(v.Value)
	}
	e.depth--
}

func (e *encoder) descriptor(v any) {
	e.b = append(e.b, 0x00)
	switch v := v.(type) {
	case uint64:
		e.ulong(v)
	case Symbol:
		e.symbol(v)
	default:
		e.fail(fmt.Errorf("amqp: encode: a descriptor of type %T; it has to be uint64 or Symbol", v))
	}
}
