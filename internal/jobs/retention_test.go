package jobs

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
	"pgregory.net/rapid"
)

// lived is what the model knows of a job: how it ended, if it did, and when.
type lived struct {
	NewJob
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
	s       *stores
	e       engine
	tenants [2]int64
	queues  map[string]int64
	jobs    []*lived
	serial  int
	highest int64
}

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

// live makes a job and takes it to its end, if it has one. Each way has a queue of its own, so that a
// claim gets the job it is for.
func (h *historian) live(life string) {
	ctx := h.t.Context()
	queueID := h.number(h.s.Queues.EnsureQueue(ctx, life))
	h.serial++
	id := fmt.Sprintf("job_%d", h.serial)
	j := &lived{NewJob: NewJob{
		ID: id, Tenant: rapid.SampledFrom(h.tenants[:]).Draw(h.t, "tenant"), Queue: queueID, Task: "echo", MaxAttempts: 5, Input: []byte("1"), InputSize: 1,
		InputBlob: "in/" + id, IdempotencyKey: "key " + id, BodyHash: []byte(id),
	}}
	if life == "expires" {
		at := time.UnixMilli(h.e.Now() + 1000)
		j.Deadline = &at
	}
	h.jobs = append(h.jobs, j)
	got, err := h.s.Jobs.Submit(ctx, []NewJob{j.NewJob})
	h.ok(errors.Join(err, got[0].Err))
	row, err := h.s.Jobs.Job(ctx, j.Tenant, id)
	h.ok(err)
	j.seq, h.highest = row.Seq, max(h.highest, row.Seq)
	j.ended = h.e.Now()
	failed := AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent}
	switch life {
	case "waits":
	case "runs":
		h.claim(queueID)
	case "succeeds":
		h.ok(h.s.Jobs.Succeed(ctx, h.claim(queueID), AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Blob: "out/" + id, Size: 100_000}))
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
		h.ok(h.s.Jobs.SetAside(ctx, h.claim(queueID), failed, rapid.SampledFrom([]queue.SubqueueKind{queue.SubqueueDeadLetter, queue.SubqueueQuarantine}).Draw(h.t, "where"), "broken"))
		j.status, j.setAside = forebay.StatusFailed, true
		if life == "fails" {
			_, err := h.s.Jobs.Purge(ctx, []int64{j.seq}, audit.Act{})
			h.ok(err)
			j.setAside = false
		}
		if life == "is redriven" {
			_, err := h.s.Jobs.Redrive(ctx, []Redrive{{Seq: j.seq, Delay: 10_000 * time.Hour}}, audit.Act{})
			h.ok(err)
			j.status, j.setAside = "", false
		}
	}
}

func (h *historian) claim(queueID int64) *LockedJob {
	h.t.Helper()
	got, err := h.s.Jobs.Claim(h.t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 100, MaxBytes: 1 << 20, Lock: 10_000 * time.Hour, MaxDeliveries: 10, SetAside: queue.SubqueueDeadLetter})
	h.ok(err)
	if len(got) != 1 {
		h.t.Fatalf("%d deliveries", len(got))
	}
	return &got[0]
}

func (h *historian) query() (q PurgeQuery) {
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

func (h *historian) remaining(q PurgeQuery) (stay []*lived) {
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

// purge follows the steps to their end and checks that each blob is named that has no job any more.
func (h *historian) purge(q PurgeQuery) (removed int) {
	blobs := map[string]bool{}
	for step := (PurgeStep{More: true}); step.More; {
		var err error
		step, err = h.s.Jobs.NextPurge(h.t.Context(), q, step.Last)
		h.ok(err)
		if step.Count == 0 {
			continue
		}
		for range 2 { // the second time there is nothing left
			done, err := h.s.Jobs.PurgeStep(h.t.Context(), q, step, nil)
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
		again, submitErr := h.s.Jobs.Submit(h.t.Context(), []NewJob{j.NewJob})
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
		before, err := s.Bus.MessageCounts(t.Context(), q, bus.CountLimit)
		h.ok(err)
		e.Pass(s, time.Hour)
		if n := h.purge(PurgeQuery{SetAside: time.UnixMilli(e.Now())}); n != 2 {
			t.Fatalf("%d jobs", n)
		}
		after, err := s.Bus.MessageCounts(t.Context(), q, bus.CountLimit)
		h.ok(err)
		if after != before || after.DeadLetter != 1 {
			t.Fatalf("%+v, then %+v", before, after)
		}
	})
}

// Of those who come in the same time one gets the turn.
func TestTakeTurn(t *testing.T) {
	fixture.OnEveryEngine(t, func(t *rapid.T, e engine) {
		s := e.Open(t)
		defer s.DB.Close()
		turns := 0
		var next int64
		for range rapid.IntRange(1, 20).Draw(t, "times") {
			mine, err := s.Jobs.ClaimChore(t.Context(), "chore", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if mine != (e.Now() >= next) {
				t.Fatalf("at %d: %t, the next turn is at %d", e.Now(), mine, next)
			}
			if mine {
				next = e.Now() + time.Hour.Milliseconds()
				turns++
			}
			e.Pass(s, time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes"))*time.Minute)
		}
		if turns == 0 {
			t.Fatal("nobody got a turn")
		}
		if mine, err := s.Jobs.ClaimChore(t.Context(), "other", time.Hour); err != nil || !mine {
			t.Fatalf("another chore: %t (%v)", mine, err)
		}
	})
}
