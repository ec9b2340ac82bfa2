package wire

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

// checkError checks that an error is a DecodeError within the input.
func checkError(t *testing.T, b []byte, err error) {
	t.Helper()
	var wrong *DecodeError
	if !errors.As(err, &wrong) || wrong.Offset < 0 || wrong.Offset > len(b) || wrong.Problem == "" {
		t.Errorf("%x: the error is %#v", b, err)
	}
}

// checkAllocated checks that decoding allocates at most so much for each byte of input.
func checkAllocated(t *testing.T, b []byte, decode func()) {
	t.Helper()
	if got, limit := allocatedBytes(decode), uint64(64*len(b)+16384); got > limit {
		t.Errorf("%d bytes allocate %d, want %d at most: %x", len(b), got, limit, b)
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range goValues {
		encoded, err := Append(nil, c.ours)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	for _, digits := range []string{"45", "e0 02 03 41", "00 a3 01 61 40", "f0 00000005 ffffffff 40", "e0 09 02 005305 a1 0178 0179", "d0 00000005 00000001 41"} {
		f.Add(unhex(f, digits))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v any
		var rest []byte
		var err error
		checkAllocated(t, b, func() { v, rest, err = Decode(b) })
		if err != nil {
			checkError(t, b, err)
			return
		}
		if len(rest) >= len(b) || !bytes.HasSuffix(b, rest) {
			t.Fatalf("%x leaves %x", b, rest)
		}
		encoded, err := Append(nil, v)
		if err != nil {
			t.Fatalf("%x is decoded as %#v, which has no encoding: %v", b, v, err)
		}
		again, rest, err := Decode(encoded)
		if err != nil || len(rest) > 0 {
			t.Fatalf("%x is encoded as %x, which is decoded with %x left, %v", b, encoded, rest, err)
		}
		second, err := Append(nil, again)
		if err != nil || !bytes.Equal(second, encoded) {
			t.Errorf("%x is encoded as %x, then as %x, %v", b, encoded, second, err)
		}
		if !containsNaN(v) && !reflect.DeepEqual(again, v) {
			t.Errorf("%x is decoded as %#v, then as %#v", b, v, again)
		}
	})
}

// containsNaN reports whether something in v is not equal to itself.
func containsNaN(v any) bool {
	switch v := v.(type) {
	case float32:
		return v != v
	case float64:
		return v != v
	case List:
		return containsAnyNaN(v)
	case Array:
		return containsAnyNaN(v)
	case Map:
		for _, p := range v {
			if containsNaN(p.Key) || containsNaN(p.Value) {
				return true
			}
		}
	case Described:
		return containsNaN(v.Value)
	}
	return false
}

func containsAnyNaN(v []any) bool {
	for _, element := range v {
		if containsNaN(element) {
			return true
		}
	}
	return false
}

func FuzzPerformative(f *testing.F) {
	for _, frame := range ourFrames() {
		encoded, err := AppendPerformative(nil, frame.p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Add(unhex(f, "005340 c0 0a 01 e0 07 02 a3 01 61 02 6263"))
	f.Add(unhex(f, "005315 c0 0c 05 41 5201 40 41 005334 c0 06 02 a0 01 05 005324 45"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Performative
		var payload []byte
		var err error
		checkAllocated(t, b, func() { p, payload, err = DecodePerformative(b) })
		if err != nil {
			checkError(t, b, err)
			return
		}
		if len(payload) >= len(b) || !bytes.HasSuffix(b, payload) {
			t.Fatalf("%x has the payload %x", b, payload)
		}
		encoded, err := AppendPerformative(nil, p)
		if err != nil {
			t.Fatalf("%x is decoded as %#v, which has no encoding: %v", b, p, err)
		}
		again, payload, err := DecodePerformative(encoded)
		if err != nil || len(payload) > 0 {
			t.Fatalf("%x is encoded as %x, which is decoded with %x left, %v", b, encoded, payload, err)
		}
		if second, err := AppendPerformative(nil, again); err != nil || !bytes.Equal(second, encoded) {
			t.Errorf("%x is encoded as %x, then as %x, %v", b, encoded, second, err)
		}
	})
}

func FuzzReadFrame(f *testing.F) {
	const limit = 4096
	stream := unhex(f, "00000008 02 00 0000 0000000c 03 01 0000 deadbeef")
	for _, frame := range ourFrames() {
		var err error
		if stream, err = AppendFrame(stream, FrameAMQP, 9, frame.p, []byte(frame.payload)); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(stream)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		var buf []byte
		for {
			before := r.Len()
			frame, next, err := ReadFrame(r, limit, buf)
			if err != nil {
				return
			}
			buf = next
			if read := before - r.Len(); read < FrameHeader || read > limit || len(frame.Body) > read-FrameHeader {
				t.Fatalf("%x: a frame of %d bytes has a body of %d", b, read, len(frame.Body))
			}
			if cap(buf) > 2*limit {
				t.Fatalf("%x: the buffer has %d bytes", b, cap(buf))
			}
		}
	})
}

func FuzzMessage(f *testing.F) {
	m, _ := samples()
	for _, m := range []*Message{m, {HasValue: true}, {Value: Map{{"k", List{int64(1)}}}, HasValue: true}, {Sequences: []List{{"a"}, {}}}, {Value: &Discharge{TxnID: []byte("t")}, HasValue: true}} {
		encoded, err := m.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m *Message
		var err error
		checkAllocated(t, b, func() { m, err = DecodeMessage(b) })
		var sections []Section
		var splitErr error
		checkAllocated(t, b, func() { sections, splitErr = Sections(b) })
		if splitErr != nil {
			checkError(t, b, splitErr)
		} else if joined := join(sections); !bytes.Equal(joined, b) {
			t.Errorf("the sections of %x are %x together", b, joined)
		}
		if v, err := DecodeCoordinated(b); err == nil && v == nil {
			t.Errorf("%x is decoded as nothing, without an error", b)
		}
		if err != nil {
			checkError(t, b, err)
			return
		}
		if splitErr != nil {
			t.Errorf("%x is decoded as %+v, but has no sections: %v", b, m, splitErr)
		}
		encoded, err := m.Append(nil)
		if err != nil {
			t.Fatalf("%x is decoded as %+v, which has no encoding: %v", b, m, err)
		}
		again, err := DecodeMessage(encoded)
		if err != nil {
			t.Fatalf("%x is encoded as %x, which is refused: %v", b, encoded, err)
		}
		if second, err := again.Append(nil); err != nil || !bytes.Equal(second, encoded) {
			t.Errorf("%x is encoded as %x, then as %x, %v", b, encoded, second, err)
		}
	})
}

func join(sections []Section) (joined []byte) {
	for _, s := range sections {
		joined = append(joined, s.Raw...)
	}
	return joined
}
