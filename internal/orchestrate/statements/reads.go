package statements

import "github.com/forebayhq/forebay/internal/db/driver"

// What a completion reads of a work item that it holds. If the instance goes on, that is also when
// the first event is due that it has not seen. One that continues as new loses the answers to what
// it has asked for.
const (
	sqlHeld      = "SELECT work_queue, blobs FROM orchestration_items WHERE instance = ? AND lock_token = ?"
	sqlHeldGoing = sqlHeldUntil + ")" + sqlHeldItem
	sqlHeldAnew  = sqlHeldUntil + " AND i.answer = 0)" + sqlHeldItem

	sqlHeldUntil = `SELECT t.work_queue, t.blobs,
  (SELECT min(i.visible_at) FROM orchestration_inbox i WHERE i.instance = t.instance AND (i.no > ?3 OR i.visible_at > ?4)`
	sqlHeldItem = " FROM orchestration_items t WHERE t.instance = ?1 AND t.lock_token = ?2"
)

// ItemRow names the row of a work item.
func ItemRow(instance int64) driver.RowName {
	return driver.RowName{Of: "orchestration_items", No: instance}
}

// Held is what a completion reads of a work item that the lock token holds. last is the number of
// the last event that the instance has seen, and at when it was claimed.
func Held(instance, token, last, at int64, ends, anew bool) driver.Prefetch {
	held := func(sql string) driver.Prefetch {
		return driver.NewPrefetch(sql, ItemRow(instance)).Int(instance).Int(token)
	}
	switch {
	case ends:
		return held(sqlHeld)
	case anew:
		return held(sqlHeldAnew).Int(last).Int(at)
	}
	return held(sqlHeldGoing).Int(last).Int(at)
}

// Items that are ready, and what has arrived for one.
const (
	Ready = `
SELECT t.instance, o.tenant, o.id, o.name, o.execution, t.number, t.events, t.deliveries, t.custom, t.run, coalesce(t.lock_token, 0), coalesce(o.key_id, ''),
  coalesce((SELECT sum(length(i.event)) FROM (SELECT event FROM orchestration_inbox WHERE instance = t.instance AND visible_at <= ? ORDER BY no LIMIT ? + 0) i), 0), t.visible_at
FROM (SELECT instance, number, events, deliveries, custom, run, lock_token, visible_at FROM orchestration_items
    WHERE work_queue = ? AND visible_at >= ? AND visible_at <= ? ORDER BY visible_at LIMIT ? + 0) t
  CROSS JOIN orchestrations o ON o.no = t.instance`
	Arrived = `
SELECT i.no, i.event, i.event_id, i.job, coalesce((SELECT o.result_size FROM jobs j JOIN outcomes o ON o.seq = j.seq WHERE j.id = i.job), 0), coalesce(i.event_blob, '')
FROM orchestration_inbox i WHERE i.instance = ? AND i.visible_at <= ? ORDER BY i.no LIMIT ? + 0`
)

// What an instance has begun with, and its attempts.
const (
	Start = `
SELECT 1, events, coalesce(events_blob, '') FROM (SELECT events, events_blob FROM orchestration_history WHERE instance = ?1 ORDER BY item LIMIT 1) h
UNION ALL SELECT 0, event, coalesce(event_blob, '') FROM (SELECT event, event_blob FROM orchestration_inbox WHERE instance = ?1 ORDER BY no LIMIT 1) i`
	Attempts = `
SELECT a.event_id, a.number, a.started_at, a.finished_at, a.outcome, a.error_type, a.error, a.retry_delay, a.run, coalesce(p.name, '')
FROM orchestration_attempts a LEFT JOIN orchestration_queues p ON p.no = a.work_queue WHERE a.instance = ? ORDER BY a.run, a.event_id, a.number`
)

// What rows of an instance take in memory: a history twice, as it is stored and decoded.
const (
	HistorySize  = "SELECT coalesce(sum(2 * length(events)), 0) FROM orchestration_history WHERE instance = ?"
	AttemptsSize = "SELECT coalesce(sum(256 + coalesce(length(error), 0)), 0) FROM orchestration_attempts WHERE instance = ?"
)

// ReadyActivities are activities of a queue that are ready.
const ReadyActivities = `
SELECT a.instance, o.tenant, o.id, a.event_id, a.event, a.policy, a.number, a.failures, a.lost, a.scheduled_at, coalesce(a.lock_token, 0), coalesce(a.started_at, 0), a.run, coalesce(o.key_id, ''), coalesce(a.event_blob, ''), a.visible_at
FROM (SELECT * FROM orchestration_activities WHERE work_queue = ? AND visible_at >= ? AND visible_at <= ? ORDER BY visible_at LIMIT ? + 0) a
  CROSS JOIN orchestrations o ON o.no = a.instance`

// LockActivity locks an activity that is claimed.
const LockActivity = `
UPDATE orchestration_activities SET visible_at = ?, lock_token = ?, number = ?, lost = ?, started_at = ? WHERE instance = ? AND event_id = ?`

// InstanceOf is what most transitions need to know about an instance.
const InstanceOf = `SELECT o.no, o.execution, o.name, coalesce(o.status, ''), coalesce(t.work_queue, 0),
  CASE WHEN t.status = 'Pending' AND t.lock_token IS NULL THEN t.visible_at ELSE 0 END,
  coalesce((SELECT p.name FROM orchestration_queues p WHERE p.no = t.work_queue AND p.kind + 0 = ?), ''), coalesce(o.parent, 0)
FROM orchestrations o LEFT JOIN orchestration_items t ON t.instance = o.no WHERE o.tenant = ? AND o.id = ?`

// Instances are instances with their work items, and the ids of their parents.
const Instances = `
SELECT owned.no, owned.id, owned.execution, owned.name, coalesce(owned.version, ''), coalesce(p.id, ''), coalesce(t.status, owned.status), owned.input, owned.output,
  CASE WHEN t.instance IS NULL THEN owned.custom ELSE t.custom END, owned.failure, owned.created_at, coalesce(t.started_at, owned.started_at), coalesce(t.updated_at, owned.completed_at), owned.completed_at, coalesce(owned.input_blob, ''), coalesce(owned.output_blob, '')
FROM orchestrations owned LEFT JOIN orchestration_items t ON t.instance = owned.no LEFT JOIN orchestrations p ON p.no = owned.parent `

// List is for a page of instances.
const List = Instances + `
WHERE owned.tenant = ? AND owned.no < ? AND owned.created_at >= ? AND owned.created_at <= ?
  AND (? = '' OR owned.name = ?) AND (? = '' OR substr(owned.id, 1, CAST(? AS INTEGER)) = ?)`

// OldestReady is for the oldest ready work item of each of some queues.
const OldestReady = `
SELECT p.no, p.name, (SELECT t.visible_at FROM orchestration_items t WHERE t.work_queue = p.no AND t.visible_at <= ? ORDER BY t.visible_at LIMIT 1)
FROM orchestration_queues p WHERE p.kind = ? AND p.no > ? ORDER BY p.no LIMIT ? + 0`
