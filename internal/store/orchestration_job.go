package store

import (
	"github.com/forebayhq/forebay"
)

// An activity can be a job: while that goes its way, through quota, budget, breaker and retries, the activity rests
// without a lock and names it. The transaction that submits the job puts the activity to rest, and the one in which it ends
// tells the instance, so that neither can happen without the other.

// CallerCorrelation is the correlation id of the jobs that an instance calls.
func CallerCorrelation(instanceID string) string {
	return callerCorrelation + instanceID[:min(len(instanceID), forebay.MaxCorrelationBytes-len(callerCorrelation))]
}

// await puts an activity to rest until its job has ended.
func (a *Activity) await(in *tx, seq int64) error {
	t := orchestrateKey.of(in)
	if a.Event.Blob != "" { // which nobody reads any more
		err := t.prep("UPDATE orchestration_activities SET event_blob = NULL WHERE instance = ? AND event_id = ? AND token = ?").
			int(a.Instance).int(int64(a.EventID)).int(a.Token).fenced()
		if err == nil {
			err = t.freePayload(a.Event)
		}
		if err != nil {
			return err
		}
	}
	return t.prep("UPDATE orchestration_activities SET visible = ?, token = NULL, job = ? WHERE instance = ? AND event_id = ? AND token = ?").
		int(asleep).int(seq).int(a.Instance).int(int64(a.EventID)).int(a.Token).fenced()
}

// The pool of the instance is the one in which it is now; the one in which it was when it called the job is the column turns.
const sqlAnswerCaller = `
DELETE FROM orchestration_activities WHERE job = ? RETURNING instance, event_id, run, number, started_at,
  (SELECT t.pool FROM orchestration_turns t WHERE t.instance = orchestration_activities.instance), pool`

// answerCaller tells the instance that called a job that it has ended.
func (t *orchestrateTx) answerCaller(e Ended) error {
	var a Activity
	var turns int64
	found, err := t.prep(sqlAnswerCaller).int(e.Seq).
		one(func(r row) {
			a = Activity{Instance: r.int(0), EventID: int(r.int(1)), run: r.int(2), Number: int(r.int(3)), StartedAt: fromMillis(r.int(4)), pool: r.int(6)}
			turns = r.int(5)
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
	no, err := t.queue.newSeq()
	if err != nil {
		return err
	}
	err = t.prep("INSERT INTO orchestration_inbox (instance, no, visible, answer, set_at, event_id, job) SELECT ?1, ?2, ?3, 1, ?3, ?4, id FROM jobs WHERE seq = ?5").
		int(a.Instance).int(no).int(t.now).int(int64(a.EventID)).int(e.Seq).exec()
	if err != nil {
		return err
	}
	return t.wakeInstance(a.Instance, turns)
}

// jobsOf returns the ids of the jobs that an instance waits for.
func (t *orchestrateTx) jobsOf(instance int64) (ids []string, err error) {
	err = t.prep("SELECT j.id FROM orchestration_activities a CROSS JOIN jobs j ON j.seq = a.job WHERE a.instance = ? AND a.job IS NOT NULL").int(instance).
		each(func(r row) error {
			ids = append(ids, r.text(0))
			return nil
		})
	return ids, err
}
