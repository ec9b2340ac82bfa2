package store

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Payload is a value of an orchestration: its bytes, or the key of the blob that holds them. A blob belongs to the one row that names it; it is
// written before the transaction that stores the row, and freed by the one that removes it. Both are set of a payload that has just been
// written: then the row has the key.
type Payload struct {
	Bytes []byte
	Blob  string
}

// Inline is a payload that stands in its row.
func Inline(b []byte) Payload { return Payload{Bytes: b} }

// OrchestrationBlobs is the second segment of the keys of orchestrations' blobs, "t/<tenant>/orchestrations/<random>/<bytes>": no job has such an id.
const OrchestrationBlobs = "orchestrations"

// Size returns how many bytes it has; a blob's key ends in that number.
func (p Payload) Size() int {
	if p.Blob == "" {
		return len(p.Bytes)
	}
	n, _ := strconv.Atoi(p.Blob[strings.LastIndexByte(p.Blob, '/')+1:])
	return n
}

// inline is what stands in the row.
func (p Payload) inline() []byte {
	if p.Blob == "" {
		return p.Bytes
	}
	return nil
}

// payload reads one whose bytes and key are in these columns.
func payloadAt(r row, bytes, blob int) Payload {
	return Payload{Bytes: r.blob(bytes), Blob: r.text(blob)}
}

// keepBlob notes a blob whose row is stored, and of its instance, unless that is over, that it has one.
func (t *orchestrateTx) keepBlob(instance int64, p Payload) error {
	if p.Blob == "" {
		return nil
	}
	if err := t.prep("INSERT INTO orchestration_blobs (key) VALUES (?)").text(p.Blob).exec(); err != nil {
		return err
	}
	return t.prep("UPDATE orchestration_turns SET blobs = 1 WHERE instance = ? AND blobs = 0").int(instance).exec()
}

// Blobs of an instance whose rows are about to go.
const (
	sqlHistoryBlobs  = "SELECT events_blob AS key FROM orchestration_history WHERE instance = ?1 AND events_blob IS NOT NULL"
	sqlInboxBlobs    = "SELECT event_blob AS key FROM orchestration_inbox WHERE instance = ?1 AND event_blob IS NOT NULL"
	sqlAnswerBlobs   = sqlInboxBlobs + " AND answer = 1"
	sqlActivityBlobs = "SELECT event_blob AS key FROM orchestration_activities WHERE instance = ?1 AND event_blob IS NOT NULL"
	sqlInputBlob     = "SELECT input_blob AS key FROM orchestrations WHERE no = ?1 AND input_blob IS NOT NULL"
	sqlOutputBlob    = "SELECT output_blob AS key FROM orchestrations WHERE no = ?1 AND output_blob IS NOT NULL"

	unionAll       = " UNION ALL "
	freeOf         = "INSERT INTO orchestration_blobs (key, freed_at) SELECT b.key, ?2 FROM ("
	freeEnd        = ") b WHERE 1 = 1 ON CONFLICT (key) DO UPDATE SET freed_at = excluded.freed_at"
	sqlFreeAll     = freeOf + sqlHistoryBlobs + unionAll + sqlInboxBlobs + unionAll + sqlActivityBlobs + unionAll + sqlInputBlob + unionAll + sqlOutputBlob + freeEnd
	sqlFreeRun     = freeOf + sqlHistoryBlobs + unionAll + sqlAnswerBlobs + unionAll + sqlActivityBlobs + unionAll + sqlInputBlob + freeEnd
	sqlFreeRest    = freeOf + sqlInboxBlobs + unionAll + sqlActivityBlobs + freeEnd
	sqlFreeOutcome = freeOf + sqlHistoryBlobs + unionAll + sqlOutputBlob + freeEnd
)

// freeBlobs frees those blobs of an instance that the statement names.
func (t *orchestrateTx) freeBlobs(instance int64, sql string) error {
	return t.prep(sql).int(instance).int(t.now).exec()
}

// freePayload is freeBlobs for a payload whose row goes, or does not come about.
func (t *orchestrateTx) freePayload(p Payload) error {
	if p.Blob == "" {
		return nil
	}
	return t.prep("INSERT INTO orchestration_blobs (key, freed_at) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET freed_at = excluded.freed_at").text(p.Blob).int(t.now).exec()
}

// FreedBlobs returns keys of blobs that orchestrations have had no use for since before that time, the oldest first, but for some of these.
func (s *OrchestrationStore) FreedBlobs(ctx context.Context, before time.Time, skip, limit int) (keys []string, err error) {
	err = s.read(ctx, func(c conn) error {
		keys = nil
		const sql = "SELECT key FROM orchestration_blobs WHERE freed_at < ? ORDER BY freed_at, key LIMIT ? + 0 OFFSET ? + 0"
		return c.prep(sql).int(before.UnixMilli()).int(int64(limit)).int(int64(skip)).each(func(r row) error {
			keys = append(keys, r.text(0))
			return nil
		})
	})
	return keys, err
}

// ForgetFreedBlobs is for those that have been removed.
func (s *OrchestrationStore) ForgetFreedBlobs(ctx context.Context, keys []string) error {
	_, err := transactIn(ctx, orchestrateKey, s.writer, op{stage: stageChange}, func(t *orchestrateTx) (struct{}, error) {
		for _, key := range keys {
			if err := t.prep("DELETE FROM orchestration_blobs WHERE key = ?").text(key).exec(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// What is freed is in use as well: it is removed as such.
const sqlOrchestrationBlobInUse = "SELECT 1 FROM orchestration_blobs WHERE key = ?"

// BlobsInUse calls used with those of the keys that an orchestration refers to.
func (s *OrchestrationStore) BlobsInUse(ctx context.Context, keys []string, used func(key string)) error {
	return s.read(ctx, func(c conn) error {
		for _, key := range keys {
			if _, err := c.prep(sqlOrchestrationBlobInUse).text(key).one(func(row) { used(key) }); err != nil {
				return err
			}
		}
		return nil
	})
}
