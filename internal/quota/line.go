package quota

import (
	"cmp"
	"slices"
)

const (
	// Backfill is how many candidates behind one that does not fit are tried in its place.
	Backfill = 64
	// patience is how long others may go ahead of a candidate.
	patience = 45 * second
	// forgotten is when a candidate that was passed over and is no longer seen is forgotten.
	forgotten = 5 * minute
)

// Candidate is a job that waits for this deployment. Its ID must stay the same while it waits.
type Candidate struct {
	ID      int64
	Request Request
}

// Decision is what became of a candidate.
type Decision struct {
	Reservation Reservation
	Verdict     Verdict
}

// Admitted reports whether the candidate goes now. One that does not, and has no reason in its verdict
// either, was not asked about: there were not enough slots.
func (d Decision) Admitted() bool { return d.Reservation.Seq != 0 }

// passed is a candidate that others went ahead of.
type passed struct{ id, since, seen int64 }

// Admit decides for the candidates in their order, at most slots of which may go, and answers for each.
// One that does not fit lets the next [Backfill] try. Nobody is passed over for more than 45 seconds:
// then what frees up is kept for it. When the deployment has been failing, the cheapest candidate is
// the one that tries whether it works again; when it may have begun to, the cheapest go first.
func (s *State) Admit(now int64, l Limits, line []Candidate, slots int) []Decision {
	s.advance(now, l)
	r := round{s: s, l: l, line: line, slots: slots, decisions: make([]Decision, len(line))}
	if slots <= 0 || len(line) == 0 {
		return r.decisions
	}
	s.seen(line)
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
}

func (r *round) try(i int) Verdict {
	d := &r.decisions[i]
	if d.Reservation, d.Verdict = r.s.Reserve(r.s.clock, r.l, r.line[i].Request); d.Verdict.Admitted() {
		r.slots--
		r.s.arrived(r.line[i].ID)
	}
	return d.Verdict
}

// probe has the cheapest candidate try, and nobody else. Where calls are turned away, which costs nothing, it is by turns the
// one that goes first and any other: one that is at fault itself must keep neither those away whose turn it is nor, where the line
// stays as it is, all others.
func (r *round) probe() Verdict {
	chosen, least := 0, int64(0)
	for i, c := range r.line {
		if cost := r.s.Estimate(r.l, c.Request); i == 0 || cost < least {
			chosen, least = i, cost
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
	}
	v := r.try(chosen)
	if v.Admitted() {
		v, _ = r.s.breaker.admits(r.s.clock)
	}
	return v
}

// overdue has those go first that waited for too long; while one does not fit, nobody else goes.
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

// backfill goes through the line until the slots are taken, nothing at all may go, or enough were
// tried behind the first that does not fit.
func (r *round) backfill() Verdict {
	var stop Verdict
	blocked, last, tried := -1, -1, 0 // the first that does not fit, the last that does, how many were tried since blocked
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
		v := r.try(i)
		switch {
		case v.Admitted():
			last = max(last, i)
		case !v.Smaller:
			stop = v
		case blocked < 0:
			blocked = i
		}
		if blocked >= 0 {
			tried++
		}
	}
	for i := range max(last, 0) {
		if !r.decisions[i].Admitted() {
			r.s.passOver(r.line[i].ID)
		}
	}
	if stop.Admitted() && blocked >= 0 && r.slots > 0 {
		stop = r.decisions[blocked].Verdict
	}
	return stop
}

// order is nil, for the line's; or while the deployment may have broken, the cheapest first: if it has, finding out
// costs little.
func (r *round) order() []int {
	if !r.s.suspected() {
		return nil
	}
	order := make([]int, len(r.line))
	for i := range order {
		order[i] = i
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

// seen notes which of those passed over still wait.
func (s *State) seen(line []Candidate) {
	kept := s.passed[:0]
	for _, p := range s.passed {
		if indexOf(line, p.id) >= 0 {
			p.seen = s.clock
		}
		if s.clock-p.seen < forgotten {
			kept = append(kept, p)
		}
	}
	s.passed = kept
}

// passOver notes that others went ahead of a candidate.
func (s *State) passOver(id int64) {
	for _, p := range s.passed {
		if p.id == id {
			return
		}
	}
	if len(s.passed) < maxPassed {
		s.passed = append(s.passed, passed{id: id, since: s.clock, seen: s.clock})
	}
}

func (s *State) arrived(id int64) {
	for i, p := range s.passed {
		if p.id == id {
			s.passed = append(s.passed[:i], s.passed[i+1:]...)
			return
		}
	}
}
