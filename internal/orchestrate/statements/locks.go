package statements

import "github.com/forebayhq/forebay/internal/db/driver"

// Locks that are renewed, many at a time.
const (
	fromOrchestrationLocks = "unnest(CAST(? AS bigint[]), CAST(? AS bigint[])) AS x(instance, lock_token) WHERE o.instance = ANY (ARRAY[x.instance]) AND o.lock_token = x.lock_token"
	fromActivityLocks      = "unnest(CAST(? AS bigint[]), CAST(? AS bigint[]), CAST(? AS bigint[])) AS x(instance, event_id, lock_token) " +
		"WHERE o.instance = ANY (ARRAY[x.instance]) AND o.event_id = x.event_id AND o.lock_token = x.lock_token"
	RenewActivities = "UPDATE orchestration_activities o SET visible_at = ? FROM " + fromActivityLocks + " RETURNING o.lock_token"
	RenewItems      = "UPDATE orchestration_items o SET visible_at = ? FROM " + fromOrchestrationLocks + " RETURNING o.lock_token"
)

// EndActivity removes an activity if its lock still holds. Where it is prefetched, it returns
// the queue of its instance.
var EndActivity = driver.PrefetchForm("DELETE FROM orchestration_activities WHERE instance = ? AND event_id = ? AND lock_token = ?",
	`DELETE FROM orchestration_activities o USING %s WHERE o.instance = ANY (ARRAY[x.p1]) AND o.event_id = x.p2 AND o.lock_token = x.p3
RETURNING x.p1, x.p2, x.p3, (SELECT t.work_queue FROM orchestration_items t WHERE t.instance = o.instance)`)

// AnswerCaller ends the activity that waits for a job. It returns the queue of the instance as it
// is now, and last that of the activity.
const AnswerCaller = `
DELETE FROM orchestration_activities WHERE job = ? RETURNING instance, event_id, run, number, started_at,
  (SELECT t.work_queue FROM orchestration_items t WHERE t.instance = orchestration_activities.instance), work_queue`
