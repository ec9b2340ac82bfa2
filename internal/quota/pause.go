package quota

const (
	pauseLeast   = 50 // milliseconds after the time the provider named, for the clocks' sake
	pauseJitter  = 500
	pauseDefault = 2 * second // when it named none; doubled while that goes on
	pauseLongest = 30 * second
	// pauseMost is the longest pause. After it calls find out whether the provider still refuses. A
	// single job waits no longer for a Retry-After either.
	pauseMost = 60 * minute
)

// pause is what the provider asks for by a refusal: that no call is made for a while.
type pause struct {
	until int64
	run   int64 // refusals in a row that did not say for how long
}

// refused takes in that a call was refused, with the wait that the refusal named.
func (p *pause) refused(t *timeline, madeAt, said int64, rnd Random) {
	// A refusal of the first call after a pause says that the pause was too short, or that refused
	// calls are counted as well. Then only waiting longer gets out of it.
	if madeAt >= p.until {
		p.run = min(p.run+1, 8)
	}
	wait := min(said, pauseMost)
	if own := min(int64(pauseDefault)<<max(p.run-1, 0), pauseLongest); said <= 0 || p.run > 1 && said < own {
		wait = own
	}
	until := t.clock + wait + pauseLeast + int64(rnd()*float64(min(pauseJitter, max(wait/4, pauseLeast))))
	if t.clock >= p.until {
		t.note(Change{Kind: Paused, Until: until})
	}
	p.until = max(p.until, until)
}
