package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
)

// The id of an ended instance can be used again. The id of an open one cannot.
func TestIDOfAnEndedInstanceIsUsedAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "ends", func(ctx *task.WorkflowContext) (any, error) {
			var how string
			if err := ctx.GetInput(&how); err != nil {
				return nil, err
			}
			if how == "wait" {
				return waiting(ctx)
			}
			if how == "fail" {
				return nil, errors.New("as it was told to")
			}
			return how, nil
		})
		p := run(t, where, Options{Registry: r})
		begin := func(how string) error {
			_, err := p.Start(t.Context(), tenant, StartRequest{Name: "ends", ID: "one", Input: quoted(how)})
			return err
		}
		for _, step := range []struct {
			how  string
			ends forebay.OrchestrationStatus
		}{{"well", forebay.OrchestrationCompleted}, {"fail", forebay.OrchestrationFailed}, {"wait", forebay.OrchestrationTerminated}, {"again", forebay.OrchestrationCompleted}} {
			if err := begin(step.how); err != nil {
				t.Fatal(step.how, err)
			}
			if step.how == "wait" {
				if err := begin("amid"); forebay.CodeOf(err) != forebay.CodeConflict {
					t.Errorf("the id of one that runs was used again: %v", err)
				}
				if err := p.Terminate(t.Context(), tenant, "one", ""); err != nil {
					t.Fatal(err)
				}
			}
			if o := p.ends(t, "one", step.ends); string(o.Input) != string(quoted(step.how)) {
				t.Errorf("%s began with %s", step.how, o.Input)
			}
		}
		_, err := p.Start(t.Context(), tenant, StartRequest{Name: "ends", ID: "one", Input: quoted("never"), Replaces: []forebay.OrchestrationStatus{forebay.OrchestrationFailed}})
		if forebay.CodeOf(err) != forebay.CodeConflict {
			t.Errorf("one that completed was replaced where only failed ones are to be: %v", err)
		}
	})
}

// Of many concurrent starts with the id of an ended instance exactly one succeeds, also across
// processes.
func TestOneStartWinsAnID(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "waiting", waiting)
		processes := []*process{run(t, where, Options{Registry: r})}
		if where.URL != "" { // SQLite has one process
			processes = append(processes, run(t, where, Options{Registry: r}))
		}
		first := processes[0]
		for round := range 5 {
			var starting sync.WaitGroup
			const each = 8
			results := make(chan error, each*len(processes))
			for i := range each * len(processes) {
				starting.Go(func() {
					_, err := processes[i%len(processes)].Start(context.WithoutCancel(t.Context()), tenant, StartRequest{Name: "waiting", ID: "one"})
					results <- err
				})
			}
			starting.Wait()
			close(results)
			won := 0
			for err := range results {
				switch {
				case err == nil:
					won++
				case forebay.CodeOf(err) != forebay.CodeConflict:
					t.Errorf("round %d: %v", round, err)
				}
			}
			if won != 1 {
				t.Fatalf("round %d: %d starts won", round, won)
			}
			if err := first.Terminate(t.Context(), tenant, "one", ""); err != nil {
				t.Fatal(err)
			}
			first.ends(t, "one", forebay.OrchestrationTerminated)
		}
	})
}

// A resume of a running instance and a suspension of a suspended one are not stored. Some SDKs
// fail on such events.
func TestResumeOfWhatIsNotSuspended(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "waiting", waiting)
		p := run(t, where, Options{Registry: r})
		p.start(t, StartRequest{Name: "waiting", ID: "one"})
		p.waitsFor(t, "one", "TimerCreated")
		twice := func(tell func(context.Context, string, string, string) error, until forebay.OrchestrationStatus) {
			t.Helper()
			for range 2 {
				if err := tell(t.Context(), tenant, "one", "why"); err != nil {
					t.Fatal(err)
				}
			}
			p.until(t, "one", until)
		}
		twice(p.Resume, forebay.OrchestrationRunning)
		twice(p.Suspend, forebay.OrchestrationSuspended)
		twice(p.Resume, forebay.OrchestrationRunning)
		if err := p.Raise(t.Context(), tenant, "one", "go", nil); err != nil {
			t.Fatal(err)
		}
		p.ends(t, "one", forebay.OrchestrationCompleted)
		if got, want := p.types(t, "one"), "ExecutionStarted TimerCreated ExecutionSuspended ExecutionResumed EventRaised ExecutionCompleted"; got != want {
			t.Errorf("history %s, not %s", got, want)
		}
		for verb, tell := range map[string]func(context.Context, string, string, string) error{"resume": p.Resume, "suspend": p.Suspend} {
			if err := tell(t.Context(), tenant, "one", ""); forebay.CodeOf(err) != forebay.CodeGone {
				t.Errorf("%s of one that is over: %v", verb, err)
			}
			if err := tell(t.Context(), tenant, "none", ""); forebay.CodeOf(err) != forebay.CodeNotFound {
				t.Errorf("%s of one that there is not: %v", verb, err)
			}
		}
	})
}

// A purge for a new instance with the same id is in the audit log.
func TestReplacementIsAudited(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	addOrchestrator(t, r, "ends", func(*task.WorkflowContext) (any, error) { return nil, nil })
	p := run(t, db.Options{Path: filepath.Join(t.TempDir(), "forebay.db")}, Options{Registry: r})
	ctx := forebay.WithActor(t.Context(), "key_1")
	for range 2 {
		if _, err := p.Start(ctx, tenant, StartRequest{Name: "ends", ID: "one", Input: json.RawMessage(`"secret"`)}); err != nil {
			t.Fatal(err)
		}
		p.ends(t, "one", forebay.OrchestrationCompleted)
	}
	entries, _, err := p.store.Audit.Entries(t.Context(), forebay.AuditFilter{}, 0, 100)
	if err != nil || len(entries) != 1 || entries[0].Action != "purge-orchestration" || entries[0].Target != "one" || entries[0].Actor != "key_1" || entries[0].Detail != `{"replaced":true}` {
		t.Errorf("%+v: %v", entries, err)
	}
}
