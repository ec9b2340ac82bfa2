package store

import (
	"context"
	"errors"
	"log/slog"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/panics"
)

// A transaction runs what makes messages ready before what takes them: a job submitted in a batch
// can be delivered in the same commit.
type stage int

const (
	stageSettle stage = iota
	stageChange
	stageSubmit // last, so that nothing comes between a new job and whoever waits for it
	stages
)

// Bounds of one transaction.
const (
	maxBatchOps   = 1024
	maxBatchBytes = 16 << 20
)

// operation is one caller's part of a transaction.
type operation interface {
	stage() stage
	local() bool         // it changes only rows that it names, and adds some
	askedAhead(*[]query) // adds what it asks first
	names(func(rowName)) // the rows that it may change
	numbers() int        // of messages and jobs, that it takes
	hints() any          // for participants, see opener
	tells() bool         // its caller is told what the transaction has found, also if that changed nothing
	key() string         // by which operations are sorted in transactions that need not be alone; "": it does not matter
	bytes() int
	rows() int         // that it stores, about
	party() int64      // in whose turn it is taken; 0: it is taken at once
	left() error       // why its caller waits no more; nil: it waits
	postponable() bool // it may go into the next transaction: nothing was done for it when this one began
	apply(*tx) error   // an error that is not a *forebay.Error rolls the whole transaction back
	finish(error)      // the commit's outcome; called once
}

// op says what is known of an operation before it runs.
type op struct {
	stage stage
	party int64 // whose it is, of those who take turns at the writer; 0: it waits for nobody's turn
	rows  int   // that it stores, about; 0: one
	// numbers is how many sequence numbers it takes, at least about.
	numbers int
	size    int // bytes of payload
	// local says that it changes only rows that it names in ahead and touches, and adds some.
	local bool
	// asks is what it asks first, and ahead what it asks first besides. A driver to which that is expensive asks them with
	// the beginning of the transaction.
	asks  query
	ahead []query
	// touches names a row that it may change and does not ask about.
	touches rowName
	hints   any    // for participants that prepare the transaction; nil: none
	key     string // see operation
}

// request is an operation that gives its caller a T.
type request[T any] struct {
	op
	run    func(*tx) (T, error)
	ctx    context.Context // of the caller
	result T
	err    error
	done   chan struct{}
}

func (r *request[T]) stage() stage { return r.op.stage }
func (r *request[T]) local() bool  { return r.op.local }
func (r *request[T]) tells() bool  { return true }
func (r *request[T]) key() string  { return r.op.key }
func (r *request[T]) bytes() int   { return r.size }
func (r *request[T]) rows() int    { return max(r.op.rows, 1) }
func (r *request[T]) party() int64 { return r.op.party }
func (r *request[T]) left() error  { return r.ctx.Err() }
func (r *request[T]) postponable() bool {
	return r.asks.sql == "" && len(r.ahead) == 0 && r.op.hints == nil
}

func (r *request[T]) askedAhead(list *[]query) {
	if r.asks.sql != "" {
		*list = append(*list, r.asks)
	}
	*list = append(*list, r.ahead...)
}

func (r *request[T]) names(f func(rowName)) {
	if r.asks.sql != "" {
		f(r.asks.row)
	}
	for i := range r.ahead {
		f(r.ahead[i].row)
	}
	if r.touches != (rowName{}) {
		f(r.touches)
	}
}
func (r *request[T]) numbers() int { return r.op.numbers }
func (r *request[T]) hints() any   { return r.op.hints }

func (r *request[T]) apply(t *tx) error {
	// One that panics rolls the transaction back; the others are tried without it.
	r.err = panics.Run(slog.Default(), "an operation of the store", func() (err error) {
		r.result, err = r.run(t)
		return err
	})
	var refused *forebay.Error
	if r.err != nil && !errors.As(r.err, &refused) {
		return r.err
	}
	return nil
}

func (r *request[T]) finish(err error) {
	if err != nil { // of the commit, perhaps: then nobody knows whether the result became true
		var zero T
		r.result, r.err = zero, err
	}
	close(r.done)
}

// transact runs f in the writer's next transaction and returns once that is on disk. f may run more
// than once, but takes effect once. A *forebay.Error from f fails this caller alone, and f must not
// have changed anything by then. When ctx ends first the outcome is unknown to the caller.
func transact[T any](ctx context.Context, w *writer, o op, f func(*tx) (T, error)) (T, error) {
	return perform(ctx, w, &request[T]{op: o, run: f})
}

// transactIn is transact with a participant's part of the transaction.
func transactIn[P participant, X, T any](ctx context.Context, k *partKey[P, X], w *writer, o op, f func(*X) (T, error)) (T, error) {
	return transact(ctx, w, o, func(t *tx) (T, error) { return f(k.of(t)) })
}

// perform hands a request to the writer and waits for its outcome.
func perform[T any](ctx context.Context, w *writer, r *request[T]) (T, error) {
	var zero T
	r.ctx, r.done = ctx, make(chan struct{})
	select {
	case w.ops <- r:
	case <-w.stopped:
		return zero, errClosed
	case <-ctx.Done():
		return zero, ctx.Err()
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-w.stopped:
		select {
		case <-r.done:
		default:
			return zero, errClosed // it came too late to be taken
		}
	}
	if err := ctx.Err(); err != nil && errors.Is(r.err, err) {
		return zero, err // it was dropped
	}
	return r.result, w.conn.domainError(r.err)
}

var errClosed = forebay.Errorf(forebay.CodeUnavailable, "the server is stopping; try again")
