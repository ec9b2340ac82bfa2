package store

import (
	"context"

	"github.com/forebayhq/forebay"
)

// Cancellation says what a cancel did.
type Cancellation struct {
	Cancelled bool  // the job is cancelled, now or already before
	Token     int64 // of the lock that it voided; 0: none
}

// Cancel ends the job as cancelled if it is not terminal yet. The lock of a worker is void from then
// on; its attempt is recorded, to which Amend can add what the worker knows.
func (s *JobStore) Cancel(ctx context.Context, seq int64) (Cancellation, error) {
	return transactIn(ctx, jobsKey, s.writer, op{stage: stageChange}, func(t *jobsTx) (Cancellation, error) { return t.cancel(seq) })
}

const sqlCancelled = `SELECT token, visible, locked_at, lane, generation, attempt, number, version, started_at, tenant,
  (SELECT j.task FROM jobs j WHERE j.seq = messages.seq) FROM messages WHERE seq = ?`

func (t *jobsTx) cancel(seq int64) (c Cancellation, err error) {
	var m struct {
		setAside           bool
		subqueue           Subqueue
		task               string
		tenant, visible    int64
		lockedAt, started  int64
		generation, number int
		attempt            int
		version            int64
	}
	found, err := t.prep(sqlCancelled).int(seq).one(func(r row) {
		c.Token, m.visible, m.lockedAt = r.int(0), r.int(1), r.int(2)
		m.subqueue, m.task = Subqueue(r.int(3)), r.text(10)
		m.setAside = m.subqueue.Kind() >= SubqueueDeadLetter
		m.generation, m.attempt, m.number, m.version, m.started = int(r.int(4)), int(r.int(5)), int(r.int(6)), r.int(7), r.int(8)
		m.tenant = r.int(9)
	})
	if err != nil {
		return c, err
	}
	if !found || m.setAside {
		_, err := t.prep("SELECT CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END FROM outcomes WHERE seq = ?").int(seq).one(func(r row) { c.Cancelled = r.int(0) != 0 })
		return c, err
	}
	if err := t.prep("DELETE FROM messages WHERE seq = ?").int(seq).exec(); err != nil {
		return c, err
	}
	number := 0
	if c.Token != 0 {
		number = m.number
		t.notify(wordCancelled, c.Token, 0, 0)
		outcome := forebay.OutcomeCancelled
		if m.visible <= t.now {
			outcome = forebay.OutcomeLost // its worker had gone before
		} else if err := t.holdSession(seq, c.Token, m.visible); err != nil {
			return c, err
		}
		held, err := t.admission.loseHolds(seq)
		if err != nil {
			return c, err
		}
		call := attempted{seq, m.tenant, m.task, m.subqueue, m.generation, m.number, m.lockedAt}
		if err := t.attempt(call, AttemptRecord{Outcome: outcome, Cost: forebay.Money(held.Cost), assumed: held.Tokens}); err != nil {
			return c, err
		}
		t.admission.slotFreed(m.tenant)
		t.w.unblock("", t.now)
	}
	if c.Token == 0 {
		t.admission.w.sweeps = true // the room in a budget that it was made ready for is others' now
	}
	c.Cancelled = true
	return c, t.end(ending{
		seq: seq, status: forebay.StatusCancelled, generation: m.generation, attempt: m.attempt, number: number,
		version: m.version + 1, started: m.started, held: m.visible == heldUntil,
	}, forebay.EventCancelled)
}

// Amend is for a worker whose call is over and whose lock was lost: it adds to an attempt that ended
// without it, cancelled or lost, what only it knew, the deployment and what the call had used. It changes
// no other attempt.
func (s *JobStore) Amend(ctx context.Context, d *Delivery, a AttemptRecord) error {
	_, err := transactIn(ctx, jobsKey, s.writer, op{stage: stageSettle}, func(t *jobsTx) (struct{}, error) {
		if d.SessionID != "" {
			if err := t.callOver(jobSession{d.Tenant, d.Subqueue.Queue(), d.SessionID}, d.Token); err != nil {
				return struct{}{}, err
			}
		}
		if d.Held {
			if _, err := t.endHoldsOf(d, &a); err != nil {
				return struct{}{}, err
			}
		} else if a.Deployment == "" {
			return struct{}{}, nil
		}
		st := t.prep("UPDATE attempts SET deployment = ?" + sqlLostAttempt).text(bounded(a.Deployment))
		if _, known := a.used(); known { // else it goes on to count as what was held
			st = t.prep("UPDATE attempts SET deployment = ?, input_tokens = ?, output_tokens = ?, cost = ?, assumed_tokens = NULL" + sqlLostAttempt).
				text(bounded(a.Deployment)).int(plausible(a.Usage.InputTokens, maxTokens)).int(plausible(a.Usage.OutputTokens, maxTokens)).
				int(plausible(int64(a.Cost), maxCost))
		}
		ended := AttemptRecord{}
		var finishedAt int64
		found, err := st.int(d.Seq).int(int64(d.Generation)).int(int64(d.Number)).one(func(r row) {
			ended.Outcome, finishedAt = forebay.Outcome(r.text(0)), r.int(1)
			ended.ErrorClass, ended.ErrorCode = forebay.ErrorClass(r.text(2)), r.text(3)
		})
		if found { // reports count it by the deployment that is known now
			t.countHour(d.attempted(), finishedAt, ended, -1)
			ended.Deployment = a.Deployment
			t.countHour(d.attempted(), finishedAt, ended, 1)
		}
		return struct{}{}, err
	})
	return err
}

const sqlLostAttempt = " WHERE seq = ? AND generation = ? AND number = ? AND outcome IN ('cancelled', 'lost') AND deployment = ''" +
	" RETURNING outcome, finished_at, coalesce(error_class, ''), coalesce(error_code, '')"
