package orchestrate

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/orchestrate/statements"
)

// An activity can be a job. While the job runs, the activity has no lock and refers to the job.
// The transaction that submits the job also detaches the activity. The transaction that ends the
// job also tells the instance. So neither can happen alone.

// Await detaches an activity from its lock until its job has ended.
func (a *ActivityItem) Await(in *db.Tx, seq int64) error {
	t := key.Of(in)
	if a.Event.Blob != "" { // the event is not needed any more
		err := t.Prep("UPDATE orchestration_activities SET event_blob = NULL WHERE instance = ? AND event_id = ? AND lock_token = ?").
			Int(a.Instance).Int(int64(a.EventID)).Int(a.Token).Fenced()
		if err == nil {
			err = t.freePayload(a.Event)
		}
		if err != nil {
			return err
		}
	}
	return t.Prep("UPDATE orchestration_activities SET visible_at = ?, lock_token = NULL, job = ? WHERE instance = ? AND event_id = ? AND lock_token = ?").
		Int(neverVisible).Int(seq).Int(a.Instance).Int(int64(a.EventID)).Int(a.Token).Fenced()
}

// answerCaller tells an instance that the job it called has ended.
func (t *tx) answerCaller(e jobs.Ended) error {
	var a ActivityItem
	var instanceQueue int64
	found, err := t.Prep(statements.AnswerCaller).Int(e.Seq).One(func(r driver.Row) {
		a = ActivityItem{Instance: r.Int(0), EventID: int(r.Int(1)), run: r.Int(2), Number: int(r.Int(3)), StartedAt: driver.FromMillis(r.Int(4)), queue: r.Int(6)}
		instanceQueue = r.Int(5)
	})
	if err != nil || !found {
		return err
	}
	outcome := ActivityOutcome{Outcome: ActivitySucceeded}
	if e.Status != forebay.StatusSucceeded {
		outcome = ActivityOutcome{Outcome: ActivityFailed, ErrorType: e.Failure.Code, Error: string(e.Failure.Message)}
	}
	no, err := t.queue.NewSeq() // others go on meanwhile, where the numbers are used up
	if err != nil {
		return err
	}
	if err = t.activityAttempt(&a, outcome); err != nil || t.forgotten[a.Instance] { // by another operation
		return err
	}
	t.arrivals.Add(a.Instance, t.Now, true)
	err = t.Prep("INSERT INTO orchestration_inbox (instance, no, visible_at, answer, set_at, event_id, job) SELECT ?1, ?2, ?3, 1, ?3, ?4, id FROM jobs WHERE seq = ?5").
		Int(a.Instance).Int(no).Int(t.Now).Int(int64(a.EventID)).Int(e.Seq).Exec()
	if err != nil {
		return err
	}
	return t.wakeInstance(a.Instance, instanceQueue)
}

// jobsOf returns the ids of the jobs that an instance awaits.
func (t *tx) jobsOf(instance int64) (ids []string, err error) {
	err = t.Prep("SELECT j.id FROM orchestration_activities a CROSS JOIN jobs j ON j.seq = a.job WHERE a.instance = ? AND a.job IS NOT NULL").Int(instance).
		Each(func(r driver.Row) error {
			ids = append(ids, r.Text(0))
			return nil
		})
	return ids, err
}

// forgets records that what an execution of an instance awaits is removed. An operation may have
// found the activity that it answers before, and its answer must not come now.
func (t *tx) forgets(instance int64) {
	if t.forgotten == nil {
		t.forgotten = map[int64]bool{}
	}
	t.forgotten[instance] = true
}
