package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFrames(t *testing.T) {
	keepAlive, err := AppendFrame(nil, FrameAMQP, 0, nil, nil)
	if err != nil || !bytes.Equal(keepAlive, unhex(t, "00000008 02 00 0000")) {
		t.Fatalf("an empty frame is %x, %v", keepAlive, err)
	}
	transfer := &Transfer{Handle: 1, DeliveryID: new(uint32(2)), DeliveryTag: []byte("tag"), MessageFormat: new(uint32(0)), More: true}
	payload := bytes.Repeat([]byte("p"), 200_000)
	stream, err := AppendFrame(keepAlive, FrameAMQP, 0x0203, transfer, payload)
	if err != nil {
		t.Fatal(err)
	}
	// The header of a frame may be longer than 8 bytes.
	stream = append(stream, unhex(t, "0000001d 03 01 0000 deadbeef 005341 c00c03 a3054558544552 a00178 40")[:0x1d]...)
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(stream), "by bytes": iotest.OneByteReader(bytes.NewReader(stream))} {
		f, buf, err := ReadFrame(r, 512, nil)
		if err != nil || f.Type != FrameAMQP || len(f.Body) > 0 {
			t.Errorf("%s: %+v, %v, want an empty frame", name, f, err)
		}
		f, buf, err = ReadFrame(r, 1<<20, buf)
		if err != nil || f.Channel != 0x0203 {
			t.Fatalf("%s: the frame of channel %d, %v", name, f.Channel, err)
		}
		if p, rest, err := DecodePerformative(f.Body); err != nil || !reflect.DeepEqual(p, transfer) || !bytes.Equal(rest, payload) {
			t.Errorf("%s: %+v with %d bytes, %v", name, p, len(rest), err)
		}
		size := cap(buf)
		f, buf, err = ReadFrame(r, 512, buf)
		if err != nil || f.Type != FrameSASL || cap(buf) != size {
			t.Fatalf("%s: %+v, %v in a buffer of %d bytes, which had %d", name, f, err, cap(buf), size)
		}
		want := &SASLInit{Mechanism: "EXTER", InitialResponse: []byte("x")}
		if p, _, err := DecodePerformative(f.Body); err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("%s: %+v, %v, want %+v", name, p, err, want)
		}
		if _, _, err := ReadFrame(r, 512, buf); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

func TestWrongFrames(t *testing.T) {
	for _, c := range []struct {
		bytes string
		want  error
	}{
		{"", io.EOF},
		{"000000", io.ErrUnexpectedEOF},
		{"00000009 02 00 0000", io.ErrUnexpectedEOF},
		{"00000007 02 00 0000", ErrFrameMalformed},
		{"00000008 01 00 0000", ErrFrameMalformed},
		{"00000008 03 00 0000", ErrFrameMalformed},
		{"00000201 02 00 0000", ErrFrameTooLarge},
		{"ffffffff 02 00 0000", ErrFrameTooLarge},
	} {
		if _, _, err := ReadFrame(bytes.NewReader(unhex(t, c.bytes)), 512, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.bytes, err, c.want)
		}
	}
	claim := append(unhex(t, "7fffffff 02 00 0000"), "a little"...)
	allocated := allocatedBytes(func() {
		if _, _, err := ReadFrame(bytes.NewReader(claim), DefaultMaxFrameSize, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	})
	if allocated > 1<<18 {
		t.Errorf("a frame that claims 2 GiB made ReadFrame allocate %d bytes", allocated)
	}
	before := []byte("before")
	if got, err := AppendFrame(before, FrameAMQP, 0, &Open{ContainerID: "\xff"}, nil); err == nil || string(got) != "before" {
		t.Errorf("a frame that has no encoding leaves %q, %v", got, err)
	}
}

func TestSymbolicDescriptors(t *testing.T) {
	encoded, err := Append(nil, Described{Symbol("amqp:disposition:list"), List{true, uint32(3), nil, false, Described{Symbol("amqp:released:list"), List{}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := &Disposition{Role: RoleReceiver, First: 3, State: &Released{}}
	if p, _, err := DecodePerformative(encoded); err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("%+v, %v, want %+v", p, err, want)
	}
}

// TestShortAndLongLists has composite types with fewer fields than the standard's, and with more.
func TestShortAndLongLists(t *testing.T) {
	want := &Detach{Handle: 7}
	for _, fields := range []List{{uint32(7)}, {uint32(7), nil}, {uint32(7), false, nil, "new", Map{{"k", List{nil}}}}} {
		encoded, err := Append(nil, Described{uint64(codeDetach), fields})
		if err != nil {
			t.Fatal(err)
		}
		if p, rest, err := DecodePerformative(encoded); err != nil || !reflect.DeepEqual(p, want) || len(rest) > 0 {
			t.Errorf("%v is decoded as %+v, %x, %v", fields, p, rest, err)
		}
	}
	for _, empty := range []string{"005317 45", "005317 c00100", "005317 d0 00000004 00000000"} {
		if p, _, err := DecodePerformative(unhex(t, empty)); err != nil || !reflect.DeepEqual(p, &End{}) {
			t.Errorf("%s is decoded as %+v, %v", empty, p, err)
		}
	}
}

func TestFieldErrorsNameTheField(t *testing.T) {
	condition := func(v any) any { return Described{uint64(codeError), List{v}} }
	for _, c := range []struct {
		code   uint64
		fields any
		want   string
	}{
		{codeOpen, List{}, "open: container-id: it is missing"},
		{codeOpen, List{uint32(5)}, "open: container-id: it is not of type string"},
		{codeOpen, List{"c", nil, uint64(5)}, "open: max-frame-size: it is not of type uint"},
		{codeOpen, "secret", "open: it is not a list"},
		{codeBegin, List{nil, uint32(1), uint32(1)}, "begin: outgoing-window: it is missing"},
		{codeTransfer, List{uint32(1), nil, make([]byte, 256)}, "transfer: delivery-tag: it is longer than 255 bytes"},
		{codeAttach, List{"n", uint32(1), true, uint8(3)}, "attach: snd-settle-mode: it is not a mode of the standard"},
		{codeAttach, List{"n", uint32(1), true, nil, nil, "secret"}, "attach: source: it is not of type that the standard demands"},
		{codeDetach, List{uint32(1), nil, condition("secret \xe2\x82\xac")}, "error: condition: a symbol is not ASCII"},
		{codeDetach, List{uint32(1), nil, condition(nil)}, "error: condition: it is missing"},
		{codeSASLMechanisms, List{Array{"secret"}}, "sasl-mechanisms: sasl-server-mechanisms: it is not of type symbol, nor an array of them"},
		{0x99, List{}, "an unknown descriptor"},
	} {
		encoded, err := Append(nil, Described{c.code, c.fields})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = DecodePerformative(encoded)
		var wrong *DecodeError
		if !errors.As(err, &wrong) || !strings.HasSuffix(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%#x %v: %v, want %q", c.code, c.fields, err, c.want)
		}
	}
}
