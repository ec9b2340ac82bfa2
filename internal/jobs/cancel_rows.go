package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/events"
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

const sqlCancelled = `SELECT m.lock_token, m.visible_at, m.locked_at, m.subqueue, m.generation, m.attempt, m.number, m.version, m.started_at, m.tenant,
  j.task, j.session_id, j.correlation_id, j.id, j.reply FROM messages m CROSS JOIN jobs j ON j.seq = m.seq WHERE m.seq = ?`

func (t *Tx) Cancel(seq int64) (c Cancellation, err error) {
	var m struct {
		setAside           bool
		subqueue           queue.Subqueue
		task, session      string
		correlation        string
		asker              events.Asker
		tenant, visible    int64
		lockedAt, started  int64
		generation, number int
		attempt            int
		version            int64
	}
	found, err := t.Prep(sqlCancelled).Int(seq).One(func(r driver.Row) {
		c.Token, m.visible, m.lockedAt = r.Int(0), r.Int(1), r.Int(2)
		m.subqueue, m.task = queue.Subqueue(r.Int(3)), r.Text(10)
		m.setAside = m.subqueue.Kind() >= queue.SubqueueDeadLetter
		m.generation, m.attempt, m.number, m.version, m.started = int(r.Int(4)), int(r.Int(5)), int(r.Int(6)), r.Int(7), r.Int(8)
		m.tenant, m.session, m.correlation = r.Int(9), r.Text(11), r.Text(12)
		m.asker = events.Asker{JobID: r.Text(13), Tenant: m.tenant, Reply: r.Blob(14)}
	})
	if err != nil {
		return c, err
	}
	if !found || m.setAside {
		_, err := t.Prep("SELECT CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END FROM outcomes WHERE seq = ?").Int(seq).One(func(r driver.Row) { c.Cancelled = r.Int(0) != 0 })
		return c, err
	}
	if err := t.Prep(queue.SQLDeleteMessage).Int(seq).Exec(); err != nil {
		return c, err
	}
	number, its := 0, jobSession{m.tenant, m.subqueue.Queue(), m.session}
	if c.Token != 0 {
		number = m.number
		t.Notify(wordCancelled, c.Token, 0, 0)
		outcome := forebay.OutcomeCancelled
		if m.visible <= t.Now {
			outcome = forebay.OutcomeLost // its worker had gone before the cancel
		} else if err := t.sessions().hold(its, seq, c.Token, m.visible); err != nil {
			return c, err
		}
		held, err := t.admission.LoseHolds(seq)
		if err != nil {
			return c, err
		}
		call := attempted{seq, m.tenant, m.task, m.subqueue, m.generation, m.number, m.lockedAt}
		if err := t.attempt(call, AttemptRecord{Outcome: outcome, Cost: forebay.Money(held.Cost), assumed: held.Tokens}); err != nil {
			return c, err
		}
		t.admission.ConcurrencyFreed(m.tenant)
		t.w.Unblock("", t.Now)
	}
	if c.Token == 0 {
		t.admission.W.Sweeps = true // others can have the room in a budget that was meant for it
	}
	c.Cancelled = true
	return c, t.end(ending{
		seq: seq, status: forebay.StatusCancelled, generation: m.generation, attempt: m.attempt, number: number,
		version: m.version + 1, started: m.started, held: m.visible == heldUntil, session: its, correlation: m.correlation,
		asker: m.asker,
	}, forebay.EventCancelled)
}

// CancelAll cancels jobs that the operations of the transaction have not named. It comes once
// these are done.
func (t *Tx) CancelAll(seqs []int64) ([]Cancellation, error) {
	t.hasEnded(seqs...)
	all, asks := make([]Cancellation, len(seqs)), make([]driver.Prefetch, 0, 2*len(seqs))
	for _, seq := range seqs {
		asks = append(asks, prefetchCancel(seq)...)
	}
	if err := t.Prefetch(asks); err != nil {
		return nil, err
	}
	err := t.Interleave(len(seqs), func(i int) (err error) {
		all[i], err = t.Cancel(seqs[i])
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
