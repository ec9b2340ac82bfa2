package orchestrate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Work is what orchestrations leave to be done: their turns and their activities. It waits in pools, and
// claims of it wait in the writer as those of messages do: who makes work ready wakes them in the same
// transaction, and a new activity goes straight to a claim that waits.

// WorkKind is a kind of work.
type WorkKind int

const (
	WorkTurn WorkKind = iota
	WorkActivity
	// workHalt are turns that whoever takes turns can take: what has arrived keeps the instance from going on, so its code need not see it.
	workHalt
)

// The pools of a tenant's halts.
const (
	suspendPool   = "suspend"
	terminatePool = "terminate"
)

// Pool is where work of one kind and name waits, of one tenant.
type Pool struct {
	No     int64
	Tenant int64
	Kind   WorkKind
	Name   string
}

// WorkRequest asks for work.
type WorkRequest struct {
	Max  int           // at least 1
	Lock time.Duration //
	// Takes says whose work is wanted, but for what needs nobody's code. It is asked within transactions and must be quick. Its answers may
	// change; then somebody has to call Reconsider.
	Takes func(tenant int64, name string) bool
	// Room says how many more activities of a tenant are wanted beside those that the claim has got already: so many of the tenant, and so many in all.
	// It is asked as Takes is, but only if activities of more than one tenant are known. nil: as many as there are.
	Room func(tenant int64, its, all int) int
}

// asleep is the "visible" of a turn for which nothing is known to happen, and of an activity that waits for a job.
const asleep = 1 << 62

// participant hands out work, and knows the pools there are.
type participant struct {
	*db.Writer
	pools  map[int64]*workPool
	named  map[Pool]*workPool // by what they are, without a number
	acting map[int64]bool     // tenants that have had activities
	parked []*workClaim
	last   int64 // the pool that was served last
	stale  bool  // others may have made pools
	lost   *db.Listener[int]
}

// tx is its part of a transaction.
type tx struct {
	*db.Tx
	w      *participant
	queue  *queue.Tx
	served []*workClaim   // claims of work that this transaction serves
	woken  map[int64]bool // orchestrations that it has made ready
	pools  map[Pool]int64 // that it has looked up or made
	lost   int            // attempts of activities of which nobody heard again
}

// wordWork tells of a pool from when on work of it is ready.
var wordWork = db.NewWordKind('o', db.ToAll)

type workPool struct {
	Pool
	due int64 // when something of it may be ready
}

// workClaim waits for work.
type workClaim struct {
	WorkRequest
	queue.Waiter
	part       *participant
	kind       WorkKind
	turns      []Turn
	activities []Activity
}

func (c *workClaim) Visit() { c.part.parked = append(c.part.parked, c) }

// room is how much more it takes.
func (c *workClaim) room() int { return c.Max - len(c.turns) - len(c.activities) }

// room is how much more of a pool a claim takes.
func (l *participant) room(c *workClaim, p *workPool) int {
	if c.Room == nil || len(l.acting) < 2 {
		return c.room()
	}
	its := 0
	for i := range c.activities {
		if c.activities[i].Tenant == p.Tenant {
			its++
		}
	}
	return min(c.room(), c.Room(p.Tenant, its, len(c.activities)))
}

// serves reports whether the transaction serves the claim: it does already, or the claim still waits.
func (t *tx) serves(c *workClaim) bool {
	if slices.Contains(t.served, c) {
		return true
	}
	if !c.Begin() {
		return false
	}
	t.served = append(t.served, c)
	return true
}

// unserve puts a claim back that found nothing, or whose transaction failed.
func (c *workClaim) unserve() {
	c.turns, c.activities = nil, nil
	c.State.Store(queue.ClaimWaiting)
}

// claimWork waits for work of a kind.
func (s *Store) claimWork(ctx context.Context, kind WorkKind, req WorkRequest) (*workClaim, error) {
	c := &workClaim{WorkRequest: req, part: key.In(s.Writer), Waiter: queue.NewWaiter(), kind: kind}
	return c, queue.Await(ctx, s.Writer, c, &c.Waiter)
}

// Reconsider has the claims that wait asked again whose work they take.
func (s *Store) Reconsider(ctx context.Context) error {
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange}, func(*tx) (struct{}, error) { return struct{}{}, nil })
	return err
}

// Load reads the pools there are. Each may have something ready until a look says otherwise.
func (l *participant) Load() error {
	l.stale = false
	return l.Conn.Prep("SELECT no, tenant, kind, name FROM orchestration_pools").Each(func(r driver.Row) error {
		l.add(Pool{r.Int(0), r.Int(1), WorkKind(r.Int(2)), r.Text(3)})
		return nil
	})
}

func (l *participant) add(p Pool) {
	if l.pools == nil {
		l.pools, l.named, l.acting = map[int64]*workPool{}, map[Pool]*workPool{}, map[int64]bool{}
	}
	if p.Kind == WorkActivity {
		l.acting[p.Tenant] = true
	}
	if l.pools[p.No] == nil {
		known := &workPool{Pool: p}
		l.pools[p.No] = known
		p.No = 0
		l.named[p] = known
	}
}

// poolOf returns the pool of that name, making it if there is none.
func (t *tx) poolOf(tenant int64, kind WorkKind, name string) (no int64, err error) {
	what := Pool{0, tenant, kind, name}
	if p := t.w.named[what]; p != nil {
		return p.No, nil
	}
	if no, ok := t.pools[what]; ok {
		return no, nil
	}
	found, err := t.Prep("SELECT no FROM orchestration_pools WHERE tenant = ? AND kind = ? AND name = ?").
		Int(tenant).Int(int64(kind)).Text(name).One(func(r driver.Row) { no = r.Int(0) })
	if err == nil && !found {
		_, err = t.Prep("INSERT INTO orchestration_pools (tenant, kind, name) VALUES (?, ?, ?) RETURNING no").
			Int(tenant).Int(int64(kind)).Text(name).One(func(r driver.Row) { no = r.Int(0) })
	}
	if err != nil {
		return 0, err
	}
	if t.pools == nil {
		t.pools = map[Pool]int64{}
	}
	t.pools[what] = no
	t.After = append(t.After, func() { t.w.add(Pool{no, tenant, kind, name}) })
	return no, nil
}

// workReady notes that work of the pool can be taken from that time on.
func (t *tx) workReady(pool, at int64) {
	if at >= asleep {
		return
	}
	if p := t.w.pools[pool]; p != nil {
		p.due = min(p.due, at)
	} // a new one is looked at once it is known
	if t.w.Shared() {
		t.Notify(wordWork, pool, 0, at)
	}
}

func (l *participant) Notified(n *db.Notification) {
	n.Each(wordWork, func(pool, _, at int64) {
		if p := l.pools[pool]; p != nil {
			p.due = min(p.due, at)
		} else {
			l.stale = true
		}
	})
}

func (l *participant) MarkAllDue(bool) {
	l.allDue(0)
	l.stale = l.Shared()
}

// allDue has every pool looked at, but not before that time.
func (l *participant) allDue(at int64) {
	for _, p := range l.pools {
		p.due = at
	}
}

// NextDue is when a claim that waits may be served.
func (l *participant) NextDue(int64) int64 {
	next := int64(db.Never)
	if len(l.parked) == 0 {
		return next
	}
	if l.stale {
		return 0
	}
	for _, p := range l.pools {
		if p.due < next && slices.ContainsFunc(l.parked, func(c *workClaim) bool { return c.Waits() && l.takes(c, p) }) {
			next = p.due
		}
	}
	return next
}

// takes reports whether the claim is for work of the pool, and has room for some.
func (l *participant) takes(c *workClaim, p *workPool) bool {
	switch p.Kind {
	case c.kind:
		return c.Takes(p.Tenant, p.Name) && l.room(c, p) > 0
	case workHalt:
		return c.kind == WorkTurn
	}
	return false
}

// Serve gives the claims that wait what is ready.
func (l *participant) Serve(of *db.Tx) error {
	if len(l.parked) == 0 {
		return nil
	}
	t := key.Of(of)
	if l.stale {
		if err := l.Load(); err != nil {
			return err
		}
	}
	l.parked = slices.DeleteFunc(l.parked, (*workClaim).Gone)
	for _, c := range l.parked {
		if err := l.serveWorkTo(t, c); err != nil {
			return err
		}
	}
	t.served = slices.DeleteFunc(t.served, func(c *workClaim) bool {
		nothing := len(c.turns)+len(c.activities) == 0
		if nothing {
			c.unserve()
		}
		return nothing
	})
	return nil
}

// serveWorkTo serves one claim from the pools that are due, in turns: first each as much as would be its share.
func (l *participant) serveWorkTo(t *tx, c *workClaim) error {
	var due []*workPool
	for _, p := range l.pools {
		if p.due <= t.Now && l.takes(c, p) {
			due = append(due, p)
		}
	}
	if len(due) == 0 || !t.serves(c) {
		return nil
	}
	slices.SortFunc(due, func(a, b *workPool) int {
		if (a.No > l.last) != (b.No > l.last) {
			return cmp.Compare(b.No, a.No) // those after the last one first
		}
		return cmp.Compare(a.No, b.No)
	})
	for share := (c.room() + len(due) - 1) / len(due); c.room() > 0 && len(due) > 0; share = c.room() {
		for i, p := range due {
			if c.room() == 0 {
				return nil
			}
			most := min(share, l.room(c, p))
			if most <= 0 { // there may be more of it, for when its tenant has less under way
				due[i] = nil
				continue
			}
			taken, err := t.takeWork(p, c, most)
			if err != nil {
				return err
			}
			l.last = p.No
			if taken < most {
				due[i] = nil
				if err := t.restPool(p); err != nil {
					return err
				}
			}
		}
		due = slices.DeleteFunc(due, func(p *workPool) bool { return p == nil })
	}
	return nil
}

func (t *tx) takeWork(p *workPool, c *workClaim, most int) (taken int, err error) {
	if c.kind == WorkTurn {
		return t.takeTurns(p, c, most)
	}
	return t.takeActivities(p, c, most)
}

// restPool notes when a pool in which nothing is ready any more is to be looked at next.
func (t *tx) restPool(p *workPool) error {
	table := "orchestration_turns"
	if p.Kind == WorkActivity {
		table = "orchestration_activities"
	}
	p.due = asleep
	_, err := t.Prep("SELECT visible FROM " + table + " WHERE pool = ? AND visible > ? ORDER BY visible LIMIT 1").Int(p.No).Int(t.Now).
		One(func(r driver.Row) { p.due = r.Int(0) })
	return err
}

// handOver returns a claim that takes a new activity of the pool at once, nil if there is none: nothing
// else of the pool may be ready.
func (t *tx) handOver(pool int64) *workClaim {
	p := t.w.pools[pool]
	if !t.WithDue || p == nil || p.due <= t.Now {
		return nil
	}
	for _, c := range t.w.parked {
		if c.room() > 0 && t.w.takes(c, p) && t.serves(c) {
			return c
		}
	}
	return nil
}

// Committed answers the claims that were served.
func (l *participant) Committed(of *db.Tx) {
	t := key.Begun(of)
	if t == nil {
		return
	}
	for _, c := range t.served {
		c.Deliver()
	}
	l.parked = slices.DeleteFunc(l.parked, func(c *workClaim) bool { return slices.Contains(t.served, c) })
	if t.lost > 0 {
		l.lost.Notify(t.lost)
	}
}

func (l *participant) Invalidate(of *db.Tx, at int64) {
	if t := key.Begun(of); t != nil {
		for _, c := range t.served {
			c.unserve()
		}
	}
	l.allDue(at)
}

// Refuse answers all that wait with an error.
func (l *participant) Refuse(err error) {
	for _, c := range l.parked {
		c.Refuse(err)
	}
	l.parked = nil
}

func (l *participant) TakeOver(t *db.Tx) error { return key.Of(t).releaseOrphanedWork() }

// releaseOrphanedWork makes ready at once what processes held that are dead. Only for a process that is alone.
func (t *tx) releaseOrphanedWork() error {
	return errors.Join(
		t.Prep("UPDATE orchestration_turns SET visible = ? WHERE token IS NOT NULL AND visible > ?").Int(t.Now).Int(t.Now).Exec(),
		t.Prep("UPDATE orchestration_activities SET visible = ? WHERE token IS NOT NULL AND visible > ?").Int(t.Now).Int(t.Now).Exec())
}
