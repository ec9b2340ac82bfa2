package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

// removableCode is the code that the tests below take away from open instances.
func removableCode(t *testing.T, versions ...string) Options {
	r := NewRegistry()
	add(t, r, "long", func(ctx context.Context, _ any) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	for _, v := range versions {
		err := r.AddOrchestrator("waiting", v, func(ctx *task.WorkflowContext) (any, error) {
			ctx.SetCustomStatus(`"waits"`)
			var got json.RawMessage
			err := ctx.WaitForSingleEvent("go", -1).Await(&got)
			return []any{v, got}, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	addOrchestrator(t, r, "child", func(ctx *task.WorkflowContext) (any, error) {
		return nil, activity(ctx, "long", nil, forebay.RetryPolicy{}).Await(nil)
	})
	addOrchestrator(t, r, "parent", func(ctx *task.WorkflowContext) (any, error) {
		activity(ctx, "long", nil, forebay.RetryPolicy{})
		return nil, ctx.CallChildWorkflow("child", task.WithChildWorkflowInstanceID("c")).Await(nil)
	})
	return Options{Registry: r, Remote: true, Grace: time.Millisecond}
}

// without are the options of a process that knows no orchestrator.
func without() Options { return Options{Remote: true} }

func (p *process) types(t *testing.T, id string) string {
	t.Helper()
	past, err := p.History(t.Context(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, e := range past {
		if e.Type != "OrchestratorStarted" {
			types = append(types, e.Type)
		}
	}
	return strings.Join(types, " ")
}

// A termination needs no process with the orchestrator, whether the instance runs, never began
// or is scheduled. The instance can be purged afterwards.
func TestTerminateNeedsNoCode(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		p := run(t, where, removableCode(t, ""))
		parent, waiting := p.start(t, StartRequest{Name: "parent"}), p.start(t, StartRequest{Name: "waiting"})
		p.waitsFor(t, parent, "SubOrchestrationInstanceCreated")
		p.waitsFor(t, "c", "TaskScheduled")
		p.waitsFor(t, waiting, "TimerCreated")
		p.stop()

		p = run(t, where, without())
		later := time.Now().Add(time.Hour)
		pending, scheduled := p.start(t, StartRequest{Name: "gone"}), p.start(t, StartRequest{Name: "gone", StartAt: &later})
		const many = 1100         // more than a turn sees
		var raised sync.WaitGroup // at the same time, so that few transactions do
		for range many {
			raised.Go(func() {
				if err := p.Raise(t.Context(), tenant, waiting, "other", nil); err != nil {
					t.Error(err)
				}
			})
		}
		raised.Wait()
		for id, past := range map[string]string{
			parent:    "ExecutionStarted TaskScheduled SubOrchestrationInstanceCreated ExecutionTerminated ExecutionCompleted",
			waiting:   "ExecutionStarted TimerCreated " + strings.Repeat("EventRaised ", many) + "ExecutionTerminated ExecutionCompleted",
			pending:   "ExecutionStarted ExecutionTerminated ExecutionCompleted",
			scheduled: "ExecutionStarted ExecutionTerminated ExecutionCompleted",
		} {
			if err := p.Terminate(t.Context(), tenant, id, "nobody has it"); err != nil {
				t.Fatal(err)
			}
			o := p.ends(t, id, forebay.OrchestrationTerminated)
			if string(o.Output) != `"nobody has it"` || id == waiting && string(o.CustomStatus) != `"waits"` {
				t.Errorf("%+v", o)
			}
			if got := p.types(t, id); got != past {
				t.Errorf("the history of %s is %s", o.Name, got)
			}
		}
		p.ends(t, "c", forebay.OrchestrationTerminated)
		for _, id := range []string{parent, "c", waiting, pending, scheduled} {
			if err := p.Purge(t.Context(), tenant, id); err != nil {
				t.Errorf("purge %s: %v", id, err)
			}
		}
	})
}

// A suspension needs no code, and events that arrive are kept. The code goes on in its version
// once a process has it.
func TestSuspendNeedsNoCode(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		p := run(t, where, removableCode(t, "1"))
		begun := p.start(t, StartRequest{Name: "waiting"})
		p.waitsFor(t, begun, "TimerCreated")
		p.stop()

		p = run(t, where, without())
		pending := p.start(t, StartRequest{Name: "waiting"})
		for _, id := range []string{begun, pending} {
			if err := p.Suspend(t.Context(), tenant, id, "until the deploy"); err != nil {
				t.Fatal(err)
			}
			p.until(t, id, forebay.OrchestrationSuspended)
			if err := p.Raise(t.Context(), tenant, id, "go", json.RawMessage("7")); err != nil {
				t.Fatal(err)
			}
			p.waitsFor(t, id, "EventRaised")
			if err := p.Resume(t.Context(), tenant, id, ""); err != nil {
				t.Fatal(err)
			}
			if o, err := p.Get(t.Context(), tenant, id); err != nil || o.Status != forebay.OrchestrationSuspended {
				t.Errorf("%s is %s without its code: %v", id, o.Status, err)
			}
		}
		if o, err := p.Get(t.Context(), tenant, begun); err != nil || string(o.CustomStatus) != `"waits"` {
			t.Errorf("%+v: %v", o, err)
		}
		p.stop()

		p = run(t, where, removableCode(t, "1", "2"))
		for id, want := range map[string]string{begun: `["1",7]`, pending: `["2",7]`} {
			if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != want {
				t.Errorf("%s returned %s, not %s", id, o.Output, want)
			}
		}
	})
}

// An instance that was suspended before its first work item keeps the version in which its code
// first ran.
func TestVersionAfterSuspend(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		p := run(t, where, without())
		id := p.start(t, StartRequest{Name: "waiting"})
		if err := p.Suspend(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.until(t, id, forebay.OrchestrationSuspended)
		p.stop()
		p = run(t, where, removableCode(t, "1"))
		if err := p.Resume(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.waitsFor(t, id, "TimerCreated")
		p.stop()
		p = run(t, where, removableCode(t, "1", "2"))
		if err := p.Raise(t.Context(), tenant, id, "go", json.RawMessage("7")); err != nil {
			t.Fatal(err)
		}
		if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `["1",7]` || o.Version != "1" {
			t.Errorf("%+v", o)
		}
	})
}

// An instance ends once, also if a process holds its work item. That item is stored only if its
// lock holds.
func TestTerminateWaitsForTheItem(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		for _, lost := range []bool{false, true} {
			p := run(t, where, without())
			id := p.start(t, StartRequest{Name: "held", ID: fmt.Sprint("held ", lost)})
			lock := time.Hour
			if lost {
				lock = time.Millisecond
			}
			orchestrations, err := p.store.Orchestrations.ClaimOrchestrations(t.Context(), ClaimRequest{Max: 1, Lock: lock, Taker: workqueues.Only("held")})
			if err != nil || len(orchestrations) != 1 || orchestrations[0].ID != id {
				t.Fatalf("%+v: %v", orchestrations, err)
			}
			if err := p.Terminate(t.Context(), tenant, id, ""); err != nil {
				t.Fatal(err)
			}
			result := &OrchestrationResult{Status: forebay.OrchestrationRunning, Timers: []Timer{{At: 1, Event: Inline([]byte("never read"))}}}
			if lost {
				p.ends(t, id, forebay.OrchestrationTerminated)
				if _, err := p.store.Orchestrations.CompleteOrchestration(t.Context(), &orchestrations[0], result); !errors.Is(err, forebay.ErrLockLost) {
					t.Errorf("the turn was stored: %v", err)
				}
				p.stop()
				continue
			}
			for what, err := range map[string]error{"raise": p.Raise(t.Context(), tenant, id, "go", nil), "suspend": p.Suspend(t.Context(), tenant, id, ""),
				"resume": p.Resume(t.Context(), tenant, id, "")} {
				if forebay.CodeOf(err) != forebay.CodeGone {
					t.Errorf("%s of what is being terminated: %v", what, err)
				}
			}
			if err := p.Terminate(t.Context(), tenant, id, "again"); err != nil {
				t.Error(err)
			}
			if o, err := p.Get(t.Context(), tenant, id); err != nil || o.Status != forebay.OrchestrationPending {
				t.Errorf("%s during the turn: %v", o.Status, err)
			}
			result.Timers = nil
			started, err := history.Decode(orchestrations[0].Arrived[0].Event.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if result.History.Bytes, err = history.Append(nil, started); err != nil {
				t.Fatal(err)
			}
			result.Events = 1
			if _, err := p.store.Orchestrations.CompleteOrchestration(t.Context(), &orchestrations[0], result); err != nil {
				t.Fatal(err)
			}
			p.ends(t, id, forebay.OrchestrationTerminated)
			if got := p.types(t, id); got != "ExecutionStarted ExecutionTerminated ExecutionCompleted" {
				t.Errorf("the history is %s", got)
			}
			p.stop()
		}
	})
}

// Events for an instance with a scheduled start wait for the start.
func TestEventsBeforeTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		later := time.Now().Add(time.Hour)
		id := p.start(t, StartRequest{Name: "waiting", StartAt: &later})
		if err := p.Raise(t.Context(), tenant, id, "go", json.RawMessage("7")); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour - time.Millisecond)
		if o, err := p.Get(t.Context(), tenant, id); err != nil || o.Status != forebay.OrchestrationPending || p.types(t, id) != "" {
			t.Errorf("%+v: %v", o, err)
		}
		p.until(t, id, forebay.OrchestrationCompleted)
		if o, err := p.Get(t.Context(), tenant, id); err != nil || o.CompletedAt.Sub(later) > time.Millisecond {
			t.Errorf("%+v: %v", o, err)
		}
	})(removableCode(t, "").Registry, Options{})
}

// The caller of a terminated sub-orchestration gets a failure.
func TestTerminatedChildFailsItsCaller(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		p := run(t, where, removableCode(t, ""))
		parent := p.start(t, StartRequest{Name: "parent"})
		p.waitsFor(t, parent, "SubOrchestrationInstanceCreated")
		p.waitsFor(t, "c", "TaskScheduled")
		if err := p.Terminate(t.Context(), tenant, "c", "enough"); err != nil {
			t.Fatal(err)
		}
		p.ends(t, "c", forebay.OrchestrationTerminated)
		if o := p.ends(t, parent, forebay.OrchestrationFailed); o.Failure == nil || !strings.Contains(o.Failure.Message, "terminated") {
			t.Errorf("%+v", o.Failure)
		}
	})
}

func TestReasonsAreBounded(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		p := run(t, where, without())
		id := p.start(t, StartRequest{Name: "gone"})
		for length, refused := range map[int]bool{MaxReasonBytes + 1: true, MaxReasonBytes: false} {
			reason := wrapperspb.String(strings.Repeat("x", length))
			err := p.Send(t.Context(), tenant, id, &protos.HistoryEvent{EventId: -1, Timestamp: timestamppb.Now(),
				EventType: &protos.HistoryEvent_ExecutionSuspended{ExecutionSuspended: &protos.ExecutionSuspendedEvent{Input: reason}}})
			if (forebay.CodeOf(err) == forebay.CodeInvalidRequest) != refused || !refused && err != nil {
				t.Errorf("%d bytes: %v", length, err)
			}
		}
	})
}
