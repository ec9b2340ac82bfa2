package batches

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/files"
)

// State is where a batch is.
type State string

// The states of OpenAI's batches.
const (
	Validating State = "validating"
	InProgress State = "in_progress"
	Finalizing State = "finalizing"
	Cancelling State = "cancelling"
	Completed  State = "completed"
	Failed     State = "failed"
	Expired    State = "expired"
	Cancelled  State = "cancelled"
)

// Over reports whether nothing more becomes of the batch.
func (s State) Over() bool {
	return s == Completed || s == Failed || s == Expired || s == Cancelled
}

// Batch is a batch as its row has it.
type Batch struct {
	No           int64
	ID           string
	Tenant       int64
	Endpoint     string
	Model        string // "": not known yet
	InputFile    string // id
	Window       string
	Metadata     []byte // JSON; nil: none
	OutputTTL    time.Duration
	KeyID        string
	State        State
	EndsAs       State
	CreatedAt    time.Time
	ExpiresAt    time.Time
	InProgressAt *time.Time
	FinalizingAt *time.Time
	CancellingAt *time.Time
	EndedAt      *time.Time
	Errors       []byte // JSON, a list of LineError; nil: none
	Total        int64
	Fed          int64
	FedBytes     int64
	Ended        int64
	Completed    int64
	Failed       int64
	Priority     int
	Usage        []byte // JSON, a Usage; nil: not known yet
	OutputFile   string // id; "": none
	ErrorFile    string
	Lease        int64
}

const batchColumns = `no, id, tenant, endpoint, model, input_file, completion_window, metadata, output_ttl, key_id, state, ends_as,
  created_at, expires_at, in_progress_at, finalizing_at, cancelling_at, ended_at, errors, total, fed, fed_bytes, ended, completed, failed,
  priority, usage, output_file, error_file, lease`

const batchNumbers = 30 // of columns

func readBatch(r driver.Row) Batch {
	return Batch{
		No: r.Int(0), ID: r.Text(1), Tenant: r.Int(2), Endpoint: r.Text(3), Model: r.Text(4), InputFile: r.Text(5), Window: r.Text(6), Metadata: r.Blob(7),
		OutputTTL: driver.FromMillisDuration(r.Int(8)), KeyID: r.Text(9), State: State(r.Text(10)), EndsAs: State(r.Text(11)),
		CreatedAt: driver.FromMillis(r.Int(12)), ExpiresAt: driver.FromMillis(r.Int(13)), InProgressAt: driver.FromMillisOrNil(r, 14),
		FinalizingAt: driver.FromMillisOrNil(r, 15), CancellingAt: driver.FromMillisOrNil(r, 16), EndedAt: driver.FromMillisOrNil(r, 17), Errors: r.Blob(18),
		Total: r.Int(19), Fed: r.Int(20), FedBytes: r.Int(21), Ended: r.Int(22), Completed: r.Int(23), Failed: r.Int(24), Priority: int(r.Int(25)),
		Usage: r.Blob(26), OutputFile: r.Text(27), ErrorFile: r.Text(28), Lease: r.Int(29),
	}
}

const (
	sqlBatchByKey = "SELECT " + batchColumns + `, request_hash FROM batches
WHERE tenant = ? AND idempotency_key = ? AND created_at > ? ORDER BY created_at DESC LIMIT 1`
	sqlBatchByRequest = "SELECT " + batchColumns + `, request_hash FROM batches
WHERE tenant = ? AND request_hash = ? AND created_at > ? ORDER BY created_at DESC LIMIT 1`
	sqlInsertBatch = `
INSERT INTO batches (id, tenant, endpoint, input_file, completion_window, metadata, output_ttl, key_id, idempotency_key, request_hash, state,
  created_at, expires_at, priority, due_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'validating', ?, ?, ?, ?)`
)

// errNoInput refuses a batch of a file that the tenant does not have.
var errNoInput = &forebay.Error{Code: forebay.CodeInvalidRequest, Field: "input_file_id", Message: "is no file of yours with the purpose batch"}

// Create stores a batch, whose window begins now. existing says that an earlier request has made
// it.
func (s *Store) Create(ctx context.Context, b Batch, window time.Duration, o files.Origin) (made Batch, existing bool, err error) {
	type created struct {
		batch    Batch
		existing bool
	}
	op := db.Op{Stage: db.StageChange, Party: b.Tenant, Size: len(b.Metadata)}
	c, err := db.TransactIn(ctx, key, s.Writer, op, func(t *tx) (c created, err error) {
		if o.Repeats() {
			sql, value := sqlBatchByRequest, o.Hash
			if o.Key != "" {
				sql, value = sqlBatchByKey, o.Key
			}
			hash := ""
			c.existing, err = t.Prep(sql).Int(b.Tenant).Text(value).Int(o.Since(t.Now)).One(func(r driver.Row) { c.batch, hash = readBatch(r), r.Text(batchNumbers) })
			if err == nil && c.existing && hash != o.Hash {
				err = files.ErrOtherRequest
			}
			if err != nil || c.existing {
				return c, err
			}
		}
		if o.Refusal != nil {
			return c, o.Refusal
		}
		found, err := files.Use(t.Tx, b.Tenant, b.InputFile, files.PurposeBatch)
		if err == nil && !found {
			err = errNoInput
		}
		if err != nil {
			return c, err
		}
		c.batch = b
		c.batch.State, c.batch.CreatedAt, c.batch.ExpiresAt = Validating, driver.FromMillis(t.Now), driver.FromMillis(t.Now).Add(window)
		t.due = true
		t.tell(b.Tenant, b.ID, Validating)
		return c, t.Prep(sqlInsertBatch).Text(b.ID).Int(b.Tenant).Text(b.Endpoint).Text(b.InputFile).Text(b.Window).Blob(b.Metadata).
			IntOrNull(b.OutputTTL.Milliseconds()).TextOrNull(b.KeyID).TextOrNull(o.Key).Text(o.Hash).Int(t.Now).Int(t.Now + window.Milliseconds()).
			Int(int64(b.Priority)).Int(t.Now).Exec()
	})
	return c.batch, c.existing, err
}

const (
	sqlBatch   = "SELECT " + batchColumns + " FROM batches WHERE id = ? AND tenant = ?"
	sqlBatchNo = "SELECT " + batchColumns + " FROM batches WHERE no = ?"
)

// Batch returns a batch of the tenant, or forebay.ErrNotFound.
func (s *Store) Batch(ctx context.Context, tenant int64, id string) (b Batch, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err := c.Prep(sqlBatch).Text(id).Int(tenant).One(func(r driver.Row) { b = readBatch(r) })
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		return err
	})
	return b, err
}

const sqlBatches = "SELECT " + batchColumns + " FROM batches WHERE tenant = ? AND id < ? ORDER BY id DESC LIMIT ? + 0"

// lastID comes after all ids.
const lastID = "~"

// Batches returns the tenant's batches after one, newest first, and whether there are more. after
// may be "".
func (s *Store) Batches(ctx context.Context, tenant int64, after string, limit int) (list []Batch, more bool, err error) {
	if after == "" {
		after = lastID
	}
	err = s.Read(ctx, func(c driver.Conn) error {
		list, more = nil, false
		return c.Prep(sqlBatches).Int(tenant).Text(after).Int(int64(limit) + 1).Each(func(r driver.Row) error {
			if len(list) == limit {
				more = true
				return nil
			}
			list = append(list, readBatch(r))
			return nil
		})
	})
	return list, more, err
}

const sqlCancel = `
UPDATE batches SET state = 'cancelling', ends_as = 'cancelled', cancelling_at = ?1, due_at = ?1
WHERE id = ?2 AND tenant = ?3 AND state IN ('validating', 'in_progress', 'finalizing')`

// Cancel begins to cancel a batch. One that is being cancelled, or was, stays as it is. The error
// for one that ended otherwise is ErrEnded.
func (s *Store) Cancel(ctx context.Context, tenant int64, id string) (Batch, error) {
	op := db.Op{Stage: db.StageChange, Party: tenant}
	return db.TransactIn(ctx, key, s.Writer, op, func(t *tx) (b Batch, err error) {
		if err := t.Prep(sqlCancel).Int(t.Now).Text(id).Int(tenant).Exec(); err != nil {
			return b, err
		}
		found, err := t.Prep(sqlBatch).Text(id).Int(tenant).One(func(r driver.Row) { b = readBatch(r) })
		switch {
		case err != nil:
		case !found:
			err = forebay.ErrNotFound
		case b.State != Cancelling && b.State != Cancelled:
			err = ErrEnded{b.State}.refusal()
		default:
			t.due = true
			t.tell(tenant, b.ID, b.State)
		}
		return b, err
	})
}

// ErrEnded says that a batch cannot be cancelled.
type ErrEnded struct{ As State }

func (e ErrEnded) Error() string { return "Cannot cancel a batch with status '" + string(e.As) + "'." }

// refusal is the error as the engine takes it: nothing was changed.
func (e ErrEnded) refusal() error {
	return forebay.Errorf(forebay.CodeConflict, "%s", e.Error()).Caused(e)
}
