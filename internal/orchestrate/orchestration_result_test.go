package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// A history with too many events fails its instance. The instance can still be terminated, with
// its sub-orchestrations.
func TestEndOfALongHistory(t *testing.T) {
	h := &taskHub{Service: New(Options{MaxBytes: 1 << 20})}
	for status, want := range map[protos.OrchestrationStatus]forebay.OrchestrationStatus{
		protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED:  forebay.OrchestrationFailed,
		protos.OrchestrationStatus_ORCHESTRATION_STATUS_TERMINATED: forebay.OrchestrationTerminated,
	} {
		ended := history.NewEvent()
		ended.EventType = &protos.HistoryEvent_ExecutionTerminated{ExecutionTerminated: &protos.ExecutionTerminatedEvent{Recurse: true}}
		result, err := h.resultOf(&OrchestrationItem{ID: "long"}, nil, &backend.WorkflowRuntimeState{
			StartEvent: &protos.ExecutionStartedEvent{}, OldEvents: make([]*protos.HistoryEvent, MaxHistoryEvents), NewEvents: []*protos.HistoryEvent{history.NewEvent()},
			CompletedEvent:  &protos.ExecutionCompletedEvent{WorkflowStatus: status},
			PendingMessages: []*protos.WorkflowRuntimeStateMessage{{TargetInstanceId: "called", HistoryEvent: ended}},
		}, 0)
		if err != nil || result.Status != want {
			t.Fatalf("%s: %+v: %v", status, result, err)
		}
		if told := len(result.Messages) == 1; told != (want == forebay.OrchestrationTerminated) {
			t.Errorf("%s: %d messages", want, len(result.Messages))
		}
	}
}

// A history with too many bytes does the same, even with few events.
func TestEndOfALargeHistory(t *testing.T) {
	h := &taskHub{Service: New(Options{MaxBytes: 16 << 20})}
	large := history.TaskCompleted(1, "", history.Value(make([]byte, 16<<20)))
	for n, want := range map[int]forebay.OrchestrationStatus{15: forebay.OrchestrationCompleted, 16: forebay.OrchestrationFailed} {
		old := make([]*protos.HistoryEvent, n)
		for i := range old {
			old[i] = large
		}
		result, err := h.resultOf(&OrchestrationItem{ID: "large"}, nil, &backend.WorkflowRuntimeState{StartEvent: &protos.ExecutionStartedEvent{}, OldEvents: old,
			NewEvents: []*protos.HistoryEvent{history.NewEvent()}, CompletedEvent: &protos.ExecutionCompletedEvent{WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED}}, history.Size(old))
		if err != nil || result.Status != want {
			t.Fatalf("%d events: %+v: %v", n, result, err)
		}
		if want == forebay.OrchestrationFailed && result.Failure.Type != "HistoryTooLong" {
			t.Errorf("%+v", result.Failure)
		}
	}
}

// The cached size of a history is its real size, after many work items and after continuing as
// new.
func TestSizesOfHistories(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		add(t, r, "step", func(_ context.Context, n int) (any, error) { return n, nil })
		addOrchestrator(t, r, "rounds", func(ctx *task.WorkflowContext) (any, error) {
			var round int
			if err := ctx.GetInput(&round); err != nil {
				return nil, err
			}
			for range 3 {
				if err := activity(ctx, "step", round, forebay.RetryPolicy{}).Await(nil); err != nil {
					return nil, err
				}
			}
			if round < 2 {
				ctx.ContinueAsNew(round + 1)
				return nil, nil
			}
			ctx.SetCustomStatus("here")
			return nil, ctx.WaitForSingleEvent("go", -1).Await(nil)
		})
		p := run(t, where, Options{Registry: r})
		id := p.start(t, StartRequest{Name: "rounds", Input: json.RawMessage("0")})
		var no int64
		p.sees(t, id, "it waits", func(row OrchestrationRow) bool {
			no = row.No
			return string(row.CustomStatus) == `"here"`
		})
		var past history.Cached
		until(t, "the history is cached", func() (ok bool) {
			for number := int64(0); !ok && number < 100; number++ {
				past, ok = p.cache.Get(no, number)
			}
			return ok
		})
		if len(past.Events) == 0 || past.Bytes != history.Size(past.Events) {
			t.Errorf("%d bytes are kept of %d events, which have %d", past.Bytes, len(past.Events), history.Size(past.Events))
		}
	})
}

// Failure details are stored up to a bound, whatever bytes they have.
func TestFailureIsBounded(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		why := errors.New("\xff" + strings.Repeat("x", 3*history.MaxFailureText))
		r := NewRegistry()
		add(t, r, "fail", func(context.Context, string) (any, error) { return nil, why })
		addOrchestrator(t, r, "fails", func(*task.WorkflowContext) (any, error) { return nil, why })
		addOrchestrator(t, r, "child", func(ctx *task.WorkflowContext) (any, error) { return nil, ctx.CallChildWorkflow("fails").Await(nil) })
		addOrchestrator(t, r, "calls", func(ctx *task.WorkflowContext) (any, error) {
			return nil, activity(ctx, "fail", "", forebay.RetryPolicy{}).Await(nil)
		})
		p := run(t, where, Options{Registry: r})
		for _, name := range []string{"fails", "child", "calls"} {
			id := p.start(t, StartRequest{Name: name})
			o := p.ends(t, id, forebay.OrchestrationFailed)
			past, err := p.History(t.Context(), tenant, id)
			if err != nil {
				t.Fatal(err)
			}
			failures := []*forebay.OrchestrationFailure{o.Failure}
			for _, e := range past {
				if e.Failure != nil {
					failures = append(failures, e.Failure)
				}
			}
			for _, f := range failures {
				if n := len(f.Message); f.Type == failurePoison || n < history.MaxFailureText-100 || n > history.MaxFailureText {
					t.Errorf("%s: a failure %.20s of %d bytes: %.40s", name, f.Type, n, f.Message)
				}
			}
		}
	})
}
