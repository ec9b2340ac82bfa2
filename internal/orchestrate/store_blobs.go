package orchestrate

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/orchestrate/statements"
)

// Payload is a value of an orchestration: its bytes, or the key of the blob that holds them. A
// blob belongs to exactly one row. It is written before the transaction that stores the row, and
// freed by the one that removes the row. A payload that was just written has both; then the row
// has the key.
type Payload struct {
	Bytes []byte
	Blob  string
}

// Inline returns a payload that is stored in its row.
func Inline(b []byte) Payload { return Payload{Bytes: b} }

// OrchestrationBlobs is the second segment of the blob keys of orchestrations,
// "t/<tenant>/orchestrations/<random>/<bytes>". No job has such an id.
const OrchestrationBlobs = "orchestrations"

// Size returns the number of bytes. A blob's key ends in that number.
func (p Payload) Size() int {
	if p.Blob == "" {
		return len(p.Bytes)
	}
	n, _ := strconv.Atoi(p.Blob[strings.LastIndexByte(p.Blob, '/')+1:])
	return n
}

// inline returns the bytes that are stored in the row.
func (p Payload) inline() []byte {
	if p.Blob == "" {
		return p.Bytes
	}
	return nil
}

// payloadAt reads a payload from the columns of its bytes and its key.
func payloadAt(r driver.Row, bytes, blob int) Payload {
	return Payload{Bytes: r.Blob(bytes), Blob: r.Text(blob)}
}

// keepBlob records a blob whose row is stored, and that its instance has blobs.
func (t *tx) keepBlob(instance int64, p Payload) error {
	if p.Blob == "" {
		return nil
	}
	t.stored.add(p)
	t.changed(instance)
	return t.Prep(statements.HasBlobs).Int(instance).Exec()
}

// storedBlobs are keys of blobs whose rows a transaction has stored. They are recorded as it ends,
// so that what frees blobs becomes one statement. A blob that was freed meanwhile stays freed.
type storedBlobs []string

// add reports whether there is a blob among the payloads.
func (s *storedBlobs) add(payloads ...Payload) (some bool) {
	for _, p := range payloads {
		if p.Blob != "" {
			*s, some = append(*s, p.Blob), true
		}
	}
	return some
}

// Closes records what a transaction has stored.
func (l *participant) Closes(of *db.Tx) error {
	if t := key.Begun(of); t != nil {
		for _, blob := range t.stored {
			if err := t.Prep(statements.StoreBlob).Text(blob).Exec(); err != nil {
				return err
			}
		}
		t.stored = nil
	}
	return nil
}

// freeBlobs frees the blobs of an instance that the statement selects.
func (t *tx) freeBlobs(instance int64, sql string) error {
	return t.Prep(sql).Int(instance).Int(t.Now).Exec()
}

// freePayload frees the blob of a payload whose row is removed or is not stored.
func (t *tx) freePayload(p Payload) error {
	if p.Blob == "" {
		return nil
	}
	return t.Prep(statements.FreeBlob).Text(p.Blob).Int(t.Now).Exec()
}

// FreedBlobs returns keys of blobs that were freed before that time, the oldest first, without
// the first skip ones.
func (s *Store) FreedBlobs(ctx context.Context, before time.Time, skip, limit int) (keys []string, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		keys = nil
		const sql = "SELECT key FROM orchestration_blobs WHERE freed_at < ? ORDER BY freed_at, key LIMIT ? + 0 OFFSET ? + 0"
		return c.Prep(sql).Int(before.UnixMilli()).Int(int64(limit)).Int(int64(skip)).Each(func(r driver.Row) error {
			keys = append(keys, r.Text(0))
			return nil
		})
	})
	return keys, err
}

// ForgetFreedBlobs removes the records of blobs that have been deleted.
func (s *Store) ForgetFreedBlobs(ctx context.Context, keys []string) error {
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange, Local: true, Interleaves: true}, func(t *tx) (struct{}, error) {
		for _, key := range keys {
			if err := t.Prep("DELETE FROM orchestration_blobs WHERE key = ?").Text(key).Exec(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// A freed blob counts as in use: RemoveFreed deletes it.
const sqlOrchestrationBlobInUse = "SELECT 1 FROM orchestration_blobs WHERE key = ?"

// BlobsInUse calls used with each of the keys that an orchestration refers to.
func (s *Store) BlobsInUse(ctx context.Context, keys []string, used func(key string)) error {
	return s.Read(ctx, func(c driver.Conn) error {
		for _, key := range keys {
			if _, err := c.Prep(sqlOrchestrationBlobInUse).Text(key).One(func(driver.Row) { used(key) }); err != nil {
				return err
			}
		}
		return nil
	})
}
