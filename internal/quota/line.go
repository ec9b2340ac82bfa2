package quota

import (
	"cmp"
	"math"
	"slices"

	"github.com/forebayhq/forebay"
)

// Backfill is how many candidates behind one that does not fit are tried in its place.
const Backfill = 64

// Candidate is a job that waits for this deployment. Its ID must stay the same while it waits.
type Candidate struct {
	ID      int64
	Request Request
	// Tenant is whose job it is. Probes are drawn from different tenants.
	Tenant int64
	// Again: a call of the job has failed before. That it fails again says little about the
	// deployment.
	Again bool
}

// Decision is what became of a candidate.
type Decision struct {
	Reservation Reservation
	Verdict     Verdict
}

// Admitted reports whether the candidate goes now. If it does not, and its verdict has no reason,
// nobody asked about it: there were not enough slots.
func (d Decision) Admitted() bool { return d.Reservation.Seq != 0 }

// Admit decides for the candidates in their order, at most slots of which may go, and answers for
// each.
//
// What the first that does not fit needs is set aside until it fits (EASY backfilling: Lifka,
// "The ANL/IBM SP scheduling system", 1995). Of the next [Backfill], those go that do not delay
// it. For one that is larger than the whole limit nothing is set aside. Once a candidate was
// passed over for 45 seconds nobody goes ahead of it.
//
// When the deployment has been failing, the cheapest candidate probes whether it works again.
// When it may have begun to fail, the cheapest go first.
func (s *State) Admit(now int64, l Limits, line []Candidate, slots int) []Decision {
	s.advance(now, l)
	r := round{s: s, l: l, line: line, slots: slots, decisions: make([]Decision, len(line))}
	if slots <= 0 || len(line) == 0 {
		return r.decisions
	}
	s.passed.seen(s.clock, line)
	if slices.ContainsFunc(line, func(c Candidate) bool { return !c.Again }) {
		s.breaker.fresh(s.clock)
	}
	var v Verdict
	if _, probe := s.breaker.admits(s.clock); probe {
		v = r.probe()
	} else if v = r.overdue(); v.Admitted() {
		v = r.backfill()
	}
	if !v.Admitted() {
		for i := range r.decisions {
			if d := &r.decisions[i]; !d.Admitted() && d.Verdict.Admitted() {
				d.Verdict = v
			}
		}
	}
	return r.decisions
}

// round is one call of Admit. Each of its steps returns the verdict for those not yet asked about.
type round struct {
	s         *State
	l         Limits
	line      []Candidate
	slots     int
	decisions []Decision
	hold      hold
}

// hold is what is set aside for the first candidate that does not fit.
type hold struct {
	need Amount
	at   int64 // when it will be there
}

func (r *round) try(i int) Verdict {
	d := &r.decisions[i]
	if d.Reservation, d.Verdict = r.s.Reserve(r.s.clock, r.l, r.line[i].Request); d.Verdict.Admitted() {
		d.Reservation.Again, d.Reservation.Tenant = r.line[i].Again, r.line[i].Tenant
		if d.Reservation.Probe && d.Reservation.Again {
			r.s.breaker.repeats()
		}
		r.slots--
		r.s.passed.remove(r.line[i].ID)
	}
	return d.Verdict
}

// probe has as many candidates try as may probe now, and nobody else.
func (r *round) probe() (v Verdict) {
	for v.Admitted() && r.slots > 0 && slices.ContainsFunc(r.decisions, func(d Decision) bool { return !d.Admitted() }) {
		v = r.probeOne()
	}
	return v
}

// probeOne has one candidate try. Where calls are turned away, which costs nothing, it is by
// turns the one that goes first and any other. After one that may have been at fault itself it is
// another tenant's, if one waits.
func (r *round) probeOne() Verdict {
	chosen := r.drawn()
	if r.line[chosen].Again && r.s.breaker.freshAt > 0 {
		if at := max(r.s.breaker.until, r.s.breaker.freshAt) + firstChance; r.s.clock < at {
			return Verdict{Reason: forebay.WaitBreaker, RetryAt: at}
		}
	}
	if b := &r.s.breaker; b.denied != 0 || b.doubts != 0 {
		turn := b.openings
		if b.denied == 0 {
			turn = b.doubts
		}
		if chosen = 0; turn%2 == 1 {
			chosen = int((turn + 1) / 2 % int64(len(r.line)))
		}
		var others []int
		for i, c := range r.line {
			if c.Tenant != b.doubter.tenant {
				others = append(others, i)
			}
		}
		if b.doubter.tenant != 0 && len(others) > 0 && !slices.Contains(others, chosen) {
			chosen = others[int((turn+1)/2%int64(len(others)))]
		}
	}
	v := r.try(chosen)
	if v.Admitted() {
		v, _ = r.s.breaker.admits(r.s.clock)
	}
	return v
}

// drawn returns the candidate that probes a deployment that fails. One that has not failed yet
// comes first. By turns it is the cheapest and any other: jobs at fault themselves must not keep
// the deployment closed to all. Once others went well it is any.
func (r *round) drawn() int {
	again := true
	for i, c := range r.line {
		again = again && (c.Again || r.decisions[i].Admitted())
	}
	// Whose calls alone fail does not probe while others can.
	b := &r.s.breaker
	blamed := int64(0)
	if b.blame.oneTenant(r.s.clock) {
		for i, c := range r.line {
			if !r.decisions[i].Admitted() && c.Again == again && c.Tenant != b.blame.tenant {
				blamed = b.blame.tenant
			}
		}
	}
	var tenants []int64
	cheapest, least := -1, int64(0)
	for i, c := range r.line {
		if r.decisions[i].Admitted() || c.Again != again || blamed != 0 && c.Tenant == blamed {
			continue
		}
		if cost := r.s.Estimate(r.l, c.Request); cheapest < 0 || cost < least {
			cheapest, least = i, cost
		}
		if !slices.Contains(tenants, c.Tenant) {
			tenants = append(tenants, c.Tenant)
		}
	}
	if b.mixed == 0 && b.openings%2 == 1 && b.recent.again == 0 && !b.doubted() {
		return cheapest
	}
	tenant := tenants[scattered(uint64(r.s.seq), uint64(b.openings))%uint64(len(tenants))]
	var own []int
	for i, c := range r.line {
		if !r.decisions[i].Admitted() && c.Again == again && c.Tenant == tenant {
			own = append(own, i)
		}
	}
	return own[spread(r.s.seq, len(own))]
}

// spread is one of n places. Those of successive numbers are far from each other, for jobs at
// fault may have been submitted one after the other.
func spread(number int64, n int) int {
	_, fraction := math.Modf(float64(number%(1<<20)) * (math.Sqrt(5) - 1) / 2)
	return int(fraction * float64(n))
}

// scattered is a number that looks random (the finalizer of SplitMix64: Steele, Lea and Flood,
// 2014).
func scattered(seed, n uint64) uint64 {
	x := seed*0x9e3779b97f4a7c15 + n*0xd1342543de82ef95 + 0x2545f4914f6cdd1d
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// overdue has those go first that waited for too long. While one does not fit, nobody else goes.
func (r *round) overdue() Verdict {
	var line [maxPassed]int
	due := line[:0]
	for _, p := range r.s.passed {
		if i := indexOf(r.line, p.id); i >= 0 && r.s.clock-p.since >= patience {
			due = append(due, i)
		}
	}
	for _, i := range due {
		if r.slots == 0 {
			break
		}
		if v := r.try(i); !v.Admitted() {
			return Verdict{Reason: v.Reason, RetryAt: v.RetryAt}
		}
	}
	return Verdict{}
}

// backfill goes through the line until the slots are taken or nothing at all may go. It also ends
// when enough were tried behind the first that does not fit.
func (r *round) backfill() Verdict {
	var stop Verdict
	// The first that does not fit, the last that does, and how many were tried since blocked.
	blocked, last, tried := -1, -1, 0
	order := r.order()
	for i := range r.line {
		if order != nil {
			i = order[i]
		}
		if r.decisions[i].Admitted() {
			continue
		}
		if r.slots == 0 || tried > Backfill || !stop.Admitted() {
			break
		}
		if r.hold.at > 0 && r.s.delays(r.l, r.line[i].Request, r.hold) {
			r.decisions[i].Verdict = Verdict{Reason: forebay.WaitQuota, RetryAt: r.hold.at, Smaller: true}
			tried++
			continue
		}
		v := r.try(i)
		switch {
		case v.Admitted():
			last = max(last, i)
		case !v.Smaller:
			stop = v
		default:
			if blocked < 0 {
				blocked = i
			}
			if r.hold.at == 0 && r.s.Holds(r.s.clock, r.l, r.line[i].Request) {
				_, need := r.s.cost(r.l, r.l.fill(r.line[i].Request))
				r.hold = hold{need: need, at: v.RetryAt}
			}
		}
		if blocked >= 0 {
			tried++
		}
	}
	for i := range max(last, 0) {
		if !r.decisions[i].Admitted() {
			r.s.passed.add(r.s.clock, r.line[i].ID)
		}
	}
	if stop.Admitted() && blocked >= 0 && r.slots > 0 {
		stop = r.decisions[blocked].Verdict
	}
	return stop
}

// order is nil for the line's own order. While the deployment may have broken, the cheapest go
// first: if it has, finding out costs little. Shortly after an outage jobs may go in no order
// ([breaker.scatters]).
func (r *round) order() []int {
	b := &r.s.breaker
	scatter := b.scatters(r.s.clock)
	if !scatter && !b.suspected(&r.s.timeline) {
		return nil
	}
	order := make([]int, len(r.line))
	for i := range order {
		order[i] = i
	}
	if scatter {
		seed := uint64(b.closedAt)
		slices.SortFunc(order, func(i, j int) int {
			return cmp.Compare(scattered(seed, uint64(r.line[i].ID)), scattered(seed, uint64(r.line[j].ID)))
		})
		return order
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(r.s.Estimate(r.l, r.line[a].Request), r.s.Estimate(r.l, r.line[b].Request))
	})
	return order
}

func indexOf(line []Candidate, id int64) int {
	for i := range line {
		if line[i].ID == id {
			return i
		}
	}
	return -1
}
