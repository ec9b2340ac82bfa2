package processes_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/processes"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/stores"
)

var fixture = dbtest.Fixture[*stores.Stores]{
	Open: func(ctx context.Context, o db.Options) (*stores.Stores, error) { return stores.Open(ctx, o) },
	DB:   func(s *stores.Stores) *db.DB { return s.DB },
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newService returns the service of a process that has entered.
func newService(t *testing.T, s *stores.Stores) *processes.Service {
	t.Helper()
	service := processes.New(processes.Options{DB: s.DB, Version: "test", Role: "all", Logger: slog.New(slog.DiscardHandler),
		Queues: func() []forebay.ProcessQueue {
			return []forebay.ProcessQueue{{Queue: "default", Concurrency: 8, Calls: 3}}
		},
		Number: s.Jobs.Process.Store})
	mustDo(t, service.Enter(t.Context()))
	return service
}

func states(t *testing.T, s *processes.Service) (list []string) {
	t.Helper()
	for _, p := range must(s.List(t.Context()))(t) {
		if p.Host == "" || p.PID == 0 || p.Version != "test" || len(p.Queues) != 1 || p.Queues[0].Calls != 3 || p.SeenAt.IsZero() {
			t.Errorf("a process is %+v", p)
		}
		list = append(list, p.ID+" "+string(p.State))
	}
	return list
}

// change changes the rows of processes as time or an operator would.
func change(t *testing.T, s *stores.Stores, sql string) {
	t.Helper()
	_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(x *db.Tx) (struct{}, error) { return struct{}{}, x.Prep(sql).Exec() })
	mustDo(t, err)
}

// A process that has the database for itself knows itself, and writes nothing.
func TestProcessAlone(t *testing.T) {
	s := fixture.Serving(t, dbtest.Databases["sqlite"](t))
	service := newService(t, s)
	if got := states(t, service); !slices.Equal(got, []string{service.ID() + " running"}) {
		t.Errorf("%q", got)
	}
	if no := s.Jobs.Process.Load(); no != 0 {
		t.Errorf("it has the number %d", no)
	}
}

// Processes that share a database see each other. A silent one shows as gone, and goes after an
// hour. One that stops in order goes at once.
func TestProcessesSeeEachOther(t *testing.T) {
	where := db.Options{URL: dbtest.Postgres(t)}
	s, o := fixture.Serving(t, where), fixture.Serving(t, where)
	one, other := newService(t, s), newService(t, o)
	want := func(what string, want ...string) {
		t.Helper()
		if got := states(t, one); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	want("both", one.ID()+" running", other.ID()+" running")
	mustDo(t, other.Beat(t.Context(), true))
	want("one stops", one.ID()+" running", other.ID()+" draining")
	change(t, s, fmt.Sprintf("UPDATE processes SET seen_at = seen_at - 31000 WHERE id = '%s'", other.ID()))
	want("one is silent", one.ID()+" running", other.ID()+" gone")
	mustDo(t, one.Beat(t.Context(), false))
	want("it is kept", one.ID()+" running", other.ID()+" gone")
	change(t, s, fmt.Sprintf("UPDATE processes SET seen_at = seen_at - 3600000 WHERE id = '%s'", other.ID()))
	mustDo(t, one.Beat(t.Context(), false))
	want("it was forgotten", one.ID()+" running")
	mustDo(t, other.Beat(t.Context(), false)) // it had only been stopped for long
	want("it is back", one.ID()+" running", other.ID()+" running")

	stopping, stop := context.WithCancel(t.Context())
	left, leave := context.WithCancel(t.Context())
	stop()
	leave()
	other.Run(stopping, left)
	want("it has left", one.ID()+" running")
}

// claim locks jobs of a queue, whose calls go to a deployment.
func claim(t *testing.T, s *stores.Stores, subqueue queue.Subqueue, n int, deployment string) []jobs.LockedJob {
	t.Helper()
	req := jobs.ClaimRequest{Subqueue: subqueue, Max: n, MaxBytes: 1 << 20, Lock: time.Minute}
	if deployment != "" {
		req.Plan = func(string, []byte, int64, *forebay.CallEstimate) []admission.Option {
			return []admission.Option{{Deployment: deployment, Limits: quota.Limits{Accounting: quota.AccountOpenAI, TokensPerMinute: 1_000_000}, Request: quota.Request{PromptTokens: 100, MaxOutputTokens: 50}}}
		}
	}
	return must(s.Jobs.Claim(t.Context(), req))(t)
}

// A list of calls has what is locked: whose job it is, where its call goes and who makes it. It
// has those of other tenants only if they are asked for.
func TestCalls(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		service := newService(t, s)
		queueID := must(s.Queues.EnsureQueue(t.Context(), "default"))(t)
		subqueue := queue.SubqueueOf(queueID, queue.SubqueueMain)
		tenants := map[string]int64{}
		submit := func(tenant, task string, n int) {
			tenants[tenant] = must(s.Queues.EnsureTenant(t.Context(), tenant))(t)
			for i := range n {
				id := fmt.Sprintf("job_%s_%s_%d", tenant, task, i)
				_, err := s.Jobs.Submit(t.Context(), []jobs.NewJob{{ID: id, Tenant: tenants[tenant], Queue: queueID, Task: task, Priority: 5, MaxAttempts: 3, Input: []byte(`1`), InputSize: 1}})
				mustDo(t, err)
			}
		}
		list := func(tenant string, f forebay.CallFilter) forebay.RunningCalls {
			t.Helper()
			return must(service.Calls(t.Context(), tenants[tenant], f, func(string) bool { return false }))(t)
		}
		submit("acme", "chat", 2)
		first := claim(t, s, subqueue, 2, "west")
		submit("zeta", "embed", 2)
		claim(t, s, subqueue, 1, "")

		all := list("", forebay.CallFilter{})
		if all.Total != 3 || len(all.Items) != 3 || all.TotalCapped {
			t.Fatalf("all calls are %+v", all)
		}
		call := all.Items[0]
		if call.Tenant != "acme" || call.Task != "chat" || call.Queue != "default" || call.Deployment != "west" || call.Attempt != 1 || call.Generation != 1 ||
			call.ReservedTokens == nil || *call.ReservedTokens <= 0 || call.Process != service.ID() || call.StartedAt.IsZero() || !call.LockedUntil.After(call.StartedAt) {
			t.Errorf("a call is %+v", call)
		}
		if call := all.Items[2]; call.Tenant != "zeta" || call.Deployment != "" || call.ReservedTokens != nil {
			t.Errorf("a call without a deployment is %+v", call)
		}
		for _, c := range []struct {
			tenant string
			forebay.CallFilter
			items, total int
		}{
			{"acme", forebay.CallFilter{}, 2, 2}, {"zeta", forebay.CallFilter{}, 1, 1}, {"", forebay.CallFilter{Deployment: "west"}, 2, 2},
			{"", forebay.CallFilter{Deployment: "east"}, 0, 0}, {"", forebay.CallFilter{Task: "embed"}, 1, 1}, {"", forebay.CallFilter{Limit: 1}, 1, 3},
			{"", forebay.CallFilter{Task: "chat", Limit: 1}, 1, 2}, {"zeta", forebay.CallFilter{Task: "chat"}, 0, 0},
		} {
			if got := list(c.tenant, c.CallFilter); len(got.Items) != c.items || got.Total != int64(c.total) {
				t.Errorf("%q, %+v: %d items of %d", c.tenant, c.CallFilter, len(got.Items), got.Total)
			}
		}
		mustDo(t, s.Jobs.Succeed(t.Context(), &first[0], jobs.AttemptRecord{Deployment: "west", Outcome: forebay.OutcomeSucceeded}, jobs.Output{Inline: []byte(`2`), Size: 1}))
		if got := list("acme", forebay.CallFilter{}); got.Total != 1 {
			t.Errorf("after one has ended: %+v", got)
		}
		change(t, s, "UPDATE messages SET visible_at = 1 WHERE lock_token IS NOT NULL") // their locks end
		if got := list("", forebay.CallFilter{}); got.Total != 0 {
			t.Errorf("after the locks have ended: %+v", got)
		}
	})
}

// Jobs of one tenant that soon start, in any number, hide no call of another.
func TestCallsBesideAFlood(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		service := newService(t, s)
		queueID := must(s.Queues.EnsureQueue(t.Context(), "default"))(t)
		subqueue := queue.SubqueueOf(queueID, queue.SubqueueMain)
		flood, quiet := must(s.Queues.EnsureTenant(t.Context(), "flood"))(t), must(s.Queues.EnsureTenant(t.Context(), "quiet"))(t)
		_, err := s.Jobs.Submit(t.Context(), []jobs.NewJob{{ID: "job_1", Tenant: quiet, Queue: queueID, Task: "chat", Priority: 5, MaxAttempts: 3, Input: []byte(`1`), InputSize: 1}})
		mustDo(t, err)
		claim(t, s, subqueue, 1, "west")
		change(t, s, fmt.Sprintf(`
WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < 45000)
INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant)
SELECT 1000000 + i, %d, %d, %d + i, 1, %d FROM n`, subqueue, flows.ID(flood, 0, 5), s.DB.Now().Add(time.Minute).UnixMilli(), flood))
		calls := must(service.Calls(t.Context(), 0, forebay.CallFilter{}, func(string) bool { return false }))(t)
		if len(calls.Items) != 1 || calls.Items[0].Tenant != "quiet" || !calls.TotalCapped {
			t.Errorf("%+v", calls)
		}
	})
}

// The calls of a process that was killed are listed, under its name, until their locks end.
func TestCallsOfAKilledProcess(t *testing.T) {
	where := db.Options{URL: dbtest.Postgres(t)}
	s := fixture.Serving(t, where)
	service := newService(t, s)
	killed := fixture.Serve(t, where)
	other := newService(t, killed)
	queueID := must(s.Queues.EnsureQueue(t.Context(), "default"))(t)
	tenant := must(s.Queues.EnsureTenant(t.Context(), "acme"))(t)
	_, err := killed.Jobs.Submit(t.Context(), []jobs.NewJob{{ID: "job_1", Tenant: tenant, Queue: queueID, Task: "chat", Priority: 5, MaxAttempts: 3, Input: []byte(`1`), InputSize: 1}})
	mustDo(t, err)
	claim(t, killed, queue.SubqueueOf(queueID, queue.SubqueueMain), 1, "west")
	mustDo(t, killed.DB.Close()) // it says nothing of its end
	calls := must(service.Calls(t.Context(), tenant, forebay.CallFilter{}, func(string) bool { return true }))(t)
	if len(calls.Items) != 1 || calls.Items[0].Process != other.ID() || calls.Items[0].Deployment != "west" || !calls.Items[0].Synchronous {
		t.Errorf("%+v", calls)
	}
}

// A process that begins while the database cannot be reached waits for it, and has one row.
func TestEnterWaitsForTheDatabase(t *testing.T) {
	url := dbtest.Postgres(t)
	proxy := pgtest.NewProxy(t, url)
	s := must(stores.Open(t.Context(), db.Options{URL: proxy.URL(url), Serve: true}))(t)
	t.Cleanup(func() { mustDo(t, s.DB.Close()) })
	proxy.Cut()
	tried := make(chan struct{}, 1)
	service := processes.New(processes.Options{DB: s.DB, Logger: slog.New(slog.NewTextHandler(writer(func() {
		select {
		case tried <- struct{}{}:
		default:
		}
	}), nil)), Queues: func() []forebay.ProcessQueue { return nil }, Number: func(int64) {}})
	entered := make(chan error, 1)
	go func() { entered <- service.Enter(t.Context()) }()
	select {
	case <-tried:
	case err := <-entered:
		t.Fatalf("it did not wait: %v", err)
	}
	proxy.Heal()
	mustDo(t, <-entered)
	if list := must(service.List(t.Context()))(t); len(list) != 1 {
		t.Errorf("%d processes have entered", len(list))
	}
}

// writer is told of what is written.
type writer func()

func (w writer) Write(b []byte) (int, error) {
	w()
	return len(b), nil
}
