package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Protocol headers, which peers exchange before frames (2.2, 5.3.2).
const (
	ProtocolAMQP = "AMQP\x00\x01\x00\x00"
	ProtocolTLS  = "AMQP\x02\x01\x00\x00"
	ProtocolSASL = "AMQP\x03\x01\x00\x00"
)

// Types of frames (2.3.1).
const (
	FrameAMQP uint8 = 0
	FrameSASL uint8 = 1
)

// FrameHeader is the size of a frame that has no body, which keeps a connection alive (2.4.5).
const FrameHeader = 8

// Frame is a frame as it was read (2.3). Its extended header, which no peer uses, is left out.
type Frame struct {
	Type    uint8
	Channel uint16 // of frames of type FrameAMQP
	Body    []byte // empty in a frame that only keeps the connection alive
}

// Errors of ReadFrame besides those of the reader.
var (
	ErrFrameTooLarge  = errors.New("amqp: frame: it is larger than was agreed")
	ErrFrameMalformed = errors.New("amqp: frame: its size or data offset is impossible")
)

// ReadFrame reads a frame of at most limit bytes, its header included. The body is in buf or, if
// that is too small, in a larger slice, which is returned for the next call. A large buffer grows
// as the bytes arrive: a peer cannot reserve memory by a size alone. An end of the stream before
// the frame is io.EOF, within it io.ErrUnexpectedEOF.
func ReadFrame(r io.Reader, limit uint32, buf []byte) (f Frame, next []byte, err error) {
	buf = slices.Grow(buf[:0], FrameHeader)
	head := buf[:FrameHeader]
	if _, err := io.ReadFull(r, head); err != nil {
		return f, buf, err
	}
	size, offset := binary.BigEndian.Uint32(head), 4*int(head[4])
	f.Type, f.Channel = head[5], binary.BigEndian.Uint16(head[6:])
	if size > limit {
		return f, buf, fmt.Errorf("%w: %d bytes, %d are allowed", ErrFrameTooLarge, size, limit)
	}
	if offset < FrameHeader || uint64(offset) > uint64(size) {
		return f, buf, ErrFrameMalformed
	}
	buf, err = readFull(r, buf[:0], int(size)-FrameHeader)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return f, buf, err
	}
	f.Body = buf[offset-FrameHeader:]
	return f, buf, nil
}

// readFull reads n bytes into buf, which it grows by no more than has arrived and a little.
func readFull(r io.Reader, buf []byte, n int) ([]byte, error) {
	const step = 64 << 10
	for len(buf) < n {
		have := len(buf)
		if cap(buf) < n {
			buf = slices.Grow(buf, min(n-have, max(have, step)))
		}
		buf = buf[:min(n, cap(buf))]
		if got, err := io.ReadFull(r, buf[have:]); err != nil {
			return buf[:have+got], err
		}
	}
	return buf, nil
}

// AppendFrame appends a frame to dst. p is nil in a frame that only keeps the connection alive;
// payload is what follows a Transfer. The bytes returned with an error are dst.
func AppendFrame(dst []byte, kind uint8, channel uint16, p Performative, payload []byte) ([]byte, error) {
	out := dst
	out = append(out, 0, 0, 0, 0, FrameHeader/4, kind, byte(channel>>8), byte(channel))
	if p != nil {
		var err error
		if out, err = AppendPerformative(out, p); err != nil {
			return dst, err
		}
	}
	out = append(out, payload...)
	size := len(out) - len(dst)
	if uint64(size) > math.MaxUint32 {
		return dst, errTooLargeToHold
	}
	binary.BigEndian.PutUint32(out[len(dst):], uint32(size))
	return out, nil
}
