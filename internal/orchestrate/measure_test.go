package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

// Open instances are counted by status, and the age of an unclaimed work item grows.
func TestOpenOrchestrations(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		p := run(t, where, removableCode(t, ""))
		for n, status := range []forebay.OrchestrationStatus{forebay.OrchestrationRunning, forebay.OrchestrationSuspended, forebay.OrchestrationTerminated, forebay.OrchestrationPending} {
			name := "waiting"
			if status == forebay.OrchestrationPending {
				name = "gone"
			}
			id := p.start(t, StartRequest{Name: name, ID: fmt.Sprint(n)})
			switch status {
			case forebay.OrchestrationSuspended:
				if err := p.Suspend(t.Context(), tenant, id, ""); err != nil {
					t.Fatal(err)
				}
			case forebay.OrchestrationTerminated:
				if err := p.Terminate(t.Context(), tenant, id, ""); err != nil {
					t.Fatal(err)
				}
			}
			p.until(t, id, status)
		}
		counts, err := p.store.Orchestrations.OpenOrchestrations(t.Context(), 100)
		want := []OpenCount{{Status: forebay.OrchestrationPending, Instances: 1}, {Status: forebay.OrchestrationRunning, Instances: 1}, {Status: forebay.OrchestrationSuspended, Instances: 1}}
		if err != nil || !slices.Equal(counts, want) {
			t.Errorf("%+v: %v", counts, err)
		}
		if counts, err = p.store.Orchestrations.OpenOrchestrations(t.Context(), 1); err != nil || counts[0].Instances+counts[1].Instances+counts[2].Instances != 1 {
			t.Errorf("%+v: %v", counts, err)
		}
		for begun := time.Now(); ; {
			oldest, err := p.store.Orchestrations.OldestReady(t.Context())
			if err != nil || len(oldest) != 2 || oldest[0].Orchestrator != "waiting" || oldest[0].Age != 0 || oldest[1].Orchestrator != "gone" {
				t.Fatalf("%+v: %v", oldest, err)
			}
			if oldest[1].Age > 0 {
				break
			}
			if time.Since(begun) > time.Minute {
				t.Fatalf("%+v", oldest)
			}
		}
	})
}

// Each work item is observed once: by the process that had it, or, if it was lost, by the
// transaction that found that.
func TestObserve(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		options := removableCode(t, "")
		addOrchestrator(t, options.Registry, "one", func(ctx *task.WorkflowContext) (any, error) {
			return nil, activity(ctx, "fails", nil, forebay.RetryPolicy{MaxAttempts: 2, First: time.Millisecond}).Await(nil)
		})
		p := run(t, where, options)
		lost := 0
		p.store.Orchestrations.OnActivitiesLost(func(n int) { lost += n }) // on the writer's goroutine, which a claim waits for
		id := p.start(t, StartRequest{Name: "one"})
		for range 2 { // the second finds the first one's lock ended
			claimed, err := p.store.Orchestrations.ClaimActivities(t.Context(), ClaimRequest{Max: 1, Lock: time.Millisecond, Taker: workqueues.Only("fails")})
			if err != nil || len(claimed) != 1 || claimed[0].ID != id {
				t.Fatalf("%+v: %v", claimed, err)
			}
		}
		p.stop()
		if lost != 1 {
			t.Errorf("%d attempts were lost", lost)
		}

		var mu sync.Mutex
		told := map[ProcessedItem]int{}
		options.Observe = func(taken ProcessedItem) {
			mu.Lock()
			defer mu.Unlock()
			told[taken]++
		}
		add(t, options.Registry, "fails", func(context.Context, any) (any, error) { return nil, errors.New("no") })
		p = run(t, where, options)
		p.ends(t, id, forebay.OrchestrationFailed)
		p.stop()
		want := map[ProcessedItem]int{
			{Kind: workqueues.Activities, Name: "fails", Outcome: ActivityRetried}:                                  1,
			{Kind: workqueues.Activities, Name: "fails", Outcome: ActivityFailed}:                                   1,
			{Kind: workqueues.Orchestrations, Name: "one", Outcome: ItemStored, Ended: forebay.OrchestrationFailed}: 1,
		}
		if !maps.Equal(told, want) {
			t.Errorf("told %v", told)
		}
	})
}
