package store

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
)

// writer owns the connection that writes.
type writer struct {
	conn        conn
	watches     *watches
	ops         chan operation
	claims      chan *claim
	heard       chan *news // from other processes
	quit        chan struct{}
	once        sync.Once
	stopped     chan struct{}
	err         error // of closing; read after stopped
	serving     bool  // this process delivers: it ends overdue jobs
	latest      int64 // the time of the latest transaction
	polled      int64 // when poll last did something
	tended      int64 // when it last looked for others' deadlines
	searched    int64 // when it last made the lines of all subqueues unknown
	pace        pace
	polling     time.Duration
	share       func(*news)                    // tells other processes; nil: there are none
	mail        mailbox                        // from the writer that stores new jobs
	wanted      atomic.Pointer[map[int64]bool] // in which subqueues claims wait for jobs that are not there
	apart       bool                           // it is that writer
	exclusive   bool                           // its next transaction must be alone nevertheless
	stale       bool                           // another process may have changed the queues
	audited     []forebay.EventType            // of jobs, that the audit log is to have
	clockBack   chan<- struct{}                // hears when the clock has gone back; nil: nobody does
	health      *partHealth                    // told how transactions end
	postponed   []operation                    // of the latest batch, for the next transaction
	backlog     backlog
	company     *company
	appetite    appetite
	checkpoints *checkpoints // nil: none but the database's own

	nextSeq       int64
	reservedSeq   int64              // numbers below it are marked on disk as given
	impatient     []*claim           // parked ones that want an answer at once
	parked        map[int64][]*claim // by subqueue, oldest first
	dueAt         map[int64]int64    // subqueue → when a message of it may become ready; absent: none will
	lines         map[int64]*lines   // of subqueues that somebody has waited for, but for sessions'
	paused        map[int64]bool     // queue numbers
	pausedTenants map[int64]bool
	caps          map[int64]int64            // tenant → how many calls its jobs may have at once
	full          map[int64]int64            // tenant with as many as it may have → until when at least one lock holds
	blocked       map[int64]blocked          // subqueues in which jobs are held
	resting       map[int64]int64            // subqueues of webhooks → until when nothing is sent to their endpoints
	identities    atomic.Pointer[Identities] // see Store.Identify
	known         *Identities                // those that deployments were read for
	deployments   map[string]*deployment     // their states, if this process alone writes them; nil: to be read
	deadline      int64                      // the next deadline, 0: none
	topics        *topicRules
	slow          *slowMessages // to be judged outside of transactions
	followed      *followedTenants
	hourCodes     map[tenantHour]map[string]bool // codes of errors that reports tell apart; nil: none is read yet
	budgets       *budgetSet                     // whose there are; nil: to be read
	sweeps        bool                           // all budgets that jobs wait for are to be looked at
	work          workload
}

func newWriter(c conn, watches *watches, serving bool, share func(*news)) (*writer, error) {
	w := &writer{
		conn: c, watches: watches, serving: serving, share: share,
		ops: make(chan operation, maxBatchOps), claims: make(chan *claim, 64),
		heard: make(chan *news), mail: mailbox{kick: make(chan struct{}, 1)}, quit: make(chan struct{}), stopped: make(chan struct{}), polling: alonePolling, company: &company{},
		parked: map[int64][]*claim{}, dueAt: map[int64]int64{}, lines: map[int64]*lines{}, pausedTenants: map[int64]bool{}, caps: map[int64]int64{}, full: map[int64]int64{}, blocked: map[int64]blocked{}, resting: map[int64]int64{}, paused: map[int64]bool{},
	}
	w.identities.Store(&Identities{})
	if share != nil {
		w.polling = sharedPolling
	}
	return w, w.load()
}

// The first number that no message was ever given.
const sqlNextSeq = `
SELECT max(n) FROM (SELECT coalesce(max(seq), 0) + 1 AS n FROM jobs UNION ALL SELECT coalesce(max(value), 0) FROM counters WHERE name = 'seq') x`

// load reads what the writer keeps in memory.
func (w *writer) load() error {
	if w.share == nil {
		if _, err := w.conn.prep(sqlNextSeq).one(func(r row) { w.nextSeq = r.int(0) }); err != nil {
			return err
		}
	}
	if err := errors.Join(w.loadPaused(), w.loadBudgets(), w.loadPools()); err != nil {
		return err
	}
	var err error
	w.deadline, err = w.conn.nextDeadline()
	return err
}

func (w *writer) loadPaused() error {
	clear(w.paused)
	clear(w.pausedTenants)
	clear(w.caps)
	err := w.conn.prep("SELECT no FROM queues WHERE paused <> 0").each(func(r row) error {
		w.paused[r.int(0)] = true
		return nil
	})
	if err != nil {
		return err
	}
	return w.conn.prep("SELECT no, paused, concurrency FROM tenants WHERE paused <> 0 OR concurrency IS NOT NULL").each(func(r row) error {
		if r.int(1) != 0 {
			w.pausedTenants[r.int(0)] = true
		}
		if most := r.int(2); most > 0 {
			w.caps[r.int(0)] = most
		}
		return nil
	})
}

// refresh reads again what other processes may have changed of the queues.
func (w *writer) refresh() error {
	if !w.stale {
		return nil
	}
	if err := w.loadPaused(); err != nil {
		return err
	}
	if err := w.loadBudgets(); err != nil {
		return err
	}
	gone := map[int64]bool{}
	for subqueue := range w.parked {
		if subqueue >= 0 { // not a session's, whose lock ends by itself
			gone[subqueue/subqueueKinds] = true
		}
	}
	err := w.conn.prep("SELECT no FROM queues WHERE kind <> 'deleting'").each(func(r row) error {
		delete(gone, r.int(0))
		return nil
	})
	if err != nil {
		return err
	}
	for no := range gone {
		w.forgetQueue(no)
	}
	w.stale = false
	return nil
}

func (w *writer) stop() error {
	w.once.Do(func() { close(w.quit) })
	<-w.stopped
	return w.err
}

// run commits one batch after the other until stop.
func (w *writer) run() {
	defer close(w.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(w.untilNextDue())
		batch, ok := w.collect(timer.C)
		if n := w.mail.take(); n != nil {
			w.hear(n)
		}
		w.poll()
		if !ok {
			for len(w.postponed) > 0 {
				_ = w.commit(w.postponed) // their callers are told
			}
			w.shutdown()
			return
		}
		batch = append(w.postponed, batch...)
		w.dismiss(w.commit(batch))
		w.checkpoints.finish(w.conn)
		w.noteWanted()
	}
}

// Polling is behind the wake-ups, should one ever be missed or the clock jump.
const (
	alonePolling  = 30 * time.Second
	sharedPolling = 2 * time.Second // a process that shares a database may miss what others do
	forever       = math.MaxInt64
)

// poll makes every subqueue that is waited for due, if that has not been done for a while.
func (w *writer) poll() {
	at := w.clock()
	if at-w.polled < w.polling.Milliseconds() && at >= w.polled {
		return
	}
	w.polled = at
	since := at - w.searched // or the clock was set back
	w.lookAgain(at-w.tended >= tending.Milliseconds(), since < 0 || since >= w.pace.every(w.polling).Milliseconds())
}

// tending is how often a process that shares a database looks for deadlines that another has stored,
// and has not seen to itself: that one has died.
const tending = 10 * time.Second

// lookAgain makes every subqueue due, what has a deadline if tend is set, and unknown what lines there are if search is.
func (w *writer) lookAgain(tend, search bool) {
	w.budgets, w.sweeps = nil, true
	clear(w.full)
	w.work.distrust(0)
	w.work.stale = w.share != nil
	for subqueue := range w.parked {
		w.dueAt[subqueue] = 0
	}
	if search {
		w.searched = w.clock()
	}
	for subqueue, l := range w.lines { // also for whoever comes to wait
		if w.dueAt[subqueue] = 0; search {
			l.known, l.swept = false, 0
		}
	}
	if w.share != nil {
		w.stale = true
		if w.serving && tend {
			w.deadline, w.tended = 1, w.polled
		}
	}
}

// inexact is by how many milliseconds the clock may be behind the server's: what seems to become ready within them is taken to be so
// already. Taken for later it would have the next look begin at this very moment, before all locks there are and were.
const inexact = 100

// hear takes in what another process has done.
func (w *writer) hear(n *news) {
	for subqueue, numbers := range n.lines {
		known := w.lines[subqueue]
		if known == nil {
			continue
		}
		at, told := n.ready[subqueue] // if it is not, that comes apart
		later, some := n.later[subqueue]
		for no := range numbers {
			known.note(no, at, w.clock()+inexact)
			switch one := known.of[no]; {
			case !told:
				one.waits = 0
			case some:
				one.far = min(one.far, later)
			}
		}
		if numbers == nil { // nor is it known from when on
			known.known, known.swept = false, 0
		}
	}
	for subqueue, ready := range n.ready {
		if ready == roomAgain {
			delete(w.resting, subqueue)
		}
		if w.heeds(subqueue) {
			w.lookBy(subqueue, w.notBefore(subqueue, ready))
		}
	}
	if n.wake > 0 && (w.deadline == 0 || n.wake < w.deadline) {
		w.deadline = n.wake
	}
	if n.slots {
		w.heardOfSlots()
	}
	for pool, at := range n.work {
		w.work.heardOf(pool, at)
	}
	if n.queues || n.missed {
		w.lookAgain(true, true)
	}
}

// untilNextDue returns how long the writer may sleep when nobody calls.
func (w *writer) untilNextDue() time.Duration {
	if len(w.postponed) > 0 || !w.backlog.empty() {
		return 0
	}
	at := w.clock()
	next := max(at, w.polled+w.polling.Milliseconds())
	for subqueue, claims := range w.parked {
		if due, ok := w.dueAt[subqueue]; ok && len(claims) > 0 && !w.paused[subqueue/subqueueKinds] {
			next = min(next, due)
		}
	}
	if w.serving && w.deadline > 0 {
		next = min(next, w.deadline)
	}
	next = min(next, w.work.nextDue())
	return max(0, time.Duration(next-at)*time.Millisecond)
}

// collect waits for the first operation, claim or due time, then takes what else is there, as much as one
// transaction should take. A short yield lets the callers that the last commit woke add theirs.
func (w *writer) collect(timer <-chan time.Time) (batch []operation, ok bool) {
	size, rows := 0, 0
	take := func(op operation) {
		batch = append(batch, op)
		size += op.bytes()
		rows += op.rows()
	}
	add := func(op operation) {
		if party := op.party(); party != 0 {
			w.company.came(party)
			w.backlog.add(party, op)
		} else {
			take(op)
		}
	}
	if !w.backlog.empty() {
		timer = closedTimer
	}
	select {
	case op := <-w.ops:
		add(op)
	case c := <-w.claims:
		w.park(c)
	case n := <-w.heard:
		w.hear(n)
	case <-w.mail.kick:
	case <-timer:
	case <-w.quit:
		return nil, false
	}
	yielded := false
	most := w.followed.mostOps()
	for taking := true; taking && len(batch) < most && size < maxBatchBytes; {
		select {
		case op := <-w.ops:
			add(op)
		case c := <-w.claims:
			w.park(c)
		default:
			if taking = !yielded; taking {
				yielded = true
				runtime.Gosched()
			}
		}
	}
	// What came at once leaves at least half of the transaction to those who wait.
	enough := w.appetite.rows(w.company.now())
	enough = max(enough, rows+enough/2)
	w.backlog.take(func() bool { return len(batch) < most && rows < enough && size < maxBatchBytes }, take)
	return batch, true
}

// closedTimer is one whose time has come.
var closedTimer = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// clock is the database's time, about.
func (w *writer) clock() int64 {
	if w.share != nil {
		return w.conn.now() // which is corrected by the server's with each transaction
	}
	return w.tick(w.conn.now())
}

// tick does not follow a clock that steps back a little, for then what is ready would have to wait
// again.
func (w *writer) tick(at int64) int64 {
	if behind := w.latest - at; behind > 0 && behind < steppedBack {
		return w.latest
	}
	w.noticeClock(at)
	return at
}

// heeds reports whether it matters when a subqueue is worth a look: not before somebody has waited for it, for
// the first to come looks anyway; and of a session's only while somebody waits for its messages.
func (w *writer) heeds(subqueue int64) bool {
	if subqueue < 0 {
		return len(w.parked[subqueue]) > 0
	}
	return w.lines[subqueue] != nil
}

// notBefore returns when to look at a subqueue in which something becomes ready at that time.
func (w *writer) notBefore(subqueue, at int64) int64 {
	return max(at, w.blocked[subqueue].until, w.rests(subqueue))
}

// rests returns until when a subqueue need not be looked at, because its webhook's endpoint is left alone and nobody else waits; 0: it is
// not so.
func (w *writer) rests(subqueue int64) int64 {
	until, ok := w.resting[subqueue]
	if !ok || slices.ContainsFunc(w.parked[subqueue], func(c *claim) bool { return c.waits() && !c.delivers() }) {
		return 0
	}
	return until
}

// lookBy notes that a subqueue is worth another look at that time.
func (w *writer) lookBy(subqueue, at int64) {
	if due, ok := w.dueAt[subqueue]; !ok || at < due {
		w.dueAt[subqueue] = at
	}
}

func (w *writer) anythingDue() bool {
	at := w.clock()
	if w.stale || w.serving && w.deadline > 0 && w.deadline <= at || w.work.nextDue() <= at {
		return true
	}
	for subqueue, claims := range w.parked {
		if due, ok := w.dueAt[subqueue]; ok && due <= at && len(claims) > 0 && !w.paused[subqueue/subqueueKinds] {
			return true
		}
	}
	return false
}

// shutdown refuses what is still waiting and closes the connection.
func (w *writer) shutdown() {
	w.backlog.take(func() bool { return true }, func(op operation) { op.finish(errClosed) })
	for {
		select {
		case op := <-w.ops:
			op.finish(errClosed)
			continue
		case c := <-w.claims:
			w.park(c)
			continue
		default:
		}
		break
	}
	for _, claims := range w.parked {
		for _, c := range claims {
			c.refuse(errClosed)
		}
	}
	for _, c := range w.work.parked {
		c.refuse(errClosed)
	}
	w.err = w.conn.Close()
}
