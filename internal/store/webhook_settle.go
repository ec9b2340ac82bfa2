package store

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// WebhookOutcome is how a delivery to a webhook ended, and what becomes of its message.
type WebhookOutcome struct {
	Delivered  bool
	Release    bool          // nothing was sent: the message goes back at once, and the delivery does not count
	Delay      time.Duration // else: to be tried again after that
	DeadLetter DeadLettering // else, if it has a reason: given up
	Gone       bool          // the endpoint wants to be disabled
	Hold       time.Duration // it wants to be left alone for that long: ten minutes at most
	URL        string        // that was sent to; of one that the webhook does not have any more little is told
	Try        forebay.WebhookTry
}

// maxWebhookTries is how many of a webhook's latest tries are kept.
const maxWebhookTries = 100

// webhookPatience is how long a webhook may fail without a success; the next message that is given up
// then disables it.
const webhookPatience = 5 * 24 * time.Hour

// SettleWebhook ends a delivery of the webhook that this subscription belongs to: it settles the
// message, notes the try, changes the breaker, and disables the webhook if that is due, which disabled
// reports. It returns forebay.ErrLockLost and changes nothing once the lock has ended.
func (s *WebhookStore) SettleWebhook(ctx context.Context, queue int64, l Lock, o WebhookOutcome) (disabled bool, err error) {
	return transactIn(ctx, webhookKey, s.writer, op{stage: stageSettle}, func(t *webhookTx) (bool, error) {
		subqueue := SubqueueOf(queue, SubqueueMain)
		m, err := t.held(subqueue, l, nil)
		if err != nil {
			return false, err
		}
		if err := t.settleDelivery(m, o); err != nil {
			return false, err
		}
		return t.endDelivery(queue, l, o)
	})
}

func (t *webhookTx) settleDelivery(m heldMessage, o WebhookOutcome) error {
	switch {
	case o.Delivered:
		return t.deleteMessage(m.seq)
	case o.Release:
		return t.giveBack(m, 1)
	case o.DeadLetter.Reason != "":
		return t.deadLetter(m.seq, m.subqueue, o.DeadLetter)
	case m.expired(t.now):
		return t.expireMessage(m.seq, m.subqueue)
	}
	at := t.now + o.Delay.Milliseconds()
	t.queue.wakes(m.subqueue, at)
	return t.prep("UPDATE messages SET visible = ?, token = NULL, locked_at = NULL WHERE seq = ?").int(at).int(m.seq).exec()
}

const (
	sqlEndedDelivery = `
SELECT w.url, w.tries, w.failing_since, w.concurrency, w.failures, w.openings, coalesce(w.paused_until, 0),
  (SELECT count(*) FROM webhook_deliveries d WHERE d.queue = w.queue),
  (SELECT d.probe FROM webhook_deliveries d WHERE d.queue = w.queue AND d.seq = ? AND d.token = ?)
FROM webhooks w WHERE w.queue = ?`
	sqlEndDelivery = "DELETE FROM webhook_deliveries WHERE queue = ? AND seq = ? AND token = ?"
	sqlNoteTry     = `
UPDATE webhooks SET tries = ?, delivered_at = coalesce(?, delivered_at), failing_since = ?, failures = ?, openings = ?, paused_until = ?
WHERE queue = ?`
	sqlInsertTry = `
INSERT INTO webhook_tries (queue, no, message_id, event_type, at, number, status, failure, detail, duration, outcome, next_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

// endDelivery makes room for another delivery, and notes the try if one was made.
func (t *webhookTx) endDelivery(queue int64, l Lock, o WebhookOutcome) (disabled bool, err error) {
	var url string
	var tries, failingSince, concurrency, underWay int64
	var b breaker
	var probe bool
	found, err := t.prep(sqlEndedDelivery).int(l.Seq).int(l.Token).int(queue).one(func(r row) {
		url, tries, failingSince, concurrency = r.text(0), r.int(1), r.int(2), r.int(3)
		b, underWay, probe = breaker{r.int(4), r.int(5), r.int(6)}, r.int(7), r.int(8) != 0
	})
	if err != nil || !found {
		return false, err
	}
	if err := t.prep(sqlEndDelivery).int(queue).int(l.Seq).int(l.Token).exec(); err != nil {
		return false, err
	}
	before, same := b, o.URL == url
	if same && !o.Release {
		b.note(o, probe, t.now)
		if o.Delivered {
			failingSince = 0
		} else if failingSince == 0 {
			failingSince = t.now
		}
	}
	if changed := probe || b.open() != before.open() || b.until > before.until; changed || underWay >= concurrency {
		t.roomForWebhook(queue, !changed)
	}
	if o.Release {
		return false, nil
	}
	var delivered int64
	if o.Delivered {
		delivered = t.now
	}
	if err := t.prep(sqlNoteTry).int(tries + 1).intOrNull(delivered).intOrNull(failingSince).
		int(b.failures).int(b.openings).intOrNull(b.until).int(queue).exec(); err != nil {
		return false, err
	}
	if err := t.noteTry(queue, tries+1, o); err != nil {
		return false, err
	}
	switch {
	case !same:
	case o.Gone:
		return t.disableWebhook(queue, forebay.WebhookGone)
	case (o.DeadLetter.Reason != "" || probe && !o.Delivered) && failingSince <= t.now-webhookPatience.Milliseconds():
		return t.disableWebhook(queue, forebay.WebhookFailing)
	}
	return false, nil
}

func (t *webhookTx) noteTry(queue, no int64, o WebhookOutcome) error {
	var next int64
	if o.Try.Outcome == forebay.WebhookRetry {
		next = t.now + o.Delay.Milliseconds()
	}
	err := t.prep(sqlInsertTry).int(queue).int(no).text(o.Try.MessageID).text(o.Try.EventType).int(o.Try.At.UnixMilli()).int(int64(o.Try.Number)).
		intOrNull(int64(o.Try.Status)).textOrNull(o.Try.Failure).textOrNull(o.Try.Detail).int(int64(o.Try.DurationSeconds * 1000)).
		text(o.Try.Outcome).intOrNull(next).exec()
	if err != nil {
		return err
	}
	return t.prep("DELETE FROM webhook_tries WHERE queue = ? AND no <= ?").int(queue).int(no - maxWebhookTries).exec()
}

// disableWebhook stops a webhook's deliveries and takes it off the topic, so that nothing more gathers.
func (t *webhookTx) disableWebhook(queue int64, reason string) (disabled bool, err error) {
	rows, err := t.prep("UPDATE webhooks SET disabled_at = ?, disabled_reason = ? WHERE queue = ? AND disabled_at IS NULL").int(t.now).text(reason).int(queue).count()
	if err != nil || rows == 0 {
		return false, err
	}
	t.notify(wordWebhooks, 0, 0, 0)
	sub, found, err := t.messageQueue(queue)
	if err != nil || !found {
		return true, err
	}
	at := fromMillis(t.now)
	return true, t.webhookRules(sub, Webhook{DisabledAt: &at})
}

// WebhookTries returns the latest tries of the webhook with this subscription, newest first.
func (s *WebhookStore) WebhookTries(ctx context.Context, queue int64, limit int) (tries []forebay.WebhookTry, err error) {
	err = s.read(ctx, func(c conn) error {
		return c.prep(`SELECT message_id, event_type, at, number, status, failure, detail, duration, outcome, next_at FROM webhook_tries
WHERE queue = ? ORDER BY no DESC LIMIT ? + 0`).int(queue).int(int64(limit)).each(func(r row) error {
			tries = append(tries, forebay.WebhookTry{MessageID: r.text(0), EventType: r.text(1), At: fromMillis(r.int(2)), Number: int(r.int(3)),
				Status: int(r.int(4)), Failure: r.text(5), Detail: r.text(6), DurationSeconds: float64(r.int(7)) / 1000, Outcome: r.text(8),
				NextTryAt: fromMillisOrNil(r, 9)})
			return nil
		})
	})
	return tries, err
}

const sqlRedeliver = `
UPDATE messages SET lane = ?1, visible = ?2, deliveries = 0, token = NULL, locked_at = NULL
WHERE seq = ?3 AND lane + 0 = ?4 AND (token IS NULL OR visible <= ?2)`

// Redeliver sends dead letters of a webhook back to be tried anew: those with these numbers, or,
// without any, the oldest up to limit. It returns how many it found there and not locked.
func (s *WebhookStore) Redeliver(ctx context.Context, queue int64, seqs []int64, limit int, audit Audit) (moved int, err error) {
	return transactIn(ctx, webhookKey, s.writer, op{stage: stageChange}, func(t *webhookTx) (int, error) {
		from, to := SubqueueOf(queue, SubqueueDeadLetter), SubqueueOf(queue, SubqueueMain)
		moving := seqs
		if len(moving) == 0 {
			moving = nil
			if err := t.prep("SELECT seq FROM messages WHERE lane = ? AND rank = 0 AND visible <= ? ORDER BY visible, seq LIMIT ? + 0").int(int64(from)).int(t.now).
				int(int64(limit)).each(func(r row) error { moving = append(moving, r.int(0)); return nil }); err != nil {
				return 0, err
			}
		}
		moved, expires := 0, t.now+webhookTTL.Milliseconds()
		for _, seq := range moving {
			rows, err := t.prep(sqlRedeliver).int(int64(to)).int(t.now).int(seq).int(int64(from)).count()
			if err != nil {
				return 0, err
			}
			if rows == 0 {
				continue
			}
			moved++
			if err := t.prep("UPDATE bodies SET lane = ?, expires_at = ?, due_at = ?, dead_letter_reason = NULL, dead_letter_description = NULL WHERE seq = ?").
				int(int64(to)).int(expires).int(expires).int(seq).exec(); err != nil {
				return 0, err
			}
		}
		if moved == 0 {
			return 0, nil
		}
		t.queue.wakes(to, t.now)
		t.dueBy(expires)
		return moved, auditIn(t.tx, audit)
	})
}
