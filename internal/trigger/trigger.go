// Package trigger turns the messages of a queue or a subscription into jobs.
//
// A [Trigger] receives a message under peek-lock, submits its job and completes the message. The
// message id is the job's idempotency key. So a crash in between repeats the message, not the job.
// A message that can never become a job is dead-lettered with the reason. One that cannot become a
// job now is given back, uncounted, and the trigger pauses. Several processes may run the same
// trigger. A queue that requires sessions is received session by session, in order.
//
// A [Maker] is the part of it that decides. Messages of another service become jobs by one, too.
//
// Users call this an intake: in the configuration, and in the idempotency keys of the jobs.
package trigger

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/sleep"
)

// Options are the settings of a Trigger.
type Options struct {
	Bus    *messaging.Service
	Jobs   Jobs
	Logger *slog.Logger
	Tenant string // owner of the messages and of the jobs
	From   string // the queue of messages, or "<topic>/subscriptions/<name>"
	Task   string // task of the jobs; "": the message's subject
	Queue  string // queue of the jobs; "": the task's
}

// Trigger makes jobs of the messages of one queue or subscription.
type Trigger struct {
	Options
	maker *Maker
	wait  float64 // seconds that a pass waits for messages
}

// New returns a trigger. [Trigger.Run] starts it.
func New(opts Options) *Trigger {
	maker := &Maker{Jobs: opts.Jobs, Logger: opts.Logger, Tenant: opts.Tenant, Source: "intake/" + opts.From, Task: opts.Task, Queue: opts.Queue}
	return &Trigger{opts, maker, 60}
}

const (
	// settleTime bounds the settling of received messages once the trigger is to stop.
	settleTime = 30 * time.Second
	// sessionBatches is how many batches of one session are received before another session is
	// accepted.
	sessionBatches = 10

	shortestPause = time.Second
	longestPause  = 30 * time.Second
)

// Run takes messages until ctx ends.
func (t *Trigger) Run(ctx context.Context) {
	log := t.Logger.With(slog.String("trigger", t.Tenant+"/"+t.From))
	for lastError, pause := "", shortestPause; ctx.Err() == nil; {
		err := panics.Run(log, "a trigger", func() error { return t.pass(ctx) })
		if err == nil {
			lastError, pause = "", shortestPause
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != lastError {
			lastError = err.Error()
			log.Warn("the trigger pauses", slog.Any("error", err))
		}
		if sleep.For(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, longestPause)
	}
}

// pass waits for messages and takes those that are there. Its error says why the next pass would
// fail as well.
func (t *Trigger) pass(ctx context.Context) error {
	sessions, err := t.Bus.Sessions.Required(ctx, t.Tenant, t.From)
	if err != nil {
		return err
	}
	if sessions {
		return t.session(ctx)
	}
	got, err := t.Bus.Messages.Receive(ctx, t.Tenant, t.From, forebay.ReceiveRequest{MaxMessages: forebay.MaxMessagesPerCall, WaitSeconds: t.wait})
	if err != nil {
		return err
	}
	return t.take(ctx, got)
}

// session takes the messages of the next session.
func (t *Trigger) session(ctx context.Context) (err error) {
	session, found, err := t.Bus.Sessions.Accept(ctx, t.Tenant, t.From, forebay.AcceptSessionRequest{WaitSeconds: t.wait})
	if err != nil || !found {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
		err = unlessLost(errors.Join(err, t.Bus.Sessions.Close(closing, t.Tenant, t.From, session.SessionToken)))
	}()
	for range sessionBatches {
		got, err := t.Bus.Messages.ReceiveSession(ctx, t.Tenant, t.From, session.SessionToken, forebay.ReceiveRequest{MaxMessages: forebay.MaxMessagesPerCall})
		if err != nil || len(got) == 0 {
			return err
		}
		if err := t.take(ctx, got); err != nil {
			return err
		}
	}
	return nil
}

// unlessLost ignores a lock that has ended: whoever has it now goes on, and submits no job twice.
func unlessLost(err error) error {
	if errors.Is(err, forebay.ErrLockLost) || errors.Is(err, forebay.ErrSessionLockLost) {
		return nil
	}
	return err
}

// take submits jobs for the messages, in their order. If one has to be given back, so are all
// after it.
func (t *Trigger) take(ctx context.Context, messages []forebay.Message) error {
	ctx = context.WithoutCancel(ctx)
	for len(messages) > 0 {
		n := Together(messages)
		if err := t.submit(ctx, messages[:n]); err != nil {
			ctx, cancel := context.WithTimeout(ctx, settleTime)
			defer cancel()
			return errors.Join(err, t.giveBack(ctx, messages[n:]))
		}
		messages = messages[n:]
	}
	return nil
}

func (t *Trigger) submit(ctx context.Context, messages []forebay.Message) error {
	making, made := context.WithTimeout(ctx, settleTime)
	defer made()
	verdicts := t.maker.Make(making, messages)
	settling, settled := context.WithTimeout(ctx, settleTime) // of its own: making may have taken all of the other
	defer settled()
	return t.settleAll(settling, messages, verdicts)
}

// settleAll settles the messages concurrently, so that they share a transaction.
func (t *Trigger) settleAll(ctx context.Context, messages []forebay.Message, verdicts []Verdict) error {
	errs := make([]error, len(messages))
	var settling sync.WaitGroup
	for n := range messages {
		settling.Go(func() { errs[n] = t.settle(ctx, &messages[n], verdicts[n]) })
	}
	settling.Wait()
	return errors.Join(errs...)
}

// settle completes a message whose job exists. It returns a refusal that is not the message's
// fault.
func (t *Trigger) settle(ctx context.Context, m *forebay.Message, v Verdict) error {
	switch v.Verb {
	case DeadLetter:
		return unlessLost(t.Bus.Messages.DeadLetter(ctx, t.Tenant, t.From, m.LockToken, forebay.Settlement{Reason: v.Reason, Description: v.Err.Error()}))
	case Wait:
		return errors.Join(v.Err, t.giveBack(ctx, []forebay.Message{*m}))
	case Abandon:
		return errors.Join(v.Err, unlessLost(t.Bus.Messages.Abandon(ctx, t.Tenant, t.From, m.LockToken, forebay.Settlement{})))
	default:
		return unlessLost(t.Bus.Messages.Complete(ctx, t.Tenant, t.From, m.LockToken))
	}
}

func (t *Trigger) giveBack(ctx context.Context, messages []forebay.Message) error {
	tokens := make([]string, len(messages))
	for n, m := range messages {
		tokens[n] = m.LockToken
	}
	return t.Bus.Messages.Return(ctx, t.Tenant, t.From, tokens)
}
