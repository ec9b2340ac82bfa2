// Package clockmend repairs the times of plain messages after the database's clock was ahead.
package clockmend

import (
	"context"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Numbers in these statements: 300000 is forebay.MaxLockDuration in milliseconds, and
// 4611686018427387904 stands for the end of time. Records more than a day, 86400000, ahead are
// repaired. ?1 is the time. ?2 and ?3 bound the row numbers: above ?2, up to ?3.
const (
	sqlMessageAhead = "SELECT 1 FROM (SELECT enqueued_at AS at FROM bodies ORDER BY seq DESC LIMIT 1) b WHERE b.at > ?1"

	sqlBodyAhead = `
UPDATE bodies SET enqueued_at = ?1, expires_at = expires_at - (enqueued_at - ?1),
  due_at = CASE WHEN due_at = expires_at THEN due_at - (enqueued_at - ?1) ELSE due_at END
WHERE seq > ?2 AND seq <= ?3 AND enqueued_at > ?1`

	// A message that is not scheduled is due when it expires or when its lock ends. Making it due
	// now is safe: whoever processes it checks.
	sqlDueAhead = `
UPDATE bodies SET due_at = ?1 WHERE seq > ?2 AND seq <= ?3 AND due_at > ?1 AND (expires_at IS NULL OR due_at <> expires_at)
  AND EXISTS (SELECT 1 FROM messages m WHERE m.seq = bodies.seq AND m.flow <> 1)`

	// A message whose sender was to copy it, or that was postponed, is scheduled for that time or
	// earlier.
	sqlPutOffAhead = `
UPDATE bodies SET due_at = CASE WHEN scheduled_at > ?1 THEN scheduled_at ELSE ?1 END
WHERE seq > ?2 AND seq <= ?3 AND due_at > ?1 + 10000 AND (scheduled_at IS NULL OR due_at > scheduled_at)
  AND EXISTS (SELECT 1 FROM messages m WHERE m.seq = bodies.seq AND m.flow = 1)`

	// Plain messages are invisible only while they are scheduled, which is another flow, or wait
	// for the next try of a webhook.
	sqlPlainAhead = `
UPDATE messages SET visible_at = ?1 WHERE seq > ?2 AND seq <= ?3 AND visible_at > ?1 AND lock_token IS NULL AND flow = 0
  AND EXISTS (SELECT 1 FROM bodies b WHERE b.seq = messages.seq)
  AND (subqueue NOT IN (SELECT w.queue * 4 FROM webhooks w)
    OR subqueue IN (SELECT w.queue * 4 FROM webhooks w WHERE EXISTS (SELECT 1 FROM webhook_tries d WHERE d.queue = w.queue AND d.at > ?1)))`

	sqlSessionsAhead = `
UPDATE sessions SET visible_at = CASE WHEN lock_token IS NULL THEN ?1 ELSE ?1 + 300000 END,
  locked_until = CASE WHEN lock_token IS NULL THEN NULL ELSE ?1 + 300000 END
WHERE no > ?2 AND no <= ?3 AND visible_at > ?1 + CASE WHEN lock_token IS NULL THEN 0 ELSE 300000 END`

	sqlIdleAhead     = "UPDATE queues SET delete_at = ?1 + idle + idle / 60 WHERE delete_at > ?1 + idle + idle / 60"
	sqlQueueDueAhead = "UPDATE queues SET due_at = ?1 WHERE due_at > ?1"

	// Message ids are remembered for the duplicate window of their queue.
	sqlIDRange  = "SELECT max(id) FROM (SELECT id FROM message_ids WHERE queue = ? AND id > ? ORDER BY id LIMIT ? + 0) x"
	sqlIDsAhead = "UPDATE message_ids SET forget_at = ?1 WHERE queue = ?2 AND id > ?3 AND id <= ?4 AND forget_at > ?1"
)

// Messages is the repair of plain messages, their queues and sessions. dueNow makes messages due
// in the transaction.
func Messages(dueNow func(*db.Tx)) db.ClockMend {
	others := func(ctx context.Context, s *db.DB, step func(func(*db.Tx) (int, error)) error) error {
		return mendAllIDs(ctx, s, step, dueNow)
	}
	return db.ClockMend{MadeAhead: sqlMessageAhead, Few: []string{sqlIdleAhead, sqlQueueDueAhead}, Others: others, Walks: []db.ClockWalk{
		{Table: "messages", Number: "seq", Statements: []string{sqlBodyAhead, sqlDueAhead, sqlPutOffAhead, sqlPlainAhead}, More: nil},
		{Table: "sessions", Number: "no", Statements: []string{sqlSessionsAhead}, More: nil},
	}}
}

// mendAllIDs repairs the message ids of all queues.
func mendAllIDs(ctx context.Context, s *db.DB, step func(func(*db.Tx) (int, error)) error, dueNow func(*db.Tx)) error {
	windows := map[int64]int64{}
	err := s.Read(ctx, func(c driver.Conn) error {
		return c.Prep("SELECT no, duplicate_window FROM queues WHERE duplicate_window IS NOT NULL").Each(func(r driver.Row) error {
			windows[r.Int(0)] = r.Int(1)
			return nil
		})
	})
	for queue, window := range windows {
		for last, more := "", true; more && err == nil; {
			err = step(func(t *db.Tx) (changed int, err error) {
				if changed, last, more, err = mendIDs(t, queue, window, last); err == nil && more {
					dueNow(t)
				}
				return changed, err
			})
		}
	}
	return err
}

// mendIDs repairs the message ids of a queue that come next after one.
func mendIDs(t *db.Tx, queue, window int64, after string) (changed int, last string, more bool, err error) {
	_, err = t.Prep(sqlIDRange).Int(queue).Text(after).Int(db.ClockStretch).One(func(r driver.Row) { last, more = r.Text(0), !r.IsNull(0) })
	if err != nil || !more {
		return 0, "", false, err
	}
	changed, err = t.Prep(sqlIDsAhead).Int(t.Now + window).Int(queue).Text(after).Text(last).Count()
	return changed, last, true, err
}
