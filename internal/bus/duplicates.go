package bus

import (
	"github.com/forebayhq/forebay/internal/db/driver"
)

// remember records that the queue has seen a message id. It returns the number of the first
// message with that id: seq itself, unless another came within the window.
func (t *arrivalTx) remember(q MessageQueue, id string, seq int64) (first int64, err error) {
	until := t.Now + q.DuplicateWindow.Milliseconds()
	isFirst, err := t.Prep(`INSERT INTO message_ids (queue, id, seq, forget_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (queue, id) DO UPDATE SET seq = excluded.seq, forget_at = excluded.forget_at WHERE message_ids.forget_at <= ?5 RETURNING seq`).
		Int(q.No).Text(id).Int(seq).Int(until).Int(t.Now).One(func(driver.Row) {})
	if err != nil || isFirst {
		t.DueBy(forgetTime(until))
		return seq, err
	}
	_, err = t.Prep("SELECT seq FROM message_ids WHERE queue = ? AND id = ?").Int(q.No).Text(id).One(func(r driver.Row) { first = r.Int(0) })
	return first, err
}

// forgetEvery rounds up the time at which ids are forgotten, so that many go at once.
const forgetEvery = 10_000 // milliseconds

func forgetTime(at int64) int64 { return (at/forgetEvery + 1) * forgetEvery }

const (
	forgetBatch   = 1000
	sqlNextForget = "SELECT (forget_at / 10000 + 1) * 10000 FROM message_ids WHERE forget_at > 0 ORDER BY forget_at LIMIT 1"
)

// forgetMessageIDs deletes ids whose window has passed.
func (t *dueTx) forgetMessageIDs() error {
	return t.Prep(`DELETE FROM message_ids WHERE (queue, id) IN
(SELECT queue, id FROM message_ids WHERE forget_at <= ? ORDER BY forget_at LIMIT ? + 0)`).Int(t.Now).Int(forgetBatch).Exec()
}
