package amqp

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// window is the incoming and outgoing window that is announced. It is so large that peers which
// count it in other units than frames do not run out. What is not settled is bounded instead.
const window = 1<<31 - 1

// Session is a session (§2.5). Its methods are safe for concurrent use.
type Session struct {
	conn    *Conn
	channel uint16 // of both directions
	begin   *wire.Begin
	ctx     context.Context
	cancel  context.CancelCauseFunc

	// The rest is guarded by the connection's lock.
	kept   int  // bytes that are held for it
	ending bool // End was sent, and the peer's has not come
	links  map[uint32]*link
	// attached is above all handles that have had a link.
	attached uint32

	nextIncoming uint32 // transfer-ids (§2.5.6)
	nextOutgoing uint32
	window       uint32 // how many transfers the peer takes now
	flowed       signal // fired when window grows
	echo         bool   // the peer has asked for a flow of the session

	nextDelivery uint32
	unsettled    map[uint32]*sent // deliveries to the peer, by delivery-id
	reported     int              // of those, how many the peer has said an outcome of
	forgotten    []uint32         // ids of deliveries that were forgotten, the oldest first

	queued       bool // in Conn.pending
	dispositions []disposition
	flows        []*link // that have a flow to send
}

// Conn is the session's connection.
func (s *Session) Conn() *Conn { return s.conn }

// Begin is the peer's Begin. It is not to be changed.
func (s *Session) Begin() *wire.Begin { return s.begin }

// Context ends with the session. Its cause wraps ErrDetached and says why.
func (s *Session) Context() context.Context { return s.ctx }

// Incoming returns the links of the session on which the peer sends, by handle. Those that are
// not accepted yet are among them.
func (s *Session) Incoming() []*Incoming {
	return linksOf(s, func(l *link) *Incoming { return l.incoming })
}

// Outgoing returns the links of the session on which the peer receives, by handle. Those that are
// not accepted yet are among them.
func (s *Session) Outgoing() []*Outgoing {
	return linksOf(s, func(l *link) *Outgoing { return l.outgoing })
}

func linksOf[T any](s *Session, role func(*link) *T) (found []*T) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	for _, handle := range slices.Sorted(maps.Keys(s.links)) {
		if l := s.links[handle]; !l.over() && role(l) != nil {
			found = append(found, role(l))
		}
	}
	return found
}

// End ends the session and its links with that error, or with none.
func (s *Session) End(err *wire.Error) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.end(err)
}

// end sends End. Until the peer's End comes, what it sends is ignored (§2.5.5). The lock is held.
func (s *Session) end(err *wire.Error) {
	if s.over() {
		return
	}
	s.flush()
	s.conn.send(s.channel, &wire.End{Error: err})
	s.conn.out.kick()
	s.ending = true
	if err == nil {
		s.drop(nil)
	} else {
		s.drop(err)
	}
}

// over says that nothing can be sent on the session any more.
func (s *Session) over() bool { return s.ending || s.ctx.Err() != nil }

// drop lets everything of the session end. The lock is held.
func (s *Session) drop(cause error) {
	s.cancel(ended("session", cause))
	for _, l := range s.links {
		l.free()
	}
	clear(s.links)
	s.conn.outgoing -= len(s.unsettled)
	s.conn.reported -= s.reported
	s.conn.inbound.free(s.kept)
	s.conn.outbound.free(sentBytes*len(s.unsettled) + forgottenBytes*len(s.forgotten))
	s.dispositions, s.flows = nil, nil
	s.conn.settled.fire()
	s.conn.answered.fire()
}

// handleBegin begins a session (§2.5.1).
func (c *Conn) handleBegin(channel uint16, begin *wire.Begin, kept int) {
	switch {
	case begin.RemoteChannel != nil:
		c.fail(wire.ErrIllegalState, "begin answers a session that was not begun")
		return
	case channel > c.server.options.MaxChannels-1: // §2.7.1
		c.fail(wire.ErrFramingError, "channel %d is beyond channel-max", channel)
		return
	case c.sessions[channel] != nil:
		c.fail(wire.ErrIllegalState, "channel %d has a session already", channel)
		return
	}
	s := &Session{
		conn: c, channel: channel, begin: begin, kept: kept, links: map[uint32]*link{},
		nextIncoming: begin.NextOutgoingID, window: begin.IncomingWindow, unsettled: map[uint32]*sent{},
	}
	s.ctx, s.cancel = context.WithCancelCause(c.ctx)
	c.inbound.held += kept
	c.sessions[channel] = s
	c.send(channel, &wire.Begin{
		RemoteChannel: &channel, NextOutgoingID: s.nextOutgoing, IncomingWindow: window, OutgoingWindow: window,
		HandleMax: ptr(c.server.handleMax()),
	})
	c.out.kick()
}

// handleMax is the highest handle that a peer may use in a session.
func (s *Server) handleMax() uint32 { return uint32(s.options.MaxLinks - 1) }

func (s *Session) handleEnd(end *wire.End) {
	if !s.ending {
		s.conn.send(s.channel, &wire.End{})
		s.conn.out.kick()
		if end.Error == nil {
			s.drop(nil)
		} else {
			s.drop(end.Error)
		}
	}
	delete(s.conn.sessions, s.channel)
}

// fail ends the session with an error that the peer has caused.
func (s *Session) fail(condition wire.Symbol, format string, args ...any) {
	s.end(newError(condition, fmt.Sprintf(format, args...)))
}

// handleFlow takes a flow of the session, and of a link if it names one (§2.5.6, §2.6.7).
func (s *Session) handleFlow(flow *wire.Flow) {
	next := uint32(0) // our first transfer-id, as the peer has not seen our Begin
	if flow.NextIncomingID != nil {
		next = *flow.NextIncomingID
	}
	// What the peer will take beyond what is on its way. A peer that says nonsense gets nothing.
	s.window = 0
	if left := int64(flow.IncomingWindow) - int64(s.nextOutgoing-next); left > 0 {
		s.window = uint32(left)
		s.flowed.fire()
	}
	if flow.Handle == nil {
		if flow.Echo {
			s.echo = true
			s.queue()
		}
		return
	}
	l := s.links[*flow.Handle]
	switch {
	case l == nil && *flow.Handle < s.attached: // go-amqp may give credit after its own Detach
	case l == nil:
		s.fail(wire.ErrUnattachedHandle, "flow for handle %d, which has no link", *flow.Handle)
	case l.over():
	case l.outgoing != nil:
		l.outgoing.handleFlow(flow)
	case flow.Echo && l.state == linkAttached: // the sender's view of its own link changes nothing
		l.queueFlow()
	}
}

// queue has the writer encode what the session has to say.
func (s *Session) queue() {
	if !s.queued {
		s.queued = true
		s.conn.pending = append(s.conn.pending, s)
	}
	s.conn.out.kick()
}

// encodePending encodes the dispositions and flows that have come together. The lock is held.
func (c *Conn) encodePending() {
	for _, s := range c.pending {
		s.queued = false
		s.flush()
	}
	clear(c.pending)
	c.pending = c.pending[:0]
}

// flush encodes what the session has to say. The lock is held.
func (s *Session) flush() {
	if s.over() {
		return
	}
	s.flushDispositions()
	for i, l := range s.flows {
		s.flows[i] = nil
		if l.flowing && !l.over() {
			s.sendFlow(l)
		}
		l.flowing = false
	}
	s.flows = s.flows[:0]
	if s.echo {
		s.echo = false
		s.sendFlow(nil)
	}
}

// sendFlow sends the state of the session, and of a link if it is not nil.
func (s *Session) sendFlow(l *link) {
	flow := wire.Flow{NextIncomingID: &s.nextIncoming, IncomingWindow: window, NextOutgoingID: s.nextOutgoing, OutgoingWindow: window}
	if l != nil {
		flow.Handle = &l.handle
		if in := l.incoming; in != nil {
			flow.DeliveryCount, flow.LinkCredit = &in.deliveryCount, &in.credit
		} else {
			flow.DeliveryCount, flow.LinkCredit, flow.Drain = &l.outgoing.deliveryCount, &l.outgoing.credit, l.outgoing.drained
			l.outgoing.drained = false
		}
	}
	s.conn.send(s.channel, &flow)
}
