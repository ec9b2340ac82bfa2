package bus

import (
	"context"
	"errors"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Change changes the status and the metadata of a queue, a topic or a subscription. What the
// change leaves out stays.
func (s EntityStore) Change(ctx context.Context, q MessageQueue, change forebay.EntityChange) (changed MessageQueue, err error) {
	return db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: q.Tenant, Rows: entityRows}, func(t *Tx) (MessageQueue, error) {
		if err := t.Entities.DropNow(); err != nil {
			return q, err
		}
		before, found, err := t.MessageQueue(q.No)
		if err == nil {
			err = q.CheckPresent(before, found, forebay.ConditionOf(ctx))
		}
		if err != nil {
			return q, err
		}
		after := before
		if _, err := entity.ApplyChange(change, &after); err != nil || before.SameSettings(after) {
			return after, err
		}
		after.UpdatedAt = driver.FromMillis(t.Now)
		if err := t.Entities.update(after); err != nil {
			return after, err
		}
		t.Entities.statusChanged(before, after)
		if err := t.Entities.updateTopic(after); err != nil {
			return after, err
		}
		return after, audit.Append(t.Tx, after.Act(ctx, "put", after.AuditDetail()))
	})
}

// wordStatus tells all processes that an entity may or may not be received from any more.
var wordStatus = db.NewWordKind('u', db.ToAll)

// statusChanged has the receivers that wait for an entity look again, in all processes. They
// find out what its status says now.
func (t *entityTx) statusChanged(before, after MessageQueue) {
	if before.Status.Receives() == after.Status.Receives() {
		return
	}
	t.W.scanQueue(after.No)
	t.Notify(wordStatus, after.No, 0, 0)
}

// scanQueue lets everything be scanned that receivers of the queue wait for, now or later.
func (p *Participant) scanQueue(no int64) {
	for kind := range queue.SubqueueKind(queue.SubqueueKinds) {
		p.Ready(queue.SubqueueOf(no, kind), 1) // since long ago
	}
	for subqueue, receivers := range p.Waiters {
		if len(receivers) > 0 && receivers[0].Queue.No == no {
			p.DueAt[subqueue] = 0
		}
	}
}

// refuseReceivers answers those that wait for a queue that nobody may receive from. Webhooks stand
// last, and wait on unless the queue is gone.
func (p *Participant) refuseReceivers(t *Tx, waiting []*Receiver, why error) (rest []*Receiver) {
	for i, c := range waiting {
		if c.Webhook && !errors.Is(why, entity.ErrNoQueue) {
			return waiting[i:]
		}
		if c.Begin() { // else its caller has gone
			c.Err = why
			t.Deliveries.served = append(t.Deliveries.served, c)
			t.Served++
		}
	}
	return nil
}

// checkReceives is entity.CheckReceives for who holds a lock. He may settle also where the entity
// was dropped.
func (t *Tx) checkReceives(no int64) error {
	if err := entity.CheckReceives(t.Conn, no); !errors.Is(err, entity.ErrNoQueue) {
		return err
	}
	return nil
}

// accessTime is the resolution at which the use of entities is recorded.
const accessTime = time.Minute

// maxAccessed bounds what is remembered of the use of entities.
const maxAccessed = 10_000

// accessed records that an entity is used. Memory says when this was last recorded, so that few
// messages cost a write.
func (t *Tx) accessed(no int64) error {
	if since := t.Now - t.W.accessed[no]; since >= 0 && since < accessTime.Milliseconds() {
		return nil
	}
	if len(t.W.accessed) >= maxAccessed {
		clear(t.W.accessed)
	}
	t.W.accessed[no] = t.Now
	return t.Prep(entity.SQLAccessed).Int(t.Now).Int(no).Exec()
}
