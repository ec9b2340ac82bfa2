package servicebus

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/servicebus/content"
	"github.com/forebayhq/forebay/internal/sleep"
)

const (
	// receiveMessages is how many messages are received at once.
	receiveMessages = 100
	// receiveWait is how long the store waits for a message before it is asked again. That keeps a
	// queue that is deleted when idle, after forebay.MinAutoDelete at least.
	receiveWait = 4 * time.Minute
	// retryReceive is when a receive that failed for the server's reasons is tried again.
	retryReceive = time.Second
	// linkTimeout is how long a client waits for a session, in milliseconds.
	linkTimeout = "com.microsoft:timeout"
)

// receiver delivers messages of an entity on one link.
type receiver struct {
	*client
	link    *amqp.Outgoing
	grant   *grant
	entity  messaging.Entity
	mode    forebay.ReceiveMode
	empty   bool         // nothing ever comes: see transferDeadLetters
	session *heldSession // nil: the entity has none

	settling    *workers
	settled     gate // of settlements
	completions completions
	tags        uint64 // of messages that nobody settles
}

// acceptReceiver accepts a link that receives from a queue or a subscription, and serves it until
// it ends.
func (c *client) acceptReceiver(l *amqp.Outgoing, at node) {
	r, leave, err := c.newReceiver(l, at)
	if err != nil {
		l.Refuse(c.failure(err, at.path).wire())
		return
	}
	defer leave()
	// A link that waits for a session ends with its token, too.
	c.guard(l.Context(), r.grant, forebay.ScopeListen, at.path, func(f *failure) { l.Detach(f.wire()) })
	filter := sessionFilterOf(l.Attach().Source)
	properties := wire.Map{}
	if filter.asked {
		if r.session, err = c.acceptSession(r, &filter); err != nil {
			l.Refuse(c.failure(err, at.path).wire())
			return
		}
		defer r.session.end()
		properties = wire.Map{{Key: wire.Symbol("com.microsoft:locked-until-utc"), Value: ticks(r.session.lockedUntil())}}
	}
	// What the client has settled before it went counts before its session ends.
	defer r.settled.close()
	settled, run := r.settle, r.run
	if browses(l.Attach().Source) {
		settled, run = r.settleBrowsed, r.browse
	}
	err = l.Accept(amqp.OutgoingOptions{
		Source: filter.answered(l.Attach().Source), Properties: properties, Settled: settled,
	})
	if err != nil {
		return
	}
	if err := run(r.grant.acting(l.Context())); err != nil && l.Context().Err() == nil {
		l.Detach(c.failure(err, r.entity.Path).wire())
	}
	<-l.Context().Done()
}

func (c *client) newReceiver(l *amqp.Outgoing, at node) (r *receiver, leave func(), err error) {
	g, err := c.grantFor(forebay.ScopeListen, at.path)
	if err != nil {
		return nil, nil, err
	}
	path, transfer := at.entity()
	e, err := c.messages.Raw.Current(l.Context(), g.tenant(), path)
	if err != nil {
		return nil, nil, err
	}
	if transfer {
		e.RequiresSession = false
	}
	switch filter := sessionFilterOf(l.Attach().Source); {
	case e.Kind == messaging.KindTopic:
		return nil, nil, fail(conditionNotAllowed, 400, "A topic cannot be received from: receive from its subscriptions.")
	case filter.share:
		return nil, nil, fail(conditionNotImpl, 501, "A lock of a session cannot be shared: accept the session without EnableNonExclusiveSession.")
	case filter.selects:
		return nil, nil, fail(conditionNotImpl, 501, "A link cannot select messages: use a subscription with a rule.")
	case browses(l.Attach().Source) && filter.asked:
		return nil, nil, fail(conditionNotImpl, 501, "A session cannot be browsed by a link: peek at its messages.")
	case browses(l.Attach().Source):
	case e.Refusal != nil: // the SDK for .NET takes a link that ends later for an empty queue
		return nil, nil, e.Refusal
	case e.RequiresSession && !filter.asked:
		return nil, nil, errNeedsSession
	case !e.RequiresSession && filter.asked:
		return nil, nil, errNoSessions
	}
	r = &receiver{client: c, link: l, grant: g, entity: e, mode: forebay.PeekLock, empty: transfer}
	if wire.ValueOr(l.Attach().SenderSettleMode, wire.SenderMixed) == wire.SenderSettled {
		r.mode = forebay.ReceiveAndDelete
	}
	r.settling = c.workers(maxSettling, &c.running)
	if leave, err = c.places.enter(g.tenant()); err != nil || !browses(l.Attach().Source) {
		return r, leave, err
	}
	leaveLinks := leave
	leaveBrowsers, err := c.browsers.enter(g.tenant())
	if err != nil {
		leaveLinks()
		return nil, nil, err
	}
	return r, func() { leaveBrowsers(); leaveLinks() }, nil
}

// run delivers messages while the client gives credit.
func (r *receiver) run(ctx context.Context) error {
	for {
		credit, drain, err := r.link.WaitCredit(ctx)
		if err != nil {
			return nil // the link has ended
		}
		if credit == 0 {
			r.link.Drained()
			continue
		}
		messages, err := r.receive(ctx, int(min(credit, receiveMessages)), drain)
		switch {
		case err == nil && len(messages) > 0:
			err = r.deliver(ctx, messages)
		case err == nil && drain:
			r.link.Drained()
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case temporary(err):
			r.log.Warn("cannot deliver to a Service Bus client; trying again", slog.String("entity", r.entity.Path), slog.Any("error", err))
			if sleep.For(ctx, retryReceive) != nil {
				return nil
			}
		case err != nil:
			return err
		}
	}
}

// temporary reports that the server could not receive now, for no reason of the client's.
func temporary(err error) bool {
	if err == nil {
		return false
	}
	switch forebay.CodeOf(err) {
	case forebay.CodeUnavailable, forebay.CodeTooManyRequests, forebay.CodeRateLimited, forebay.CodeInternal, forebay.CodeStorageFull:
		return true
	}
	return false
}

// receive takes messages from the store. It waits for a first one unless the client drains, and
// returns none once the client takes its credit back or drains.
func (r *receiver) receive(ctx context.Context, most int, drain bool) ([]bus.Message, error) {
	if r.empty {
		if !drain {
			r.watch(ctx, func() {})
		}
		return nil, nil
	}
	want := messaging.Received{Mode: r.mode, Max: most}
	if r.session != nil {
		want.Session = r.session.token
	}
	if drain {
		return r.messages.Raw.Receive(ctx, r.grant.tenant(), r.entity.Path, want)
	}
	want.Wait = receiveWait
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go r.watch(waiting, cancel)
	messages, err := r.messages.Raw.Receive(waiting, r.grant.tenant(), r.entity.Path, want)
	if err != nil && waiting.Err() != nil {
		return nil, nil // they were given back
	}
	return messages, err
}

// watch calls interrupt when the client takes its credit back or drains.
func (r *receiver) watch(ctx context.Context, interrupt func()) {
	for {
		credit, drain, changed := r.link.Credit()
		if credit == 0 || drain {
			interrupt()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// deliver sends messages, and gives back those that cannot be sent any more.
func (r *receiver) deliver(ctx context.Context, messages []bus.Message) error {
	claim := r.sent.Claim(r.grant.tenant())
	defer claim.Release()
	left := sizeOf(messages)
	err := claim.Grow(ctx, left)
	if r.mode == forebay.ReceiveAndDelete {
		err = nil // they are deleted already: this link has them alone, at most one answer's worth
	}
	for i := range messages {
		if err == nil {
			err = r.send(ctx, &messages[i])
		}
		if errors.Is(err, errUnsendable) {
			err = r.unsendable(ctx, &messages[i], err)
		}
		if err != nil {
			r.giveBack(ctx, messages[i:])
			break
		}
		left -= sizeOf(messages[i : i+1])
		messages[i] = bus.Message{} // a slow client holds only what is left
		claim.Shrink(left)
	}
	if errors.Is(err, amqp.ErrNoCredit) { // the client took it back meanwhile
		return nil
	}
	return err
}

// errUnsendable is of a message that this client can never be sent.
var errUnsendable = errors.New("the message cannot be sent to this client")

// unsendable abandons a message that cannot be sent. The delivery counts, so that such a message
// is dead-lettered in the end and does not hold up those behind it.
func (r *receiver) unsendable(ctx context.Context, m *bus.Message, why error) error {
	r.log.Warn("a message cannot be sent to a Service Bus client", slog.String("entity", r.entity.Path), slog.Int64("sequence_number", m.Seq), slog.Any("error", why))
	if r.mode == forebay.ReceiveAndDelete {
		return nil
	}
	return r.messages.Messages.Abandon(ctx, r.grant.tenant(), r.entity.Path, message.NewToken(m.Seq, m.Token), forebay.Settlement{})
}

// sizeOf is what messages take until they are sent.
func sizeOf(messages []bus.Message) (size int64) {
	for i := range messages {
		size += messages[i].Size() + int64(len(messages[i].AMQP))
	}
	return 2 * size // as they were read, and as they are encoded
}

func (r *receiver) send(ctx context.Context, m *bus.Message) error {
	payload, err := encode(m, r.entity, r.session, content.Options{LockToken: r.mode == forebay.PeekLock})
	if err != nil {
		return errors.Join(errUnsendable, err)
	}
	t := amqp.Transfer{Payload: payload, Settled: r.mode == forebay.ReceiveAndDelete}
	if t.Settled {
		r.tags++
		t.Tag = numberTag(r.tags)
	} else {
		t.Tag = content.DeliveryTag(content.LockToken(m.Lock))
	}
	_, err = r.link.Send(ctx, t)
	for t.Settled && err != nil { // nobody else has it any more
		switch {
		case errors.Is(err, amqp.ErrNoCredit):
		case forebay.CodeOf(err) == forebay.CodeTooManyRequests: // no memory was free in time
		default:
			return err
		}
		var credit uint32
		if credit, _, err = r.link.WaitCredit(ctx); err != nil {
			break
		}
		if credit == 0 {
			r.link.Drained()
			err = amqp.ErrNoCredit
			continue
		}
		_, err = r.link.Send(ctx, t)
	}
	if errors.Is(err, amqp.ErrTooLarge) {
		return errors.Join(errUnsendable, err)
	}
	return err
}

// giveBack returns messages that the client never saw. Those of a session go with its lock.
func (r *receiver) giveBack(ctx context.Context, messages []bus.Message) {
	if r.mode == forebay.ReceiveAndDelete { // as Service Bus has it: they may be lost on their way
		r.log.Warn("messages that were received and deleted did not reach a Service Bus client", slog.String("entity", r.entity.Path), slog.Int("count", len(messages)))
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	tokens := make([]string, len(messages))
	for i := range messages {
		tokens[i] = message.NewToken(messages[i].Seq, messages[i].Token)
	}
	if err := r.messages.Messages.Return(ctx, r.grant.tenant(), r.entity.Path, tokens); err != nil {
		r.log.Warn("messages that a Service Bus client did not get stay locked", slog.String("entity", r.entity.Path), slog.Int("count", len(messages)), slog.Any("error", err))
	}
}

// timeoutOf is how long a client waits for its link, or byDefault.
func timeoutOf(a *wire.Attach, byDefault time.Duration) time.Duration {
	v, _ := a.Properties.Get(linkTimeout)
	if ms, ok := integer(v); ok && ms > 0 {
		return time.Duration(min(ms, maxLinkWait.Milliseconds())) * time.Millisecond
	}
	return cmp.Or(byDefault, maxLinkWait)
}

// maxLinkWait is the longest wait for a session.
const maxLinkWait = 10 * time.Minute
