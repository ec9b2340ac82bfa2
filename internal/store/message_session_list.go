package store

import (
	"context"
	"time"
)

// SessionRow is a session as a list shows it.
type SessionRow struct {
	ID          string
	HasMessages bool       // to receive, or held; deferred ones do not count
	LockedUntil *time.Time // nil: nobody has it
	StateBytes  int
}

// A session whose last message has expired keeps its row until somebody would accept it.
const sqlSessions = `
SELECT s.id, s.active, s.locked_until, s.state_bytes FROM (
  SELECT s.id, CASE WHEN EXISTS (SELECT 1 FROM messages m WHERE m.lane = ?1 AND m.rank = s.no + 16) THEN 1 ELSE 0 END AS active,
    CASE WHEN EXISTS (SELECT 1 FROM messages m WHERE m.lane = ?2 AND m.rank = s.no + 16) THEN 1 ELSE 0 END AS deferred,
    CASE WHEN s.locked_until > ?4 THEN s.locked_until END AS locked_until, coalesce(length(s.state), 0) AS state_bytes
  FROM sessions s WHERE s.queue = ?3 AND s.id > ?5 ORDER BY s.id) s
WHERE s.active + s.deferred + s.state_bytes > 0 OR s.locked_until IS NOT NULL ORDER BY s.id LIMIT ?6 + 0`

// Sessions returns the sessions of the queue by id, those after one.
func (s *BusStore) Sessions(ctx context.Context, q MessageQueue, after string, limit int) (sessions []SessionRow, err error) {
	subqueue := q.Subqueue(false)
	err = s.read(ctx, func(c conn) error {
		return c.prep(sqlSessions).int(int64(subqueue)).int(int64(subqueue.deferred())).int(q.No).int(c.now()).text(after).int(int64(limit)).each(func(r row) error {
			sessions = append(sessions, SessionRow{ID: r.text(0), HasMessages: r.int(1) != 0, LockedUntil: fromMillisOrNil(r, 2), StateBytes: int(r.int(3))})
			return nil
		})
	})
	return sessions, err
}
