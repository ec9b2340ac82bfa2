package quota

import "math/bits"

type outcomes struct{ no, ok, failed int64 } // of one second

func (b *breaker) count(now int64, ok bool) {
	no := now / second
	n := 0
	for n < len(b.outcomes) && b.outcomes[n].no <= no-outcomeSeconds {
		n++
	}
	b.outcomes = b.outcomes[:copy(b.outcomes, b.outcomes[n:])]
	if n := len(b.outcomes); n == 0 || b.outcomes[n-1].no < no {
		b.outcomes = append(b.outcomes, outcomes{no: no})
	}
	last := &b.outcomes[len(b.outcomes)-1]
	if ok {
		last.ok++
	} else {
		last.failed++
	}
}

// wentWell reports whether a call went well lately. The probes that closed the breaker did: until
// others are heard of, jobs that failed before shall not open it again.
func (s *State) wentWell() bool {
	if b := &s.breaker; b.closedAt != 0 && s.clock-b.closedAt < closedWell {
		return true
	}
	for _, o := range s.breaker.outcomes {
		if o.ok > 0 && o.no > s.clock/second-outcomeSeconds {
			return true
		}
	}
	return false
}

// broken is for failures that were long in coming, as timeouts are: most in the window failed, or
// ten in a row where calls are too rare for a window to hold ten.
func (b *breaker) broken() bool { return b.mostFailed() || b.failures >= breakerCalls }

// mostFailed reports whether of at least ten calls that were heard of in the window less than half
// went well. Failures may be heard of sooner: where that matters, the window must be long enough
// for the others.
func (b *breaker) mostFailed() bool {
	var ok, failed int64
	for _, o := range b.outcomes {
		ok += o.ok
		failed += o.failed
	}
	return ok+failed >= breakerCalls && ok < failed
}

// unwell reports whether as many calls failed lately as can open the breaker, though others went
// well between them: of the latest, or where too many begin until a failure is heard of, of those
// heard of in the window, and there a sixth of them as well. An outage may not be over as soon as
// the breaker closes.
func (s *State) unwell() bool {
	b := &s.breaker
	const latest = 1<<latestCalls - 1
	if b.closedAt > 0 && s.clock-b.closedAt < breakerMemory || bits.OnesCount64(uint64(b.failed<<uint64(s.seq-b.newest)&latest)) >= breakerCalls {
		return true
	}
	var all, failed int64
	for _, o := range b.outcomes {
		if o.no > s.clock/second-outcomeSeconds {
			all, failed = all+o.ok+o.failed, failed+o.failed
		}
	}
	return failed >= breakerCalls && failed*latestCalls >= all*breakerCalls
}

// place returns the bit that a call has among the latest; 0: it is none of them.
func (b *breaker) place(seq int64) (bit int64) {
	later := seq - b.newest
	if later > 0 {
		const all = 1<<latestCalls - 1
		b.newest, b.failed, b.silent, b.again = seq, b.failed<<later&all, b.silent<<later&all, b.again<<later&all
		later = 0
	}
	if later <= -latestCalls {
		return 0
	}
	return 1 << -later
}

// fail notes that a call has failed, if it is one of the latest.
func (b *breaker) fail(r Reservation) bool {
	bit := b.place(r.Seq)
	b.failed |= bit
	b.silent &^= bit
	if r.Again {
		b.again |= bit
	}
	return bit != 0
}

// repeated takes in that a job failed which had failed before, while others go well. That says
// something about the job: among the latest calls it is one that failed and one that says nothing
// of the deployment.
func (s *State) repeated(r Reservation) {
	if r.Seq > s.seq {
		return
	}
	b := &s.breaker
	bit := b.place(r.Seq)
	b.failed |= bit
	b.silent |= bit
}

// jobs is how many jobs failed for the first time among the latest calls.
func (b *breaker) jobs() int { return bits.OnesCount64(uint64(b.failed &^ b.silent &^ b.again)) }

// turned is for failures that are heard of soon: a row of at least ten among the latest calls in
// which those that failed outnumber the others by breakerLead. Calls stand in the order in which
// they began, and those not heard of are among the others. So it does not matter how many went
// well before, or still do that began before, nor that failures are heard of sooner than
// successes; and it takes some ten failures, unless more than latestCalls begin until one is heard
// of.
func (b *breaker) turned(lead int) bool {
	most, _ := b.leads()
	return most >= lead
}

// lead is by how many failures must outnumber the others. Right after some calls had gone well and
// others had failed, the jobs at fault may still be many, and fail so much sooner than others go
// well that many of them begin in a row.
func (s *State) lead() int {
	if b := &s.breaker; b.mixed != 0 && s.clock-b.since < breakerNew {
		return mixedLead
	}
	return breakerLead
}

// suspected reports whether the failures outnumber the others up to the latest call of all: the
// deployment may have broken.
func (s *State) suspected() bool {
	since := s.seq - s.breaker.newest
	if s.breaker.failed == 0 || since >= latestCalls || s.oneTenant() {
		return false
	}
	_, last := s.breaker.leads()
	return last > int(since)
}

// leads returns by how many the failures outnumber the others in the latest row of calls, and by
// how many at most in any row of at least breakerCalls.
func (b *breaker) leads() (most, last int) {
	calls := 0
	for bit := int64(1) << (latestCalls - 1); bit > 0; bit >>= 1 {
		switch {
		case b.failed&^b.silent&bit != 0:
			calls, last = calls+1, last+1
			if calls >= breakerCalls {
				most = max(most, last)
			}
		case b.silent&bit != 0:
		case last <= 1:
			calls, last = 0, 0
		default:
			calls, last = calls+1, last-1
		}
	}
	return most, last
}
