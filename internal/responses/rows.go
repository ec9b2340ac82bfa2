package responses

import (
	"context"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// Store keeps responses.
type Store struct{ *queue.Store }

// Attach implements [db.Domain].
func (s *Store) Attach(*db.DB) {}

// Join implements [db.Domain].
func (s *Store) Join(w *db.Writer) { key.Join(w, &participant{}) }

// Payload is a request or an object: the bytes, or the blob that holds them.
type Payload struct {
	Inline []byte
	Blob   string
	Size   int64
}

// Row is a response.
type Row struct {
	No        int64
	ID        string
	Tenant    int64
	Seq       int64 // of its job; 0: none
	CreatedAt time.Time
	EndedAt   *time.Time
	Status    string
	Model     string
	Job       string // id of its job; "": it has none, or that was purged
	Previous  string // "": none
	State     bridge.State
	Request   Payload
	Object    Payload
	Failure   *bridge.Failure
}

// Over reports whether the response has ended.
func (r *Row) Over() bool {
	return r.Status != bridge.StatusQueued && r.Status != bridge.StatusInProgress
}

// Answered reports whether the response has ended with an answer. Else its object is as it was
// before there was one.
func (r *Row) Answered() bool {
	return r.Status == bridge.StatusCompleted || r.Status == bridge.StatusIncomplete
}

const sqlRow = `SELECT no, id, tenant, seq, created_at, ended_at, status, previous, events, places,
  request_size, request_blob, request, object_size, object_blob, object, error_code, error_message, model,
  (SELECT j.id FROM jobs j WHERE j.seq = responses.seq) FROM responses WHERE `

func readRow(r driver.Row) Row {
	row := Row{No: r.Int(0), ID: r.Text(1), Tenant: r.Int(2), Seq: r.Int(3), CreatedAt: driver.FromMillis(r.Int(4)), EndedAt: driver.FromMillisOrNil(r, 5),
		Status: r.Text(6), Previous: r.Text(7), State: bridge.State{Sequence: r.Int(8), Place: int(r.Int(9))},
		Request: Payload{Size: r.Int(10), Blob: r.Text(11), Inline: r.Blob(12)}, Object: Payload{Size: r.Int(13), Blob: r.Text(14), Inline: r.Blob(15)}}
	row.Model, row.Job = r.Text(18), r.Text(19)
	if !r.IsNull(16) {
		row.Failure = &bridge.Failure{Code: r.Text(16), Message: string(r.Blob(17))}
	}
	return row
}

// Response returns a response of a tenant, or forebay.ErrNotFound.
func (s *Store) Response(ctx context.Context, tenant int64, id string) (row Row, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err := c.Prep(sqlRow + "id = ? AND tenant = ? AND expires_at > ?").Text(id).Int(tenant).Int(c.Now()).One(func(r driver.Row) { row = readRow(r) })
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		return err
	})
	return row, err
}

// rowName names a response in transactions.
func rowName(id string) driver.RowName { return driver.RowName{Of: "responses", ID: id} }

// NewRow is a response to store.
type NewRow struct {
	ID       string
	Tenant   int64
	Status   string
	Model    string
	Previous string
	Created  time.Time // zero: when it is stored
	Keep     time.Duration
	Request  Payload
	Object   Payload

	Job    *jobs.NewJob // that makes it; nil: it has ended
	Repeat string       // "": none
	Hash   string
	// Repeated is how long ago the request may have been made that this one repeats. 0: it repeats
	// none; [db.Never]: at any time.
	Repeated int64 // milliseconds
	// Refusal is why the tenant may make nothing new; nil: it may.
	Refusal error
	Events  []byte
	State   bridge.State
}

const (
	sqlInsert = `INSERT INTO responses (id, tenant, seq, created_at, expires_at, ended_at, status, model, previous, repeat_key, hash, events, places, events_size,
  request_size, request_blob, request, object_size, object_blob, object) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	sqlInsertFirst = "INSERT INTO response_events (response, first, data) SELECT no, ?, ? FROM responses WHERE id = ?"
	sqlInsertMore  = "INSERT INTO response_events (response, first, data) VALUES (?, ?, ?)"
)

// sqlRepeated reads along responses_repeat, also where several ask.
var sqlRepeated = driver.PrefetchForm("SELECT id, hash, created_at, expires_at FROM responses WHERE tenant = ? AND repeat_key = ? ORDER BY no DESC LIMIT 1", `
SELECT x.p1, x.p2, q.* FROM %s, LATERAL (
  SELECT id, hash, created_at, expires_at FROM responses WHERE tenant = x.p1 AND repeat_key = x.p2 ORDER BY no DESC LIMIT 1 + 0) AS q`)

// repeatName names what a request and its repeats share.
func (n *NewRow) repeatName() driver.RowName {
	return driver.RowName{Of: "responses by request", No: n.Tenant, ID: n.Repeat}
}

// Add stores a response, with the job that makes it if it has one. existing is the id of the
// response that an earlier request has made, if this one repeats it.
func (s *Store) Add(ctx context.Context, n NewRow) (existing string, err error) {
	o := db.Op{Stage: db.StageSubmit, Party: n.Tenant, Rows: 4, Numbers: 1, Size: len(n.Request.Inline) + len(n.Object.Inline) + len(n.Events),
		Local: true, Interleaves: true, Touches: []driver.RowName{rowName(n.ID)}}
	if n.Repeat != "" {
		o.Asks = func() []driver.Prefetch {
			return []driver.Prefetch{driver.NewPrefetch(sqlRepeated, n.repeatName()).Int(n.Tenant).Text(n.Repeat)}
		}
	}
	return db.TransactIn(ctx, jobs.Key, s.Writer, o, func(t *jobs.Tx) (existing string, err error) {
		if n.Repeat != "" {
			if existing, err = n.madeBefore(t); err != nil || existing != "" {
				return existing, err
			}
		}
		if n.Refusal != nil {
			return "", n.Refusal
		}
		seq := int64(0)
		if n.Job != nil {
			submitted, err := t.Submit(n.Job)
			if err == nil {
				err = submitted.Err
			}
			if err != nil {
				return "", err
			}
			seq = submitted.Seq
		}
		created, ended := t.Now, int64(0)
		if n.Job == nil {
			created, ended = driver.MillisOrZero(n.Created), t.Now
		}
		expires := int64(db.Never)
		if n.Keep > 0 {
			expires = created + n.Keep.Milliseconds()
		}
		err = t.Prep(sqlInsert).Text(n.ID).Int(n.Tenant).IntOrNull(seq).Int(created).Int(expires).IntOrNull(ended).Text(n.Status).Text(n.Model).Text(n.Previous).
			TextOrNull(n.Repeat).TextOrNull(n.Hash).Int(n.State.Sequence).Int(int64(n.State.Place)).Int(int64(len(n.Events))).
			Int(n.Request.Size).TextOrNull(n.Request.Blob).Blob(n.Request.Inline).Int(n.Object.Size).TextOrNull(n.Object.Blob).Blob(n.Object.Inline).Exec()
		if err == nil && n.Events != nil {
			err = t.Prep(sqlInsertFirst).Int(0).Blob(n.Events).Text(n.ID).Exec()
		}
		return "", err
	})
}

// madeBefore returns the id of the response that an earlier request has made, or "".
func (n *NewRow) madeBefore(t *jobs.Tx) (id string, err error) {
	var hash string
	var created, expires int64
	found, err := t.Prep(sqlRepeated).Int(n.Tenant).Text(n.Repeat).One(func(r driver.Row) { id, hash, created, expires = r.Text(0), r.Text(1), r.Int(2), r.Int(3) })
	switch {
	case err != nil || !found, n.Repeated == 0, n.Repeated < db.Never && created < t.Now-n.Repeated:
		return "", err
	case expires <= t.Now && n.Repeated < db.Never:
		return "", nil
	case expires <= t.Now:
		return "", forebay.Errorf(forebay.CodeGone, "this idempotency key made a response that was deleted since")
	case hash != n.Hash:
		return "", forebay.Errorf(forebay.CodeIdempotencyMismatch, "this idempotency key was used with another request")
	}
	return id, nil
}

const (
	sqlOpen   = " AND status IN ('queued', 'in_progress')"
	sqlBegin  = "UPDATE responses SET runner = ? WHERE no = ?" + sqlOpen
	sqlDelete = "UPDATE responses SET expires_at = 0 WHERE no = ? AND id = ? AND expires_at + 0 > ?" // SQLite gives numbers again
)

// Begin lets the caller write a response's events, under a number that nobody else has. It returns
// the response as it stands. The error is forebay.ErrNotFound if it is gone, or if another job
// makes it.
func (s *Store) Begin(ctx context.Context, tenant int64, id string, runner int64, job string) (row Row, err error) {
	const ask = sqlRow + "id = ? AND tenant = ? AND expires_at > ?"
	o := db.Op{Stage: db.StageChange, Party: tenant, Local: true, Interleaves: true, Touches: []driver.RowName{rowName(id)}}
	return db.Transact(ctx, s.Writer, o, func(t *db.Tx) (row Row, err error) {
		found, err := t.Prep(ask).Text(id).Int(tenant).Int(t.Now).One(func(r driver.Row) { row = readRow(r) })
		if err != nil {
			return row, err
		}
		if !found || row.Job != job {
			return row, forebay.ErrNotFound
		}
		return row, t.Prep(sqlBegin).Int(runner).Int(row.No).Exec()
	})
}

// Group is some events of a response, in their order, and how the stream stands before and after.
type Group struct {
	Data       []byte // JSON, a line for each
	From, Then bridge.State
}

// writing is who writes the events of which response.
type writing struct {
	no, tenant, seq int64
	id              string
	runner          int64
}

const (
	sqlAppend = "UPDATE responses SET status = 'in_progress', events = ?, places = ?, events_size = events_size + ? WHERE no = ? AND runner = ? AND events = ?" + sqlOpen
	sqlFinish = `UPDATE responses SET status = ?, events = ?, places = ?, events_size = events_size + ?, ended_at = ?,
  object_size = ?, object_blob = ?, object = ? WHERE no = ? AND runner = ? AND events = ?` + sqlOpen
)

func (w *writing) op(size int) db.Op {
	return db.Op{Stage: db.StageChange, Party: w.tenant, Rows: 2, Size: size, Local: true, Interleaves: true, Touches: []driver.RowName{rowName(w.id)}}
}

// Append stores events. The error is forebay.ErrLockLost if the response has ended, or if another
// attempt writes its events now.
func (s *Store) Append(ctx context.Context, w writing, g Group) error {
	_, err := db.Transact(ctx, s.Writer, w.op(len(g.Data)), func(t *db.Tx) (struct{}, error) {
		err := t.Prep(sqlAppend).Int(g.Then.Sequence).Int(int64(g.Then.Place)).Int(int64(len(g.Data))).Int(w.no).Int(w.runner).Int(g.From.Sequence).Fenced()
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, w.insert(t, g)
	})
	return err
}

func (w *writing) insert(t *db.Tx, g Group) error {
	t.Changed(w.seq)
	if len(g.Data) == 0 {
		return nil
	}
	return t.Prep(sqlInsertMore).Int(w.no).Int(g.From.Sequence).Blob(g.Data).Exec()
}

// Finish stores the last events of a response, and how it ended. The error is as that of Append.
func (s *Store) Finish(ctx context.Context, w writing, g Group, status string, object Payload) error {
	_, err := db.TransactIn(ctx, key, s.Writer, w.op(len(g.Data)+len(object.Inline)), func(t *tx) (struct{}, error) {
		err := t.Prep(sqlFinish).Text(status).Int(g.Then.Sequence).Int(int64(g.Then.Place)).Int(int64(len(g.Data))).Int(t.Now).
			Int(object.Size).TextOrNull(object.Blob).Blob(object.Inline).Int(w.no).Int(w.runner).Int(g.From.Sequence).Fenced()
		if err != nil {
			return struct{}{}, err
		}
		t.ended(w.tenant, w.id, status)
		return struct{}{}, w.insert(t.Tx, g)
	})
	return err
}

const sqlEndWithJob = "UPDATE responses SET status = ?, error_code = ?, error_message = ?, ended_at = ? WHERE seq = ?" + sqlOpen

// Follow ends responses whose jobs end without success, in the same transactions.
func (s *Store) Follow(list *jobs.Store) {
	list.WhenEnded(func(t *db.Tx, e jobs.Ended) error {
		switch {
		case e.Status == forebay.StatusSucceeded || !strings.HasPrefix(e.Task, taskPrefix):
			return nil
		case e.Status == forebay.StatusCancelled:
			return key.Of(t).endWithJob(e.Seq, bridge.StatusCancelled, nil)
		}
		return key.Of(t).endWithJob(e.Seq, bridge.StatusFailed, &bridge.Failure{Code: FailureCode(e.Failure.Code), Message: string(e.Failure.Message)})
	})
}

const sqlEventRows = `SELECT first, data FROM response_events WHERE response = ?1
  AND first >= coalesce((SELECT max(e.first) FROM response_events e WHERE e.response = ?1 AND e.first <= ?2), 0)
  AND EXISTS (SELECT 1 FROM responses r WHERE r.no = ?1 AND r.id = ?4) ORDER BY first LIMIT ?3 + 0`

// EventRow is a group of events as it is stored.
type EventRow struct {
	First int64  // sequence number of the first of them
	Data  []byte // JSON, a line for each
}

// Events returns groups of events, beginning with the one that has the event of that number, so
// many at most. There are none once the response is gone, whose number may be another's by then.
func (s *Store) Events(ctx context.Context, of Row, from int64, most int) (rows []EventRow, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		rows = nil
		return c.Prep(sqlEventRows).Int(of.No).Int(from).Int(int64(most)).Text(of.ID).Each(func(r driver.Row) error {
			rows = append(rows, EventRow{r.Int(0), r.Blob(1)})
			return nil
		})
	})
	return rows, err
}

// Delete makes a response invisible. It reports whether there was one.
func (s *Store) Delete(ctx context.Context, row Row) (deleted bool, err error) {
	o := db.Op{Stage: db.StageChange, Party: row.Tenant, Local: true, Interleaves: true, Touches: []driver.RowName{rowName(row.ID)}}
	return db.Transact(ctx, s.Writer, o, func(t *db.Tx) (bool, error) {
		if row.Seq != 0 {
			t.Changed(row.Seq)
		}
		n, err := t.Prep(sqlDelete).Int(row.No).Text(row.ID).Int(t.Now).Count()
		return n > 0, err
	})
}
