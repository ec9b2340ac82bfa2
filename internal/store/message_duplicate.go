package store

// remember notes that the queue has seen a message id. It returns the number of the message that came
// first: seq itself, unless another came within the window.
func (t *busTx) remember(q MessageQueue, id string, seq int64) (first int64, err error) {
	until := t.now + q.DuplicateWindow.Milliseconds()
	isFirst, err := t.prep(`INSERT INTO message_ids (queue, id, seq, forget_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (queue, id) DO UPDATE SET seq = excluded.seq, forget_at = excluded.forget_at WHERE message_ids.forget_at <= ?5 RETURNING seq`).
		int(q.No).text(id).int(seq).int(until).int(t.now).one(func(row) {})
	if err != nil || isFirst {
		t.dueBy(forgetTime(until))
		return seq, err
	}
	_, err = t.prep("SELECT seq FROM message_ids WHERE queue = ? AND id = ?").int(q.No).text(id).one(func(r row) { first = r.int(0) })
	return first, err
}

// forgetEvery is how often ids are forgotten: many at once, rather than each when its time is over.
const forgetEvery = 10_000 // milliseconds

func forgetTime(at int64) int64 { return (at/forgetEvery + 1) * forgetEvery }

const (
	forgetBatch   = 1000
	sqlNextForget = "SELECT (forget_at / 10000 + 1) * 10000 FROM message_ids WHERE forget_at > 0 ORDER BY forget_at LIMIT 1"
)

// forgetMessageIDs drops ids whose window is over.
func (t *busTx) forgetMessageIDs() error {
	return t.prep(`DELETE FROM message_ids WHERE (queue, id) IN
(SELECT queue, id FROM message_ids WHERE forget_at <= ? ORDER BY forget_at LIMIT ? + 0)`).int(t.now).int(forgetBatch).exec()
}
