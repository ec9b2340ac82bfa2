package servicebus

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// maxSettling is how many settlements of one link are under way at once. Those of all links share
// transactions.
const maxSettling = 64

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
	for _, s := range list {
		if !r.settled.enter() {
			return // the link has ended meanwhile
		}
		if state, within := s.State.(*wire.TransactionalState); within {
			r.transacting.do(func() { defer r.settled.leave(); r.settleWithin(s, state) })
			continue
		}
		r.settling.do(func() { defer r.settled.leave(); r.settleOne(s) })
	}
}

// settleOne settles a message as the client says, and answers with the outcome that it asked for.
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
