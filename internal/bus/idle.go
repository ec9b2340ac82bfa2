package bus

import (
	"context"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
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
	if idle := t.queues.idle; len(idle) > 0 {
		if len(idle) == idleAtOnce { // there may be more
			t.DueBy(t.Now)
		}
		err := t.Interleave(len(idle), func(i int) error {
			busy, err := t.stillUsed(idle[i])
			if err == nil && !busy {
				_, err = t.Entities.Drop(idle[i])
			}
			return err
		})
		if err == nil {
			err = t.RunPipeline(t.askQueues()) // one of them may be due as well
		}
		if err != nil {
			return err
		}
	}
	if t.queues.more {
		t.DueBy(t.Now)
	}
	no := t.queues.due
	if no == 0 {
		return nil
	}
	q, found, err := t.MessageQueue(no)
	switch {
	case err != nil:
		return err
	case !found:
		return t.Entities.purge(no)
	case q.ForwardTo != "" && q.Status.Receives():
		return t.forwarding.sendBacklog(q)
	}
	return t.markQueue(no, 0)
}

const (
	// The end of the last lock, or of the last schedule, in one kind of subqueue. It counts a
	// queue, or a topic with its subscriptions. A free message has been visible for a while.
	sqlHeldUntil = `
SELECT max((SELECT m.visible_at FROM messages m WHERE m.subqueue = q.no * 4 + ?2 AND m.flow = ?3 ORDER BY m.visible_at DESC LIMIT 1))
FROM queues q WHERE q.no = ?1 OR q.topic = ?1`
	sqlSessionHeldUntil = `
SELECT max((SELECT s.visible_at FROM sessions s WHERE s.queue = q.no AND s.visible_at IS NOT NULL ORDER BY s.visible_at DESC LIMIT 1))
FROM queues q WHERE q.no = ?1 OR q.topic = ?1`

	// A queue that forwards, or has a webhook, is in use.
	sqlServed = `
SELECT 1 FROM queues q WHERE (q.no = ?1 OR q.topic = ?1)
  AND (q.forward_to IS NOT NULL OR EXISTS (SELECT 1 FROM webhooks w WHERE w.queue = q.no)) LIMIT 1`
)

// stillUsed reports whether a queue that seems unused is not idle after all, and then checks it
// again later.
func (t *dueTx) stillUsed(no int64) (bool, error) {
	q, _, err := t.MessageQueue(no)
	if err != nil {
		return false, err
	}
	served, until, err := t.keptBy(no)
	if err != nil || until <= t.Now && !served && !q.CopiesPending {
		return false, err
	}
	at := max(until, t.Now) + q.Idle.Milliseconds()
	t.DueBy(at)
	return true, t.Prep("UPDATE queues SET delete_at = ? WHERE no = ?").Int(at).Int(no).Exec()
}

// keptBy reports whether a queue, or a topic or one of its subscriptions, is served. It returns
// the end of the last lock or schedule in them.
func (t *dueTx) keptBy(no int64) (served bool, until int64, err error) {
	by := func(args ...int64) func(driver.Statement) driver.Statement {
		return func(st driver.Statement) driver.Statement {
			for _, v := range args {
				st = st.Int(v)
			}
			return st
		}
	}
	later := func(r driver.Row) { until = max(until, r.Int(0)) }
	questions := []driver.PipelineQuery{
		{SQL: sqlServed, Bind: by(no), OnRow: func(driver.Row) { served = true }},
		{SQL: sqlSessionHeldUntil, Bind: by(no), OnRow: later},
		{SQL: sqlHeldUntil, Bind: by(no, int64(queue.SubqueueMain), scheduledFlow), OnRow: later},
	}
	for kind := range int64(queue.SubqueueKinds) {
		questions = append(questions, driver.PipelineQuery{SQL: sqlHeldUntil, Bind: by(no, kind, 0), OnRow: later})
	}
	err = t.RunPipeline(questions)
	return served, until, err
}

// queuesAhead is what processQueues asks first, with what is due.
type queuesAhead struct {
	idle      []int64
	due       int64 // 0: none
	forwardTo string
	backlog   backlog
	more      bool // others are due after it
}

const (
	idleAtOnce    = 16
	sqlIdleQueues = "SELECT no FROM queues WHERE delete_at <= ? ORDER BY delete_at LIMIT 16"
	sqlDueQueue   = "SELECT no, forward_to FROM queues WHERE due_at <= ? ORDER BY due_at LIMIT 2" // one, and whether there are more
	sqlDueBacklog = `SELECT seq, visible_at, size FROM messages
WHERE subqueue = (SELECT no * 4 FROM queues WHERE due_at <= ? ORDER BY due_at LIMIT 1) AND flow = 0 ORDER BY visible_at, seq LIMIT ? + 0`
)

// askQueues returns the questions for queuesAhead.
func (t *dueTx) askQueues() []driver.PipelineQuery {
	next := &queuesAhead{}
	t.queues = next
	now := func(st driver.Statement) driver.Statement { return st.Int(t.Now) }
	return []driver.PipelineQuery{
		{SQL: sqlIdleQueues, Bind: now, OnRow: func(r driver.Row) { next.idle = append(next.idle, r.Int(0)) }},
		{SQL: sqlDueQueue, Bind: now, OnRow: func(r driver.Row) {
			if next.more = next.more || next.due != 0; next.due == 0 {
				next.due, next.forwardTo = r.Int(0), r.Text(1)
			}
		}},
		{SQL: sqlDueBacklog, Bind: func(st driver.Statement) driver.Statement { return now(st).Int(purgeBatch) },
			OnRow: func(r driver.Row) { _ = next.backlog.add(r, t.Now) }},
	}
}
