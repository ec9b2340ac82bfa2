package quota

import (
	"sort"
	"time"
)

const (
	// sliceMillis is the resolution of the window. A slice leaves when the youngest reservation in
	// it can be 60 seconds old. So the window is never too short, and too long by a slice at most.
	sliceMillis = 250
	maxSlices   = minute/sliceMillis + 2
)

// window is what was reserved in the last 60 seconds.
type window struct {
	slices []slice // oldest first
	sum    Amount  // of slices
	left   int64   // tokens that have ever left the window
}

// slice is what was reserved in one sliceMillis.
type slice struct {
	no     int64 // time / sliceMillis
	amount Amount
	open   int64 // calls that are not over
}

// leaves is when a slice is out of the window.
func (c slice) leaves() int64 { return (c.no+1)*sliceMillis + minute }

// expire drops the slices in which nothing is younger than a minute.
func (w *window) expire(now int64) {
	n := 0
	for n < len(w.slices) && w.slices[n].leaves() <= now {
		w.sum.sub(w.slices[n].amount)
		w.left += w.slices[n].amount[Tokens]
		n++
	}
	if n > 0 {
		w.slices = w.slices[:copy(w.slices, w.slices[n:])]
	}
}

// add enters a call that is made now.
func (w *window) add(now int64, a Amount) {
	no := now / sliceMillis
	if n := len(w.slices); n == 0 || w.slices[n-1].no < no {
		w.slices = append(w.slices, slice{no: no})
	}
	last := &w.slices[len(w.slices)-1]
	last.amount.add(a)
	last.open++
	w.sum.add(a)
}

// correct changes what the call of a time counts for, but never to less than nothing. It does
// nothing when the call is no longer in the window.
func (w *window) correct(at int64, by Amount) {
	c := w.find(at)
	if c == nil {
		return
	}
	for d := range by {
		change := max(by[d], -c.amount[d])
		c.amount[d] += change
		w.sum[d] += change
	}
}

// over notes that the call of a time is over.
func (w *window) over(at int64) {
	if c := w.find(at); c != nil && c.open > 0 {
		c.open--
	}
}

// find returns the slice of a time, nil when it is out of the window.
func (w *window) find(at int64) *slice {
	no := at / sliceMillis
	i := sort.Search(len(w.slices), func(i int) bool { return w.slices[i].no >= no })
	if i == len(w.slices) || w.slices[i].no != no {
		return nil
	}
	return &w.slices[i]
}

// fitsAt is when so much has left the window that need is within the limit. A call larger than the
// limit fits when nothing is left in the window.
func (w *window) fitsAt(now int64, d Dimension, need, limit int64) int64 {
	at, left := now, w.sum[d]
	for i := range w.slices {
		if left == 0 || left+need <= limit {
			break
		}
		left -= w.slices[i].amount[d]
		at = max(at, w.slices[i].leaves())
	}
	return at
}

// leftBy is how many tokens have left the window, and how many more will have left the provider's
// by a time. There a call leaves after exactly a minute, and so before its slice.
func (w *window) leftBy(at int64) int64 {
	left := w.left
	for i := 0; i < len(w.slices) && w.slices[i].no*sliceMillis+minute <= at; i++ {
		left += w.slices[i].amount[Tokens]
	}
	return left
}

// justSent is what was reserved so recently that it may reach the provider after a call that is
// made now. Calls overtake each other.
func (w *window) justSent(now int64) (a Amount) {
	since := now/sliceMillis - 1
	if len(w.slices) > 0 && w.slices[0].no >= (now-coldFor)/sliceMillis {
		since = 0 // connections are new, and some take long
	}
	for i := len(w.slices) - 1; i >= 0 && w.slices[i].no >= since; i-- {
		a.add(w.slices[i].amount)
	}
	return a
}

// underWay is how many calls of the last minute are not over.
func (w *window) underWay() (n int64) {
	for i := range w.slices {
		n += w.slices[i].open
	}
	return n
}

// rewind moves the window back to now, from a time so many milliseconds later. Slices stay in
// order and apart, and the last is not in the future.
func (w *window) rewind(by, now int64) {
	n := len(w.slices)
	if n == 0 {
		return
	}
	shift := max(by/sliceMillis, w.slices[n-1].no-now/sliceMillis)
	for i := range w.slices {
		w.slices[i].no = max(w.slices[i].no-shift, int64(i))
	}
}

// Starts counts the calls admitted in the last span, of a minute at most. It says since when: the
// span's beginning, or the first of these calls if the window holds nothing before it. 0: none.
func (s *State) Starts(now int64, span time.Duration) (n, since int64) {
	from := now - span.Milliseconds()
	for i, c := range s.window.slices {
		at := c.no * sliceMillis
		if at < from || c.amount[Requests] == 0 {
			continue
		}
		if n == 0 {
			if since = from; i == 0 {
				since = at
			}
		}
		n += c.amount[Requests]
	}
	return n, since
}
