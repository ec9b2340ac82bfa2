package batches

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/files"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/payload"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/report"
	"github.com/forebayhq/forebay/internal/retry"
)

// stores are those that the tests of this package need.
type stores struct {
	DB      *db.DB
	Queues  *queue.Store
	Jobs    *jobs.Store
	Files   *files.Store
	Batches *Store
}

// fixture opens them on every engine.
var fixture = dbtest.Fixture[*stores]{
	Open: func(ctx context.Context, opts db.Options) (*stores, error) {
		queues := &queue.Store{}
		s := &stores{Queues: queues, Jobs: &jobs.Store{Store: queues}, Files: &files.Store{Store: queues}, Batches: &Store{Store: queues}}
		s.Jobs.Admission = &admission.Store{Store: queues}
		s.Batches.Follow(s.Jobs)
		var err error
		s.DB, err = db.Open(ctx, opts, s.Queues, &audit.Store{}, bus.NewStore(queues), s.Jobs.Admission, s.Jobs, &report.Store{Store: queues}, s.Files, s.Batches)
		return s, err
	},
	DB:     func(s *stores) *db.DB { return s.DB },
	Parked: func(s *stores, t *db.Tx) int { return len(jobs.Key.In(s.DB.Writer).Waiters) },
}

// onClocks tests new stores on SQLite and on PostgreSQL, by a clock that the test moves.
func onClocks(t *testing.T, test func(r *running)) {
	t.Parallel()
	run := func(t *testing.T, e dbtest.Engine[*stores]) {
		st := e.Open(t)
		defer func() {
			if err := st.DB.Close(); err != nil {
				t.Error(err)
			}
		}()
		r := newRunning(t, st)
		r.pass = func(d time.Duration) { e.Pass(st, d) }
		test(r)
	}
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "forebay.db")
		synctest.Test(t, func(t *testing.T) { run(t, fixture.Bubble(path)) })
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		run(t, fixture.ClockSchema(dbtest.NewClockServer(t)))
	})
}

// running is a service of batches whose steps and jobs a test carries out.
type running struct {
	*testing.T
	*Service
	st     *stores
	files  *files.Service
	worker *jobs.Worker
	pass   func(time.Duration)
	tenant int64
}

func newRunning(t *testing.T, st *stores) *running {
	t.Helper()
	blobs, err := blob.Open(t.Context(), filepath.Join(t.TempDir(), "blobs"))
	r := &running{T: t, st: st}
	r.must(err)
	t.Cleanup(func() { blobs.Close() })
	payloads := payload.New(payload.Options{Blobs: blobs, Recorded: st.Jobs.BlobRecorded, Settled: st.DB.Settled})
	o := jobs.Options{Store: st.Jobs, Payloads: payloads, MaxInputBytes: 1 << 20}
	o.Tasks = map[string]forebay.Task{"line": {Name: "line"}}
	o.Queues = []jobs.Queue{{Name: forebay.DefaultQueue, Concurrency: 8, LockDuration: time.Minute, MaxDeliveryCount: 3, OnFailure: forebay.DeadLetters, Spare: true, NoDeadLetters: true,
		Retry: retry.Policy{Backoff: retry.Fixed, First: time.Second, Max: time.Minute, Coefficient: 2, Attempts: 1}}}
	list, err := jobs.New(t.Context(), o)
	r.must(err)
	r.worker = list.Worker()
	r.files = files.New(files.Options{Store: st.Files, Blobs: blobs})
	r.Service = New(Options{
		Store: st.Batches, Files: st.Files, Blobs: blobs, Jobs: list, Queue: forebay.DefaultQueue, Endpoints: []string{"/v1/chat/completions"},
		Serves: func(string) (bool, bool) { return true, true }, Task: func(string, string) string { return "line" }, MaxLineBytes: 1 << 20,
	})
	r.tenant, err = st.Queues.EnsureTenant(t.Context(), "acme")
	r.must(err)
	return r
}

func (r *running) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// upload stores an input of so many lines.
func (r *running) upload(lines int) string {
	r.Helper()
	return r.uploadOf("acme", lines)
}

func (r *running) uploadOf(tenant string, lines int) string {
	r.Helper()
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, `{"custom_id":"c%d","method":"POST","url":"/v1/chat/completions","body":{"model":"m","n":%d}}`+"\n", i, i)
	}
	f, _, err := r.files.Create(r.Context(), tenant, &files.Upload{Purpose: files.PurposeBatch}, strings.NewReader(b.String()), func() error { return nil })
	r.must(err)
	return f.ID
}

// create makes a batch of an input.
func (r *running) create(file, window string) Batch {
	r.Helper()
	return r.createOf("acme", file, window)
}

func (r *running) createOf(tenant, file, window string) Batch {
	r.Helper()
	b, _, err := r.Create(r.Context(), tenant, Request{InputFile: file, Endpoint: "/v1/chat/completions", Window: window})
	r.must(err)
	return b
}

// read reads a batch.
func (r *running) read(id string) Batch {
	r.Helper()
	b, err := r.Batch(r.Context(), "acme", id)
	r.must(err)
	return b
}

// work does what is due until nothing is.
func (r *running) work() {
	r.Helper()
	for range 50 {
		due, _, err := r.Store.Due(r.Context())
		r.must(err)
		if len(due) == 0 {
			return
		}
		for _, d := range due {
			r.must(r.Work(r.Context(), d.No))
		}
	}
	r.Fatal("batches are due for ever")
}

// claim takes up to so many jobs that are ready.
func (r *running) claim(most int) []*jobs.Delivery {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	list, err := r.worker.Claim(ctx, r.worker.Configured()[0], false, most, 1<<30)
	r.must(err)
	return list
}

// answer ends deliveries with success.
func (r *running) answer(list []*jobs.Delivery) {
	r.Helper()
	for _, d := range list {
		output := json.RawMessage(fmt.Sprintf(`{"status_code":200,"request_id":"r","body":{"was":%s,"usage":{"prompt_tokens":2,"completion_tokens":3}}}`, d.Input))
		_, err := r.worker.Finish(r.Context(), d, forebay.TaskResult{Output: output}, nil)
		r.must(err)
	}
}

// output returns the lines of a file; none if it has no id.
func (r *running) output(id string) (lines []string) {
	r.Helper()
	if id == "" {
		return nil
	}
	content, f, err := r.files.Content(r.Context(), "acme", id)
	r.must(err)
	defer content.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(content)
	r.must(err)
	if int64(b.Len()) != f.Size {
		r.Errorf("a file of %d bytes has %d", f.Size, b.Len())
	}
	for line := range strings.Lines(b.String()) {
		lines = append(lines, line)
	}
	return lines
}

// What is asked finds rows by an index.
func TestPlansOnSQLite(t *testing.T) {
	fixture.PlansOnSQLite(t, nil, statements...)
}

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, statements...)
}

var statements = []string{sqlEndLine, sqlCount, sqlBatchByKey, sqlBatchByRequest, sqlBatch, sqlBatchNo, sqlBatches, sqlCancel, sqlDue, sqlEndLeases, sqlNextDue, sqlLease, sqlRenew, sqlRelease,
	sqlWaitingLines, sqlForgetLines, sqlForget, sqlKeep, sqlFirstLine, sqlLastLine, sqlEnded}
