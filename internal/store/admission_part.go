package store

import (
	"errors"
	"sync/atomic"
)

// admissionPart decides which calls may go now: by what is known of deployments, by how many calls there may be at
// once, and by budgets.
type admissionPart struct {
	*writer
	passive
	queue       *queuePart
	store       *AdmissionStore
	jobs        heldJobs
	caps        map[int64]int64            // tenant → how many calls its jobs may have at once
	full        map[int64]int64            // tenant with as many as it may have → until when at least one lock holds
	identities  atomic.Pointer[Identities] // see Store.Identify
	known       *Identities                // those that deployments were read for
	deployments map[string]*deployment     // their states, if this process alone writes them; nil: to be read
	budgets     *budgetSet                 // whose there are; nil: to be read
	sweeps      bool                       // all budgets that jobs wait for are to be looked at
}

// heldJobs are jobs that may not be called, and are to hear when that may have changed.
type heldJobs interface {
	unblock(deployment string, at int64)
	mayGo(tenants map[int64]int64)
	released(t *tx, subqueue Subqueue, line, at int64, seqs ...int64)
}

// admissionTx is its part of a transaction.
type admissionTx struct {
	*tx
	w           *admissionPart
	identities  Identities
	deployments map[string]*deployment // the states of some
	someCapped  bool                   // a tenant is, and it may be that nobody here was told
	slots       map[string]*slotUse    // by holder; nil: not read yet
	budgets     budgetMemory
}

// wordSlots says that a call is over that was one of a limited number.
const wordSlots wordKind = 's'

func newAdmissionPart(w *writer, queue *queuePart, store *AdmissionStore) *admissionPart {
	p := &admissionPart{writer: w, queue: queue, store: store, caps: map[int64]int64{}, full: map[int64]int64{}}
	p.identities.Store(&Identities{})
	return p
}

func newAdmissionTx(t *tx, p *admissionPart) *admissionTx {
	identities := p.identities.Load()
	if p.known != identities {
		p.known, p.deployments = identities, nil
	}
	return &admissionTx{tx: t, w: p, identities: *identities}
}

func (p *admissionPart) load() error { return errors.Join(p.loadCaps(), p.loadBudgets()) }

func (p *admissionPart) refresh() error { return p.load() }

func (p *admissionPart) loadCaps() error {
	clear(p.caps)
	return p.conn.prep("SELECT no, concurrency FROM tenants WHERE concurrency IS NOT NULL").each(func(r row) error {
		if most := r.int(1); most > 0 {
			p.caps[r.int(0)] = most
		}
		return nil
	})
}

// deploymentHint says that an operation tells what came of a call of a deployment.
type deploymentHint string

func (p *admissionPart) opens(t *tx, batch []operation, _ bool) []question {
	a := admissionKey.of(t)
	questions := []question{{sql: sqlSomeCapped, answer: func(r row) { a.someCapped = r.int(0) != 0 }}}
	var names []string
	for _, op := range batch {
		if name, ok := op.hints().(deploymentHint); ok {
			names = append(names, string(name))
		}
	}
	if len(names) > 0 {
		questions = append(questions, a.statesOf(names)...)
	}
	return questions
}

const sqlSomeCapped = "SELECT EXISTS (SELECT 1 FROM tenants WHERE concurrency IS NOT NULL)"

func (p *admissionPart) lookAgain(bool) {
	p.budgets, p.sweeps = nil, true
	clear(p.full)
}

func (p *admissionPart) notified(n *notification) {
	if n.has(wordSlots) {
		p.jobs.unblock("", p.clock())
		p.jobs.mayGo(p.full)
		clear(p.full)
	}
}

// stageEnded makes jobs ready for which a budget has room now, once all operations are done. Beside the transactions of
// others there is nothing to see to: it must leave alone what they change.
func (p *admissionPart) stageEnded(t *tx, at stage) error {
	if at < stages-1 || p.apart {
		return nil
	}
	if a := admissionKey.begun(t); a != nil || p.sweeps {
		return admissionKey.of(t).resumeWaiting()
	}
	return nil
}

func (p *admissionPart) closes(t *tx) error {
	a := admissionKey.begun(t)
	if a == nil {
		return nil
	}
	if err := a.storeDeployments(); err != nil {
		return err
	}
	return a.storeSpending()
}

func (p *admissionPart) rolledBack(*tx, int64) {
	p.deployments, p.budgets, p.sweeps = nil, nil, true
	clear(p.full)
}
