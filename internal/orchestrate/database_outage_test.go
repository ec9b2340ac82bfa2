package orchestrate

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// breaksTwice has the first two transactions lose their connection that change rows so.
func breaksTwice(t *testing.T, url, change, rows string) {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), url)
	mustDo(t, err)
	defer c.Close(context.WithoutCancel(t.Context()))
	_, err = c.Exec(t.Context(), fmt.Sprintf(`CREATE SEQUENCE breaks;
		CREATE FUNCTION breaks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('breaks') <= 2 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NEW;
		END $$;
		CREATE TRIGGER breaks BEFORE %s FOR EACH ROW %s EXECUTE FUNCTION breaks()`, change, rows)).ReadAll()
	mustDo(t, err)
}

// An outage of the database loses no outcome. It is stored afterwards, without another call of the
// activity and without another run of the orchestrator's code.
func TestDatabaseOutOfOrder(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"orchestration_attempts", "orchestration_history"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			r, calls, turns := NewRegistry(), atomic.Int32{}, atomic.Int32{}
			add(t, r, "grow", func(context.Context, string) (any, error) {
				calls.Add(1)
				return large("r"), nil
			})
			addOrchestrator(t, r, "parent", func(ctx *task.WorkflowContext) (any, error) {
				turns.Add(1)
				var result string
				err := activity(ctx, "grow", "a", forebay.RetryPolicy{}).Await(&result)
				return sinceLarge(result), err
			})
			where := db.Options{URL: dbtest.Postgres(t), Serve: true}
			p := run(t, where, Options{Registry: r, Blobs: newFolder(t)})
			breaksTwice(t, where.URL, "INSERT ON forebay."+table, "")
			id := p.start(t, StartRequest{Name: "parent"})
			if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `"65537r"` {
				t.Errorf("%+v", o)
			}
			attempts, err := p.Attempts(t.Context(), tenant, id)
			if err != nil || len(attempts) != 1 || calls.Load() != 1 || turns.Load() != 2 {
				t.Errorf("%d calls, %d turns, %+v: %v", calls.Load(), turns.Load(), attempts, err)
			}
		})
	}
}

// leaving are workers that leave while they carry out the first turn, and complete the others.
type leaving struct {
	completing
	turns *atomic.Int32
}

func (l leaving) ExecuteOrchestrator(ctx context.Context, tenant int64, id string, past, arrived []*protos.HistoryEvent) (*protos.WorkflowResponse, error) {
	if l.turns.Add(1) == 1 {
		return nil, ErrWorkerGone
	}
	return l.completing.ExecuteOrchestrator(ctx, tenant, id, past, arrived)
}

// What a worker leaves behind while the database is away is given back once that is back.
func TestDatabaseOutOfOrderAsAWorkerLeaves(t *testing.T) {
	t.Parallel()
	where := db.Options{URL: dbtest.Postgres(t), Serve: true}
	p := run(t, where, Options{Registry: NewRegistry(), Remote: true, Lock: time.Hour})
	p.UseWorkers(leaving{turns: &atomic.Int32{}})
	breaksTwice(t, where.URL, "UPDATE ON forebay.orchestration_items", "WHEN (OLD.lock_token IS NOT NULL AND NEW.lock_token IS NULL)")
	p.ends(t, p.start(t, StartRequest{Name: "remote"}), forebay.OrchestrationCompleted)
}

// A try to store an outcome may have succeeded though its connection broke. The next one finds the
// lock gone, and keeps the payloads.
func TestPayloadsOfAnOutcomeInDoubt(t *testing.T) {
	t.Parallel()
	broken, full := forebay.Errorf(forebay.CodeUnavailable, "the connection broke"), forebay.Errorf(forebay.CodeStorageFull, "the disk is full")
	for name, c := range map[string]struct {
		ends []error
		kept int
	}{
		"in doubt": {[]error{broken, forebay.ErrLockLost}, 1},
		"refused":  {[]error{forebay.ErrLockLost}, 0},
		"stored":   {[]error{broken, broken, nil}, 1},
		"full":     {[]error{full, nil}, 1},
		"too late": {[]error{full, forebay.ErrLockLost}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blobs := newFolder(t)
			s := fixture.Serving(t, db.Options{Path: dbtest.SQLite(t)})
			no := tenantOf(t, s, tenant)
			p := New(Options{Store: s.Orchestrations, Registry: NewRegistry(), Blobs: blobs})
			p.running = t.Context()
			hub, a := newTaskHub(p, no), &ActivityItem{Tenant: no, Name: "grow", Token: 7}
			p.hold(a.Token, &heldItem{activity: a})
			result := Inline([]byte(large("r")))
			put, err := hub.storeActivityResult(t.Context(), a, &result)
			mustDo(t, err)
			tries := 0
			err = hub.storeOutcome(t.Context(), a.Token, put, func(context.Context) error {
				tries++
				return c.ends[tries-1]
			})
			if err != c.ends[len(c.ends)-1] || tries != len(c.ends) || len(blobs.keys(t)) != c.kept {
				t.Errorf("%d tries, %d payloads: %v", tries, len(blobs.keys(t)), err)
			}
		})
	}
}
