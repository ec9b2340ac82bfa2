package responses

import (
	"context"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// purgeEvents is how many groups of events one transaction removes.
const purgeEvents = 100

const (
	sqlExpired     = "SELECT no, id FROM responses WHERE expires_at >= 0 AND expires_at <= ? ORDER BY expires_at LIMIT 1"
	sqlForgotten   = "SELECT no, id FROM responses WHERE expires_at < 0 AND expires_at >= ? ORDER BY expires_at LIMIT 1"
	sqlPurgeGroups = "DELETE FROM response_events WHERE response = ?1 AND first IN (SELECT first FROM response_events WHERE response = ?1 ORDER BY first LIMIT ?2 + 0)"
	sqlGone        = `
SELECT coalesce(request_blob, ''), coalesce(object_blob, ''), created_at, CASE WHEN repeat_key IS NULL THEN 0 ELSE 1 END
FROM responses WHERE no = ? AND id = ? AND expires_at + 0 <= ?`
	sqlPurgeGone = "DELETE FROM responses WHERE no = ?"
	// What repeats of its request must find stays.
	sqlEmptyGone = `
UPDATE responses SET expires_at = ?, request_size = 0, request_blob = NULL, request = NULL, object_size = 0, object_blob = NULL, object = NULL,
  events_size = 0, error_message = NULL WHERE no = ?`
)

// Purge removes some rows of a response that is gone. It returns whether there may be more, and
// the blobs of a response that was removed, for the caller to delete. A background response leaves
// the key of its request for so long after it was made, so that no repeat makes another.
func (s *Store) Purge(ctx context.Context, remember time.Duration) (blobs []string, more bool, err error) {
	var no int64
	var id string
	err = s.Read(ctx, func(c driver.Conn) (err error) {
		find := func(sql string, at int64) {
			if err == nil && !more {
				more, err = c.Prep(sql).Int(at).One(func(r driver.Row) { no, id = r.Int(0), r.Text(1) })
			}
		}
		more = false
		find(sqlExpired, c.Now())
		find(sqlForgotten, -c.Now())
		return err
	})
	if err != nil || !more {
		return nil, false, err
	}
	o := db.Op{Stage: db.StageChange, Rows: purgeEvents, Local: true, Interleaves: true, Touches: []driver.RowName{rowName(id)}}
	blobs, err = db.Transact(ctx, s.Writer, o, func(t *db.Tx) (blobs []string, err error) {
		n, err := t.Prep(sqlPurgeGroups).Int(no).Int(purgeEvents).Count()
		if err != nil || n == purgeEvents {
			return nil, err
		}
		until := int64(0) // for what is not remembered
		found, err := t.Prep(sqlGone).Int(no).Text(id).Int(t.Now).One(func(r driver.Row) {
			for i := range 2 {
				if key := r.Text(i); key != "" {
					blobs = append(blobs, key)
				}
			}
			if r.Int(3) != 0 {
				until = r.Int(2) + remember.Milliseconds()
			}
		})
		switch {
		case err != nil || !found:
			return nil, err
		case until > t.Now:
			return blobs, t.Prep(sqlEmptyGone).Int(-until).Int(no).Exec()
		}
		return blobs, t.Prep(sqlPurgeGone).Int(no).Exec()
	})
	return blobs, more, err
}

const sqlBlobUsed = "SELECT 1 FROM responses WHERE id = ?1 AND (request_blob = ?2 OR object_blob = ?2)"

// BlobsInUse calls used with those keys that their response refers to. A key contains the id of
// its response.
func (s *Store) BlobsInUse(ctx context.Context, ids map[string]string, used func(key string)) error {
	return s.Read(ctx, func(c driver.Conn) error {
		for key, id := range ids {
			if _, err := c.Prep(sqlBlobUsed).Text(id).Text(key).One(func(driver.Row) { used(key) }); err != nil {
				return err
			}
		}
		return nil
	})
}
