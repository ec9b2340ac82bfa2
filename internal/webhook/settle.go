package webhook

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// WebhookOutcome is how a delivery to a webhook ended, and what becomes of its message.
type WebhookOutcome struct {
	Delivered  bool
	Release    bool              // nothing was sent: give the message back at once, uncounted
	Delay      time.Duration     // otherwise: try again after that
	DeadLetter bus.DeadLettering // otherwise, with a reason: give up
	Gone       bool              // the endpoint asks to be disabled
	Hold       time.Duration     // it asks for no deliveries for that long, ten minutes at most
	URL        string            // where it was sent; a former URL changes neither breaker nor webhook
	Try        forebay.WebhookTry
}

// maxWebhookTries is how many of a webhook's latest tries are kept.
const maxWebhookTries = 100

// webhookPatience is how long a webhook may fail without a success. The next message that is
// given up then disables it.
const webhookPatience = 5 * 24 * time.Hour

// SettleWebhook ends a delivery of the webhook of this subscription. It settles the message,
// records the try, changes the breaker, and disables the webhook if that is due. disabled reports
// the latter. It returns forebay.ErrLockLost and changes nothing once the lock has ended.
func (s *Store) SettleWebhook(ctx context.Context, queueID int64, l queue.Lock, o WebhookOutcome) (disabled bool, err error) {
	subqueue := queue.SubqueueOf(queueID, queue.SubqueueMain)
	operation := bus.Settling(subqueue, l)
	settling := operation.Asks
	operation.Asks = func() []driver.Prefetch {
		ended := driver.NewPrefetch(sqlEndedHook, driver.RowName{Of: "webhooks", No: queueID}).Int(queueID)
		ended.Shared = true // it is read once in a transaction
		return append(settling(), ended, driver.NewPrefetch(sqlEndedDelivery, queue.MessageRow(l.Seq)).Int(queueID).Int(l.Seq).Int(l.Token))
	}
	operation.Numbers = 1 // if it is dead-lettered and sent on
	return db.TransactIn(ctx, key, s.Writer, operation, func(t *tx) (bool, error) {
		m, err := t.Deliveries.Held(subqueue, l, nil)
		if err != nil {
			return false, err
		}
		h, err := t.endingHook(queueID)
		if err != nil {
			return false, err
		}
		if o.Gone && h != nil && o.URL != h.url && o.Try.Number < MaxTries {
			// A former address is gone. The present one gets the event with the next try.
			o.Gone, o.DeadLetter, o.Delay, o.Try.Outcome = false, bus.DeadLettering{}, delay(o.Try.Number, 0), forebay.WebhookRetry
		}
		if err := t.settleDelivery(m, o); err != nil {
			return false, err
		}
		return t.endDelivery(queueID, l, o)
	})
}

func (t *tx) settleDelivery(m bus.HeldMessage, o WebhookOutcome) error {
	switch {
	case o.Delivered:
		return t.DeleteMessage(m.Seq)
	case o.Release:
		return t.Deliveries.GiveBack(m, 1)
	case o.DeadLetter.Reason != "":
		return t.DeadLetter(m.Seq, m.Subqueue, o.DeadLetter)
	case m.Expired(t.Now):
		return t.ExpireMessage(m.Seq, m.Subqueue)
	}
	at := t.Now + o.Delay.Milliseconds()
	t.Queue.WakeAt(m.Subqueue, at)
	return t.Prep(sqlTryLater).Int(at).Int(m.Seq).Exec()
}

var sqlTryLater = driver.BatchForm("UPDATE messages SET visible_at = ?, lock_token = NULL, locked_at = NULL WHERE seq = ?",
	"UPDATE messages m SET visible_at = p1, lock_token = NULL, locked_at = NULL FROM %s WHERE m.seq = ANY (ARRAY[p2])")

const (
	sqlEndedHook = `
SELECT w.url, w.tries, w.failing_since, w.concurrency, w.failures, w.openings, coalesce(w.paused_until, 0),
  (SELECT count(*) FROM webhook_deliveries d WHERE d.queue = w.queue)
FROM webhooks w WHERE w.queue = ?`
	sqlEndedDelivery = "SELECT probe FROM webhook_deliveries WHERE queue = ? AND seq = ? AND lock_token = ?"
	sqlEndDelivery   = "DELETE FROM webhook_deliveries WHERE queue = ? AND seq = ? AND lock_token = ?"
	sqlNoteTry       = `
UPDATE webhooks SET tries = ?, delivered_at = coalesce(?, delivered_at), failing_since = ?, failures = ?, openings = ?, paused_until = ?
WHERE queue = ?`
	sqlInsertTry = `
INSERT INTO webhook_tries (queue, no, message_id, event_type, at, number, status, failure, detail, duration, outcome, next_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

// endDelivery frees the delivery's slot, and records the try if there was one.
func (t *tx) endDelivery(queue int64, l queue.Lock, o WebhookOutcome) (disabled bool, err error) {
	h, err := t.endingHook(queue)
	if err != nil || h == nil {
		return false, err
	}
	probe := false
	known, err := t.Prep(sqlEndedDelivery).Int(queue).Int(l.Seq).Int(l.Token).One(func(r driver.Row) { probe = r.Int(0) != 0 })
	if err != nil {
		return false, err
	}
	if err := t.Prep(sqlEndDelivery).Int(queue).Int(l.Seq).Int(l.Token).Exec(); err != nil {
		return false, err
	}
	before, same := h.breaker, o.URL == h.url
	if same && !o.Release {
		h.note(o, probe, t.Now)
		if o.Delivered {
			h.failingSince = 0
		} else if h.failingSince == 0 {
			h.failingSince = t.Now
		}
	}
	if changed := probe || h.open() != before.open() || h.until > before.until; changed || h.underWay >= h.concurrency {
		t.wakeReceivers(queue, !changed)
	}
	if known {
		h.underWay--
	}
	if o.Release {
		return false, nil
	}
	var delivered int64
	if o.Delivered {
		delivered = t.Now
	}
	h.tries++
	if err := t.Prep(sqlNoteTry).Int(h.tries).IntOrNull(delivered).IntOrNull(h.failingSince).
		Int(h.failures).Int(h.openings).IntOrNull(h.until).Int(queue).Exec(); err != nil {
		return false, err
	}
	if err := t.noteTry(queue, h.tries, o); err != nil {
		return false, err
	}
	switch {
	case !same:
	case o.Gone:
		return t.disableWebhook(queue, forebay.WebhookGone)
	case (o.DeadLetter.Reason != "" || probe && !o.Delivered) && h.failingSince <= t.Now-webhookPatience.Milliseconds():
		return t.disableWebhook(queue, forebay.WebhookFailing)
	}
	return false, nil
}

// endingHook is a webhook of which deliveries end in the transaction.
type endingHook struct {
	breaker
	url          string
	tries        int64
	failingSince int64 // 0: it is not
	concurrency  int64
	underWay     int64
}

// endingHook reads a webhook once in a transaction; nil: there is none. Only settlements change
// these columns.
func (t *tx) endingHook(queue int64) (*endingHook, error) {
	if h := t.ending[queue]; h != nil {
		return h, nil
	}
	h := &endingHook{}
	found, err := t.Prep(sqlEndedHook).Int(queue).One(func(r driver.Row) {
		*h = endingHook{url: r.Text(0), tries: r.Int(1), failingSince: r.Int(2), concurrency: r.Int(3), breaker: breaker{r.Int(4), r.Int(5), r.Int(6)}, underWay: r.Int(7)}
	})
	if err != nil || !found {
		return nil, err
	}
	if read := t.ending[queue]; read != nil { // by another operation, meanwhile
		return read, nil
	}
	if t.ending == nil {
		t.ending = map[int64]*endingHook{}
	}
	t.ending[queue] = h
	return h, nil
}

func (t *tx) noteTry(queue, no int64, o WebhookOutcome) error {
	var next int64
	if o.Try.Outcome == forebay.WebhookRetry {
		next = t.Now + o.Delay.Milliseconds()
	}
	err := t.Prep(sqlInsertTry).Int(queue).Int(no).Text(o.Try.MessageID).Text(o.Try.EventType).Int(o.Try.At.UnixMilli()).Int(int64(o.Try.Number)).
		IntOrNull(int64(o.Try.Status)).TextOrNull(o.Try.Failure).TextOrNull(o.Try.Detail).Int(int64(o.Try.DurationSeconds * 1000)).
		Text(o.Try.Outcome).IntOrNull(next).Exec()
	if err != nil {
		return err
	}
	return t.Prep("DELETE FROM webhook_tries WHERE queue = ? AND no <= ?").Int(queue).Int(no - maxWebhookTries).Exec()
}

// disableWebhook stops a webhook's deliveries. Its subscription selects nothing from then on.
func (t *tx) disableWebhook(queue int64, reason string) (disabled bool, err error) {
	err = t.Alone(func() error {
		disabled, err = t.disable(queue, reason)
		return err
	})
	return disabled, err
}

func (t *tx) disable(queue int64, reason string) (disabled bool, err error) {
	rows, err := t.Prep("UPDATE webhooks SET disabled_at = ?, disabled_reason = ? WHERE queue = ? AND disabled_at IS NULL").Int(t.Now).Text(reason).Int(queue).Count()
	if err != nil || rows == 0 {
		return false, err
	}
	t.Notify(wordWebhooks, 0, 0, 0)
	sub, found, err := t.MessageQueue(queue)
	if err != nil || !found {
		return true, err
	}
	at := driver.FromMillis(t.Now)
	return true, t.webhookRules(sub, Webhook{DisabledAt: &at})
}

// WebhookTries returns the latest tries of the webhook with this subscription, newest first.
func (s *Store) WebhookTries(ctx context.Context, queue int64, limit int) (tries []forebay.WebhookTry, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		return c.Prep(`SELECT message_id, event_type, at, number, status, failure, detail, duration, outcome, next_at FROM webhook_tries
WHERE queue = ? ORDER BY no DESC LIMIT ? + 0`).Int(queue).Int(int64(limit)).Each(func(r driver.Row) error {
			tries = append(tries, forebay.WebhookTry{MessageID: r.Text(0), EventType: r.Text(1), At: driver.FromMillis(r.Int(2)), Number: int(r.Int(3)),
				Status: int(r.Int(4)), Failure: r.Text(5), Detail: r.Text(6), DurationSeconds: float64(r.Int(7)) / 1000, Outcome: r.Text(8),
				NextTryAt: driver.FromMillisOrNil(r, 9)})
			return nil
		})
	})
	return tries, err
}

const sqlRedeliver = `
UPDATE messages SET subqueue = ?1, visible_at = ?2, deliveries = 0, lock_token = NULL, locked_at = NULL
WHERE seq = ?3 AND subqueue + 0 = ?4 AND (lock_token IS NULL OR visible_at <= ?2)`

// Redeliver sends dead letters of a webhook back to be tried anew: those with these numbers or,
// without numbers, the oldest up to limit. It returns how many it moved. Locked ones stay.
func (s *Store) Redeliver(ctx context.Context, queueID int64, seqs []int64, limit int, entry audit.Act) (moved int, err error) {
	return db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange, Hints: audit.Appends{}}, func(t *tx) (int, error) {
		from, to := queue.SubqueueOf(queueID, queue.SubqueueDeadLetter), queue.SubqueueOf(queueID, queue.SubqueueMain)
		moving := seqs
		if len(moving) == 0 {
			moving = nil
			if err := t.Prep("SELECT seq FROM messages WHERE subqueue = ? AND flow = 0 AND visible_at <= ? ORDER BY visible_at, seq LIMIT ? + 0").Int(int64(from)).Int(t.Now).
				Int(int64(limit)).Each(func(r driver.Row) error { moving = append(moving, r.Int(0)); return nil }); err != nil {
				return 0, err
			}
		}
		moved, expires := 0, t.Now+webhookTTL.Milliseconds()
		err := t.Interleave(len(moving), func(i int) error {
			rows, err := t.Prep(sqlRedeliver).Int(int64(to)).Int(t.Now).Int(moving[i]).Int(int64(from)).Count()
			if err != nil || rows == 0 {
				return err
			}
			moved++
			return t.Prep("UPDATE bodies SET subqueue = ?, expires_at = ?, due_at = ?, dead_letter_reason = NULL, dead_letter_description = NULL WHERE seq = ?").
				Int(int64(to)).Int(expires).Int(expires).Int(moving[i]).Exec()
		})
		if err != nil || moved == 0 {
			return 0, err
		}
		t.Queue.WakeAt(to, t.Now)
		t.DueBy(expires)
		return moved, audit.Append(t.Tx.Tx, entry)
	})
}
