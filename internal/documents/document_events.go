package documents

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
)

// documentEvent is an event that subscribers do not have yet. The message id is unique to it.
type documentEvent struct {
	forebay.DocumentEvent
	messageID string
	tenant    int64
}

// publishDocument publishes an event of a document as the stage ends.
func (t *tx) publishDocument(rev Revision, messageID string, e forebay.DocumentEvent) error {
	topics := &bus.Key.Of(t.Tx).Topics
	f, err := topics.Followed()
	if err != nil || f.Topics[rev.Tenant] == "" {
		return err
	}
	topics.WillPublish(f.Topics[rev.Tenant])
	e.Revision, e.ContentHash, e.Title, e.Chunks, e.Timestamp = rev.ID, "sha256:"+hex.EncodeToString(rev.Hash), rev.Title, rev.Chunks, driver.FromMillis(t.Now)
	t.events = append(t.events, documentEvent{e, messageID, rev.Tenant})
	return nil
}

// publishEvents publishes the events since the last call.
func (t *tx) publishEvents() error {
	if len(t.events) == 0 {
		return nil
	}
	events, topics := t.events, &bus.Key.Of(t.Tx).Topics
	t.events = nil
	f, err := topics.Followed()
	if err != nil {
		return err
	}
	list := make([]bus.Publication, len(events))
	for i := range events {
		list[i] = bus.Publication{Topic: f.Topics[events[i].tenant], Message: events[i].message}
	}
	return topics.PublishAll(list)
}

// message is the event as subscribers get it.
func (e *documentEvent) message() (m bus.MessageContent, err error) {
	m = bus.MessageContent{MessageID: e.messageID, CorrelationID: e.Revision, Subject: string(e.Type), ContentType: "application/json", Text: true}
	if m.Body, err = json.Marshal(e.DocumentEvent); err != nil {
		return m, err
	}
	m.Properties, err = json.Marshal(forebay.Properties{"document_id": e.DocumentID, "revision": e.Revision})
	return m, err
}

// documentJobRedriven is for a job that is sent back.
func (t *tx) documentJobRedriven(seq int64) error {
	clear(t.announced)
	return t.Prep(sqlJobWaits).Int(seq).Exec()
}

// sqlFailing finds the revision of a job that fails, and whether others of its jobs have failed.
const sqlFailing = "SELECT " + revisionColumns + `, d.id, coalesce((
  SELECT 1 FROM document_jobs o WHERE o.revision = r.no AND o.error_code IS NOT NULL AND o.seq <> j.seq LIMIT 1), 0)
FROM document_jobs j JOIN document_revisions r ON r.no = j.revision JOIN documents d ON d.no = r.document WHERE j.seq = ? AND j.done = 0`

// documentJobFailed records on its document that a job has ended without success. It does nothing
// for other jobs.
func (t *tx) documentJobFailed(e jobs.Ended) error {
	if t.cancelling[e.Seq] {
		return nil
	}
	code, message := e.Failure.Code, e.Failure.Message
	if code == "" {
		code, message = string(e.Status), []byte("the job was "+string(e.Status))
	}
	f, err := bus.Key.Of(t.Tx).Topics.Followed()
	if err != nil {
		return err
	}
	var rev Revision
	var id string
	first := false
	if len(f.Topics) > 0 { // jobs of a revision that fail together are asked for together, before one of them is recorded
		_, err = t.Prep(sqlFailing).Int(e.Seq).One(func(r driver.Row) {
			rev, id, first = readRevision(r), r.Text(revisionNumbers), r.Int(revisionNumbers+1) == 0
		})
		if err != nil {
			return err
		}
	}
	err = t.Prep(sqlJobFailed).Text(jobs.Bounded(code)).Blob(message).Int(e.Seq).Exec()
	if err != nil || !first || t.announced[rev.No] {
		return err
	}
	if t.announced == nil {
		t.announced = map[int64]bool{}
	}
	t.announced[rev.No] = true
	return t.publishDocument(rev, fmt.Sprintf("%s-failed-%d-%d", rev.ID, e.Seq, e.Generation),
		forebay.DocumentEvent{Type: forebay.EventDocumentFailed, DocumentID: id, ErrorCode: jobs.Bounded(code)})
}
