// Package clockmend repairs the times of orchestrations after the database's clock was ahead.
package clockmend

import (
	"context"

	"github.com/forebayhq/forebay/internal/db"
)

// Numbers in these statements: 300000 is forebay.MaxLockDuration. 4611686018427387904 stands for
// the end of time. Records more than a day, 86400000, ahead are repaired. ?1 is the time. ?2 and
// ?3 bound the row numbers: above ?2, up to ?3.
const (
	sqlInstanceMadeAhead = "SELECT 1 FROM (SELECT created_at AS at FROM orchestrations ORDER BY no DESC LIMIT 1) o WHERE o.at > ?1"

	// A turn under way has seen the events up to its time, which was ahead. A timer that is moved
	// to before that time would count as seen. So the turn loses its lock, and is done again.
	sqlTurnsAhead = `
UPDATE orchestration_items SET lock_token = NULL, visible_at = ?1
WHERE instance > ?2 AND instance <= ?3 AND lock_token IS NOT NULL
  AND EXISTS (SELECT 1 FROM orchestration_inbox i WHERE i.instance = orchestration_items.instance AND i.set_at > ?1 AND i.visible_at > ?1 AND i.answer = 1)`
	// A timer keeps its duration. An event that the execution did not ask for may be a scheduled
	// start, which stays.
	sqlInboxAhead = `
UPDATE orchestration_inbox SET visible_at = CASE WHEN visible_at <= set_at THEN ?1 ELSE ?1 + visible_at - set_at END, set_at = ?1
WHERE instance > ?2 AND instance <= ?3 AND set_at > ?1 AND visible_at > ?1 AND (answer = 1 OR visible_at <= set_at)`
	sqlOrchestrationItemsAhead = `
UPDATE orchestration_items SET visible_at = CASE WHEN lock_token IS NOT NULL THEN ?1 + 300000
  ELSE coalesce((SELECT min(i.visible_at) FROM orchestration_inbox i WHERE i.instance = orchestration_items.instance), 4611686018427387904) END
WHERE instance > ?2 AND instance <= ?3 AND visible_at > ?1 + CASE WHEN lock_token IS NULL THEN 0 ELSE 300000 END AND visible_at < 4611686018427387904`

	latestActivity = `FROM orchestration_attempts t WHERE t.instance = orchestration_activities.instance
    AND t.event_id = orchestration_activities.event_id AND t.run = orchestration_activities.run AND t.number = orchestration_activities.number`
	sqlActivityRetryAhead = `
UPDATE orchestration_activities SET visible_at = ?1 + (SELECT t.retry_delay ` + latestActivity + `)
WHERE instance > ?2 AND instance <= ?3 AND visible_at > ?1 AND visible_at < 4611686018427387904 AND lock_token IS NULL
  AND EXISTS (SELECT 1 ` + latestActivity + ` AND t.finished_at > ?1 AND orchestration_activities.visible_at > ?1 + t.retry_delay)`
	sqlActivitiesAhead = `
UPDATE orchestration_activities SET visible_at = CASE WHEN lock_token IS NULL THEN ?1 ELSE ?1 + 300000 END
WHERE instance > ?2 AND instance <= ?3 AND visible_at > ?1 + CASE WHEN lock_token IS NULL THEN 0 ELSE 300000 END AND visible_at < 4611686018427387904
  AND (lock_token IS NOT NULL OR NOT EXISTS (SELECT 1 ` + latestActivity + ` AND t.retry_delay IS NOT NULL
    AND (orchestration_activities.visible_at <= ?1 + t.retry_delay OR orchestration_activities.visible_at <= t.finished_at + t.retry_delay)))`

	// These records are removed by their age.
	sqlInstancesAhead = `
UPDATE orchestrations SET completed_at = ?1, started_at = CASE WHEN started_at > ?1 THEN ?1 ELSE started_at END
WHERE no > ?2 AND no <= ?3 AND completed_at > ?1 + 86400000`
	sqlFreedAhead = `
UPDATE orchestration_blobs SET freed_at = ?1
WHERE key IN (SELECT key FROM orchestration_blobs WHERE freed_at > ?1 + 86400000 ORDER BY freed_at LIMIT ?2 + 0)`
)

// Orchestrations is what the repair does.
func Orchestrations() db.ClockMend {
	return db.ClockMend{MadeAhead: sqlInstanceMadeAhead, Others: mendFreed, Walks: []db.ClockWalk{
		{Table: "orchestration_items", Number: "instance", Statements: []string{sqlTurnsAhead, sqlInboxAhead, sqlOrchestrationItemsAhead, sqlActivityRetryAhead, sqlActivitiesAhead}, More: nil},
		{Table: "orchestrations", Number: "no", Statements: []string{sqlInstancesAhead}, More: nil},
	}}
}

// mendFreed repairs the times at which payloads were freed.
func mendFreed(_ context.Context, _ *db.DB, step func(func(*db.Tx) (int, error)) error) (err error) {
	for changed := db.ClockStretch; changed == db.ClockStretch && err == nil; {
		err = step(func(t *db.Tx) (int, error) {
			changed, err = t.Prep(sqlFreedAhead).Int(t.Now).Int(db.ClockStretch).Count()
			return changed, err
		})
	}
	return err
}
