package durabletask

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

// A recursive purge deletes the sub-orchestrations of an instance, and theirs. An instance whose
// id one of them only tried to use stays, though it is the caller itself.
func TestRecursivePurge(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		r := orchestrate.NewRegistry()
		addOrchestrator(t, r, "waiting", waiting)
		addOrchestrator(t, r, "calls", func(ctx *task.WorkflowContext) (any, error) {
			var ids []string
			if err := ctx.GetInput(&ids); err != nil {
				return nil, err
			}
			for i, id := range ids {
				var below []string
				if i == 0 && id == "child" {
					below = []string{"grandchild"}
				}
				_ = ctx.CallChildWorkflow("calls", task.WithChildWorkflowInstanceID(id), task.WithChildWorkflowInput(below)).Await(nil) // it may be refused
			}
			return nil, nil
		})
		p := run(t, where, orchestrate.Options{Registry: r})
		_, client, _ := worker(t, p.serve(t))
		p.start(t, orchestrate.StartRequest{Name: "waiting", ID: "other"})
		p.waitsFor(t, "other", "TimerCreated")
		id := p.start(t, orchestrate.StartRequest{Name: "calls", ID: "self", Input: []byte(`["child", "self", "other"]`)})
		p.ends(t, id, forebay.OrchestrationCompleted)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		purge := func(id string, force bool) (int32, codes.Code) {
			answer, err := client.PurgeInstances(ctx, &protos.PurgeInstancesRequest{Request: &protos.PurgeInstancesRequest_InstanceId{InstanceId: id}, Recursive: true, Force: &force})
			return answer.GetDeletedInstanceCount(), status.Code(err)
		}
		if n, code := purge("other", false); n != 0 || code != codes.FailedPrecondition {
			t.Errorf("%d were purged with one that is not over: %s", n, code)
		}
		if n, code := purge(id, true); n != 3 || code != codes.OK {
			t.Errorf("%d were purged, not 3: %s", n, code)
		}
		if n, code := purge(id, false); n != 0 || code != codes.NotFound {
			t.Errorf("%d were purged again: %s", n, code)
		}
		if p.get(t, "other").Status.Terminal() {
			t.Error("another instance is over")
		}
	})
}

// A recursive purge by force fails no call within the tree. A caller, which is purged soon, would
// see its sub-orchestrations fail one after the other, and its code would make up for that.
func TestRecursivePurgeTellsNoCallerWithin(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		const children = 30
		var failed atomic.Int32
		r := orchestrate.NewRegistry()
		addOrchestrator(t, r, "waiting", waiting)
		addOrchestrator(t, r, "calls", func(ctx *task.WorkflowContext) (any, error) {
			calls := make([]task.Task, children)
			for i := range calls {
				calls[i] = ctx.CallChildWorkflow("waiting")
			}
			for _, call := range slices.Backward(calls) { // the last is purged first
				if call.Await(nil) != nil {
					failed.Add(1)
				}
			}
			return nil, nil
		})
		addOrchestrator(t, r, "outside", func(ctx *task.WorkflowContext) (any, error) {
			return fmt.Sprint(ctx.CallChildWorkflow("calls", task.WithChildWorkflowInstanceID("root")).Await(nil)), nil
		})
		p := run(t, where, orchestrate.Options{Registry: r})
		_, client, _ := worker(t, p.serve(t))
		outside := p.start(t, orchestrate.StartRequest{Name: "outside"})
		p.waitsFor(t, outside, "SubOrchestrationInstanceCreated")
		p.waitsFor(t, "root", "SubOrchestrationInstanceCreated")
		force := true
		answer, err := client.PurgeInstances(t.Context(), &protos.PurgeInstancesRequest{Request: &protos.PurgeInstancesRequest_InstanceId{InstanceId: "root"}, Recursive: true, Force: &force})
		if err != nil || answer.GetDeletedInstanceCount() != children+1 {
			t.Fatalf("%d were purged: %v", answer.GetDeletedInstanceCount(), err)
		}
		if o := p.ends(t, outside, forebay.OrchestrationCompleted); !strings.Contains(string(o.Output), "purged by force") {
			t.Errorf("who called the root has got %s", o.Output)
		}
		if n := failed.Load(); n != 0 {
			t.Errorf("the root has seen %d failures", n)
		}
	})
}
