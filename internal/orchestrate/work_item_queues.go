package orchestrate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/floors"
	"github.com/forebayhq/forebay/internal/orchestrate/clockmend"
	"github.com/forebayhq/forebay/internal/orchestrate/inbox"
	"github.com/forebayhq/forebay/internal/orchestrate/places"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
	"github.com/forebayhq/forebay/internal/queue"
)

// Work items wait in queues by tenant, kind and name. Claims wait in the writer, as those of
// messages do. A transaction that makes an item ready wakes the waiting claims, and hands a new
// activity directly to a waiting claim.

// The names of the queues of workqueues.SkipsCode.
const (
	suspendQueue   = "suspend"
	terminateQueue = "terminate"
)

// ClaimRequest asks for work items.
type ClaimRequest struct {
	Max  int           // at least 1
	Lock time.Duration //
	// Taker says what is claimed. It is called within transactions. When a worker connects or
	// leaves, somebody has to call Reconsider.
	Taker *workqueues.Taker
	// Room says how many more items of a tenant are claimed. It is called only if several tenants
	// have had some. nil: there is no bound.
	Room places.Room
}

// neverVisible is the column visible of an item that nothing is known to make ready, and of an
// activity that awaits a job.
const neverVisible = inbox.Never

// participant is the part of orchestrations in the writer. It knows the queues and serves the
// waiting claims.
type participant struct {
	*db.Writer
	queues   workqueues.Set
	floors   floors.Floors[int64] // of the queues, by number
	waiting  []*claim
	stale    bool           // other processes may have made queues that it has not been told of
	unknown  map[int64]bool // numbers of queues that other processes have made
	allDueAt int64          // when MarkAllDue has last done so
	onLost   *db.Listener[int]
}

// tx is the part of orchestrations in a transaction.
type tx struct {
	*db.Tx
	w            *participant
	queue        *queue.Tx
	served       []*claim                // by this transaction
	woken        map[int64]bool          // instances whose items it has made ready
	queues       map[workqueues.ID]int64 // numbers of queues that it has read or made
	lostAttempts int                     // attempts whose locks ended without an outcome
	// What the transaction has changed or created: what was read of it before is not true any more.
	// The values count the changes, of which there were so many.
	changedInstances map[int64]int
	createdInstances map[instanceKey]int
	receiversAsked   map[instanceKey]int // how many changes there were when one was read; none: it began
	changes          int
	forgotten        map[int64]bool // instances of which it has removed what an execution awaited
	arrivals         inbox.Arrivals
	stored           storedBlobs
}

// workItemTx is the part of a transaction about the queues of work items and their claims.
type workItemTx struct{ *tx }

func (t *tx) workItems() workItemTx { return workItemTx{t} }

// notifyReady tells other processes when an item of a queue becomes ready.
var notifyReady = db.NewWordKind('o', db.ToAll)

// claim is a request for work items that waits.
type claim struct {
	ClaimRequest
	queue.Waiter
	by             workqueues.By
	part           *participant
	orchestrations []OrchestrationItem
	activities     []ActivityItem
	reserved       map[int64]int // by tenant: items that are being asked for
}

func (c *claim) Visit() { c.part.waiting = append(c.part.waiting, c) }

// room is how many more items the claim takes.
func (c *claim) room() int { return c.Max - c.got() }

// got is how many items the claim has got, or is about to.
func (c *claim) got() int {
	n := len(c.orchestrations) + len(c.activities)
	for _, reserved := range c.reserved {
		n += reserved
	}
	return n
}

// reserve keeps room for so many more items of a tenant; negative: no longer.
func (c *claim) reserve(tenant int64, n int) {
	if c.reserved == nil {
		c.reserved = map[int64]int{}
	}
	c.reserved[tenant] += n
}

// room is how many more items of a tenant the claim takes.
func (l *participant) room(c *claim, tenant int64) int {
	if c.Room == nil || l.queues.Tenants(c.by.Kind) < 2 {
		return c.room()
	}
	held := c.reserved[tenant]
	for i := range c.activities {
		if c.activities[i].Tenant == tenant {
			held++
		}
	}
	for i := range c.orchestrations {
		if c.orchestrations[i].Tenant == tenant {
			held++
		}
	}
	return min(c.room(), c.Room(tenant, held, c.got()))
}

// roomFor is room for one claim.
func (l *participant) roomFor(c *claim) func(tenant int64) int {
	return func(tenant int64) int { return l.room(c, tenant) }
}

// serves reports whether the transaction serves the claim. A waiting claim is served from now
// on.
func (t workItemTx) serves(c *claim) bool {
	if slices.Contains(t.served, c) {
		return true
	}
	if !c.Begin() {
		return false
	}
	t.served = append(t.served, c)
	t.Served++
	return true
}

// unserve returns a claim to waiting: it got nothing, or the transaction failed.
func (c *claim) unserve() {
	c.orchestrations, c.activities, c.reserved = nil, nil, nil
	c.State.Store(queue.ClaimWaiting)
}

// claimItems waits for work items of a kind.
func (s *Store) claimItems(ctx context.Context, kind workqueues.Kind, req ClaimRequest) (*claim, error) {
	c := &claim{ClaimRequest: req, part: key.In(s.Writer), Waiter: queue.NewWaiter(), by: workqueues.By{Kind: kind, Taker: req.Taker}}
	return c, queue.Await(ctx, s.Writer, c, &c.Waiter)
}

// Reconsider has the waiting claims ask again whose workers are connected.
func (s *Store) Reconsider(ctx context.Context) error {
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange}, func(*tx) (struct{}, error) { return struct{}{}, nil })
	return err
}

const selectQueues = "SELECT no, tenant, kind, name FROM orchestration_queues"

// Load reads the queues. Each counts as due until a claim finds nothing in it.
func (l *participant) Load() error {
	l.floors.On = l.Shared()
	return l.load(nil)
}

func (l *participant) load(without map[workqueues.ID]int64) error {
	err := l.Conn.Prep(selectQueues).Each(func(r driver.Row) error {
		l.addRow(r, without)
		return nil
	})
	if err == nil {
		l.stale, l.unknown = false, nil
	}
	return err
}

func (l *participant) addRow(r driver.Row, without map[workqueues.ID]int64) {
	id := workqueues.ID{Tenant: r.Int(1), Kind: workqueues.Kind(r.Int(2)), Name: r.Text(3)}
	if _, known := without[id]; !known {
		l.queues.Add(r.Int(0), id)
	}
}

// learn reads the queues that other processes have made. What the transaction itself has made is
// known once it is committed: items must never be stored under a number that is not.
func (l *participant) learn(t workItemTx) error {
	if l.stale {
		return l.load(t.queues)
	}
	if len(l.unknown) == 0 {
		return nil
	}
	var questions []driver.PipelineQuery
	for no := range l.unknown {
		questions = append(questions, driver.PipelineQuery{SQL: selectQueues + " WHERE no = ?",
			Bind:  func(st driver.Statement) driver.Statement { return st.Int(no) },
			OnRow: func(r driver.Row) { l.addRow(r, t.queues) }})
	}
	err := t.RunPipeline(questions)
	if err == nil {
		l.unknown = nil
	}
	return err
}

// queueOf returns the number of a queue, and makes the queue if there is none.
func (t workItemTx) queueOf(tenant int64, kind workqueues.Kind, name string) (no int64, err error) {
	id := workqueues.ID{Tenant: tenant, Kind: kind, Name: name}
	if q := t.w.queues.FindID(id); q != nil {
		return q.No, nil
	}
	if no, ok := t.queues[id]; ok {
		return no, nil
	}
	err = t.Alone(func() error {
		no, err = t.readQueue(id)
		return err
	})
	return no, err
}

// readQueue reads a queue that is not known yet, or stores it.
func (t workItemTx) readQueue(id workqueues.ID) (no int64, err error) {
	found, err := t.Prep("SELECT no FROM orchestration_queues WHERE tenant = ? AND kind = ? AND name = ?").
		Int(id.Tenant).Int(int64(id.Kind)).Text(id.Name).One(func(r driver.Row) { no = r.Int(0) })
	if err == nil && !found {
		_, err = t.Prep("INSERT INTO orchestration_queues (tenant, kind, name) VALUES (?, ?, ?) RETURNING no").
			Int(id.Tenant).Int(int64(id.Kind)).Text(id.Name).One(func(r driver.Row) { no = r.Int(0) })
	}
	if err != nil {
		return 0, err
	}
	if t.queues == nil {
		t.queues = map[workqueues.ID]int64{}
	}
	t.queues[id] = no
	t.After = append(t.After, func() { t.w.queues.Add(no, id) })
	return no, nil
}

// ready notes that an item of the queue is ready at that time, which may be past.
func (t workItemTx) ready(workQueue, at int64) {
	if at >= neverVisible {
		return
	}
	t.w.floors.Note(workQueue, at, t.Now)
	if q := t.w.queues.Find(workQueue); q != nil {
		t.w.queues.Sooner(q, max(at, t.Now))
	} // a new queue is due once it is known
	if t.w.Shared() {
		t.Notify(notifyReady, workQueue, 0, at)
	}
}

func (l *participant) Notified(n *db.Notification) {
	n.Each(notifyReady, func(workQueue, _, at int64) {
		l.floors.Note(workQueue, at, l.Clock())
		if q := l.queues.Find(workQueue); q != nil {
			l.queues.Sooner(q, at)
		} else if len(l.unknown) < mostUnknown {
			if l.unknown == nil {
				l.unknown = map[int64]bool{}
			}
			l.unknown[workQueue] = true
		} else {
			l.stale = true
		}
	})
	if n.Many[notifyReady] {
		l.MarkAllDue(true)
	}
}

// mostUnknown is how many queues of other processes are read one by one. Beyond that all are read.
const mostUnknown = 1000

// MarkAllDue has all queues asked. That takes the longer the more there are, and so it is done the
// more rarely, unless something has changed.
func (l *participant) MarkAllDue(all bool) {
	at := l.Clock()
	rest := l.Polling.Milliseconds() * int64(l.queues.Len()/mostAsked)
	if since := at - l.allDueAt; !all && since >= 0 && since < rest {
		return
	}
	l.allDueAt = at
	l.floors.Sweep(at, l.Polling, all)
	l.queues.SetAllDue(0)
	l.stale = l.Shared()
}

// NextDue is when a waiting claim may be served.
func (l *participant) NextDue(int64) int64 {
	next := int64(db.Never)
	if len(l.waiting) == 0 {
		return next
	}
	if l.stale || len(l.unknown) > 0 {
		return 0
	}
	for _, c := range l.waiting {
		if c.Waits() {
			next = min(next, l.queues.NextDue(c.by, l.roomFor(c)))
		}
	}
	return next
}

// Serve serves the waiting claims.
func (l *participant) Serve(of *db.Tx) error {
	if len(l.waiting) == 0 {
		return nil
	}
	t := key.Of(of)
	if err := l.learn(t.workItems()); err != nil {
		return err
	}
	l.waiting = slices.DeleteFunc(l.waiting, (*claim).Gone)
	// Claims of one kind take from the same queues, one after the other.
	kinds := []workqueues.Kind{workqueues.Orchestrations, workqueues.Activities}
	err := t.Interleave(len(kinds), func(i int) error {
		for _, c := range l.waiting {
			if c.by.Kind != kinds[i] {
				continue
			}
			if err := l.serveClaim(t.workItems(), c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.served = slices.DeleteFunc(t.served, func(c *claim) bool {
		nothing := len(c.orchestrations)+len(c.activities) == 0
		if nothing {
			c.unserve()
		}
		return nothing
	})
	return nil
}

// serveClaim fills one claim from the queues that are due.
func (l *participant) serveClaim(t workItemTx, c *claim) error {
	var empty []*workqueues.Queue
	asked := 0
	for round := 0; c.room() > 0 && asked < mostAsked; round++ {
		if l.Shared() && (round >= mostRounds && c.got() > 0 || round >= mostEmptyRounds) {
			break // the queues stay due
		}
		due := l.queues.Due(c.by, t.Now, c.room(), l.roomFor(c))
		if len(due) == 0 || !t.serves(c) {
			break
		}
		asked += len(due)
		err := t.Interleave(len(due), func(i int) error { return t.takeShare(due[i], c, &empty) })
		if err != nil {
			return err
		}
	}
	return t.noteNextDue(empty)
}

// Bounds of a claim in a transaction, for others wait for that to end. The next one goes on.
const (
	mostAsked       = 1000 // queues
	mostRounds      = 2    // of questions, where each is a round trip, if it has got something
	mostEmptyRounds = 8    // the same, if it has got nothing
)

// takeShare takes a share of a queue for a claim.
func (t workItemTx) takeShare(share workqueues.Share, c *claim, empty *[]*workqueues.Queue) error {
	most := min(share.Most, t.w.room(c, share.Tenant))
	if most <= 0 { // it stays due: its tenant may have more once others end
		return nil
	}
	if t.w.Shared() { // other queues are asked before this one has answered
		c.reserve(share.Tenant, most)
		defer c.reserve(share.Tenant, -most)
	}
	taken, err := t.take(share.Queue, c, most)
	if err == nil && taken < most {
		t.w.queues.SetDue(share.Queue, neverVisible)
		*empty = append(*empty, share.Queue)
	}
	return err
}

func (t workItemTx) take(p *workqueues.Queue, c *claim, most int) (taken int, err error) {
	if c.by.Kind == workqueues.Orchestrations {
		return t.takeOrchestrations(p, c, most)
	}
	return t.takeActivities(p, c, most)
}

// noteNextDue notes when queues without ready items are due next.
func (t workItemTx) noteNextDue(queues []*workqueues.Queue) error {
	if len(queues) == 0 {
		return nil
	}
	questions, next := make([]driver.PipelineQuery, len(queues)), make([]int64, len(queues))
	for i, p := range queues {
		table := "orchestration_items"
		if p.Kind == workqueues.Activities {
			table = "orchestration_activities"
		}
		questions[i] = driver.PipelineQuery{SQL: "SELECT visible_at FROM " + table + " WHERE work_queue = ? AND visible_at > ? ORDER BY visible_at LIMIT 1",
			Bind:  func(st driver.Statement) driver.Statement { return st.Int(p.No).Int(t.w.floors.Next(p.No, t.Now)) },
			OnRow: func(r driver.Row) { next[i] = r.Int(0); t.w.queues.Sooner(p, next[i]) }}
	}
	if err := t.RunPipeline(questions); err != nil {
		return err
	}
	for i, p := range queues {
		t.w.floors.Empty(p.No, t.Now, next[i])
	}
	return nil
}

// claimFor returns a waiting claim that takes a new activity at once; nil: there is none. No
// other item of the queue may be ready.
func (t workItemTx) claimFor(workQueue int64) *claim {
	p := t.w.queues.Find(workQueue)
	if !t.WithDue || p == nil || p.DueBy(t.Now) {
		return nil
	}
	for _, c := range t.w.waiting {
		if c.by.TakesFrom(p) && t.w.room(c, p.Tenant) > 0 && t.serves(c) {
			return c
		}
	}
	return nil
}

// Committed answers the claims that were served.
func (l *participant) Committed(of *db.Tx) {
	l.floors.Committed(of.Took)
	t := key.Begun(of)
	if t == nil {
		return
	}
	for _, c := range t.served {
		c.Deliver()
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(c *claim) bool { return slices.Contains(t.served, c) })
	if t.lostAttempts > 0 {
		l.onLost.Notify(t.lostAttempts)
	}
}

func (l *participant) Invalidate(of *db.Tx, at int64) {
	l.floors.RolledBack()
	if t := key.Begun(of); t != nil {
		for _, c := range t.served {
			c.unserve()
		}
		// A queue that the transaction has read may be one that another process has made.
		l.stale = l.stale || l.Shared() && len(t.queues) > 0
	}
	l.queues.SetAllDue(at)
}

// Refuse answers all waiting claims with an error.
func (l *participant) Refuse(err error) {
	for _, c := range l.waiting {
		c.Refuse(err)
	}
	l.waiting = nil
}

// ClockMend repairs what a clock that was ahead has left of orchestrations.
func (l *participant) ClockMend() db.ClockMend { return clockmend.Orchestrations() }

func (l *participant) TakeOver(t *db.Tx) error { return key.Of(t).workItems().releaseOrphaned() }

// releaseOrphaned makes all locked items ready. Only a process that is alone may call it.
func (t workItemTx) releaseOrphaned() error {
	return errors.Join(
		t.Prep("UPDATE orchestration_items SET visible_at = ? WHERE lock_token IS NOT NULL AND visible_at > ?").Int(t.Now).Int(t.Now).Exec(),
		t.Prep("UPDATE orchestration_activities SET visible_at = ? WHERE lock_token IS NOT NULL AND visible_at > ?").Int(t.Now).Int(t.Now).Exec())
}
