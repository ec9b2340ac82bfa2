package store

import (
	"math"
	"time"
)

// A participant is a domain's part in the transactions of one writer. What it keeps in memory belongs to
// the writer's goroutine. It changes that within a transaction as if the transaction had been committed;
// rolledBack makes up for those that were not.
type participant interface {
	// load reads what the participant keeps in memory. It runs once, before the first transaction.
	load() error
	// notified takes in what other processes have committed.
	notified(*notification)
	// lookAgain makes everything due: something may have been missed. all says that it was not just a while ago that
	// everything was looked at, but that something changed.
	lookAgain(all bool)
	// nextDue returns when serve has something to do, in milliseconds; never: only once something has happened.
	nextDue(now int64) int64
	// serve does what is due within the transaction, after the operations: it answers those who wait.
	serve(*tx) error
	// committed follows a transaction that is on disk.
	committed(*tx)
	// rolledBack follows one that came to nothing, wherever it ended. What it needs to know it reads again,
	// but makes nothing due before that time.
	rolledBack(t *tx, notBefore int64)
	// refuse answers all that wait with an error.
	refuse(error)
}

// What a participant may do besides.
type (
	// opener asks questions in the round trip in which a transaction begins, where processes share the database.
	// local says that the operations change only rows that they have named, and add some.
	opener interface {
		opens(t *tx, batch []operation, local bool) []question
	}
	// refresher reads again what another process may have changed of the settings.
	refresher interface{ refresh() error }
	// stager does what was left for the end of a stage.
	stager interface{ stageEnded(*tx, stage) error }
	// closer writes what it has added up, as the last thing before the commit.
	closer interface{ closes(*tx) error }
	// bounder bounds the operations of one transaction.
	bounder interface{ mostOps() int }
	// loner says whether new rows can be stored beside the transactions of others.
	loner interface{ mayStoreBeside() bool }
	// ender follows each round of the writer's loop, with the transaction's error.
	ender interface{ roundEnded(error) }
	// heir takes over from processes that are dead: no other can hold a lock in the database.
	heir interface{ takeOver(*tx) error }
	// clockMender mends what a clock that was ahead has left: see clock.go.
	clockMender interface{ clockMend() clockMend }
)

// never is a time that does not come.
const never = math.MaxInt64

// partKey finds a participant P in a writer, and its part T of a transaction.
type partKey[P participant, T any] struct {
	index int
	begin func(*tx, P) *T
}

var partCount int

// newPartKey is called once for each participant, as the program starts. begin makes its part of a transaction.
func newPartKey[P participant, T any](begin func(*tx, P) *T) *partKey[P, T] {
	partCount++
	return &partKey[P, T]{partCount - 1, begin}
}

// join adds the participant to a writer. Those that join first serve first.
func (k *partKey[P, T]) join(w *writer, p P) {
	if w.byKey == nil {
		w.byKey = make([]participant, partCount)
	}
	w.byKey[k.index] = p
	w.parts = append(w.parts, p)
}

// in returns the participant of a writer.
func (k *partKey[P, T]) in(w *writer) P { return w.byKey[k.index].(P) }

// of returns the participant's part of the transaction, which is made when it is first asked for.
func (k *partKey[P, T]) of(t *tx) *T {
	if t.parts == nil {
		t.parts = make([]any, partCount)
	}
	part, ok := t.parts[k.index].(*T)
	if !ok {
		part = k.begin(t, k.in(t.w))
		t.parts[k.index] = part
	}
	return part
}

// begun returns the participant's part of the transaction; nil: nobody asked for it.
func (k *partKey[P, T]) begun(t *tx) *T {
	if t.parts == nil {
		return nil
	}
	part, _ := t.parts[k.index].(*T)
	return part
}

// tending is how often a process that shares a database looks for deadlines that another has stored,
// and has not seen to itself: that one has died.
const tending = 10 * time.Second

// passive is a participant that keeps nothing in memory and has nothing to do by itself.
type passive struct{}

func (passive) load() error            { return nil }
func (passive) notified(*notification) {}
func (passive) lookAgain(bool)         {}
func (passive) nextDue(int64) int64    { return never }
func (passive) serve(*tx) error        { return nil }
func (passive) committed(*tx)          {}
func (passive) rolledBack(*tx, int64)  {}
func (passive) refuse(error)           {}
