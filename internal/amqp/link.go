package amqp

import (
	"context"
	"fmt"
	"time"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

type linkState uint8

const (
	linkAttaching linkState = iota // the handler decides
	linkAttached
	linkClosing   // the peer's Detach has come, and its answer waits: see Outgoing.closes
	linkDetaching // Detach was sent, and the peer's has not come
	linkGone
)

// link is what both directions share (§2.6).
type link struct {
	session *Session
	handle  uint32 // of both directions
	attach  *wire.Attach
	ctx     context.Context
	cancel  context.CancelCauseFunc

	incoming *Incoming // one of the two is set
	outgoing *Outgoing

	// The rest is guarded by the connection's lock.
	state   linkState
	resumes bool   // the peer has detached to attach the link again, and did not close it
	decided signal // fired when the handler has decided, or nothing is left to decide
	flowing bool   // in Session.flows
	kept    int    // bytes that are held for it
	holds   int    // the handle and the handler's goroutine: reasons to count the link
	late    *time.Timer
}

// Name is the link's name, which the peer has chosen.
func (l *link) Name() string { return l.attach.Name }

// Attach is the peer's Attach. It is not to be changed.
func (l *link) Attach() *wire.Attach { return l.attach }

// Session is the session of the link.
func (l *link) Session() *Session { return l.session }

// Conn is the connection of the link.
func (l *link) Conn() *Conn { return l.session.conn }

// Context ends with the link. Its cause wraps ErrDetached and says why. That is the peer's
// *wire.Error if it gave one.
func (l *link) Context() context.Context { return l.ctx }

// Refuse answers the Attach with one that has no terminus, and a Detach with the error (§2.6.3).
// Both are in one write. It does nothing if the link was accepted or has ended.
func (l *link) Refuse(err *wire.Error) {
	l.session.conn.mu.Lock()
	defer l.session.conn.mu.Unlock()
	if l.state == linkAttaching && !l.over() {
		l.refuse(err)
	}
}

// Detach ends the link with that error, or with none. A link that was not accepted yet is refused.
func (l *link) Detach(err *wire.Error) {
	l.session.conn.mu.Lock()
	defer l.session.conn.mu.Unlock()
	l.detach(err)
}

// over says that nothing can be sent on the link any more. The lock is held, as below.
func (l *link) over() bool { return l.state >= linkClosing || l.session.over() }

// err is the error of operations on a link that is over.
func (l *link) err() error {
	if cause := context.Cause(l.ctx); cause != nil {
		return cause
	}
	return ErrDetached
}

// answer returns an Attach for the peer's (§2.6.3). What both have to agree on is as it asked.
func (l *link) answer() *wire.Attach {
	a := &wire.Attach{Name: l.attach.Name, Handle: l.handle, Role: !l.attach.Role, SenderSettleMode: l.attach.SenderSettleMode, ReceiverSettleMode: l.attach.ReceiverSettleMode}
	if l.outgoing != nil {
		a.InitialDeliveryCount = new(uint32)
	}
	return a
}

// refuse sends an Attach without the own terminus, and Detach.
func (l *link) refuse(err *wire.Error) {
	a := l.answer()
	if l.outgoing != nil {
		a.Target = l.attach.Target
	} else {
		a.Source = l.attach.Source
	}
	c := l.session.conn
	c.send(l.session.channel, a)
	l.state = linkAttached
	l.detach(err)
}

func (l *link) detach(err *wire.Error) {
	switch {
	case l.over():
		return
	case l.state == linkAttaching:
		l.refuse(err)
		return
	}
	l.sendDetach(err, true)
	if err == nil {
		l.end(linkDetaching, nil)
	} else {
		l.end(linkDetaching, err)
	}
}

// sendDetach sends Detach, after the dispositions that wait: a peer takes one for a link that it
// does not know any more as an error.
func (l *link) sendDetach(err *wire.Error, closed bool) {
	l.session.flush()
	l.session.conn.send(l.session.channel, &wire.Detach{Handle: l.handle, Closed: closed, Error: err})
	l.session.conn.out.kick()
}

// end lets everything of the link end.
func (l *link) end(state linkState, cause error) {
	l.state = state
	l.cancel(ended("link", cause))
	l.decided.fire()
	if l.incoming != nil {
		l.incoming.dropPartial()
	} else {
		l.outgoing.leaveUnsettled(state != linkClosing)
	}
}

// free takes the link off its handle when the session ends.
func (l *link) free() {
	l.state = linkGone
	l.decided.fire()
	if l.incoming != nil {
		l.incoming.dropPartial()
	}
	if l.late != nil {
		l.late.Stop()
	}
	l.unhold()
}

// unhold drops one of the reasons to count the link.
func (l *link) unhold() {
	if l.holds--; l.holds == 0 {
		l.session.conn.links--
		l.session.conn.inbound.free(l.kept)
	}
}

// queueFlow has the writer send the link's state.
func (l *link) queueFlow() {
	if !l.flowing {
		l.flowing = true
		l.session.flows = append(l.session.flows, l)
	}
	l.session.queue()
}

// handleAttach begins a link (§2.6.3).
func (s *Session) handleAttach(attach *wire.Attach, kept int) {
	c := s.conn
	if attach.Handle > c.server.handleMax() { // §2.7.2
		c.fail(wire.ErrFramingError, "handle %d is beyond handle-max", attach.Handle)
		return
	}
	if before := s.links[attach.Handle]; before != nil && before.state == linkClosing {
		before.close() // the peer has not waited for the answer
	} else if before != nil {
		s.fail(wire.ErrHandleInUse, "handle %d has a link already", attach.Handle)
		return
	}
	if c.links >= 2*c.server.options.MaxLinks { // those refused, which the peer has not detached
		c.fail(wire.ErrResourceLimitExceeded, "more than %d links", c.server.options.MaxLinks)
		return
	}
	l := &link{session: s, handle: attach.Handle, attach: attach, kept: kept, holds: 1}
	l.ctx, l.cancel = context.WithCancelCause(s.ctx)
	handler := c.server.options.Handler
	var serve func()
	if attach.Role == wire.RoleReceiver {
		l.outgoing = &Outgoing{link: l, sending: make(chan struct{}, 1)}
		serve = func() { handler.AttachOutgoing(l.outgoing) }
	} else {
		l.incoming = &Incoming{link: l}
		if attach.InitialDeliveryCount != nil {
			l.incoming.deliveryCount = *attach.InitialDeliveryCount
		}
		serve = func() { handler.AttachIncoming(l.incoming) }
		if attach.Coordinator != nil {
			serve = func() { handler.AttachCoordinator(l.incoming) }
		}
	}
	s.links[attach.Handle] = l
	s.attached = max(s.attached, attach.Handle+1)
	c.links++
	c.inbound.held += kept
	if c.links > c.server.options.MaxLinks {
		l.refuse(newError(wire.ErrResourceLimitExceeded, fmt.Sprintf("the connection has %d links already", c.server.options.MaxLinks)))
		return
	}
	l.holds++
	c.handlers.Add(1)
	go func() {
		defer c.handlers.Done()
		_ = c.contain("attach", func() error { serve(); return nil })
		c.mu.Lock()
		defer c.mu.Unlock()
		if l.state == linkAttaching {
			l.detach(newError(wire.ErrInternalError, "the link was neither accepted nor refused"))
		}
		l.unhold()
	}()
}

// handleDetach ends a link. The answer closes it only if the peer does: else the peer would have
// to attach it again to close it (§2.6.6). Nothing is kept to resume. The next Attach says so, as
// it lists nothing unsettled (§2.6.13).
func (s *Session) handleDetach(detach *wire.Detach) {
	l := s.links[detach.Handle]
	if l == nil { // a client that gave up before its attach was written detaches that link all the same
		return
	}
	var cause error
	if detach.Error != nil {
		cause = detach.Error
	}
	l.resumes = !detach.Closed
	switch {
	case l.state == linkAttaching:
		l.refuse(nil) // the peer expects an Attach before the Detach
	case l.state == linkAttached && l.outgoing != nil && l.outgoing.reported > 0:
		l.end(linkClosing, cause)
		l.late = time.AfterFunc(closingTime, l.closeLate)
		return
	case l.state == linkAttached:
		l.end(linkClosing, cause)
		l.close()
		return
	case l.state == linkClosing:
		l.close()
		return
	}
	l.forget()
}

// closingTime bounds how long the answer to a Detach waits.
const closingTime = 10 * time.Second

func (l *link) closeLate() {
	l.session.conn.mu.Lock()
	defer l.session.conn.mu.Unlock()
	if l.state == linkClosing && !l.session.over() {
		l.close()
	}
}

// close answers the Detach of the peer.
func (l *link) close() {
	if l.late != nil {
		l.late.Stop()
	}
	l.sendDetach(nil, !l.resumes)
	if l.outgoing != nil {
		l.outgoing.leaveUnsettled(true)
	}
	l.forget()
}

// forget frees the handle.
func (l *link) forget() {
	l.state = linkGone
	delete(l.session.links, l.handle)
	l.unhold()
}
