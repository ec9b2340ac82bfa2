package queue

import (
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
)

// Participant knows which queues are paused, gives messages their numbers, and wakes those who
// wait for a subqueue when a message becomes ready.
type Participant struct {
	*db.Writer
	db.Passive
	Paused        map[int64]bool // by queue
	PausedTenants map[int64]bool
	nextSeq       int64
	reservedSeq   int64 // numbers below it are marked on disk as given
	Sets          []readySet
}

// readySet is notified when messages of subqueues become ready.
type readySet interface {
	Ready(subqueue Subqueue, at int64)
}

// Tx is the part of a transaction that belongs to package queue.
type Tx struct {
	*db.Tx
	w       *Participant
	Earlier map[Subqueue]int64 // the earliest time at which a message of the subqueue is ready
	Seqs    []int64            // numbers that nobody has taken yet
	Paused  bool               // some queue is paused; Participant.Paused may not have it yet
}

// WordReady tells all processes when a message of a subqueue is ready.
var WordReady = db.NewWordKind('r', db.ToAll)

const (
	sqlPausedQueues  = "SELECT no FROM queues WHERE paused <> 0"
	sqlPausedTenants = "SELECT no FROM tenants WHERE paused <> 0"
	sqlSomePaused    = "SELECT EXISTS (SELECT 1 FROM queues WHERE paused <> 0)"
)

func (p *Participant) Load() (err error) {
	if !p.Shared() {
		_, err = p.Conn.Prep(schema.SQLNextSeq).One(func(r driver.Row) { p.nextSeq = r.Int(0) })
	}
	if err != nil {
		return err
	}
	questions, answered := p.Refresh()
	if err = p.Conn.RunPipeline(questions); err == nil {
		answered()
	}
	return err
}

func (p *Participant) Refresh() (questions []driver.PipelineQuery, answered func()) {
	queues, tenants := map[int64]bool{}, map[int64]bool{}
	into := func(set map[int64]bool) func(driver.Row) { return func(r driver.Row) { set[r.Int(0)] = true } }
	return []driver.PipelineQuery{{SQL: sqlPausedQueues, OnRow: into(queues)}, {SQL: sqlPausedTenants, OnRow: into(tenants)}},
		func() { p.Paused, p.PausedTenants = queues, tenants }
}

func (p *Participant) Opens(t *db.Tx, batch []db.Operation, _ bool) []driver.PipelineQuery {
	q, numbers := Key.Of(t), 0
	for _, op := range batch {
		numbers += op.What().Numbers
	}
	questions := []driver.PipelineQuery{{SQL: sqlSomePaused, Value: func(v int64) { q.Paused = v != 0 }}}
	if numbers > 0 {
		questions = append(questions, driver.PipelineQuery{SQL: sqlNumbers, Bind: func(st driver.Statement) driver.Statement { return st.Int(int64(numbers)) },
			OnRow: func(r driver.Row) { q.Seqs = append(q.Seqs, r.Int(0)) }})
	}
	return questions
}

func (p *Participant) Notified(n *db.Notification) {
	n.Each(WordReady, func(subqueue, _, at int64) { p.Ready(Subqueue(subqueue), at) })
}

func (p *Participant) Ready(subqueue Subqueue, at int64) {
	for _, set := range p.Sets {
		set.Ready(subqueue, at)
	}
}

func (p *Participant) Committed(t *db.Tx) {
	if q := Key.Begun(t); q != nil {
		for subqueue, at := range q.Earlier {
			t.Notify(WordReady, int64(subqueue), 0, at)
		}
	}
}

// Invalidate makes sure that no number is given twice: those that the transaction took are
// skipped.
func (p *Participant) Invalidate(*db.Tx, int64) { p.reservedSeq = 0 }

// WakeAt lets those who wait for the subqueue scan it from that time on.
func (t *Tx) WakeAt(subqueue Subqueue, at int64) {
	if earliest, ok := t.Earlier[subqueue]; !ok || at < earliest {
		if t.Earlier == nil {
			t.Earlier = map[Subqueue]int64{}
		}
		t.Earlier[subqueue] = at
	}
	t.w.Ready(subqueue, at)
}
