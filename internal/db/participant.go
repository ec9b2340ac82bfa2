package db

import (
	"math"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// Participant is a domain's part in the transactions of one writer. What it keeps in memory
// belongs to the writer's goroutine. It changes that within a transaction as if the transaction
// had been committed; rolledBack makes up for those that were not.
type Participant interface {
	// Load reads what the participant keeps in memory. It runs once, before the first transaction.
	Load() error
	// Notified takes in what other processes have committed.
	Notified(*Notification)
	// MarkAllDue makes everything due: something may have been missed. all says that it was not
	// just a while ago that everything was looked at, but that something changed.
	MarkAllDue(all bool)
	// NextDue returns when serve has something to do, in milliseconds; never: only once something
	// has happened.
	NextDue(now int64) int64
	// Serve does what is due within the transaction, after the operations: it answers those who wait.
	Serve(*Tx) error
	// Committed follows a transaction that is on disk.
	Committed(*Tx)
	// Invalidate follows one that came to nothing, wherever it ended. What it needs to know it
	// reads again, but makes nothing due before that time.
	Invalidate(t *Tx, notBefore int64)
	// Refuse answers all that wait with an error.
	Refuse(error)
}

// What a participant may do besides.
type (
	// opener asks questions in the round trip in which a transaction begins, where processes share
	// the database. local says that the operations change only rows that they have named, and add
	// some.
	opener interface {
		Opens(t *Tx, batch []Operation, local bool) []driver.PipelineQuery
	}
	// refresher asks again, in the round trip in which a transaction begins, what another process may
	// have changed of the settings. answered follows once all answers are there; nil: nothing does.
	refresher interface {
		Refresh() (questions []driver.PipelineQuery, answered func())
	}
	// stager does what was left for the end of a stage.
	stager interface{ StageEnded(*Tx, Stage) error }
	// reporter tells others what the operations have done, once all are, and before anybody is
	// served. Those of several participants share round trips: see [driver.Interleaving].
	reporter interface{ OperationsEnded(*Tx) error }
	// closer writes what it has added up, as the last thing before the commit.
	closer interface{ Closes(*Tx) error }
	// volatileServer serves within a volatile transaction those that may lose what they get to a loss
	// of power. All others wait for the next transaction.
	volatileServer interface{ ServeVolatile(*Tx) error }
	// bounder bounds the operations of one transaction.
	bounder interface{ MostOps() int }
	// loner says whether new rows can be stored beside the transactions of others.
	loner interface{ MayStoreBeside() bool }
	// ender follows each round of the writer's loop, with the transaction's error.
	ender interface{ RoundEnded(error) }
	// TakesOver takes over from processes that are dead: no other can hold a lock in the database.
	TakesOver interface{ TakeOver(*Tx) error }
	// clockMender mends what a clock that was ahead has left: see clock.go.
	clockMender interface{ ClockMend() ClockMend }
)

// Never is a time that does not come.
const Never = math.MaxInt64

// Key finds a participant P in a writer, and its part T of a transaction.
type Key[P Participant, T any] struct {
	index int
	begin func(*Tx, P) *T
}

var partCount int

// NewKey is called once for each participant, as the program starts. begin makes its part of a
// transaction.
func NewKey[P Participant, T any](begin func(*Tx, P) *T) *Key[P, T] {
	partCount++
	return &Key[P, T]{partCount - 1, begin}
}

// Join adds the participant to a writer. Those that join first serve first.
func (k *Key[P, T]) Join(w *Writer, p P) {
	if w.byKey == nil {
		w.byKey = make([]Participant, partCount)
	}
	w.byKey[k.index] = p
	w.parts = append(w.parts, p)
}

// In returns the participant of a writer.
func (k *Key[P, T]) In(w *Writer) P { return w.byKey[k.index].(P) }

// Of returns the participant's part of the transaction, which is made when it is first asked for.
func (k *Key[P, T]) Of(t *Tx) *T {
	if t.parts == nil {
		t.parts = make([]any, partCount)
	}
	part, ok := t.parts[k.index].(*T)
	if !ok {
		part = k.begin(t, k.In(t.w))
		t.parts[k.index] = part
	}
	return part
}

// Begun returns the participant's part of the transaction; nil: nobody asked for it.
func (k *Key[P, T]) Begun(t *Tx) *T {
	if t.parts == nil {
		return nil
	}
	part, _ := t.parts[k.index].(*T)
	return part
}

// Tending is how often a process looks for overdue deadlines that another process has stored.
// That one has died, for it would have handled them itself.
const Tending = 10 * time.Second

// Passive is a participant that keeps nothing in memory and has nothing to do by itself.
type Passive struct{}

func (Passive) Load() error            { return nil }
func (Passive) Notified(*Notification) {}
func (Passive) MarkAllDue(bool)        {}
func (Passive) NextDue(int64) int64    { return Never }
func (Passive) Serve(*Tx) error        { return nil }
func (Passive) Committed(*Tx)          {}
func (Passive) Invalidate(*Tx, int64)  {}
func (Passive) Refuse(error)           {}
