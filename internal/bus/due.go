package bus

import (
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// dueBatch is how many messages one transaction activates, expires or dead-letters.
const (
	dueBatch       = 256
	sharedDueBatch = 64 // while tenants share the writer
)

// dueTx is about what has a due time: messages, queues and remembered message ids.
type dueTx struct {
	*Tx
	queues *queuesAhead // nil: they are to be asked again
}

// dueMessages has the floor of due messages. No queue has this subqueue.
const dueMessages queue.Subqueue = 0

// dueMessage is a message whose due time has come.
type dueMessage struct {
	sized
	at, flow, lockedUntil int64
	subqueue              queue.Subqueue
	deliveries            int
	expiresAt             int64 // 0: never
	deadLetters           bool  // its queue dead-letters expired messages

	forwardTo, forwardDeadLettersTo string // of its queue
	topicVersion                    int64  // 0: it is in no topic
}

// process does what is due in queues of messages: it activates, expires, forwards and forgets,
// each in batches. It returns when messages or queues are due next, but for those whose time the
// transaction has set itself; 0: never.
func (t *dueTx) process() (next int64, err error) {
	var due []dueMessage
	most := int64(dueBatch)
	if t.W.Parties.Now() {
		most = sharedDueBatch
	}
	floor, nextMessage := t.W.floors.Ready(dueMessages, t.Now), int64(0)
	questions := []driver.PipelineQuery{{SQL: entity.SQLMessagesDue, Bind: func(st driver.Statement) driver.Statement { return st.Int(floor).Int(t.Now).Int(most) }, OnRow: func(r driver.Row) {
		due = append(due, dueMessage{sized: sized{r.Int(0), r.Int(7)}, subqueue: queue.Subqueue(r.Int(1)), flow: r.Int(2), lockedUntil: r.Int(3), deliveries: int(r.Int(4)),
			expiresAt: r.Int(5), deadLetters: r.Int(6) != 0, forwardTo: r.Text(8), forwardDeadLettersTo: r.Text(9), topicVersion: r.Int(10), at: r.Int(11)})
	}}, entity.AskNextMessage(t.W.floors.Next(dueMessages, t.Now), &nextMessage)}
	questions = append(questions, entity.AskNext(t.Now, &next)...)
	if err := t.RunPipeline(append(questions, t.askQueues()...)); err != nil {
		return 0, err
	}
	switch {
	case len(due) == int(most): // there may be more
		next = t.Now
	case nextMessage > 0 && (next == 0 || nextMessage < next):
		next = nextMessage
	}
	if err := t.foreseeDue(due); err != nil {
		return 0, err
	}
	defer func() { t.queues, t.forwarding.ahead, t.forwarding.aheadBytes = nil, nil, 0 }()
	t.copied, t.dueDone = rules.FanOut{}, false // due messages have a limit of their own: callers must not delay them
	for _, m := range due {
		if !t.takesMore() {
			next = t.Now // the rest is still due in the next transaction
			break
		}
		t.W.floors.Taken(dueMessages, m.at)
		if err := t.processMessage(m); err != nil {
			return 0, err
		}
	}
	if next != t.Now {
		t.W.floors.Empty(dueMessages, t.Now, nextMessage)
	}
	if err := entity.ForgetMessageIDs(t.Conn, t.Now); err != nil {
		return 0, err
	}
	t.copied, t.dueDone = rules.FanOut{}, false
	if len(due) > 0 && (len(t.queues.idle) > 0 || !t.W.Shared()) {
		t.queues = nil // what was processed may have kept a queue from being idle
	}
	return next, t.processQueues()
}

// foreseeDue fetches what due messages, and what is due next, need.
func (t *dueTx) foreseeDue(due []dueMessage) error {
	next := t.queues
	if !t.W.Shared() || len(due) == 0 && next.No == 0 {
		return nil
	}
	var asks []driver.Prefetch
	var moving []sized
	copies := 0
	f := foresight{Tx: t.Tx, asked: map[driver.RowName]bool{}}
	isDue := make(map[int64]bool, len(due))
	for i := range due {
		m := &due[i]
		isDue[m.seq] = true
		asks = append(asks, entity.Prefetch(m.subqueue.Queue()))
		copies += t.foreseeTopic(m, &asks)
		switch to := m.goesTo(t.Now); {
		case to != "":
			asks = append(asks, prefetchTargets(to))
			fallthrough
		case m.flow == scheduledFlow:
			moving = append(moving, m.sized)
		}
	}
	if next.No == 0 {
		next.backlog = backlog{} // of one that is dropped
	} else {
		asks = append(asks, entity.Prefetch(next.No))
	}
	if next.backlog.leaveOut(isDue, t.Now); len(next.backlog.list) > 0 {
		asks, moving = append(asks, prefetchTargets(next.ForwardTo)), append(moving, next.backlog.list...)
	}
	f.takeNumbers(len(moving) + copies)
	if err := t.forwarding.readAhead(moving, append(asks, f.asks...)...); err != nil {
		return err
	}
	if err := f.answer(); err != nil {
		return err
	}
	for i := range due {
		if to := due[i].goesTo(t.Now); to != "" {
			if _, _, err := t.forwarding.target(to); err != nil {
				return err
			}
		}
	}
	queues := make([]MessageQueue, len(due))
	var topics []MessageQueue
	for i, m := range due {
		q, found, err := t.MessageQueue(m.subqueue.Queue())
		if queues[i] = q; err != nil {
			return err
		}
		if found && m.flow == pendingFlow {
			topics = append(topics, q)
		}
	}
	if err := t.fanOut.foreseePending(nil, topics...); err != nil {
		return err
	}
	return f.fetch(func(f *foresight) {
		for _, m := range next.backlog.list {
			if a, known := t.forwarding.ahead[m.seq]; known {
				f.on(next.ForwardTo, a.MessageContent, a.hops)
			}
		}
		for i, m := range due {
			a, known := t.forwarding.ahead[m.seq]
			switch {
			case !known:
			case m.flow == scheduledFlow:
				f.numbers++
				f.into(queues[i], a.MessageContent, nil, a.hops)
			default:
				f.on(queues[i].ForwardDeadLettersTo, a.MessageContent, a.hops)
			}
		}
	})
}

// foreseeTopic asks for the rules of the topic that a due message is in, unless they are known.
// It asks what waits there for copies, if the message does. It returns how many copies the message
// may get, as far as is known.
func (t *dueTx) foreseeTopic(m *dueMessage, asks *[]driver.Prefetch) (copies int) {
	if m.topicVersion == 0 {
		return 0
	}
	topic := MessageQueue{No: m.subqueue.Queue(), Version: m.topicVersion}
	if m.flow == pendingFlow && t.fanOut.listed[topic.No] == nil {
		*asks = append(*asks, prefetchPending(topic))
	}
	c := t.Topics.known(topic)
	if c == nil {
		*asks = append(*asks, prefetchRules(topic.No)...)
		return 0
	}
	return len(c.Subscriptions)
}

// goesTo returns where the message may be forwarded to, now that it is due.
func (m *dueMessage) goesTo(now int64) string {
	switch {
	case m.flow == scheduledFlow:
		return m.forwardTo
	case m.lockedUntil > now, m.expiresAt > 0 && m.expiresAt <= now && !m.deadLetters:
		return ""
	}
	return m.forwardDeadLettersTo
}

// takesMore reports whether the transaction may process one more due message, which may lead to
// copies. It always allows one. Otherwise callers that publish much would delay due messages for
// ever.
func (t *Tx) takesMore() bool {
	if t.dueDone && t.copied.Full() {
		return false
	}
	t.dueDone = true
	return true
}

func (t *dueTx) processMessage(m dueMessage) error {
	deferred, lockEnded := m.subqueue.Deferred() == m.subqueue, m.lockedUntil > 0 && m.lockedUntil <= t.Now
	switch {
	case m.flow == scheduledFlow:
		return t.activate(m)
	case m.flow == pendingFlow:
		return t.fanOut.resume(m)
	case m.lockedUntil > t.Now:
		return t.postpone(m.seq, m.lockedUntil)
	case deferred && !lockEnded: // it expires, or exceeds its deliveries, when somebody receives it
		return t.postpone(m.seq, 0)
	case !deferred && m.expiresAt > 0 && m.expiresAt <= t.Now && !m.deadLetters:
		return t.DeleteMessage(m.seq)
	case !deferred && m.expiresAt > 0 && m.expiresAt <= t.Now:
		return t.ExpireMessage(m.seq, m.subqueue)
	}
	q, found, err := t.MessageQueue(m.subqueue.Queue())
	main := queue.SubqueueOf(m.subqueue.Queue(), queue.SubqueueMain)
	switch {
	case err != nil:
		return err
	case found && m.deliveries >= q.MaxDeliveries && (m.subqueue == main || m.subqueue == main.Deferred()):
		return t.DeadLetter(m.seq, main, message.Exceeded(q.MaxDeliveries))
	case deferred:
		return t.postpone(m.seq, 0)
	}
	// The last delivery was given back uncounted, or the queue allows more deliveries now.
	return t.postpone(m.seq, m.expiresAt)
}

// postpone sets when a message is due next; 0: never.
func (t *Tx) postpone(seq, at int64) error {
	t.DueBy(at)
	return t.Prep("UPDATE bodies SET due_at = ? WHERE seq = ?").IntOrNull(at).Int(seq).Exec()
}

// A scheduled message may become too much for its topic, for example because subscriptions were
// added. It then stays scheduled, so that it can still be cancelled. It is due again when it has
// waited as long once more, within these bounds in milliseconds. Judging it may be what takes too
// long.
const (
	minPostponed = 60_000
	maxPostponed = 3_600_000
)

// activate makes a scheduled message active, under a new number.
func (t *dueTx) activate(m dueMessage) error {
	q, found, err := t.MessageQueue(m.subqueue.Queue())
	if err != nil {
		return err
	}
	if !found { // it is being deleted
		return t.DeleteMessage(m.seq)
	}
	if err := t.used(q); err != nil { // a scheduled message kept the queue from being idle
		return err
	}
	a, err := t.forwarding.arrival(m.seq)
	if err != nil {
		return err
	}
	if q.IsTopic {
		a.fanOut = &rules.FanOut{}
		switch a.picks, err = t.Topics.pickDue(q, a.MessageContent, a.fanOut); {
		case errors.Is(err, rules.ErrFanOut), errors.Is(err, errNotReady):
			t.Topics.judgeLater(err, rules.SlowMessage{Tenant: q.Tenant, Topic: q.No, Seq: m.seq})
			waited := int64(0)
			if a.ScheduledAt != nil {
				waited = t.Now - driver.Millis(a.ScheduledAt)
			}
			at := t.Now + min(max(minPostponed, waited), maxPostponed)
			if errors.Is(err, errNotReady) { // the rules will be compiled soon
				at = t.Now + slowPause
			}
			if err := t.Prep("UPDATE messages SET visible_at = ? WHERE seq = ?").Int(at).Int(m.seq).Exec(); err != nil { // keeps its topic from being idle
				return err
			}
			return t.postpone(m.seq, at)
		case err != nil:
			return err
		}
	}
	return t.activateScheduled(q, m.seq, a)
}

// activateScheduled makes a scheduled message active. It gets a new number in place of the given
// one.
func (t *dueTx) activateScheduled(q MessageQueue, scheduled int64, a arrival) error {
	if err := t.DeleteMessage(scheduled); err != nil {
		return err
	}
	if err := t.arrivals.keepShare(&a); err != nil {
		return err
	}
	t.copied.Add(1, a.Size())
	seq, err := t.Queue.NewSeq()
	if err != nil {
		return err
	}
	return t.arrivals.enter(q, seq, a)
}

// ExpireMessage deletes or dead-letters a message whose time to live has ended.
func (t *Tx) ExpireMessage(seq int64, subqueue queue.Subqueue) error {
	q, _, err := t.MessageQueue(subqueue.Queue())
	if err != nil {
		return err
	}
	if !q.DeadLetterExpired {
		return t.DeleteMessage(seq)
	}
	return t.DeadLetter(seq, q.Subqueue(false), DeadLettering{Reason: forebay.ReasonExpired, Description: "its time to live ended before it was completed"})
}
