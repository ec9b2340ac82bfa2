package store

import "slices"

// busPart hands plain messages to their receivers, and does what is due in queues of messages.
type busPart struct {
	*writer
	waiting[*receiver]
	queue     *queuePart
	webhooks  gate
	impatient []*receiver // that want an answer at once
	topics    *topicRules
	slow      *slowMessages // to be judged outside of transactions
	followed  *followedTenants
	resting   map[Subqueue]int64 // of webhooks → until when nothing is sent to their endpoints
	nextTask  int64              // when something is to be done about messages; 0: nothing
	tended    int64              // when it last looked for what others have left
}

// gate lets receivers that deliver to an endpoint have a message once that may be sent one.
type gate interface {
	takeFor(t *busTx, c *receiver, from source) error
}

// busTx is its part of a transaction.
type busTx struct {
	*tx
	w        *busPart
	queue    *queueTx
	topics   topicMemory
	counter  *int64 // of changes of topics; nil: ask when you need it
	copied   spread // copies that topics and forwarding have made
	dueDone  bool   // something that was due is done
	sessions sessionMemory
	served   []*receiver
	wake     int64 // when something is to be done that was not before; 0: nothing
}

// wordMessages says when something is to be done about messages, for the writers of this process.
const wordMessages wordKind = 'e'

func newBusPart(w *writer, queue *queuePart, topics *topicRules) *busPart {
	p := &busPart{writer: w, waiting: newWaiting[*receiver](), queue: queue, topics: topics, resting: map[Subqueue]int64{}}
	queue.sets = append(queue.sets, p)
	return p
}

func newBusTx(t *tx, p *busPart) *busTx {
	b := &busTx{tx: t, w: p, queue: queueKey.of(t)}
	t.full = b.copied.full
	return b
}

func (p *busPart) load() (err error) {
	p.nextTask, err = nextDueMessages(p.conn)
	return err
}

// refresh turns those away who wait for queues that are gone.
func (p *busPart) refresh() error {
	gone := map[int64]bool{}
	for subqueue := range p.parked {
		if subqueue.lasts() { // a session's lock ends by itself
			gone[subqueue.Queue()] = true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	err := p.conn.prep("SELECT no FROM queues WHERE kind <> 'deleting'").each(func(r row) error {
		delete(gone, r.int(0))
		return nil
	})
	if err != nil {
		return err
	}
	for no := range gone {
		p.forgetQueue(no)
	}
	return nil
}

func (p *busPart) lookAgain(all bool) {
	p.allDue(0)
	at := p.clock()
	if p.serving && (all || p.shared() && at-p.tended >= tending.Milliseconds()) {
		p.nextTask, p.tended = 1, at
	}
}

func (p *busPart) notified(n *notification) {
	n.each(wordMessages, func(_, _, at int64) { p.dueBy(at) })
}

// dueBy notes that something is to be done at that time.
func (p *busPart) dueBy(at int64) {
	if at > 0 && (p.nextTask == 0 || at < p.nextTask) {
		p.nextTask = at
	}
}

func (p *busPart) ready(subqueue Subqueue, at int64) {
	if at == roomAgain {
		delete(p.resting, subqueue)
	}
	if p.heeds(subqueue) {
		p.lookBy(subqueue, max(at, p.rests(subqueue)))
	}
}

// roomAgain is a time at which a subqueue is told to be ready: now, however long receivers there were to rest.
const roomAgain = 0

// rests returns until when a subqueue need not be looked at, because its webhook's endpoint is left alone and nobody
// else waits; 0: it is not so.
func (p *busPart) rests(subqueue Subqueue) int64 {
	until, ok := p.resting[subqueue]
	if !ok || slices.ContainsFunc(p.parked[subqueue], func(c *receiver) bool { return c.waits() && !c.Webhook }) {
		return 0
	}
	return until
}

func (p *busPart) nextDue(int64) int64 {
	next := p.waiting.nextDue(nil)
	if p.serving && p.nextTask > 0 {
		next = min(next, p.nextTask)
	}
	return next
}

func (p *busPart) opens(t *tx, _ []operation, _ bool) []question {
	b := busKey.of(t)
	return []question{{"SELECT coalesce((SELECT value FROM counters WHERE name = ?), 0)", func(st statement) statement { return st.text(topicsCounter) },
		func(r row) {
			version := r.int(0)
			b.counter = &version
		}}}
}

func (p *busPart) mostOps() int { return p.followed.mostOps() }

// mayStoreBeside says that nobody subscribes to events, who would get copies.
func (p *busPart) mayStoreBeside() bool { return p.followed != nil && len(p.followed.topics) == 0 }

func (p *busPart) serve(t *tx) error {
	if p.serving && p.nextTask > 0 && p.nextTask <= t.now {
		b := busKey.of(t)
		if err := b.tendMessages(); err != nil {
			return err
		}
		next, err := nextDueMessages(b.conn)
		if err != nil {
			return err
		}
		p.nextTask = next
	}
	return p.serveReceivers(t)
}

func (p *busPart) committed(t *tx) {
	b := busKey.begun(t)
	if b == nil {
		return
	}
	p.dueBy(b.wake)
	if b.wake > 0 {
		t.notify(wordMessages, 0, 0, b.wake)
	}
	for _, c := range b.served {
		c.deliver()
	}
}

func (p *busPart) rolledBack(t *tx, at int64) {
	if b := busKey.begun(t); b != nil {
		for _, c := range b.served {
			c.unserve()
		}
	}
	clear(p.resting)
	p.allDue(at)
	p.nextTask = at
}

// roundEnded answers the receivers that do not wait and found nothing. err is why the last transaction
// failed, if it did: when that was an operation's fault, they are served by the next one.
func (p *busPart) roundEnded(err error) {
	if err != nil && p.isolates(err) {
		return
	}
	for _, c := range p.impatient {
		if !c.begin() {
			continue // served, or gone
		}
		c.err = p.conn.domainError(err)
		c.deliver()
		p.parked[c.subqueue] = slices.DeleteFunc(p.parked[c.subqueue], func(other *receiver) bool { return other == c })
		if len(p.parked[c.subqueue]) == 0 {
			p.leave(c.subqueue)
		}
	}
	clear(p.impatient)
	p.impatient = p.impatient[:0]
}

// dueBy notes that something is to be done about messages at that time; 0: nothing.
func (t *busTx) dueBy(at int64) {
	if at > 0 && (t.wake == 0 || at < t.wake) {
		t.wake = at
	}
}
