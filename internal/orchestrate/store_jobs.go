package orchestrate

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
)

// An activity can be a job: while that goes its way, through quota, budget, breaker and retries, the activity rests
// without a lock and names it. The transaction that submits the job puts the activity to rest, and the one in which it ends
// tells the instance, so that neither can happen without the other.

// Await puts an activity to rest until its job has ended.
func (a *ActivityItem) Await(in *db.Tx, seq int64) error {
	t := key.Of(in)
	if a.Event.Blob != "" { // which nobody reads any more
		err := t.Prep("UPDATE orchestration_activities SET event_blob = NULL WHERE instance = ? AND event_id = ? AND token = ?").
			Int(a.Instance).Int(int64(a.EventID)).Int(a.Token).Fenced()
		if err == nil {
			err = t.freePayload(a.Event)
		}
		if err != nil {
			return err
		}
	}
	return t.Prep("UPDATE orchestration_activities SET visible = ?, token = NULL, job = ? WHERE instance = ? AND event_id = ? AND token = ?").
		Int(neverVisible).Int(seq).Int(a.Instance).Int(int64(a.EventID)).Int(a.Token).Fenced()
}

// The pool of the instance is the one in which it is now; the one in which it was when it called the job is the column turns.
const sqlAnswerCaller = `
DELETE FROM orchestration_activities WHERE job = ? RETURNING instance, event_id, run, number, started_at,
  (SELECT t.pool FROM orchestration_turns t WHERE t.instance = orchestration_activities.instance), pool`

// answerCaller tells the instance that called a job that it has ended.
func (t *tx) answerCaller(e jobs.Ended) error {
	var a ActivityItem
	var orchestrations int64
	found, err := t.Prep(sqlAnswerCaller).Int(e.Seq).
		One(func(r driver.Row) {
			a = ActivityItem{Instance: r.Int(0), EventID: int(r.Int(1)), run: r.Int(2), Number: int(r.Int(3)), StartedAt: driver.FromMillis(r.Int(4)), queue: r.Int(6)}
			orchestrations = r.Int(5)
		})
	if err != nil || !found {
		return err
	}
	outcome := ActivityOutcome{Outcome: ActivitySucceeded}
	if e.Status != forebay.StatusSucceeded {
		outcome = ActivityOutcome{Outcome: ActivityFailed, ErrorType: e.Failure.Code, Error: string(e.Failure.Message)}
	}
	if err := t.activityAttempt(&a, outcome); err != nil {
		return err
	}
	no, err := t.queue.NewSeq()
	if err != nil {
		return err
	}
	err = t.Prep("INSERT INTO orchestration_inbox (instance, no, visible, answer, set_at, event_id, job) SELECT ?1, ?2, ?3, 1, ?3, ?4, id FROM jobs WHERE seq = ?5").
		Int(a.Instance).Int(no).Int(t.Now).Int(int64(a.EventID)).Int(e.Seq).Exec()
	if err != nil {
		return err
	}
	return t.wakeInstance(a.Instance, orchestrations)
}

// jobsOf returns the ids of the jobs that an instance waits for.
func (t *tx) jobsOf(instance int64) (ids []string, err error) {
	err = t.Prep("SELECT j.id FROM orchestration_activities a CROSS JOIN jobs j ON j.seq = a.job WHERE a.instance = ? AND a.job IS NOT NULL").Int(instance).
		Each(func(r driver.Row) error {
			ids = append(ids, r.Text(0))
			return nil
		})
	return ids, err
}
