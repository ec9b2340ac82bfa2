// Package statements has the SQL with which transitions change rows of instances. Where processes
// share a database, the statements of many instances are done as one. Each declares the rows that
// it uses (driver.Only), which are those of its instance.
package statements

import (
	"strings"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// ofInstance are the rows of a table that belong to the instance which that parameter names.
func ofInstance(table string, parameter int) driver.Rows {
	return driver.Rows{Table: table, Of: "instance", By: parameter}
}

// onlyItem declares a statement that uses the row of an instance's work item, and nothing else.
func onlyItem(parameter int, sql, form string) string {
	return driver.Only(driver.BatchForm(sql, form), ofInstance("orchestration_items", parameter))
}

// onlyInbox declares one that uses only the inbox of an instance.
func onlyInbox(parameter int, sql, form string) string {
	return driver.Only(driver.BatchForm(sql, form), ofInstance("orchestration_inbox", parameter))
}

// instanceID stands for the unique index of the ids of instances. Who deletes an instance frees
// an id, perhaps for the one that is stored next.
func instanceID(parameter int) driver.Rows {
	return driver.Rows{Table: "orchestrations (tenant, id)", Of: "instance id", By: parameter, Many: true}
}

// onlyInstance declares one that uses only the row of an instance.
func onlyInstance(parameter int, sql, form string) string {
	return driver.Only(driver.BatchForm(sql, form), ofInstance("orchestrations", parameter))
}

// Work items.
var (
	InsertOrchestrationItem = driver.Only(`
INSERT INTO orchestration_items (instance, work_queue, visible_at, status, updated_at, blobs) VALUES (?, ?, ?, ?, ?, ?)`, ofInstance("orchestration_items", 1))
	LockInstance = onlyItem(4, "UPDATE orchestration_items SET visible_at = ?, lock_token = ?, deliveries = ? WHERE instance = ?",
		"UPDATE orchestration_items o SET visible_at = p1, lock_token = p2, deliveries = p3 FROM %s WHERE o.instance = ANY (ARRAY[p4])")
	CompleteOrchestration = onlyItem(8, `
UPDATE orchestration_items SET lock_token = NULL, visible_at = ?, deliveries = 0, number = number + 1, events = ?, run = ?, status = ?, custom = ?,
  started_at = coalesce(started_at, ?), updated_at = ? WHERE instance = ? AND lock_token = ?`, `
UPDATE orchestration_items o SET lock_token = NULL, visible_at = p1, deliveries = 0, number = o.number + 1, events = p2, run = p3, status = p4, custom = p5,
  started_at = coalesce(o.started_at, p6), updated_at = p7 FROM %s WHERE o.instance = ANY (ARRAY[p8]) AND o.lock_token = p9`)
	WakeInstance = onlyItem(2, "UPDATE orchestration_items SET visible_at = ? WHERE instance = ? AND lock_token IS NULL AND visible_at + 0 > ?",
		"UPDATE orchestration_items o SET visible_at = p1 FROM %s WHERE o.instance = ANY (ARRAY[p2]) AND o.lock_token IS NULL AND o.visible_at + 0 > p3")
	MoveInstance = onlyItem(4, `
UPDATE orchestration_items SET work_queue = ?, visible_at = CASE WHEN lock_token IS NULL AND visible_at > ? THEN ? ELSE visible_at END WHERE instance = ?`, `
UPDATE orchestration_items o SET work_queue = p1, visible_at = CASE WHEN o.lock_token IS NULL AND o.visible_at > p2 THEN p3 ELSE o.visible_at END
FROM %s WHERE o.instance = ANY (ARRAY[p4])`)
	HasBlobs = onlyItem(1, "UPDATE orchestration_items SET blobs = 1 WHERE instance = ? AND blobs = 0",
		"UPDATE orchestration_items o SET blobs = 1 FROM %s WHERE o.instance = ANY (ARRAY[p1]) AND o.blobs = 0")
)

// New events.
var (
	InsertEvent = driver.Only("INSERT INTO orchestration_inbox (instance, no, visible_at, answer, set_at, event) VALUES (?, ?, ?, ?, ?, ?)",
		ofInstance("orchestration_inbox", 1))
	InsertLargeEvent = driver.Only("INSERT INTO orchestration_inbox (instance, no, visible_at, answer, set_at, event_blob) VALUES (?, ?, ?, ?, ?, ?)",
		ofInstance("orchestration_inbox", 1))
	ForgetSeen = onlyInbox(1, "DELETE FROM orchestration_inbox WHERE instance = ? AND no <= ? AND visible_at <= ?",
		"DELETE FROM orchestration_inbox i USING %s WHERE i.instance = ANY (ARRAY[p1]) AND i.no <= p2 AND i.visible_at <= p3")
	ForgetAnswers = onlyInbox(1, "DELETE FROM orchestration_inbox WHERE instance = ? AND answer = 1",
		"DELETE FROM orchestration_inbox i USING %s WHERE i.instance = ANY (ARRAY[p1]) AND i.answer = 1")
	ForgetEvent = onlyInbox(1, "DELETE FROM orchestration_inbox WHERE instance = ? AND no = ?",
		"DELETE FROM orchestration_inbox i USING %s WHERE i.instance = ANY (ARRAY[p1]) AND i.no = p2")
	Hasten = onlyInbox(2, "UPDATE orchestration_inbox SET visible_at = ? WHERE instance = ? AND visible_at > ?",
		"UPDATE orchestration_inbox i SET visible_at = p1 FROM %s WHERE i.instance = ANY (ARRAY[p2]) AND i.visible_at > p3")
)

// Histories, and instances.
var (
	InsertHistory = driver.Only("INSERT INTO orchestration_history (instance, item, count, events) VALUES (?, ?, ?, ?)",
		ofInstance("orchestration_history", 1))
	InsertLargeHistory = driver.Only("INSERT INTO orchestration_history (instance, item, count, events, events_blob) VALUES (?, ?, ?, ?, ?)",
		ofInstance("orchestration_history", 1))
	InsertOrchestration = driver.Only(`
INSERT INTO orchestrations (no, tenant, id, execution, name, version, parent, created_at, key_id, input, input_blob) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		ofInstance("orchestrations", 1), instanceID(3))
	SetVersion = onlyInstance(2, "UPDATE orchestrations SET version = ? WHERE no = ? AND version IS NULL",
		"UPDATE orchestrations o SET version = p1 FROM %s WHERE o.no = ANY (ARRAY[p2]) AND o.version IS NULL")
	ResetInstance = onlyInstance(5, "UPDATE orchestrations SET execution = ?, input = ?, input_blob = ?, version = ? WHERE no = ?",
		"UPDATE orchestrations o SET execution = p1, input = p2, input_blob = p3, version = p4 FROM %s WHERE o.no = ANY (ARRAY[p5])")
	ReopenInstance = onlyInstance(1, "UPDATE orchestrations SET status = NULL, completed_at = NULL, output = NULL, output_blob = NULL, failure = NULL WHERE no = ?",
		"UPDATE orchestrations o SET status = NULL, completed_at = NULL, output = NULL, output_blob = NULL, failure = NULL FROM %s WHERE o.no = ANY (ARRAY[p1])")
	EndOrchestration = driver.Only(driver.BatchForm(`
UPDATE orchestrations SET status = ?, completed_at = ?, output = ?, output_blob = ?, failure = ?, custom = ?,
  started_at = coalesce((SELECT started_at FROM orchestration_items WHERE instance = orchestrations.no), ?) WHERE no = ?`, `
UPDATE orchestrations o SET status = p1, completed_at = p2, output = p3, output_blob = p4, failure = p5, custom = p6,
  started_at = coalesce((SELECT t.started_at FROM orchestration_items t WHERE t.instance = o.no), p7) FROM %s WHERE o.no = ANY (ARRAY[p8])`),
		ofInstance("orchestrations", 8), ofInstance("orchestration_items", 8))
	DeleteInstance = driver.Only(driver.BatchForm("DELETE FROM orchestrations WHERE no = ? AND id || '' = ?",
		"DELETE FROM orchestrations o USING %s WHERE o.no = ANY (ARRAY[p1]) AND o.id || '' = p2"), ofInstance("orchestrations", 1), instanceID(2))
)

// Activities and their attempts.
var (
	InsertActivity = driver.Only(`
INSERT INTO orchestration_activities (instance, event_id, run, work_queue, visible_at, lock_token, number, scheduled_at, started_at, policy, event)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, ofInstance("orchestration_activities", 1))
	InsertLargeActivity = driver.Only(`
INSERT INTO orchestration_activities (instance, event_id, run, work_queue, visible_at, lock_token, number, scheduled_at, started_at, policy, event, event_blob)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, ofInstance("orchestration_activities", 1))
	ActivityAttempt = driver.Only(`
INSERT INTO orchestration_attempts (instance, event_id, run, number, work_queue, started_at, finished_at, outcome, error_type, error, retry_delay)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, ofInstance("orchestration_attempts", 1))
	DropActivities = driver.Only(driver.BatchForm(`
INSERT INTO orchestration_attempts (instance, event_id, run, number, work_queue, started_at, finished_at, outcome)
SELECT instance, event_id, run, number, work_queue, started_at, CASE WHEN started_at > ?1 THEN started_at ELSE ?1 END, ?2
FROM orchestration_activities WHERE instance = ?3 AND (lock_token IS NOT NULL OR job IS NOT NULL)`, `
INSERT INTO orchestration_attempts (instance, event_id, run, number, work_queue, started_at, finished_at, outcome)
SELECT a.instance, a.event_id, a.run, a.number, a.work_queue, a.started_at, CASE WHEN a.started_at > p1 THEN a.started_at ELSE p1 END, p2
FROM %s JOIN orchestration_activities a ON a.instance = ANY (ARRAY[p3]) WHERE a.lock_token IS NOT NULL OR a.job IS NOT NULL`),
		ofInstance("orchestration_attempts", 3), ofInstance("orchestration_activities", 3))
	PruneAttempts = driver.Only(`
DELETE FROM orchestration_attempts WHERE instance = ?1 AND finished_at < (
  SELECT finished_at FROM orchestration_attempts WHERE instance = ?1 ORDER BY finished_at DESC LIMIT 1 OFFSET ?2 + 0)`, ofInstance("orchestration_attempts", 1))
)

// ReopenItem stores the work item of an instance that is rewound.
var ReopenItem = driver.Only(`
INSERT INTO orchestration_items (instance, work_queue, visible_at, number, events, run, status, updated_at, blobs)
VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(run), 0) + 1 FROM orchestration_attempts WHERE instance = ?), ?, ?, 1)`,
	ofInstance("orchestration_items", 1), ofInstance("orchestration_attempts", 6))

// Removals delete the rows of an instance from a table.
var Removals = map[string]string{}

func init() {
	for _, table := range []string{"orchestration_items", "orchestration_history", "orchestration_inbox", "orchestration_activities", "orchestration_attempts"} {
		Removals[table] = driver.Only(driver.BatchForm("DELETE FROM "+table+" WHERE instance = ?", "DELETE FROM "+table+" o USING %s WHERE o.instance = ANY (ARRAY[p1])"),
			ofInstance(table, 1))
	}
}

// UnlockInstance unlocks a work item. It is done for many in one round trip, which tells when
// each is ready.
var UnlockInstance = driver.PrefetchForm(`
UPDATE orchestration_items SET visible_at = coalesce((SELECT min(visible_at) FROM orchestration_inbox WHERE instance = ?1), ?2), lock_token = NULL
WHERE instance = ?1 RETURNING visible_at`, `
UPDATE orchestration_items o SET visible_at = coalesce((SELECT min(i.visible_at) FROM orchestration_inbox i WHERE i.instance = o.instance), x.p2), lock_token = NULL
FROM %s WHERE o.instance = ANY (ARRAY[x.p1]) RETURNING x.p1, x.p2, o.visible_at`)

// The blobs of an instance whose rows are about to be removed. One that has ended has no
// activities, and only one that has failed has events.
const (
	sqlHistoryBlobs  = "SELECT events_blob AS key FROM orchestration_history WHERE instance = ?1 AND events_blob IS NOT NULL"
	sqlInboxBlobs    = "SELECT event_blob AS key FROM orchestration_inbox WHERE instance = ?1 AND event_blob IS NOT NULL"
	sqlAnswerBlobs   = sqlInboxBlobs + " AND answer = 1"
	sqlActivityBlobs = "SELECT event_blob AS key FROM orchestration_activities WHERE instance = ?1 AND event_blob IS NOT NULL"
	sqlInputBlob     = "SELECT input_blob AS key FROM orchestrations WHERE no = ?1 AND input_blob IS NOT NULL"
	sqlOutputBlob    = "SELECT output_blob AS key FROM orchestrations WHERE no = ?1 AND output_blob IS NOT NULL"
)

var (
	FreeAll     = freeing(sqlHistoryBlobs, sqlInboxBlobs, sqlActivityBlobs, sqlInputBlob, sqlOutputBlob)
	FreeEnded   = freeing(sqlHistoryBlobs, sqlInboxBlobs, sqlInputBlob, sqlOutputBlob)
	FreeRun     = freeing(sqlHistoryBlobs, sqlAnswerBlobs, sqlActivityBlobs, sqlInputBlob)
	FreeRest    = freeing(sqlInboxBlobs, sqlActivityBlobs)
	FreeAwaited = freeing(sqlAnswerBlobs, sqlActivityBlobs)
	FreeOutcome = freeing(sqlHistoryBlobs, sqlOutputBlob)
)

// freeing is the statement that frees the blobs which these select.
func freeing(selects ...string) string {
	const into, end = "INSERT INTO orchestration_blobs (key, freed_at) SELECT b.key, ", " ON CONFLICT (key) DO UPDATE SET freed_at = excluded.freed_at"
	blobs := strings.Join(selects, " UNION ALL ")
	of := strings.ReplaceAll(blobs, "= ?1", "= ANY (ARRAY[p1])")
	return driver.Only(driver.BatchForm(into+"?2 FROM ("+blobs+") b WHERE 1 = 1"+end, into+"max(p2) FROM %s, LATERAL ("+of+") b GROUP BY b.key"+end),
		driver.Rows{Table: "orchestration_blobs"}, ofInstance("orchestration_history", 1), ofInstance("orchestration_inbox", 1),
		ofInstance("orchestration_activities", 1), ofInstance("orchestrations", 1))
}

// Blobs are recorded, and freed, many at a time.
var (
	StoreBlob = driver.BatchForm("INSERT INTO orchestration_blobs (key) VALUES (?) ON CONFLICT (key) DO NOTHING",
		"INSERT INTO orchestration_blobs (key) SELECT p1 FROM %s ON CONFLICT (key) DO NOTHING")
	FreeBlob = driver.BatchForm("INSERT INTO orchestration_blobs (key, freed_at) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET freed_at = excluded.freed_at",
		"INSERT INTO orchestration_blobs (key, freed_at) SELECT p1, max(p2) FROM %s GROUP BY p1 ON CONFLICT (key) DO UPDATE SET freed_at = excluded.freed_at")
)
