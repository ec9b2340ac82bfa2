package jobs

import (
	"bytes"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
)

// A job that is submitted while a claim waits for its subqueue is handed off, if nothing else is
// ready there. Its message is stored locked. That saves storing it as ready, finding it, reading
// the job back and changing the row, a third of what a job costs.

// handsOff reports whether a ready new job may be kept back for a claim that waits. Submissions
// come last in a transaction, so nothing else in it needs the message.
func (t claimTx) handsOff(subqueue queue.Subqueue, j *NewJob) bool {
	waiting := t.w.Waiters[subqueue]
	if _, blocked := t.w.blocked[subqueue]; blocked && j.Class != 0 {
		return false
	}
	return t.newJobs != nil && !t.Queue.Paused && len(waiting) > 0 && !t.w.queue.Paused[subqueue.Queue()] && t.w.restsUntil(j.Tenant) <= t.Now
}

func newCandidate(j *NewJob, seq int64, subqueue queue.Subqueue, now int64) candidate {
	m := candidate{
		LockedJob: LockedJob{
			Lock: queue.Lock{Seq: seq}, Subqueue: subqueue, Generation: 1, Version: 1,
			ID: j.ID, Tenant: j.Tenant, Task: j.Task, MaxAttempts: j.MaxAttempts, Deadline: j.Deadline,
			CreatedAt: driver.FromMillis(now), ScheduledAt: driver.FromMillis(now), CorrelationID: j.CorrelationID, SessionID: j.SessionID, KeyID: j.KeyID, Traceparent: j.Traceparent,
			// The caller may use these again once it has its answer.
			Metadata: bytes.Clone(j.Metadata), Input: bytes.Clone(j.Input), InputBlob: j.InputBlob, InputSize: j.InputSize, Reply: j.Reply,
		},
		deadline: driver.Millis(j.Deadline), flow: flows.ID(j.Tenant, j.Class, j.Priority), isNew: true, maxOutput: j.MaxOutputTokens, estimate: j.Estimate,
	}
	if j.Deadline != nil { // to the millisecond, as it is stored
		at := driver.FromMillis(m.deadline)
		m.Deadline = &at
	}
	if j.MaxCost != nil {
		cost := *j.MaxCost
		m.MaxCost = &cost
	}
	if j.MaxTotalTokens != nil {
		tokens := *j.MaxTotalTokens
		m.MaxTotalTokens = &tokens
	}
	return m
}

// leave is for what a scan found and no claim took.
func (t claimTx) leave(l *scan) error {
	for _, jobs := range [][]candidate{l.found, l.later, l.held} {
		if err := t.storeNew(l.subqueue, jobs); err != nil {
			return err
		}
	}
	return t.withdraw(l.found)
}

// storeNew stores the messages of new jobs that were not handed off. The messages of the others
// are stored already.
func (t claimTx) storeNew(subqueue queue.Subqueue, jobs []candidate) error {
	for i := range jobs {
		m := &jobs[i]
		if !m.isNew {
			continue
		}
		err := t.Prep(sqlInsertMessage).Int(m.Seq).Int(int64(subqueue)).Int(m.flow).Int(m.ScheduledAt.UnixMilli()).
			Int(m.InputSize).Int(m.Tenant).IntOrNull(m.deadline).Null(driver.KindText).Exec()
		if err != nil {
			return err
		}
		t.Due(subqueue, m.flow, m.ScheduledAt.UnixMilli())
	}
	delete(t.newJobs, subqueue)
	return nil
}

const sqlInsertLocked = `
INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant, deadline, lock_token, locked_at, deliveries, number, version, started_at, announced,
  deployment, reserved, process)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 1, 2, ?, 1, ?, ?, ?)`

// storeLocked stores the message of a new job under its first lock.
func (t claimTx) storeLocked(m *candidate, until int64) error {
	// No scan has seen the lock, so nothing else would note when it ends.
	t.w.ScanAt(m.Subqueue, until)
	st := t.Prep(sqlInsertLocked).Int(m.Seq).Int(int64(m.Subqueue)).Int(m.flow).Int(until).Int(m.InputSize).Int(m.Tenant).IntOrNull(m.deadline).
		Int(m.Token).Int(t.Now).Int(t.Now)
	return t.bindCall(st, m).Exec()
}
