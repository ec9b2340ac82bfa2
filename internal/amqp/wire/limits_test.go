package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWrongValues(t *testing.T) {
	for _, c := range []struct{ bytes, want string }{
		{"", "the data end too early"},
		{"00", "the data end too early"},
		{"80 00", "the data end too early"},
		{"a1 05 61", "the data end too early"},
		{"b0 ffffffff 00", "the data end too early"},
		{"a1 01 ff", "a string is not valid UTF-8"},
		{"b1 00000002 c328", "a string is not valid UTF-8"},
		{"a3 01 e9", "a symbol is not ASCII"},
		{"73 0000d800", "a char is not a Unicode character"},
		{"73 00110000", "a char is not a Unicode character"},
		{"56 02", "a boolean is neither 0 nor 1"},
		{"3f", "an unknown constructor"},
		{"46", "an unknown constructor"},
		{"57 00", "an unknown constructor"},
		{"62 0000", "an unknown constructor"},
		{"75 00000000", "an unknown constructor"},
		{"85 0000000000000000", "an unknown constructor"},
		{"99 00000000000000000000000000000000", "an unknown constructor"},
		{"a2 00", "an unknown constructor"},
		{"c2 01 00", "an unknown constructor"},
		{"00 40 40", "a descriptor is neither ulong nor symbol"},
		{"00 00 53 01 40 40", "a descriptor is neither ulong nor symbol"},
		{"00 a3 01 ff 40", "a symbol is not ASCII"},
		{"c0 05 01 40", "a size is larger than what there is"},
		{"c0 03 01 4040", "a size is larger than the elements need"},
		{"c0 02 02 40", "a count is larger than the size allows"},
		{"c0 00 00", "the data end too early"},
		{"d0 ffffffff 00000000", "a size is larger than what there is"},
		{"d0 00000005 ffffffff 40", "too many elements"},
		{"c1 02 01 40", "a map has a key without a value"},
		{"e0 02 01 70", "a count is larger than the size allows"},
		{"f0 00000005 ffffffff 40", "too many elements"},
		{"f0 00000005 00010000 41", "too many elements"},
		{"c0 0f 02 f0 00000005 00000080 40 e0 02 81 40", "too many elements"},
		{"e0 02 00 3f", "an unknown constructor"},
		{"e0 05 00 00 5301 a2", "an unknown constructor"},
		{"e0 04 01 00 00 40", "a descriptor is neither ulong nor symbol"},
		{"e0 06 01 00 5301 00 5302", "an array of described values of described values"},
	} {
		v, rest, err := Decode(unhex(t, c.bytes))
		var wrong *DecodeError
		if !errors.As(err, &wrong) || wrong.Problem != c.want || v != nil || rest != nil {
			t.Errorf("%s is decoded as %#v, %x, %v, want the error %q", c.bytes, v, rest, err, c.want)
		}
	}
}

func TestErrorsHaveOffsets(t *testing.T) {
	encoded, err := Append(nil, List{"ok", Map{{"k", uint64(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	at := len(encoded) - 2
	encoded[at] = 0x99
	_, _, err = Decode(encoded)
	var wrong *DecodeError
	if !errors.As(err, &wrong) || wrong.Offset != at {
		t.Errorf("%v, want the offset %d", err, at)
	}
}

// nested returns so many levels of each way to nest.
func nested(levels int) map[string][]byte {
	ways := map[string][]byte{"described": append(bytes.Repeat([]byte{0x00, 0x44}, levels), 0x40)}
	for name, constructor := range map[string]byte{"list": 0xd0, "map": 0xd1, "array": 0xf0} {
		b := []byte{0x40}
		for range levels {
			head, count, inner := []byte{constructor}, uint32(1), b
			switch name {
			case "map":
				count, inner = 2, append([]byte{0x40}, b...)
			case "array": // the constructor of the only element, then the element without one
				inner = b
			}
			head = binary.BigEndian.AppendUint32(head, uint32(len(inner)+4))
			head = binary.BigEndian.AppendUint32(head, count)
			b = slices.Concat(head, inner)
		}
		ways[name] = b
	}
	return ways
}

func TestDepthIsLimited(t *testing.T) {
	for name, b := range nested(MaxDepth) {
		if _, rest, err := Decode(b); err != nil || len(rest) > 0 {
			t.Errorf("%s: %d levels: %v", name, MaxDepth, err)
		}
	}
	for _, levels := range []int{MaxDepth + 1, 1000} {
		for name, b := range nested(levels) {
			var wrong *DecodeError
			if _, _, err := Decode(b); !errors.As(err, &wrong) || !strings.Contains(wrong.Problem, "deeper") {
				t.Errorf("%s: %d levels: %v", name, levels, err)
			}
			message := append([]byte{0x00, 0x53, byte(CodeValue)}, b...)
			if _, err := DecodeMessage(message); err == nil {
				t.Errorf("%s: %d levels in a message are accepted", name, levels)
			}
		}
	}
	states := bytes.Repeat(unhex(t, "005334 d0 00000fff 00000002 a000"), 100)
	if _, _, err := DecodeComposite(states); err == nil {
		t.Error("transactional states in each other are accepted")
	}
	var list any = List{}
	for range MaxDepth - 1 {
		list = List{list}
	}
	if _, err := Append(nil, list); err != nil {
		t.Errorf("%d levels are not written: %v", MaxDepth, err)
	}
	itself := List{nil}
	itself[0] = itself
	for _, deep := range []any{List{list}, Described{uint64(1), list}, Map{{"k", list}}, Array{list}, itself} {
		if got, err := Append(nil, deep); !errors.Is(err, errTooDeepToWrite) || got != nil {
			t.Errorf("a value that nests too deep is written as %d bytes, %v", len(got), err)
		}
	}
}

func TestWhatHasNoEncoding(t *testing.T) {
	for _, v := range []any{
		1, uint(1), struct{}{}, "\xff", Symbol("é"), Char(0xd800), Described{"x", 1}, Described{nil, nil}, List{1}, Map{{"k", 1}},
		[]Symbol{"é"}, ArrayOf(0x3f), ArrayOf(0x00), Array{"\xff"}, Array{Symbol("é")}, &Error{Condition: "é"}, []string{"a"},
	} {
		if got, err := Append([]byte("before"), v); err == nil || string(got) != "before" {
			t.Errorf("%#v is encoded as %x, %v, want an error", v, got, err)
		}
	}
}

// allocatedBytes returns how much f allocates. Tests that use it do not run in parallel.
func allocatedBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestDecodingAllocatesLittle has the inputs that make the most of a byte.
func TestDecodingAllocatesLittle(t *testing.T) {
	const size = 100_000
	repeat := func(element string) []byte {
		unit := unhex(t, element)
		count := size / len(unit)
		head := binary.BigEndian.AppendUint32([]byte{0xd0}, uint32(4+count*len(unit)))
		return append(binary.BigEndian.AppendUint32(head, uint32(count)), bytes.Repeat(unit, count)...)
	}
	inputs := map[string][]byte{
		"null": repeat("40"), "list0": repeat("45"), "list8": repeat("c00100"), "list of null": repeat("c0020140"), "map": repeat("c1 03 02 40 40"), "array": repeat("e0 02 00 40"),
		"string": repeat("a1 01 61"), "binary": repeat("a0 00"), "symbol": repeat("a3 01 61"), "described": repeat("00 44 40"), "symbolic": repeat("00 a3 01 61 40"),
		"ulong": repeat("53 05"), "int": repeat("54 85"), "boolean": repeat("41"), "timestamp": repeat("83 0000000000000001"),
		"array of true":                    repeat("e0 02 00 41"),
		"as many empty elements as may be": append(unhex(t, "f0 00000005"), append(binary.BigEndian.AppendUint32(nil, maxEmptyElements), 0x45)...),
	}
	for name, b := range inputs {
		var err error
		allocated := allocatedBytes(func() { _, _, err = Decode(b) })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if limit := uint64(64*len(b) + 8192); allocated > limit {
			t.Errorf("%s: %d bytes of input allocate %d, want %d at most", name, len(b), allocated, limit)
		}
	}
}

func TestMapGet(t *testing.T) {
	m := Map{{Symbol("a"), 1}, {"b", 2}, {uint64(3), 3}, {[]byte("c"), 4}, {List{}, 5}, {nil, 6}, {"b", 7}}
	for _, c := range []struct {
		key, want any
	}{
		{"a", 1}, {Symbol("a"), 1}, {"b", 2}, {Symbol("b"), 2}, {uint64(3), 3}, {uint32(3), nil}, {[]byte("c"), 4}, {"c", nil}, {List{}, nil},
		{nil, 6}, {"", nil}, {Map{}, nil}, {Described{}, nil},
	} {
		if v, ok := m.Get(c.key); v != c.want || ok != (c.want != nil) {
			t.Errorf("the value of %#v is %v, %t, want %v", c.key, v, ok, c.want)
		}
	}
	if got := sampleUUID.String(); got != "f81d4fae-7dec-11d0-a765-00a0c91e6bf6" {
		t.Error(got)
	}
}

func TestTimesAreMilliseconds(t *testing.T) {
	zone := time.FixedZone("east", 3600)
	for _, ms := range []int64{0, -1, 253402243199000, -62135596800000, 1<<63 - 1, -1 << 63} {
		encoded, err := Append(nil, time.UnixMilli(ms).In(zone))
		if err != nil {
			t.Fatal(err)
		}
		if v, _, err := Decode(encoded); err != nil || v.(time.Time).UnixMilli() != ms || v.(time.Time).Location() != time.UTC {
			t.Errorf("%d ms is decoded as %v, %v", ms, v, err)
		}
	}
}
