package servicebus

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/servicebus/content"
	"github.com/forebayhq/forebay/internal/sleep"
)

// browseAgain is how long a browser that has seen all waits for more.
const browseAgain = 5 * time.Second

// browses reports whether a link gets copies, which leave the messages where they are (AMQP 1.0,
// 3.5.7). Browsers of JMS ask for it.
func browses(s *wire.Source) bool { return s != nil && s.DistributionMode == "copy" }

// settleBrowsed answers what a client says of copies. It changes nothing.
func (r *receiver) settleBrowsed(list []amqp.Settlement) {
	for _, s := range list {
		if s.State != nil && !s.Settled {
			r.link.Settle(s.ID, s.State)
		}
	}
}

// browse sends copies of the messages that are ready or locked, each once, while the client gives
// credit.
func (r *receiver) browse(ctx context.Context) error {
	for from := int64(0); ; {
		credit, drain, err := r.link.WaitCredit(ctx)
		if err != nil {
			return nil // the link has ended
		}
		if credit == 0 {
			r.link.Drained()
			continue
		}
		next, err := r.browsePage(ctx, from, int(min(credit, messaging.MaxRawReceived)))
		more := next > from
		from = next // also after an error, for what was sent before it
		switch {
		case ctx.Err() != nil:
			return nil
		case temporary(err):
			r.log.Warn("cannot send copies to a Service Bus client; trying again", slog.String("entity", r.entity.Path), slog.Any("error", err))
			if sleep.For(ctx, retryReceive) != nil {
				return nil
			}
		case err != nil:
			return err
		case more:
		case drain:
			r.link.Drained()
		default:
			waiting, cancel := context.WithCancel(ctx)
			go r.watch(waiting, cancel)
			_ = sleep.For(waiting, browseAgain)
			cancel()
		}
	}
}

// browsePage sends up to so many copies. It returns the sequence number to go on from.
func (r *receiver) browsePage(ctx context.Context, from int64, most int) (next int64, err error) {
	if r.empty {
		return from, nil
	}
	claim := r.sent.Claim(r.grant.tenant())
	defer claim.Release()
	found, _, err := r.messages.Raw.Peek(memory.With(ctx, claim), r.grant.tenant(), r.entity.Path, "", from, most)
	if err != nil {
		return from, err
	}
	left := sizeOf(found)
	if err := claim.Grow(ctx, left-claim.Held()); err != nil {
		return from, err
	}
	for i := range found {
		m := &found[i]
		if m.State != forebay.MessageDeferred && m.State != forebay.MessageScheduled {
			err := r.sendCopy(ctx, m)
			if errors.Is(err, amqp.ErrNoCredit) { // the client took it back meanwhile
				return from, nil
			}
			if err != nil && !errors.Is(err, errUnsendable) {
				return from, err
			}
		}
		from = m.Seq + 1
		left -= sizeOf(found[i : i+1])
		found[i] = bus.Message{} // a slow client holds only what is left
		claim.Shrink(left)
	}
	return from, nil
}

func (r *receiver) sendCopy(ctx context.Context, m *bus.Message) error {
	payload, err := encode(m, r.entity, nil, content.Options{Peek: true})
	if err != nil {
		return errors.Join(errUnsendable, err)
	}
	r.tags++
	_, err = r.link.Send(ctx, amqp.Transfer{Payload: payload, Tag: numberTag(r.tags), Settled: r.mode == forebay.ReceiveAndDelete})
	if errors.Is(err, amqp.ErrTooLarge) {
		return errors.Join(errUnsendable, err)
	}
	return err
}
