package store

import "context"

// used notes that a queue that is deleted when idle is in use. The note is renewed only now and then,
// so such a queue lives up to a sixtieth longer than it must.
func (t *tx) used(q MessageQueue) error {
	if q.Idle == 0 {
		return nil
	}
	idle := q.Idle.Milliseconds()
	at := t.now + idle + idle/60
	t.deadlineAt(at)
	return t.prep("UPDATE queues SET delete_at = ? WHERE no = ? AND delete_at < ? AND kind = 'messages'").int(at).int(q.No).int(t.now + idle).exec()
}

// Used notes that somebody uses the queue, if that matters to it.
func (s *Store) Used(ctx context.Context, q MessageQueue) error {
	if q.Idle == 0 {
		return nil
	}
	_, err := transact(ctx, s, stageChange, func(t *tx) (struct{}, error) { return struct{}{}, t.used(q) })
	return err
}

// lookAgain notes when something is to be done about a queue; 0: nothing.
func (t *tx) lookAgain(no, at int64) error {
	t.deadlineAt(at)
	return t.prep("UPDATE queues SET due_at = ? WHERE no = ?").intOrNull(at).int(no).exec()
}

// tendQueues deletes queues that nobody has used for long, purges dropped ones and forwards from those
// that began to.
func (t *tx) tendQueues() error {
	idle, err := t.numbers("SELECT no FROM queues WHERE delete_at <= ? ORDER BY delete_at LIMIT 16")
	if err != nil {
		return err
	}
	for _, no := range idle {
		if _, err := t.dropMessageQueue(no); err != nil {
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

// numbers returns what a statement that takes the time selects.
func (t *tx) numbers(sql string) (numbers []int64, err error) {
	err = t.prep(sql).int(t.now).each(func(r row) error {
		numbers = append(numbers, r.int(0))
		return nil
	})
	return numbers, err
}
