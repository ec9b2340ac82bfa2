package amqp

import (
	"fmt"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// deliveryBytes is about what a delivery takes besides its payload.
const deliveryBytes = 256

// Incoming is a link on which the peer sends. Its methods are safe for concurrent use.
type Incoming struct {
	*link
	options IncomingOptions

	// The rest is guarded by the connection's lock.
	deliveryCount uint32 // of the deliveries that began
	credit        uint32
	unsettled     int
	partial       *Delivery // whose last frame has not come
}

// IncomingOptions say how a link on which the peer sends is accepted.
type IncomingOptions struct {
	// MaxMessageSize is announced, in bytes. Larger deliveries are rejected with
	// amqp:link:message-size-exceeded. The default is Options.MaxMessageSize.
	MaxMessageSize uint64
	// Credit is how many deliveries the peer may send before some are settled. It is topped up
	// when half of it is used. Peers that send more are not punished. The default is 100.
	Credit uint32
	// Source and Target answer the peer's. The default is what it sent.
	Source *wire.Source
	Target *wire.Target
	// Properties are the link's, as answered.
	Properties wire.Map
	// Receive gets the deliveries in the order in which they are complete. It is required. It is
	// called by the connection's reader: while it runs nothing more is read from the peer.
	// Each delivery is to be settled, from any goroutine.
	Receive func(*Delivery)
}

// Accept attaches the link and gives credit. The error wraps ErrDetached if the link has ended.
func (in *Incoming) Accept(o IncomingOptions) error {
	if o.Receive == nil {
		panic("amqp: IncomingOptions.Receive is nil")
	}
	c := in.session.conn
	setDefault(&o.MaxMessageSize, c.server.options.MaxMessageSize)
	setDefault(&o.Credit, 100)
	answer := in.answer()
	answer.MaxMessageSize, answer.Properties = &o.MaxMessageSize, o.Properties
	answer.Source, answer.Target = o.Source, o.Target
	if answer.Source == nil {
		answer.Source = in.attach.Source
	}
	if answer.Source == nil {
		answer.Source = &wire.Source{}
	}
	if answer.Coordinator = in.attach.Coordinator; answer.Target == nil && answer.Coordinator == nil {
		answer.Target = in.attach.Target
		if answer.Target == nil {
			answer.Target = &wire.Target{}
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if in.over() || in.state != linkAttaching {
		return in.err()
	}
	in.options = o
	c.send(in.session.channel, answer)
	in.state = linkAttached
	in.credit = o.Credit
	in.queueFlow()
	in.decided.fire()
	return nil
}

// topUp gives new credit when half of it is used. Deliveries that are not settled use credit too.
func (in *Incoming) topUp() {
	want := int64(in.options.Credit) - int64(in.unsettled)
	if want > int64(in.credit) && (want-int64(in.credit))*2 >= int64(in.options.Credit) {
		in.credit = uint32(want)
		in.queueFlow()
	}
}

// Delivery is a message of the peer (§2.6.12).
type Delivery struct {
	// Link is where it came.
	Link *Incoming
	// ID is the delivery-id, of which a session has one sequence in each direction.
	ID uint32
	// Tag is the peer's delivery-tag. It has at most 255 bytes.
	Tag []byte
	// Format is the message-format (§2.8.11).
	Format uint32
	// Settled says that the peer wants to hear nothing of it.
	Settled bool
	// State is what the peer said of it, such as *wire.TransactionalState, or nil.
	State wire.DeliveryState
	// Payload is the whole encoded message. It is the receiver's.
	Payload []byte

	refused *wire.Error // why nothing of it is kept
	skipped uint64      // bytes that were not kept
	multi   int         // bytes that count as partial
	held    int         // bytes that are reserved
	done    bool
}

// Settle tells the peer the outcome and lets it forget the delivery (§2.6.12). It may be called
// from any goroutine and in any order. Later calls do nothing. Equal outcomes that come together
// are told together. Of a delivery that the peer has settled, or whose link has ended, it only
// gives back what was reserved.
func (d *Delivery) Settle(state wire.DeliveryState) {
	in := d.Link
	c := in.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.done {
		return
	}
	d.done = true
	in.unsettled--
	c.incoming--
	c.inbound.free(d.held)
	c.settled.fire()
	if !in.over() {
		if !d.Settled {
			in.session.dispose(disposition{role: wire.RoleReceiver, id: d.ID, state: state, settled: true})
		}
		in.topUp()
	}
	if c.last != nil && c.incoming == 0 {
		c.close(c.last)
	}
}

// handleTransfer takes a frame of a delivery. It is called without the lock, because it may have
// to wait: for the handler to accept the link, for deliveries to be settled, for memory.
func (c *Conn) handleTransfer(s *Session, t *wire.Transfer, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.over() {
		return
	}
	s.nextIncoming++
	l := s.links[t.Handle]
	switch {
	case l == nil:
		s.fail(wire.ErrUnattachedHandle, "transfer for handle %d, which has no link", t.Handle)
		return
	case l.over():
		return
	case l.incoming == nil:
		s.fail(wire.ErrIllegalState, "transfer on a link on which the peer receives")
		return
	}
	in := l.incoming
	for !l.over() && (l.state == linkAttaching || c.last != nil || c.full(len(payload))) {
		c.wait(l)
	}
	if l.over() {
		return
	}
	d, fault := in.partOf(t)
	if fault != nil {
		l.detach(fault)
		return
	}
	if t.Aborted {
		in.dropPartial()
		in.topUp()
		return
	}
	if !in.keep(d, payload, t.More) || t.More {
		return
	}
	in.partial = nil
	c.partial -= d.multi
	if d.refused != nil {
		in.reject(d)
		return
	}
	in.unsettled++
	c.incoming++
	c.mu.Unlock()
	defer c.mu.Lock()
	in.options.Receive(d)
}

// full says that nothing more can be taken until something is settled.
func (c *Conn) full(n int) bool {
	o := &c.server.options
	return c.incoming >= o.MaxUnsettled || c.incoming > 0 && c.held()+deliveryBytes+n > o.MaxHeldBytes
}

// wait gives the lock back until something is settled or the link is decided.
func (c *Conn) wait(l *link) {
	settled, decided := c.settled.wait(), l.decided.wait()
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-settled:
	case <-decided:
	case <-l.ctx.Done():
	}
}

// partOf returns the delivery that a frame belongs to, new if it is the first one.
func (in *Incoming) partOf(t *wire.Transfer) (*Delivery, *wire.Error) {
	d := in.partial
	if d == nil {
		if t.DeliveryID == nil || t.DeliveryTag == nil {
			return nil, newError(wire.ErrInvalidField, "the first transfer of a delivery needs a delivery-id and a delivery-tag")
		}
		d = &Delivery{Link: in, ID: *t.DeliveryID, Tag: append([]byte{}, t.DeliveryTag...)}
		if t.MessageFormat != nil {
			d.Format = *t.MessageFormat
		}
		in.partial = d
		in.deliveryCount++
		in.credit -= min(in.credit, 1)
	} else if t.DeliveryID != nil && *t.DeliveryID != d.ID {
		return nil, newError(wire.ErrInvalidField, "a transfer has another delivery-id than the one before, which was not the last")
	}
	d.Settled = d.Settled || t.Settled
	if t.State != nil {
		d.State = t.State
	}
	return d, nil
}

// keep adds payload to a delivery, unless that was or is now refused. It reports false if the link
// has ended meanwhile.
func (in *Incoming) keep(d *Delivery, payload []byte, more bool) bool {
	c := in.session.conn
	limit, o := in.options.MaxMessageSize, &c.server.options
	if d.refused == nil {
		switch {
		case uint64(len(d.Payload)+len(payload)) > limit:
			in.refuseDelivery(d, newError(wire.ErrMessageSizeExceeded, fmt.Sprintf("the message is larger than max-message-size, %d bytes", limit)))
		case c.held()+deliveryBytes+len(payload) > o.MaxHeldBytes:
			in.refuseDelivery(d, newError(o.Busy, fmt.Sprintf("the connection holds %d bytes already", o.MaxHeldBytes)))
		case more && c.partial+len(payload) > o.MaxPartialBytes:
			in.refuseDelivery(d, newError(o.Busy, fmt.Sprintf("the connection has more than %d bytes of deliveries that are not complete", o.MaxPartialBytes)))
		}
	}
	if d.refused != nil {
		if d.skipped += uint64(len(payload)); d.skipped/8 > limit {
			in.detach(d.refused)
			return false
		}
		return true
	}
	n := len(payload)
	if d.held == 0 {
		n += deliveryBytes
	}
	c.mu.Unlock()
	err := c.inbound.hold(in.ctx, n)
	c.mu.Lock()
	if err == nil {
		d.held += n
	}
	if in.partial != d { // the link has ended
		c.inbound.free(d.held)
		return false
	}
	if err != nil {
		in.refuseDelivery(d, newError(o.Busy, "the server has no memory for the message now"))
		return true
	}
	d.Payload = append(d.Payload, payload...)
	if more {
		d.multi += len(payload)
		c.partial += len(payload)
	}
	return true
}

// refuseDelivery drops what was kept of a delivery. The peer is told when it is complete.
func (in *Incoming) refuseDelivery(d *Delivery, err *wire.Error) {
	d.refused = err
	in.freePartial(d)
}

// reject tells the peer that a delivery was refused.
func (in *Incoming) reject(d *Delivery) {
	if d.Settled { // there is no other way to tell
		in.detach(d.refused)
		return
	}
	in.session.dispose(disposition{role: wire.RoleReceiver, id: d.ID, state: &wire.Rejected{Error: d.refused}, settled: true})
	in.topUp()
}

// dropPartial drops a delivery that was not complete.
func (in *Incoming) dropPartial() {
	if in.partial != nil {
		in.freePartial(in.partial)
		in.partial = nil
	}
}

func (in *Incoming) freePartial(d *Delivery) {
	c := in.session.conn
	c.partial -= d.multi
	c.inbound.free(d.held)
	d.Payload, d.multi, d.held = nil, 0, 0
}
