package quota

import "math"

// shortWindow is what is known of windows of one or ten seconds in which a provider counts requests. A refusal tells to the
// millisecond when the next begins. Another client's calls come at any time, so a call at the beginning of a window meets
// few of them, and one at its end may find it full.
type shortWindow struct {
	length int64 // 0: none is known
	at     int64 // a call made then reaches the provider as a window begins
	trip   int64 // milliseconds that the call took of which that is known
	cut    int64 // calls left to others in each window
	met    int64 // how often others were met lately
	cutAt  int64 // when cut or met were raised or lowered
	from   int64 // when the window began in which a call was made last
	used   int64 // calls made in it
}

const (
	shortLate    = 20         // after the beginning, as calls' ways differ
	shortDiffers = 100        // of two times for the same beginning, at most
	shortEarly   = 5          // the part of a window in which calls go where others call too
	shortCutFor  = minute / 2 // doubled for each time that others were met, and after so long one call more goes in a window
	shortMost    = 5
)

// shortWindows reports whether calls keep to windows that refusals have told of. Each holds a call at least.
func (s *State) shortWindows() bool {
	return s.short.length > 0 && s.clock < s.burstCutUntil && s.meters[Requests].limit*s.short.length >= minute
}

// others reports whether others are known to call.
func (s *State) others() bool {
	return s.othersWithin(second) > 0
}

// begun is when the window began into which a call made now comes.
func (w *shortWindow) begun(now int64) int64 {
	since := (now - w.at - shortLate) % w.length
	if since < 0 {
		since += w.length
	}
	return max(now-since, 0)
}

// inShortWindow is when the next call may go.
func (s *State) inShortWindow() int64 {
	w := &s.short
	from, used := w.begun(s.clock), int64(0)
	if from == w.from {
		used = w.used
	}
	most := s.meters[Requests].limit * w.length / minute
	if needed := s.requestsNeeded(); needed > 0 {
		most = min(most, int64(math.Ceil(needed*float64(w.length)/second)))
	}
	early := w.cut > 0 || w.met > 0 && w.length == second // ten seconds are long to wait for nobody
	if used < max(most-w.cut, 1) && (!early || s.clock-from < w.length/shortEarly) {
		return s.clock
	}
	return from + w.length
}

// count notes that calls are made.
func (w *shortWindow) count(now, calls int64) {
	if w.length == 0 {
		return
	}
	if from := w.begun(now); from != w.from {
		w.from, w.used = from, 0
	}
	w.used += calls
}

// refused learns from a refusal on requests that named a wait. Whole seconds tell nothing of when a window begins, and a
// call that opened a connection first, nothing of when another would arrive.
func (w *shortWindow) refused(r Reservation, now, wait int64, others bool) {
	if wait <= 0 || wait%second == 0 || wait > 10*second+shortLate {
		return
	}
	length := int64(second)
	if wait > second+shortLate {
		length = 10 * second
	}
	at, trip := r.At+wait, max(now-r.At, 0)
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
