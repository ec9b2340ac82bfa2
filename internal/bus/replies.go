package bus

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Reply is a message for a queue or a topic that another message named.
type Reply = entity.Reply

// Replies are replies on their way to the queues and topics that they name.
type Replies struct {
	*Tx
	list    []Reply
	targets []MessageQueue
	Refused []*forebay.Error // why each is not sent; nil: it is
}

// PrefetchReply asks for the queue or topic of a reply, by its stored name in any case. Whoever
// knows where replies go can ask before [Tx.RepliesTo] does, also as the transaction begins. No
// other process changes an entity within the transaction. An operation that changes one is not
// local, or drops what was fetched: then it is asked again.
func PrefetchReply(tenant int64, to string) driver.Prefetch { return entity.PrefetchFolded(tenant, to) }

// RepliesTo finds the queues and topics of replies, and which of them take theirs.
func (t *Tx) RepliesTo(list []Reply) (*Replies, error) {
	r := &Replies{Tx: t, list: list, targets: make([]MessageQueue, len(list)), Refused: make([]*forebay.Error, len(list))}
	var asks []driver.Prefetch
	for i := range list {
		if list[i].To != "" {
			asks = append(asks, PrefetchReply(list[i].Tenant, list[i].To))
		}
	}
	if err := t.Prefetch(asks); err != nil {
		return nil, err
	}
	for i := range list {
		found := false
		if list[i].To != "" {
			var err error
			if r.targets[i], found, err = entity.Folded(t.Conn, list[i].Tenant, list[i].To); err != nil {
				return nil, err
			}
		}
		r.Refused[i] = list[i].Fit(&r.targets[i], found)
	}
	return r, nil
}

// Foresee fetches what the replies need where they go.
func (r *Replies) Foresee() error {
	return r.foresee(len(r.Queue.Seqs), func(f *foresight) {
		for i := range r.list {
			if r.Refused[i] == nil {
				f.numbers++
				kept := r.targets[i]
				if !kept.RequiresSession {
					kept.ForwardTo = ""
				}
				kept.IsTopic = false
				f.into(kept, &r.list[i].Message, nil, 0)
			}
		}
	})
}

// Send sends the replies that are not refused, as a part of the transaction. A topic makes the
// copies afterwards, and a queue that forwards sends the message on afterwards, so that a reply
// costs the transaction one message.
func (r *Replies) Send() error {
	return r.Alone(func() error { // for what a transaction makes of topics is counted
		for i := range r.list {
			if r.Refused[i] == nil {
				if err := r.arrivals.reply(r.targets[i], &r.list[i].Message); err != nil {
					return err
				}
			}
		}
		return nil
	})
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
