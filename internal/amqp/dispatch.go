package amqp

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// handle carries out what a frame says. It reports true when the peer has closed the connection.
// What the peer does wrong ends the smallest thing that it concerns: a link, a session or the
// connection.
func (c *Conn) handle(f frame) (over bool, err error) {
	if f.kind != wire.FrameAMQP {
		return false, c.abandon(wire.ErrFramingError, "a frame of type %d after open", f.kind)
	}
	performative, payload, err := decode(f.body)
	if err != nil {
		return false, c.abandon(wire.ErrDecodeError, "%s", err)
	}
	if t, ok := performative.(*wire.Transfer); ok {
		c.handleTransferOn(f.channel, t, payload)
		return false, nil
	}
	var reports []report
	c.mu.Lock()
	if p, ok := performative.(*wire.Close); ok {
		over, err = true, c.handleClose(p)
	} else if !c.closing {
		reports = c.handlePerformative(f.channel, performative, keptFor(performative, f.body))
	}
	c.mu.Unlock()
	for _, r := range reports {
		r.link.options.Settled(r.settlements)
	}
	return over, err
}

// keptFor is about how many bytes are kept of a frame, besides those for all of its kind.
func keptFor(p wire.Performative, body []byte) int {
	switch p.(type) {
	case *wire.Begin, *wire.Attach:
		return 1024 + 4*len(body)
	}
	return 0
}

// decode decodes a frame whose body is overwritten by the next one. Of what it returns only the
// payload and the delivery-tag share memory with the body.
func decode(body []byte) (p wire.Performative, payload []byte, err error) {
	if p, payload, err = wire.DecodePerformative(body); err != nil {
		return nil, nil, err
	}
	switch p := p.(type) {
	case *wire.Flow: // nothing of it is kept
		return p, payload, nil
	case *wire.Begin:
		if p.Properties == nil {
			return p, payload, nil
		}
	case *wire.Disposition:
		if plain(p.State) {
			return p, payload, nil
		}
	case *wire.Transfer:
		if !plain(p.State) {
			whole, _, err := wire.DecodePerformative(bytes.Clone(body[:len(body)-len(payload)]))
			if err != nil {
				return nil, nil, err
			}
			return whole, payload, nil
		}
		return p, payload, nil
	}
	return wire.DecodePerformative(bytes.Clone(body))
}

// plain says that a state holds nothing that was read.
func plain(state wire.DeliveryState) bool {
	switch state.(type) {
	case nil, *wire.Accepted, *wire.Released:
		return true
	}
	return false
}

// abandon closes the connection, whose next bytes may be anything, and waits until the peer does.
func (c *Conn) abandon(condition wire.Symbol, format string, args ...any) error {
	err := newError(condition, fmt.Sprintf(format, args...))
	c.Close(err)
	c.discard()
	return err
}

func (c *Conn) handleClose(p *wire.Close) error {
	if !c.closing {
		c.send(0, &wire.Close{})
		if p.Error == nil {
			c.end(nil)
		} else {
			c.end(p.Error)
		}
	}
	if p.Error == nil {
		return nil
	}
	return p.Error
}

// handlePerformative carries out what is neither a transfer nor a close. The lock is held.
func (c *Conn) handlePerformative(channel uint16, performative wire.Performative, kept int) (reports []report) {
	if kept > 0 && c.held()+kept > c.server.options.MaxHeldBytes {
		c.fail(wire.ErrResourceLimitExceeded, "the connection holds %d bytes already", c.server.options.MaxHeldBytes)
		return nil
	}
	switch p := performative.(type) {
	case *wire.Open:
		c.fail(wire.ErrIllegalState, "a second open")
		return nil
	case *wire.Begin:
		c.handleBegin(channel, p, kept)
		return nil
	}
	s := c.sessions[channel]
	switch p := performative.(type) {
	case *wire.End:
		if s != nil { // a client that gave up before its begin was written ends that session all the same
			s.handleEnd(p)
		}
		return nil
	default:
		if s == nil {
			c.fail(wire.ErrIllegalState, "a frame on channel %d, which has no session", channel)
			return nil
		}
	}
	if s.over() { // the peer has not seen our End yet
		return nil
	}
	switch p := performative.(type) {
	case *wire.Attach:
		s.handleAttach(p, kept)
	case *wire.Detach:
		s.handleDetach(p)
	case *wire.Flow:
		s.handleFlow(p)
	case *wire.Disposition:
		reports = s.handleDisposition(p)
	default:
		c.fail(wire.ErrIllegalState, "a frame that is not of a connection that is open")
	}
	return reports
}

func (c *Conn) handleTransferOn(channel uint16, t *wire.Transfer, payload []byte) {
	c.mu.Lock()
	s, closing := c.sessions[channel], c.closing
	if s == nil {
		c.fail(wire.ErrIllegalState, "a transfer on channel %d, which has no session", channel)
	}
	c.mu.Unlock()
	if s != nil && !closing {
		c.handleTransfer(s, t, payload)
	}
}

// encodeFrame returns a frame of what this package has made itself, which always has an encoding.
func encodeFrame(kind byte, p wire.Performative) []byte {
	b, err := appendFrame(nil, kind, 0, p)
	if err != nil {
		panic(err)
	}
	return b
}

// appendFrame appends a frame without payload.
func appendFrame(b []byte, kind byte, channel uint16, p wire.Performative) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, 0, 0, 2, kind, byte(channel>>8), byte(channel))
	b, err := wire.AppendPerformative(b, p)
	if err != nil {
		return b[:start], err
	}
	setFrameSize(b, start)
	return b, nil
}

func setFrameSize(b []byte, start int) {
	size := len(b) - start
	b[start], b[start+1], b[start+2], b[start+3] = byte(size>>24), byte(size>>16), byte(size>>8), byte(size)
}

var errFrameTooLarge = errors.New("amqp: the frame is larger than the peer takes")

// append queues bytes. Nothing is queued after the last word. The lock is held, as below.
func (c *Conn) append(b []byte) {
	if !c.closing {
		*c.out.bytes() = append(*c.out.bytes(), b...)
	}
}

// send queues a frame. What the handler has put into it may have no encoding; then the connection
// is closed.
func (c *Conn) send(channel uint16, p wire.Performative) {
	if c.closing {
		return
	}
	buf := c.out.bytes()
	start := len(*buf)
	b, err := appendFrame(*buf, wire.FrameAMQP, channel, p)
	if err == nil && c.maxFrame > 0 && len(b)-start > c.maxFrame {
		b, err = b[:start], errFrameTooLarge
	}
	*buf = b
	if errors.Is(err, errFrameTooLarge) {
		c.close(newError(wire.ErrFrameSizeTooSmall, "an answer is larger than the peer's max-frame-size"))
	} else if err != nil {
		c.server.options.Logger.Error("amqp: no frame", slog.String("performative", fmt.Sprintf("%T", p)), slog.String("error", err.Error()))
		if _, ok := p.(*wire.Close); ok {
			p = &wire.Close{Error: newError(wire.ErrInternalError, "an internal error")}
			c.append(encodeFrame(wire.FrameAMQP, p))
			return
		}
		c.close(newError(wire.ErrInternalError, "an internal error"))
	}
}

// sendWithPayload queues a transfer with as much of the payload as a frame takes, and returns how
// much that is.
func (c *Conn) sendWithPayload(channel uint16, t *wire.Transfer, payload []byte) (n int, err error) {
	buf := c.out.bytes()
	start := len(*buf)
	b, err := appendFrame(*buf, wire.FrameAMQP, channel, t)
	n = min(len(payload), c.maxFrame-(len(b)-start))
	if err == nil && n < len(payload) {
		t.More = true
		b, err = appendFrame(b[:start], wire.FrameAMQP, channel, t)
	}
	if err == nil && n <= 0 && len(payload) > 0 {
		err = errFrameTooLarge
	}
	if err != nil {
		*buf = b[:start]
		return 0, err
	}
	b = append(b, payload[:n]...)
	setFrameSize(b, start)
	*buf = b
	return n, nil
}
