package store

import "errors"

// queuePart knows which queues are paused, gives messages their numbers and tells who waits for a
// subqueue that a message of it became ready.
type queuePart struct {
	*writer
	passive
	paused      map[int64]bool // by queue
	nextSeq     int64
	reservedSeq int64 // numbers below it are marked on disk as given
	sets        []readySet
}

// readySet is somebody who wants to know when messages of subqueues become ready.
type readySet interface {
	ready(subqueue Subqueue, at int64)
}

// queueTx is its part of a transaction.
type queueTx struct {
	*tx
	w       *queuePart
	earlier map[Subqueue]int64 // the earliest time at which a message of it became ready
	seqs    []int64            // numbers that nobody has taken yet
	paused  bool               // a queue is, and it may be that nobody here was told
}

// wordReady tells of a subqueue from when on a message of it is ready.
const wordReady wordKind = 'r'

const (
	sqlPausedQueues = "SELECT no FROM queues WHERE paused <> 0"
	sqlSomePaused   = "SELECT EXISTS (SELECT 1 FROM queues WHERE paused <> 0)"
)

func (p *queuePart) load() (err error) {
	if !p.shared() {
		_, err = p.conn.prep(sqlNextSeq).one(func(r row) { p.nextSeq = r.int(0) })
	}
	return errors.Join(err, p.refresh())
}

func (p *queuePart) refresh() error {
	clear(p.paused)
	return p.conn.prep(sqlPausedQueues).each(func(r row) error {
		p.paused[r.int(0)] = true
		return nil
	})
}

func (p *queuePart) opens(t *tx, batch []operation, _ bool) []question {
	q, numbers := queueKey.of(t), 0
	for _, op := range batch {
		numbers += op.numbers()
	}
	questions := []question{{sql: sqlSomePaused, answer: func(r row) { q.paused = r.int(0) != 0 }}}
	if numbers > 0 {
		questions = append(questions, question{sqlNumbers, func(st statement) statement { return st.int(int64(numbers)) },
			func(r row) { q.seqs = append(q.seqs, r.int(0)) }})
	}
	return questions
}

func (p *queuePart) notified(n *notification) {
	n.each(wordReady, func(subqueue, _, at int64) { p.ready(Subqueue(subqueue), at) })
}

func (p *queuePart) ready(subqueue Subqueue, at int64) {
	for _, set := range p.sets {
		set.ready(subqueue, at)
	}
}

func (p *queuePart) committed(t *tx) {
	if q := queueKey.begun(t); q != nil {
		for subqueue, at := range q.earlier {
			t.notify(wordReady, int64(subqueue), 0, at)
		}
	}
}

// rolledBack has no number given twice: those that the transaction took are left out.
func (p *queuePart) rolledBack(*tx, int64) { p.reservedSeq = 0 }

// wakes has whoever waits for the subqueue look at it from that time on.
func (t *queueTx) wakes(subqueue Subqueue, at int64) {
	if earliest, ok := t.earlier[subqueue]; !ok || at < earliest {
		if t.earlier == nil {
			t.earlier = map[Subqueue]int64{}
		}
		t.earlier[subqueue] = at
	}
	t.w.ready(subqueue, at)
}
