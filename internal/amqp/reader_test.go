package amqp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/forebayhq/forebay/internal/raced"
)

// rawFrame returns a frame with that body.
func rawFrame(kind byte, channel uint16, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(frameHeader+len(body)))
	b = append(b, 2, kind)
	b = binary.BigEndian.AppendUint16(b, channel)
	return append(b, body...)
}

func TestFramesAreCutAlikeHoweverTheyArrive(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	random := rand.New(rand.NewPCG(1, 2))
	var sent [][]byte
	var stream []byte
	for range 300 {
		size := []int{0, 1, 100, readBuffer - frameHeader, readBuffer, 5000, largeBuffer - frameHeader, largeBuffer, 100_000}[random.IntN(9)]
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(random.Uint32())
		}
		sent = append(sent, body)
		stream = append(stream, rawFrame(byte(random.IntN(2)), uint16(size), body)...)
	}
	for name, source := range map[string]io.Reader{
		"whole":       bytes.NewReader(stream),
		"byte":        iotest.OneByteReader(bytes.NewReader(stream)),
		"half":        iotest.HalfReader(bytes.NewReader(stream)),
		"data at EOF": iotest.DataErrReader(bytes.NewReader(stream)),
		"random":      &randomReader{bytes.NewReader(stream), random},
	} {
		r := newFrameReader(source, 1<<20, func() {})
		for i, body := range sent {
			f, err := r.next()
			if err != nil {
				t.Fatalf("%s: frame %d: %v", name, i, err)
			}
			if !bytes.Equal(f.body, body) || f.channel != uint16(len(body)) {
				t.Fatalf("%s: frame %d: %d bytes on channel %d, of %d sent", name, i, len(f.body), f.channel, len(body))
			}
		}
		if _, err := r.next(); err != io.EOF {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

type randomReader struct {
	source io.Reader
	random *rand.Rand
}

func (r *randomReader) Read(p []byte) (int, error) {
	return r.source.Read(p[:min(len(p), 1+r.random.IntN(3000))])
}

func TestFrameReaderKeepsASmallBufferWhileIdle(t *testing.T) {
	frames := append(rawFrame(0, 0, make([]byte, 40_000)), rawFrame(0, 0, make([]byte, 3_000))...)
	source := &asking{Reader: bytes.NewReader(frames)}
	r := newFrameReader(source, largeBuffer, func() {})
	source.ask = func(p []byte) {
		if source.Len() == 0 && (r.large != nil || len(p) > readBuffer) {
			t.Errorf("waits with a buffer of %d bytes", len(p))
		}
	}
	for range 2 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.next(); err != io.EOF {
		t.Fatal(err)
	}
}

// asking shows the buffer that it is to fill.
type asking struct {
	*bytes.Reader
	ask func([]byte)
}

func (a *asking) Read(p []byte) (int, error) {
	a.ask(p)
	return a.Reader.Read(p)
}

func TestWhatIsNoFrameIsAnError(t *testing.T) {
	for name, b := range map[string][]byte{
		"shorter than its header": {0, 0, 0, 7, 2, 0, 0, 0},
		"too large":               {0, 1, 0, 1, 2, 0, 0, 0},
		"largest number":          {255, 255, 255, 255, 2, 0, 0, 0},
		"data offset of one":      {0, 0, 0, 8, 1, 0, 0, 0},
		"data offset beyond":      {0, 0, 0, 8, 3, 0, 0, 0},
	} {
		var malformed *frameError
		if _, err := newFrameReader(bytes.NewReader(b), largeBuffer, func() {}).next(); !errors.As(err, &malformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, b := range [][]byte{{0}, {0, 0, 0, 9, 2, 0, 0, 0}} {
		if _, err := newFrameReader(bytes.NewReader(b), largeBuffer, func() {}).next(); err != io.ErrUnexpectedEOF {
			t.Errorf("cut after %d bytes: %v", len(b), err)
		}
	}
	extended := []byte{0, 0, 0, 13, 3, 0, 0, 5, 1, 2, 3, 4, 9} // §2.3.1: an extended header is skipped
	if f, err := newFrameReader(bytes.NewReader(extended), largeBuffer, func() {}).next(); err != nil || !bytes.Equal(f.body, []byte{9}) {
		t.Errorf("extended header: %v, %v", f.body, err)
	}
}
