package wire

import (
	"bytes"
	"encoding/hex"
)

type (
	// Symbol is a symbolic value of a constrained domain (1.6.21). It is ASCII.
	Symbol string
	// UUID is a universally unique id in the order of RFC 4122 (1.6.18).
	UUID [16]byte
	// Char is a single Unicode character (1.6.16).
	Char rune
	// Decimal32 is an IEEE 754-2008 decimal in network byte order, with a binary integer
	// significand (1.6.13). It is carried, not computed with.
	Decimal32 [4]byte
	// Decimal64 is like Decimal32 (1.6.14).
	Decimal64 [8]byte
	// Decimal128 is like Decimal32 (1.6.15).
	Decimal128 [16]byte
	// List is a sequence of values of any type (1.6.22).
	List []any
	// Map is a polymorphic mapping in the order it was sent (1.6.23).
	Map []Pair
	// Pair is an entry of a Map.
	Pair struct{ Key, Value any }
	// Array is a sequence of values of one type (1.6.24). Elements that are Described have to have
	// equal descriptors. An empty Array does not say of what type it is; see ArrayOf.
	Array []any
	// Described is a value with a descriptor of a type that this package does not know (1.2). The
	// descriptor is a uint64 or a Symbol.
	Described struct{ Descriptor, Value any }
	// TypedArray is an array whose elements are written with a chosen constructor. It is only
	// written: Decode returns an Array.
	TypedArray struct {
		Constructor byte
		Elements    []any
	}
)

// ArrayOf returns an array that is written with the constructor given, such as ConstructorLong. It
// is the way to say the type of an empty array.
func ArrayOf(constructor byte, elements ...any) TypedArray {
	return TypedArray{constructor, elements}
}

// Constructors of the standard's encodings (1.6).
const (
	ConstructorNull       byte = 0x40
	constructorTrue       byte = 0x41
	constructorFalse      byte = 0x42
	constructorUint0      byte = 0x43
	constructorUlong0     byte = 0x44
	constructorList0      byte = 0x45
	ConstructorUbyte      byte = 0x50
	ConstructorByte       byte = 0x51
	ConstructorSmallUint  byte = 0x52
	ConstructorSmallUlong byte = 0x53
	ConstructorSmallInt   byte = 0x54
	ConstructorSmallLong  byte = 0x55
	ConstructorBoolean    byte = 0x56
	ConstructorUshort     byte = 0x60
	ConstructorShort      byte = 0x61
	ConstructorUint       byte = 0x70
	ConstructorInt        byte = 0x71
	ConstructorFloat      byte = 0x72
	ConstructorChar       byte = 0x73
	ConstructorDecimal32  byte = 0x74
	ConstructorUlong      byte = 0x80
	ConstructorLong       byte = 0x81
	ConstructorDouble     byte = 0x82
	ConstructorTimestamp  byte = 0x83
	ConstructorDecimal64  byte = 0x84
	ConstructorDecimal128 byte = 0x94
	ConstructorUUID       byte = 0x98
	ConstructorBinary8    byte = 0xa0
	ConstructorString8    byte = 0xa1
	ConstructorSymbol8    byte = 0xa3
	ConstructorBinary32   byte = 0xb0
	ConstructorString32   byte = 0xb1
	ConstructorSymbol32   byte = 0xb3
	ConstructorList8      byte = 0xc0
	ConstructorMap8       byte = 0xc1
	ConstructorList32     byte = 0xd0
	ConstructorMap32      byte = 0xd1
	ConstructorArray8     byte = 0xe0
	ConstructorArray32    byte = 0xf0
)

// MaxDepth is how deep lists, maps, arrays and described values may nest, read or written.
const MaxDepth = 32

// MaxElements is how many elements all lists, maps and arrays of one decoded value may have.
const MaxElements = 1 << 20

// String returns the id in the form of RFC 4122.
func (u UUID) String() string {
	var text [36]byte
	hex.Encode(text[:], u[:4])
	for i, at := range [...]int{8, 13, 18} {
		text[at] = '-'
		hex.Encode(text[at+1:], u[4+2*i:6+2*i])
	}
	text[23] = '-'
	hex.Encode(text[24:], u[10:])
	return string(text[:])
}

// Get returns the value of the first entry with the key. A string matches a Symbol of the same
// characters and the other way round; other types of keys match their own type only.
func (m Map) Get(key any) (value any, ok bool) {
	for i := range m {
		if sameKey(m[i].Key, key) {
			return m[i].Value, true
		}
	}
	return nil, false
}

func sameKey(a, b any) bool {
	if b, ok := text(b); ok {
		a, ok := text(a)
		return ok && a == b
	}
	switch b := b.(type) {
	case []byte:
		a, ok := a.([]byte)
		return ok && bytes.Equal(a, b)
	case List, Map, Array, TypedArray, Described:
		return false // not comparable, and no key of any type of the standard
	}
	return a == b
}

func text(key any) (string, bool) {
	switch key := key.(type) {
	case string:
		return key, true
	case Symbol:
		return string(key), true
	}
	return "", false
}

// ValueOr returns what p points to, or absent if p is nil. It gives optional fields their default.
func ValueOr[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}
