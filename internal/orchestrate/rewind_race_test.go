package orchestrate

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/protobuf/proto"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// Events that come while an instance fails are not lost: it sees them once it is rewound. Large
// ones are in blob storage until then, or until the instance is purged.
func TestEventsDuringAFailureOutliveIt(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		var works, good, bad atomic.Int32
		r := breakable(t, &works, &good, &bad)
		addOrchestrator(t, r, "approved", func(ctx *task.WorkflowContext) (any, error) {
			if err := activity(ctx, "bad", nil, forebay.RetryPolicy{}).Await(nil); err != nil {
				return nil, err
			}
			var first, second string
			err := errors.Join(ctx.WaitForSingleEvent("go", -1).Await(&first), ctx.WaitForSingleEvent("go", -1).Await(&second))
			return first + second[:5], err
		})
		f := newFolder(t)
		p := runWith(t, where, func(*stores) Options { return Options{Registry: r, Blobs: f} })
		p.beforeApply = func(id string) {
			if bad.Load() == 1 && works.Load() == 0 {
				if err := errors.Join(p.Raise(t.Context(), tenant, id, "go", quoted("first ")), p.Raise(t.Context(), tenant, id, "go", quoted(large("large")))); err != nil {
					t.Error(err)
				}
			}
		}
		for _, rewound := range []bool{true, false} {
			works.Store(0)
			bad.Store(0)
			id := p.start(t, StartRequest{Name: "approved", ID: "one"})
			p.ends(t, id, forebay.OrchestrationFailed)
			if works.Store(1); rewound {
				mustDo(t, p.Rewind(t.Context(), tenant, id, ""))
				if o := p.ends(t, id, forebay.OrchestrationCompleted); string(o.Output) != `"first large"` {
					t.Errorf("it has seen %s", o.Output)
				}
			}
			mustDo(t, p.Purge(t.Context(), tenant, id))
			p.holds(t, f, 0)
		}
	})
}

// A rewind that was planned before another one must not undo what has succeeded since.
func TestRewindPlannedBeforeAnother(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantOf(t, s, "acme")
		mustDo(t, s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: "one", Execution: "first", Name: "fan", Event: Inline([]byte("start"))}))
		fails := func() Rewound {
			t.Helper()
			before := s.DB.Now().UnixMilli()
			until(t, "the time goes on", func() bool { return s.DB.Now().UnixMilli() > before })
			_, err := s.Orchestrations.CompleteOrchestration(t.Context(), takeItem(t, s), &OrchestrationResult{Status: forebay.OrchestrationFailed, Events: 1, History: Inline([]byte("h"))})
			mustDo(t, err)
			o, err := s.Orchestrations.Orchestration(t.Context(), tenant, "one")
			mustDo(t, err)
			return Rewound{Tenant: tenant, ID: o.ID, No: o.No, Name: o.Name, Execution: o.Execution, FailedAt: *o.CompletedAt, Events: 1, History: Inline([]byte("h")), Event: []byte("again")}
		}
		first := fails()
		mustDo(t, s.Orchestrations.RewindOrchestrations(t.Context(), []Rewound{first}))
		second := fails()
		if err := s.Orchestrations.RewindOrchestrations(t.Context(), []Rewound{first}); !errors.Is(err, ErrChanged) {
			t.Errorf("a rewind from before is carried out: %v", err)
		}
		mustDo(t, s.Orchestrations.RewindOrchestrations(t.Context(), []Rewound{second}))
	})
}

// Sub-orchestrations without an id of their own, whose caller did not wait for them, do not stand
// in the way of an instance that has the caller's id later.
func TestChildrenThatOutliveTheirCaller(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "child", waiting)
		addOrchestrator(t, r, "caller", func(ctx *task.WorkflowContext) (any, error) {
			var waits bool
			if err := ctx.GetInput(&waits); err != nil {
				return nil, err
			}
			child := ctx.CallChildWorkflow("child")
			if !waits {
				return nil, errors.New("it does not wait for its child")
			}
			var got string
			err := child.Await(&got)
			return got, err
		})
		p := run(t, where, Options{Registry: r})
		children := func() []forebay.Orchestration {
			all, _, err := p.List(t.Context(), tenant, ListRequest{Name: "child"})
			mustDo(t, err)
			return all
		}
		p.ends(t, p.start(t, StartRequest{Name: "caller", ID: "one", Input: []byte("false")}), forebay.OrchestrationFailed)
		p.start(t, StartRequest{Name: "caller", ID: "one", Input: []byte("true")})
		until(t, "two children are open", func() bool {
			o, err := p.Get(t.Context(), tenant, "one")
			mustDo(t, err)
			if o.Failure != nil {
				t.Fatal(o.Failure.Message)
			}
			return len(children()) == 2
		})
		mustDo(t, p.Raise(t.Context(), tenant, children()[0].ID, "go", quoted("the second")))
		if o := p.ends(t, "one", forebay.OrchestrationCompleted); string(o.Output) != `"the second"` {
			t.Errorf("it has got %s", o.Output)
		}
	})
}

// Who awaits a sub-orchestration that is purged by force gets a failure, and does not wait for
// ever. Who has called it in an earlier execution does not.
func TestPurgeByForceFailsTheCall(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "child", waiting)
		addOrchestrator(t, r, "caller", func(ctx *task.WorkflowContext) (any, error) {
			child := ctx.CallChildWorkflow("child", task.WithChildWorkflowInstanceID("child"))
			err := child.Await(nil)
			return fmt.Sprint(err), nil
		})
		addOrchestrator(t, r, "forgets", func(ctx *task.WorkflowContext) (any, error) {
			var round int
			if err := ctx.GetInput(&round); err != nil {
				return nil, err
			}
			if round == 0 {
				ctx.CallChildWorkflow("child", task.WithChildWorkflowInstanceID("child"))
				err := ctx.WaitForSingleEvent("again", -1).Await(nil)
				ctx.ContinueAsNew(1)
				return nil, err
			}
			return waiting(ctx)
		})
		p := run(t, where, Options{Registry: r})
		id := p.start(t, StartRequest{Name: "caller"})
		p.waitsFor(t, id, "SubOrchestrationInstanceCreated")
		p.until(t, "child", forebay.OrchestrationRunning)
		mustDo(t, p.PurgeByForce(t.Context(), tenant, "child", true))
		if o := p.ends(t, id, forebay.OrchestrationCompleted); !strings.Contains(string(o.Output), "purged by force") {
			t.Errorf("it has got %s", o.Output)
		}

		id = p.start(t, StartRequest{Name: "forgets", Input: []byte("0")})
		p.waitsFor(t, id, "SubOrchestrationInstanceCreated")
		p.until(t, "child", forebay.OrchestrationRunning)
		mustDo(t, p.Raise(t.Context(), tenant, id, "again", nil))
		p.sees(t, id, "the next execution", func(row OrchestrationRow) bool { return string(row.Input) == "1" })
		mustDo(t, p.PurgeByForce(t.Context(), tenant, "child", true))
		mustDo(t, p.Raise(t.Context(), tenant, id, "go", quoted("done")))
		p.ends(t, id, forebay.OrchestrationCompleted)
		if got := p.types(t, id); strings.Contains(got, "SubOrchestration") {
			t.Errorf("the history is %s", got)
		}
		if err := p.PurgeByForce(t.Context(), tenant, "child", true); forebay.CodeOf(err) != forebay.CodeNotFound {
			t.Errorf("the second time: %v", err)
		}
	})
}

// Who continues as new has sent and started what it does not await.
func TestStartsBeforeContinuing(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "started", func(*task.WorkflowContext) (any, error) { return "started", nil })
		addOrchestrator(t, r, "starts", func(ctx *task.WorkflowContext) (any, error) {
			var round int
			if err := ctx.GetInput(&round); err != nil || round == 3 {
				return "done", err
			}
			ctx.ScheduleNewWorkflow("started", task.WithDetachedWorkflowInstanceID(strings.Repeat("x", round+1)))
			ctx.ContinueAsNew(round + 1)
			return nil, nil
		})
		p := run(t, where, Options{Registry: r})
		p.ends(t, p.start(t, StartRequest{Name: "starts", Input: []byte("0")}), forebay.OrchestrationCompleted)
		for _, id := range []string{"x", "xx", "xxx"} {
			p.ends(t, id, forebay.OrchestrationCompleted)
		}
	})
}

// A purge by force that was planned when the instance was over does not know whom to tell. If it
// has been rewound since, the purge is planned anew.
func TestPurgePlannedBeforeARewind(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		var works, good, bad atomic.Int32
		r := breakable(t, &works, &good, &bad)
		addOrchestrator(t, r, "child", func(ctx *task.WorkflowContext) (any, error) {
			if err := activity(ctx, "bad", nil, forebay.RetryPolicy{}).Await(nil); err != nil {
				return nil, err
			}
			return waiting(ctx)
		})
		addOrchestrator(t, r, "caller", func(ctx *task.WorkflowContext) (any, error) {
			return nil, ctx.CallChildWorkflow("child", task.WithChildWorkflowInstanceID("child")).Await(nil)
		})
		p := run(t, where, Options{Registry: r})
		id := p.start(t, StartRequest{Name: "caller"})
		p.ends(t, id, forebay.OrchestrationFailed)
		no := tenantOf(t, p.store, tenant)
		plan, err := p.forced(t.Context(), no, "child", true)
		mustDo(t, err)
		works.Store(1)
		mustDo(t, p.Rewind(t.Context(), tenant, id, ""))
		if _, err := p.store.Orchestrations.PurgeOrchestration(t.Context(), no, "child", plan, audit.Act{}); !errors.Is(err, ErrChanged) {
			t.Errorf("a purge from before is carried out: %v", err)
		}
	})
}

// The events that came while an instance failed stay where they are until turns have seen them: a
// history that held them all might be too long. What suspends an instance has lost its meaning.
func TestRewoundInstanceTakesItsEventsAsEver(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		item := starts(t, s, "one")[0]
		for _, e := range []*protos.HistoryEvent{
			{EventType: &protos.HistoryEvent_EventRaised{EventRaised: &protos.EventRaisedEvent{Name: "go"}}},
			{EventType: &protos.HistoryEvent_ExecutionSuspended{ExecutionSuspended: &protos.ExecutionSuspendedEvent{}}},
			{EventType: &protos.HistoryEvent_EventRaised{EventRaised: &protos.EventRaisedEvent{Name: "on"}}},
		} {
			event, err := proto.Marshal(e)
			mustDo(t, err)
			mustDo(t, s.Orchestrations.SendOrchestration(t.Context(), Signal{Tenant: item.Tenant, ID: "one", Event: Inline(event), Effect: EffectOf(e)}))
		}
		begun := history.NewEvent()
		begun.EventType = &protos.HistoryEvent_WorkflowStarted{WorkflowStarted: &protos.WorkflowStartedEvent{}}
		past, err := history.Append(nil, begun)
		mustDo(t, err)
		_, err = s.Orchestrations.CompleteOrchestration(t.Context(), item, &OrchestrationResult{Status: forebay.OrchestrationFailed, Events: 1, History: Inline(past)})
		mustDo(t, err)
		mustDo(t, New(Options{Store: s.Orchestrations}).Rewind(t.Context(), "acme", "one", ""))
		got := ""
		for _, a := range takeItem(t, s).Arrived {
			e, err := history.Decode(a.Event.Bytes)
			mustDo(t, err)
			got += history.Describe(e).Type + e.GetEventRaised().GetName() + " "
		}
		if got != "EventRaisedgo EventRaisedon ExecutionResumed " {
			t.Errorf("it takes %s", got)
		}
	})
}
