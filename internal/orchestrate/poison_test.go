package orchestrate

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

// claimOne claims an orchestration work item, as a process does.
func claimOne(t *testing.T, s *stores, name string, lock time.Duration) OrchestrationItem {
	t.Helper()
	orchestrations, err := s.Orchestrations.ClaimOrchestrations(t.Context(), ClaimRequest{Max: 1, Lock: lock, Taker: workqueues.Only(name)})
	if err != nil {
		t.Fatal(err)
	}
	return orchestrations[0]
}

// loseItems sends an instance an event, and loses the work item as often as is possible.
func loseItems(t *testing.T, where db.Options, r *Registry, name, id string) {
	t.Helper()
	s, err := openStores(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	if err := New(Options{Store: s.Orchestrations, Registry: r}).Raise(t.Context(), tenant, id, "go", nil); err != nil {
		t.Fatal(err)
	}
	for range maxLostDeliveries {
		claimOne(t, s, name, time.Millisecond) // and nobody hears of it again
	}
	if err := s.DB.Close(); err != nil {
		t.Fatal(err)
	}
}

// A poison work item fails its instance without running its code, and the caller learns that.
// Once the code is mended the instance can be rewound to before that item, even to its first.
func TestPoisonItem(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "caller", func(ctx *task.WorkflowContext) (any, error) {
			err := ctx.CallChildWorkflow("deadly", task.WithChildWorkflowInstanceID("child"), task.WithChildWorkflowInput(20)).Await(nil)
			if err == nil {
				return "none", nil
			}
			return err.Error(), nil
		})
		p := run(t, where, Options{Registry: r})
		id := p.start(t, StartRequest{Name: "caller"})
		p.waitsFor(t, id, "SubOrchestrationInstanceCreated")
		for n := range maxLostDeliveries {
			if item := claimOne(t, p.store, "deadly", time.Millisecond); item.LostDeliveries != n { // and nobody hears of it again
				t.Fatalf("lost %d times, not %d", item.LostDeliveries, n)
			}
		}
		p.stop()

		var calls atomic.Int32
		addOrchestrator(t, r, "deadly", func(ctx *task.WorkflowContext) (any, error) {
			calls.Add(1)
			var n int
			err := ctx.GetInput(&n)
			if ctx.CurrentTimeUtc.IsZero() {
				t.Error("what time it is is not on record")
			}
			return n + 1, err
		})
		p = run(t, where, Options{Registry: r})
		if o := p.ends(t, "child", forebay.OrchestrationFailed); o.Failure.Type != failurePoison || calls.Load() != 0 {
			t.Errorf("%+v after %d calls", o.Failure, calls.Load())
		}
		if o := p.ends(t, id, forebay.OrchestrationCompleted); !strings.Contains(string(o.Output), "10 times in a row") {
			t.Errorf("the caller heard %s", o.Output)
		}
		if err := p.Rewind(t.Context(), tenant, "child", "it is mended"); err != nil {
			t.Fatal(err)
		}
		if o := p.ends(t, "child", forebay.OrchestrationCompleted); string(o.Output) != "21" {
			t.Errorf("%+v", o)
		}
	})
}

// A rewind does not run code of a poison work item, not even to learn which failures it handles.
// Doubtful failures are kept.
func TestRewindOfAPoisonItem(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		w := &works{}
		w.add(t, r)
		w.breaks("a")
		var runs atomic.Int32
		addOrchestrator(t, r, "deadly", func(ctx *task.WorkflowContext) (any, error) {
			runs.Add(1)
			_ = work(ctx, "a").Await(nil)
			err := work(ctx, "b").Await(nil)
			_ = ctx.WaitForSingleEvent("go", time.Hour).Await(nil)
			return "mended", err
		})
		p := run(t, where, Options{Registry: r})
		id := p.start(t, StartRequest{Name: "deadly"})
		p.waitsFor(t, id, "TimerCreated")
		p.stop()
		loseItems(t, where, r, "deadly", id)
		p = run(t, where, Options{Registry: r})
		if o := p.ends(t, id, forebay.OrchestrationFailed); o.Failure.Type != failurePoison {
			t.Fatalf("%+v", o.Failure)
		}
		p.stop()

		s, err := openStores(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		before := runs.Load()
		if err := New(Options{Store: s.Orchestrations, Registry: r}).Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		if n := runs.Load() - before; n != 0 {
			t.Errorf("the rewind ran the code %d times", n)
		}
		if err := s.DB.Close(); err != nil {
			t.Fatal(err)
		}
		w.repairs("a")
		p = run(t, where, Options{Registry: r})
		if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `"mended"` || w.called() != "a b" {
			t.Errorf("%s after %s", o.Output, w.called())
		}
	})
}

// twiceAbandoned runs a process until the work item of an instance was abandoned twice. It
// returns the item as the next process gets it.
func twiceAbandoned(t *testing.T, where db.Options, r *Registry, name string, begin func(*process)) OrchestrationItem {
	t.Helper()
	abandoned := make(chan struct{}, 100)
	p := run(t, where, Options{Registry: r, Observe: func(taken ProcessedItem) {
		if taken.Outcome == ItemAbandoned {
			abandoned <- struct{}{}
		}
	}})
	begin(p)
	<-abandoned
	<-abandoned
	p.stop()
	s, err := openStores(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	return claimOne(t, s, name, time.Minute)
}

// A work item whose result can never be stored counts as lost each time.
func TestItemThatCannotBeStored(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "odd", func(ctx *task.WorkflowContext) (any, error) { // a history has no text that is not UTF-8
			return nil, ctx.CallChildWorkflow("odd", task.WithChildWorkflowInstanceID("\xff")).Await(nil)
		})
		item := twiceAbandoned(t, where, r, "odd", func(p *process) { p.start(t, StartRequest{Name: "odd"}) })
		if item.LostDeliveries < 2 || item.Deliveries <= item.LostDeliveries {
			t.Errorf("lost %d times in %d deliveries", item.LostDeliveries, item.Deliveries)
		}
	})
}

// A work item that waits for a version of its code never counts as lost.
func TestItemThatWaitsForItsVersion(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		registry := func(version string) *Registry {
			r := NewRegistry()
			if err := r.AddOrchestrator("waiting", version, waiting); err != nil {
				t.Fatal(err)
			}
			return r
		}
		p := run(t, where, Options{Registry: registry("1")})
		id := p.start(t, StartRequest{Name: "waiting"})
		p.waitsFor(t, id, "OrchestratorStarted")
		p.stop()
		item := twiceAbandoned(t, where, registry("2"), "waiting", func(p *process) {
			if err := p.Raise(t.Context(), tenant, id, "go", json.RawMessage("1")); err != nil {
				t.Fatal(err)
			}
		})
		if item.LostDeliveries != 0 || item.Deliveries < 3 {
			t.Errorf("lost %d times in %d deliveries", item.LostDeliveries, item.Deliveries)
		}
	})
}
