package bus

import (
	"errors"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// maxHops is how often a message may be forwarded (Service Bus documentation,
// "service-bus-auto-forwarding").
const maxHops = 4

// forward sends a message, which has that number in the queue, to another queue. A message that
// cannot go there is dead-lettered where it is.
func (t *Tx) forward(q MessageQueue, seq int64, a arrival, to string) error {
	if a.first == 0 {
		a.first = seq
	}
	if a.hops == maxHops {
		a.why = DeadLettering{Reason: forebay.ReasonMaxHops, Description: fmt.Sprintf("forwarded %d times, which is all that is allowed", maxHops)}
		return t.insertDead(q, seq, a)
	}
	target, found, err := t.forwardTarget(to)
	if err != nil {
		return err
	}
	if !found {
		a.why = DeadLettering{Reason: forebay.ReasonNoTarget, Description: "the queue that this one forwards to does not exist"}
		return t.insertDead(q, seq, a)
	}
	if target.IsTopic && entity.OnlyForebayPublishes(target.Name) { // older settings may still say so
		a.why = DeadLettering{Reason: forebay.ReasonNoTarget, Description: "this queue forwards to a topic that only Forebay publishes to"}
		return t.insertDead(q, seq, a)
	}
	if target.IsTopic {
		if a.fanOut == nil {
			a.fanOut = &rules.FanOut{}
		}
		switch a.picks, err = t.pick(target, a.MessageContent, a.fanOut); {
		case errors.Is(err, errNotReady): // it is judged once the rules are compiled
			a.picks = nil
		case errors.Is(err, rules.ErrFanOut):
			refused := rules.ErrFanOut
			errors.As(err, &refused)
			a.why = DeadLettering{Reason: forebay.ReasonFanOut, Description: refused.Message}
			return t.insertDead(q, seq, a)
		case err != nil:
			return err
		}
	}
	t.copied.Add(1, a.Size())
	a.hops++
	a.inBatches, a.bySender = false, false
	_, err = t.arrive(target, a)
	return err
}

// forwardTarget returns the queue of that name. The transaction reads it once, however many
// messages go there.
func (t *Tx) forwardTarget(name string) (q MessageQueue, found bool, err error) {
	if q, found = t.topics.targets[name]; found {
		return q, true, nil
	}
	if q, found, err = t.MessageQueueNamed(name); err == nil && found {
		t.rememberTarget(name, q)
	}
	return q, found, err
}

func (t *Tx) rememberTarget(name string, q MessageQueue) {
	if t.topics.targets == nil {
		t.topics.targets = map[string]MessageQueue{}
	}
	t.topics.targets[name] = q
}

// arriveDead dead-letters a message that never became active in the queue.
func (t *Tx) arriveDead(q MessageQueue, seq int64, a arrival, why DeadLettering) error {
	a.why = why
	if q.ForwardDeadLettersTo != "" {
		a.source = entity.NameOf(q.Name)
		return t.forward(q, seq, a, q.ForwardDeadLettersTo)
	}
	return t.insertDead(q, seq, a)
}

func (t *Tx) insertDead(q MessageQueue, seq int64, a arrival) error {
	st := position{subqueue: q.Subqueue(true), visible: t.Now}
	t.Queue.WakeAt(st.subqueue, t.Now)
	return t.insertArrival(q, seq, a, st)
}

// DeadLetter moves a message from a queue's subqueue to its dead-letter subqueue, or to where the
// queue forwards its dead letters.
func (t *Tx) DeadLetter(seq int64, from queue.Subqueue, why DeadLettering) error {
	q, found, err := t.MessageQueue(from.Queue())
	if err != nil {
		return err
	}
	if found && q.ForwardDeadLettersTo != "" && from.Kind() == queue.SubqueueMain {
		a, err := t.readToForward(seq, q.ForwardDeadLettersTo)
		if err != nil {
			return err
		}
		// Nothing may run in between: if the last other copy were deleted, the shared body would go.
		return t.Alone(func() error {
			if err := t.takeOut(seq, &a); err != nil {
				return err
			}
			return t.arriveDead(q, seq, a, why)
		})
	}
	to := queue.SubqueueOf(from.Queue(), queue.SubqueueDeadLetter)
	if err := t.Prep(sqlDeadLetter).Int(int64(to)).Int(t.Now).Int(seq).Exec(); err != nil {
		return err
	}
	t.Queue.WakeAt(to, t.Now)
	return t.Prep(sqlDeadLetterBody).Int(int64(to)).TextOrNull(why.Reason).TextOrNull(why.Description).Int(seq).Exec()
}

var (
	sqlDeadLetter = driver.BatchForm("UPDATE messages SET subqueue = ?, flow = 0, visible_at = ?, lock_token = NULL, locked_at = NULL WHERE seq = ?",
		"UPDATE messages m SET subqueue = p1, flow = 0, visible_at = p2, lock_token = NULL, locked_at = NULL FROM %s WHERE m.seq = ANY (ARRAY[p3])")
	sqlDeadLetterBody = driver.BatchForm(
		"UPDATE bodies SET subqueue = ?, due_at = NULL, dead_letter_reason = ?, dead_letter_description = ? WHERE seq = ?",
		"UPDATE bodies b SET subqueue = p1, due_at = NULL, dead_letter_reason = p2, dead_letter_description = p3 FROM %s WHERE b.seq = ANY (ARRAY[p4])")
)

const sqlWholeMessage = messageColumns + "WHERE m.seq = ?"

// readToForward reads a message, and where it is to be sent on unless that is known.
func (t *Tx) readToForward(seq int64, to string) (a arrival, err error) {
	var target MessageQueue
	questions := []driver.PipelineQuery{{SQL: sqlWholeMessage, Bind: func(st driver.Statement) driver.Statement { return st.Int(seq) },
		OnRow: func(r driver.Row) { a = arriving(r, t.Now) }}}
	if _, known := t.topics.targets[to]; !known {
		questions = append(questions, driver.PipelineQuery{SQL: sqlQueueName, Bind: func(st driver.Statement) driver.Statement { return st.Text(to) },
			OnRow: func(r driver.Row) { target = readMessageQueue(r) }})
	}
	if err := t.RunPipeline(questions); err != nil {
		return a, err
	}
	if target.No != 0 {
		t.rememberTarget(to, target)
	}
	return a, nil
}

// takeOut removes a message, which was read, from its queue so that it can arrive elsewhere.
func (t *Tx) takeOut(seq int64, a *arrival) error {
	if err := t.DeleteMessage(seq); err != nil {
		return err
	}
	return t.keepShare(a)
}

// keepShare lets a message that was just deleted, and enters a queue again, share its body as
// before. The body may be gone with the message if that was its last copy.
func (t *Tx) keepShare(a *arrival) error {
	if a.share == nil {
		return nil
	}
	kept, err := t.any("SELECT 1 FROM shared_bodies WHERE no = ?", a.share.no)
	if !kept {
		a.share = nil
	}
	return err
}

// arrivalOf reads a stored message so that it can enter another queue.
func arrivalOf(c driver.Conn, seq, at int64) (a arrival, err error) {
	_, err = c.Prep(sqlWholeMessage).Int(seq).One(func(r driver.Row) { a = arriving(r, at) })
	return a, err
}

// arriving is the message of a row as it can arrive elsewhere.
func arriving(r driver.Row, at int64) arrival {
	m := readMessage(r, at)
	a := arrival{MessageContent: &m.MessageContent, first: m.EnqueuedSeq, hops: m.hops, source: m.DeadLetterSource,
		why: DeadLettering{Reason: m.DeadLetterReason, Description: m.DeadLetterDescription}}
	if m.shared != 0 {
		a.share = &sharing{no: m.shared, stored: true}
	}
	return a
}

const sqlNextOfQueue = "SELECT seq, visible_at FROM messages WHERE subqueue = ? AND flow = 0 ORDER BY visible_at, seq LIMIT ? + 0"

// forwardBacklog forwards the messages that were in a queue before it began to forward, as many
// as the transaction takes. The queue is due again at once if there are more, otherwise when a
// lock ends.
func (t *Tx) forwardBacklog(q MessageQueue) error {
	var seqs []int64
	next := int64(0)
	err := t.Prep(sqlNextOfQueue).Int(int64(q.Subqueue(false))).Int(purgeBatch).Each(func(r driver.Row) error {
		if next = r.Int(1); next > t.Now {
			return driver.ErrStop
		}
		seqs = append(seqs, r.Int(0))
		return nil
	})
	if err := driver.UnlessStopped(err); err != nil {
		return err
	}
	for _, seq := range seqs {
		if !t.takesMore() {
			next = t.Now
			break
		}
		a, err := arrivalOf(t.Conn, seq, t.Now)
		if err == nil {
			err = t.takeOut(seq, &a)
		}
		if err != nil {
			return err
		}
		if err := t.forward(q, seq, a, q.ForwardTo); err != nil {
			return err
		}
	}
	return t.markQueueDue(q.No, next)
}
