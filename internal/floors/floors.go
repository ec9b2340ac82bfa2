// Package floors remembers from where on an index has rows, without I/O.
//
// A queue takes its rows from the beginning of an index over the times at which they are ready.
// PostgreSQL keeps the entries of rows that are gone for as long as any snapshot on the server may
// see them: that of a report, of a dump, of a forgotten transaction, of a replica. A scan from the
// beginning passes all of them, and their number grows for as long as the snapshot lasts. A scan
// from a floor passes those since the last scan.
//
// A floor holds as long as rows come with times that are not below it. Transactions that make
// rows ready now follow each other, so their times do. A row that becomes ready at an earlier
// time, such as one that gets its old place back, is noted. Other processes note it once they are
// notified. As with all notifications, whoever misses one is told so and forgets its floors.
// Besides, scans begin at the beginning once in a while. That finds whatever should be below.
package floors

import (
	"math"
	"time"
)

// never is a time that does not come.
const never = math.MaxInt64

// Floors are those of the parts of an index, such as queues. Times are in milliseconds, as in the
// index. The zero value has no floors. It belongs to one goroutine.
type Floors[K comparable] struct {
	// On says that there are floors. A database that removes entries at once needs none.
	On bool

	floors  map[K]floor
	before  map[K]floor // what the transaction has changed; it counts again if that fails
	swept   bool        // the transaction has scanned without a floor
	sweptAt int64
	usual   time.Duration // what a transaction takes
	cost    time.Duration // by how much longer those took that scanned without a floor, since sweptAt
}

// Scans without a floor take a hundredth of the time at most, unless a part has had none for
// mostPause.
const (
	share     = 100
	mostPause = 30 * time.Second
)

// floor is that of a part. 0: nothing is known.
type floor struct {
	ready int64 // no row is ready before
	// next is from where on rows are that were not ready when the part was last found empty, or
	// that have come since. Locks of other processes are not noted. They are found by a scan for
	// ready rows once they have ended.
	next int64
	// noted and notedNext are the earliest rows that were noted since the latest scan for ready
	// rows began, which may not have seen them; 0: none were. noted was ready, notedNext was not.
	noted, notedNext int64
}

// keeps leaves the floor below what was noted.
func (l floor) keeps() floor {
	if l.noted > 0 {
		l.ready = min(l.ready, l.noted)
	}
	if l.notedNext > 0 {
		l.ready, l.next = min(l.ready, l.notedNext), min(l.next, l.notedNext)
	}
	return l
}

// earliest is the earlier of two times of which 0 is none.
func earliest(known, at int64) int64 {
	if known == 0 {
		return at
	}
	return min(known, at)
}

// Ready returns where a scan for ready rows begins.
func (f *Floors[K]) Ready(part K, now int64) int64 {
	if !f.On {
		return 0
	}
	l := f.change(part)
	l.noted, l.notedNext = 0, 0
	if l.ready > now { // the clock has been set back
		l.ready = 0
	}
	f.floors[part] = l
	f.swept = f.swept || l.ready == 0
	return l.ready
}

// Next returns a time after which the next row is that is not ready yet.
func (f *Floors[K]) Next(part K, now int64) int64 {
	next := f.floors[part].next
	f.swept = f.swept || next == 0
	return max(now, next-1)
}

// Taken records that a scan has taken a row with that time. It has taken all before it.
func (f *Floors[K]) Taken(part K, at int64) {
	if f.On {
		l := f.change(part)
		l.ready = max(l.ready, at)
		f.floors[part] = l.keeps()
	}
}

// Empty records that no row is ready, and when the next one is; 0: there is none.
func (f *Floors[K]) Empty(part K, now, next int64) {
	if !f.On {
		return
	}
	if next == 0 {
		next = never
	}
	l := f.change(part)
	l.ready, l.next = now, next
	f.floors[part] = l.keeps()
}

// Note records that a row has come, or has got another time. Every one is noted that is ready
// before the present, or that a lock keeps from being ready until then.
func (f *Floors[K]) Note(part K, at, now int64) {
	for _, floors := range []map[K]floor{f.floors, f.before} {
		if l, known := floors[part]; known {
			if at > now {
				l.notedNext = earliest(l.notedNext, at)
			} else {
				l.noted = earliest(l.noted, max(at, 1))
			}
			floors[part] = l.keeps()
		}
	}
}

// change returns the floor of a part that the transaction changes.
func (f *Floors[K]) change(part K) floor {
	if f.floors == nil {
		f.floors = map[K]floor{}
	}
	if f.before == nil {
		f.before = map[K]floor{}
	}
	l := f.floors[part]
	if _, changed := f.before[part]; !changed {
		f.before[part] = l
	}
	return l
}

// Committed follows a transaction that is on disk, and took so long.
func (f *Floors[K]) Committed(took time.Duration) {
	switch {
	case f.usual == 0:
		f.usual = took
	case f.swept: // shorter ones count as well: parts that are new are scanned all the time
		f.cost += took - f.usual
	default:
		f.usual += (took - f.usual) / 16
	}
	f.before, f.swept = nil, false
}

// RolledBack follows a transaction that came to nothing. A sweep that takes too long for a
// transaction does not make the next one begin at the beginning as well.
func (f *Floors[K]) RolledBack() {
	for part, l := range f.before {
		f.floors[part] = l
	}
	if f.swept {
		f.cost = mostPause / share
	}
	f.before, f.swept = nil, false
}

// Sweep makes the next scan of each part begin at the beginning, if that was not done for a while.
// The while is at least least, and longer if the latest such scans took long. all: do it anyway,
// because something may have been missed.
func (f *Floors[K]) Sweep(now int64, least time.Duration, all bool) {
	if since := now - f.sweptAt; !all && since >= 0 && since < max(least, min(share*f.cost, mostPause)).Milliseconds() {
		return
	}
	f.sweptAt, f.cost = now, 0
	if f.before = f.floors; all {
		f.before = nil
	}
	f.floors = map[K]floor{}
}
