// Package intake turns the messages of a queue of plain messages into jobs.
//
// An [Intake] receives under peek-lock, submits and completes, so a crash in between repeats a message
// but not its job: the message id is the job's idempotency key. What can never become a job is
// dead-lettered with the reason; what cannot right now is given back, uncounted, and the intake pauses.
// Any number of processes may run the same intake. A queue that requires sessions is received session by
// session, in order.
package intake

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/sleep"
)

// Jobs is where jobs are submitted: a *jobs.Service.
type Jobs interface {
	SubmitRepeatable(ctx context.Context, tenant string, reqs []forebay.SubmitRequest, fingerprints [][]byte) []forebay.SubmitResult
}

// Options makes an Intake.
type Options struct {
	Bus    *bus.Service
	Jobs   Jobs
	Logger *slog.Logger
	Tenant string // whose messages they are, and whose jobs they become
	From   string // the queue of messages, or "<topic>/subscriptions/<name>"
	Task   string // of the jobs; "": a message's subject names it
	Queue  string // of the jobs; "": the task's
}

// Intake is one such queue.
type Intake struct {
	Options
	wait float64 // seconds that a pass waits for messages
}

// New returns an intake, to be run.
func New(opts Options) *Intake { return &Intake{opts, 60} }

const (
	// settleTime bounds what is done with messages already received once the intake is to stop.
	settleTime = 30 * time.Second
	// sessionBatches is how often a session is received from before others have their turn.
	sessionBatches = 10

	shortestPause = time.Second
	longestPause  = 30 * time.Second
)

// Run takes messages until ctx ends.
func (i *Intake) Run(ctx context.Context) {
	log := i.Logger.With(slog.String("intake", i.Tenant+"/"+i.From))
	for said, pause := "", shortestPause; ctx.Err() == nil; {
		err := panics.Run(log, "an intake", func() error { return i.pass(ctx) })
		if err == nil {
			said, pause = "", shortestPause
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			log.Warn("the intake pauses", slog.Any("error", err))
		}
		if sleep.For(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, longestPause)
	}
}

// pass takes the messages that are there, after waiting for some. Its error says why the next pass
// would meet the same.
func (i *Intake) pass(ctx context.Context) error {
	sessions, err := i.Bus.RequiresSession(ctx, i.Tenant, i.From)
	if err != nil {
		return err
	}
	if sessions {
		return i.session(ctx)
	}
	got, err := i.Bus.Receive(ctx, i.Tenant, i.From, forebay.ReceiveRequest{MaxMessages: forebay.MaxMessagesPerCall, WaitSeconds: i.wait})
	if err != nil {
		return err
	}
	return i.take(ctx, got)
}

// session takes the messages of the next session.
func (i *Intake) session(ctx context.Context) (err error) {
	session, found, err := i.Bus.AcceptSession(ctx, i.Tenant, i.From, forebay.AcceptSessionRequest{WaitSeconds: i.wait})
	if err != nil || !found {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
		err = unlessLost(errors.Join(err, i.Bus.CloseSession(closing, i.Tenant, i.From, session.SessionToken)))
	}()
	for range sessionBatches {
		got, err := i.Bus.ReceiveSession(ctx, i.Tenant, i.From, session.SessionToken, forebay.ReceiveRequest{MaxMessages: forebay.MaxMessagesPerCall})
		if err != nil || len(got) == 0 {
			return err
		}
		if err := i.take(ctx, got); err != nil {
			return err
		}
	}
	return nil
}

// unlessLost passes over a lock that has ended: whoever has it now goes on, and makes no job twice.
func unlessLost(err error) error {
	if errors.Is(err, forebay.ErrLockLost) || errors.Is(err, forebay.ErrSessionLockLost) {
		return nil
	}
	return err
}

// take makes jobs of the messages, in their order: if one has to be given back, so are all after it.
func (i *Intake) take(ctx context.Context, messages []forebay.Message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	for len(messages) > 0 {
		n := together(messages)
		if err := i.submit(ctx, messages[:n]); err != nil {
			return errors.Join(err, i.giveBack(ctx, messages[n:]))
		}
		messages = messages[n:]
	}
	return nil
}

// together is how many of the messages are submitted in one transaction. A large body, which goes to blob
// storage first, may fail by itself, so nothing is submitted along with it.
func together(messages []forebay.Message) int {
	for n := range messages {
		if bodyBytes(&messages[n]) > forebay.InlineBytes/2 {
			return max(1, n)
		}
	}
	return len(messages)
}

func (i *Intake) submit(ctx context.Context, messages []forebay.Message) error {
	refusals := make([]error, len(messages))
	var reqs []forebay.SubmitRequest
	var prints [][]byte
	var places []int // of the requests in messages
	for n := range messages {
		var req forebay.SubmitRequest
		var print []byte
		err := panics.Run(i.Logger, "a message of an intake", func() (err error) {
			req, print, err = i.request(&messages[n])
			return err
		})
		if err != nil {
			refusals[n] = err
			continue
		}
		reqs, prints, places = append(reqs, req), append(prints, print), append(places, n)
	}
	if len(reqs) > 0 {
		for n, result := range i.Jobs.SubmitRepeatable(ctx, i.Tenant, reqs, prints) {
			if result.Error != nil {
				refusals[places[n]] = result.Error
			}
		}
	}
	return i.settleAll(ctx, messages, refusals)
}

// settleAll settles the messages at once, so that they share a transaction.
func (i *Intake) settleAll(ctx context.Context, messages []forebay.Message, refusals []error) error {
	errs := make([]error, len(messages))
	var settling sync.WaitGroup
	for n := range messages {
		settling.Go(func() { errs[n] = i.settle(ctx, &messages[n], refusals[n]) })
	}
	settling.Wait()
	return errors.Join(errs...)
}

// settle completes a message whose job exists. A refusal that is not the message's fault is returned.
func (i *Intake) settle(ctx context.Context, m *forebay.Message, refusal error) error {
	if refusal == nil {
		return unlessLost(i.Bus.Complete(ctx, i.Tenant, i.From, m.LockToken))
	}
	var why *forebay.Error
	if !errors.As(refusal, &why) {
		why = forebay.Errorf(forebay.CodeInternal, "something went wrong here").Caused(refusal)
	}
	switch why.Code {
	case forebay.CodeGone: // its job was there, and was purged since
		return unlessLost(i.Bus.Complete(ctx, i.Tenant, i.From, m.LockToken))
	case forebay.CodeUnavailable, forebay.CodeStorageFull, forebay.CodeTooManyRequests, forebay.CodeTenantLimit, forebay.CodeDatabaseUnusable:
		return errors.Join(refusal, i.giveBack(ctx, []forebay.Message{*m}))
	case forebay.CodeInternal: // it counts, lest a message for which this always happens comes for ever
		return errors.Join(refusal, unlessLost(i.Bus.Abandon(ctx, i.Tenant, i.From, m.LockToken, forebay.Settlement{})))
	}
	reason := string(why.Code)
	if why.Field == "deadline" {
		reason = forebay.ReasonExpired
	}
	return unlessLost(i.Bus.DeadLetter(ctx, i.Tenant, i.From, m.LockToken, forebay.Settlement{Reason: reason, Description: why.Error()}))
}

func (i *Intake) giveBack(ctx context.Context, messages []forebay.Message) error {
	tokens := make([]string, len(messages))
	for n, m := range messages {
		tokens[n] = m.LockToken
	}
	return i.Bus.Return(ctx, i.Tenant, i.From, tokens)
}
