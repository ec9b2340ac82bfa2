package store

import (
	"context"

	"github.com/forebayhq/forebay"
)

// DropMessageQueue makes the queue unknown and turns its receivers away; its messages go with
// [Store.PurgeDropped]. It reports whether the queue was there.
func (s *BusStore) DropMessageQueue(ctx context.Context, q MessageQueue) (dropped bool, err error) {
	return transactIn(ctx, busKey, s.writer, op{stage: stageChange, party: q.Tenant, rows: entityRows}, func(t *busTx) (bool, error) {
		dropped, err := t.dropMessageQueue(q.No)
		if err != nil || !dropped {
			return false, err
		}
		return true, auditIn(t.tx, entityAudit(ctx, "delete", q, nil))
	})
}

const sqlDropQueue = `
UPDATE queues SET kind = 'deleting', name = '/deleting/' || CAST(no AS TEXT), delete_at = NULL, due_at = ? WHERE no = ? AND kind = 'messages'`

func (t *busTx) dropMessageQueue(no int64) (dropped bool, err error) {
	rows, err := t.prep(sqlDropQueue).int(t.now).int(no).count()
	if err != nil || rows == 0 {
		return false, err
	}
	t.dueBy(t.now)
	t.notify(wordSettings, 0, 0, 0)
	t.after = append(t.after, func() { t.w.forgetQueue(no) })
	if err := t.prep(sqlCount).text("queue").int(no + 1).exec(); err != nil {
		return false, err
	}
	return true, t.leaveTopic(no)
}

// forgetQueue refuses the receivers that wait for a queue and drops what is remembered of its subqueues.
func (w *busPart) forgetQueue(no int64) {
	for kind := range SubqueueKind(subqueueKinds) {
		subqueue := SubqueueOf(no, kind)
		w.drop(subqueue, errNoQueue)
		delete(w.resting, subqueue)
	}
	for subqueue, receivers := range w.parked {
		if !subqueue.lasts() && receivers[0].Queue.No == no {
			w.drop(subqueue, errNoQueue)
		}
	}
}

var errNoQueue = &forebay.Error{Code: forebay.CodeUnknownQueue, Field: "queue", Message: "there is no such queue of messages"}

const purgeBatch = 500

// PurgeDropped removes the messages of dropped queues in small transactions, then the queues. The
// writer does the same when it finds the time, so that nothing depends on the caller.
func (s *BusStore) PurgeDropped(ctx context.Context) error {
	for {
		more, err := transactIn(ctx, busKey, s.writer, op{stage: stageChange}, func(t *busTx) (bool, error) {
			var no int64
			found, err := t.prep("SELECT no FROM queues WHERE kind = 'deleting' LIMIT 1").one(func(r row) { no = r.int(0) })
			if err != nil || !found {
				return false, err
			}
			return true, t.purge(no)
		})
		if err != nil || !more {
			return err
		}
	}
}

// purge removes a batch of what is left of a dropped queue and, once nothing is, the queue.
func (t *busTx) purge(no int64) error {
	var seqs []int64
	err := t.prep("SELECT seq FROM bodies WHERE lane BETWEEN ?1 AND ?1 + 3 LIMIT ?2 + 0").int(no * subqueueKinds).int(purgeBatch).each(func(r row) error {
		seqs = append(seqs, r.int(0))
		return nil
	})
	if err != nil {
		return err
	}
	for _, seq := range seqs {
		if err := t.deleteMessage(seq); err != nil {
			return err
		}
	}
	if len(seqs) > 0 {
		return nil
	}
	for _, sql := range []string{
		"DELETE FROM sessions WHERE no IN (SELECT no FROM sessions WHERE queue = ? LIMIT ? + 0)",
		"DELETE FROM message_ids WHERE (queue, id) IN (SELECT queue, id FROM message_ids WHERE queue = ? LIMIT ? + 0)",
	} {
		if rows, err := t.prep(sql).int(no).int(purgeBatch).count(); err != nil || rows > 0 {
			return err
		}
	}
	return t.prep("DELETE FROM queues WHERE no = ? AND kind = 'deleting'").int(no).exec()
}
