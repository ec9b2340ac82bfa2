package bus

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// A queue that is deleted when idle is kept by sends, receives, peeks, updates and scheduled
// messages (Service Bus documentation, "message-expiration", section "Idleness"). Use of a
// subscription keeps its topic too. The copies that a subscription gets do not keep it.

// used records that a queue is in use. One that is deleted when idle is kept, and its topic with
// it. The record is renewed only now and then, so such a queue lives up to a sixtieth too long.
func (t *Tx) used(q MessageQueue) error {
	if err := t.accessed(q.No); err != nil {
		return err
	}
	if err := t.keep(q.No, q.Idle); err != nil {
		return err
	}
	return t.keep(q.Topic, q.TopicIdle)
}

func (t *Tx) keep(no int64, after time.Duration) error {
	if after == 0 {
		return nil
	}
	idle := after.Milliseconds()
	at := t.Now + idle + idle/60
	t.DueBy(at)
	return t.Prep("UPDATE queues SET delete_at = ?1 WHERE no = ?2 AND coalesce(delete_at, ?3) < ?3 AND kind = 'messages'").Int(at).Int(no).Int(t.Now + idle).Exec()
}

// Used records that somebody uses the queue, if it is deleted when idle.
func Used(ctx context.Context, w *db.Writer, q MessageQueue) error {
	if q.Idle == 0 && q.TopicIdle == 0 {
		return nil
	}
	return noteUse(ctx, w, q)
}

// noteUse is a function of its own so that Used allocates nothing for other queues. Every
// settlement calls Used.
func noteUse(ctx context.Context, w *db.Writer, q MessageQueue) error {
	_, err := db.TransactIn(ctx, Key, w, db.Op{Stage: db.StageChange, Local: true, Interleaves: true}, func(t *Tx) (struct{}, error) { return struct{}{}, t.used(q) })
	return err
}

// markQueue sets when a queue is due; 0: never.
func (t *dueTx) markQueue(no, at int64) error {
	t.DueBy(at)
	return t.Prep("UPDATE queues SET due_at = ? WHERE no = ?").IntOrNull(at).Int(no).Exec()
}

// processQueues deletes idle queues, purges dropped ones and forwards the backlog of those
// that began to forward.
func (t *dueTx) processQueues() error {
	if t.queues == nil {
		if err := t.RunPipeline(t.askQueues()); err != nil {
			return err
		}
	}
	next := t.queues
	if next.More {
		t.DueBy(t.Now)
	}
	if t.Entities.purged && len(next.Dropped) > 0 {
		t.DueBy(t.Now) // an operation has purged
	} else if err := t.Entities.purge(&next.Purging); err != nil {
		return err
	}
	if dropped, err := t.dropIdle(next.idle); err != nil || dropped {
		return err // what was asked ahead for the backlog may not be true any more
	}
	if next.No == 0 {
		return nil
	}
	q, found, err := t.MessageQueue(next.No)
	switch {
	case err != nil || !found:
		return err
	case q.ForwardTo != "" && q.Status.Receives():
		return t.forwarding.sendBacklog(q)
	}
	return t.markQueue(q.No, 0)
}

// dropIdle drops queues that are idle. Those that only seem so are checked again later. It
// reports whether it has dropped any.
func (t *dueTx) dropIdle(list []entity.Idle) (dropped bool, err error) {
	if len(list) > 0 { // there may be more
		t.DueBy(t.Now)
	}
	var idle []MessageQueue
	var asks []driver.Prefetch
	f := foresight{Tx: t.Tx, asked: map[driver.RowName]bool{}, taken: len(t.Queue.Seqs)}
	for _, q := range list {
		if at := q.Kept(t.Now); at > 0 {
			t.DueBy(at)
			if err := t.Prep(entity.SQLKeep).Int(at).Int(q.No).Exec(); err != nil {
				return false, err
			}
			continue
		}
		if idle = append(idle, q.Queue); q.IsTopic {
			asks = append(asks, entity.PrefetchNumbersOf(q.No))
		}
		if t.W.Shared() && (q.IsTopic || q.Topic != 0) {
			f.takeNumbers(1) // the topics' version
		}
	}
	if err := t.Prefetch(append(asks, f.asks...)); err != nil {
		return false, err
	}
	if err := f.answer(); err != nil {
		return false, err
	}
	for _, q := range idle {
		if _, err := t.Entities.drop(q, forebay.Condition{}, audit.Act{}); err != nil {
			return false, err
		}
	}
	return len(idle) > 0, t.Entities.DropNow()
}

// queuesAhead is what processQueues asks first, with what is due.
type queuesAhead struct {
	idle []entity.Idle
	entity.Due
	backlog backlog
}

const sqlDueBacklog = `SELECT seq, visible_at, size FROM messages
WHERE subqueue = (SELECT no * 4 FROM queues WHERE due_at <= ? ORDER BY due_at LIMIT 1) AND flow = 0 ORDER BY visible_at, seq LIMIT ? + 0`

// askQueues returns the questions for queuesAhead.
func (t *dueTx) askQueues() []driver.PipelineQuery {
	next := &queuesAhead{}
	t.queues = next
	return append(entity.AskDue(t.Now, purgeBatch, &next.Due), entity.AskIdle(t.Now, &next.idle), driver.PipelineQuery{
		SQL: sqlDueBacklog, Bind: func(st driver.Statement) driver.Statement { return st.Int(t.Now).Int(purgeBatch) },
		OnRow: func(r driver.Row) { _ = next.backlog.add(r, t.Now) }, Skip: func() bool { return next.No == 0 },
	})
}
