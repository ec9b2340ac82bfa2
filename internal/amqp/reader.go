package amqp

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

const (
	frameHeader = 8

	// readBuffer is what an idle connection keeps to read into. Frames that are larger, and bursts
	// of them, are read into a buffer of largeBuffer that goes back to the pool when it is empty.
	readBuffer  = 2 << 10
	largeBuffer = 64 << 10
)

var largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// frame is a frame as it was read (§2.3.1). The body is valid until the next one is read. An
// empty one is a heartbeat.
type frame struct {
	kind    byte
	channel uint16
	body    []byte
}

// frameError says that what was read is no frame, so that nothing behind it can be read either.
type frameError struct{ text string }

func (e *frameError) Error() string { return e.text }

// frameReader cuts what a peer sends into frames.
type frameReader struct {
	source io.Reader
	limit  int // the size of the largest frame
	// waits is called before the source is read, when the next frame is not there whole.
	waits func()

	small      []byte
	large      *[largeBuffer]byte
	buf        []byte // small, large or, for frames that are larger still, one of its own
	start, end int
	full       bool // the last read filled buf, so there is likely more
}

func newFrameReader(source io.Reader, limit int, waits func()) *frameReader {
	r := &frameReader{source: source, limit: limit, waits: waits, small: make([]byte, readBuffer)}
	r.buf = r.small
	return r
}

// next returns the next frame.
func (r *frameReader) next() (frame, error) {
	head, err := r.peek(frameHeader)
	if err != nil {
		return frame{}, err
	}
	size, offset := int(binary.BigEndian.Uint32(head)), int(head[4])*4
	switch {
	case size < frameHeader:
		return frame{}, &frameError{fmt.Sprintf("a frame of %d bytes is shorter than its header", size)}
	case size > r.limit:
		return frame{}, &frameError{fmt.Sprintf("a frame of %d bytes is larger than max-frame-size, %d", size, r.limit)}
	case offset < frameHeader || offset > size:
		return frame{}, &frameError{fmt.Sprintf("the body of a frame of %d bytes begins at byte %d", size, offset)}
	}
	whole, err := r.peek(size)
	if err != nil {
		return frame{}, err
	}
	r.start += size
	return frame{kind: whole[5], channel: binary.BigEndian.Uint16(whole[6:]), body: whole[offset:]}, nil
}

// header returns the eight bytes of a protocol header (§2.2).
func (r *frameReader) header() (h [8]byte, err error) {
	b, err := r.peek(len(h))
	if err != nil {
		return h, err
	}
	r.start += len(h)
	return [8]byte(b), nil
}

// peek returns the next n bytes without taking them.
func (r *frameReader) peek(n int) ([]byte, error) {
	for r.end-r.start < n {
		r.makeRoom(n)
		r.waits()
		read, err := r.source.Read(r.buf[r.end:])
		r.end += read
		r.full = r.end == len(r.buf)
		if err != nil && r.end-r.start < n {
			if err == io.EOF && r.end > r.start {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return r.buf[r.start : r.start+n], nil
}

// makeRoom chooses the buffer for n bytes, of which some are there already, and moves them to its
// beginning if that is needed.
func (r *frameReader) makeRoom(n int) {
	have := r.end - r.start
	switch {
	case n > largeBuffer:
		if len(r.buf) < n {
			r.use(make([]byte, n))
			return
		}
	case n > len(r.small), r.full && r.large == nil:
		if r.large == nil {
			large := largeBuffers.Get().(*[largeBuffer]byte)
			r.use(large[:])
			r.large = large
			return
		}
	case have == 0 && !r.full:
		r.use(r.small)
		return
	}
	if have == 0 || len(r.buf)-r.start < n || r.end == len(r.buf) {
		copy(r.buf, r.buf[r.start:r.end])
		r.start, r.end = 0, have
	}
}

// use makes buf the buffer, with what was read and not taken, and gives a large one back.
func (r *frameReader) use(buf []byte) {
	have := copy(buf, r.buf[r.start:r.end])
	r.buf, r.start, r.end = buf, 0, have
	if r.large != nil {
		largeBuffers.Put(r.large)
		r.large = nil
	}
}

// release gives the buffers back. Nothing can be read any more.
func (r *frameReader) release() {
	r.start, r.end = 0, 0
	r.use(nil)
	r.small = nil
}
