package documents

import (
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
)

// A transaction reads a revision once, and remembers it as it leaves it. So many steps of one
// document need no answers of each other, and where a statement costs a round trip they share it.
// Nothing else in a transaction changes these rows.

var key = db.NewKey(func(t *db.Tx, _ *participant) *tx { return &tx{Tx: t, jobs: jobs.Key.Of(t)} })

type participant struct{ db.Passive }

// StageEnded does after the last stage what operations have left: no operation may be about to
// settle a job of a dropped revision.
func (p *participant) StageEnded(t *db.Tx, at db.Stage) error {
	d := key.Begun(t)
	if d == nil || at < db.Stages-1 {
		return nil
	}
	if err := d.setLive(); err != nil {
		return err
	}
	return d.drop()
}

// OperationsEnded publishes what has happened to documents.
func (p *participant) OperationsEnded(t *db.Tx) error { return p.Serve(t) }

// Serve publishes that jobs have failed which the participants before it have ended.
func (p *participant) Serve(t *db.Tx) error {
	if d := key.Begun(t); d != nil {
		return d.publishEvents()
	}
	return nil
}

type tx struct {
	*db.Tx
	jobs       *jobs.Tx
	revisions  map[int64]*revisionState
	byID       map[string]*revisionState
	documents  map[int64]*documentState
	live       []*revisionState          // revisions that go live, in this order
	dropped    map[int64]bool            // revisions
	jobsOf     map[int64]*jobsRead       // of revisions, if they were read as it began
	grown      map[int64]bool            // revisions that have got jobs since
	dropping   map[int64]*dropped        // revisions whose jobs are to be cancelled as it ends
	cancelling map[int64]bool            // jobs of these, which are no document's any more
	forgotten  map[int64]bool            // jobs that others replace
	dimensions map[int64]*dimensionState // by tenant
	embedded   map[int64]bool            // chunks whose vectors it has stored
	done       map[string]bool           // ids of jobs whose output it has stored
	announced  map[int64]bool            // revisions of which it has published a failure
	events     []documentEvent           // that subscribers do not have yet
}

// revisionState is a revision as the transaction leaves it.
type revisionState struct {
	Revision
	splitter    int64
	document    *documentState
	description *Described // that is to be written as the revision goes live; nil: none
}

// documentState is a document as the transaction leaves it.
type documentState struct {
	id     string // "": it is deleted
	latest int64  // revision; newerRevision: one whose number is not known
	live   int64  // revision; 0: none
}

// newerRevision is what follows the revisions that a transaction has read.
const newerRevision = -1

// liveRevision is the live revision of a document, of which r is one; 0: there is none. PostgreSQL
// would look for the highest number among all revisions, were it not for the addition.
const liveRevision = "coalesce((SELECT max(l.no + 0) FROM document_revisions l WHERE l.document = r.document AND l.live IS NOT NULL), 0)"

const (
	revisionStateColumns = "SELECT " + revisionColumns + ", r.splitter, coalesce(d.id, ''), coalesce(d.latest, 0), " + liveRevision + " FROM "
	ofItsDocument        = "document_revisions r LEFT JOIN documents d ON d.no = r.document WHERE "
	sqlRevisionNo        = revisionStateColumns + ofItsDocument + "r.no = ?"
	sqlRevisionID        = revisionStateColumns + ofItsDocument + "r.id = ? AND r.tenant = ?"
	sqlLatestRevision    = revisionStateColumns + "documents d JOIN document_revisions r ON r.no = d.latest WHERE d.tenant = ? AND d.id = ?"
)

func readRevisionState(r driver.Row) *revisionState {
	return &revisionState{Revision: readRevision(r), splitter: r.Int(revisionNumbers),
		document: &documentState{id: r.Text(revisionNumbers + 1), latest: r.Int(revisionNumbers + 2), live: r.Int(revisionNumbers + 3)}}
}

// prefetchRevisionNo is what revisionNo reads. It is shared, though the operation may change the
// row: the others find that in the transaction's memory.
func prefetchRevisionNo(no int64) driver.Prefetch {
	p := driver.NewPrefetch(sqlRevisionNo, driver.RowName{Of: "document_revisions", No: no}).Int(no)
	p.Shared = true
	return p
}

// prefetchRevisionID is what revisionOf reads, as prefetchRevisionNo.
func prefetchRevisionID(tenant int64, id string) driver.Prefetch {
	p := driver.NewPrefetch(sqlRevisionID, revisionRow(id)).Text(id).Int(tenant)
	p.Shared = true
	return p
}

func revisionRow(id string) driver.RowName { return driver.RowName{Of: "document_revisions", ID: id} }

// remember returns what the transaction knows of the revision that was read: another operation may
// have read and changed it meanwhile.
func (t *tx) remember(read *revisionState) *revisionState {
	if known := t.revisions[read.No]; known != nil {
		return known
	}
	if t.revisions == nil {
		t.revisions, t.byID, t.documents = map[int64]*revisionState{}, map[string]*revisionState{}, map[int64]*documentState{}
	}
	if known := t.documents[read.Document]; known != nil {
		read.document = known
	}
	if t.dropped[read.No] {
		read.Dropped, read.Live = true, false
	}
	t.revisions[read.No], t.byID[read.ID], t.documents[read.Document] = read, read, read.document
	return read
}

// read remembers the revision that a statement finds; nil: there is none.
func (t *tx) read(st driver.Statement) (found *revisionState, err error) {
	_, err = st.One(func(r driver.Row) { found = readRevisionState(r) })
	if err != nil || found == nil {
		return nil, err
	}
	return t.remember(found), nil
}

// revisionNo returns the revision with that number; nil: there is none.
func (t *tx) revisionNo(no int64) (*revisionState, error) {
	if known := t.revisions[no]; known != nil {
		return known, nil
	}
	return t.read(t.Prep(sqlRevisionNo).Int(no))
}

// revisionOf returns the revision with that id if it is the tenant's, or errRevisionGone.
func (t *tx) revisionOf(tenant int64, id string) (rev *revisionState, err error) {
	if rev = t.byID[id]; rev == nil {
		if rev, err = t.read(t.Prep(sqlRevisionID).Text(id).Int(tenant)); err != nil {
			return nil, err
		}
	}
	if rev == nil || rev.Tenant != tenant || rev.Dropped {
		return nil, errRevisionGone
	}
	return rev, nil
}
