package retention

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/stores"
)

// fixture opens all stores on every engine.
var fixture = dbtest.Fixture[*stores.Stores]{
	Open: func(ctx context.Context, opts db.Options) (*stores.Stores, error) { return stores.Open(ctx, opts) },
	DB:   func(s *stores.Stores) *db.DB { return s.DB },
	Parked: func(s *stores.Stores, _ *db.Tx) int {
		return len(jobs.Key.In(s.DB.Writer).Waiters) + len(bus.Key.In(s.DB.Writer).Waiters)
	},
}

type engine = dbtest.Engine[*stores.Stores]

// lived is what the model knows of a job: how it ended, if it did, and when.
type lived struct {
	jobs.NewJob
	seq      int64
	status   forebay.Status // "": it is not over
	setAside bool
	ended    int64
}

// TestPurge lets jobs end in all ways there are, at random times, and purges by random ages. What
// should have stayed is there with all that belongs to it, and of the rest nothing is.
func TestPurge(t *testing.T) {
	fixture.OnEveryEngine(t, func(t *rapid.T, e engine) {
		s := e.Open(t)
		defer func() { s.DB.Close() }()
		h := &historian{t: t, s: s, e: e, queues: map[string]int64{}}
		h.tenants[0], h.tenants[1] = h.number(s.Queues.EnsureTenant(t.Context(), "a")), h.number(s.Queues.EnsureTenant(t.Context(), "b"))
		for range rapid.IntRange(1, 12).Draw(t, "jobs") {
			h.live(rapid.SampledFrom([]string{"waits", "runs", "succeeds", "fails", "is set aside", "is redriven", "is cancelled", "expires"}).Draw(t, "life"))
			e.Pass(s, time.Duration(rapid.IntRange(0, 48).Draw(t, "hours"))*time.Hour)
		}
		for range 3 {
			q := h.query()
			want := h.remaining(q)
			removed := h.purge(q)
			if removed != len(h.jobs)-len(want) {
				t.Fatalf("%d jobs purged of %d, of which %d should stay", removed, len(h.jobs), len(want))
			}
			h.check(want)
			h.jobs = want
			e.Pass(s, 24*time.Hour)
		}
		// No number is given twice, for keys still name those of the purged.
		if err := s.DB.Close(); err != nil {
			t.Fatal(err)
		}
		s = e.Reopen(t)
		h.s = s
		highest := h.highest
		if h.live("waits"); h.jobs[len(h.jobs)-1].seq <= highest {
			t.Fatalf("job %d after %d", h.jobs[len(h.jobs)-1].seq, highest)
		}
	})
}

type historian struct {
	t       *rapid.T
	s       *stores.Stores
	e       engine
	tenants [2]int64
	queues  map[string]int64
	jobs    []*lived
	serial  int
	highest int64
}

func (h *historian) service() *Service { return New(h.s.Jobs, nil) }

func (h *historian) number(n int64, err error) int64 {
	h.ok(err)
	return n
}

func (h *historian) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// live makes a job and takes it to its end, if it has one. Each way has a queue of its own, so
// that a claim gets the job it is for.
func (h *historian) live(life string) {
	ctx := h.t.Context()
	queueID := h.number(h.s.Queues.EnsureQueue(ctx, life))
	h.serial++
	id := fmt.Sprintf("job_%d", h.serial)
	j := &lived{NewJob: jobs.NewJob{
		ID: id, Tenant: rapid.SampledFrom(h.tenants[:]).Draw(h.t, "tenant"), Queue: queueID, Task: "echo", MaxAttempts: 5, Input: []byte("1"), InputSize: 1,
		InputBlob: "in/" + id, IdempotencyKey: "key " + id, BodyHash: []byte(id),
	}}
	if life == "expires" {
		at := time.UnixMilli(h.e.Now() + 1000)
		j.Deadline = &at
	}
	h.jobs = append(h.jobs, j)
	got, err := h.s.Jobs.Submit(ctx, []jobs.NewJob{j.NewJob})
	h.ok(errors.Join(err, got[0].Err))
	row, err := h.s.Jobs.Job(ctx, j.Tenant, id)
	h.ok(err)
	j.seq, h.highest = row.Seq, max(h.highest, row.Seq)
	j.ended = h.e.Now()
	failed := jobs.AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent}
	switch life {
	case "waits":
	case "runs":
		h.claim(queueID)
	case "succeeds":
		h.ok(h.s.Jobs.Succeed(ctx, h.claim(queueID), jobs.AttemptRecord{Outcome: forebay.OutcomeSucceeded}, jobs.Output{Blob: "out/" + id, Size: 100_000}))
		j.status = forebay.StatusSucceeded
	case "is cancelled":
		_, err := h.s.Jobs.Cancel(ctx, j.seq)
		h.ok(err)
		j.status = forebay.StatusCancelled
	case "expires":
		h.e.Pass(h.s, 2*time.Second)
		row, err := h.s.Jobs.Job(ctx, j.Tenant, id)
		h.ok(err)
		j.status, j.ended = row.Status, row.CompletedAt.UnixMilli()
	default:
		h.ok(h.s.Jobs.DeadLetter(ctx, h.claim(queueID), failed, rapid.SampledFrom([]queue.SubqueueKind{queue.SubqueueDeadLetter, queue.SubqueueQuarantine}).Draw(h.t, "where"), "broken"))
		j.status, j.setAside = forebay.StatusFailed, true
		if life == "fails" {
			_, err := h.s.Jobs.PurgeDeadLetters(ctx, []jobs.Purge{{Seq: j.seq}}, audit.Act{})
			h.ok(err)
			j.setAside = false
		}
		if life == "is redriven" {
			_, err := h.s.Jobs.Redrive(ctx, []jobs.Redrive{{Seq: j.seq, Delay: 10_000 * time.Hour}}, audit.Act{})
			h.ok(err)
			j.status, j.setAside = "", false
		}
	}
}

func (h *historian) claim(queueID int64) *jobs.LockedJob {
	h.t.Helper()
	got, err := h.s.Jobs.Claim(h.t.Context(), jobs.ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 100, MaxBytes: 1 << 20, Lock: 10_000 * time.Hour, MaxDeliveries: 10, FailureSubqueue: queue.SubqueueDeadLetter})
	h.ok(err)
	if len(got) != 1 {
		h.t.Fatalf("%d deliveries", len(got))
	}
	return &got[0]
}

func (h *historian) query() (q query) {
	before := func(name string) time.Time {
		if rapid.Bool().Draw(h.t, name+" stays") {
			return time.Time{}
		}
		return time.UnixMilli(h.e.Now()).Add(-time.Duration(rapid.IntRange(0, 500).Draw(h.t, name)) * time.Hour)
	}
	q.Ended = map[forebay.Status]time.Time{}
	for _, status := range []forebay.Status{forebay.StatusSucceeded, forebay.StatusFailed, forebay.StatusCancelled, forebay.StatusExpired} {
		if at := before(string(status)); !at.IsZero() {
			q.Ended[status] = at
		}
	}
	q.SetAside = before("set aside")
	q.Tenant = rapid.SampledFrom([]int64{0, 0, h.tenants[0], h.tenants[1]}).Draw(h.t, "of tenant")
	return q
}

func (h *historian) remaining(q query) (stay []*lived) {
	for _, j := range h.jobs {
		before := q.Ended[j.status]
		if j.setAside {
			before = q.SetAside
		}
		if j.status == "" || before.IsZero() || j.ended >= before.UnixMilli() || q.Tenant != 0 && q.Tenant != j.Tenant {
			stay = append(stay, j)
		}
	}
	return stay
}

// purge follows the steps to their end and checks that each blob is named that has no job any
// more.
func (h *historian) purge(q query) (removed int) {
	blobs := map[string]bool{}
	for step := (stretch{More: true}); step.More; {
		var err error
		step, err = h.service().next(h.t.Context(), q, step.Last)
		h.ok(err)
		if step.Count == 0 {
			continue
		}
		for range 2 { // the second time there is nothing left
			done, err := h.service().remove(h.t.Context(), q, step, nil)
			h.ok(err)
			if done.Jobs != step.Count {
				h.t.Fatalf("%d jobs of %d", done.Jobs, step.Count)
			}
			step.Count = 0
			removed += done.Jobs
			for _, key := range done.Blobs {
				blobs[key] = true
			}
		}
	}
	stay := map[string]bool{}
	for _, j := range h.remaining(q) {
		stay[j.ID] = true
	}
	for _, j := range h.jobs {
		if blobs["in/"+j.ID] == stay[j.ID] || j.status == forebay.StatusSucceeded && blobs["out/"+j.ID] == stay[j.ID] {
			h.t.Fatalf("%s stays: %t, blobs removed: %v", j.ID, stay[j.ID], blobs)
		}
	}
	return removed
}

// check looks at every job there ever was.
func (h *historian) check(stay []*lived) {
	there := map[string]bool{}
	for _, j := range stay {
		there[j.ID] = true
	}
	for _, j := range h.jobs {
		row, err := h.s.Jobs.Job(h.t.Context(), j.Tenant, j.ID)
		again, submitErr := h.s.Jobs.Submit(h.t.Context(), []jobs.NewJob{j.NewJob})
		h.ok(submitErr)
		if there[j.ID] {
			h.ok(err)
			if row.Status != j.status && j.status != "" {
				h.t.Fatalf("%s is %s, was %s", j.ID, row.Status, j.status)
			}
			if again[0].ID != j.ID || !again[0].Existing {
				h.t.Fatalf("a repeat of %s's key: %+v", j.ID, again[0])
			}
			continue
		}
		if !errors.Is(err, forebay.ErrNotFound) || forebay.CodeOf(again[0].Err) != forebay.CodeGone {
			h.t.Fatalf("%s was purged: %v; a repeat of its key: %+v", j.ID, err, again[0])
		}
		for _, table := range []string{"jobs", "messages", "outcomes", "attempts", "events"} {
			if n := h.count(table, j.seq); n != 0 {
				h.t.Fatalf("%d rows of %s in %s", n, j.ID, table)
			}
		}
	}
}

func (h *historian) count(table string, seq int64) (n int64) {
	h.ok(h.s.DB.Read(context.Background(), func(c driver.Conn) error {
		_, err := c.Prep("SELECT count(*) FROM " + table + " WHERE seq = ?").Int(seq).One(func(r driver.Row) { n = r.Int(0) })
		return err
	}))
	return n
}

// A purge neither sees nor takes plain messages, which share the jobs' numbers and subqueues.
func TestPurgeLeavesMessagesAlone(t *testing.T) {
	fixture.OnEveryEngine(t, func(t *rapid.T, e engine) {
		s := e.Open(t)
		defer s.DB.Close()
		h := &historian{t: t, s: s, e: e}
		h.tenants[0] = h.number(s.Queues.EnsureTenant(t.Context(), "a"))
		h.tenants[1] = h.tenants[0]
		q, _, err := s.Bus.PutMessageQueue(t.Context(), bus.MessageQueue{Tenant: h.tenants[0], Name: "a/q", Lock: time.Minute, MaxDeliveries: 10}, 10)
		h.ok(err)
		h.live("is set aside")
		for range rapid.IntRange(1, 4).Draw(t, "messages") {
			_, err := s.Bus.Send(t.Context(), q, []bus.MessageContent{{MessageID: "m", Body: []byte("x")}})
			h.ok(err)
		}
		got, err := s.Bus.Receive(t.Context(), bus.ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1000})
		h.ok(err)
		h.ok(s.Bus.DeadLetter(t.Context(), q.Subqueue(false), got[0].Lock, bus.DeadLettering{Reason: "test"}, nil))
		h.live("is set aside")
		before, err := s.Bus.MessageCounts(t.Context(), q, entity.CountLimit)
		h.ok(err)
		e.Pass(s, time.Hour)
		if n := h.purge(query{SetAside: time.UnixMilli(e.Now())}); n != 2 {
			t.Fatalf("%d jobs", n)
		}
		after, err := s.Bus.MessageCounts(t.Context(), q, entity.CountLimit)
		h.ok(err)
		if after != before || after.DeadLetter != 1 {
			t.Fatalf("%+v, then %+v", before, after)
		}
	})
}

// open opens stores with some jobs of one queue, all of them with a worker.
func open(t *testing.T, opts db.Options, settings stores.Settings, n int) (*stores.Stores, []jobs.LockedJob) {
	t.Helper()
	s, err := stores.Open(t.Context(), opts, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.DB.Close() })
	tenant, err := s.Queues.EnsureTenant(t.Context(), "acme")
	mustDo(t, err)
	queueID, err := s.Queues.EnsureQueue(t.Context(), "q")
	mustDo(t, err)
	list := make([]jobs.NewJob, n)
	for i := range list {
		list[i] = jobs.NewJob{ID: fmt.Sprint("job_", i), Tenant: tenant, Queue: queueID, Task: "echo", MaxAttempts: 5, Input: []byte("1"), InputSize: 1}
	}
	_, err = s.Jobs.Submit(t.Context(), list)
	mustDo(t, err)
	got, err := s.Jobs.Claim(t.Context(), jobs.ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: n, MaxBytes: 1 << 20, Lock: time.Minute})
	if err != nil || len(got) != n {
		t.Fatalf("claimed %d of %d jobs: %v", len(got), n, err)
	}
	return s, got
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An entry of the audit log is of the job as it was, though the same transaction purges it.
func TestAuditOfAPurgedJob(t *testing.T) {
	t.Parallel()
	for kind, database := range dbtest.Databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			opts := database(t)
			opts.Serve = true
			s, got := open(t, opts, stores.Settings{AuditEvents: []forebay.EventType{forebay.EventCancelled}}, 1)
			ends := dbtest.InOneTransaction(t, s.DB, func() error {
				_, err := s.Jobs.Cancel(t.Context(), got[0].Seq)
				return err
			}, func() error {
				soon := query{Ended: map[forebay.Status]time.Time{forebay.StatusCancelled: time.Now().Add(time.Hour)}}
				done, err := New(s.Jobs, nil).remove(t.Context(), soon, stretch{First: got[0].Seq, Last: got[0].Seq}, &audit.Act{Action: "purge"})
				if err == nil && done.Jobs != 1 {
					err = fmt.Errorf("purged %+v", done)
				}
				return err
			})
			for _, err := range ends {
				mustDo(t, err)
			}
			entries, _, err := s.Audit.Entries(t.Context(), forebay.AuditFilter{}, 0, 10)
			mustDo(t, err)
			if len(entries) != 2 || entries[1].Action != "cancelled" || entries[1].Target != got[0].ID || entries[0].Action != "purge" || !entries[0].At.Equal(entries[1].At) {
				t.Errorf("got %+v", entries)
			}
		})
	}
}

// Jobs that a wrong clock has made in the future, or late, do not keep older ones behind them
// from being purged.
func TestRetentionPassesTheFuture(t *testing.T) {
	s, got := open(t, db.Options{Path: dbtest.SQLite(t), Serve: true}, stores.Settings{}, 3)
	for _, d := range got {
		mustDo(t, s.Jobs.Succeed(t.Context(), &d, jobs.AttemptRecord{Outcome: forebay.OutcomeSucceeded}, jobs.Output{Inline: []byte("1"), Size: 1}))
	}
	day := 24 * time.Hour
	_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
		for seq, at := range map[int64]int64{1: t.Now + day.Milliseconds(), 2: t.Now - time.Hour.Milliseconds(), 3: t.Now - 2*day.Milliseconds()} {
			for _, sql := range []string{"UPDATE jobs SET created_at = ? WHERE seq = ?", "UPDATE outcomes SET completed_at = ? WHERE seq = ?"} {
				if err := t.Prep(sql).Int(at).Int(seq).Exec(); err != nil {
					return struct{}{}, err
				}
			}
		}
		return struct{}{}, nil
	})
	mustDo(t, err)
	step, err := New(s.Jobs, nil).next(t.Context(), query{Ended: map[forebay.Status]time.Time{forebay.StatusSucceeded: time.Now().Add(-day)}}, 0)
	if err != nil || step.Count != 1 || step.First != 3 || step.Last != 3 {
		t.Errorf("%+v %v", step, err)
	}
}
