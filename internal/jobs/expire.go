package jobs

import (
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// expiredAtOnce bounds how many jobs one transaction ends whose deadline has passed, of those that
// are locked and of those that are not.
const expiredAtOnce = 256

// A message that is locked past its deadline is left to its worker, which cuts the call off. Once
// the lock has expired too, the worker is gone.
const (
	overdueColumns = `SELECT seq, subqueue, generation, attempt, number, version, lock_token, locked_at, tenant,
  (SELECT j.task FROM jobs j WHERE j.seq = messages.seq), visible_at, started_at,
  (SELECT j.session_id FROM jobs j WHERE j.seq = messages.seq), (SELECT j.correlation_id FROM jobs j WHERE j.seq = messages.seq),
  (SELECT j.id FROM jobs j WHERE j.seq = messages.seq), (SELECT j.reply FROM jobs j WHERE j.seq = messages.seq) FROM messages `
	sqlFreeOverdue   = overdueColumns + `WHERE deadline <= ?1 AND lock_token IS NULL ORDER BY deadline LIMIT 256`
	sqlLockedOverdue = overdueColumns + `WHERE deadline <= ?1 AND lock_token IS NOT NULL AND visible_at <= ?1 ORDER BY deadline LIMIT 256`
)

// A locked message is due when its lock ends, if that is after its deadline. The two queries are
// separate, so that many locked messages cannot hide a free one.
const (
	sqlNextFreeDeadline   = `SELECT deadline FROM messages WHERE deadline IS NOT NULL AND lock_token IS NULL ORDER BY deadline LIMIT 1`
	sqlNextLockedDeadline = `SELECT min(CASE WHEN deadline > visible_at THEN deadline ELSE visible_at END) FROM messages WHERE deadline IS NOT NULL AND lock_token IS NOT NULL`
	// The same but for messages that are overdue.
	sqlLaterFreeDeadline   = `SELECT deadline FROM messages WHERE deadline > ?1 AND lock_token IS NULL ORDER BY deadline LIMIT 1`
	sqlLaterLockedDeadline = sqlNextLockedDeadline + ` AND (deadline > ?1 OR visible_at > ?1)`
)

// nextDeadline returns when a deadline is due next; 0: there is none.
func nextDeadline(c driver.Conn) (next int64, err error) {
	return c.Earliest(sqlNextFreeDeadline, sqlNextLockedDeadline)
}

// overdueJob is a job whose deadline has passed while nobody was working on it.
type overdueJob struct {
	candidate
	visible, started int64
}

// overdueJobs returns such jobs, and when a deadline is due next; 0: there is none.
func (t *Tx) overdueJobs() (overdue []overdueJob, next int64, err error) {
	due := func(sql string) driver.PipelineQuery {
		found := 0
		return driver.PipelineQuery{SQL: sql, OnRow: func(r driver.Row) {
			if found++; found == expiredAtOnce {
				next = t.Now // there may be more
			}
			overdue = append(overdue, overdueJob{candidate: candidate{
				LockedJob: LockedJob{Lock: queue.Lock{Seq: r.Int(0)}, Subqueue: queue.Subqueue(r.Int(1)), Generation: int(r.Int(2)), Attempt: int(r.Int(3)),
					Number: int(r.Int(4)), Version: r.Int(5), Tenant: r.Int(8), Task: r.Text(9), SessionID: r.Text(12), CorrelationID: r.Text(13),
					ID: r.Text(14), Reply: r.Blob(15)},
				lostToken: !r.IsNull(6), lostAt: r.Int(7),
			}, visible: r.Int(10), started: r.Int(11)})
		}}
	}
	later := func(sql string) driver.PipelineQuery {
		return driver.PipelineQuery{SQL: sql, OnRow: func(r driver.Row) {
			if at := r.Int(0); at > 0 && (next == 0 || at < next) {
				next = at
			}
		}}
	}
	questions := []driver.PipelineQuery{due(sqlFreeOverdue), due(sqlLockedOverdue), later(sqlLaterFreeDeadline), later(sqlLaterLockedDeadline)}
	for i := range questions {
		questions[i].Bind = func(st driver.Statement) driver.Statement { return st.Int(t.Now) }
	}
	err = t.RunPipeline(append(questions, t.admission.AskWaited()...))
	return overdue, next, err
}

// expireDue ends the jobs whose deadline has passed while nobody was working on them.
func (w *participant) expireDue(t *Tx) error {
	if !w.Serving || w.deadline == 0 || w.deadline > t.Now {
		return nil
	}
	overdue, next, err := t.overdueJobs()
	if err != nil {
		return err
	}
	if len(overdue) > 0 {
		w.admission.Sweeps = true // others can have the room in a budget that was meant for them
		t.admission.ReadWaitedSoon()
	}
	err = t.Interleave(len(overdue), func(i int) error {
		m := &overdue[i]
		t.hasEnded(m.Seq)
		if m.lostToken {
			if err := t.recordLost(&m.candidate); err != nil {
				return err
			}
		}
		return t.expire(ending{seq: m.Seq, task: m.Task, generation: m.Generation, attempt: m.Attempt, version: m.Version + 1, started: m.started, correlation: m.CorrelationID,
			session: m.session(), asker: m.asker(), held: m.visible == heldUntil})
	})
	if err == nil {
		err = t.sessions().passTurns()
	}
	if err != nil {
		return err
	}
	w.deadline = next
	return nil
}
