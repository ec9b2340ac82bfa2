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

// forwardTx sends messages on to other queues, or dead-letters those that cannot go there.
type forwardTx struct {
	*Tx
	targets map[string]MessageQueue // queues that others forward to, by name
}

// maxHops is how often a message may be forwarded (Service Bus documentation,
// "service-bus-auto-forwarding").
const maxHops = 4

// send forwards a message, which has that number in the queue, to another queue. A message that
// cannot go there is dead-lettered where it is.
func (t *forwardTx) send(q MessageQueue, seq int64, a arrival, to string) error {
	if a.first == 0 {
		a.first = seq
	}
	if a.hops == maxHops {
		a.why = DeadLettering{Reason: forebay.ReasonMaxHops, Description: fmt.Sprintf("forwarded %d times, which is all that is allowed", maxHops)}
		return t.insertDead(q, seq, a)
	}
	target, found, err := t.target(to)
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
		switch a.picks, err = t.Topics.pick(target, a.MessageContent, a.fanOut); {
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
	_, err = t.arrivals.add(target, a)
	return err
}

// target returns the queue of that name. The transaction reads it once, however many messages go
// there.
func (t *forwardTx) target(name string) (q MessageQueue, found bool, err error) {
	if q, found = t.targets[name]; found {
		return q, true, nil
	}
	if q, found, err = t.MessageQueueNamed(name); err == nil && found {
		t.rememberTarget(name, q)
	}
	return q, found, err
}

func (t *forwardTx) rememberTarget(name string, q MessageQueue) {
	if t.targets == nil {
		t.targets = map[string]MessageQueue{}
	}
	t.targets[name] = q
}

// arriveDead dead-letters a message that never became active in the queue.
func (t *forwardTx) arriveDead(q MessageQueue, seq int64, a arrival, why DeadLettering) error {
	a.why = why
	if q.ForwardDeadLettersTo != "" {
		a.source = entity.NameOf(q.Name)
		return t.send(q, seq, a, q.ForwardDeadLettersTo)
	}
	return t.insertDead(q, seq, a)
}

func (t *forwardTx) insertDead(q MessageQueue, seq int64, a arrival) error {
	st := position{subqueue: q.Subqueue(true), visible: t.Now}
	t.Queue.WakeAt(st.subqueue, t.Now)
	return t.arrivals.insert(q, seq, a, st)
}

// DeadLetter moves a message from a queue's subqueue to its dead-letter subqueue, or to where the
// queue forwards its dead letters.
func (t *Tx) DeadLetter(seq int64, from queue.Subqueue, why DeadLettering) error {
	q, found, err := t.MessageQueue(from.Queue())
	if err != nil {
		return err
	}
	if found && q.ForwardDeadLettersTo != "" && from.Kind() == queue.SubqueueMain {
		a, err := t.forwarding.read(seq, q.ForwardDeadLettersTo)
		if err != nil {
			return err
		}
		// Nothing may run in between: if the last other copy were deleted, the shared body would go.
		return t.Alone(func() error {
			if err := t.forwarding.takeOut(seq, &a); err != nil {
				return err
			}
			return t.forwarding.arriveDead(q, seq, a, why)
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

// read returns a message. It also reads the queue that the message is forwarded to, unless that
// is known.
func (t *forwardTx) read(seq int64, to string) (a arrival, err error) {
	var target MessageQueue
	questions := []driver.PipelineQuery{{SQL: sqlWholeMessage, Bind: func(st driver.Statement) driver.Statement { return st.Int(seq) },
		OnRow: func(r driver.Row) { a = arriving(r, t.Now) }}}
	if _, known := t.targets[to]; !known {
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
func (t *forwardTx) takeOut(seq int64, a *arrival) error {
	if err := t.DeleteMessage(seq); err != nil {
		return err
	}
	return t.arrivals.keepShare(a)
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

// sendBacklog forwards the messages that were in a queue before it began to forward, as many
// as the transaction takes. The queue is due again at once if there are more, otherwise when a
// lock ends.
func (t *forwardTx) sendBacklog(q MessageQueue) error {
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
		if err := t.send(q, seq, a, q.ForwardTo); err != nil {
			return err
		}
	}
	return t.due.markQueue(q.No, next)
}
