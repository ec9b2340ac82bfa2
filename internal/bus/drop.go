package bus

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/queue"
)

// DropMessageQueue makes the queue unknown and refuses its receivers. [Store.PurgeDropped]
// removes its messages. It reports whether the queue existed.
func (s *Store) DropMessageQueue(ctx context.Context, q MessageQueue) (dropped bool, err error) {
	return db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: q.Tenant, Rows: entityRows}, func(t *Tx) (bool, error) {
		if err := entity.CheckNumbered(t.Conn, q.No, forebay.ConditionOf(ctx)); err != nil {
			return false, err
		}
		dropped, err := t.Entities.Drop(q.No)
		if err != nil || !dropped {
			return false, err
		}
		return true, audit.Append(t.Tx, q.Act(ctx, "delete", nil))
	})
}

const sqlDropQueue = `
UPDATE queues SET kind = 'deleting', name = '/deleting/' || CAST(no AS TEXT), delete_at = NULL, due_at = ? WHERE no = ? AND kind = 'messages'`

func (t *entityTx) Drop(no int64) (dropped bool, err error) {
	rows, err := t.Prep(sqlDropQueue).Int(t.Now).Int(no).Count()
	if err != nil || rows == 0 {
		return false, err
	}
	t.DueBy(t.Now)
	t.DropAllPrefetched()
	t.Notify(db.WordSettings, 0, 0, 0)
	t.After = append(t.After, func() { t.W.dropQueue(no) })
	if err := t.Prep(schema.SQLCount).Text("queue").Int(no + 1).Exec(); err != nil {
		return false, err
	}
	return true, t.dropFromTopic(no)
}

// dropQueue refuses the receivers that wait for a queue and forgets its subqueues.
func (w *Participant) dropQueue(no int64) {
	for kind := range queue.SubqueueKind(queue.SubqueueKinds) {
		subqueue := queue.SubqueueOf(no, kind)
		w.Drop(subqueue, entity.ErrNoQueue)
		delete(w.Paused, subqueue)
	}
	for subqueue, receivers := range w.Waiters {
		if !subqueue.IsOfQueue() && receivers[0].Queue.No == no {
			w.Drop(subqueue, entity.ErrNoQueue)
		}
	}
}

const purgeBatch = 500

// PurgeDropped removes the messages of dropped queues in small transactions, then the queues. The
// writer does the same in the background, so nothing depends on the caller.
func (s *Store) PurgeDropped(ctx context.Context) error {
	for {
		more, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (bool, error) {
			var no int64
			found, err := t.Prep("SELECT no FROM queues WHERE kind = 'deleting' LIMIT 1").One(func(r driver.Row) { no = r.Int(0) })
			if err != nil || !found {
				return false, err
			}
			return true, t.Entities.purge(no)
		})
		if err != nil || !more {
			return err
		}
	}
}

// purge removes a batch of the rows of a dropped queue and, once there are none, the queue.
func (t *entityTx) purge(no int64) error {
	var seqs []int64
	err := t.Prep("SELECT seq FROM bodies WHERE subqueue BETWEEN ?1 AND ?1 + 3 LIMIT ?2 + 0").Int(no * queue.SubqueueKinds).Int(purgeBatch).Each(func(r driver.Row) error {
		seqs = append(seqs, r.Int(0))
		return nil
	})
	if err != nil {
		return err
	}
	for _, seq := range seqs {
		if err := t.DeleteMessage(seq); err != nil {
			return err
		}
	}
	if len(seqs) > 0 {
		t.DueBy(t.Now)
		return nil
	}
	for _, sql := range []string{
		"DELETE FROM sessions WHERE no IN (SELECT no FROM sessions WHERE queue = ? LIMIT ? + 0)",
		"DELETE FROM message_ids WHERE (queue, id) IN (SELECT queue, id FROM message_ids WHERE queue = ? LIMIT ? + 0)",
	} {
		if rows, err := t.Prep(sql).Int(no).Int(purgeBatch).Count(); err != nil || rows > 0 {
			t.DueBy(t.Now)
			return err
		}
	}
	return t.Prep("DELETE FROM queues WHERE no = ? AND kind = 'deleting'").Int(no).Exec()
}
