package entity

import (
	"context"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// SessionRow is a session as a list shows it.
type SessionRow struct {
	ID          string
	HasMessages bool       // active or held; deferred ones do not count
	LockedUntil *time.Time // nil: nobody has it
	StateBytes  int
}

// A session whose last message has expired keeps its row until a receiver would accept it.
const sqlSessions = `
SELECT s.id, s.active, s.locked_until, s.state_bytes FROM (
  SELECT s.id, coalesce((SELECT 1 FROM messages m WHERE m.subqueue = ?1 AND m.flow = s.no + 16 LIMIT 1), 0) AS active,
    coalesce((SELECT 1 FROM messages m WHERE m.subqueue = ?2 AND m.flow = s.no + 16 LIMIT 1), 0) AS deferred,
    CASE WHEN s.locked_until > ?4 THEN s.locked_until END AS locked_until, coalesce(length(s.state), 0) AS state_bytes
  FROM sessions s WHERE s.queue = ?3 AND s.id > ?5 ORDER BY s.id) s
WHERE s.active + s.deferred + s.state_bytes > 0 OR s.locked_until IS NOT NULL ORDER BY s.id LIMIT ?6 + 0`

// ListSessions returns the queue's sessions whose ids come after the given one, by id.
func (s Reader) ListSessions(ctx context.Context, q Queue, after string, limit int) (sessions []SessionRow, err error) {
	subqueue := q.Subqueue(false)
	err = s.Read(ctx, func(c driver.Conn) error {
		return c.Prep(sqlSessions).Int(int64(subqueue)).Int(int64(subqueue.Deferred())).Int(q.No).Int(c.Now()).Text(after).Int(int64(limit)).Each(func(r driver.Row) error {
			sessions = append(sessions, SessionRow{ID: r.Text(0), HasMessages: r.Int(1) != 0, LockedUntil: driver.FromMillisOrNil(r, 2), StateBytes: int(r.Int(3))})
			return nil
		})
	})
	return sessions, err
}

// SessionContents says what messages a session has.
type SessionContents struct {
	Held     bool // messages that a receiver has, or had when its lock ended
	Active   bool // messages to receive, held ones too
	Deferred bool
}

// SQLSessionContents are the columns of SessionContents, of sessions s. ?1 is the main subqueue,
// ?2 that of deferred messages.
const SQLSessionContents = `
  coalesce((SELECT 1 FROM messages m WHERE m.subqueue = ?1 AND m.flow = s.no + 16 AND m.visible_at = 4611686018427387904 LIMIT 1),
    (SELECT 1 FROM messages m WHERE m.subqueue = ?2 AND m.flow = s.no + 16 AND m.visible_at = 4611686018427387904 LIMIT 1), 0),
  coalesce((SELECT 1 FROM messages m WHERE m.subqueue = ?1 AND m.flow = s.no + 16 LIMIT 1), 0),
  coalesce((SELECT 1 FROM messages m WHERE m.subqueue = ?2 AND m.flow = s.no + 16 LIMIT 1), 0)`

// ReadContents reads the columns of SQLSessionContents, which come first.
func ReadContents(r driver.Row) SessionContents {
	return SessionContents{Held: r.Int(0) != 0, Active: r.Int(1) != 0, Deferred: r.Int(2) != 0}
}

const SQLHasSession = "SELECT no FROM sessions WHERE queue = ? AND id = ?"

// CountNewSessions returns how many of these sessions a queue does not have. It asks for all at
// once, because a statement may cost a round trip.
func (s Reader) CountNewSessions(ctx context.Context, q Queue, ids map[string]bool) (fresh int64, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		fresh = int64(len(ids))
		questions := make([]driver.PipelineQuery, 0, len(ids))
		for id := range ids {
			questions = append(questions, driver.PipelineQuery{SQL: SQLHasSession,
				Bind:  func(st driver.Statement) driver.Statement { return st.Int(q.No).Text(id) },
				OnRow: func(driver.Row) { fresh-- }})
		}
		return c.RunPipeline(questions)
	})
	return fresh, err
}
