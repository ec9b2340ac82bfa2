package responses

import (
	"context"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// purgeEvents is how many groups of events one transaction removes.
const purgeEvents = 100

const (
	sqlExpired      = "SELECT no, id, request_blob, object_blob FROM responses WHERE expires_at <= ? ORDER BY expires_at LIMIT 1"
	sqlPurgeGroups  = "DELETE FROM response_events WHERE response = ?1 AND first IN (SELECT first FROM response_events WHERE response = ?1 ORDER BY first LIMIT ?2 + 0)"
	sqlPurgeExpired = "DELETE FROM responses WHERE no = ? AND expires_at + 0 <= ? RETURNING coalesce(request_blob, ''), coalesce(object_blob, '')"
)

// Purge removes some rows of a response that is gone. It returns whether there may be more, and
// the blobs of a response that was removed, for the caller to delete.
func (s *Store) Purge(ctx context.Context) (blobs []string, more bool, err error) {
	var no int64
	var id string
	err = s.Read(ctx, func(c driver.Conn) error {
		more, err = c.Prep(sqlExpired).Int(c.Now()).One(func(r driver.Row) { no, id = r.Int(0), r.Text(1) })
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
		_, err = t.Prep(sqlPurgeExpired).Int(no).Int(t.Now).One(func(r driver.Row) {
			for i := range 2 {
				if key := r.Text(i); key != "" {
					blobs = append(blobs, key)
				}
			}
		})
		return blobs, err
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
