package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

var (
	errMixedArray    = errors.New("amqp: encode: the elements of an array are not of one type")
	errNoConstructor = errors.New("amqp: encode: an array has a constructor that is not of the standard")
)

func (e *encoder) array(v Array) {
	e.elements(ConstructorNull, v, len(v) > 0)
}

func (e *encoder) typedArray(v TypedArray) {
	e.elements(v.Constructor, v.Elements, false)
}

// elements appends an array. Without a constructor given it chooses one for all of the elements.
func (e *encoder) elements(constructor byte, v []any, choose bool) {
	at := e.open(ConstructorArray8)
	if e.err != nil {
		return
	}
	e.elementsBody(constructor, v, choose)
	e.close(at, len(v))
}

func (e *encoder) elementsBody(constructor byte, v []any, choose bool) {
	if first, ok := firstDescribed(v); ok {
		e.describedElements(first.Descriptor, constructor, v, choose)
		return
	}
	if choose {
		if constructor = elementConstructor(v); constructor == 0 {
			e.fail(fmt.Errorf("amqp: encode: an array of values of type %T has no AMQP type", v[0]))
			return
		}
	}
	if !isConstructor(constructor) {
		e.fail(errNoConstructor)
		return
	}
	e.b = append(e.b, constructor)
	for _, element := range v {
		if !e.element(constructor, element) {
			e.fail(errMixedArray)
		}
		if e.err != nil {
			return
		}
	}
}

func firstDescribed(v []any) (first Described, ok bool) {
	if len(v) > 0 {
		first, ok = v[0].(Described)
	}
	return first, ok
}

func (e *encoder) describedElements(descriptor any, constructor byte, v []any, choose bool) {
	if e.descriptor(descriptor); e.err != nil {
		return
	}
	values := make([]any, len(v))
	for i, element := range v {
		d, ok := element.(Described)
		if !ok || d.Descriptor != descriptor {
			e.fail(errMixedArray)
			return
		}
		if _, ok := d.Value.(Described); ok {
			e.fail(errors.New("amqp: encode: an array of described values of described values"))
			return
		}
		values[i] = d.Value
	}
	e.deeper()
	e.elementsBody(constructor, values, choose)
	e.depth--
}

func (e *encoder) symbolArray(v []Symbol) {
	wide := byte(0)
	for _, s := range v {
		if len(s) > math.MaxUint8 {
			wide = 0x10
		}
	}
	at := e.open(ConstructorArray8)
	e.b = append(e.b, ConstructorSymbol8+wide)
	for _, s := range v {
		if !ascii(s) {
			e.fail(errNotASCII)
		}
		e.octets(ConstructorSymbol8+wide, string(s))
	}
	e.close(at, len(v))
}

// elementConstructor chooses the encoding of the elements of an array by the first of them. It
// returns 0 if that has no AMQP type.
func elementConstructor(v []any) byte {
	switch v[0].(type) {
	case nil:
		return ConstructorNull
	case bool:
		return ConstructorBoolean
	case uint8:
		return ConstructorUbyte
	case uint16:
		return ConstructorUshort
	case uint32:
		return ConstructorUint
	case uint64:
		return ConstructorUlong
	case int8:
		return ConstructorByte
	case int16:
		return ConstructorShort
	case int32:
		return ConstructorInt
	case int64:
		return ConstructorLong
	case float32:
		return ConstructorFloat
	case float64:
		return ConstructorDouble
	case Decimal32:
		return ConstructorDecimal32
	case Decimal64:
		return ConstructorDecimal64
	case Decimal128:
		return ConstructorDecimal128
	case Char:
		return ConstructorChar
	case time.Time:
		return ConstructorTimestamp
	case UUID:
		return ConstructorUUID
	case []byte:
		return ConstructorBinary8 + widen(v)
	case string:
		return ConstructorString8 + widen(v)
	case Symbol:
		return ConstructorSymbol8 + widen(v)
	case List:
		return ConstructorList32
	case Map:
		return ConstructorMap32
	case Array, TypedArray, []Symbol:
		return ConstructorArray32
	}
	return 0
}

// widen returns what to add to a narrow constructor so that it fits each of the elements.
func widen(v []any) byte {
	for _, element := range v {
		size := 0
		switch element := element.(type) {
		case []byte:
			size = len(element)
		case string:
			size = len(element)
		case Symbol:
			size = len(element)
		}
		if size > math.MaxUint8 {
			return 0x10
		}
	}
	return 0
}

// element appends v without its constructor. It returns false if v is not of the type, or too
// large for the encoding.
func (e *encoder) element(constructor byte, v any) (ok bool) {
	switch v := v.(type) {
	case nil:
		return constructor == ConstructorNull
	case bool:
		if v {
			e.b = append(e.b, 1)
		} else {
			e.b = append(e.b, 0)
		}
		return constructor == ConstructorBoolean
	case uint8:
		e.b = append(e.b, v)
		return constructor == ConstructorUbyte
	case int8:
		e.b = append(e.b, byte(v))
		return constructor == ConstructorByte
	case uint16:
		e.b = binary.BigEndian.AppendUint16(e.b, v)
		return constructor == ConstructorUshort
	case int16:
		e.b = binary.BigEndian.AppendUint16(e.b, uint16(v))
		return constructor == ConstructorShort
	case uint32:
		return e.number(uint64(v), constructor, ConstructorUint, ConstructorSmallUint, v <= math.MaxUint8)
	case uint64:
		return e.number(v, constructor, ConstructorUlong, ConstructorSmallUlong, v <= math.MaxUint8)
	case int32:
		return e.number(uint64(v), constructor, ConstructorInt, ConstructorSmallInt, v == int32(int8(v)))
	case int64:
		return e.number(uint64(v), constructor, ConstructorLong, ConstructorSmallLong, v == int64(int8(v)))
	case float32:
		e.b = binary.BigEndian.AppendUint32(e.b, math.Float32bits(v))
		return constructor == ConstructorFloat
	case float64:
		e.b = binary.BigEndian.AppendUint64(e.b, math.Float64bits(v))
		return constructor == ConstructorDouble
	case Decimal32:
		e.b = append(e.b, v[:]...)
		return constructor == ConstructorDecimal32
	case Decimal64:
		e.b = append(e.b, v[:]...)
		return constructor == ConstructorDecimal64
	case Decimal128:
		e.b = append(e.b, v[:]...)
		return constructor == ConstructorDecimal128
	case Char:
		e.char(v)
		return constructor == ConstructorChar
	case time.Time:
		e.b = binary.BigEndian.AppendUint64(e.b, uint64(v.UnixMilli()))
		return constructor == ConstructorTimestamp
	case UUID:
		e.b = append(e.b, v[:]...)
		return constructor == ConstructorUUID
	}
	return e.sizedElement(constructor, v)
}

// number appends v in the wide encoding, of 4 or 8 bytes, or in the narrow one of a byte.
func (e *encoder) number(v uint64, constructor, wide, narrow byte, fits bool) (ok bool) {
	switch {
	case constructor == narrow:
		e.b = append(e.b, byte(v))
		return fits
	case wide < ConstructorUlong:
		e.b = binary.BigEndian.AppendUint32(e.b, uint32(v))
	default:
		e.b = binary.BigEndian.AppendUint64(e.b, v)
	}
	return constructor == wide
}

func (e *encoder) sizedElement(constructor byte, v any) (ok bool) {
	switch v := v.(type) {
	case []byte:
		return constructor&^0x10 == ConstructorBinary8 && e.octets(constructor, string(v))
	case string:
		if !utf8.ValidString(v) {
			e.fail(errNotUTF8)
		}
		return constructor&^0x10 == ConstructorString8 && e.octets(constructor, v)
	case Symbol:
		if !ascii(v) {
			e.fail(errNotASCII)
		}
		return constructor&^0x10 == ConstructorSymbol8 && e.octets(constructor, string(v))
	case List:
		at := len(e.b)
		e.list(v)
		e.widenElement(at)
		return constructor == ConstructorList32
	case Map:
		at := len(e.b)
		e.mapping(v)
		e.widenElement(at)
		return constructor == ConstructorMap32
	case Array, TypedArray, []Symbol:
		at := len(e.b)
		e.compound(v)
		e.widenElement(at)
		return constructor == ConstructorArray32
	}
	return false
}

// octets appends the size in the constructor's width, and the bytes.
func (e *encoder) octets(constructor byte, v string) (ok bool) {
	if constructor&0x10 == 0 {
		e.b = append(e.b, byte(len(v)))
		e.b = append(e.b, v...)
		return len(v) <= math.MaxUint8
	}
	if uint64(len(v)) > math.MaxUint32 {
		e.fail(errTooLargeToHold)
	}
	e.b = binary.BigEndian.AppendUint32(e.b, uint32(len(v)))
	e.b = append(e.b, v...)
	return true
}

// widenElement removes the constructor of the list, map or array at the place and makes its size
// and count 4 bytes wide.
func (e *encoder) widenElement(at int) {
	if e.err != nil {
		return
	}
	if e.b[at]&0x10 != 0 { // wide already
		e.b = append(e.b[:at], e.b[at+1:]...)
		return
	}
	size, count := uint32(e.b[at+1])+3, uint32(e.b[at+2])
	var room [5]byte
	e.b = append(e.b, room[:]...)
	copy(e.b[at+8:], e.b[at+3:len(e.b)-len(room)])
	binary.BigEndian.PutUint32(e.b[at:], size)
	binary.BigEndian.PutUint32(e.b[at+4:], count)
}
