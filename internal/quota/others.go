package quota

import "math"

const (
	// othersKept is the time for which it is remembered what others took.
	othersKept = 2 * minute
	// othersAfter is how long they must have been watched before they count.
	othersAfter = 4 * second
	// underway is about how many milliseconds a call is on its way.
	underway = 500
	// markTogether is how many milliseconds calls may be apart whose order at the provider is not
	// known.
	markTogether = 300
	// markApart is the least time between two marks that are compared.
	markApart = second
	// markReset is by how much the reset of one window may differ, as its headers arrive late.
	markReset = 3 * second
	// markBurst is the part of a minute's quota that is a burst, some calls of which may arrive
	// late.
	markBurst = 20
)

// mark is what the headers of calls made together said was left.
type mark struct {
	at      int64 // when they were made
	left    int64 // tokens
	total   int64 // tokens reserved ever by then
	resetAt int64
}

// saw learns what others take from what a call said is left.
func (e *estimate) saw(r Reservation, remaining, resetAt, perMinute int64, refilled bool) {
	m := &e.last
	switch apart := r.At - m.at; {
	case m.at == 0:
	case apart < -markTogether:
		return
	case apart < markTogether:
		m.left, m.total = min(m.left, remaining), max(m.total, r.Total)
		return
	case r.Total-r.Amount[Tokens] == m.total: // of all calls until then it is known what was left
		e.othersTook(perMinute, refilled)
	}
	*m = mark{at: r.At, left: remaining, total: r.Total, resetAt: resetAt}
}

// othersTook learns what others took between two marks. It is what is missing of what was left,
// and was not ours.
func (e *estimate) othersTook(perMinute int64, refilled bool) {
	from, to := e.base, e.last
	span, moved := to.at-from.at, to.resetAt-from.resetAt
	took := from.left - to.left - (to.total - from.total)
	other := max(moved, -moved) > markReset
	if refilled {
		took += perMinute * span / minute
		other = max(from.left, to.left) > perMinute*9/10 // it may have been full
	}
	switch {
	case from.at == 0:
		e.base = to
	case other || span > minute || took < -perMinute/50:
		e.base = to // it is another window
		if to.total-from.total > perMinute/markBurst {
			e.base = mark{} // some of a burst may not be counted yet, and would seem to be others'
		}
	case span >= markApart:
		e.base = to
		took += e.others - e.excess
		e.others, e.excess, e.othersIn = max(took, 0), max(-took, 0), e.othersIn+span
		if e.othersIn > othersKept {
			e.others, e.excess, e.othersIn = e.others/2, e.excess/2, e.othersIn/2
		}
	}
}

// atRate is what others may take within so many milliseconds, if they took so much in a time. It
// is their mean, and 2 σ of that if their calls are as large as ours. Below 3 % of the quota it
// is nothing, for single errors are as large.
func (e *estimate) atRate(took, in, ms, perMinute int64) int64 {
	if in < othersAfter || took*minute/in < perMinute*3/100 {
		return 0
	}
	mean := float64(took) * float64(ms) / float64(in)
	size := 0.0
	if e.sizes > 0 {
		size = float64(e.squares) * 1024 / float64(e.sizes)
	}
	return int64(mean + 2*math.Sqrt(mean*size))
}

// varies is by how much what others take and leave within so many milliseconds may differ, if
// they took so much in a time. It is 2 σ of that if their calls are as large as ours.
func (e *estimate) varies(took, in, ms, perMinute int64) int64 {
	if in < 2*second || took*minute/in < perMinute*3/100 {
		return 0
	}
	size := 0.0
	if e.sizes > 0 {
		size = float64(e.squares) * 1024 / float64(e.sizes)
	}
	return int64(2 * math.Sqrt(2*float64(took)*float64(ms)/float64(in)*size))
}
