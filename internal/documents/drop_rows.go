package documents

import (
	"context"
	"maps"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/record"
	"github.com/forebayhq/forebay/internal/queue"
)

// A revision that is dropped is no longer found by searches. Its jobs are cancelled as the
// transaction ends. Where a statement costs a round trip, they are read as it begins.

// dropJobs is how many jobs of dropped revisions are cancelled in one transaction: of a document,
// or of a revision.
const dropJobs = 16

// dropped is a dropped revision. The transaction cancels some of its jobs.
type dropped struct {
	revision int64
	voided   []int64 // tokens of their locks
	more     bool    // others are left
}

// jobsRead are the jobs of a revision that are not over, as they were when the transaction began.
type jobsRead struct {
	messages []record.Message
	more     bool // there may be others
}

const (
	jobsToCancel    = "SELECT d.revision, " + record.MessageColumns + " FROM "
	firstJobs       = " JOIN messages m ON m.seq = d.seq JOIN jobs j ON j.seq = d.seq WHERE "
	callsFirst      = " ORDER BY m.lock_token IS NULL, d.seq LIMIT ? + 0"
	sqlRevisionJobs = jobsToCancel + "document_jobs d" + firstJobs + "d.revision = ?" + callsFirst
	sqlDocumentJobs = jobsToCancel + "documents o JOIN document_revisions r ON r.document = o.no AND r.dropped = 0 JOIN document_jobs d ON d.revision = r.no" +
		firstJobs + "o.tenant = ? AND o.id = ?" + callsFirst
)

// prefetchRevisionJobs is what the end of a transaction asks about a revision that it drops.
func prefetchRevisionJobs(revision int64) driver.Prefetch {
	p := driver.NewPrefetch(sqlRevisionJobs, driver.RowName{Of: "document_jobs", No: revision}).Int(revision).Int(dropJobs)
	p.Shared = true // nothing is done to these jobs by the operations that ask
	return p
}

// prefetchDocumentJobs is the same for all revisions of a document.
func prefetchDocumentJobs(tenant int64, id string) driver.Prefetch {
	return driver.NewPrefetch(sqlDocumentJobs, documentRow(tenant, id)).Int(tenant).Text(id).Int(dropJobs)
}

// readJobs takes in the answer to one of these if it was asked ahead. These revisions are those
// that are to be dropped. Elsewhere the end of the transaction asks.
func (t *tx) readJobs(asked driver.Prefetch, revisions ...int64) error {
	if !t.Prefetched(asked) {
		return nil
	}
	if t.jobsOf == nil {
		t.jobsOf = map[int64]*jobsRead{}
	}
	for _, no := range revisions {
		t.jobsOf[no] = &jobsRead{}
	}
	rows := 0
	err := t.Ask(asked).Each(func(r driver.Row) error {
		rows++
		if its := t.jobsOf[r.Int(0)]; its != nil && slices.Contains(revisions, r.Int(0)) {
			its.messages = append(its.messages, record.ReadMessage(r, 1))
		}
		return nil
	})
	for _, no := range revisions {
		t.jobsOf[no].more = rows == dropJobs
	}
	return err
}

// knownJobs returns jobs of a revision as they are now, if that is known.
func (t *tx) knownJobs(revision int64) *jobsRead {
	read := t.jobsOf[revision]
	if read == nil || t.grown[revision] || slices.ContainsFunc(read.messages, func(m record.Message) bool { return !t.Keeps(queue.MessageRow(m.Seq)) }) {
		return nil
	}
	return read
}

// dropRevision takes a revision out of searches and out of its pipeline. The first of its jobs are
// cancelled as the transaction ends. cancelDropped cancels the others, and PurgeDocuments removes
// the rest.
func (t *tx) dropRevision(tenant, no int64) *dropped {
	if t.dropped == nil {
		t.dropped = map[int64]bool{}
	}
	t.dropped[no] = true
	if known := t.revisions[no]; known != nil {
		known.Dropped, known.Live = true, false
	}
	t.Changed(droppedWatch(tenant))
	return t.cancelLater(no)
}

// cancelLater has the first of a revision's jobs cancelled as the transaction ends.
func (t *tx) cancelLater(revision int64) *dropped {
	d := t.dropping[revision]
	if d == nil {
		d = &dropped{revision: revision}
		if t.dropping == nil {
			t.dropping = map[int64]*dropped{}
		}
		t.dropping[revision] = d
	}
	return d
}

// drop does what was left for the end of the operations: jobs that are forgotten, and revisions
// that are dropped. Statements of one kind follow each other, and so become one.
func (t *tx) drop() error {
	for _, seq := range slices.Sorted(maps.Keys(t.forgotten)) {
		if err := t.forget(seq); err != nil {
			return err
		}
	}
	clear(t.forgotten)
	for _, no := range slices.Sorted(maps.Keys(t.dropped)) {
		if err := t.Prep(sqlDropRevision).Int(no).Exec(); err != nil {
			return err
		}
	}
	var list []*dropped
	for _, no := range slices.Sorted(maps.Keys(t.dropping)) {
		list = append(list, t.dropping[no])
	}
	if t.dropping = nil; len(list) == 0 {
		return nil
	}
	return t.cancelJobs(list)
}

// cancelJobs cancels some of the jobs of each of the dropped revisions.
func (t *tx) cancelJobs(list []*dropped) error {
	var asks []driver.Prefetch
	for _, d := range list {
		if t.knownJobs(d.revision) == nil {
			delete(t.jobsOf, d.revision)
			ask := prefetchRevisionJobs(d.revision)
			t.DropPrefetched(ask.Row) // what was asked as the transaction began is not true any more
			asks = append(asks, ask)
		}
	}
	if err := t.Prefetch(asks); err != nil {
		return err
	}
	var messages []record.Message
	var of []*dropped // whose job each is
	for _, d := range list {
		its, err := t.jobsNow(d.revision)
		if err != nil {
			return err
		}
		d.more = its.more
		for _, m := range its.messages {
			messages, of = append(messages, m), append(of, d)
		}
	}
	if t.cancelling == nil {
		t.cancelling = make(map[int64]bool, len(messages))
	}
	for i := range messages {
		t.cancelling[messages[i].Seq] = true
		if err := t.forgetDropped(&messages[i], of[i].more); err != nil {
			return err
		}
	}
	cancelled, err := t.jobs.CancelMessages(messages)
	if err != nil {
		return err
	}
	for i, c := range cancelled {
		if c.Token != 0 {
			of[i].voided = append(of[i].voided, c.Token)
		}
	}
	for _, d := range list {
		if d.more {
			continue
		}
		if err := t.Prep(sqlForgetJobsOf).Int(d.revision).Exec(); err != nil {
			return err
		}
	}
	return nil
}

// jobsNow returns the first jobs of a revision that are not over.
func (t *tx) jobsNow(revision int64) (*jobsRead, error) {
	if read := t.jobsOf[revision]; read != nil {
		return read, nil
	}
	read := &jobsRead{}
	err := t.Ask(prefetchRevisionJobs(revision)).Each(func(r driver.Row) error {
		read.messages = append(read.messages, record.ReadMessage(r, 1))
		return nil
	})
	read.more = len(read.messages) == dropJobs
	return read, err
}

// forget has a job belong to no document any more, and no redrive bring it back.
func (t *tx) forget(seq int64) error {
	err := t.Prep(sqlForgetJob).Int(seq).Exec()
	if err == nil {
		err = t.Prep(sqlForgetDeadLetter).Int(seq).Exec()
	}
	return err
}

// forgetDropped is forget for a job of a dropped revision whose message was read. Unless others
// are left, the job is forgotten with all that the revision has.
func (t *tx) forgetDropped(m *record.Message, othersLeft bool) error {
	if othersLeft {
		if err := t.Prep(sqlForgetJob).Int(m.Seq).Exec(); err != nil {
			return err
		}
	}
	if m.IsSetAside() {
		return t.Prep(sqlForgetDeadLetter).Int(m.Seq).Exec()
	}
	return nil // its message goes as it is cancelled
}

// cancelDropped cancels the remaining jobs of a revision, step by step, and adds the tokens of
// voided locks. If it fails, PurgeDocuments handles the others.
func (s *Store) cancelDropped(ctx context.Context, tenant, no int64, voided []int64) []int64 {
	asked := prefetchRevisionJobs(no)
	o := step(tenant, revisionRows+dropJobs, 0, func() []driver.Prefetch { return []driver.Prefetch{asked} })
	for {
		d, err := db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (*dropped, error) { return t.cancelLater(no), t.readJobs(asked, no) })
		if err != nil {
			return voided
		}
		if voided = append(voided, d.voided...); !d.more {
			return voided
		}
	}
}

const sqlRevisionsOf = `
SELECT d.no, coalesce(r.no, 0), CASE WHEN r.no = d.latest THEN r.id END FROM documents d LEFT JOIN document_revisions r ON r.document = d.no AND r.dropped = 0 WHERE d.tenant = ? AND d.id = ?`

// prefetchRevisionsOf is what a deletion asks first.
func prefetchRevisionsOf(tenant int64, id string) driver.Prefetch {
	return driver.NewPrefetch(sqlRevisionsOf, documentRow(tenant, id)).Int(tenant).Text(id)
}

// DeleteDocument takes a document out of searches at once. PurgeDocuments removes its rows and
// contents. It returns the tokens of locks that it voided, or forebay.ErrNotFound. The audit row
// is written with it.
func (s *Store) DeleteDocument(ctx context.Context, tenant int64, id string, entry audit.Act) (voided []int64, err error) {
	o := step(tenant, deletionRows, 0, func() []driver.Prefetch {
		return []driver.Prefetch{prefetchRevisionsOf(tenant, id), prefetchDocumentJobs(tenant, id)}
	})
	o.Hints = audit.Appends{}
	revisions, err := db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (list []*dropped, err error) {
		var document int64
		var latest string
		var revisions []int64
		err = t.Ask(prefetchRevisionsOf(tenant, id)).Each(func(r driver.Row) error {
			if document = r.Int(0); r.Int(1) != 0 {
				revisions = append(revisions, r.Int(1))
			}
			if revision := r.Text(2); revision != "" {
				latest = revision
			}
			return nil
		})
		if err == nil && document == 0 {
			err = forebay.ErrNotFound
		}
		if err == nil {
			err = forebay.ConditionOf(ctx).Check(revisionETag(latest))
		}
		if err == nil {
			err = t.readJobs(prefetchDocumentJobs(tenant, id), revisions...)
		}
		if err != nil {
			return nil, err
		}
		if err := t.Prep(sqlDeleteDocument).Int(document).Exec(); err != nil {
			return nil, err
		}
		if err := audit.Append(t.Tx, entry); err != nil {
			return nil, err
		}
		t.Changed(documentWatch(document))
		for _, no := range revisions {
			list = append(list, t.dropRevision(tenant, no))
		}
		return list, nil
	})
	for _, d := range revisions {
		if voided = append(voided, d.voided...); d.more {
			voided = s.cancelDropped(ctx, tenant, d.revision, voided)
		}
	}
	return voided, err
}
