package admission

import (
	"sync/atomic"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Participant decides which calls may go now: by what is known of deployments, by how many
// calls there may be at once, and by budgets.
type Participant struct {
	*db.Writer
	db.Passive
	queue       *queue.Participant
	store       *Store
	Jobs        heldJobs
	Caps        map[int64]int64            // tenant → how many calls its jobs may have at once
	Full        map[int64]int64            // tenant with as many as it may have → until when at least one lock holds
	identities  atomic.Pointer[Identities] // see Store.Identify
	known       *Identities                // those that deployments were read for
	Deployments map[string]*Deployment     // their states, if this process alone writes them; nil: to be read
	budgets     *budgetSet                 // whose there are; nil: to be read
	wanted      map[string]int64           // deployment → until when spare candidates leave it to others
	Sweeps      bool                       // all budgets that jobs wait for are to be looked at
	behind      map[int64]place            // budget → behind which waiting jobs smaller ones are sought
}

// heldJobs are jobs that may not be called, and are to hear when that may have changed.
type heldJobs interface {
	Unblock(deployment string, at int64)
	MayGo(tenants map[int64]int64)
	Released(t *db.Tx, subqueue queue.Subqueue, line, at int64, seqs ...int64)
}

// Tx is its part of a transaction.
type Tx struct {
	*db.Tx
	W           *Participant
	identities  Identities
	Deployments map[string]*Deployment     // the states of some
	someCapped  bool                       // a tenant is, and it may be that nobody here was told
	Concurrency map[string]*ConcurrencyUse // by holder; nil: not read yet
	Budgets     budgetMemory
	liveHolds   map[int64][]Held // by job; what is not there was not read
	waited      *[]int64         // budgets that jobs wait for; nil: not asked
}

// wordSlots says that a call is over that was one of a limited number.
var wordConcurrency = db.NewWordKind('s', db.ToAll)

func newAdmissionPart(w *db.Writer, queue *queue.Participant, store *Store) *Participant {
	p := &Participant{Writer: w, queue: queue, store: store, Caps: map[int64]int64{}, Full: map[int64]int64{}, behind: map[int64]place{}}
	p.identities.Store(&Identities{})
	return p
}

func newAdmissionTx(t *db.Tx, p *Participant) *Tx {
	identities := p.identities.Load()
	if p.known != identities {
		p.known, p.Deployments = identities, nil
	}
	return &Tx{Tx: t, W: p, identities: *identities}
}

func (p *Participant) Load() error {
	questions, answered := p.Refresh()
	err := p.Conn.RunPipeline(questions)
	if err == nil {
		answered()
	}
	return err
}

func (p *Participant) Refresh() (questions []driver.PipelineQuery, answered func()) {
	caps := map[int64]int64{}
	askCaps := driver.PipelineQuery{SQL: "SELECT no, concurrency FROM tenants WHERE concurrency IS NOT NULL", OnRow: func(r driver.Row) {
		if most := r.Int(1); most > 0 {
			caps[r.Int(0)] = most
		}
	}}
	budgets := newBudgetSet()
	return []driver.PipelineQuery{askCaps, budgets.ask()}, func() { p.Caps, p.budgets = caps, budgets }
}

// DeploymentHint says that an operation tells what came of a call of a deployment.
type DeploymentHint string

func (p *Participant) Opens(t *db.Tx, batch []db.Operation, _ bool) []driver.PipelineQuery {
	a := Key.Of(t)
	questions := []driver.PipelineQuery{{SQL: sqlSomeCapped, Value: func(v int64) { a.someCapped = v != 0 }}}
	var names []string
	for _, op := range batch {
		if name, ok := op.What().Hints.(DeploymentHint); ok {
			names = append(names, string(name))
		}
	}
	if len(names) > 0 {
		questions = append(questions, a.StatesOf(names)...)
	}
	if p.Sweeps && !p.Inserter {
		questions = append(questions, a.AskWaited()...)
	}
	return questions
}

const sqlSomeCapped = "SELECT EXISTS (SELECT 1 FROM tenants WHERE concurrency IS NOT NULL)"

func (p *Participant) MarkAllDue(bool) {
	p.budgets, p.Sweeps = nil, true
	clear(p.Full)
}

func (p *Participant) Notified(n *db.Notification) {
	if n.Has(wordConcurrency) {
		p.Jobs.Unblock("", p.Clock())
		p.Jobs.MayGo(p.Full)
		clear(p.Full)
	}
}

// StageEnded makes jobs ready for which a budget has room now, once all operations are done. If
// package jobs does what is due in the transaction, it sees to that.
func (p *Participant) StageEnded(t *db.Tx, at db.Stage) error {
	if at < db.Stages-1 || t.WithDue && !t.Volatile {
		return nil
	}
	if a := Key.Begun(t); a != nil || p.Sweeps {
		return Key.Of(t).ResumeWaiting()
	}
	return nil
}

func (p *Participant) Closes(t *db.Tx) error {
	a := Key.Begun(t)
	if a == nil {
		return nil
	}
	if err := a.storeDeployments(); err != nil {
		return err
	}
	return a.storeSpending()
}

func (p *Participant) Invalidate(*db.Tx, int64) {
	p.Deployments, p.budgets, p.Sweeps = nil, nil, true
	clear(p.Full)
	clear(p.behind)
}
