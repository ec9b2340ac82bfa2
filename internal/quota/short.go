package quota

import "math"

// shortWindow is what is known of windows of one or ten seconds in which a provider counts
// requests. A refusal tells to the millisecond when the next begins. What headers say is left of
// a second narrows it down without a refusal. Another client's calls come at any time. So a call
// at the beginning of a window meets few of them. A call at its end may find it full.
type shortWindow struct {
	length int64 // 0: none is known
	at     int64 // a call made then reaches the provider once a window has begun
	wide   int64 // and that window may have begun so much earlier
	trip   int64 // milliseconds that the call took whose refusal told; 0: headers told
	cut    int64 // calls left to others in each window
	met    int64 // how often others were met lately
	cutAt  int64 // when cut or met were raised or lowered
	from   int64 // when the window began in which a call was made last
	used   int64 // calls made in it
	ahead  int64 // of these, those made when the next window may have begun
	before int64 // calls made before it when it may have begun

	// What headers told of the latest calls made together. It is when they were made, the least
	// and the most that was left, and the last Seq. The same of those before them follows.
	seenAt, seenLeft, seenMost, seenSeq int64
	wasAt, wasLeft, wasSeq              int64
	others, over                        int64 // calls of others met in so many milliseconds
	peak                                int64 // calls under way at a time, at most
	alone                               bool  // no others are known; not stored
	lag                                 int64 // about how many ms a call takes without delay; 0: unknown
}

const (
	shortLate    = 20  // after the beginning, as calls' ways differ
	shortDiffers = 100 // of two times for the same beginning, at most
	shortEarly   = 5   // the part of a window in which calls go where others call too
	// shortCutFor is after how long one call more goes in a window. It is doubled for each time that
	// others were met.
	shortCutFor = minute / 2
	shortMost   = 5

	// shortRisk is how likely a call may be to be refused that goes late in a window.
	shortRisk = 0.006
	// shortDare and shortProbe are the same for a call that tells more, and for those that go
	// before it.
	shortDare  = 0.5
	shortProbe = 0.2
	// shortKnown is how long others must have been watched for their rate to be known.
	shortKnown = 2 * second
	// shortDecay is after how long what was met of others counts half.
	shortDecay = minute
	// shortSure is how many milliseconds of doubt about when a window begins do not matter.
	shortSure = 60
	// shortApart is by how many milliseconds calls' ways to the provider differ.
	shortApart = 35
	// shortTogether is how many milliseconds calls may be apart that overtake each other.
	shortTogether = 60
	// aloneAfter is how long tokens must have told of no others for none to be expected.
	aloneAfter = 5 * second
)

// keepsShort reports whether calls keep to short windows of which refusals or headers have told.
// Each of these holds a call at least.
func (p *pacing) keepsShort(c *capacity) bool {
	return p.short.length > 0 && c.clock < p.burstCutUntil && c.meters[Requests].limit*p.short.length >= minute
}

// begun is when the window began into which a call made now comes.
func (w *shortWindow) begun(now int64) int64 {
	since := (now - w.at - shortLate) % w.length
	if since < 0 {
		since += w.length
	}
	return max(now-since, 0)
}

// nextInShort is when the next call may go that keeps to short windows.
func (p *pacing) nextInShort(c *capacity) int64 {
	w := &p.short
	from := w.begun(c.clock)
	used, _, before := w.usedIn(from)
	used += before
	holds := c.meters[Requests].limit * w.length / minute
	most := holds
	if needed := p.requestsNeeded(c); needed > 0 {
		most = min(most, max(int64(math.Ceil(needed*float64(w.length)/second)), 1))
	}
	if w.told(c.clock) {
		w.alone = w.met == 0 && c.estimate.othersIn >= aloneAfter && !c.othersCall()
		return w.atRisk(c.clock, from, used, most, holds, c.window.underWay() >= w.peak)
	}
	early := w.cut > 0 || w.met > 0 && w.length == second // ten seconds are long to wait for nobody
	if used < max(most-w.cut, 1) && (!early || c.clock-from < w.length/shortEarly) {
		return c.clock
	}
	return from + w.length
}

// atRisk is when the next call may go where headers tell how many calls others make. It may go
// while it is unlikely that they have taken what is left of the window. A call may open a
// connection (opens) if as many are under way as ever were. It then takes longer to arrive.
func (w *shortWindow) atRisk(now, from, used, most, holds int64, opens bool) int64 {
	next := from + w.length
	doubtful := w.doubtful(from)
	late := used < holds && w.full(w.length, holds-max(used, 1), holds) <= shortDare
	learns := late && !w.alone && w.wide > shortSure &&
		(w.wide > w.length/4 || w.over < shortKnown || w.others > 0)
	if learns { // a call late in the window is to find room
		spare := int64(1)
		for spare < most && w.full(w.length, holds-spare-1, holds) <= shortProbe {
			spare++
		}
		most = spare
	}
	since := now - from + shortLate + w.wide/2 + shortApart // in which others may have called
	if opens || w.wide > 0 && now >= doubtful {
		since = w.length // it may arrive at any time of a window
	}
	if used == 0 && now-from < w.length/shortEarly || used < most && w.full(since, holds-used, holds) <= shortRisk {
		return now
	}
	if opens {
		return next
	}
	if (learns || w.over < shortKnown && holds-used > holds/3) && late {
		// One call late in the window tells more.
		if middle := doubtful + w.wide/2; now < middle {
			return middle
		} else if calls, ahead, _ := w.usedIn(from); ahead == 0 && calls > 0 {
			return now
		}
	}
	return next
}

// doubtful is from when on it may be the next window. As long as nothing is known, that is soon
// after a window began.
func (w *shortWindow) doubtful(from int64) int64 {
	return from + w.length - shortLate - min(w.wide, w.length*19/20)
}

// full is how likely it is that others have made so many calls in so many milliseconds.
func (w *shortWindow) full(ms, calls, holds int64) float64 {
	if calls <= 0 {
		return 1
	}
	if w.alone {
		return 0
	}
	met, over := w.latest(holds)
	// As many as there may be.
	others := float64(w.others+met) + math.Sqrt(float64(w.others+met)) + 0.02
	mean := others / float64(w.over+over+second) * float64(ms)
	term := math.Exp(-mean)
	less := 0.0
	for i := range calls {
		less += term
		term *= mean / float64(i+1)
	}
	return 1 - less
}

// usedIn returns how many calls were made in a window, and how many of these when the next may
// have begun (ahead). before were made before it when it may have begun. When it began may be
// better known by now.
func (w *shortWindow) usedIn(from int64) (used, ahead, before int64) {
	switch since := from - w.from; {
	case since <= w.length/2:
		return w.used, w.ahead, w.before
	case since <= w.length*3/2:
		return 0, 0, w.ahead
	}
	return 0, 0, 0
}

// count notes that calls are made.
func (w *shortWindow) count(now, calls, underWay int64) {
	if w.length == 0 {
		return
	}
	from := w.begun(now)
	w.used, w.ahead, w.before = w.usedIn(from)
	w.from = from
	w.used += calls
	if w.seenAt == 0 {
		return
	}
	if w.wide > 0 && now >= w.doubtful(from) || underWay > w.peak {
		w.ahead += calls
	}
	w.peak = max(w.peak, underWay)
}

// refused learns from a refusal on requests that named a wait. Whole seconds tell nothing of when
// a window begins. A call that opened a connection first tells nothing of when another would
// arrive.
func (w *shortWindow) refused(r Reservation, now, wait int64, others bool) {
	if wait <= 0 || wait%second == 0 || wait > 10*second+shortLate {
		return
	}
	length := int64(second)
	if wait > second+shortLate {
		length = 10 * second
	}
	at, trip := r.At+wait, max(now-r.At, 1)
	if w.seenAt > 0 && w.length == length { // headers told of it as well
		w.others++
		if w.wide <= shortSure {
			w.met, w.cutAt = min(w.met+1, shortMost), now
		}
		switch after, by := at-shortLate/4, at+shortTogether; {
		case w.trip > 0 && trip > w.trip*5/4+shortDiffers: // it opened a connection
		case trip < w.trip*3/4: // and the one before did
			w.at, w.wide, w.trip = by, by-after, trip
		default:
			w.narrow(after, by, true)
			w.trip = trip
		}
		return
	}
	switch {
	case w.length < length:
		*w = shortWindow{length: length, at: at, trip: trip, met: 1, cutAt: now}
		if others {
			w.cut = 1
		}
		return
	case trip < w.trip*3/4:
		w.at, w.trip = at, trip
		w.from = w.begun(now)
		return
	case trip > w.trip*5/4+shortDiffers:
		return
	}
	off := (at-w.at)%w.length + w.length
	off = (off+w.length/2)%w.length - w.length/2 // how much later that is than was thought
	if off > 0 || off < -shortDiffers {
		w.at = max(w.at+off, 0)
	}
	if off <= shortLate && off >= -shortDiffers && r.At >= w.cutAt { // it was not too early
		if others || w.met > 1 { // once it may be a call of ours that took long
			w.cut++
		}
		w.met = min(w.met+1, shortMost)
		w.cutAt = now
	}
}

// grow lets more calls go in a window after some time without a refusal.
func (w *shortWindow) grow(now int64) {
	for w.met > 0 && now-w.cutAt >= shortCutFor<<w.met {
		w.cutAt += shortCutFor << w.met
		if w.cut > 0 {
			w.cut--
		} else {
			w.met--
		}
	}
}

func (w *shortWindow) plausible(seq, ahead int64) bool {
	return max(w.at, w.cutAt, w.from, w.seenAt, w.wasAt) <= ahead &&
		w.length <= 10*second && w.wide <= w.length && w.met <= shortMost && w.lag <= maxTime &&
		max(w.seenSeq, w.wasSeq) <= seq &&
		max(w.cut, w.used, w.ahead, w.before, w.peak, w.others, w.over) <= maxAmount &&
		max(w.seenLeft, w.seenMost, w.wasLeft) <= maxAmount
}
