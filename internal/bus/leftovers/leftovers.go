// Package leftovers removes what queues of messages would keep for ever although it is of no use.
package leftovers

import (
	"context"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// A session that has neither messages nor a state nor a receiver needs no row. Its receiver
// deletes the row as it closes the session. So does the next receiver that takes any session. But
// a lock may end instead, or the messages may expire. Receivers that ask for their sessions by id
// do not look at others.

// Numbers in these statements: 4 is queue.SubqueueKinds, and the flow of a session's messages is
// its number + 16. The deferred messages of a queue are in the subqueue after its main one.
const (
	empty = `s.state IS NULL AND coalesce(s.locked_until, 0) <= ?2 AND coalesce(
  (SELECT 1 FROM messages m WHERE m.subqueue = s.queue * 4 AND m.flow = s.no + 16 LIMIT 1),
  (SELECT 1 FROM messages m WHERE m.subqueue = s.queue * 4 + 1 AND m.flow = s.no + 16 LIMIT 1), 0) = 0`

	// sqlSessions reads the next sessions: the last of their numbers, and whether any is empty.
	sqlSessions = `SELECT max(bounded.no), max(bounded.empty) FROM (
  SELECT s.no, CASE WHEN ` + empty + ` THEN 1 ELSE 0 END AS empty FROM sessions s WHERE s.no > ?1 ORDER BY s.no LIMIT ?3 + 0) bounded`

	sqlForget = "DELETE FROM sessions AS s WHERE s.no > ?1 AND s.no <= ?3 AND " + empty
)

// atOnce is how many sessions one statement looks at.
const atOnce = 500

// ForgetSessions deletes the rows of all sessions that are empty, in small transactions.
func ForgetSessions(ctx context.Context, d *db.DB) error {
	for after, last := int64(0), int64(0); ; after = last {
		some := false
		err := d.Read(ctx, func(c driver.Conn) (err error) {
			_, err = c.Prep(sqlSessions).Int(after).Int(c.Now()).Int(atOnce).One(func(r driver.Row) { last, some = r.Int(0), r.Int(1) != 0 })
			return err
		})
		if err != nil || last == 0 {
			return err
		}
		if !some {
			continue
		}
		// Before operations that send or accept: these may know sessions that they have read.
		_, err = db.Transact(ctx, d.Writer, db.Op{Stage: db.StageSettle, Rows: atOnce}, func(t *db.Tx) (struct{}, error) {
			return struct{}{}, t.Prep(sqlForget).Int(after).Int(t.Now).Int(last).Exec()
		})
		if err != nil {
			return err
		}
	}
}
