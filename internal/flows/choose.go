package flows

import (
	"cmp"
	"math"
	"slices"

	"github.com/forebayhq/forebay/internal/fairqueue"
)

// MaxFlows is how many flows one scan asks. leastRecent of them are those asked longest ago, if
// there are more. maxHeld of them are of classes in which jobs may not be called, so that the
// others have room.
const (
	MaxFlows    = 32
	leastRecent = 8
	maxHeld     = 8
)

// Query is what a scan asks of a flow, and the answer.
type Query struct {
	Flow, Floor, Limit int64
	SeenNext, NewDue   int64 // see Flow
	// Informs tells that the flow is asked only to learn about it. Flows of its tenant that go
	// before it are not asked.
	Informs        bool
	Got, NextReady int64 // how many jobs are ready, and when the next one is; never: none is
}

// entry is a flow that a scan may ask.
type entry struct {
	id     int64
	flow   *Flow
	tenant int // index of its tenantEntry
	level  int64
	waits  bool // none of its jobs is believed to be ready
	asked  bool
}

// before reports whether a flow's jobs go before those of another of its tenant, as far as is
// known.
func (e *entry) before(o *entry) bool {
	return cmp.Or(cmp.Compare(e.level, o.level), cmp.Compare(e.flow.Oldest, o.flow.Oldest), cmp.Compare(e.id, o.id)) < 0
}

// tenantEntry is a tenant with flows that a scan may ask.
type tenantEntry struct {
	tenant     int64
	start      float64
	rests      bool
	best, free int // indexes of its first flow, and of the first in a class that is not held; -1: none
	chosen     bool
	flows      []int // the ready flows of a chosen tenant, except best and free
	first      int   // how many of its asked flows are of its first level
}

// chooser chooses which flows a scan asks.
type chooser struct {
	*Set
	now     int64
	limit   int
	entries []entry
	tenants []tenantEntry
	asks    []int // indexes of entries
}

// Choose returns which flows to ask so that limit jobs can be served. These are the flows of the
// tenants whose turn is next, the first of each class, and those asked longest ago. The horizon
// says, by class, from where on a tenant may be next that is not asked.
func (l *Set) Choose(limit int, now int64, shares Shares, restsUntil func(tenant int64) int64) (asks []Query, horizon *fairqueue.Horizon) {
	c := chooser{Set: l, now: now, limit: limit, entries: make([]entry, 0, len(l.Flows))}
	c.list(restsUntil)
	if len(c.entries) <= MaxFlows {
		for i := range c.entries {
			if e := &c.entries[i]; !e.waits {
				c.tenants[e.tenant].chosen = true
			}
			c.ask(i)
		}
	} else {
		c.plan()
		c.askLeastRecent()
		horizon = c.horizon()
	}
	return c.limits(shares), horizon
}

// list lists the flows that may be asked, and finds the first of each tenant.
func (c *chooser) list(restsUntil func(tenant int64) int64) {
	at := map[int64]int{}
	for id, flow := range c.Flows {
		tenant := TenantOf(id)
		i, ok := at[tenant]
		if !ok {
			i, at[tenant] = len(c.tenants), len(c.tenants)
			c.tenants = append(c.tenants, tenantEntry{tenant: tenant, start: c.Shares.Start(tenant), rests: restsUntil(tenant) > c.now, best: -1, free: -1})
		}
		f := &c.tenants[i]
		if f.rests {
			continue
		}
		c.entries = append(c.entries, entry{id: id, flow: flow, tenant: i, level: fairqueue.Level(RankOf(id), flow.Oldest, c.now), waits: flow.NextReady > c.now})
		n := len(c.entries) - 1
		e := &c.entries[n]
		if e.waits {
			continue
		}
		if f.best < 0 || e.before(&c.entries[f.best]) {
			f.best = n
		}
		if !c.HeldClasses[ClassOf(id)] && (f.free < 0 || e.before(&c.entries[f.free])) {
			f.free = n
		}
	}
}

func (c *chooser) ask(i int) {
	if e := &c.entries[i]; !e.asked {
		e.asked = true
		c.asks = append(c.asks, i)
	}
}

// plan asks the tenants whose turn is next.
func (c *chooser) plan() {
	most := MaxFlows - leastRecent
	var free, held []int
	for i := range c.tenants {
		f := &c.tenants[i]
		if f.free >= 0 {
			free = c.keepFirst(free, i, most, func(f *tenantEntry) int { return f.free })
		}
		if f.best >= 0 && f.best != f.free {
			held = c.keepFirst(held, i, most, func(f *tenantEntry) int { return f.best })
		}
	}
	held = held[:min(len(held), max(maxHeld, most-len(free)))]
	c.gather(held, free)
	firsts := c.firstOfClasses(held, free)
	most -= len(firsts)
	c.askFirst(held, max(maxHeld, most-len(free)), func(f *tenantEntry) int { return f.best })
	c.askFirst(free, most, func(f *tenantEntry) int { return f.free })
	for n, more := 0, true; more && len(c.asks) < most; n++ {
		more = false
		for _, i := range slices.Concat(held, free) {
			if f := &c.tenants[i]; f.chosen && n < len(f.flows) && len(c.asks) < most {
				more = true
				c.ask(f.flows[n])
			}
		}
	}
	for _, i := range firsts {
		c.tenants[c.entries[i].tenant].chosen = true
		c.ask(i)
	}
}

// askFirst asks the first flow of each tenant, up to most in all. It also asks a flow behind the
// first level if its reserved turn may come.
func (c *chooser) askFirst(flows []int, most int, flow func(*tenantEntry) int) {
	for _, i := range flows {
		if len(c.asks) >= most {
			return
		}
		f := &c.tenants[i]
		f.chosen = true
		c.ask(flow(f))
		if turns := c.limit/len(flows) + 1; len(f.flows) > 0 && c.Shares.BehindDue(f.tenant, int64(turns)) {
			c.ask(c.oldestBehind(f))
		}
	}
}

// firstOfClasses returns the first flow of each class that the tenants' flows leave out.
func (c *chooser) firstOfClasses(held, free []int) (firsts []int) {
	covered := [Classes]bool{}
	for _, i := range held {
		covered[ClassOf(c.entries[c.tenants[i].best].id)] = true
	}
	for _, i := range free {
		covered[ClassOf(c.entries[c.tenants[i].free].id)] = true
	}
	best := [Classes]int{} // 1 + index
	for i := range c.entries {
		e := &c.entries[i]
		class := ClassOf(e.id)
		if e.waits || covered[class] {
			continue
		}
		if b := best[class]; b == 0 || c.tenants[e.tenant].start < c.tenants[c.entries[b-1].tenant].start || c.entries[b-1].tenant == e.tenant && e.before(&c.entries[b-1]) {
			best[class] = i + 1
		}
	}
	for _, i := range best {
		if i > 0 {
			firsts = append(firsts, i-1)
		}
	}
	slices.SortFunc(firsts, func(a, b int) int {
		x, y := &c.entries[a], &c.entries[b]
		return cmp.Or(cmp.Compare(c.tenants[x.tenant].start, c.tenants[y.tenant].start), cmp.Compare(x.flow.AskedAt, y.flow.AskedAt), cmp.Compare(x.id, y.id))
	})
	return firsts[:min(len(firsts), leastRecent)]
}

// keepFirst inserts a tenant into the list of those that go first, which holds at most most. flow
// returns the index of the flow that it goes with.
func (c *chooser) keepFirst(first []int, i, most int, flow func(*tenantEntry) int) []int {
	before := func(a, b int) int {
		x, y := &c.tenants[a], &c.tenants[b]
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(c.entries[flow(x)].flow.Oldest, c.entries[flow(y)].flow.Oldest), cmp.Compare(x.tenant, y.tenant))
	}
	if len(first) == most {
		if before(i, first[most-1]) > 0 {
			return first
		}
		first = first[:most-1]
	}
	at, _ := slices.BinarySearchFunc(first, i, before)
	return slices.Insert(first, at, i)
}

// gather lists the other ready flows of some tenants, in the order in which they are worth
// asking.
func (c *chooser) gather(held, free []int) {
	some := make([]bool, len(c.tenants))
	for _, i := range slices.Concat(held, free) {
		some[i] = true
	}
	for i := range c.entries {
		e := &c.entries[i]
		if f := &c.tenants[e.tenant]; some[e.tenant] && !e.waits && i != f.free && i != f.best {
			f.flows = append(f.flows, i)
		}
	}
	for i := range c.tenants {
		slices.SortFunc(c.tenants[i].flows, func(a, b int) int {
			if c.entries[a].before(&c.entries[b]) {
				return -1
			}
			return 1
		})
	}
}

// oldestBehind returns the flow with the oldest job behind a tenant's first level.
func (c *chooser) oldestBehind(f *tenantEntry) int {
	return slices.MinFunc(f.flows, func(a, b int) int {
		x, y := &c.entries[a], &c.entries[b]
		level := c.entries[f.best].level
		return cmp.Or(compareBool(x.level == level, y.level == level), cmp.Compare(x.flow.Oldest, y.flow.Oldest), cmp.Compare(x.id, y.id))
	})
}

// askLeastRecent fills up with the flows that were asked longest ago.
func (c *chooser) askLeastRecent() {
	before := func(a, b int) int {
		x, y := &c.entries[a], &c.entries[b]
		return cmp.Or(cmp.Compare(x.flow.AskedAt, y.flow.AskedAt), cmp.Compare(x.id, y.id))
	}
	most := MaxFlows - len(c.asks)
	rest := make([]int, 0, most)
	for i := range c.entries {
		if c.entries[i].asked {
			continue
		}
		if len(rest) == most {
			if before(i, rest[most-1]) > 0 {
				continue
			}
			rest = rest[:most-1]
		}
		at, _ := slices.BinarySearchFunc(rest, i, before)
		rest = slices.Insert(rest, at, i)
	}
	for _, i := range rest {
		c.ask(i)
	}
}

// horizon returns, by class, the earliest turn of a tenant of which no flow is asked for its
// turn.
func (c *chooser) horizon() *fairqueue.Horizon {
	h := fairqueue.Horizon{Jobs: c.limit}
	for i := range h.Starts {
		h.Starts[i] = math.Inf(1)
	}
	for i := range c.entries {
		e := &c.entries[i]
		if f := &c.tenants[e.tenant]; !e.waits && !f.chosen {
			start := &h.Starts[ClassOf(e.id)]
			*start = min(*start, f.start)
		}
	}
	return &h
}

// limits says how many jobs to ask of each flow. The tenants share one and a half times what can
// be served: half by their weights and half evenly, because jobs differ in size. A tenant's share
// goes to the flows of its first level. Each other flow has the reserved share.
func (c *chooser) limits(shares Shares) []Query {
	flows, weights := 0.0, 0.0
	for i := range c.tenants {
		if f := &c.tenants[i]; f.chosen {
			flows, weights = flows+1, weights+shares.Weight(f.tenant)
		}
	}
	level := func(e *entry) int64 {
		if f := &c.tenants[e.tenant]; f.best >= 0 {
			return c.entries[f.best].level
		}
		return -1
	}
	for _, i := range c.asks {
		e := &c.entries[i]
		if f := &c.tenants[e.tenant]; f.chosen && !e.waits && e.level == level(e) {
			f.first++
		}
	}
	asks := make([]Query, len(c.asks))
	for n, i := range c.asks {
		e := &c.entries[i]
		f := &c.tenants[e.tenant]
		flow := e.flow
		flow.SeenNext, flow.NewNext = min(flow.SeenNext, flow.NewNext), never
		a := Query{Flow: e.id, Floor: flow.Floor, SeenNext: flow.SeenNext, NewDue: flow.NewDue, Informs: !f.chosen && f.best >= 0}
		flow.AskedAt, flow.NewReady = c.now, never
		part := c.limit
		if f.chosen {
			part = int(math.Ceil(1.5*float64(c.limit)*(1/flows+shares.Weight(f.tenant)/weights)/2)) + 1
		}
		switch {
		case a.Informs:
			a.Limit = 1
		case f.chosen && !e.waits && e.level == level(e):
			a.Limit = int64((part+f.first-1)/f.first) + 1
		default:
			a.Limit = int64(part/fairqueue.Reserved + 2)
		}
		a.Limit = min(a.Limit, int64(c.limit))
		asks[n] = a
	}
	return asks
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
