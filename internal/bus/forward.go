package bus

import (
	"errors"
	"fmt"
	"slices"

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
	held    map[queue.Subqueue]bool // whether anything waits there; not used where a statement is cheap
	ahead   map[int64]arrival       // messages that were read ahead
	taken   map[int64]bool          // messages that an operator has deleted or sent on

	aheadBytes int64 // size of those in ahead
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
	if !target.Status.Sends() { // see Service Bus's documentation, "service-bus-auto-forwarding"
		a.why = DeadLettering{Reason: forebay.ReasonTargetDisabled, Description: "nobody may send to the " + string(target.Status) + " entity that this one forwards to"}
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
	if t.W.Shared() {
		reached, err := entity.Targets(t.Conn, name)
		for _, q := range reached {
			t.rememberTarget(q.Name, q)
		}
		q, found = t.targets[name]
		return q, found, err
	}
	if q, found, err = t.MessageQueueNamed(name); err == nil && found {
		t.rememberTarget(name, q)
	}
	return q, found, err
}

const sqlHolds = "SELECT 1 FROM messages WHERE subqueue = ? AND flow = 0 LIMIT 1"

func prefetchHolds(subqueue queue.Subqueue) driver.Prefetch {
	return shared(driver.NewPrefetch(sqlHolds, driver.RowName{Of: "holds", No: int64(subqueue)}).Int(int64(subqueue)))
}

// holds reports whether messages wait in a queue that forwards. New ones then wait behind them.
func (t *forwardTx) holds(q MessageQueue) (holds bool, err error) {
	subqueue := q.Subqueue(false)
	if t.W.Shared() {
		if holds, known := t.held[subqueue]; known {
			return holds, nil
		}
		// Most hold nothing, not even messages that are locked.
		if holds, err = t.any(sqlHolds, int64(subqueue)); err != nil {
			return false, err
		}
	}
	if holds || !t.W.Shared() {
		if holds, err = t.any(sqlWaiting, int64(subqueue), t.Now); err != nil {
			return false, err
		}
	}
	if t.W.Shared() && !t.held[subqueue] {
		if t.held == nil {
			t.held = map[queue.Subqueue]bool{}
		}
		t.held[subqueue] = holds
	}
	return holds || t.held[subqueue], nil
}

// noteHeld notes that a message waits in the subqueue.
func (t *forwardTx) noteHeld(subqueue queue.Subqueue) {
	if t.W.Shared() {
		if t.held == nil {
			t.held = map[queue.Subqueue]bool{}
		}
		t.held[subqueue] = true
	}
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
		err = t.foresee(1, func(f *foresight) { f.on(q.ForwardDeadLettersTo, a.MessageContent, a.hops) })
		if err != nil {
			return err
		}
		return t.Alone(func() error {
			if !t.forwarding.takes(seq) {
				return nil
			}
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

// read returns a message that is to be forwarded to that name.
func (t *forwardTx) read(seq int64, to string) (a arrival, err error) {
	if _, known := t.ahead[seq]; !known {
		if err := t.Prefetch([]driver.Prefetch{prefetchMessage(seq), prefetchTargets(to)}); err != nil {
			return a, err
		}
	}
	return t.arrival(seq)
}

// arrival returns a message so that it can enter another queue.
func (t *forwardTx) arrival(seq int64) (arrival, error) {
	if a, known := t.ahead[seq]; known {
		delete(t.ahead, seq)
		t.aheadBytes -= a.Size()
		return a, nil
	}
	return arrivalOf(t.Conn, seq, t.Now)
}

// sized is a message and its size.
type sized struct{ seq, size int64 }

// readAhead reads messages that are about to enter other queues, as many as a transaction takes,
// where a statement costs a round trip. It fetches these answers too. Nothing else
// may change the messages before they enter.
func (t *forwardTx) readAhead(list []sized, also ...driver.Prefetch) error {
	if !t.W.Shared() {
		return nil
	}
	n := 0
	for ; n < len(list) && t.aheadBytes < rules.FullCopyBytes && !t.copied.Full(); n++ {
		if _, known := t.ahead[list[n].seq]; !known && !t.taken[list[n].seq] {
			t.aheadBytes += list[n].size
			also = append(also, prefetchMessage(list[n].seq))
		}
	}
	if err := t.Prefetch(also); err != nil {
		return err
	}
	for _, m := range list[:n] {
		if _, known := t.ahead[m.seq]; known || t.taken[m.seq] {
			continue
		}
		a, err := arrivalOf(t.Conn, m.seq, t.Now)
		if err != nil {
			return err
		}
		if a.MessageContent == nil { // it is gone
			t.aheadBytes -= m.size
			continue
		}
		if t.ahead == nil {
			t.ahead = map[int64]arrival{}
		}
		t.ahead[m.seq] = a
	}
	return nil
}

// takes reports whether a message is still there for an operator, and notes that it is not any
// more. Operators wait for answers at the same time, where a statement costs a round trip.
func (t *forwardTx) takes(seq int64) bool {
	if !t.W.Shared() {
		return true
	}
	if t.taken[seq] {
		return false
	}
	if t.taken == nil {
		t.taken = map[int64]bool{}
	}
	t.taken[seq] = true
	return true
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

const sqlNextOfQueue = "SELECT seq, visible_at, size FROM messages WHERE subqueue = ? AND flow = 0 ORDER BY visible_at, seq LIMIT ? + 0"

// sendBacklog forwards the messages that were in a queue before it began to forward, as many
// as the transaction takes. The queue is due again at once if there are more, otherwise when a
// lock ends.
func (t *forwardTx) sendBacklog(q MessageQueue) error {
	b, err := t.backlogOf(q)
	if err != nil {
		return err
	}
	for _, m := range b.list {
		if !t.takesMore() {
			b.next = t.Now
			break
		}
		a, err := t.arrival(m.seq)
		if err == nil {
			err = t.takeOut(m.seq, &a)
		}
		if err != nil {
			return err
		}
		if err := t.send(q, m.seq, a, q.ForwardTo); err != nil {
			return err
		}
	}
	return t.due.markQueue(q.No, b.next)
}

// backlog are messages of a queue that are to be forwarded, and when the next of its messages
// is ready, or was; 0: there is none.
type backlog struct {
	list []sized
	next int64
}

func (b *backlog) add(r driver.Row, now int64) error {
	if b.next > now {
		return driver.ErrStop
	}
	if b.next = r.Int(1); b.next > now {
		return driver.ErrStop
	}
	b.list = append(b.list, sized{r.Int(0), r.Int(2)})
	return nil
}

// leaveOut leaves messages for the next transaction, and those behind them, which must not
// overtake.
func (b *backlog) leaveOut(these map[int64]bool, now int64) {
	if i := slices.IndexFunc(b.list, func(m sized) bool { return these[m.seq] }); i >= 0 {
		b.list, b.next = b.list[:i], now
	}
}

// backlogOf finds the backlog of a queue, and reads it ahead.
func (t *forwardTx) backlogOf(q MessageQueue) (b backlog, err error) {
	if next := t.due.queues; next != nil && next.No == q.No && next.ForwardTo == q.ForwardTo {
		if b = next.backlog; len(b.list) == 0 {
			return b, nil
		}
		if _, known := t.ahead[b.list[0].seq]; known { // if due messages were not too large before it
			return b, nil
		}
		return b, t.foreseeAll(q, b.list)
	}
	err = t.Prep(sqlNextOfQueue).Int(int64(q.Subqueue(false))).Int(purgeBatch).Each(func(r driver.Row) error { return b.add(r, t.Now) })
	if err := driver.UnlessStopped(err); err != nil {
		return b, err
	}
	return b, t.foreseeAll(q, b.list, prefetchTargets(q.ForwardTo))
}

// foreseeAll reads messages ahead that are about to enter the queue, and what they need then.
func (t *forwardTx) foreseeAll(q MessageQueue, list []sized, also ...driver.Prefetch) error {
	if !t.W.Shared() {
		return nil
	}
	f := foresight{Tx: t.Tx, asked: map[driver.RowName]bool{}}
	f.takeNumbers(len(list))
	if err := t.readAhead(list, append(also, f.asks...)...); err != nil {
		return err
	}
	if err := f.answer(); err != nil {
		return err
	}
	return f.fetch(func(f *foresight) {
		for _, m := range list {
			if a, known := t.ahead[m.seq]; known {
				f.numbers++
				f.into(q, a.MessageContent, nil, a.hops)
			}
		}
	})
}
