package bus

import (
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
)

// Reply is a message for a queue or a topic that another message named.
type Reply struct {
	Tenant  int64  // whose queue or topic it must be
	To      string // its stored name, in any case; "": none that could exist
	Message MessageContent
	Short   *MessageContent // instead, if the entity takes no message as large; nil: there is nothing shorter
}

// Why a reply is not sent.
var (
	errReplyTarget  = forebay.Errorf(forebay.CodeUnknownQueue, "reply_to names no queue and no topic of messages")
	errReplyPrivate = forebay.Errorf(forebay.CodeForbidden, "reply_to names a topic that only Forebay publishes to")
)

// SendReplies sends messages to the queues and topics that they name, as a part of the
// transaction. It returns why each was not sent; nil: it was. A topic makes the copies
// afterwards, and a queue that forwards sends the message on afterwards, so that a reply costs
// the transaction one message.
func (t *Tx) SendReplies(list []Reply) (refused []*forebay.Error, err error) {
	refused = make([]*forebay.Error, len(list))
	targets := make([]MessageQueue, len(list))
	err = t.Interleave(len(list), func(i int) error {
		q, found, err := entity.Folded(t.Conn, list[i].Tenant, list[i].To)
		if err == nil {
			targets[i], refused[i] = q, list[i].fit(&q, found)
		}
		return err
	})
	if err == nil {
		err = t.foresee(len(t.Queue.Seqs), func(f *foresight) {
			for i := range list {
				if refused[i] == nil {
					f.numbers++
					kept := targets[i]
					if !kept.RequiresSession {
						kept.ForwardTo = ""
					}
					kept.IsTopic = false
					f.into(kept, &list[i].Message, nil, 0)
				}
			}
		})
	}
	if err != nil {
		return nil, err
	}
	return refused, t.Alone(func() error { // for what a transaction makes of topics is counted
		for i := range list {
			if refused[i] == nil {
				if err := t.arrivals.reply(targets[i], &list[i].Message); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// fit shortens a reply if the entity asks for that. It says why it cannot be sent there; nil: it
// can.
func (r *Reply) fit(q *MessageQueue, found bool) (refusal *forebay.Error) {
	switch {
	case !found, q.Topic != 0:
		return errReplyTarget
	case entity.OnlyForebayPublishes(q.Name):
		return errReplyPrivate
	case q.MaxMessage > 0 && r.Short != nil && r.Message.Size() > q.MaxMessage:
		r.Message = *r.Short
	}
	errors.As(q.CheckMessage(&r.Message), &refusal)
	return refusal
}

// reply enters a reply into a queue or a topic.
func (t *arrivalTx) reply(q MessageQueue, m *MessageContent) error {
	a := arrival{MessageContent: m, inBatches: q.IsTopic, waits: q.ForwardTo != "" && !q.RequiresSession}
	if a.waits {
		if err := t.due.markQueue(q.No, t.Now); err != nil {
			return err
		}
		t.forwarding.noteHeld(q.Subqueue(false))
	}
	_, err := t.add(q, a)
	return err
}
