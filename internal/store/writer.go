package store

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
)

// A transaction runs what makes messages ready before what takes them: a job submitted in a batch
// can be delivered in the same commit.
type stage int

const (
	stageSettle stage = iota
	stageChange
	stageSubmit // last, so that nothing comes between a new job and whoever waits for it
	stages
)

// Bounds of one transaction.
const (
	maxBatchOps   = 1024
	maxBatchBytes = 16 << 20
)

// operation is one caller's part of a transaction.
type operation interface {
	stage() stage
	needs(*needs)
	plain() bool // it only stores new jobs, or settles what needs tells
	key() string // the first idempotency key of what it stores; "": there is none
	bytes() int
	apply(*tx) error // an error that is not a *forebay.Error rolls the whole transaction back
	finish(error)    // the commit's outcome; called once
}

// request is an operation that gives its caller a T.
type request[T any] struct {
	at     stage
	seq    int64            // the message whose lock it settles; 0: none
	token  int64            // of that lock, if the message goes with it; 0: it may stay
	new    int              // messages that it stores
	keys   []idempotencyKey // that may have made these before
	told   string           // the deployment that it tells of what came of a call
	size   int
	run    func(*tx) (T, error)
	result T
	err    error
	done   chan struct{}
}

func (r *request[T]) stage() stage { return r.at }

func (r *request[T]) needs(n *needs) {
	n.numbers += r.new
	n.keys = append(n.keys, r.keys...)
	switch {
	case r.token != 0:
		n.ends = append(n.ends, Lock{Seq: r.seq, Token: r.token})
	case r.seq != 0:
		n.locks = append(n.locks, r.seq)
	}
	if r.told != "" {
		n.states = append(n.states, r.told)
	}
}
func (r *request[T]) plain() bool { return r.new > 0 || r.seq != 0 || r.told != "" }
func (r *request[T]) bytes() int  { return r.size }

func (r *request[T]) key() string {
	if len(r.keys) == 0 {
		return ""
	}
	return r.keys[0].key
}

func (r *request[T]) apply(t *tx) error {
	r.result, r.err = r.run(t)
	var refused *forebay.Error
	if r.err != nil && !errors.As(r.err, &refused) {
		return r.err
	}
	return nil
}

func (r *request[T]) finish(err error) {
	if err != nil { // of the commit, perhaps: then nobody knows whether the result became true
		var zero T
		r.result, r.err = zero, err
	}
	close(r.done)
}

// transact runs f in the writer's next transaction and returns once that is on disk. f may run more
// than once, but takes effect once. A *forebay.Error from f fails this caller alone, and f must not
// have changed anything by then. When ctx ends first the outcome is unknown to the caller.
func transact[T any](ctx context.Context, s *Store, at stage, f func(*tx) (T, error)) (T, error) {
	return transactSized(ctx, s, at, 0, f)
}

// transactSized is transact for an operation that carries so many bytes of payload.
func transactSized[T any](ctx context.Context, s *Store, at stage, size int, f func(*tx) (T, error)) (T, error) {
	return perform(ctx, s, &request[T]{at: at, size: size, run: f, done: make(chan struct{})})
}

// perform hands a request to the writer and waits for its outcome.
func perform[T any](ctx context.Context, s *Store, r *request[T]) (T, error) {
	return performBy(ctx, s.writer, r)
}

func performBy[T any](ctx context.Context, w *writer, r *request[T]) (T, error) {
	var zero T
	select {
	case w.ops <- r:
	case <-w.stopped:
		return zero, errClosed
	case <-ctx.Done():
		return zero, ctx.Err()
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-w.stopped:
		select {
		case <-r.done:
		default:
			return zero, errClosed // it came too late to be taken
		}
	}
	return r.result, w.conn.domainError(r.err)
}

var errClosed = forebay.Errorf(forebay.CodeUnavailable, "the server is stopping; try again")

// tx is the transaction under way. Its bookkeeping takes effect only when it commits.
type tx struct {
	conn
	w       *writer
	touched []int64               // jobs that changed, for watchers
	ready   map[int64]int64       // lane → earliest time at which a message of it became ready
	wake    int64                 // the earliest new deadline; 0: none
	after   []func()              // to run once committed
	fresh   map[int64][]candidate // lane → new jobs whose messages are not stored yet; nil: store them at once
	news    news                  // for the other processes, beside what follows from the above
	needs
	ended  bool // jobs whose deadline had passed were
	start       // what was asked at the beginning and was not used yet
	topics topicMemory
	served []*workClaim   // claims of work that this transaction serves
	woken  map[int64]bool // orchestrations that it has made ready
	pools  map[Pool]int64 // of work, that it has looked up or made

	sessions sessionMemory
	budgets  budgetMemory
	slots    map[string]*slotUse // by holder; nil: not read yet
	tally    Tally
}

// changed notes that a job changed.
func (t *tx) changed(seq int64) { t.touched = append(t.touched, seq) }

// due notes that a message of that line of the lane can be delivered from that time on; line 0: of a lane
// that is not for jobs.
func (t *tx) due(lane Lane, line, at int64) {
	l := int64(lane)
	if known := t.w.lines[l]; known != nil && line > 0 {
		known.note(line, at)
	}
	if line > 0 && t.w.share != nil {
		t.news.addLine(l, line)
	}
	t.wakes(l, at)
}

// wakes notes that whoever waits for the lane is to look at it from that time on.
func (t *tx) wakes(lane, at int64) {
	if earliest, ok := t.ready[lane]; !ok || at < earliest {
		t.ready[lane] = at
	}
	if t.w.heeds(lane) {
		t.w.lookBy(lane, max(at, t.w.blocked[lane].until))
	}
}

// writer owns the connection that writes.
type writer struct {
	conn      conn
	watches   *watches
	ops       chan operation
	claims    chan *claim
	heard     chan *news // from other processes
	quit      chan struct{}
	once      sync.Once
	stopped   chan struct{}
	err       error // of closing; read after stopped
	serving   bool  // this process delivers: it ends overdue jobs
	latest    int64 // the time of the latest transaction
	polled    int64 // when poll last did something
	tended    int64 // when it last looked for others' deadlines
	polling   time.Duration
	share     func(*news)                    // tells other processes; nil: there are none
	mail      mailbox                        // from the writer that stores new jobs
	wanted    atomic.Pointer[map[int64]bool] // in which lanes claims wait for jobs that are not there
	apart     bool                           // it is that writer
	exclusive bool                           // its next transaction must be alone nevertheless
	stale     bool                           // another process may have changed the queues

	nextSeq       int64
	reservedSeq   int64              // numbers below it are marked on disk as given
	impatient     []*claim           // parked ones that want an answer at once
	parked        map[int64][]*claim // by lane, oldest first
	dueAt         map[int64]int64    // lane → when a message of it may become ready; absent: none will
	lines         map[int64]*lines   // of lanes that somebody has waited for, but for sessions'
	paused        map[int64]bool     // queue numbers
	pausedTenants map[int64]bool
	caps          map[int64]int64        // tenant → how many calls its jobs may have at once
	full          map[int64]int64        // tenant with as many as it may have → until when at least one lock holds
	blocked       map[int64]blocked      // lanes in which jobs are held
	deployments   map[string]*deployment // their states, if this process alone writes them; nil: to be read
	deadline      int64                  // the next deadline, 0: none
	topics        map[int64]*compiledTopic
	followed      *followedTenants
	budgets       *budgetSet // whose there are; nil: to be read
	sweeps        bool       // all budgets that jobs wait for are to be looked at
	work          workload
}

func newWriter(c conn, watches *watches, serving bool, share func(*news)) (*writer, error) {
	w := &writer{
		conn: c, watches: watches, serving: serving, share: share,
		ops: make(chan operation, maxBatchOps), claims: make(chan *claim, 64),
		heard: make(chan *news), mail: mailbox{kick: make(chan struct{}, 1)}, quit: make(chan struct{}), stopped: make(chan struct{}), polling: alonePolling,
		parked: map[int64][]*claim{}, dueAt: map[int64]int64{}, lines: map[int64]*lines{}, pausedTenants: map[int64]bool{}, caps: map[int64]int64{}, full: map[int64]int64{}, blocked: map[int64]blocked{}, paused: map[int64]bool{}, topics: map[int64]*compiledTopic{},
	}
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
	for lane := range w.parked {
		if lane >= 0 { // not a session's, whose lock ends by itself
			gone[lane/laneKinds] = true
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
			w.shutdown()
			return
		}
		w.dismiss(w.commit(batch))
		w.noteWanted()
	}
}

// Polling is behind the wake-ups, should one ever be missed or the clock jump.
const (
	alonePolling  = 30 * time.Second
	sharedPolling = 2 * time.Second // a process that shares a database may miss what others do
	forever       = math.MaxInt64
)

// poll makes every lane that is waited for due, if that has not been done for a while.
func (w *writer) poll() {
	at := w.clock()
	if at-w.polled < w.polling.Milliseconds() && at >= w.polled {
		return
	}
	w.polled = at
	w.lookAgain(at-w.tended >= tending.Milliseconds())
}

// tending is how often a process that shares a database looks for deadlines that another has stored,
// and has not seen to itself: that one has died.
const tending = 10 * time.Second

// lookAgain makes every lane due, and what has a deadline if tend is set.
func (w *writer) lookAgain(tend bool) {
	w.budgets, w.sweeps = nil, true
	clear(w.full)
	w.work.distrust(0)
	w.work.stale = w.share != nil
	for lane := range w.parked {
		w.dueAt[lane] = 0
	}
	for lane, l := range w.lines { // also for whoever comes to wait
		l.known, l.swept, w.dueAt[lane] = false, 0, 0
	}
	if w.share != nil {
		w.stale = true
		if w.serving && tend {
			w.deadline, w.tended = 1, w.polled
		}
	}
}

// hear takes in what another process has done.
func (w *writer) hear(n *news) {
	for lane, numbers := range n.lines {
		known := w.lines[lane]
		if known == nil {
			continue
		}
		for no := range numbers {
			known.note(no, n.ready[lane]) // 0: that is told apart
		}
		if numbers == nil { // nor is it known from when on
			known.known, known.swept = false, 0
		}
	}
	for lane, ready := range n.ready {
		if w.heeds(lane) {
			w.lookBy(lane, max(ready, w.blocked[lane].until))
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
		w.lookAgain(true)
	}
}

// untilNextDue returns how long the writer may sleep when nobody calls.
func (w *writer) untilNextDue() time.Duration {
	at := w.clock()
	next := max(at, w.polled+w.polling.Milliseconds())
	for lane, claims := range w.parked {
		if due, ok := w.dueAt[lane]; ok && len(claims) > 0 && !w.paused[lane/laneKinds] {
			next = min(next, due)
		}
	}
	if w.serving && w.deadline > 0 {
		next = min(next, w.deadline)
	}
	next = min(next, w.work.nextDue())
	return max(0, time.Duration(next-at)*time.Millisecond)
}

// collect waits for the first operation, claim or due time, then takes what else is there. A short
// yield lets the callers that the last commit woke add theirs.
func (w *writer) collect(timer <-chan time.Time) (batch []operation, ok bool) {
	size := 0
	add := func(op operation) {
		batch = append(batch, op)
		size += op.bytes()
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
	for len(batch) < maxBatchOps && size < maxBatchBytes {
		select {
		case op := <-w.ops:
			add(op)
		case c := <-w.claims:
			w.park(c)
		default:
			if yielded {
				return batch, true
			}
			yielded = true
			runtime.Gosched()
		}
	}
	return batch, true
}

// commit runs the batch, and what is due, in one transaction. If that breaks, though the disk works,
// each operation runs in a transaction of its own, so that only the culprit fails; and if the culprit
// was what is due, the claims that waited for it are refused, so that their callers know. It returns
// how the last transaction ended.
func (w *writer) commit(batch []operation) error {
	background, err := w.transactionOrAgain(batch, true)
	switch {
	case err == nil || !w.isolates(err) || len(batch) == 1 && !background:
		for _, op := range batch {
			op.finish(err)
		}
	default:
		for _, op := range batch {
			_, opErr := w.transactionOrAgain([]operation{op}, false)
			op.finish(opErr)
		}
	}
	if err != nil && background && w.isolates(err) {
		w.refuseDue(err)
	}
	return err
}

// refuseDue answers the claims of all lanes that are due with an error.
func (w *writer) refuseDue(err error) {
	for lane, claims := range w.parked {
		if w.paused[lane/laneKinds] {
			continue
		}
		for _, c := range claims {
			c.refuse(err)
		}
		w.leave(lane)
	}
	for _, c := range w.work.parked {
		c.refuse(err)
	}
	w.work.parked = nil
}

// isolates reports whether trying the operations one by one can help: not when the disk fails.
func (w *writer) isolates(err error) bool {
	var refused *forebay.Error
	return !errors.As(w.conn.domainError(err), &refused)
}

// transactionOrAgain is transaction, again if another that ran beside it came first, or if it must be alone.
func (w *writer) transactionOrAgain(batch []operation, withDue bool) (background bool, err error) {
	const tries = 4
	defer func() { w.exclusive = false }()
	for n := 1; ; n++ {
		if background, err = w.transaction(batch, withDue); !takesAnother(err) || n == tries {
			return background, err
		}
		w.exclusive = errors.Is(err, errNotAlone)
	}
}

// transaction runs the operations, then, if withDue, ends overdue jobs and serves the claims that
// wait, and commits. Nobody is told anything before the commit is on disk. background tells that an
// error came from what was due and not from an operation.
func (w *writer) transaction(batch []operation, withDue bool) (background bool, err error) {
	if len(batch) == 0 && !w.anythingDue() {
		return false, nil
	}
	t, began := &tx{conn: w.conn, w: w, ready: map[int64]int64{}}, time.Now()
	for _, op := range batch {
		op.needs(&t.needs)
	}
	// Subscribers of events get copies, which takes more than adding rows.
	t.apart = w.apart && !w.exclusive && w.followed != nil && len(w.followed.topics) == 0
	if w.apart { // those of other processes store keys in the same order: none waits for one that waits for it
		slices.SortStableFunc(batch, func(a, b operation) int { return strings.Compare(a.key(), b.key()) })
	}
	if withDue {
		t.fresh = map[int64][]candidate{}
		var states []string
		t.looks, states = w.looksAhead(batch)
		t.states = append(t.states, states...)
	}
	if t.start, err = t.begin(t.needs); err != nil {
		w.distrust(w.clock(), distrustPause)
		w.observed(t, began, len(batch), 0, err)
		return false, errors.Join(err, t.rollback())
	}
	if w.share == nil {
		t.now = w.tick(t.now)
	}
	seq := w.nextSeq
	var served []*claim
	if err = w.refresh(); err == nil {
		err = w.apply(t, batch)
	}
	if err == nil && withDue {
		served, err = w.serveDue(t)
		background = err != nil
	}
	if err == nil {
		err = t.storeDeployments()
	}
	if err == nil {
		err = t.storeSpending()
	}
	if err == nil {
		err = t.allReleased()
	}
	if err == nil {
		err = t.commit()
	}
	if err != nil {
		w.nextSeq = seq
		err = errors.Join(err, t.rollback())
		for _, c := range served {
			c.unserve()
		}
		for _, c := range t.served {
			c.unserve()
		}
		pause := distrustPause
		if takesAnother(err) {
			pause = 0
		}
		w.distrust(t.now, pause)
		w.observed(t, began, len(batch), 0, err)
		return background, err
	}
	w.committed(t, served)
	w.observed(t, began, len(batch), len(served), nil)
	return false, nil
}

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
	const little = 5 * 60 * 1000
	if behind := w.latest - at; behind > 0 && behind < little {
		return w.latest
	}
	w.latest = at
	return at
}

// apply runs the operations, stage by stage.
func (w *writer) apply(t *tx, batch []operation) error {
	for at := range stages {
		for _, op := range batch {
			if op.stage() != at {
				continue
			}
			if err := op.apply(t); err != nil {
				return err
			}
		}
	}
	if w.apart { // which must leave alone what others change
		return nil
	}
	return t.resumeWaiting()
}

// heeds reports whether it matters when a lane is worth a look: not before somebody has waited for it, for
// the first to come looks anyway; and of a session's only while somebody waits for its messages.
func (w *writer) heeds(lane int64) bool {
	if lane < 0 {
		return len(w.parked[lane]) > 0
	}
	return w.lines[lane] != nil
}

// lookBy notes that a lane is worth another look at that time.
func (w *writer) lookBy(lane, at int64) {
	if due, ok := w.dueAt[lane]; !ok || at < due {
		w.dueAt[lane] = at
	}
}

// serveDue does what is due without anybody asking: it ends overdue jobs and serves waiting claims.
func (w *writer) serveDue(t *tx) (served []*claim, err error) {
	if err := w.expireDue(t); err != nil {
		return nil, err
	}
	if served, err = w.serveClaims(t); err == nil {
		err = w.serveWork(t)
	}
	return served, err
}

// committed tells everybody what is now on disk.
func (w *writer) committed(t *tx, served []*claim) {
	if t.wake > 0 && (w.deadline == 0 || t.wake < w.deadline) {
		w.deadline = t.wake
	}
	for _, f := range t.after {
		f()
	}
	for _, c := range served {
		c.deliver()
	}
	w.deliverWork(t)
	w.watches.notify(t.touched)
	if w.share != nil {
		t.news.ready, t.news.changed, t.news.wake = t.ready, t.touched, t.wake
		if !t.news.empty() {
			w.share(&t.news)
		}
	}
}

// distrust forgets what a failed transaction may have made of the writer's memory: every lane gets
// another look, but after a pause. So a failing disk is not tried in a tight loop, and once it works
// again, workers that wait to settle come before claims that would take their expired locks.
func (w *writer) distrust(now int64, pause time.Duration) {
	at := now + pause.Milliseconds()
	w.reservedSeq = 0
	w.deployments, w.budgets, w.sweeps = nil, nil, true
	w.work.distrust(at)
	clear(w.blocked)
	clear(w.full)
	for lane := range w.lines {
		w.lines[lane] = newLines()
		w.dueAt[lane] = at
	}
	for lane := range w.parked {
		w.dueAt[lane] = at
	}
	w.deadline = at
}

// distrustPause is longer than any worker waits between two tries to settle.
const distrustPause = time.Second

func (w *writer) anythingDue() bool {
	at := w.clock()
	if w.stale || w.serving && w.deadline > 0 && w.deadline <= at || w.work.nextDue() <= at {
		return true
	}
	for lane, claims := range w.parked {
		if due, ok := w.dueAt[lane]; ok && due <= at && len(claims) > 0 && !w.paused[lane/laneKinds] {
			return true
		}
	}
	return false
}

// shutdown refuses what is still waiting and closes the connection.
func (w *writer) shutdown() {
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
