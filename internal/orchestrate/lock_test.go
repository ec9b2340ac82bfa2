package orchestrate

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// inBubble runs a test on SQLite in a bubble, whose clock the database uses.
func inBubble(t *testing.T, test func(*testing.T, *process)) func(r *Registry, opts Options) {
	path := filepath.Join(t.TempDir(), "forebay.db")
	return func(r *Registry, opts Options) {
		synctest.Test(t, func(t *testing.T) {
			opts.Registry = r
			p := run(t, db.Options{Path: path, Serve: true}, opts)
			test(t, p)
			p.stop()
		})
	}
}

// An activity that takes longer than its lock is executed once: the lock is renewed.
func TestLocksAreRenewed(t *testing.T) {
	var calls atomic.Int32
	r := NewRegistry()
	add(t, r, "long", func(context.Context, any) (any, error) {
		calls.Add(1)
		<-time.After(2 * time.Minute)
		return nil, nil
	})
	addOrchestrator(t, r, "one", func(ctx *task.WorkflowContext) (any, error) {
		return nil, activity(ctx, "long", nil, forebay.RetryPolicy{}).Await(nil)
	})
	inBubble(t, func(t *testing.T, p *process) {
		id := p.start(t, StartRequest{Name: "one"})
		<-time.After(3 * time.Minute)
		if o, err := p.Get(t.Context(), tenant, id); err != nil || o.Status != forebay.OrchestrationCompleted || calls.Load() != 1 {
			t.Errorf("%s after %d calls: %v", o.Status, calls.Load(), err)
		}
	})(r, Options{Lock: 2 * time.Second})
}

// A retry comes exactly after its delay, and ten retries wait at the same time, as virtual time
// shows.
func TestRetriesKeepTime(t *testing.T) {
	r := NewRegistry()
	add(t, r, "flaky", func(ctx context.Context, _ any) (any, error) {
		if c, _ := CallOf(ctx); c.Attempt < 3 {
			return nil, context.DeadlineExceeded
		}
		return nil, nil
	})
	addOrchestrator(t, r, "ten", func(ctx *task.WorkflowContext) (any, error) {
		var tasks []task.Task
		for i := range 10 {
			tasks = append(tasks, activity(ctx, "flaky", i, forebay.RetryPolicy{MaxAttempts: 3, First: 500 * time.Millisecond, Coefficient: 1}))
		}
		for _, t := range tasks {
			if err := t.Await(nil); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	inBubble(t, func(t *testing.T, p *process) {
		begun := time.Now()
		p.ends(t, p.start(t, StartRequest{Name: "ten"}), forebay.OrchestrationCompleted)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("took %s, not 1s", took)
		}
	})(r, Options{})
}

// A timer of three days fires in three days, and nothing happens meanwhile.
func TestLongTimer(t *testing.T) {
	const long = 3 * 24 * time.Hour
	r := NewRegistry()
	addOrchestrator(t, r, "patient", func(ctx *task.WorkflowContext) (any, error) {
		return nil, ctx.CreateTimer(long).Await(nil)
	})
	inBubble(t, func(t *testing.T, p *process) {
		begun := time.Now()
		var transactions atomic.Int64
		id := p.start(t, StartRequest{Name: "patient"})
		p.waitsFor(t, id, "TimerCreated")
		p.store.DB.OnCommit(func(db.Commit) { transactions.Add(1) })
		<-time.After(10 * time.Minute)
		if n := transactions.Load(); n > 25 { // the store looks every half minute whether the clock has jumped
			t.Errorf("%d transactions in ten idle minutes", n)
		}
		<-time.After(long)
		o, err := p.Get(t.Context(), tenant, id)
		if err != nil || o.Status != forebay.OrchestrationCompleted {
			t.Fatalf("%+v: %v", o, err)
		}
		if late := o.CompletedAt.Sub(begun) - long; late < 0 || late > time.Second {
			t.Errorf("fired %s late", late)
		}
	})(r, Options{})
}

// A work item that another process makes ready is claimed at once.
func TestProcessesShareWork(t *testing.T) {
	t.Parallel()
	where := db.Options{URL: dbtest.Postgres(t), Serve: true}
	var calls [2]atomic.Int32
	begun := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	registry := func(i int) *Registry {
		r := NewRegistry()
		add(t, r, "step", func(ctx context.Context, _ any) (any, error) {
			if calls[i].Add(1) == 1 {
				close(begun[i])
			}
			select {
			case <-begun[1-i]: // so that neither does everything before the other is awake
			case <-ctx.Done():
			}
			return nil, ctx.Err()
		})
		addOrchestrator(t, r, "steps", func(ctx *task.WorkflowContext) (any, error) {
			for range 10 {
				if err := activity(ctx, "step", nil, forebay.RetryPolicy{}).Await(nil); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		return r
	}
	first, second := run(t, where, Options{Registry: registry(0), ConcurrentActivities: 2, ConcurrentOrchestrations: 2}), run(t, where, Options{Registry: registry(1), ConcurrentActivities: 2, ConcurrentOrchestrations: 2})
	var ids []string
	for range 20 {
		ids = append(ids, first.start(t, StartRequest{Name: "steps"}))
	}
	for _, id := range ids {
		second.ends(t, id, forebay.OrchestrationCompleted)
	}
	if a, b := calls[0].Load(), calls[1].Load(); a+b != 200 {
		t.Errorf("%d and %d calls", a, b)
	}
}

// The engine's log never shows user data.
func TestEngineLogShowsNoPayload(t *testing.T) {
	var b strings.Builder
	l := EngineLog{newTextLogger(&b)}
	e := history.NewEvent()
	e.EventType = history.TaskCompleted(1, "", history.Value([]byte(`"secret"`))).EventType
	l.Warnf("%v: dropping duplicate event: %v", "id", e)
	if strings.Contains(b.String(), "secret") || !strings.Contains(b.String(), "HistoryEvent") {
		t.Errorf("logged %s", b.String())
	}
}
