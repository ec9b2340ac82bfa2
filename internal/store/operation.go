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
	needs(*needs)
	plain() bool // it only stores new jobs, or settles what needs tells
	tells() bool // its caller is told what the transaction has found, also if that changed nothing
	key() string // the first idempotency key of what it stores; "": there is none
	bytes() int
	rows() int       // that it stores, about
	party() int64    // the tenant in whose turn it is taken; 0: it is taken at once
	left() error     // why its caller waits no more; nil: it waits
	apply(*tx) error // an error that is not a *forebay.Error rolls the whole transaction back
	finish(error)    // the commit's outcome; called once
}

// request is an operation that gives its caller a T.
type request[T any] struct {
	at     stage
	seq    int64            // the message whose lock it settles; 0: none
	token  int64            // of that lock, if the message goes with it; 0: it may stay
	answer activityLock     // that ends with its activity; zero: none does
	new    int              // messages that it stores
	keys   []idempotencyKey // that may have made these before
	told   string           // the deployment that it tells of what came of a call
	size   int
	many   int   // rows that it stores, if they are more than the messages
	tenant int64 // that brings something new; 0: it waits for nobody's turn
	run    func(*tx) (T, error)
	ctx    context.Context // of the caller
	result T
	err    error
	done   chan struct{}
}

func (r *request[T]) stage() stage { return r.at }

func (r *request[T]) needs(n *needs) {
	n.numbers += r.new
	n.keys = append(n.keys, r.keys...)
	switch {
	case r.token != 0:
		n.ends = append(n.ends, Lock{Seq: r.seq, Token: r.token})
	case r.seq != 0:
		n.locks = append(n.locks, r.seq)
	}
	if r.answer != (activityLock{}) {
		n.answers = append(n.answers, r.answer)
	}
	if r.told != "" {
		n.states = append(n.states, r.told)
	}
}
func (r *request[T]) plain() bool  { return r.new > 0 || r.seq != 0 || r.told != "" }
func (r *request[T]) tells() bool  { return true }
func (r *request[T]) bytes() int   { return r.size }
func (r *request[T]) rows() int    { return max(r.new, r.many, 1) }
func (r *request[T]) party() int64 { return r.tenant }
func (r *request[T]) left() error  { return r.ctx.Err() }

// postponable reports whether the operation can go into the next transaction: nothing was done for it when this
// one began.
func (r *request[T]) postponable() bool {
	return r.new == 0 && r.seq == 0 && r.token == 0 && r.answer == (activityLock{}) && r.told == "" && len(r.keys) == 0
}

func (r *request[T]) key() string {
	if len(r.keys) == 0 {
		return ""
	}
	return r.keys[0].key
}

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
func transact[T any](ctx context.Context, s *Store, at stage, f func(*tx) (T, error)) (T, error) {
	return transactSized(ctx, s, at, 0, f)
}

// transactSized is transact for an operation that carries so many bytes of payload.
func transactSized[T any](ctx context.Context, s *Store, at stage, size int, f func(*tx) (T, error)) (T, error) {
	return perform(ctx, s, &request[T]{at: at, size: size, run: f})
}

// transactIn is transactSized for an operation that brings so many rows of a tenant.
func transactIn[T any](ctx context.Context, s *Store, at stage, tenant int64, rows, size int, f func(*tx) (T, error)) (T, error) {
	return perform(ctx, s, &request[T]{at: at, size: size, many: rows, tenant: tenant, run: f})
}

// perform hands a request to the writer and waits for its outcome.
func perform[T any](ctx context.Context, s *Store, r *request[T]) (T, error) {
	return performBy(ctx, s.writer, r)
}

func performBy[T any](ctx context.Context, w *writer, r *request[T]) (T, error) {
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
