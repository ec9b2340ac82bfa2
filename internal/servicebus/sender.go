package servicebus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/servicebus/content"
	"github.com/forebayhq/forebay/internal/sleep"
)

const (
	// senderCredit is how many deliveries a sender may have under way.
	senderCredit = 1000
	// groupMessages and groupBytes bound the deliveries that are stored together.
	groupMessages = 256
	groupBytes    = 1 << 20
	// storeTime is how long a transaction may take before the client is told to try again.
	storeTime = time.Minute
	// linkTransferDestination asks for a send by way of another entity.
	linkTransferDestination = "com.microsoft:transfer-destination-address"
)

// sender stores what comes on one link.
type sender struct {
	*client
	link   *amqp.Incoming
	grant  *grant
	entity messaging.Entity

	mu      sync.Mutex
	waiting []*amqp.Delivery // in the order in which they came
	storing *workers         // one at a time keeps the order
	unheard *wire.Error      // why a delivery was refused that has no answer; the worker's
}

// acceptSender accepts a link that sends to a queue or a topic.
func (c *client) acceptSender(l *amqp.Incoming, at node) {
	s, leave, err := c.newSender(l, at)
	if err != nil {
		l.Refuse(c.failure(err, at.path).wire())
		return
	}
	context.AfterFunc(l.Context(), leave)
	most := uint64(c.messages.Messages.MaxBytes())
	_ = l.Accept(amqp.IncomingOptions{ // it fails for a link that has ended
		Credit: senderCredit, MaxMessageSize: most, Receive: s.receive,
		Properties: wire.Map{{Key: wire.Symbol("com.microsoft:max-message-batch-size"), Value: min(most, groupBytes)}},
	})
}

func (c *client) newSender(l *amqp.Incoming, at node) (s *sender, leave func(), err error) {
	g, err := c.grantFor(forebay.ScopeSend, at.path)
	if err != nil {
		return nil, nil, err
	}
	if _, via := l.Attach().Properties.Get(linkTransferDestination); via {
		return nil, nil, fail(conditionNotImpl, 501, "Sending by way of another entity is not supported.")
	}
	e, err := c.messages.Raw.Current(l.Context(), g.tenant(), at.path)
	if err != nil {
		return nil, nil, err
	}
	if err := takesMessages(e); err != nil {
		return nil, nil, err
	}
	if leave, err = c.places.enter(g.tenant()); err != nil {
		return nil, nil, err
	}
	c.guard(l.Context(), g, forebay.ScopeSend, at.path, func(f *failure) { l.Detach(f.wire()) })
	return &sender{client: c, link: l, grant: g, entity: e, storing: c.workers(1, &c.running)}, leave, nil
}

// receive takes a delivery. The connection's reader calls it.
func (s *sender) receive(d *amqp.Delivery) {
	if id, within := transactionOf(d.State); within {
		s.transacting.do(func() { s.sendWithin(d, id) })
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, d)
	if len(s.waiting) == 1 {
		s.storing.do(s.store)
	}
}

// store stores what waits until nothing does.
func (s *sender) store() {
	for {
		group := s.next()
		if len(group) == 0 {
			return
		}
		s.storeGroup(group)
		if s.unheard != nil { // else a client that settles what it sends loses it in silence
			s.link.Detach(s.unheard)
			s.unheard = nil
		}
		s.done(len(group))
	}
}

// next returns the first of the deliveries that wait, as many as are stored together.
func (s *sender) next() []*amqp.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < min(len(s.waiting), groupMessages) {
		if size += len(s.waiting[n].Payload); n > 0 && size > groupBytes {
			break
		}
		n++
	}
	return s.waiting[:n:n]
}

// done removes deliveries that have been answered. They stay until then, so that receive starts
// no second worker.
func (s *sender) done(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.waiting[:n])
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
}

// storeGroup stores deliveries in one transaction and answers them. If it is refused, each is
// tried alone, so that one bad message is no other's fault.
func (s *sender) storeGroup(group []*amqp.Delivery) {
	unpaced := s.pace()
	var contents []message.Content
	good := group[:0:0]
	for _, d := range group {
		c, err := s.contents(d)
		if err == nil {
			err = unpaced
		}
		if err != nil {
			s.refuse(d, err)
			continue
		}
		good, contents = append(good, d), append(contents, c...)
	}
	if len(good) == 0 {
		return
	}
	err := s.send(contents)
	if err != nil && len(good) > 1 && refused(err) {
		for _, d := range good {
			c, err := s.contents(d)
			if err == nil {
				err = s.send(c)
			}
			s.answer(d, err)
		}
		return
	}
	for _, d := range good {
		s.answer(d, err)
	}
}

// pace counts a transaction as a request of the tenant. It waits while these come too fast: the
// client's credit runs out meanwhile.
func (s *sender) pace() error {
	ctx, cancel := context.WithTimeout(s.link.Context(), storeTime)
	defer cancel()
	for {
		err := s.limits.Request(ctx, s.grant.tenant(), s.grant.Caller.KeyID)
		var limited *forebay.Error
		if !errors.As(err, &limited) || limited.Code != forebay.CodeRateLimited || sleep.For(ctx, max(limited.RetryAfter, time.Millisecond)) != nil {
			return err
		}
	}
}

// refused reports that nothing was stored, because of the messages.
func refused(err error) bool {
	switch forebay.CodeOf(err) {
	case forebay.CodeInternal, forebay.CodeUnavailable, forebay.CodeStorageFull, forebay.CodeUnknownQueue, forebay.CodeNotFound:
		return false
	}
	return true
}

func (s *sender) send(contents []message.Content) error {
	// The end of the link does not take back what it has sent.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.link.Context()), storeTime)
	defer cancel()
	_, err := s.messages.Raw.Send(s.grant.acting(ctx), s.grant.tenant(), s.entity.Path, contents)
	return err
}

func (s *sender) answer(d *amqp.Delivery, err error) {
	if err != nil {
		s.refuse(d, err)
		return
	}
	d.Settle(&wire.Accepted{})
}

func (s *sender) refuse(d *amqp.Delivery, err error) {
	told := s.failure(err, s.entity.Path).wire()
	if d.Settled {
		s.unheard = told
	}
	d.Settle(&wire.Rejected{Error: told})
}

// contents reads the messages of a delivery: one, or those of a batch.
func (s *sender) contents(d *amqp.Delivery) ([]message.Content, error) {
	return content.FromAMQP(d.Format, d.Payload)
}
