// Package limits decides whether a tenant may have or do more.
//
// A [Meter] counts in the database how much of each thing a tenant has, and adds what it has let
// through since. It counts again when that sum reaches the limit, when it has let through its
// share of the remainder, and after some seconds. What takes long is counted more rarely, and most
// rarely while half of the limit is left. So a limit costs no writes and errors do not accumulate:
// the next count includes what ended, what was purged and what other processes stored.
//
// A process that has the database to itself never exceeds a limit. Each of several processes lets
// through a sixty-fourth of the remainder before it counts again. Together they exceed a limit by
// at most that share for each further process, and by the requests they judge at the same moment.
// Only requests of clients are judged. Internal work counts but is never refused.
//
// Rates are token buckets, one for each key and one for each tenant, in each process. Each of
// several processes that answer requests has an equal part of the rate.
package limits

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
)

// Source is where a Meter counts.
type Source interface {
	EnsureTenant(ctx context.Context, name string) (int64, error)
	TenantLimits(ctx context.Context, tenant int64) (forebay.TenantLimits, error)
	// LimitUsed counts what a tenant has. It stops counting at most.
	LimitUsed(ctx context.Context, tenant int64, name forebay.LimitName, most int64) (int64, error)
	// Shared reports whether there may be other processes.
	Shared() bool
	// CountServers returns how many processes answer requests, this one included.
	CountServers(ctx context.Context) (int64, error)
}

// Meter decides. The nil Meter lets everything through. It is safe for concurrent use.
type Meter struct {
	source   Source
	standard atomic.Pointer[forebay.TenantLimits]
	ctx      context.Context // ends with Close
	stop     context.CancelFunc
	running  sync.WaitGroup // counts

	mu        sync.Mutex
	tenants   map[string]*tenant
	addresses map[string]*bucket

	answering answering
}

// New returns a meter that must be closed before its source. Tenants without limits of their own
// have the standard ones.
func New(source Source, standard forebay.TenantLimits) *Meter {
	ctx, stop := context.WithCancel(context.Background())
	m := &Meter{source: source, ctx: ctx, stop: stop, tenants: map[string]*tenant{}, addresses: map[string]*bucket{}}
	m.SetStandard(standard)
	return m
}

// SetStandard changes the limits of tenants that have none of their own. It takes effect within
// seconds.
func (m *Meter) SetStandard(standard forebay.TenantLimits) { m.standard.Store(&standard) }

const (
	// limitsFor is how long a process keeps limits that it has read.
	limitsFor = 2 * time.Second
	// countFor is how long a count is valid, if counting took no time.
	countFor = 5 * time.Second
	// countShare is how many times as long as it took a count is valid.
	countShare = 50
	// farFactor is by how much that share is less while half of the limit is left. What is stored may
	// be much, and counting reads all of it.
	farFactor = 12
	// cheap is the longest time of a count that may be repeated for each request.
	cheap = 5 * time.Millisecond
	// shares is into how many parts the remainder of a limit is divided if there are several
	// processes.
	shares = 64
	// patience is for how long requests wait for a count from its beginning. A later one waits for a
	// moment, so that a tenant with much cannot go far beyond its limit meanwhile.
	patience = time.Second
	moment   = 50 * time.Millisecond
)

// tenant is what is known of one.
type tenant struct {
	mu       sync.Mutex
	no       int64
	limits   amounts
	read     time.Time // when limits were read
	counts   map[forebay.LimitName]*count
	requests bucket
	keys     map[string]*bucket
}

// amounts are a tenant's limits by name, defaults included. They do not change.
type amounts map[forebay.LimitName]int64

func amountsOf(limits forebay.TenantLimits) amounts {
	of := amounts{}
	for _, name := range forebay.LimitNames() {
		of[name] = limits.Of(name)
	}
	return of
}

// Of returns the limit of that name; 0: no limit.
func (a amounts) Of(name forebay.LimitName) int64 { return a[name] }

// count is what is known of how much of one thing there is.
type count struct {
	mu      sync.Mutex
	used    int64         // as counted
	since   int64         // was let through since, and is stored
	going   int64         // is being stored
	at      time.Time     // when it was counted; zero: never
	took    time.Duration // to count
	pending chan struct{} // closed when the count ends that is under way; nil: none is
	began   time.Time     // when that count began
}

func (c *count) estimate() int64 { return c.used + c.since + c.going }

// validFor is how long the count is valid where most is the limit.
func (c *count) validFor(most int64) time.Duration {
	valid := countShare * c.took
	if c.estimate() <= most/2 {
		valid *= farFactor
	}
	return max(countFor, valid)
}

func (m *Meter) tenant(name string) *tenant {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tenants[name]
	if t == nil {
		t = &tenant{counts: map[forebay.LimitName]*count{}, keys: map[string]*bucket{}}
		m.tenants[name] = t
	}
	return t
}

// Forget makes the meter read a tenant's limits again after they were set.
func (m *Meter) Forget(name string) {
	if m == nil {
		return
	}
	t := m.tenant(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read = time.Time{}
}

// of returns the tenant with its limits. If they cannot be read, the ones known before hold.
func (m *Meter) of(ctx context.Context, name string) (*tenant, amounts, error) {
	t := m.tenant(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.read) < limitsFor {
		return t, t.limits, nil
	}
	no, err := m.source.EnsureTenant(ctx, name)
	var limits forebay.TenantLimits
	if err == nil {
		limits, err = m.source.TenantLimits(ctx, no)
	}
	if err != nil && t.no != 0 {
		return t, t.limits, nil
	}
	if err != nil {
		return t, t.limits, err
	}
	if t.no == 0 { // it never changes, and counts read it
		t.no = no
	}
	t.limits, t.read = amountsOf(limits.Over(*m.standard.Load())), time.Now()
	return t, t.limits, nil
}

func (t *tenant) count(name forebay.LimitName) *count {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts[name]
	if c == nil {
		c = &count{}
		t.counts[name] = c
	}
	return c
}

func nothing() {}

// Take asks for n more of what the limit bounds. The caller calls done once they are stored or
// have failed. The error is a *forebay.Error with CodeTenantLimit, or why the limits are unknown.
func (m *Meter) Take(ctx context.Context, tenant string, name forebay.LimitName, n int64) (done func(), err error) {
	taken, err := m.TakeOne(ctx, tenant, name, n)
	if taken.c == nil {
		return nothing, err
	}
	return taken.Done, nil
}

// Taken is what Take lets through, without an allocation. The zero value is nothing.
type Taken struct {
	c *count
	n int64
}

// Done says that they are stored or have failed. Further calls do nothing.
func (k *Taken) Done() {
	if k.c == nil {
		return
	}
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	k.c.going, k.c.since, k.n = k.c.going-k.n, k.c.since+k.n, 0
}

// TakeOne is Take for a result that one goroutine uses.
func (m *Meter) TakeOne(ctx context.Context, tenant string, name forebay.LimitName, n int64) (taken Taken, err error) {
	if m == nil || n <= 0 {
		return Taken{}, nil
	}
	t, limits, err := m.of(ctx, tenant)
	if err != nil {
		return Taken{}, err
	}
	most := limits.Of(name)
	if most == 0 {
		return Taken{}, nil
	}
	c := t.count(name)
	for counted, waited := false, false; ; {
		c.mu.Lock()
		left := most - c.used
		if m.source.Shared() {
			left /= shares
		}
		age := time.Since(c.at)
		known := !c.at.IsZero()
		// What may be let through without another count is counted before it is used up, so that
		// nobody waits for that.
		soon := c.since+c.going+n > left-left/4 && age >= countShare*c.took
		stale := known && (soon || age >= c.validFor(most))
		within := c.estimate()+n <= most
		switch {
		// A count that was just taken decides alone.
		case within && (known && c.since+c.going+n <= left || counted):
			c.going += n
			c.mu.Unlock()
			if stale { // nobody waits for that
				_, _ = m.start(t, c, name, most)
			}
			return Taken{c, n}, nil
		case counted, !within && known && c.took > cheap && age < countShare*c.took:
			refusal := forebay.LimitReached(name, c.estimate(), n, most)
			if refusal.RetryAfter > 0 && c.took > cheap {
				refusal.RetryAfter = max(refusal.RetryAfter, countShare*c.took-age)
			}
			c.mu.Unlock()
			return Taken{}, refusal
		}
		c.mu.Unlock()
		began, err := m.recount(ctx, t, c, name, most)
		if err != nil {
			return Taken{}, err
		}
		// A count that was under way may not have seen what has ended since, and counts twice what was
		// stored since.
		counted = began || waited
		waited = true
	}
}

// start begins to count, unless a count is under way, and returns a channel that is closed at its
// end. began is false for one that was under way.
func (m *Meter) start(t *tenant, c *count, name forebay.LimitName, most int64) (ended chan struct{}, began bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending != nil {
		return c.pending, false
	}
	ended = make(chan struct{})
	if m.ctx.Err() != nil {
		close(ended)
		return ended, true
	}
	since, at := c.since, time.Now()
	c.pending, c.began = ended, at
	m.running.Go(func() {
		defer close(ended)
		used, err := m.source.LimitUsed(m.ctx, t.no, name, most+1)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.pending = nil; err == nil {
			// The count may include what was stored meanwhile, which then counts twice until the next
			// count.
			c.used, c.since, c.at, c.took = used, c.since-since, time.Now(), time.Since(at)
		}
	})
	return ended, true
}

// background runs f, unless the meter is closed.
func (m *Meter) background(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return false
	}
	m.running.Go(f)
	return true
}

// recount counts, or waits for a count under way, but not for ever. If that takes too long or
// fails, the known number has to do: a limit does not stop a tenant that cannot be counted. began
// says whether it was not under way.
func (m *Meter) recount(ctx context.Context, t *tenant, c *count, name forebay.LimitName, most int64) (began bool, err error) {
	ended, began := m.start(t, c, name, most)
	c.mu.Lock()
	timer := time.NewTimer(max(patience-time.Since(c.began), moment))
	c.mu.Unlock()
	defer timer.Stop()
	select {
	case <-ended:
		return began, m.ctx.Err()
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return began, ctx.Err()
	}
}

// Close cancels the counts that are under way.
func (m *Meter) Close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.stop()
	m.mu.Unlock()
	m.running.Wait()
}

// CheckSchedule refuses a time further ahead than the tenant may schedule. field names it in the
// error.
func (m *Meter) CheckSchedule(ctx context.Context, tenant, field string, at *time.Time, now time.Time) error {
	if m == nil || at == nil {
		return nil
	}
	_, limits, err := m.of(ctx, tenant)
	if err != nil {
		return err
	}
	days := limits.Of(forebay.LimitScheduleAhead)
	if days == 0 || days > 200*366 || !at.After(now.Add(time.Duration(days)*24*time.Hour)) {
		return nil
	}
	return forebay.TooFarAhead(field, days)
}

// Used returns a tenant's limits and what is used of them, counted now.
func (m *Meter) Used(ctx context.Context, tenant string) (list []forebay.LimitUse, err error) {
	if m == nil {
		return nil, nil
	}
	t, _, err := m.of(ctx, tenant)
	if err != nil {
		return nil, err
	}
	own, err := m.source.TenantLimits(ctx, t.no)
	if err != nil {
		return nil, err
	}
	limits := amountsOf(own.Over(*m.standard.Load())) // another process may have set them since they were read
	for _, name := range forebay.LimitNames() {
		use := forebay.LimitUse{Name: name, Limit: limits.Of(name), Set: *own.Field(name) != nil}
		switch name {
		case forebay.LimitKeyRequests, forebay.LimitRequests, forebay.LimitScheduleAhead:
		default:
			most := use.Limit
			if most == 0 {
				most = mostShown
			}
			used, err := m.source.LimitUsed(ctx, t.no, name, most+1)
			if err != nil {
				return nil, err
			}
			use.Used = &used
		}
		list = append(list, use)
	}
	return list, nil
}

// mostShown bounds the counting of what is used where there is no limit.
const mostShown = 10_000_000
