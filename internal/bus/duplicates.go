package bus

import (
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// remember records that the queue has seen a message id. It returns the number of the first
// message with that id: seq itself, unless another came within the window.
func (t *arrivalTx) remember(q MessageQueue, id string, seq int64) (first int64, err error) {
	until := t.Now + q.DuplicateWindow.Milliseconds()
	if t.W.Shared() {
		known, err := t.seen(q.No, id)
		if err != nil {
			return 0, err
		}
		if known.until > t.Now {
			return known.seq, nil
		}
		*known = seenID{seq, until}
		t.DueBy(entity.ForgetTime(until))
		return seq, t.Prep(sqlRemember).Int(q.No).Text(id).Int(seq).Int(until).Exec()
	}
	isFirst, err := t.Prep(`INSERT INTO message_ids (queue, id, seq, forget_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (queue, id) DO UPDATE SET seq = excluded.seq, forget_at = excluded.forget_at WHERE message_ids.forget_at <= ?5 RETURNING seq`).
		Int(q.No).Text(id).Int(seq).Int(until).Int(t.Now).One(func(driver.Row) {})
	if err != nil || isFirst {
		t.DueBy(entity.ForgetTime(until))
		return seq, err
	}
	_, err = t.Prep("SELECT seq FROM message_ids WHERE queue = ? AND id = ?").Int(q.No).Text(id).One(func(r driver.Row) { first = r.Int(0) })
	return first, err
}

// messageName names a message, or a session, of a queue.
type messageName struct {
	queue int64
	id    string
}

// seenID is the first message with an id, and when its queue forgets the id; 0: it never saw it.
type seenID struct{ seq, until int64 }

const sqlMessageID = "SELECT seq, forget_at FROM message_ids WHERE queue = ? AND id = ?"

var sqlRemember = driver.BatchForm(`INSERT INTO message_ids (queue, id, seq, forget_at) VALUES (?, ?, ?, ?)
ON CONFLICT (queue, id) DO UPDATE SET seq = excluded.seq, forget_at = excluded.forget_at`,
	`INSERT INTO message_ids (queue, id, seq, forget_at) SELECT p1, p2, p3, p4 FROM %s
ON CONFLICT (queue, id) DO UPDATE SET seq = excluded.seq, forget_at = excluded.forget_at`)

// seen returns what is known of a message id, where a statement costs a round trip. The
// transaction asks once: other calls may ask, and remember the id, while this one waits.
func (t *arrivalTx) seen(queue int64, id string) (*seenID, error) {
	name := messageName{queue, id}
	if known := t.ids[name]; known != nil {
		return known, nil
	}
	var read seenID
	_, err := t.Prep(sqlMessageID).Int(queue).Text(id).One(func(r driver.Row) { read = seenID{r.Int(0), r.Int(1)} })
	if known := t.ids[name]; known != nil || err != nil {
		return known, err
	}
	if t.ids == nil {
		t.ids = map[messageName]*seenID{}
	}
	t.ids[name] = &read
	return &read, nil
}
