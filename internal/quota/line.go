package quota

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
// the one that tries whether it works again.
func (s *State) Admit(now int64, l Limits, line []Candidate, slots int) []Decision {
	s.advance(now, l)
	decisions := make([]Decision, len(line))
	refuse := func(v Verdict) []Decision {
		for i := range decisions {
			if !decisions[i].Admitted() && decisions[i].Verdict.Admitted() {
				decisions[i].Verdict = v
			}
		}
		return decisions
	}
	if slots <= 0 || len(line) == 0 {
		return decisions
	}
	s.seen(line)
	if _, probe := s.breaker.admits(s.clock); probe {
		cheapest := 0
		for i := range line {
			if a, _ := s.cost(l, l.fill(line[i].Request)); less(a, s.costOf(l, line[cheapest])) {
				cheapest = i
			}
		}
		d := &decisions[cheapest]
		if d.Reservation, d.Verdict = s.Reserve(now, l, line[cheapest].Request); d.Verdict.Admitted() {
			s.arrived(line[cheapest].ID)
		}
		v := d.Verdict
		if v.Admitted() {
			v, _ = s.breaker.admits(s.clock)
		}
		return refuse(v)
	}

	// Those who waited for too long are first, and while one does not fit, nobody else goes.
	for _, p := range s.passed {
		if s.clock-p.since < patience {
			continue
		}
		i := indexOf(line, p.id)
		if i < 0 {
			continue
		}
		d := &decisions[i]
		if d.Reservation, d.Verdict = s.Reserve(now, l, line[i].Request); !d.Verdict.Admitted() {
			return refuse(Verdict{Reason: d.Verdict.Reason, RetryAt: d.Verdict.RetryAt})
		}
		if slots--; slots == 0 {
			break
		}
	}
	for i := range decisions {
		if decisions[i].Admitted() {
			s.arrived(line[i].ID)
		}
	}

	blocked, last, tried := -1, -1, 0 // the first that does not fit, the last that does, how many were tried in between
	stop := Verdict{}
	for i := range line {
		d := &decisions[i]
		if d.Admitted() {
			continue
		}
		if slots == 0 || tried > Backfill {
			break
		}
		d.Reservation, d.Verdict = s.Reserve(now, l, line[i].Request)
		if d.Verdict.Admitted() {
			slots--
			last = i
			s.arrived(line[i].ID)
		} else if !d.Verdict.Smaller {
			stop = d.Verdict
			break
		} else if blocked < 0 {
			blocked = i
		}
		if blocked >= 0 {
			tried++
		}
	}
	for i := 0; i < last; i++ {
		if !decisions[i].Admitted() {
			s.passOver(line[i].ID)
		}
	}
	if stop.Admitted() && blocked >= 0 && slots > 0 {
		stop = decisions[blocked].Verdict
	}
	return refuse(stop)
}

func (s *State) costOf(l Limits, c Candidate) Amount {
	cost, _ := s.cost(l, l.fill(c.Request))
	return cost
}

func less(a, b Amount) bool {
	return a[Tokens]+a[OutputTokens] < b[Tokens]+b[OutputTokens]
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
