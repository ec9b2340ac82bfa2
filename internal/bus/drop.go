package bus

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// An entity that an operation drops goes as the stage ends. The other operations of the
// transaction still find it, as what they asked ahead says. Those that change settings have it
// dropped before they begin, so that the condition of a drop holds as it takes place.

// DropMessageQueue makes the queue unknown and refuses its receivers. [Store.PurgeDropped]
// removes its messages. It reports whether the queue existed.
func (s *Store) DropMessageQueue(ctx context.Context, q MessageQueue) (dropped bool, err error) {
	o := db.Op{Stage: db.StageChange, Party: q.Tenant, Rows: entityRows, Local: true, Interleaves: true, Hints: audit.Appends{},
		Asks: func() []driver.Prefetch { return entity.PrefetchDrop(q) }}
	if q.IsTopic || q.Topic != 0 {
		o.Numbers = 1 // the topic's version
	}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (bool, error) {
		present, found, err := t.MessageQueue(q.No)
		if err != nil || !found {
			return false, err
		}
		return t.Entities.drop(present, forebay.ConditionOf(ctx), q.Act(ctx, "delete", nil))
	})
}

// drop has an entity dropped as the stage ends. It reports whether it was still there.
func (t *entityTx) drop(q MessageQueue, condition forebay.Condition, act audit.Act) (dropped bool, err error) {
	var subscriptions []int64
	if q.IsTopic {
		if subscriptions, err = entity.NumbersOf(t.Conn, q.No); err != nil {
			return false, err
		}
	}
	if t.drops.Has(q.No) {
		return false, nil
	}
	if err := q.CheckCondition(condition, true); err != nil {
		return false, err
	}
	if t.drops == nil {
		t.drops = &entity.Drops{}
	}
	t.drops.Add(q, subscriptions, act)
	return true, nil
}

// Drop drops the entity of that number now, for an operation that runs alone.
func (t *entityTx) Drop(no int64) (dropped bool, err error) {
	q, found, err := t.MessageQueue(no)
	if err != nil || !found {
		return false, err
	}
	if dropped, err = t.drop(q, forebay.Condition{}, audit.Act{}); err == nil {
		err = t.DropNow()
	}
	return dropped, err
}

// DropNow drops what the transaction is to drop. Whoever changes entities calls it first.
func (t *entityTx) DropNow() error {
	d := t.drops
	if t.drops = nil; d == nil {
		return nil
	}
	t.Topics.forget()
	t.DropAllPrefetched()
	t.DueBy(t.Now)
	t.Notify(db.WordSettings, 0, 0, 0)
	t.After = append(t.After, func() {
		for _, no := range d.Numbers {
			t.W.dropQueue(no)
		}
	})
	err := d.Write(t.Conn, t.Now)
	if err == nil && len(d.Topics) > 0 {
		err = t.ChangeTopic(d.Topics...)
	}
	for _, act := range d.Acts {
		if err == nil {
			err = audit.Append(t.Tx.Tx, act)
		}
	}
	return err
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

// purgeBatch messages go in one transaction. Each copy of a topic may be on a page of its own.
const purgeBatch = 100

// PurgeDropped removes the messages of dropped queues in small transactions, then the queues. The
// writer does the same in the background, so nothing depends on the caller.
func (s *Store) PurgeDropped(ctx context.Context) error {
	o := db.Op{Stage: db.StageChange, Local: true, Interleaves: true}
	if s.Writer.Shared() { // elsewhere it can wait for the next transaction
		o.Asks = func() []driver.Prefetch { return entity.PrefetchPurging(purgeBatch) }
	}
	for {
		if some, err := s.AnyDropped(ctx); err != nil || !some {
			return err
		}
		_, err := db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (struct{}, error) { return struct{}{}, t.Entities.purgeOnce() })
		if err != nil {
			return err
		}
	}
}

// purgeOnce does a step of the purge unless another operation has: one is enough in a transaction.
func (t *entityTx) purgeOnce() error {
	if t.purged {
		return nil
	}
	t.purged = true
	p, err := entity.AskPurging(t.Conn, purgeBatch)
	if err != nil {
		return err
	}
	return t.purge(&p)
}

// purge does a step of the purge of dropped queues.
func (t *entityTx) purge(p *entity.Purging) error {
	more, err := p.Write(t.Conn, purgeBatch, t.DeleteMessage)
	if more {
		t.DueBy(t.Now)
	}
	return err
}
