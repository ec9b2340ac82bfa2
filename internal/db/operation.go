package db

import (
	"context"
	"errors"
	"log/slog"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/panics"
)

// Stage is when in a transaction an operation runs. Operations that make messages visible run
// before claims, so a message that arrives in a batch can be delivered in the same commit.
type Stage int

const (
	StageSettle Stage = iota
	StageChange
	StageSubmit // last, so that nothing comes between a new message and whoever waits for it
	Stages
)

// Bounds of one transaction.
const (
	MaxBatchOps   = 1024
	maxBatchBytes = 16 << 20
)

// Operation is one caller's part of a transaction.
type Operation interface {
	What() *Op       // what is known of it
	left() error     // why its caller waits no more; nil: it waits
	apply(*Tx) error // an error that is not a *forebay.Error rolls the whole transaction back
	finish(error)    // the commit's outcome; called once
}

// Op says what is known of an operation before it runs.
type Op struct {
	Stage Stage
	Party int64 // whose it is, of those who take turns at the writer; 0: it waits for nobody's turn
	Rows  int   // that it stores, about; 0: one
	// Numbers is how many sequence numbers it takes, at least about.
	Numbers int
	Size    int // bytes of payload
	// Local says that it changes only rows that it names by Asks and Touches, and adds some.
	Local bool
	// Interleaves says that it may wait for answers of the database while others that interleave
	// and change no row that it names run. What it shares with them in memory it reads and changes
	// without a statement in between, or by Alone. It must be local too.
	Interleaves bool
	// Volatile says that its caller may lose what it does to a loss of power: it is told before
	// that is on disk. The end of this process loses nothing.
	Volatile bool
	// Asks returns what it asks first. Where processes share the database, that is asked with the
	// beginning of the transaction. nil: nothing. Elsewhere it is not called.
	Asks func() []driver.Prefetch
	// Touches are rows that it may change and does not ask about.
	Touches []driver.RowName
	Hints   any    // for participants that prepare the transaction; nil: none
	Key     string // by which operations are sorted in transactions that need not be alone; "": it does not matter

	asked []driver.Prefetch
}

func (o *Op) rows() int { return max(o.Rows, 1) }

// postponable reports whether it may go into the next transaction: nothing was done for it when
// this one began.
func (o *Op) postponable() bool {
	return o.Asks == nil && o.Hints == nil
}

// ask finds out what it asks first.
func (o *Op) ask() {
	if o.Asks != nil {
		o.asked = o.Asks()
	}
}

// names calls f for the rows that it may change.
func (o *Op) names(f func(driver.RowName)) {
	for i := range o.asked {
		if !o.asked[i].Shared {
			f(o.asked[i].Row)
		}
	}
	for _, row := range o.Touches {
		f(row)
	}
}

// reads calls f for the rows that it only reads.
func (o *Op) reads(f func(driver.RowName)) {
	for i := range o.asked {
		if o.asked[i].Shared {
			f(o.asked[i].Row)
		}
	}
}

// Request is an operation that gives its caller a T.
type Request[T any] struct {
	Op
	Run    func(*Tx) (T, error)
	Ctx    context.Context // of the caller
	result T
	err    error
	Done   chan struct{}
}

func (r *Request[T]) What() *Op   { return &r.Op }
func (r *Request[T]) left() error { return r.Ctx.Err() }

func (r *Request[T]) apply(t *Tx) error { return r.applyRun(t, r.Run) }

func (r *Request[T]) applyRun(t *Tx, run func(*Tx) (T, error)) error {
	// One that panics rolls the transaction back; the others are tried without it.
	r.err = panics.Run(slog.Default(), "an operation of the store", func() (err error) {
		r.result, err = run(t)
		return err
	})
	if r.err == nil {
		return nil
	}
	var refused *forebay.Error
	if !errors.As(r.err, &refused) {
		return r.err
	}
	return nil
}

// requestIn is a request that runs with a participant's part of the transaction.
type requestIn[P Participant, X, T any] struct {
	Request[T]
	key *Key[P, X]
	run func(*X) (T, error)
}

func (r *requestIn[P, X, T]) apply(t *Tx) error {
	return r.applyRun(t, func(t *Tx) (T, error) { return r.run(r.key.Of(t)) })
}

func (r *Request[T]) finish(err error) {
	if err != nil { // of the commit, perhaps: then nobody knows whether the result became true
		var zero T
		r.result, r.err = zero, err
	}
	close(r.Done)
}

// Transact runs f in the writer's next transaction and returns once that is on disk. f may run
// more than once, but takes effect once. A *forebay.Error from f fails this caller alone, and f
// must not have changed anything by then. When ctx ends first the outcome is unknown to the
// caller.
func Transact[T any](ctx context.Context, w *Writer, o Op, f func(*Tx) (T, error)) (T, error) {
	r := &Request[T]{Op: o, Run: f}
	return perform(ctx, w, r, r)
}

// TransactIn is transact with a participant's part of the transaction.
func TransactIn[P Participant, X, T any](ctx context.Context, k *Key[P, X], w *Writer, o Op, f func(*X) (T, error)) (T, error) {
	r := &requestIn[P, X, T]{Request: Request[T]{Op: o}, key: k, run: f}
	return perform(ctx, w, r, &r.Request)
}

// perform hands an operation to the writer and waits for the outcome of its request.
func perform[T any](ctx context.Context, w *Writer, op Operation, r *Request[T]) (T, error) {
	var zero T
	r.Ctx, r.Done = ctx, make(chan struct{})
	if w.Shared() {
		r.ask()
	}
	select {
	case w.Ops <- op:
	case <-w.Stopped:
		return zero, ErrClosed
	case <-ctx.Done():
		return zero, ctx.Err()
	}
	select {
	case <-r.Done:
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-w.Stopped:
		select {
		case <-r.Done:
		default:
			return zero, ErrClosed // it came too late to be taken
		}
	}
	if err := ctx.Err(); err != nil && errors.Is(r.err, err) {
		return zero, err // it was dropped
	}
	return r.result, w.Conn.UserError(r.err)
}

var ErrClosed = forebay.Errorf(forebay.CodeUnavailable, "the server is stopping; try again")
