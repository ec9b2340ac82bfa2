package wire

import (
	"bytes"
	"encoding/hex"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// unhex decodes hexadecimal digits with blanks between them.
func unhex(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var sampleUUID = UUID{0xf8, 0x1d, 0x4f, 0xae, 0x7d, 0xec, 0x11, 0xd0, 0xa7, 0x65, 0x00, 0xa0, 0xc9, 0x1e, 0x6b, 0xf6}

// TestValues has the encodings of section 1.6 of the standard: one for each constructor.
func TestValues(t *testing.T) {
	long := strings.Repeat("x", 256)
	wide := hex.EncodeToString([]byte(long))
	for _, c := range []struct {
		value any
		bytes string
	}{
		{nil, "40"},
		{true, "41"},
		{false, "42"},
		{uint8(0), "50 00"},
		{uint8(255), "50 ff"},
		{uint16(0x1234), "60 1234"},
		{uint32(0), "43"},
		{uint32(1), "52 01"},
		{uint32(255), "52 ff"},
		{uint32(256), "70 00000100"},
		{uint64(0), "44"},
		{uint64(255), "53 ff"},
		{uint64(256), "80 0000000000000100"},
		{uint64(math.MaxUint64), "80 ffffffffffffffff"},
		{int8(-1), "51 ff"},
		{int16(-2), "61 fffe"},
		{int32(0), "54 00"},
		{int32(-128), "54 80"},
		{int32(127), "54 7f"},
		{int32(128), "71 00000080"},
		{int32(math.MinInt32), "71 80000000"},
		{int64(-128), "55 80"},
		{int64(-129), "81 ffffffffffffff7f"},
		{int64(math.MaxInt64), "81 7fffffffffffffff"},
		{float32(1.5), "72 3fc00000"},
		{float64(-2.25), "82 c002000000000000"},
		{Decimal32{1, 2, 3, 4}, "74 01020304"},
		{Decimal64{1, 2, 3, 4, 5, 6, 7, 8}, "84 0102030405060708"},
		{Decimal128{15: 9}, "94 00000000000000000000000000000009"},
		{Char('€'), "73 000020ac"},
		{time.UnixMilli(1311704463521).UTC(), "83 0000013167adb8a1"}, // of section 1.6.17
		{time.UnixMilli(-1).UTC(), "83 ffffffffffffffff"},
		{sampleUUID, "98 f81d4fae7dec11d0a76500a0c91e6bf6"}, // of RFC 4122
		{[]byte{}, "a0 00"},
		{[]byte{1, 2}, "a0 02 0102"},
		{[]byte(long), "b0 00000100" + wide},
		{"", "a1 00"},
		{"glückauf", "a1 09 676cc3bc636b617566"},
		{long, "b1 00000100" + wide},
		{Symbol("a"), "a3 01 61"},
		{Symbol(long), "b3 00000100" + wide},
		{List{}, "c0 01 00"},
		{List{uint32(1), nil}, "c0 04 02 5201 40"},
		{List{long}, "d0 00000109 00000001 b1 00000100" + wide},
		{Map{}, "c1 01 00"},
		{Map{{Symbol("k"), int32(1)}, {"k", true}}, "c1 0a 04 a3016b 5401 a1016b 41"},
		{Map{{"k", long}}, "d1 0000010c 00000002 a1016b b1 00000100" + wide},
		{Array{true, false}, "e0 04 02 56 01 00"},
		{Array{"ab", "c"}, "e0 07 02 a1 026162 0163"},
		{Array{int64(1), int64(-1)}, "e0 12 02 81 0000000000000001 ffffffffffffffff"},
		{Array{}, "e0 02 00 40"},
		{Array{nil, nil}, "e0 02 02 40"},
		{Array{List{uint8(1)}, List{}}, "e0 14 02 d0 00000006 00000001 5001 00000004 00000000"},
		{Array{Map{{"a", nil}}}, "e0 0e 01 d1 00000008 00000002 a10161 40"},
		{Array{Array{"a"}, Array{}}, "e0 16 02 f0 00000007 00000001 a1 0161 00000005 00000000 40"},
		{Array{Described{uint64(5), "x"}, Described{uint64(5), "y"}}, "e0 09 02 005305 a1 0178 0179"},
		// Section 1.2 describes a URL, section 1.4 a book.
		{Described{Symbol("URL"), "http://example.org/hello-world"}, "00 a3 03 55524c a1 1e 687474703a2f2f6578616d706c652e6f72672f68656c6c6f2d776f726c64"},
		{
			Described{Symbol("example:book:list"), List{"AMQP for & by Dummies", Array{"Rob J. Godfrey", "Rafael H. Schloming"}, nil}},
			"00 a3 11 6578616d706c653a626f6f6b3a6c697374 c0 40 03 a1 15 414d515020666f7220262062792044756d6d696573" +
				"e0 25 02 a1 0e 526f62204a2e20476f6466726579 13 52616661656c20482e205363686c6f6d696e67 40",
		},
	} {
		want := unhex(t, c.bytes)
		got, err := Append([]byte("before"), c.value)
		if err != nil || string(got) != "before"+string(want) {
			t.Errorf("%#v is encoded as %x, %v, want %x", c.value, got, err, want)
		}
		v, rest, err := Decode(append(want, "rest"...))
		if err != nil || !reflect.DeepEqual(v, c.value) || string(rest) != "rest" {
			t.Errorf("%x is decoded as %#v, %q, %v, want %#v", want, v, rest, err, c.value)
		}
	}
}

// TestOtherEncodings has encodings that are read and never written.
func TestOtherEncodings(t *testing.T) {
	for _, c := range []struct {
		bytes string
		want  any
	}{
		{"56 01", true},
		{"56 00", false},
		{"70 00000000", uint32(0)},
		{"80 0000000000000001", uint64(1)},
		{"71 ffffffff", int32(-1)},
		{"81 ffffffffffffffff", int64(-1)},
		{"b0 00000001 07", []byte{7}},
		{"b1 00000001 61", "a"},
		{"b3 00000001 61", Symbol("a")},
		{"45", List{}},
		{"d0 00000005 00000001 41", List{true}},
		{"d1 00000004 00000000", Map{}},
		{"f0 00000007 00000002 54 01 ff", Array{int32(1), int32(-1)}},
		{"e0 02 03 41", Array{true, true, true}},
		{"e0 02 02 45", Array{List{}, List{}}},
		{"e0 04 01 c0 01 00", Array{List{}}},
		{"00 80 0000000000000024 45", Described{uint64(0x24), List{}}},
		{"00 b3 00000001 61 40", Described{Symbol("a"), nil}},
	} {
		v, rest, err := Decode(unhex(t, c.bytes))
		if err != nil || !reflect.DeepEqual(v, c.want) || len(rest) > 0 {
			t.Errorf("%s is decoded as %#v, %x, %v, want %#v", c.bytes, v, rest, err, c.want)
		}
	}
}

func TestArrayOf(t *testing.T) {
	for _, c := range []struct {
		array TypedArray
		bytes string
	}{
		{ArrayOf(ConstructorLong), "e0 02 00 81"},
		{ArrayOf(ConstructorUUID, sampleUUID), "e0 12 01 98 f81d4fae7dec11d0a76500a0c91e6bf6"},
		{ArrayOf(ConstructorSmallLong, int64(1), int64(-1)), "e0 04 02 55 01 ff"},
		{ArrayOf(ConstructorSymbol32, Symbol("a")), "e0 07 01 b3 00000001 61"},
		{ArrayOf(ConstructorSmallUint, uint32(7)), "e0 03 01 52 07"},
	} {
		if got, err := Append(nil, c.array); err != nil || !bytes.Equal(got, unhex(t, c.bytes)) {
			t.Errorf("%v is encoded as %x, %v, want %s", c.array, got, err, c.bytes)
		}
	}
	for _, wrong := range []any{
		ArrayOf(ConstructorSmallLong, int64(128)), ArrayOf(ConstructorInt, int64(1)), ArrayOf(ConstructorString8, strings.Repeat("x", 256)),
		ArrayOf(constructorTrue, true), Array{"a", Symbol("a")}, Array{nil, 1}, Array{Described{uint64(1), "a"}, Described{uint64(2), "a"}},
		Array{Described{uint64(1), "a"}, "a"}, Array{1},
	} {
		if got, err := Append([]byte("before"), wrong); err == nil || string(got) != "before" {
			t.Errorf("%v is encoded as %x, %v, want an error and nothing written", wrong, got, err)
		}
	}
}
