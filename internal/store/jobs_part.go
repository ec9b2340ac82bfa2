package store

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/forebayhq/forebay"
)

// jobsPart finds jobs for those who claim some, and ends those whose deadline has passed.
type jobsPart struct {
	*writer
	waiting[*claim]
	queue         *queuePart
	admission     *admissionPart
	store         *JobStore
	lines         map[Subqueue]*lines // of subqueues that somebody has waited for
	blocked       map[Subqueue]blocked
	pausedTenants map[int64]bool
	deadline      int64 // the next deadline; 0: none
	tended        int64 // when it last looked for others' deadlines
	searched      int64 // when it last made the lines of all subqueues unknown
	pace          pace
	wanted        atomic.Pointer[map[Subqueue]bool] // in which subqueues claims wait for jobs that are not there
	hourCodes     map[tenantHour]map[string]bool    // codes of errors that reports tell apart; nil: none is read yet
}

// jobsTx is its part of a transaction.
type jobsTx struct {
	*tx
	w         *jobsPart
	queue     *queueTx
	admission *admissionTx
	wake      int64                    // the earliest new deadline; 0: none
	fresh     map[Subqueue][]candidate // new jobs whose messages are not stored yet; nil: store them at once
	looks     []*look                  // made as it began
	anew      int                      // how many of its looks began from the very beginning
	ended     bool                     // jobs whose deadline had passed were
	served    []*claim
	leaving   []leaving           // jobs that have ended and are in their sessions still
	turns     map[jobSession]turn // of the jobs that are being submitted; nil: ask
	audited   []event             // that the audit log does not have yet
	hours     map[hourKey]hourSum // what reports count of the attempts that it records
	tally     JobTally
}

// Words of jobs.
const (
	wordLine      wordKind = 'l' // of a subqueue a line in which a message became ready
	wordLater     wordKind = 't' // of a subqueue when the first of those is ready that are not yet
	wordCancelled wordKind = 'x' // the token of a lock that a cancel voided
	wordDeadline  wordKind = 'd' // the earliest new deadline, for the writers of this process
)

func newJobsPart(w *writer, queue *queuePart, admission *admissionPart, store *JobStore) *jobsPart {
	p := &jobsPart{writer: w, waiting: newWaiting[*claim](), queue: queue, admission: admission, store: store,
		lines: map[Subqueue]*lines{}, blocked: map[Subqueue]blocked{}, pausedTenants: map[int64]bool{}}
	queue.sets = append(queue.sets, p)
	w.racing["idempotency"] = true
	return p
}

func newJobsTx(t *tx, p *jobsPart) *jobsTx {
	j := &jobsTx{tx: t, w: p, queue: queueKey.of(t), admission: admissionKey.of(t)}
	if t.withDue {
		j.fresh = map[Subqueue][]candidate{}
	}
	return j
}

func (p *jobsPart) load() error {
	err := p.loadPausedTenants()
	if err == nil {
		p.deadline, err = nextDeadline(p.conn)
	}
	return err
}

func (p *jobsPart) loadPausedTenants() error {
	clear(p.pausedTenants)
	return p.conn.prep("SELECT no FROM tenants WHERE paused <> 0").each(func(r row) error {
		p.pausedTenants[r.int(0)] = true
		return nil
	})
}

func (p *jobsPart) refresh() error { return p.loadPausedTenants() }

func (p *jobsPart) lookAgain(all bool) {
	p.allDue(0)
	at := p.clock()
	if since := at - p.searched; all || since < 0 || since >= p.pace.every(p.polling).Milliseconds() {
		p.searched = at
		for _, l := range p.lines {
			l.known, l.swept = false, 0
		}
	}
	if p.serving && (all || p.shared() && at-p.tended >= tending.Milliseconds()) {
		p.deadline, p.tended = 1, at
	}
}

func (p *jobsPart) notified(n *notification) {
	n.each(wordLine, func(subqueue, no, _ int64) {
		known := p.lines[Subqueue(subqueue)]
		if known == nil {
			return
		}
		at, told := n.words[word{wordReady, subqueue, 0}]
		known.note(no, at, p.clock()+inexact)
		one := known.of[no]
		if !told { // that comes apart
			one.waits = 0
		} else if later, some := n.words[word{wordLater, subqueue, 0}]; some {
			one.far = min(one.far, later)
		}
	})
	if n.many[wordLine] {
		for _, l := range p.lines {
			l.known, l.swept = false, 0
		}
	}
	n.each(wordDeadline, func(_, _, at int64) { p.deadlineBy(at) })
}

// deadlineBy notes that there is a deadline at that time.
func (p *jobsPart) deadlineBy(at int64) {
	if at > 0 && (p.deadline == 0 || at < p.deadline) {
		p.deadline = at
	}
}

func (p *jobsPart) ready(subqueue Subqueue, at int64) {
	if p.heeds(subqueue) {
		p.lookBy(subqueue, max(at, p.blocked[subqueue].until))
	}
}

func (p *jobsPart) nextDue(int64) int64 {
	next := p.waiting.nextDue(p.queue.paused)
	if p.serving && p.deadline > 0 {
		next = min(next, p.deadline)
	}
	return next
}

// mayStoreBeside says that new jobs are only rows: subscribers of events would get copies, and the audit log has one
// order.
func (p *jobsPart) mayStoreBeside() bool {
	return !slices.Contains(p.store.audited, forebay.EventAccepted)
}

// opens makes the looks that a transaction can make as it begins, because its operations leave alone what waits in
// subqueues.
func (p *jobsPart) opens(t *tx, _ []operation, local bool) (questions []question) {
	if !local {
		return nil
	}
	now := p.clock()
	for subqueue, claims := range p.parked {
		if p.due(subqueue, now) && !p.queue.paused[subqueue.Queue()] && p.linesOf(subqueue).known {
			l, j := p.newLook(subqueue, claims, now), jobsKey.of(t)
			j.looks = append(j.looks, l)
			questions = append(questions, l.questions()...)
			if len(l.lines.called) > 0 {
				questions = append(questions, j.admission.statesOf(l.lines.called)...)
			}
		}
	}
	return questions
}

func (p *jobsPart) stageEnded(t *tx, at stage) error {
	j := jobsKey.begun(t)
	if j == nil {
		return nil
	}
	if err := j.passTurns(); err != nil {
		return err
	}
	return j.auditEvents()
}

func (p *jobsPart) serve(t *tx) error {
	j := jobsKey.of(t)
	if err := p.expireDue(j); err != nil {
		return err
	}
	if err := p.serveClaims(j); err != nil {
		return err
	}
	return j.auditEvents()
}

func (p *jobsPart) closes(t *tx) error {
	if j := jobsKey.begun(t); j != nil {
		return errors.Join(j.auditEvents(), j.storeHours())
	}
	return nil
}

func (p *jobsPart) committed(t *tx) {
	j := jobsKey.begun(t)
	if j == nil {
		p.pace.note(t.took, 0)
		return
	}
	p.pace.note(t.took, j.anew)
	p.deadlineBy(j.wake)
	for _, c := range j.served {
		c.deliver()
	}
	p.store.tallies.tell(j.tally)
	if p.shared() {
		if j.wake > 0 {
			t.notify(wordDeadline, 0, 0, j.wake)
		}
	}
}

func (p *jobsPart) rolledBack(t *tx, at int64) {
	if j := jobsKey.begun(t); j != nil {
		for _, c := range j.served {
			c.unserve()
		}
	}
	clear(p.blocked)
	for subqueue := range p.lines {
		p.lines[subqueue] = newLines()
	}
	p.allDue(at)
	p.deadline = at
}

// roundEnded tells in which subqueues claims wait for jobs that are not there.
func (p *jobsPart) roundEnded(error) {
	if !p.shared() {
		return
	}
	var now map[Subqueue]bool
	for subqueue, claims := range p.parked {
		_, blocked := p.blocked[subqueue]
		if subqueue.Kind() == SubqueueMain && !blocked && slices.ContainsFunc(claims, (*claim).waits) {
			if now == nil {
				now = map[Subqueue]bool{}
			}
			now[subqueue] = true
		}
	}
	if before := p.wanted.Load(); before == nil || !maps.Equal(*before, now) {
		p.wanted.Store(&now)
	}
}

func (p *jobsPart) takeOver(t *tx) error {
	j := jobsKey.of(t)
	return errors.Join(j.releaseOrphans(), j.endHolds())
}

// unblock has subqueues looked at again in which jobs are held: for the deployment of that name; "": for any.
func (p *jobsPart) unblock(deployment string, at int64) {
	for subqueue, b := range p.blocked {
		if deployment == "" || slices.Contains(b.by, deployment) {
			p.lookBy(subqueue, max(at, b.since+heldPause))
		}
	}
}

// mayGo makes the subqueues due in which these tenants have jobs, also for whoever comes to wait.
func (p *jobsPart) mayGo(tenants map[int64]int64) {
	if len(tenants) == 0 {
		return
	}
	for subqueue, l := range p.lines {
		for no := range l.of {
			if _, ok := tenants[tenantOfLine(no)]; ok {
				p.dueAt[subqueue] = 0
				break
			}
		}
	}
}

// released notes that jobs that waited for a budget are ready at that time.
func (p *jobsPart) released(t *tx, subqueue Subqueue, line, at int64, seqs ...int64) {
	j := jobsKey.of(t)
	j.due(subqueue, line, at)
	for _, seq := range seqs {
		j.changed(seq)
	}
}

// restsUntil is until when none of a tenant's jobs is delivered; 0: they are.
func (p *jobsPart) restsUntil(tenant int64) int64 {
	if p.pausedTenants[tenant] {
		return never
	}
	return p.admission.full[tenant]
}

// due notes that a message of that line of the subqueue can be delivered from that time on.
func (t *jobsTx) due(subqueue Subqueue, line, at int64) {
	if known := t.w.lines[subqueue]; known != nil {
		known.note(line, at, t.now)
	}
	if t.notify(wordLine, int64(subqueue), line, 0); at > t.now {
		t.notify(wordLater, int64(subqueue), 0, at)
	}
	t.queue.wakes(subqueue, at)
}
