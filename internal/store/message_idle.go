package store

import (
	"context"
	"time"
)

// What keeps a queue that is deleted when idle is in message-expiration, "Idleness": sends, receives, peeks and
// updates, and what is scheduled in it. A topic is kept by use of its subscriptions too, and a subscription
// not by the copies that it gets.

// used notes that a queue that is deleted when idle is in use, and its topic with it. The note is renewed
// only now and then, so such a queue lives up to a sixtieth longer than it must.
func (t *busTx) used(q MessageQueue) error {
	if err := t.keep(q.No, q.Idle); err != nil {
		return err
	}
	return t.keep(q.Topic, q.TopicIdle)
}

func (t *busTx) keep(no int64, after time.Duration) error {
	if after == 0 {
		return nil
	}
	idle := after.Milliseconds()
	at := t.now + idle + idle/60
	t.dueBy(at)
	return t.prep("UPDATE queues SET delete_at = ? WHERE no = ? AND delete_at < ? AND kind = 'messages'").int(at).int(no).int(t.now + idle).exec()
}

// Used notes that somebody uses the queue, if that matters to it.
func (s *BusStore) Used(ctx context.Context, q MessageQueue) error {
	if q.Idle == 0 && q.TopicIdle == 0 {
		return nil
	}
	return s.noteUse(ctx, q)
}

// noteUse is apart from Used, so that what matters to no queue, with every settlement, costs no memory.
func (s *BusStore) noteUse(ctx context.Context, q MessageQueue) error {
	_, err := transactIn(ctx, busKey, s.writer, op{stage: stageChange}, func(t *busTx) (struct{}, error) { return struct{}{}, t.used(q) })
	return err
}

// lookAgain notes when something is to be done about a queue; 0: nothing.
func (t *busTx) lookAgain(no, at int64) error {
	t.dueBy(at)
	return t.prep("UPDATE queues SET due_at = ? WHERE no = ?").intOrNull(at).int(no).exec()
}

// tendQueues deletes queues that nobody has used for long, purges dropped ones and forwards from those
// that began to.
func (t *busTx) tendQueues() error {
	idle, err := t.numbers("SELECT no FROM queues WHERE delete_at <= ? ORDER BY delete_at LIMIT 16")
	if err != nil {
		return err
	}
	for _, no := range idle {
		busy, err := t.stillUsed(no)
		if err == nil && !busy {
			_, err = t.dropMessageQueue(no)
		}
		if err != nil {
			return err
		}
	}
	due, err := t.numbers("SELECT no FROM queues WHERE due_at <= ? ORDER BY due_at LIMIT 1")
	if err != nil {
		return err
	}
	for _, no := range due {
		q, found, err := t.messageQueue(no)
		switch {
		case err != nil:
		case !found:
			err = t.purge(no)
		case q.ForwardTo != "":
			err = t.forwardBacklog(q)
		default:
			err = t.lookAgain(no, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	// The end of the last lock, or of the last wait, in a kind of subqueues of a queue, or of a topic and its
	// subscriptions, and of the last lock of a session. What is free has been visible for a while.
	sqlHeldUntil = `
SELECT max((SELECT m.visible FROM messages m WHERE m.lane = q.no * 4 + ?2 AND m.rank = ?3 ORDER BY m.visible DESC LIMIT 1))
FROM queues q WHERE q.no = ?1 OR q.topic = ?1`
	sqlSessionHeldUntil = `
SELECT max((SELECT s.visible FROM sessions s WHERE s.queue = q.no AND s.visible IS NOT NULL ORDER BY s.visible DESC LIMIT 1))
FROM queues q WHERE q.no = ?1 OR q.topic = ?1`

	// Forwarding is receiving, and so is a webhook.
	sqlServed = `
SELECT 1 FROM queues q WHERE (q.no = ?1 OR q.topic = ?1)
  AND (q.forward_to IS NOT NULL OR EXISTS (SELECT 1 FROM webhooks w WHERE w.queue = q.no)) LIMIT 1`
)

// stillUsed reports whether a queue that nobody seems to have used is not idle, and then looks again later.
func (t *busTx) stillUsed(no int64) (bool, error) {
	q, _, err := t.messageQueue(no)
	if err != nil {
		return false, err
	}
	served, err := t.any(sqlServed, no)
	if err != nil {
		return false, err
	}
	until, err := t.heldUntil(no)
	if err != nil {
		return false, err
	}
	if until <= t.now && !served && !q.HandsOut {
		return false, nil
	}
	return true, t.prep("UPDATE queues SET delete_at = ? WHERE no = ?").int(max(until, t.now) + q.Idle.Milliseconds()).int(no).exec()
}

// heldUntil returns when nothing will be locked or scheduled any more in a queue, or in a topic and its
// subscriptions.
func (t *busTx) heldUntil(no int64) (until int64, err error) {
	later := func(r row) { until = max(until, r.int(0)) }
	if _, err := t.prep(sqlSessionHeldUntil).int(no).one(later); err != nil {
		return 0, err
	}
	if _, err := t.prep(sqlHeldUntil).int(no).int(int64(SubqueueMain)).int(scheduledRank).one(later); err != nil {
		return 0, err
	}
	for kind := range int64(subqueueKinds) {
		if _, err := t.prep(sqlHeldUntil).int(no).int(kind).int(0).one(later); err != nil {
			return 0, err
		}
	}
	return until, nil
}

// numbers returns what a statement that takes the time selects.
func (t *busTx) numbers(sql string) (numbers []int64, err error) {
	err = t.prep(sql).int(t.now).each(func(r row) error {
		numbers = append(numbers, r.int(0))
		return nil
	})
	return numbers, err
}
