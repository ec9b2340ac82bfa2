package db

import (
	"sync"
	"sync/atomic"
)

// Watches notifies watchers of a row that it changed, and listeners of commits.
type Watches struct {
	mu    sync.Mutex
	bySeq map[int64][]chan struct{}

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

// Watch returns a channel that gets a value after each change of the row with that sequence
// number, until stop is called. At most one value is pending.
func (s *DB) Watch(seq int64) (changes <-chan struct{}, stop func()) {
	w := &s.watches
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bySeq == nil {
		w.bySeq = map[int64][]chan struct{}{}
	}
	w.bySeq[seq] = append(w.bySeq[seq], c)
	return c, sync.OnceFunc(func() { w.remove(seq, c) })
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
	if len(w.bySeq) == 0 {
		return
	}
	for _, seq := range seqs {
		w.wake(seq)
	}
}

// notifyAll tells everybody to look: what has changed is not known.
func (w *Watches) notifyAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
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
		n.Each(wordChanged, func(seq, _, _ int64) { w.notify([]int64{seq}) })
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
