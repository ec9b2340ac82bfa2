package amqp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// ErrTooLarge says that a message is larger than the peer takes.
var ErrTooLarge = errors.New("amqp: the message is larger than the peer's max-message-size")

// Outgoing is a link on which the peer receives. Its methods are safe for concurrent use.
type Outgoing struct {
	*link
	options OutgoingOptions
	sending chan struct{} // held by the Send that is on its way

	// The rest is guarded by the connection's lock.
	deliveryCount uint32
	credit        uint32
	drain         bool   // the peer waits for its credit to be used or given up
	drained       bool   // the next flow says so
	changed       signal // fired when credit or drain change
	unsettled     int
	reported      int          // of those, how many the peer has said an outcome of
	left          []Settlement // what was not settled when the link ended
}

// OutgoingOptions say how a link on which the peer receives is accepted.
type OutgoingOptions struct {
	// Source and Target answer the peer's. The default is what it sent.
	Source *wire.Source
	Target *wire.Target
	// MaxMessageSize is announced if it is not 0.
	MaxMessageSize uint64
	// Properties are the link's, as answered. An empty map differs from nil.
	Properties wire.Map
	// Settled gets what the peer says of deliveries, in the order of their ids. It is called by
	// the connection's reader. Without it, deliveries that the peer has not settled itself are
	// settled with the state that it gave.
	Settled func([]Settlement)
}

// Settlement is what a peer has said of a delivery.
type Settlement struct {
	// ID is the delivery-id, as Send returned it.
	ID  uint32
	Tag []byte
	// State is the outcome. It is nil if the peer settled without one.
	State wire.DeliveryState
	// Settled says that the peer has settled: it awaits no answer, and Settle does nothing.
	Settled bool
}

// Transfer is a message to the peer (§2.6.12).
type Transfer struct {
	// Tag is the delivery-tag, at most 32 bytes.
	Tag []byte
	// Format is the message-format (§2.8.11).
	Format uint32
	// Settled says that the peer need not settle.
	Settled bool
	// State is sent along, such as a *wire.TransactionalState, if it is not nil.
	State wire.DeliveryState
	// Payload is the whole encoded message. It is not kept.
	Payload []byte
}

// sentBytes is about what an unsettled delivery takes.
const sentBytes = 128

// sent is a delivery that is not settled.
type sent struct {
	link     *Outgoing
	tag      []byte
	reported bool               // the peer has said an outcome
	told     wire.DeliveryState // by Tell
}

// Accept attaches the link. The error wraps ErrDetached if the link has ended.
func (out *Outgoing) Accept(o OutgoingOptions) error {
	answer := out.answer()
	answer.Source, answer.Target, answer.Properties = o.Source, o.Target, o.Properties
	if answer.Source == nil {
		answer.Source = out.attach.Source
	}
	if answer.Source == nil {
		answer.Source = &wire.Source{}
	}
	if answer.Target == nil {
		answer.Target = out.attach.Target
	}
	if answer.Target == nil {
		answer.Target = &wire.Target{}
	}
	if o.MaxMessageSize > 0 {
		answer.MaxMessageSize = &o.MaxMessageSize
	}
	c := out.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if out.over() || out.state != linkAttaching {
		return out.err()
	}
	out.options = o
	c.send(out.session.channel, answer)
	out.state = linkAttached
	if out.drain && out.credit == 0 {
		out.answerDrain()
	}
	c.out.kick()
	out.decided.fire()
	return nil
}

// WaitCredit waits until the peer takes deliveries. With drain it waits for an answer: send what
// there is to send now, then call Drained (§2.6.7). The error is that of ctx, or wraps
// ErrDetached.
func (out *Outgoing) WaitCredit(ctx context.Context) (credit uint32, drain bool, err error) {
	for {
		out.session.conn.mu.Lock()
		credit, drain = out.credit, out.drain
		over, changed := out.over(), out.changed.wait()
		out.session.conn.mu.Unlock()
		switch {
		case over:
			return 0, false, out.err()
		case credit > 0 || drain:
			return credit, drain, nil
		}
		select {
		case <-changed:
		case <-out.ctx.Done():
			return 0, false, out.err()
		case <-ctx.Done():
			return 0, false, ctx.Err()
		}
	}
}

// Credit returns how many deliveries the peer takes now, and whether it waits for them to be used
// up. The channel is closed when one of them changes. Who waits for messages listens to it, so
// that a drain is answered at once.
func (out *Outgoing) Credit() (credit uint32, drain bool, changed <-chan struct{}) {
	out.session.conn.mu.Lock()
	defer out.session.conn.mu.Unlock()
	return out.credit, out.drain, out.changed.wait()
}

// Drained gives up what is left of the credit, and tells the peer, if it has asked for that.
func (out *Outgoing) Drained() {
	out.session.conn.mu.Lock()
	defer out.session.conn.mu.Unlock()
	if out.drain && !out.over() {
		out.answerDrain()
	}
}

func (out *Outgoing) answerDrain() {
	out.deliveryCount += out.credit
	out.credit, out.drain, out.drained = 0, false, true
	out.queueFlow()
}

// handleFlow takes the state of the link as the receiving peer sees it (§2.6.7).
func (out *Outgoing) handleFlow(flow *wire.Flow) {
	if flow.LinkCredit != nil {
		// Credit counts from the delivery-count that the peer has seen.
		seen := uint32(0)
		if flow.DeliveryCount != nil {
			seen = *flow.DeliveryCount
		}
		credit := int64(*flow.LinkCredit) - int64(int32(out.deliveryCount-seen))
		out.credit = uint32(min(max(credit, 0), 1<<32-1))
	}
	out.drain = flow.Drain
	out.changed.fire()
	switch {
	case out.state != linkAttached:
	case out.drain && out.credit == 0:
		out.answerDrain()
	case flow.Echo && !out.drain: // else Drained answers
		out.queueFlow()
	}
}

// Send sends a message, which takes one credit, and returns its delivery-id. It waits until the
// peer takes the frames and there is room to queue them; ctx bounds the wait for the first one.
// Calls at once are served one after the other. The error is ErrNoCredit, ErrTooLarge, that of ctx
// or of Options.Memory, or wraps ErrDetached. The peer may have got a part of a message then, but
// never the whole: it is listed by Unsettled if any was sent.
func (out *Outgoing) Send(ctx context.Context, t Transfer) (id uint32, err error) {
	if limit := out.attach.MaxMessageSize; limit != nil && *limit > 0 && uint64(len(t.Payload)) > *limit {
		return 0, fmt.Errorf("%w: %d bytes of %d", ErrTooLarge, len(t.Payload), *limit)
	}
	if len(t.Tag) == 0 || len(t.Tag) > wire.MaxDeliveryTag {
		return 0, fmt.Errorf("amqp: a delivery-tag has 1 to %d bytes", wire.MaxDeliveryTag)
	}
	select {
	case out.sending <- struct{}{}:
	case <-out.ctx.Done():
		return 0, out.err()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-out.sending }()
	return out.sendFrames(ctx, t)
}

func (out *Outgoing) sendFrames(ctx context.Context, t Transfer) (id uint32, err error) {
	s, c := out.session, out.session.conn
	for first := true; first || len(t.Payload) > 0; first = false {
		piece := min(len(t.Payload), c.maxFrame) // what a frame takes at most
		if err := out.waitToSend(ctx, first, t.Settled, piece); err != nil {
			return id, err
		}
		if first {
			id = s.beginDelivery(out, &t)
		}
		n, err := c.sendTransfer(out, id, &t, first)
		t.Payload = t.Payload[n:]
		c.outbound.free(piece - n)
		c.out.counted += n
		c.out.kick()
		c.mu.Unlock()
		if err != nil {
			return id, err
		}
		ctx = out.ctx // a delivery that has begun is sent whole
	}
	return id, nil
}

// waitToSend returns with the lock when a frame may be sent, and n bytes of it are held. Otherwise
// it returns an error, without the lock.
func (out *Outgoing) waitToSend(ctx context.Context, first, settled bool, n int) error {
	c := out.session.conn
	for held := false; ; {
		c.mu.Lock()
		changed, err := out.maySend(first, settled)
		switch {
		case err == nil && changed == nil && held:
			return nil
		case held:
			c.outbound.free(n)
			held = false
		}
		c.mu.Unlock()
		if err == nil && changed != nil {
			select {
			case <-changed:
			case <-out.ctx.Done():
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		if err == nil {
			held = true
			err = c.outbound.hold(ctx, n)
		}
		if err != nil {
			if !first {
				out.Detach(newError(c.server.options.Busy, "the server has no memory for the rest of a message now"))
			}
			return err
		}
	}
}

// maySend says whether a frame may be sent now, or what to wait for. The lock is held.
func (out *Outgoing) maySend(first, settled bool) (changed <-chan struct{}, err error) {
	s := out.session
	switch {
	case out.over() || out.state != linkAttached:
		return nil, out.err()
	case first && out.credit == 0:
		return nil, ErrNoCredit
	case first && !settled && s.conn.reported >= s.conn.server.options.MaxUnsettled:
		return s.conn.answered.wait(), nil // all wait for the handler, so none can be forgotten
	case s.window == 0:
		return s.flowed.wait(), nil
	case s.conn.out.queued() >= queueLimit:
		return s.conn.out.room.wait(), nil
	}
	return nil, nil
}

// beginDelivery takes a credit and gives the delivery its id.
func (s *Session) beginDelivery(out *Outgoing, t *Transfer) (id uint32) {
	id = s.nextDelivery
	s.nextDelivery++
	out.credit--
	out.deliveryCount++
	if !t.Settled {
		if s.conn.outgoing >= s.conn.server.options.MaxUnsettled {
			s.conn.forgetOldest()
		}
		s.unsettled[id] = &sent{link: out, tag: t.Tag}
		s.conn.outgoing++
		s.conn.outbound.held += sentBytes
		out.unsettled++
	}
	return id
}

// sendTransfer encodes a frame of a delivery, and returns how much of the payload is in it.
func (c *Conn) sendTransfer(out *Outgoing, id uint32, t *Transfer, first bool) (n int, err error) {
	s, frame := out.session, &c.transfer
	*frame = wire.Transfer{Handle: out.handle, Settled: t.Settled}
	if first { // a client takes a frame with an id for the first, and then misses the tag
		frame.DeliveryID, frame.DeliveryTag, frame.MessageFormat, frame.State = &id, t.Tag, &t.Format, t.State
	}
	n, err = c.sendWithPayload(s.channel, frame, t.Payload)
	*frame = wire.Transfer{}
	if err != nil {
		out.detach(newError(wire.ErrInternalError, "an internal error"))
		return 0, err
	}
	s.nextOutgoing++
	s.window--
	return n, nil
}

// Settle settles a delivery with that state, and tells the peer. It does nothing if the peer has
// settled, or the link has ended. What the peer has said an outcome of before it detached can be
// settled for closingTime: the answer to its Detach waits for that, because clients never hear of
// a delivery whose link they have seen closed.
func (out *Outgoing) Settle(id uint32, state wire.DeliveryState) {
	s, c := out.session, out.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := s.unsettled[id]; d != nil && d.link == out && !s.over() {
		s.dropSent(id, d)
		s.dispose(disposition{role: wire.RoleSender, id: id, state: state, settled: true})
		out.closes()
	}
}

// Tell tells the peer a state of a delivery that stays unsettled: the peer may say another outcome
// of it. So it is with an outcome in a transaction, until that commits (§4.4.2).
func (out *Outgoing) Tell(id uint32, state wire.DeliveryState) {
	s, c := out.session, out.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := s.unsettled[id]; d != nil && d.link == out && !s.over() {
		s.answered(d)
		d.told = state
		s.dispose(disposition{role: wire.RoleSender, id: id, state: state})
		out.closes()
	}
}

// closes answers the peer's Detach once nothing is left that the answer waits for.
func (out *Outgoing) closes() {
	if out.state == linkClosing && out.reported == 0 {
		out.close()
	}
}

func (s *Session) dropSent(id uint32, d *sent) {
	delete(s.unsettled, id)
	s.conn.outgoing--
	s.answered(d)
	s.conn.outbound.free(sentBytes)
	d.link.unsettled--
}

// answered says that the peer has its answer to what it said of a delivery.
func (s *Session) answered(d *sent) {
	if !d.reported {
		return
	}
	d.reported = false
	s.reported--
	s.conn.reported--
	d.link.reported--
	s.conn.answered.fire()
}

// Unsettled lists the deliveries that neither side has settled, in the order of their ids. It also
// tells after the link has ended.
func (out *Outgoing) Unsettled() []Settlement {
	out.session.conn.mu.Lock()
	defer out.session.conn.mu.Unlock()
	return append(slices.Clone(out.left), out.listUnsettled()...)
}

func (out *Outgoing) listUnsettled() (list []Settlement) {
	if out.unsettled == 0 {
		return nil
	}
	for id, d := range out.session.unsettled {
		if d.link == out {
			list = append(list, Settlement{ID: id, Tag: d.tag})
		}
	}
	slices.SortFunc(list, func(a, b Settlement) int { return inSequence(a.ID, b.ID) })
	return list
}

// leaveUnsettled takes unsettled deliveries of a link that ends off the session: all of them, or
// those of which the peer has said nothing.
func (out *Outgoing) leaveUnsettled(all bool) {
	for _, d := range out.listUnsettled() {
		if sent := out.session.unsettled[d.ID]; all || !sent.reported {
			out.left = append(out.left, d)
			out.session.dropSent(d.ID, sent)
		}
	}
}

const (
	// keptForgotten is how many ids of forgotten deliveries a session keeps, the latest ones.
	keptForgotten = 16 << 10
	// forgottenBytes is what one takes.
	forgottenBytes = 4
)

// forgetOldest forgets an eighth of the unsettled deliveries of the session that has most of them.
// Peers leave some unsettled for ever, and a connection may live for months. Deliveries of which
// the peer has said an outcome are kept: the handler is about to answer.
func (c *Conn) forgetOldest() {
	var most *Session
	for _, s := range c.sessions {
		if !s.over() && (most == nil || s.silent() > most.silent()) {
			most = s
		}
	}
	if most == nil || most.silent() == 0 {
		return
	}
	ids := make([]uint32, 0, most.silent())
	for id, d := range most.unsettled {
		if !d.reported {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, inSequence)
	ids = ids[:len(ids)/8+1]
	for _, id := range ids {
		most.dropSent(id, most.unsettled[id])
	}
	before := len(most.forgotten)
	// In the order in which they were forgotten: that of ids holds over half of them only.
	most.forgotten = append(most.forgotten, ids...)
	most.forgotten = slices.Delete(most.forgotten, 0, max(0, len(most.forgotten)-keptForgotten))
	c.outbound.held += forgottenBytes * (len(most.forgotten) - before)
}

// silent is how many unsettled deliveries there are of which the peer has said nothing.
func (s *Session) silent() int { return len(s.unsettled) - s.reported }

// inSequence compares delivery-ids, which begin again at 0 after the highest (RFC 1982).
func inSequence(a, b uint32) int { return int(int32(a - b)) }
