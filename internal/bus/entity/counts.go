package entity

import (
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Counts counts the messages of a queue by state.
type Counts struct {
	Active, Scheduled, Locked, Deferred, DeadLetter int64
	OldestActive                                    int64 // time of the oldest active message; 0: there is none
	Size                                            int64 // bytes of the messages that were counted
	Capped                                          bool  // a count stopped at its limit, so it is a lower bound
}

// Flows of messages that nobody receives. SQL says them as numbers.
const (
	ScheduledFlow = 1
	PendingFlow   = 2 // they wait in a topic for their copies
)

// SQLCounts counts the messages of each subqueue by state. Each part reads the index of messages
// and stops at the limit ?3: active and locked messages without sessions, scheduled ones, then
// those of sessions.
const SQLCounts = `
SELECT subqueue % 4, count(*),
  count(*) FILTER (WHERE flow <> 1 AND until <= ?2),
  count(*) FILTER (WHERE flow = 1),
  count(*) FILTER (WHERE until > ?2 AND flow <> 1),
  min(CASE WHEN flow <> 1 AND until <= ?2 THEN since END), CAST(sum(size) AS BIGINT)
FROM (SELECT bounded_row.subqueue, bounded_row.flow, bounded_row.size, CASE WHEN bounded_row.lock_token IS NULL THEN 0 WHEN bounded_row.flow < 16 THEN bounded_row.visible_at
    ELSE coalesce((SELECT s.locked_until FROM sessions s WHERE s.no = bounded_row.flow - 16), 0) END AS until,
    CASE WHEN bounded_row.flow < 16 THEN bounded_row.visible_at ELSE (SELECT b.enqueued_at FROM bodies b WHERE b.seq = bounded_row.seq) END AS since
  FROM (
    SELECT * FROM (SELECT seq, subqueue, flow, visible_at, lock_token, size FROM messages WHERE subqueue = ?1 AND flow = 0 AND visible_at <= ?2 ORDER BY visible_at LIMIT ?3 + 0) bounded_active
    UNION ALL SELECT * FROM (SELECT seq, subqueue, flow, visible_at, lock_token, size FROM messages WHERE subqueue = ?1 AND flow = 0 AND visible_at > ?2 ORDER BY visible_at LIMIT ?3 + 0) bounded_locked
    UNION ALL SELECT * FROM (SELECT seq, subqueue, flow, visible_at, lock_token, size FROM messages WHERE subqueue = ?1 AND flow = 1 ORDER BY visible_at LIMIT ?3 + 0) bounded_scheduled
    UNION ALL SELECT * FROM (SELECT seq, subqueue, flow, visible_at, lock_token, size FROM messages WHERE subqueue = ?1 AND flow > 1 ORDER BY flow LIMIT ?3 + 0) bounded_of_sessions
    UNION ALL SELECT * FROM (SELECT seq, subqueue, flow, visible_at, lock_token, size FROM messages WHERE subqueue = ?1 + 1 ORDER BY flow, visible_at LIMIT ?3 + 0) bounded_deferred
    UNION ALL SELECT * FROM (SELECT seq, subqueue, flow, visible_at, lock_token, size FROM messages WHERE subqueue = ?1 + 2 ORDER BY flow, visible_at LIMIT ?3 + 0) bounded_dead
    UNION ALL SELECT * FROM (SELECT seq, subqueue, flow, visible_at, lock_token, size FROM messages WHERE subqueue = ?1 + 3 ORDER BY flow, visible_at LIMIT ?3 + 0) bounded_deferred_dead) bounded_row) bounded
GROUP BY subqueue % 4`

// Count counts the messages of the queue with that number, up to limit of each kind.
func Count(c driver.Conn, no, limit int64) (counts Counts, err error) {
	err = c.Prep(SQLCounts).Int(no * queue.SubqueueKinds).Int(c.Now()).Int(limit).Each(func(r driver.Row) error {
		rows := r.Int(1)
		counts.Size += r.Int(6)
		switch subqueue := queue.SubqueueOf(0, queue.SubqueueKind(r.Int(0))); subqueue {
		case queue.SubqueueOf(0, queue.SubqueueMain):
			counts.Active, counts.Scheduled, counts.Locked, counts.OldestActive = r.Int(2), r.Int(3), counts.Locked+r.Int(4), r.Int(5)
			rows = max(counts.Scheduled, r.Int(2)+r.Int(4))
		case queue.SubqueueOf(0, queue.SubqueueMain).Deferred():
			counts.Deferred = rows - r.Int(4)
			counts.Locked += r.Int(4)
		default:
			counts.DeadLetter += rows
		}
		counts.Capped = counts.Capped || rows >= limit
		return nil
	})
	return counts, err
}
