package amqp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

const (
	// handshakeFrameSize is the size of the largest frame before Open is through. The standard
	// asks for 512 (§2.4.1, §5.3.1); tokens in an initial response need more.
	handshakeFrameSize = 8 << 10
	// leastIdleTimeout is the shortest idle-time-out of a peer that heartbeats are sent for.
	leastIdleTimeout = 200 * time.Millisecond
)

// Protocol headers (§2.2, §5.3.1).
var (
	headerAMQP = [8]byte([]byte(wire.ProtocolAMQP))
	headerSASL = [8]byte([]byte(wire.ProtocolSASL))
)

var errNoAMQP = errors.New("amqp: the peer does not speak AMQP 1.0")

// opening is a connection up to its Open.
type opening struct{ *Conn }

// handshake reads all up to the peer's Open, and answers it.
func (c opening) handshake() error {
	h, err := c.in.header()
	if err != nil {
		return err
	}
	if h == headerSASL {
		if err := c.authenticate(); err != nil {
			return err
		}
		if h, err = c.in.header(); err != nil {
			return err
		}
	} else if h == headerAMQP && !c.server.mayLeaveSASLOut() {
		c.refuse(headerSASL[:])
		return errors.New("amqp: the peer has left SASL out")
	}
	if h != headerAMQP { // §2.2: tell the peer what would do
		want := headerSASL
		if c.server.mayLeaveSASLOut() {
			want = headerAMQP
		}
		c.refuse(want[:])
		return errNoAMQP
	}
	c.queue(headerAMQP[:])
	return c.openConnection()
}

func (s *Server) mayLeaveSASLOut() bool {
	return len(s.options.Mechanisms) == 0 || slices.ContainsFunc(s.options.Mechanisms, func(m Mechanism) bool { return m.Name == "ANONYMOUS" })
}

// queue has bytes written that are no AMQP frame.
func (c opening) queue(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.append(b)
	c.out.kick()
}

// refuse has the last bytes written, and gives the peer some time to read them.
func (c opening) refuse(b []byte) {
	c.mu.Lock()
	c.append(b)
	c.deadline = c.now() + c.server.options.CloseTimeout
	c.end(errNoAMQP)
	c.out.kick()
	c.mu.Unlock()
	c.discard()
}

// authenticate carries out SASL (§5.3).
func (c opening) authenticate() error {
	mechanisms := c.server.options.Mechanisms
	if len(mechanisms) == 0 {
		mechanisms = []Mechanism{Anonymous("ANONYMOUS")}
	}
	offer := &wire.SASLMechanisms{}
	for _, m := range mechanisms {
		offer.Mechanisms = append(offer.Mechanisms, wire.Symbol(m.Name))
	}
	c.queue(append(headerSASL[:len(headerSASL):len(headerSASL)], encodeFrame(wire.FrameSASL, offer)...))

	f, err := c.in.next()
	if err != nil {
		return err
	}
	c.readSince.Store(0)
	if f.kind != wire.FrameSASL {
		return &frameError{"a frame that is not SASL's before its outcome"}
	}
	p, _, err := wire.DecodePerformative(f.body)
	if err != nil {
		return err
	}
	init, ok := p.(*wire.SASLInit)
	if !ok {
		return fmt.Errorf("amqp: %T instead of sasl-init", p)
	}
	code, failure := c.checkInit(mechanisms, init)
	outcome := encodeFrame(wire.FrameSASL, &wire.SASLOutcome{OutcomeCode: code})
	if failure != nil {
		c.refuse(outcome)
		return failure
	}
	c.queue(outcome)
	return nil
}

func (c opening) checkInit(mechanisms []Mechanism, init *wire.SASLInit) (code wire.SASLCode, err error) {
	i := slices.IndexFunc(mechanisms, func(m Mechanism) bool { return m.Name == string(init.Mechanism) })
	if i < 0 {
		return wire.SASLAuth, errors.New("amqp: the peer has chosen a SASL mechanism that was not offered")
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.server.options.HandshakeTimeout)
	defer cancel()
	c.identity, err = mechanisms[i].Authenticate(ctx, bytes.Clone(init.InitialResponse))
	switch {
	case err == nil:
		return wire.SASLOK, nil
	case errors.Is(err, ErrUnavailable):
		code = wire.SASLSystemTemp
	default:
		code = wire.SASLAuth
	}
	return code, fmt.Errorf("amqp: authentication by %s: %w", mechanisms[i].Name, err)
}

func cutPlain(response []byte) (user, password string, ok bool) {
	parts := bytes.Split(response, []byte{0}) // authorization identity, user, password
	if len(parts) != 3 {
		return "", "", false
	}
	return string(parts[1]), string(parts[2]), true
}

// openConnection reads the peer's Open and answers it (§2.4.1). After it c.closing may be set.
func (c opening) openConnection() error {
	f, err := c.in.next()
	c.readSince.Store(0)
	for err == nil && f.kind == wire.FrameAMQP && len(f.body) == 0 { // a heartbeat
		f, err = c.in.next()
		c.readSince.Store(0)
	}
	var malformed *frameError
	if errors.As(err, &malformed) {
		return c.refuseOpen(newError(wire.ErrFramingError, malformed.text))
	}
	if err != nil {
		return err
	}
	if f.kind != wire.FrameAMQP {
		return c.refuseOpen(newError(wire.ErrFramingError, "a frame that is not AMQP's"))
	}
	p, _, err := wire.DecodePerformative(f.body)
	if err != nil {
		return c.refuseOpen(newError(wire.ErrDecodeError, err.Error()))
	}
	open, ok := p.(*wire.Open)
	if !ok {
		return c.refuseOpen(newError(wire.ErrIllegalState, "the first frame is not open"))
	}
	if refusal := c.takeOpen(open); refusal != nil {
		return c.refuseOpen(refusal)
	}
	var refusal *wire.Error
	if err := c.server.options.Handler.Opened(c.Conn); err != nil {
		if !errors.As(err, &refusal) {
			c.server.options.Logger.Error("amqp: connection refused", slog.String("error", err.Error()))
			refusal = newError(wire.ErrInternalError, "an internal error")
		}
		return c.refuseOpen(refusal)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted = true
	c.sendOpen()
	if !c.closing {
		c.opened = true
		c.deadline = 0
	}
	return nil
}

// takeOpen notes what the peer announces.
func (c opening) takeOpen(open *wire.Open) *wire.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = open
	c.maxFrame = int(c.server.options.MaxFrameSize)
	if open.MaxFrameSize != nil {
		if *open.MaxFrameSize < wire.MinMaxFrameSize {
			return newError(wire.ErrInvalidField, fmt.Sprintf("max-frame-size is below %d", wire.MinMaxFrameSize))
		}
		c.maxFrame = int(min(*open.MaxFrameSize, c.server.options.MaxFrameSize))
	}
	if open.IdleTimeout != nil && *open.IdleTimeout > 0 {
		timeout := time.Duration(*open.IdleTimeout) * time.Millisecond
		if timeout < leastIdleTimeout {
			return newError(wire.ErrNotAllowed, fmt.Sprintf("idle-time-out is below %d ms", leastIdleTimeout.Milliseconds()))
		}
		c.heartbeat = timeout / 2
	}
	c.in.limit = int(c.server.options.MaxFrameSize)
	return nil
}

func (c opening) sendOpen() {
	o := &c.server.options
	idle := uint32(o.IdleTimeout.Milliseconds())
	c.append(encodeFrame(wire.FrameAMQP, &wire.Open{
		ContainerID: o.ContainerID, MaxFrameSize: &o.MaxFrameSize, ChannelMax: ptr(o.MaxChannels - 1), IdleTimeout: &idle,
	}))
	c.out.kick()
}

// refuseOpen sends Open and Close (§2.4.3), and waits until the peer closes the stream.
func (c opening) refuseOpen(refusal *wire.Error) error {
	c.mu.Lock()
	c.sendOpen()
	c.close(refusal)
	c.mu.Unlock()
	c.discard()
	return refusal
}

func ptr[T any](v T) *T { return &v }
