package servicebus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/panics"
)

const (
	// maxSettling is how many settlements of one link are under way at once. Those of all links
	// share transactions.
	maxSettling = 64
	// maxCompleting is how many groups of completions of one link are under way at once. The
	// second is stored while the first is answered.
	maxCompleting = 2
	// groupCompletions bounds those that are stored together. Other clients wait for a transaction.
	groupCompletions = 64
)

// The properties by which a client says why it dead-letters a message.
const (
	deadLetterReason      = "DeadLetterReason"
	deadLetterDescription = "DeadLetterErrorDescription"
)

// settle takes what a client says of deliveries. The connection's reader calls it.
func (r *receiver) settle(list []amqp.Settlement) {
	if r.mode == forebay.ReceiveAndDelete {
		return // they are gone
	}
	var completed []amqp.Settlement
	for _, s := range list {
		if _, completes := s.State.(*wire.Accepted); completes {
			completed = append(completed, s)
			continue
		}
		if !r.settled.enter() {
			return // the link has ended meanwhile
		}
		if state, within := s.State.(*wire.TransactionalState); within {
			r.transacting.do(func() { defer r.settled.leave(); r.settleWithin(s, state) })
			continue
		}
		r.settling.do(func() { defer r.settled.leave(); r.settleOne(s) })
	}
	if len(completed) > 0 {
		r.complete(completed)
	}
}

// completions are settlements that complete messages. Most settlements do, so they are stored
// in groups, as those that wait are while a group is stored.
type completions struct {
	mu      sync.Mutex
	waiting []amqp.Settlement
	groups  int // under way
}

// complete has messages completed.
func (r *receiver) complete(list []amqp.Settlement) {
	if !r.settled.enter() {
		return
	}
	c := &r.completions
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting = append(c.waiting, list...); c.groups == maxCompleting {
		r.settled.leave() // whoever completes a group takes these as well
		return
	}
	c.groups++
	r.settling.do(func() {
		defer r.settled.leave()
		for group := c.next(); len(group) > 0; group = c.next() {
			if panics.Run(r.log, "completions of Service Bus", func() error { r.completeGroup(group); return nil }) != nil {
				r.settling.failed()
			}
		}
	})
}

// next returns those that are stored together, or none, and then the caller takes no more.
func (c *completions) next() []amqp.Settlement {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.waiting = nil
		c.groups--
		return nil
	}
	n := min(len(c.waiting), groupCompletions)
	group := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return group
}

// completeGroup completes messages in one transaction, each by itself, and answers.
func (r *receiver) completeGroup(group []amqp.Settlement) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.link.Context()), storeTime)
	defer cancel()
	tokens := make([]string, 0, len(group))
	known := group[:0:0]
	for _, s := range group {
		token, err := tokenOfTag(s.Tag)
		if err != nil {
			r.answer(s, nil, err)
			continue
		}
		tokens, known = append(tokens, token), append(known, s)
	}
	complete := func(tokens []string) []error {
		return r.messages.Messages.CompleteMany(ctx, r.grant.tenant(), r.entity.Path, tokens)
	}
	for i, err := range complete(tokens) {
		if err != nil && len(tokens) > 1 && forebay.CodeOf(err) == forebay.CodeInternal { // one may have failed them all
			err = complete(tokens[i : i+1])[0]
		}
		r.answer(known[i], &wire.Accepted{}, err)
	}
}

// settleOne settles a message as the client says.
func (r *receiver) settleOne(s amqp.Settlement) {
	if s.State == nil {
		return // forgotten without an outcome: the message stays locked
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.link.Context()), storeTime)
	defer cancel()
	token, err := tokenOfTag(s.Tag)
	var outcome wire.DeliveryState
	if err == nil {
		outcome, err = r.dispose(ctx, token, s.State)
	}
	r.answer(s, outcome, err)
}

// answer tells the client the outcome that it asked for, or why there is another.
func (r *receiver) answer(s amqp.Settlement, outcome wire.DeliveryState, err error) {
	if s.Settled { // the client wants no answer
		if temporary(err) {
			r.log.Warn("a settlement that a Service Bus client does not wait for was not stored: the message stays locked", slog.String("entity", r.entity.Path), slog.Any("error", err))
		}
		return
	}
	if err != nil {
		outcome = &wire.Rejected{Error: r.failure(r.lost(err), r.entity.Path).wire()}
	}
	r.link.Settle(s.ID, outcome)
}

// dispose does what a delivery state says, and returns the state for the answer.
func (r *receiver) dispose(ctx context.Context, token string, state wire.DeliveryState) (wire.DeliveryState, error) {
	step, outcome, err := stepOf(state)
	if err != nil {
		return nil, err
	}
	step.Path, step.Token = r.entity.Path, token
	return outcome, r.settleAlone(ctx, r.grant.tenant(), step)
}

// deadLettering reads why a message was rejected. Other properties of the error are changes to
// those of the message.
func deadLettering(e *wire.Error) (how forebay.Settlement, err error) {
	if e == nil {
		return how, nil
	}
	changed := make(wire.Map, 0, len(e.Info))
	for _, p := range e.Info {
		switch key, _ := textOf(p.Key); key {
		case deadLetterReason:
			how.Reason, _ = textOf(p.Value)
		case deadLetterDescription:
			how.Description, _ = textOf(p.Value)
		default:
			changed = append(changed, p)
		}
	}
	if how.Reason == "" && e.Condition != conditionDeadLetter {
		how.Reason = string(e.Condition)
	}
	if how.Description == "" {
		how.Description = e.Description
	}
	how.Properties, err = propertiesOf(changed)
	return how, err
}

// lost tells a lock that went with its session from that of one message.
func (r *receiver) lost(err error) error {
	if r.session != nil && errors.Is(err, forebay.ErrLockLost) && !time.Now().Before(r.session.lockedUntil()) {
		return forebay.ErrSessionLockLost
	}
	return err
}
