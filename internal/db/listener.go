package db

import "sync/atomic"

// Listener is a function that hears of something; none until it is set.
type Listener[T any] struct{ f atomic.Pointer[func(T)] }

func (l *Listener[T]) Set(f func(T)) { l.f.Store(&f) }

func (l *Listener[T]) Notify(v T) {
	if f := l.f.Load(); f != nil {
		(*f)(v)
	}
}

// OnCommit makes f hear of every transaction of this process. It runs on the goroutine that
// made it, of which there are two on PostgreSQL, so it must be quick.
func (s *DB) OnCommit(f func(Commit)) { s.watches.commits.Set(f) }
