package trigger

import (
	"context"
	"errors"
	"log/slog"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/panics"
)

// Jobs is where jobs are submitted: a *jobs.Service.
type Jobs interface {
	SubmitRepeatable(ctx context.Context, tenant string, reqs []forebay.SubmitRequest, fingerprints [][]byte) []forebay.SubmitResult
}

// Maker makes jobs of messages, wherever they come from.
type Maker struct {
	Jobs   Jobs
	Logger *slog.Logger
	Tenant string // owner of the jobs
	Source string // where the messages come from: the beginning of idempotency keys
	Task   string // task of the jobs; "": the message's subject
	Queue  string // queue of the jobs; "": the task's
}

// Verb is what is to be done with a message.
type Verb uint8

const (
	Complete   Verb = iota // its job is on disk
	DeadLetter             // it can never become a job
	Wait                   // it cannot become a job now, which is not its fault
	Abandon                // something went wrong; the delivery counts, so that this ends
)

// Verdict says what is to be done with a message, and why.
type Verdict struct {
	Verb   Verb
	Reason string // of a dead letter
	Err    error  // nil with Complete
}

// Together returns how many of the messages Make should get at once. A large body goes to blob
// storage first, which may fail, so it is submitted alone.
func Together(messages []forebay.Message) int {
	for n := range messages {
		if bodyBytes(&messages[n]) > forebay.InlineBytes/2 {
			return max(1, n)
		}
	}
	return len(messages)
}

// Make submits the jobs of messages, in their order, in one transaction. The jobs of those to
// complete are on disk. The id of a message is its job's idempotency key.
func (k *Maker) Make(ctx context.Context, messages []forebay.Message) []Verdict {
	refusals := make([]error, len(messages))
	var reqs []forebay.SubmitRequest
	var prints [][]byte
	var indexes []int // of reqs: where in messages each stands
	for n := range messages {
		var req forebay.SubmitRequest
		var print []byte
		err := panics.Run(k.Logger, "a message of a trigger", func() (err error) {
			req, print, err = k.request(&messages[n])
			return err
		})
		if err != nil {
			refusals[n] = err
			continue
		}
		reqs, prints, indexes = append(reqs, req), append(prints, print), append(indexes, n)
	}
	if len(reqs) > 0 {
		for n, result := range k.Jobs.SubmitRepeatable(ctx, k.Tenant, reqs, prints) {
			if result.Error != nil {
				refusals[indexes[n]] = result.Error
			}
		}
	}
	verdicts := make([]Verdict, len(messages))
	for n, refusal := range refusals {
		verdicts[n] = verdict(refusal)
	}
	return verdicts
}

func verdict(refusal error) Verdict {
	if refusal == nil {
		return Verdict{}
	}
	if errors.Is(refusal, context.DeadlineExceeded) || errors.Is(refusal, context.Canceled) { // the store is slow
		return Verdict{Verb: Wait, Err: refusal}
	}
	var why *forebay.Error
	if !errors.As(refusal, &why) {
		why = forebay.Errorf(forebay.CodeInternal, "something went wrong here").Caused(refusal)
	}
	switch why.Code {
	case forebay.CodeGone: // its job existed, and was purged since
		return Verdict{}
	case forebay.CodeUnavailable, forebay.CodeStorageFull, forebay.CodeTooManyRequests, forebay.CodeTenantLimit, forebay.CodeDatabaseUnusable:
		return Verdict{Verb: Wait, Err: refusal}
	case forebay.CodeInternal: // it counts, so that a message that always fails ends up dead-lettered
		return Verdict{Verb: Abandon, Err: refusal}
	}
	reason := string(why.Code)
	if why.Field == "deadline" {
		reason = forebay.ReasonExpired
	}
	return Verdict{Verb: DeadLetter, Reason: reason, Err: why}
}
