package durabletask

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

// shortWorker is worker, for a minute at most.
func shortWorker(t *testing.T, address string) (protos.TaskHubSidecarServiceClient, grpc.ServerStreamingClient[protos.WorkItem]) {
	t.Helper()
	conn, client, stream := worker(t, address)
	limit := time.AfterFunc(time.Minute, func() { _ = conn.Close() })
	t.Cleanup(func() { limit.Stop() })
	return client, stream
}

// answerActivity answers the next activity of a worker; without a result it fails.
func answerActivity(t *testing.T, client protos.TaskHubSidecarServiceClient, item *protos.WorkItem, result string) {
	t.Helper()
	req := item.GetActivityRequest()
	if req == nil {
		t.Fatalf("the worker was sent %v, no activity", item)
	}
	resp := &protos.ActivityResponse{InstanceId: req.GetWorkflowInstance().GetInstanceId(), TaskId: req.GetTaskId(), CompletionToken: item.GetCompletionToken()}
	if result != "" {
		resp.Result = wrapperspb.String(result)
	} else {
		resp.FailureDetails = &protos.TaskFailureDetails{ErrorType: "NotYet", ErrorMessage: "not yet"}
	}
	if _, err := client.CompleteActivityTask(t.Context(), resp); err != nil {
		t.Fatal(err)
	}
}

// answerTurn answers the next orchestration work item of a worker.
func answerTurn(t *testing.T, client protos.TaskHubSidecarServiceClient, item *protos.WorkItem, actions ...*protos.WorkflowAction) {
	t.Helper()
	req := item.GetWorkflowRequest()
	if req == nil {
		t.Fatalf("the worker was sent %v, no orchestration work item", item)
	}
	_, err := client.CompleteWorkflowTask(t.Context(), &protos.WorkflowResponse{InstanceId: req.GetInstanceId(), Actions: actions, CompletionToken: item.GetCompletionToken()})
	if err != nil {
		t.Fatal(err)
	}
}

// An activity with the id of a running one cannot be stored: the instance fails and says why.
// This holds also if the running one is a retry with another id in the history.
func TestActivityIsScheduledAgainBeforeItHasEnded(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		p := run(t, where, orchestrate.Options{Remote: true})
		client, stream := shortWorker(t, p.serve(t))
		next := func() *protos.WorkItem {
			item, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return item
		}
		for _, failures := range []int{0, 1} {
			id := p.start(t, orchestrate.StartRequest{Name: "remote", ID: fmt.Sprint("after ", failures)})
			for range failures {
				answerTurn(t, client, next(), schedule(1, "slow"))
				answerActivity(t, client, next(), "")
			}
			answerTurn(t, client, next(), schedule(1, "slow"))
			if next().GetActivityRequest() == nil {
				t.Fatal("the activity is not under way")
			}
			if err := p.Raise(t.Context(), tenant, id, "wakes", nil); err != nil {
				t.Fatal(err)
			}
			answerTurn(t, client, next(), schedule(1, "slow"))
			o := p.ends(t, id, forebay.OrchestrationFailed)
			if o.Failure == nil || o.Failure.Type != failureInvalidAnswer || !strings.Contains(o.Failure.Message, "has not ended") {
				t.Errorf("after %d failures the instance failed with %+v", failures, o.Failure)
			}
		}
	})
}

// Microsoft's SDKs read the field of an execution id as the tags of an activity. So activities
// of Go orchestrators have none.
func TestActivityOfAGoFunctionHasNoExecutionID(t *testing.T) {
	r := orchestrate.NewRegistry()
	addOrchestrator(t, r, "calls", func(ctx *task.WorkflowContext) (any, error) {
		var got string
		return nil, activity(ctx, "elsewhere", nil, forebay.RetryPolicy{}).Await(&got)
	})
	p := run(t, db.Options{Path: filepath.Join(t.TempDir(), "forebay.db")}, orchestrate.Options{Registry: r, Remote: true})
	client, stream := shortWorker(t, p.serve(t))
	id := p.start(t, orchestrate.StartRequest{Name: "calls"})
	item, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if got := item.GetActivityRequest().GetTaskExecutionId(); got != "" {
		t.Errorf("the worker was sent the execution id %s", got)
	}
	answerActivity(t, client, item, `"done"`)
	p.ends(t, id, forebay.OrchestrationCompleted)
}
