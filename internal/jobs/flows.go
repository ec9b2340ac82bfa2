package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/fairqueue"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// A subqueue for jobs is made of lines, one for each tenant, priority and class of what its jobs call that has messages in it.
// A line is first come, first served, and none has to wait for jobs of another class that may not be called now. Package
// fairqueue chooses between lines: first the tenant, by its weight and the tokens that its jobs are thought to take, answers
// included; then, among the tenant's lines, by priority and age. So a tenant with ten jobs does not wait behind another's
// ten thousand, whatever their priority and age.
//
// Each process shares what it delivers; nothing of that is stored. What has rows in the database is
// found there; the memory of it is a hint.

// The column "rank" of a job's message is the number of its line.
const (
	ranksOfClass  = 16
	ranksOfTenant = ranksOfClass * Classes
)

// Classes is how many classes there are, by what jobs call. That of those that call nothing is 0.
const Classes = fairqueue.Classes

func lineOf(tenant int64, class, priority int) int64 {
	return tenant*ranksOfTenant + int64(class*ranksOfClass+forebay.MaxPriority-priority)
}

func tenantOfLine(line int64) int64 { return line / ranksOfTenant }
func classOf(line int64) int64      { return line % ranksOfTenant / ranksOfClass }
func rankOf(line int64) int64       { return line % ranksOfClass }

// The same in SQL.
func sqlTenantOf(line string) string { return fmt.Sprintf("%s / %d", line, ranksOfTenant) }
func sqlClassOf(line string) string {
	return fmt.Sprintf("%s %% %d / %d", line, ranksOfTenant, ranksOfClass)
}
func sqlLevelOf(line string) string { return fmt.Sprintf("%s %% %d", line, ranksOfClass) }

// lines is what the writer remembers of a subqueue.
type lines struct {
	known  bool            // of is all there are
	full   bool            // the latest look found in each line as much as it asked for
	of     map[int64]*line // by number
	swept  int64           // when a look from the very beginning was made last
	called []string        // deployments where those could be called that the last look found
	shares fairqueue.Queue
	held   [Classes]bool // classes in which the latest look found jobs that may not be called
	scarce map[string]*scarce
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
	head  int64 // its first ready message has been ready since then, or for less long; 0: not known
	walk  walk
}

const sweeping = time.Second // between looks from the very beginning, at least

// pace keeps rare what passes all that was ever removed from a subqueue. That takes no time, as a rule; but where
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

func newLines() *lines { return &lines{of: map[int64]*line{}} }

// linesOf returns what is remembered of a subqueue.
func (w *participant) linesOf(subqueue queue.Subqueue) *lines {
	l := w.lines[subqueue]
	if l == nil {
		l = newLines()
		w.lines[subqueue] = l
	}
	return l
}

// note remembers that a line may have a message that is ready at that time.
func (l *lines) note(no, at, now int64) {
	one := l.of[no]
	if one == nil {
		one = &line{next: db.Never, noted: db.Never, waits: db.Never, far: db.Never, head: at}
		l.of[no] = one
	}
	one.next, one.noted = min(one.next, at), min(one.noted, at)
	if at > now {
		one.far = min(one.far, at)
	} else {
		one.near = max(one.near, at)
	}
	one.head = min(one.head, at)
	one.floor = min(one.floor, at) // it was stored beside a transaction that has taken later ones
}

// sqlLinesOf makes l, the lines of subqueue ?1, in as many steps as there are. The last is NULL.
const sqlLinesOf = `
WITH RECURSIVE l(line) AS (SELECT min(rank) FROM messages WHERE lane = ?1
  UNION ALL SELECT (SELECT min(m.rank) FROM messages m WHERE m.lane = ?1 AND m.rank > l.line) FROM l WHERE l.line IS NOT NULL)`

const sqlLines = sqlLinesOf + " SELECT line FROM l WHERE line IS NOT NULL"

// find asks which lines there are.
func (l *lines) find(t *Tx, subqueue queue.Subqueue) error {
	of := map[int64]*line{}
	err := t.Prep(sqlLines).Int(int64(subqueue)).Each(func(r driver.Row) error {
		no := r.Int(0)
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
		tenants[tenantOfLine(no)] = true
	}
	l.shares.Forget(func(tenant int64) bool { return tenants[tenant] })
	l.known, l.of = true, of
	return nil
}

// Share is a tenant's weight among those who wait; 1 is everybody's.
type Share func(tenant int64) (weight float64)

func (share Share) weight(tenant int64) float64 {
	if share != nil {
		if weight := share(tenant); weight > 0 {
			return weight
		}
	}
	return 1
}

// cost is what so many tokens of a tenant count for.
func (share Share) cost(tenant int64, tokens float64) float64 { return tokens / share.weight(tenant) }

// roughly is about the tokens of a job of which nothing better is known.
func (m *candidate) roughly() float64 {
	const base = 250 // of the prompt around an input, and of the answer
	return base + float64(m.InputSize)/forebay.BytesPerToken
}

// expected is the tokens that will be reserved for a job, if that is where its call is tried first. It is what
// order goes by: did that count otherwise than charge does, a tenant would be served ahead of its turn, and those
// whose turn it was would lose it, for nobody is served at a time before the clock.
func (t *Tx) expected(m *candidate, plan admission.Plan) float64 {
	if options := m.planned(plan); len(options) > 0 {
		if size := t.stateSoFar(options[0].Deployment).Size(options[0].Limits, options[0].Request); size > 0 {
			return float64(size)
		}
	}
	return m.roughly()
}

// stateSoFar is what is known of a deployment without a statement.
func (t *Tx) stateSoFar(name string) *quota.State {
	if d := t.admission.Deployments[name]; d != nil {
		return &d.State
	}
	if d := t.admission.W.Deployments[name]; d != nil { // where one process writes, they are kept, but not at hand before the first is asked for
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
	next := int64(db.Never)
	for no, one := range l.of {
		if one.next < next && !except(no) {
			next = min(next, max(one.next, restsUntil(tenantOfLine(no))))
		}
	}
	return next
}

// charge notes that a job was taken.
func (t *Tx) charge(l *lines, m *candidate, share Share) {
	l.shares.Charge(m.Tenant, int(classOf(m.rank)), m.behind, share.cost(m.Tenant, m.tokens()))
	t.chargeScarce(l, m, share)
}

// order puts candidates into the order in which they are served. Each line's are in their order already, and cut says of which lines
// there are more. cost is what serving one counts for.
func (l *lines) order(found []candidate, cut map[int64]bool, horizon *fairqueue.Horizon, cost func(*candidate) float64, now int64) (ordered []candidate, more bool) {
	return orderBy(&l.shares, found, cut, horizon, cost, now)
}

// orderBy is order by any shares.
func orderBy(shares *fairqueue.Queue, found []candidate, cut map[int64]bool, horizon *fairqueue.Horizon, cost func(*candidate) float64, now int64) (ordered []candidate, more bool) {
	if len(found) == 0 || horizon == nil && !slices.ContainsFunc(found, func(m candidate) bool { return m.rank != found[0].rank }) {
		return found, len(found) > 0 && cut[found[0].rank]
	}
	var list []fairqueue.Line
	at := map[int64]int{}
	places := make([][]int, 0, 8) // of each line's jobs among those found
	for i := range found {
		m := &found[i]
		n, ok := at[m.rank]
		if !ok {
			n, at[m.rank] = len(list), len(list)
			list = append(list, fairqueue.Line{Flow: m.Tenant, Class: int(classOf(m.rank)), Rank: rankOf(m.rank), Cut: cut[m.rank]})
			places = append(places, nil)
		}
		list[n].Jobs = append(list[n].Jobs, fairqueue.Job{Ready: m.ScheduledAt.UnixMilli(), Seq: m.Seq})
		places[n] = append(places[n], i)
	}
	picks, more := shares.Order(list, horizon, now, func(line, job int) float64 { return cost(&found[places[line][job]]) })
	ordered = make([]candidate, len(picks))
	for i, p := range picks {
		ordered[i] = found[places[p.Line][p.Job]]
		ordered[i].behind = p.Behind
	}
	return ordered, more
}

// keepFloors notes up to where each line was served, once a look is over.
func (l *lines) keepFloors(taken map[int64]int64, left ...[]candidate) {
	for no, visible := range taken {
		if one := l.of[no]; one != nil {
			one.floor, one.head = max(one.floor, visible), max(one.head, visible)
		}
	}
	for _, list := range left {
		for i := range list {
			if one := l.of[list[i].rank]; one != nil && !list[i].fresh {
				ready := list[i].ScheduledAt.UnixMilli()
				one.floor, one.head = min(one.floor, ready), min(one.head, ready)
			}
		}
	}
}
