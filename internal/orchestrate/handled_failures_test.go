package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"
	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// works has the activity "work", which fails for broken inputs and counts its calls by input.
// For "after X" it ends once the failure of X is in the history.
type works struct {
	mu     sync.Mutex
	broken []string
	calls  map[string]int
	p      *process
}

func (w *works) add(t *testing.T, r *Registry) {
	add(t, r, "work", func(ctx context.Context, what string) (any, error) {
		w.mu.Lock()
		w.calls[what]++
		broken, p := slices.Contains(w.broken, what), w.p
		w.mu.Unlock()
		if failed, waits := strings.CutPrefix(what, "after "); waits {
			call, _ := CallOf(ctx)
			for there := false; !there; <-time.After(5 * time.Millisecond) {
				past, err := p.History(ctx, tenant, call.InstanceID)
				if err != nil {
					return nil, err
				}
				there = slices.ContainsFunc(past, func(e forebay.OrchestrationEvent) bool {
					return e.Failure != nil && strings.Contains(e.Failure.Message, failed+" is broken")
				})
			}
		}
		if broken {
			return nil, errors.New(what + " is broken")
		}
		return what, nil
	})
}

// breaks marks inputs as broken, and forgets the calls.
func (w *works) breaks(what ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken, w.calls = what, map[string]int{}
}

func (w *works) repairs(what ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = slices.DeleteFunc(slices.Clone(w.broken), func(broken string) bool { return slices.Contains(what, broken) })
}

// called returns the calls with their numbers: "a b×2".
func (w *works) called() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, what := range slices.Sorted(maps.Keys(w.calls)) {
		if n := w.calls[what]; n != 1 {
			what = fmt.Sprint(what, "×", n)
		}
		all = append(all, what)
	}
	return strings.Join(all, " ")
}

func work(ctx *task.WorkflowContext, what string) task.Task {
	return activity(ctx, "work", what, forebay.RetryPolicy{})
}

// inOrder awaits one call after the other, up to the first failure.
func inOrder(ctx *task.WorkflowContext, calls ...string) error {
	for _, what := range calls {
		if err := work(ctx, what).Await(nil); err != nil {
			return err
		}
	}
	return nil
}

// A rewind keeps a failure that the code has handled, and removes one that it has not noticed.
func TestRewindAfterHandledFailures(t *testing.T) {
	cases := []struct {
		name     string
		code     task.Workflow
		broken   []string
		repaired []string // before the rewind
		calls    string
	}{
		{"caught", func(ctx *task.WorkflowContext) (any, error) {
			if inOrder(ctx, "a") != nil {
				return nil, inOrder(ctx, "instead", "c", "d")
			}
			return nil, inOrder(ctx, "d")
		}, []string{"a", "c"}, []string{"a", "c"}, "a c×2 d instead"},
		{"ignored", func(ctx *task.WorkflowContext) (any, error) {
			_ = inOrder(ctx, "a")
			_ = inOrder(ctx, "b")
			return nil, inOrder(ctx, "good", "c")
		}, []string{"a", "b", "c"}, []string{"a", "c"}, "a b c×2 good"},
		{"awaited late", func(ctx *task.WorkflowContext) (any, error) {
			late := work(ctx, "late")
			if err := errors.Join(inOrder(ctx, "after late", "good"), late.Await(nil)); err != nil {
				return nil, err
			}
			return nil, inOrder(ctx, "d")
		}, []string{"late"}, []string{"late"}, "after late d good late×2"},
		{"caught and awaited late", func(ctx *task.WorkflowContext) (any, error) {
			late, later := work(ctx, "late"), work(ctx, "later")
			_ = inOrder(ctx, "a")
			if err := inOrder(ctx, "after late", "after later", "good"); err != nil {
				return nil, err
			}
			_ = inOrder(ctx, "b")
			return nil, errors.Join(inOrder(ctx, "good"), late.Await(nil), later.Await(nil))
		}, []string{"a", "b", "late", "later"}, []string{"late", "later"}, "a after late after later b good×2 late×2 later×2"},
		{"repeated by the engine", func(ctx *task.WorkflowContext) (any, error) {
			err := ctx.CallActivity("work", task.WithActivityInput("a"), task.WithActivityRetryPolicy(&task.RetryPolicy{
				MaxAttempts: 3, InitialRetryInterval: time.Millisecond, BackoffCoefficient: 1, MaxRetryInterval: time.Second})).Await(nil)
			return nil, err
		}, []string{"a"}, []string{"a"}, "a×4"},
		{"of a sub-orchestration", func(ctx *task.WorkflowContext) (any, error) {
			_ = ctx.CallChildWorkflow("fails").Await(nil)
			return nil, inOrder(ctx, "good", "c")
		}, []string{"child", "c"}, []string{"child", "c"}, "c×2 child good"},
		{"within a sub-orchestration", func(ctx *task.WorkflowContext) (any, error) {
			return nil, ctx.CallChildWorkflow("caught").Await(nil)
		}, []string{"a", "c"}, []string{"a", "c"}, "a c×2 d instead"},
		{"nothing came of it", func(ctx *task.WorkflowContext) (any, error) { // so it may as well be called again
			if inOrder(ctx, "a") == nil {
				return nil, nil
			}
			return nil, inOrder(ctx, "instead")
		}, []string{"a", "instead"}, []string{"a"}, "a×2 instead"},
	}
	onBoth(t, func(t *testing.T, where db.Options) {
		r, w := NewRegistry(), works{calls: map[string]int{}}
		w.add(t, r)
		addOrchestrator(t, r, "fails", func(ctx *task.WorkflowContext) (any, error) { return nil, inOrder(ctx, "child") })
		for _, c := range cases {
			addOrchestrator(t, r, c.name, c.code)
		}
		p := run(t, where, Options{Registry: r})
		w.p = p
		for _, c := range cases {
			w.breaks(c.broken...)
			id := p.start(t, StartRequest{Name: c.name})
			p.ends(t, id, forebay.OrchestrationFailed)
			w.repairs(c.repaired...)
			if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
				t.Fatal(err)
			}
			p.ends(t, id, forebay.OrchestrationCompleted)
			if got := w.called(); got != c.calls {
				t.Errorf("%s: called %s, want %s", c.name, got, c.calls)
			}
		}
	})
}

// An instance that compensated for a failure and then failed with it has nothing to repeat. It
// fails again with the same failure.
func TestRewindInVain(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, w := NewRegistry(), works{calls: map[string]int{}}
		w.add(t, r)
		addOrchestrator(t, r, "compensates", func(ctx *task.WorkflowContext) (any, error) {
			err := inOrder(ctx, "a")
			if err != nil {
				err = errors.Join(err, inOrder(ctx, "compensate"))
			}
			return nil, err
		})
		p := run(t, where, Options{Registry: r})
		w.breaks("a")
		id := p.start(t, StartRequest{Name: "compensates"})
		before := p.ends(t, id, forebay.OrchestrationFailed)
		w.repairs("a")
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		if o := p.ends(t, id, forebay.OrchestrationFailed); *o.Failure != *before.Failure || w.called() != "a compensate" {
			t.Errorf("%+v after %s", o.Failure, w.called())
		}
	})
}

// A process without the code keeps all doubtful failures. A later rewind can remove them.
func TestRewindWithoutTheCode(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, w := NewRegistry(), works{calls: map[string]int{}}
		w.add(t, r)
		addOrchestrator(t, r, "caught", func(ctx *task.WorkflowContext) (any, error) {
			_ = inOrder(ctx, "a")
			return nil, inOrder(ctx, "good", "c")
		})
		addOrchestrator(t, r, "late", func(ctx *task.WorkflowContext) (any, error) {
			late := work(ctx, "late")
			return nil, errors.Join(inOrder(ctx, "after late", "good"), late.Await(nil))
		})
		p := run(t, where, Options{Registry: r})
		w.p = p
		other := New(Options{Store: p.store.Orchestrations, Remote: true})
		fails := func(name, broken string) string {
			w.breaks("a", broken)
			id := p.start(t, StartRequest{Name: name})
			p.ends(t, id, forebay.OrchestrationFailed)
			w.repairs("a", broken)
			if err := other.Rewind(t.Context(), tenant, id, ""); err != nil {
				t.Fatal(err)
			}
			return id
		}
		p.ends(t, fails("caught", "c"), forebay.OrchestrationCompleted)
		if got := w.called(); got != "a c×2 good" {
			t.Errorf("called %s", got)
		}
		id := fails("late", "late")
		if o := p.ends(t, id, forebay.OrchestrationFailed); !strings.Contains(o.Failure.Message, "late is broken") {
			t.Errorf("%+v", o.Failure)
		}
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.ends(t, id, forebay.OrchestrationCompleted)
		if got := w.called(); got != "after late good late×2" {
			t.Errorf("called %s", got)
		}
	})
}

// For any orchestrator and any order of ends: after a rewind the code asks for all steps in the
// history, however often it fails. No more failures are kept than necessary.
func TestRewindOfAnyCode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type op struct {
			begin     bool
			of        int // which of the calls begun so far is awaited, modulo their number
			onFailure int // 0: goes on; 1: calls another instead and awaits it; 2: fails
		}
		ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
			return op{rapid.IntRange(0, 3).Draw(t, "begin") == 3, rapid.IntRange(0, 20).Draw(t, "of"), rapid.IntRange(0, 2).Draw(t, "on failure")}
		}), 6, 20).Draw(t, "code")
		r := NewRegistry()
		if err := r.AddOrchestrator("any", "", func(ctx *task.WorkflowContext) (any, error) {
			calls := []task.Task{work(ctx, "first"), work(ctx, "first"), work(ctx, "first"), work(ctx, "first")}
			for _, o := range ops {
				if o.begin {
					calls = append(calls, work(ctx, "next"))
					continue
				}
				err := calls[o.of%len(calls)].Await(nil)
				if err != nil && o.onFailure == 1 {
					err = work(ctx, "instead").Await(nil)
				}
				if err != nil && o.onFailure != 0 {
					return nil, err
				}
			}
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		code := task.NewTaskExecutorWithLogger(r.engine, unlogged)
		again := history.NewEvent()
		again.EventType = &protos.HistoryEvent_ExecutionResumed{ExecutionResumed: &protos.ExecutionResumedEvent{}}
		w := &rewind{Instances: &New(Options{Registry: r}).Instances, again: again}
		row := OrchestrationRow{}
		row.Name = "any"

		first := history.NewEvent()
		first.EventType = &protos.HistoryEvent_ExecutionStarted{ExecutionStarted: &protos.ExecutionStartedEvent{Name: "any"}}
		var past []*protos.HistoryEvent
		arrived, open := []*protos.HistoryEvent{first}, []int32{}
		for rewinds := 0; ; {
			item := history.NewEvent()
			item.EventType = &protos.HistoryEvent_WorkflowStarted{WorkflowStarted: &protos.WorkflowStartedEvent{}}
			arrived = append([]*protos.HistoryEvent{item}, arrived...)
			resp, err := history.Replay(t.Context(), code, "id", past, arrived)
			if err != nil {
				t.Fatal(err)
			}
			past = append(past, arrived...)
			var end *protos.CompleteWorkflowAction
			for _, a := range resp.Actions {
				if end = a.GetCompleteWorkflow(); end != nil {
					break
				}
				e := history.NewEvent()
				e.EventId, e.EventType = a.Id, &protos.HistoryEvent_TaskScheduled{TaskScheduled: &protos.TaskScheduledEvent{Name: "work"}}
				past, open = append(past, e), append(open, a.Id)
			}
			switch {
			case end.GetFailureDetails().GetErrorType() == forebay.FailureNonDeterministic:
				t.Fatalf("after %d rewinds: %s", rewinds, end.FailureDetails.ErrorMessage)
			case end != nil && (rewinds == 3 || end.FailureDetails == nil):
				return
			case end != nil:
				stays, err := w.handledFailures(t.Context(), row, past)
				if err != nil {
					t.Fatal(err)
				}
				for call := range stays {
					fewer := maps.Clone(stays)
					delete(fewer, call)
					if history.Matches(t.Context(), code, "id", append(history.Rewind(past, history.StepsToRepeat(past, fewer), fewer), again)) {
						t.Fatalf("the failure of call %d stays", call)
					}
				}
				past, arrived, open = history.Rewind(past, history.StepsToRepeat(past, stays), stays), []*protos.HistoryEvent{again}, nil
				rewinds++
				continue
			}
			arrived = nil
			for range rapid.IntRange(1, 2).Draw(t, "arrive at once") {
				if len(open) == 0 {
					break
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which ends")
				if rapid.IntRange(0, 2).Draw(t, "fails") == 0 {
					arrived = append(arrived, history.TaskFailed(open[i], "", &protos.TaskFailureDetails{ErrorType: "x", ErrorMessage: "y"}))
				} else {
					arrived = append(arrived, history.TaskCompleted(open[i], "", nil))
				}
				open = slices.Delete(open, i, i+1)
			}
		}
	})
}

// An ordered orchestrator says which failures it handles. These are kept, and all others are
// repeated.
func TestRewindOfOrdered(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, w := NewRegistry(), works{calls: map[string]int{}}
		w.add(t, r)
		// It calls four at once, and a last one when they have ended. It handles the failures of
		// the first two.
		err := r.AddOrdered("ordered", func(ctx *task.WorkflowContext, ended []Ended, now time.Time) (any, error) {
			names := []string{"first", "handled", "cause", "after cause"}
			var tasks []task.Task
			for _, what := range names {
				tasks = append(tasks, work(ctx, what))
			}
			var failed error
			for i, e := range ended {
				err := tasks[e.ID].Await(nil)
				if ended[i].Handled = err != nil && e.ID < 2; err != nil && !ended[i].Handled {
					failed = err
				}
				if i == 3 && failed != nil {
					return nil, failed
				}
				if i == 3 {
					tasks = append(tasks, work(ctx, "last"))
				}
			}
			for n, waits := range tasks {
				if !slices.ContainsFunc(ended, func(e Ended) bool { return int(e.ID) == n }) {
					return nil, waits.Await(nil)
				}
			}
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		p := run(t, where, Options{Registry: r})
		w.p = p
		w.breaks("first", "handled", "cause")
		id := p.start(t, StartRequest{Name: "ordered"})
		p.ends(t, id, forebay.OrchestrationFailed)
		w.repairs("first", "handled", "cause")
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.ends(t, id, forebay.OrchestrationCompleted)
		if got := w.called(); got != "after cause cause×2 first handled last" {
			t.Errorf("called %s", got)
		}
	})
}

// Failures that an ordered orchestrator handled are kept also when it cannot say so. It goes on
// once its code is mended.
func TestRewindOfOrderedWithoutItsCode(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, w := NewRegistry(), works{calls: map[string]int{}}
		w.add(t, r)
		var lost atomic.Bool
		err := r.AddOrdered("ordered", func(ctx *task.WorkflowContext, ended []Ended, _ time.Time) (any, error) {
			if lost.Load() {
				return nil, errors.New("it cannot be read")
			}
			for i, what := range []string{"handled", "last"} {
				asked := work(ctx, what)
				if len(ended) <= i {
					return nil, asked.Await(nil)
				}
				err := asked.Await(nil)
				if ended[i].Handled = err != nil && i == 0; err != nil && i > 0 {
					return nil, err
				}
			}
			return nil, work(ctx, "cause").Await(nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		p := run(t, where, Options{Registry: r})
		w.p = p
		w.breaks("handled", "cause")
		id := p.start(t, StartRequest{Name: "ordered"})
		p.ends(t, id, forebay.OrchestrationFailed)
		lost.Store(true)
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.ends(t, id, forebay.OrchestrationFailed)
		lost.Store(false)
		w.repairs("handled", "cause")
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.ends(t, id, forebay.OrchestrationCompleted)
		if got := w.called(); got != "cause×2 handled last" {
			t.Errorf("called %s", got)
		}
	})
}

// An ordered orchestrator that failed while suspended is asked as if it were resumed.
func TestRewindOfOrderedSuspended(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r, w := NewRegistry(), works{calls: map[string]int{}}
		w.add(t, r)
		var letsGo atomic.Bool
		add(t, r, "hold", func(ctx context.Context, _ any) (any, error) {
			if !letsGo.Load() {
				<-ctx.Done()
			}
			return nil, ctx.Err()
		})
		err := r.AddOrdered("ordered", func(ctx *task.WorkflowContext, ended []Ended, _ time.Time) (any, error) {
			tasks := []task.Task{work(ctx, "handled"), activity(ctx, "hold", nil, forebay.RetryPolicy{})}
			for i, e := range ended {
				ended[i].Handled = tasks[e.ID].Await(nil) != nil
			}
			if len(ended) < len(tasks) {
				return nil, tasks[1].Await(nil)
			}
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		p := run(t, where, Options{Registry: r, Grace: time.Millisecond})
		w.p = p
		w.breaks("handled")
		id := p.start(t, StartRequest{Name: "ordered"})
		p.waitsFor(t, id, "TaskFailed")
		if err := p.Suspend(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.until(t, id, forebay.OrchestrationSuspended)
		p.stop()
		loseItems(t, where, r, "ordered", id)
		p = run(t, where, Options{Registry: r, Lock: 6 * time.Second}) // it learns with a third of that that nobody needs "hold" any more
		if o := p.ends(t, id, forebay.OrchestrationFailed); o.Failure.Type != failurePoison {
			t.Fatalf("%+v", o.Failure)
		}
		letsGo.Store(true)
		w.repairs("handled")
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		p.ends(t, id, forebay.OrchestrationCompleted)
		if got := w.called(); got != "handled" {
			t.Errorf("called %s", got)
		}
	})
}
