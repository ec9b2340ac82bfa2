package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/jobs/record"
	"github.com/forebayhq/forebay/internal/queue"
)

// Cancellation says what a cancel did.
type Cancellation struct {
	Cancelled bool  // the job is cancelled, now or already before
	Token     int64 // of the lock that it voided; 0: none
}

// Cancel ends the job as cancelled if it is not terminal yet. A worker's lock is void from then
// on. Its attempt is recorded, and Amend can add what the worker knows.
func (s *Store) Cancel(ctx context.Context, seq int64) (Cancellation, error) {
	o := db.Op{Stage: db.StageChange, Local: true, Interleaves: true, Asks: func() []driver.Prefetch { return prefetchCancel(seq) }}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (Cancellation, error) { return t.Cancel(seq) })
}

// prefetchCancel is what Cancel asks.
func prefetchCancel(seq int64) []driver.Prefetch {
	return []driver.Prefetch{driver.NewPrefetch(sqlCancelled, queue.MessageRow(seq)).Int(seq), admission.PrefetchLiveHolds(seq, queue.MessageRow(seq))}
}

const sqlCancelled = "SELECT " + record.MessageColumns + " FROM messages m CROSS JOIN jobs j ON j.seq = m.seq WHERE m.seq = ?"

func (t *Tx) Cancel(seq int64) (c Cancellation, err error) {
	var m record.Message
	if _, err = t.Prep(sqlCancelled).Int(seq).One(func(r driver.Row) { m = record.ReadMessage(r, 0) }); err != nil {
		return c, err
	}
	if m.Seq == 0 || m.IsSetAside() {
		_, err := t.Prep("SELECT CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END FROM outcomes WHERE seq = ?").Int(seq).One(func(r driver.Row) { c.Cancelled = r.Int(0) != 0 })
		return c, err
	}
	return t.cancel(m)
}

// cancel ends a job whose message waits or is locked.
func (t *Tx) cancel(m record.Message) (Cancellation, error) {
	c := Cancellation{true, m.Token}
	if err := t.Prep(queue.SQLDeleteMessage).Int(m.Seq).Exec(); err != nil {
		return c, err
	}
	number, its := 0, jobSession{m.Tenant, m.Subqueue.Queue(), m.SessionID}
	if m.Token != 0 {
		number = m.Number
		t.Notify(wordCancelled, m.Token, 0, 0)
		outcome := forebay.OutcomeCancelled
		if m.Visible <= t.Now {
			outcome = forebay.OutcomeLost // its worker had gone before the cancel
		} else if err := t.sessions().hold(its, m.Seq, m.Token, m.Visible); err != nil {
			return c, err
		}
		var held admission.Amount
		var err error
		if m.Held > 0 {
			held, err = t.admission.LoseHolds(m.Seq)
		}
		if err != nil {
			return c, err
		}
		call := attempted{m.Seq, m.Tenant, m.Task, m.Subqueue, m.Generation, m.Number, m.LockedAt}
		if err := t.attempt(call, AttemptRecord{Outcome: outcome, Cost: forebay.Money(held.Cost), assumed: held.Tokens}); err != nil {
			return c, err
		}
		t.admission.ConcurrencyFreed(m.Tenant)
		t.w.Unblock("", t.Now)
	} else {
		t.admission.W.Sweeps = true // others can have the room in a budget that was meant for it
	}
	return c, t.end(ending{
		seq: m.Seq, task: m.Task, status: forebay.StatusCancelled, generation: m.Generation, attempt: m.Attempt, number: number,
		version: m.Version + 1, started: m.Started, held: m.Visible == heldUntil, session: its, correlation: m.Correlation,
		asker: events.Asker{JobID: m.ID, Tenant: m.Tenant, Reply: m.Reply},
	}, forebay.EventCancelled)
}

// CancelAll cancels jobs that the operations of the transaction have not named. It comes once
// these are done.
func (t *Tx) CancelAll(seqs []int64) ([]Cancellation, error) {
	asks := make([]driver.Prefetch, 0, 2*len(seqs))
	for _, seq := range seqs {
		asks = append(asks, prefetchCancel(seq)...)
	}
	if err := t.Prefetch(asks); err != nil {
		return nil, err
	}
	return t.cancelEach(seqs, func(i int) (Cancellation, error) { return t.Cancel(seqs[i]) })
}

// CancelMessages is CancelAll for jobs whose messages were read and have not changed since. Those
// that are set aside stay as they are.
func (t *Tx) CancelMessages(list []record.Message) ([]Cancellation, error) {
	seqs := make([]int64, len(list))
	for i := range list {
		seqs[i] = list[i].Seq
	}
	return t.cancelEach(seqs, func(i int) (Cancellation, error) {
		if list[i].IsSetAside() {
			return Cancellation{}, nil
		}
		return t.cancel(list[i])
	})
}

func (t *Tx) cancelEach(seqs []int64, cancel func(i int) (Cancellation, error)) ([]Cancellation, error) {
	t.hasEnded(seqs...)
	all := make([]Cancellation, len(seqs))
	err := t.Interleave(len(seqs), func(i int) (err error) {
		all[i], err = cancel(i)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, seq := range seqs {
		t.DropPrefetched(queue.MessageRow(seq))
	}
	return all, t.admission.ResumeWaiting()
}

// Amend is for a worker whose call is over and whose lock was lost. Its attempt ended without it,
// cancelled or lost. Amend adds what only the worker knew: the deployment and what the call had
// used. It changes no other attempt.
func (s *Store) Amend(ctx context.Context, d *LockedJob, a AttemptRecord) error {
	o := db.Op{Stage: db.StageSettle, Local: true, Interleaves: true, Touches: []driver.RowName{queue.MessageRow(d.Seq)}}
	_, err := db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (struct{}, error) {
		if d.SessionID != "" {
			if err := t.sessions().callOver(d.session(), d.Token); err != nil {
				return struct{}{}, err
			}
		}
		if d.Held {
			if _, err := t.budgets().endHolds(d, &a); err != nil {
				return struct{}{}, err
			}
		} else if a.Deployment == "" {
			return struct{}{}, nil
		}
		before := AttemptRecord{}
		var finishedAt int64
		found, err := t.Prep(sqlLostAttempt).Int(d.Seq).Int(int64(d.Generation)).Int(int64(d.Number)).One(func(r driver.Row) {
			before = AttemptRecord{Outcome: forebay.Outcome(r.Text(0)), ErrorClass: forebay.ErrorClass(r.Text(2)), ErrorCode: r.Text(3),
				Usage: forebay.TokenUsage{InputTokens: r.Int(4), OutputTokens: r.Int(5)}, Cost: forebay.Money(r.Int(6)), assumed: r.Int(7)}
			finishedAt = r.Int(1)
		})
		if err != nil || !found {
			return struct{}{}, err
		}
		after := before
		after.Deployment = a.Deployment
		if _, known := a.used(); known { // else what was held goes on to count
			after.Usage, after.Cost, after.assumed = a.Usage, a.Cost, 0
		}
		t.countHour(d.attempted(), finishedAt, before, -1) // reports count it under the deployment that is known now
		t.countHour(d.attempted(), finishedAt, after, 1)
		return struct{}{}, t.Prep(sqlAmend).Text(Bounded(after.Deployment)).
			Int(admission.Plausible(after.Usage.InputTokens, admission.MaxTokens)).Int(admission.Plausible(after.Usage.OutputTokens, admission.MaxTokens)).
			Int(admission.Plausible(int64(after.Cost), admission.MaxCost)).IntOrNull(after.assumed).
			Int(d.Seq).Int(int64(d.Generation)).Int(int64(d.Number)).Exec()
	})
	return err
}

const (
	sqlLostAttempt = "SELECT outcome, finished_at, coalesce(error_class, ''), coalesce(error_code, ''), input_tokens, output_tokens, cost, coalesce(assumed_tokens, 0)" +
		" FROM attempts WHERE seq = ? AND generation = ? AND number = ? AND outcome IN ('cancelled', 'lost') AND deployment = ''"
	sqlAmend = "UPDATE attempts SET deployment = ?, input_tokens = ?, output_tokens = ?, cost = ?, assumed_tokens = ? WHERE seq = ? AND generation = ? AND number = ?"
)
