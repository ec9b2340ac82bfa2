package db

import (
	"sync"
	"sync/atomic"
)

// Watches notifies watchers of a row that it changed, and listeners of commits.
type Watches struct {
	mu     sync.Mutex
	bySeq  map[int64][]chan struct{}
	recent [4096]int64 // the latest rows that changed, in rotation
	total  Moment      // of all that have changed so far
	lost   Moment      // when it was not known what had changed, for the last time

	commits Listener[Commit] // of transactions of this process
	told    Listener[Told]   // by these transactions
	hears   atomic.Bool      // somebody wants to be told
}

// Told is what a transaction of this process has told, once it is on disk.
type Told struct {
	At   int64 // by the database's clock, in milliseconds
	What []any
}

// OnTold makes f hear what transactions of this process tell, while Hear is on. It runs as that
// of OnCommit does, so it must be quick.
func (s *DB) OnTold(f func(Told)) { s.watches.told.Set(f) }

// Hear turns telling on or off. Transactions that have begun may go on as they were.
func (s *DB) Hear(on bool) { s.watches.hears.Store(on) }

// Moment is how many changes of rows were known at some time.
type Moment uint64

// Moment is now. Whoever reads a row afterwards sees what is known to have changed by then.
func (s *DB) Moment() Moment {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	return s.watches.total
}

// WatchSince is Watch for a row that was read after a moment. The channel has a value at once if
// the row may have changed since, so that it need not be read again for that.
func (s *DB) WatchSince(m Moment, seq int64) (changes <-chan struct{}, stop func()) {
	return s.watches.add(seq, func(w *Watches) bool { return w.changedSince(m, seq) })
}

// Watch returns a channel that gets a value after each change of the row with that sequence
// number, until stop is called. At most one value is pending.
func (s *DB) Watch(seq int64) (changes <-chan struct{}, stop func()) {
	return s.watches.add(seq, func(*Watches) bool { return false })
}

// add watches a row. changed reports whether there is a change already.
func (w *Watches) add(seq int64, changed func(*Watches) bool) (changes <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bySeq == nil {
		w.bySeq = map[int64][]chan struct{}{}
	}
	w.bySeq[seq] = append(w.bySeq[seq], c)
	if changed(w) {
		c <- struct{}{}
	}
	return c, sync.OnceFunc(func() { w.remove(seq, c) })
}

func (w *Watches) changedSince(m Moment, seq int64) bool {
	if w.lost > m || w.total-m > Moment(len(w.recent)) {
		return true // perhaps
	}
	for ; m < w.total; m++ {
		if w.recent[m%Moment(len(w.recent))] == seq {
			return true
		}
	}
	return false
}

func (w *Watches) remove(seq int64, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := w.bySeq[seq][:0]
	for _, other := range w.bySeq[seq] {
		if other != c {
			kept = append(kept, other)
		}
	}
	if len(kept) == 0 {
		delete(w.bySeq, seq)
		return
	}
	w.bySeq[seq] = kept
}

func (w *Watches) notify(seqs []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, seq := range seqs {
		w.recent[w.total%Moment(len(w.recent))] = seq
		w.total++
		if len(w.bySeq) > 0 {
			w.wake(seq)
		}
	}
}

// notifyAll tells everybody to look: what has changed is not known.
func (w *Watches) notifyAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total++
	w.lost = w.total
	for seq := range w.bySeq {
		w.wake(seq)
	}
}

func (w *Watches) wake(seq int64) {
	for _, c := range w.bySeq[seq] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// received tells the watchers whom the words concern.
func (w *Watches) received(n *Notification) {
	if n.Lost || n.Many[wordChanged] {
		w.notifyAll()
	} else {
		w.notify(n.changed)
	}
}

// Notified passes a notification of another process on to the watchers and domains it concerns.
func (s *DB) Notified(n *Notification) {
	s.watches.received(n)
	for _, d := range s.domains {
		if h, ok := d.(hearer); ok {
			h.Received(n)
		}
	}
	select {
	case s.Writer.received <- n:
	case <-s.Writer.Stopped:
	}
}
