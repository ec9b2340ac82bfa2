package webhook

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/sleep"
)

// DefaultGrace is how long deliveries under way may take once a Runner is to stop. The Runner
// then has giveBackFor to give back the others.
const (
	DefaultGrace = 5 * time.Second
	giveBackFor  = 2 * time.Second
)

// How long settling is tried again while the database cannot be written, and the waits between
// tries. Meanwhile the worker sends nothing: that could not be recorded either.
const (
	settleFor  = 30 * time.Second
	retryFirst = 100 * time.Millisecond
	retryLast  = 10 * time.Second
)

// Runner delivers the messages of one endpoint.
type Runner struct {
	endpoint atomic.Pointer[Endpoint]
	source   Source
	sender   *Sender
	log      *slog.Logger
	grace    time.Duration
}

// NewRunner returns a runner that sends the source's messages to the endpoint. When it stops,
// deliveries under way get that grace period.
func NewRunner(e Endpoint, source Source, sender *Sender, log *slog.Logger, grace time.Duration) *Runner {
	r := &Runner{source: source, sender: sender, grace: grace, log: log.With(slog.String("tenant", e.Tenant), slog.String("webhook", e.Name))}
	r.endpoint.Store(&e)
	return r
}

// Update changes where later deliveries go, and their secrets. The number of workers stays.
func (r *Runner) Update(e Endpoint) { r.endpoint.Store(&e) }

// Run delivers until ctx ends. Deliveries under way then have the grace period to end. Those that
// do not end are given back uncounted.
func (r *Runner) Run(ctx context.Context) {
	sending, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(r.grace, abort) })
	defer stop()
	workers := r.endpoint.Load().Concurrency
	if workers <= 0 {
		workers = forebay.DefaultWebhookConcurrency
	}
	var running sync.WaitGroup
	for range min(workers, forebay.MaxWebhookConcurrency) {
		running.Go(func() { r.work(ctx, sending) })
	}
	running.Wait()
}

// work delivers one message after the other, and pauses while the source cannot be read.
func (r *Runner) work(ctx, sending context.Context) {
	for wait := retryFirst; ; {
		// A delivery that panics is tried again when its lock has ended, and counts.
		err := panics.Run(r.log, "a webhook delivery", func() error { return r.deliver(ctx, sending) })
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			wait = retryFirst
		case forebay.CodeOf(err) == forebay.CodeUnknownQueue || forebay.CodeOf(err) == forebay.CodeNotFound:
			return // the endpoint was deleted
		default:
			r.log.Warn("webhook deliveries wait for the database", slog.Any("error", err), slog.Duration("retry_in", wait))
			if sleep.For(ctx, wait) != nil {
				return
			}
			wait = min(2*wait, retryLast)
		}
	}
}

// deliver waits for one message and sends it. Receiving ends with ctx, sending with the context
// of that name. Its error is the source's.
func (r *Runner) deliver(ctx, sending context.Context) error {
	d, err := r.source.Receive(ctx)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return r.settle(sending, d, Outcome{Verb: Release})
	}
	endpoint := *r.endpoint.Load()
	outcome := decide(d.Count, r.sender.Send(sending, endpoint, d.Message))
	outcome.URL = endpoint.URL
	r.report(d, outcome)
	if r.sender.observe != nil {
		r.sender.observe(endpoint, d, outcome)
	}
	return r.settle(sending, d, outcome)
}

// settle ends the delivery, also while the runner stops. It tries for settleFor, since nobody
// else can have the message before. Once sending has ended it has giveBackFor.
func (r *Runner) settle(sending context.Context, d Delivery, o Outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(sending), settleFor)
	defer cancel()
	defer context.AfterFunc(sending, func() { time.AfterFunc(giveBackFor, cancel) })()
	for wait := retryFirst; ; wait = min(2*wait, retryLast) {
		err := r.source.Settle(ctx, d, o)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, forebay.ErrLockLost), forebay.CodeOf(err) == forebay.CodeUnknownQueue, forebay.CodeOf(err) == forebay.CodeNotFound:
			r.log.Info("a webhook delivery ended after its lock", slog.String("message_id", d.ID), slog.String("verb", string(o.Verb)))
			return nil
		case sleep.For(ctx, wait) != nil:
			return err
		}
	}
}

// report logs a try without its URL, which may hold a secret. Errors name hosts and addresses, so
// only the debug level logs them.
func (r *Runner) report(d Delivery, o Outcome) {
	attributes := []any{
		slog.String("message_id", d.ID), slog.Int("try", d.Count), slog.Int("status", o.Attempt.Status),
		slog.Duration("duration", o.Attempt.Duration), slog.String("failure", string(o.Attempt.Failure)),
	}
	if o.Attempt.Err != nil && r.log.Enabled(context.Background(), slog.LevelDebug) {
		attributes = append(attributes, slog.Any("error", o.Attempt.Err))
	}
	switch o.Verb {
	case GiveUp:
		r.log.Warn("a webhook delivery was given up", append(attributes, slog.String("reason", o.Reason))...)
	case Retry:
		r.log.Info("a webhook delivery failed", append(attributes, slog.Duration("retry_in", o.Delay))...)
	default:
		r.log.Debug("webhook delivery", attributes...)
	}
}
