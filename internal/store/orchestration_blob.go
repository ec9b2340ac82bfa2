package store

import (
	"strconv"
	"strings"
)

// Payload is a value of an orchestration: its bytes, or the key of the blob that holds them. A blob belongs to the one row that names it; it is
// written before the transaction that stores the row, and removed after the one that removes it. Both are set of a payload that has just been
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
func (r row) payload(bytes, blob int) Payload {
	return Payload{Bytes: r.blob(bytes), Blob: r.text(blob)}
}

// noteBlob notes of an instance that is not over that it has had a blob.
func (t *tx) noteBlob(instance int64) error {
	return t.prep("UPDATE orchestration_turns SET blobs = 1 WHERE instance = ? AND blobs = 0").int(instance).exec()
}

// The blobs of an instance. They say coalesce so that they are found by the instance, and never by the indexes of all blobs.
const (
	sqlHistoryBlobs  = "SELECT events_blob FROM orchestration_history WHERE instance = ?1 AND coalesce(events_blob, '') <> ''"
	sqlInboxBlobs    = "SELECT event_blob FROM orchestration_inbox WHERE instance = ?1 AND coalesce(event_blob, '') <> ''"
	sqlAnswerBlobs   = sqlInboxBlobs + " AND answer = 1"
	sqlActivityBlobs = "SELECT event_blob FROM orchestration_activities WHERE instance = ?1 AND coalesce(event_blob, '') <> ''"
	sqlInputBlob     = "SELECT input_blob FROM orchestrations WHERE no = ?1 AND coalesce(input_blob, '') <> ''"
	sqlOutputBlob    = "SELECT output_blob FROM orchestrations WHERE no = ?1 AND coalesce(output_blob, '') <> ''"

	unionAll        = " UNION ALL "
	sqlAllBlobs     = sqlHistoryBlobs + unionAll + sqlInboxBlobs + unionAll + sqlActivityBlobs + unionAll + sqlInputBlob + unionAll + sqlOutputBlob
	sqlRunBlobs     = sqlHistoryBlobs + unionAll + sqlAnswerBlobs + unionAll + sqlActivityBlobs + unionAll + sqlInputBlob
	sqlRestBlobs    = sqlInboxBlobs + unionAll + sqlActivityBlobs
	sqlOutcomeBlobs = sqlHistoryBlobs + unionAll + sqlOutputBlob
)

// freeBlobs notes which blobs of an instance are to be removed once the transaction has removed their rows, which it is about to.
func (t *tx) freeBlobs(instance int64, query string) error {
	return t.prep(query).int(instance).each(func(r row) error {
		t.freed = append(t.freed, r.text(0))
		return nil
	})
}

// freePayload is freeBlobs for a payload whose row goes, or does not come about.
func (t *tx) freePayload(p Payload) {
	if p.Blob != "" {
		t.freed = append(t.freed, p.Blob)
	}
}

// takeFreed returns what freeBlobs has noted for a request.
func (t *tx) takeFreed() (keys []string) {
	keys, t.freed = t.freed, nil
	return keys
}

const sqlOrchestrationBlobInUse = `
SELECT 1 FROM orchestration_history WHERE events_blob = ?1 UNION ALL SELECT 1 FROM orchestration_inbox WHERE event_blob = ?1
UNION ALL SELECT 1 FROM orchestration_activities WHERE event_blob = ?1
UNION ALL SELECT 1 FROM orchestrations WHERE input_blob = ?1 UNION ALL SELECT 1 FROM orchestrations WHERE output_blob = ?1`
