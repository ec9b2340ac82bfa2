package jobs

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/report"
)

// attempted is the call that an attempt's row is about.
type attempted struct {
	seq, tenant        int64
	task               string
	subqueue           queue.Subqueue
	generation, number int
	startedAt          int64
}

func (d *LockedJob) attempted() attempted {
	return attempted{d.Seq, d.Tenant, d.Task, d.Subqueue, d.Generation, d.Number, d.LockedAt.UnixMilli()}
}

// countHour adds an attempt to reports n times. Only jobs of the retry subqueue were retried
// before.
func (t *Tx) countHour(c attempted, finishedAt int64, a AttemptRecord, n int64) {
	report.Key.Of(t.Tx).Count(report.Attempt{
		Tenant: c.tenant, FinishedAt: finishedAt, Task: c.task, Deployment: Bounded(a.Deployment), Number: c.number, Outcome: a.Outcome,
		Class: a.ErrorClass, Code: Bounded(a.ErrorCode), Retried: c.subqueue.Kind() == queue.SubqueueRetry,
		Use: report.Use{Input: admission.Plausible(a.Usage.InputTokens, admission.MaxTokens), Output: admission.Plausible(a.Usage.OutputTokens, admission.MaxTokens),
			Assumed: a.assumed, Cost: forebay.Money(admission.Plausible(int64(a.Cost), admission.MaxCost))},
	}, n)
}

// counted is an attempt that this transaction has added to reports.
type counted struct {
	call       attempted
	finishedAt int64
	record     AttemptRecord
}

// assume adds to reports what was held for a call of unknown use that this transaction has
// recorded.
func (t *Tx) assume(seq int64, held admission.Amount) {
	c, ok := t.unmeasured[seq]
	if !ok {
		return
	}
	t.countHour(c.call, c.finishedAt, c.record, -1)
	c.record.Cost, c.record.assumed = forebay.Money(held.Cost), held.Tokens
	t.countHour(c.call, c.finishedAt, c.record, 1)
	delete(t.unmeasured, seq)
}

// recordLost records the attempt of a worker that was never heard from again.
func (t *Tx) recordLost(m *candidate) error {
	class, code := forebay.ClassTransient, "lock_lost"
	held, err := t.admission.LoseHolds(m.Seq)
	if err != nil {
		return err
	}
	call := m.attempted()
	call.startedAt = m.lostAt
	return t.attempt(call, AttemptRecord{
		Outcome: forebay.OutcomeLost, ErrorClass: class, ErrorCode: code, Cost: forebay.Money(held.Cost), assumed: held.Tokens,
		ErrorMessage: []byte("the worker stopped, or lost its lock, before it could say how the call ended"),
	})
}
