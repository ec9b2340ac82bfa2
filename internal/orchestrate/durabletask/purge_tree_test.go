package durabletask

import (
	"context"
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
