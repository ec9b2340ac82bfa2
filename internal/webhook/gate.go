package webhook

import (
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// A webhook's endpoint gets only so many deliveries at once, from all processes together. A
// delivery is under way while its lock holds its message. A row of webhook_deliveries refers to
// the lock. It is written with the lock and removed by the settlement. A row without a lock is
// stale and counts for nothing. The row also says whether the delivery is the breaker's probe. So
// a probe whose process dies is over when its lock ends.
//
// A receiver waits while the endpoint has no capacity. It is scanned again at the time when there
// is some, or after a settlement or a change of the webhook, also in another process.

// capacity is what a webhook's endpoint may be sent now.
type capacity struct {
	breaker
	disabled    bool
	concurrency int64
	underWay    int64 // deliveries under way
	firstEnds   int64 // when the first of their locks ends
	probeEnds   int64 // when the probe's lock ends; 0: none is under way
	stale       int64 // stale rows
}

// busyUntil returns until when nothing may be sent; 0: something may.
func (r *capacity) busyUntil(now int64) int64 {
	switch {
	case r.disabled:
		return db.Never
	case r.until > now:
		return r.until
	case r.open() && r.probeEnds > 0:
		return r.probeEnds
	case r.underWay >= r.concurrency:
		return r.firstEnds
	}
	return 0
}

// These find each lock by the messages' key, whatever the planner thinks of the tables' sizes.
const (
	sqlWebhookCapacity = `
SELECT w.failures, coalesce(w.paused_until, 0), coalesce(w.disabled_at, 0), w.concurrency,
  count(d.until), coalesce(min(d.until), 0), coalesce(max(d.until * d.probe), 0), count(d.seq) - count(d.until)
FROM webhooks w LEFT JOIN (
  SELECT x.queue, x.seq, x.probe, (SELECT m.visible_at FROM messages m WHERE m.seq = x.seq AND m.lock_token = x.lock_token AND m.visible_at + 0 > ?2) AS until
  FROM webhook_deliveries x WHERE x.queue = ?1) d ON d.queue = w.queue
WHERE w.queue = ?1 GROUP BY w.failures, w.paused_until, w.disabled_at, w.concurrency`

	sqlInsertWebhookDelivery = `
INSERT INTO webhook_deliveries (queue, seq, lock_token, probe) VALUES (?, ?, ?, ?)
ON CONFLICT (queue, seq) DO UPDATE SET lock_token = excluded.lock_token, probe = excluded.probe`

	sqlSweepWebhookDeliveries = `
DELETE FROM webhook_deliveries WHERE queue = ?
  AND coalesce((SELECT m.visible_at FROM messages m WHERE m.seq = webhook_deliveries.seq AND m.lock_token = webhook_deliveries.lock_token), 0) <= ?`
)

// maxStaleDeliveries is how many stale rows of a webhook are left in the table.
const maxStaleDeliveries = 32

// capacityOf reads once in a transaction what a webhook's endpoint may be sent; nil: there is no
// such webhook.
func (t *tx) capacityOf(queue int64) (*capacity, error) {
	if r := t.capacities[queue]; r != nil {
		return r, nil
	}
	r := &capacity{}
	found, err := t.Prep(sqlWebhookCapacity).Int(queue).Int(t.Now).One(func(row driver.Row) {
		r.failures, r.until, r.disabled, r.concurrency = row.Int(0), row.Int(1), row.Int(2) != 0, row.Int(3)
		r.underWay, r.firstEnds, r.probeEnds, r.stale = row.Int(4), row.Int(5), row.Int(6), row.Int(7)
	})
	if err != nil || !found {
		return nil, err
	}
	if r.stale > maxStaleDeliveries {
		if err := t.Prep(sqlSweepWebhookDeliveries).Int(queue).Int(t.Now).Exec(); err != nil {
			return nil, err
		}
	}
	if t.capacities == nil {
		t.capacities = map[int64]*capacity{}
	}
	t.capacities[queue] = r
	return r, nil
}

// participant gives a message to a receiver that delivers to a webhook, if the endpoint has
// capacity.
type participant struct {
	db.Passive
	bus *bus.Participant
}

// tx is the part of a transaction that belongs to package webhook.
type tx struct {
	*bus.Tx
	ending     map[int64]*endingHook   // webhooks of which deliveries have ended, by subscription
	capacities map[int64]*capacity     // by subscription
	slotOnly   map[queue.Subqueue]bool // subqueues with capacity again; true: only for as many deliveries as ended
}

// wordWebhooks tells all processes that a webhook was created, changed, disabled or deleted.
var wordWebhooks = db.NewWordKind('w', db.ToAll)

func (p *participant) TakeFor(b *bus.Tx, c *bus.Receiver, from bus.Source) error {
	return key.Of(b.Tx).serveWebhook(c, from)
}

func (p *participant) TakeOver(t *db.Tx) error { return key.Of(t).endWebhookDeliveries() }

// serveWebhook takes one message for a receiver that delivers to a webhook, if the endpoint has
// capacity.
func (t *tx) serveWebhook(c *bus.Receiver, from bus.Source) error {
	queue, subqueue := c.Queue.No, c.Subqueue
	r, err := t.capacityOf(queue)
	if err != nil {
		return err
	}
	if r == nil {
		c.Err = entity.ErrNoQueue
		return nil
	}
	if at := r.busyUntil(t.Now); at > 0 {
		t.W.Paused[subqueue] = at
		return nil
	}
	delete(t.W.Paused, subqueue)
	if err := t.Deliveries.TakeReady(from, c); err != nil || len(c.Messages) == 0 {
		return err
	}
	probe := int64(0)
	if r.open() {
		probe, r.probeEnds = 1, from.Until
	}
	if r.underWay++; r.underWay == 1 || from.Until < r.firstEnds {
		r.firstEnds = from.Until
	}
	if r.underWay >= r.concurrency && t.slotOnly[subqueue] {
		t.Queue.Earlier[subqueue] = t.Now
	}
	return t.Prep(sqlInsertWebhookDelivery).Int(queue).Int(c.Messages[0].Seq).Int(c.Messages[0].Token).Int(probe).Exec()
}

// wakeReceivers lets receivers that deliver to a webhook scan again, here and in other processes.
// slotOnly: a delivery ended, and nothing else changed. Other processes need not know if its slot
// is taken at once.
func (t *tx) wakeReceivers(queueID int64, slotOnly bool) {
	subqueue := queue.SubqueueOf(queueID, queue.SubqueueMain)
	if t.slotOnly == nil {
		t.slotOnly = map[queue.Subqueue]bool{}
	}
	only, before := t.slotOnly[subqueue]
	t.slotOnly[subqueue] = slotOnly && (only || !before)
	delete(t.W.Paused, subqueue)
	t.Queue.WakeAt(subqueue, bus.ReadyDespitePause)
}
