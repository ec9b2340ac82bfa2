package store

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// A lane for jobs is made of lines, one for each tenant, priority and class of what its jobs call that has
// messages in it. A line is first come, first served, and none has to wait for jobs of another class that
// may not be called now. Between lines the higher priority goes first, where a job gains a level for
// each half minute that it waits; and among equals the tenant that was
// served least, by the tokens that its jobs are thought to take, answers included, and by its weight (start-time
// fair queueing: Goyal, Vin, Cheng 1996). So a tenant with ten jobs does not wait behind another's ten thousand.
//
// One job in eight is not of the first level that has any, but of those behind it: however many come with
// a higher priority, the others have that share. It is reserved in the lane, and in each class too, for
// what those of one class call may be all that is scarce.
//
// Each process shares what it delivers; nothing of that is stored. What has rows in the database is
// found there; the memory of it is a hint.

// reserved is in how many jobs one is reserved for those behind the first level.
const reserved = 8

// ageing is how long, in milliseconds, a job waits for one level of priority.
const ageing = 30_000

// The column "rank" of a job's message is the number of its line.
const (
	ranksOfClass  = 16
	ranksOfTenant = ranksOfClass * Classes
)

// Classes is how many classes there are, by what jobs call. That of those that call nothing is 0.
const Classes = 64

func lineOf(tenant int64, class, priority int) int64 {
	return tenant*ranksOfTenant + int64(class*ranksOfClass+forebay.MaxPriority-priority)
}

func classOf(line int64) int64 { return line % ranksOfTenant / ranksOfClass }

// The same in SQL.
func sqlTenantOf(line string) string { return fmt.Sprintf("%s / %d", line, ranksOfTenant) }
func sqlClassOf(line string) string {
	return fmt.Sprintf("%s %% %d / %d", line, ranksOfTenant, ranksOfClass)
}
func sqlLevelOf(line string) string { return fmt.Sprintf("%s %% %d", line, ranksOfClass) }

// lines is what the writer remembers of a lane.
type lines struct {
	known  bool            // of is all there are
	full   bool            // the latest look found in each line as much as it asked for
	of     map[int64]*line // by number
	swept  int64           // when a look from the very beginning was made last
	called []string        // deployments where those could be called that the last look found
	served map[int64]float64
	clock  float64 // the virtual time of the fair share: that of the tenant served last
	turns  turns
}

// turns counts the jobs that were served, in all and by class.
type turns struct {
	all     int
	classes [Classes]int
}

// behind tells from which classes the next job, whose turn it were as one of that class, may be if it is
// one from behind the first level.
func (t *turns) behind(class int64) (all, same bool) {
	return t.all%reserved == reserved-1, t.classes[class]%reserved == reserved-1
}

func (t *turns) count(class int64) {
	t.all++
	t.classes[class]++
}

// line is one of them.
type line struct {
	// All that became ready before this time was taken, and whatever becomes ready is behind it: so a look
	// that begins here need not pass what is left of those, which an old snapshot anywhere on the server
	// keeps from being removed. Should the clock be set back, a look from the very beginning, once in a
	// while, finds what is before it.
	floor int64
	// Of what was not ready, locked ones included, when the latest look was prepared, nothing becomes ready before
	// waits; of what has come since, what was not ready yet is so at far or later, and the rest at near or before. So a
	// look for what is not ready need not pass what is left of jobs that have ended whose locks would still hold. Of the
	// locks that other processes take nothing is told: those of one that dies are seen by a look from the very beginning.
	waits, far, near int64

	next  int64 // none of it is ready before this time
	noted int64 // when the earliest is ready of those that came since the latest look was prepared
	asked int64 // when that was
	walk  walk
}

// never is a time that does not come.
const never = math.MaxInt64

const sweeping = time.Second // between looks from the very beginning, at least

// pace keeps rare what passes all that was ever removed from a lane. That takes no time, as a rule; but where
// somebody keeps an old snapshot it takes the longer the more jobs have ended since.
type pace struct {
	usual  time.Duration    // of a transaction, about
	excess [2]time.Duration // for each such look, of the latest two transactions that made some
}

// note takes in how long a transaction took, and how many such looks were a part of it.
func (p *pace) note(took time.Duration, looks int) {
	switch {
	case looks > 0:
		p.excess = [2]time.Duration{max(0, took-p.usual) / time.Duration(looks), p.excess[0]}
	case p.usual == 0:
		p.usual = took
	default:
		p.usual += (took - p.usual) / 16
	}
}

// every is how long the pause between two is, so that they take less than one part in 1,000 of the time. One that was slow alone
// was so for another reason.
func (p *pace) every(least time.Duration) time.Duration {
	const share, most = 1000, 15 * time.Second
	return max(least, min(share*min(p.excess[0], p.excess[1]), most))
}

func newLines() *lines { return &lines{of: map[int64]*line{}, served: map[int64]float64{}} }

// linesOf returns what is remembered of a lane.
func (w *writer) linesOf(lane int64) *lines {
	l := w.lines[lane]
	if l == nil {
		l = newLines()
		w.lines[lane] = l
	}
	return l
}

// note remembers that a line may have a message that is ready at that time.
func (l *lines) note(no, at, now int64) {
	one := l.of[no]
	if one == nil {
		one = &line{next: never, noted: never, waits: never, far: never}
		l.of[no] = one
	}
	one.next, one.noted = min(one.next, at), min(one.noted, at)
	if at > now {
		one.far = min(one.far, at)
	} else {
		one.near = max(one.near, at)
	}
	one.floor = min(one.floor, at) // it was stored beside a transaction that has taken later ones
}

// sqlLinesOf makes l, the lines of lane ?1, in as many steps as there are. The last is NULL.
const sqlLinesOf = `
WITH RECURSIVE l(line) AS (SELECT min(rank) FROM messages WHERE lane = ?1
  UNION ALL SELECT (SELECT min(m.rank) FROM messages m WHERE m.lane = ?1 AND m.rank > l.line) FROM l WHERE l.line IS NOT NULL)`

const sqlLines = sqlLinesOf + " SELECT line FROM l WHERE line IS NOT NULL"

// find asks which lines there are.
func (l *lines) find(t *tx, lane int64) error {
	of := map[int64]*line{}
	err := t.prep(sqlLines).int(lane).each(func(r row) error {
		no := r.int(0)
		if of[no] = l.of[no]; of[no] == nil {
			of[no] = &line{}
		}
		of[no].next, of[no].waits = 0, 0
		return nil
	})
	if err != nil {
		return err
	}
	tenants := map[int64]bool{}
	for no := range of {
		tenants[no/ranksOfTenant] = true
	}
	for tenant, served := range l.served { // one that has nothing left keeps no credit, and no debt for ever
		if !tenants[tenant] && served <= l.clock {
			delete(l.served, tenant)
		}
	}
	l.known, l.of = true, of
	return nil
}

// maxLines is how many lines one look asks; leastRecent of them are those asked longest ago.
const (
	maxLines    = 32
	leastRecent = 8
)

// lineAsk is how much a look asks of a line.
type lineAsk struct {
	no, floor, limit int64
	waits, near      int64 // see line
	got, next        int64 // how many are ready, and when the earliest is that is not; never: there is none
}

// sweep has the next look begin from the very beginning, if the last that did is long ago.
func (l *lines) sweep(now int64, every time.Duration) (sweeps bool) {
	if since := now - l.swept; since >= 0 && since < every.Milliseconds() {
		return false
	}
	l.swept = now
	for _, one := range l.of {
		one.floor, one.waits = 0, 0
	}
	return true
}

// choose says what to ask so that so many can be served.
func (l *lines) choose(limit int, now int64, restsUntil func(tenant int64) int64) []lineAsk {
	// There may be thousands: what they are compared by is looked up once.
	type entry struct {
		no, level int64
		waits     bool
		vtime     float64
		one       *line
	}
	entries := make([]entry, 0, len(l.of))
	for no, one := range l.of {
		if tenant := no / ranksOfTenant; restsUntil(tenant) <= now {
			entries = append(entries, entry{no, no % ranksOfClass, one.next > now, l.vtime(tenant), one})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(compareBool(a.waits, b.waits), cmp.Compare(a.level, b.level), cmp.Compare(a.vtime, b.vtime), cmp.Compare(a.no, b.no))
	})
	if len(entries) > maxLines {
		rest := entries[maxLines-leastRecent:]
		slices.SortFunc(rest, func(a, b entry) int { return cmp.Or(cmp.Compare(a.one.asked, b.one.asked), cmp.Compare(a.no, b.no)) })
		entries = entries[:maxLines]
	}
	// Those that go first share the whole limit; of the others the first few have the reserved share, and show
	// whether they have aged.
	few := int64(max(4, limit/reserved+1))
	first := 0
	for first < len(entries) && !entries[first].waits && entries[first].level == entries[0].level {
		first++
	}
	asks := make([]lineAsk, len(entries))
	for i, e := range entries {
		e.one.waits, e.one.far = min(e.one.waits, e.one.far), never
		asks[i] = lineAsk{no: e.no, floor: e.one.floor, waits: e.one.waits, near: e.one.near, limit: min(few, int64(limit))}
		if i < first {
			asks[i].limit = int64(min(limit, (3*limit/2+first-1)/first+1))
		}
		e.one.asked, e.one.noted = now, never
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

// vtime is the virtual time at which a tenant is served next: one that comes anew begins with the others.
func (l *lines) vtime(tenant int64) float64 { return max(l.served[tenant], l.clock) }

// Share is a tenant's weight among those who wait; 1 is everybody's.
type Share func(tenant int64) (weight float64)

// cost is what so many tokens of a tenant count for.
func (share Share) cost(tenant int64, tokens float64) float64 {
	if share != nil {
		if weight := share(tenant); weight > 0 {
			return tokens / weight
		}
	}
	return tokens
}

// roughly is about the tokens of a job of which nothing better is known.
func (m *candidate) roughly() float64 {
	const base = 250 // of the prompt around an input, and of the answer
	return base + float64(m.InputSize)/forebay.BytesPerToken
}

// expected is the tokens that will be reserved for a job, if that is where its call is tried first. It is what
// order goes by: did that count otherwise than charge does, a tenant would be served ahead of its turn, and those
// whose turn it was would lose it, for nobody is served at a time before the clock.
func (t *tx) expected(m *candidate, plan Plan) float64 {
	if options := m.planned(plan); len(options) > 0 {
		if size := t.stateSoFar(options[0].Deployment).Size(options[0].Limits, options[0].Request); size > 0 {
			return float64(size)
		}
	}
	return m.roughly()
}

// stateSoFar is what is known of a deployment without a statement.
func (t *tx) stateSoFar(name string) *quota.State {
	if d := t.deployments[name]; d != nil {
		return &d.State
	}
	if d := t.w.deployments[name]; d != nil { // where one process writes, they are kept, but not at hand before the first is asked for
		return &d.State
	}
	return &unknown
}

var unknown quota.State // for reading only

// tokens is what was reserved for a job's call.
func (m *candidate) tokens() float64 {
	if m.Admission != nil {
		if size := m.Admission.Reservation.Size(); size > 0 {
			return float64(size)
		}
	}
	return m.roughly()
}

// nextDue returns when a line may have a ready message, but for those in except; never: none will.
func (l *lines) nextDue(restsUntil func(tenant int64) int64, except func(no int64) bool) int64 {
	next := int64(never)
	for no, one := range l.of {
		if one.next < next && !except(no) {
			next = min(next, max(one.next, restsUntil(no/ranksOfTenant)))
		}
	}
	return next
}

// charge notes that a job was taken.
func (l *lines) charge(m *candidate, share Share) {
	start := l.vtime(m.Tenant)
	l.clock = start
	l.served[m.Tenant] = start + share.cost(m.Tenant, m.tokens())
	l.turns.count(classOf(m.rank))
}

// order puts candidates into the order in which they are served. Each line's are in their order already.
// Where a line has shown only its beginning nothing is said of what comes after that: those of its class are
// left out. cost is what serving one counts for.
func (l *lines) order(found []candidate, cut map[int64]bool, cost func(*candidate) float64, now int64) (ordered []candidate, more bool) {
	if len(found) == 0 || !slices.ContainsFunc(found, func(m candidate) bool { return m.rank != found[0].rank }) {
		return found, len(found) > 0 && cut[found[0].rank]
	}
	heads := map[int64][]candidate{}
	var numbers []int64
	for _, m := range found {
		if heads[m.rank] == nil {
			numbers = append(numbers, m.rank)
		}
		heads[m.rank] = append(heads[m.rank], m)
	}
	slices.Sort(numbers)
	vtimes := map[int64]float64{}
	for _, no := range numbers {
		vtimes[no/ranksOfTenant] = l.vtime(no / ranksOfTenant)
	}
	ordered = make([]candidate, 0, len(found))
	turns := l.turns
	first := func(goesBefore func(a, b *candidate) bool, of func(*candidate) bool) int64 {
		best := int64(-1)
		for _, no := range numbers {
			if len(heads[no]) > 0 && of(&heads[no][0]) && (best < 0 || goesBefore(&heads[no][0], &heads[best][0])) {
				best = no
			}
		}
		return best
	}
	for {
		best := first(func(a, b *candidate) bool { return goesBefore(a, b, vtimes, now) }, func(*candidate) bool { return true })
		if best < 0 {
			break
		}
		if all, same := turns.behind(classOf(best)); all || same {
			level := heads[best][0].level(now)
			other := first(func(a, b *candidate) bool { return servedBefore(a, b, vtimes) }, func(m *candidate) bool {
				return m.level(now) > level && (all || classOf(m.rank) == classOf(best))
			})
			if other >= 0 {
				best = other
			}
		}
		turns.count(classOf(best))
		m := &heads[best][0]
		heads[best] = heads[best][1:]
		vtimes[m.Tenant] += cost(m)
		ordered = append(ordered, *m)
		if len(heads[best]) == 0 && cut[best] {
			for _, no := range numbers {
				if classOf(no) == classOf(best) {
					delete(heads, no)
				}
			}
		}
	}
	for _, no := range numbers {
		more = more || cut[no]
	}
	return ordered, more
}

func goesBefore(a, b *candidate, vtimes map[int64]float64, now int64) bool {
	if c := cmp.Compare(a.level(now), b.level(now)); c != 0 {
		return c < 0
	}
	return servedBefore(a, b, vtimes)
}

// servedBefore is goesBefore whatever the levels.
func servedBefore(a, b *candidate, vtimes map[int64]float64) bool {
	c := 0
	if a.Tenant != b.Tenant {
		c = cmp.Compare(vtimes[a.Tenant], vtimes[b.Tenant])
	}
	return cmp.Or(c, a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.Seq, b.Seq)) < 0
}

// level is a job's place by priority and by how long it has been ready; 0 is the first.
func (m *candidate) level(now int64) int64 {
	return max(0, m.rank%ranksOfClass-max(0, now-m.ScheduledAt.UnixMilli())/ageing)
}

// keepFloors notes up to where each line was served, once a look is over.
func (l *lines) keepFloors(taken map[int64]int64, left ...[]candidate) {
	for no, visible := range taken {
		if one := l.of[no]; one != nil {
			one.floor = max(one.floor, visible)
		}
	}
	for _, list := range left {
		for i := range list {
			if one := l.of[list[i].rank]; one != nil && !list[i].fresh {
				one.floor = min(one.floor, list[i].ScheduledAt.UnixMilli())
			}
		}
	}
}
