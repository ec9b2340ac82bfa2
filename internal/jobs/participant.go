package jobs

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/jobs/clockmend"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/queue"
)

// participant serves claims for jobs, and ends jobs whose deadline has passed.
type participant struct {
	*db.Writer
	queue.Waiting[*claim]
	queue           *queue.Participant
	admission       *admission.Participant
	store           *Store
	flows           map[queue.Subqueue]*flows.Set // of subqueues that somebody has waited for
	blocked         map[queue.Subqueue]blocked
	deadline        int64 // the next deadline; 0: none
	tendedAt        int64 // when it last looked for deadlines that other processes stored
	searchedAt      int64 // when it last forgot the flows of all subqueues
	pace            flows.Pace
	wantedSubqueues atomic.Pointer[map[queue.Subqueue]bool] // main subqueues where claims wait in vain
}

// Tx is its part of a transaction. Four subjects have types of their own: claimTx, sessionTx,
// budgetTx and concurrencyTx.
type Tx struct {
	*db.Tx
	w         *participant
	Queue     *queue.Tx
	admission *admission.Tx
	wake      int64                          // the earliest new deadline; 0: none
	newJobs   map[queue.Subqueue][]candidate // new jobs whose messages are not stored yet; nil: store them at once
	scans     []*scan                        // that it has made ahead
	fullScans int                            // how many of its scans were full ones
	ended     map[int64]bool                 // jobs that it has ended and that no operation has named
	served    []*claim
	leaving   []leaving                  // jobs that have ended and are still in their sessions
	rejoining []rejoining                // redriven jobs that are not in their sessions yet
	turns     map[jobSession]turn        // of the jobs that are being submitted; nil: read them
	audited   []events.Event             // events that the audit log does not have yet
	published []events.Event             // events that subscribers do not have yet
	answers   []events.Answer            // that were not sent yet
	unsent    []event                    // what is told of each of them if it cannot be sent
	spent     map[int64]admission.Amount // what jobs have used; what is not there was not read
	tally     events.Tally
	// unmeasured has the attempts that it has recorded without knowing what they used, by job.
	unmeasured map[int64]counted
}

// Kinds of notifications about jobs.
var (
	wordFlow      = db.NewWordKind('l', db.ToAllFirst) // subqueue and flow in which a message became ready
	wordLater     = db.NewWordKind('t', db.ToAll)      // subqueue, and when the first of the flows' later messages is ready
	wordCancelled = db.NewWordKind('x', db.ToAllAgain) // the token of a lock that a cancel voided
	wordDeadline  = db.NewWordKind('d', db.ToWriters)  // the earliest new deadline
)

func newJobsPart(w *db.Writer, queues *queue.Participant, admission *admission.Participant, store *Store) *participant {
	p := &participant{Writer: w, Waiting: queue.NewWaiting[*claim](), queue: queues, admission: admission, store: store,
		flows: map[queue.Subqueue]*flows.Set{}, blocked: map[queue.Subqueue]blocked{}}
	queues.Sets = append(queues.Sets, p)
	w.Racing["idempotency"] = true
	return p
}

func newJobsTx(t *db.Tx, p *participant) *Tx {
	j := &Tx{Tx: t, w: p, Queue: queue.Key.Of(t), admission: admission.Key.Of(t)}
	if t.WithDue {
		j.newJobs = map[queue.Subqueue][]candidate{}
	}
	return j
}

func (p *participant) Load() (err error) {
	p.deadline, err = nextDeadline(p.Conn)
	return err
}

func (p *participant) MarkAllDue(all bool) {
	p.AllDue(0)
	at := p.Clock()
	if since := at - p.searchedAt; all || since < 0 || since >= p.pace.Every(p.Polling).Milliseconds() {
		p.searchedAt = at
		for _, l := range p.flows {
			l.Forget()
		}
	}
	if p.Serving && (all || p.Shared() && at-p.tendedAt >= db.Tending.Milliseconds()) {
		p.deadline, p.tendedAt = 1, at
	}
}

func (p *participant) Notified(n *db.Notification) {
	n.Each(wordFlow, func(subqueue, no, _ int64) {
		known := p.flows[queue.Subqueue(subqueue)]
		if known == nil {
			return
		}
		at, timed := n.Words[db.Word{Kind: queue.WordReady, A: subqueue, B: 0}]
		known.Note(no, at, p.Clock()+db.Inexact)
		one := known.Flows[no]
		if !timed { // the time comes in another notification
			one.SeenNext = 0
		} else if later, some := n.Words[db.Word{Kind: wordLater, A: subqueue, B: 0}]; some {
			one.NewNext = min(one.NewNext, later)
		}
	})
	if n.Many[wordFlow] {
		for _, l := range p.flows {
			l.Forget()
		}
	}
	n.Each(wordDeadline, func(_, _, at int64) { p.deadlineBy(at) })
}

// deadlineBy records that there is a deadline at that time.
func (p *participant) deadlineBy(at int64) {
	if at > 0 && (p.deadline == 0 || at < p.deadline) {
		p.deadline = at
	}
}

func (p *participant) Ready(subqueue queue.Subqueue, at int64) {
	if p.Tracks(subqueue) {
		p.ScanAt(subqueue, max(at, p.blocked[subqueue].until))
	}
}

func (p *participant) NextDue(int64) int64 {
	next := p.Waiting.NextDue(p.queue.Paused)
	if p.Serving && p.deadline > 0 {
		next = min(next, p.deadline)
	}
	return next
}

// MayStoreBeside reports whether new jobs are nothing but rows. They are not if accepting one is
// audited: the audit log has one order.
func (p *participant) MayStoreBeside() bool {
	return !slices.Contains(p.store.Audited, forebay.EventAccepted)
}

// Opens prepares the scans that a transaction can make as it begins. That works if its operations
// leave alone what waits in subqueues.
func (p *participant) Opens(t *db.Tx, _ []db.Operation, local bool) (questions []driver.PipelineQuery) {
	if !local {
		return nil
	}
	now := p.Clock()
	for subqueue, claims := range p.Waiters {
		if p.Due(subqueue, now) && !p.queue.Paused[subqueue.Queue()] && p.flowsOf(subqueue).Known {
			l, j := p.newScan(subqueue, claims, now), Key.Of(t)
			j.scans = append(j.scans, l)
			questions = append(questions, l.queries()...)
			if len(l.flows.Called) > 0 {
				questions = append(questions, j.admission.StatesOf(l.flows.Called)...)
			}
		}
	}
	return questions
}

func (p *participant) StageEnded(t *db.Tx, at db.Stage) error {
	j := Key.Begun(t)
	if j == nil {
		return nil
	}
	if at == db.StageChange { // what was settled before may be changed in the same transaction
		if err := j.sessions().passTurns(); err != nil {
			return err
		}
	}
	return errors.Join(j.sessions().rejoin(), j.auditEvents())
}

func (p *participant) OperationsEnded(t *db.Tx) error {
	if j := Key.Begun(t); j != nil {
		return j.tellEvents()
	}
	return nil
}

func (p *participant) Serve(t *db.Tx) error {
	j := Key.Of(t)
	err := p.expireDue(j)
	if err == nil {
		err = j.admission.ResumeWaiting()
	}
	if err := errors.Join(err, j.sendAnswers()); err != nil { // a claim counts the events that answers add
		return err
	}
	return p.ServeVolatile(t)
}

// ServeVolatile serves claims for queues whose jobs may be lost to a loss of power.
func (p *participant) ServeVolatile(t *db.Tx) error {
	j := Key.Of(t)
	if err := p.serveClaims(j.claims()); err != nil {
		return err
	}
	return errors.Join(j.sessions().passTurns(), j.TellEvents())
}

func (p *participant) Closes(t *db.Tx) error {
	if j := Key.Begun(t); j != nil {
		return errors.Join(j.sessions().passTurns(), j.TellEvents())
	}
	return nil
}

func (p *participant) Committed(t *db.Tx) {
	j := Key.Begun(t)
	if j == nil {
		p.pace.Note(t.Took, 0)
		return
	}
	p.pace.Note(t.Took, j.fullScans)
	p.deadlineBy(j.wake)
	for _, c := range j.served {
		c.Deliver()
	}
	p.store.tallies.Notify(j.tally)
	if p.Shared() {
		if j.wake > 0 {
			t.Notify(wordDeadline, 0, 0, j.wake)
		}
	}
}

func (p *participant) Invalidate(t *db.Tx, at int64) {
	if j := Key.Begun(t); j != nil {
		for _, c := range j.served {
			c.unserve()
		}
	}
	clear(p.blocked)
	for subqueue := range p.flows {
		p.flows[subqueue] = flows.NewSet()
	}
	p.AllDue(at)
	p.deadline = at
}

// RoundEnded publishes in which subqueues claims wait in vain.
func (p *participant) RoundEnded(error) {
	if !p.Shared() {
		return
	}
	var now map[queue.Subqueue]bool
	for subqueue, claims := range p.Waiters {
		_, blocked := p.blocked[subqueue]
		if subqueue.Kind() == queue.SubqueueMain && !blocked && slices.ContainsFunc(claims, (*claim).Waits) {
			if now == nil {
				now = map[queue.Subqueue]bool{}
			}
			now[subqueue] = true
		}
	}
	if before := p.wantedSubqueues.Load(); before == nil || !maps.Equal(*before, now) {
		p.wantedSubqueues.Store(&now)
	}
}

// ClockMend repairs what a clock that was ahead has left of jobs.
func (p *participant) ClockMend() db.ClockMend { return clockmend.Jobs() }

func (p *participant) TakeOver(t *db.Tx) error {
	j := Key.Of(t)
	return errors.Join(j.claims().releaseOrphans(), j.sessions().endHolds())
}

// Unblock has subqueues scanned again in which jobs are held for that deployment; "": for any.
func (p *participant) Unblock(deployment string, at int64) {
	for subqueue, b := range p.blocked {
		if deployment == "" || slices.Contains(b.by, deployment) {
			p.ScanAt(subqueue, max(at, b.since+heldPause))
		}
	}
}

// MayGo has the subqueues scanned in which these tenants have jobs, now or for the next claim.
func (p *participant) MayGo(tenants map[int64]int64) {
	if len(tenants) == 0 {
		return
	}
	for subqueue, l := range p.flows {
		for no := range l.Flows {
			if _, ok := tenants[flows.TenantOf(no)]; ok {
				p.DueAt[subqueue] = 0
				break
			}
		}
	}
}

// Released records that jobs which waited for a budget are ready at that time.
func (p *participant) Released(t *db.Tx, subqueue queue.Subqueue, flow, at int64, seqs ...int64) {
	j := Key.Of(t)
	j.Due(subqueue, flow, at)
	for _, seq := range seqs {
		j.Changed(seq)
	}
}

// restsUntil is when a tenant's jobs may be delivered again; 0: now.
func (p *participant) restsUntil(tenant int64) int64 {
	if p.queue.PausedTenants[tenant] {
		return db.Never
	}
	return p.admission.Full[tenant]
}

// Due records that a message of the flow can be delivered from that time on.
func (t *Tx) Due(subqueue queue.Subqueue, flow, at int64) {
	if known := t.w.flows[subqueue]; known != nil {
		known.Note(flow, at, t.Now)
	}
	if t.Notify(wordFlow, int64(subqueue), flow, 0); at > t.Now {
		t.Notify(wordLater, int64(subqueue), 0, at)
	}
	t.Queue.WakeAt(subqueue, at)
}
