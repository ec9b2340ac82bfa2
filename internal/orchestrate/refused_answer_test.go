package orchestrate

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
)

// What a worker's answer is too large for fails, and says so, once everything else is answered that the worker was sent: nothing waits for ever, and
// nothing else fails.
func TestAnswerTooLarge(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	addOrchestrator(t, r, "both", func(ctx *task.WorkflowContext) (any, error) {
		large, small := activity(ctx, "large", nil, forebay.RetryPolicy{MaxAttempts: 3}), activity(ctx, "small", nil, forebay.RetryPolicy{})
		var answer string
		if err := small.Await(&answer); err != nil {
			return nil, err
		}
		return fmt.Sprint(answer, ": ", large.Await(nil)), nil
	})
	p := run(t, store.Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true}, Options{Registry: r, Remote: true})
	_, client, stream := worker(t, p.serve(t))
	next := func() *protos.WorkItem {
		t.Helper()
		item, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return item
	}
	respond := func(item *protos.WorkItem, result string) error {
		a := item.GetActivityRequest()
		_, err := client.CompleteActivityTask(t.Context(), &protos.ActivityResponse{InstanceId: a.GetWorkflowInstance().GetInstanceId(), TaskId: a.GetTaskId(),
			CompletionToken: item.GetCompletionToken(), Result: wrapperspb.String(result)})
		return err
	}
	tooLarge := strings.Repeat("x", maxGRPCMessage+1)

	until(t, "the worker is connected", func() bool {
		no, err := p.store.EnsureTenant(t.Context(), tenant)
		return err == nil && p.connected(no)
	})
	id := p.start(t, StartRequest{Name: "both"})
	items := map[string]*protos.WorkItem{}
	for range 2 {
		item := next()
		items[item.GetActivityRequest().GetName()] = item
	}
	for range 2 { // as a worker that tries again does
		if err := respond(items["large"], tooLarge); status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
	if err := respond(items["small"], `"well"`); err != nil {
		t.Fatal(err)
	}
	o := p.ends(t, id, forebay.OrchestrationCompleted)
	if want := fmt.Sprintf("the worker's answer is larger than the %d bytes that the server receives", maxGRPCMessage); !strings.Contains(string(o.Output), want) || !strings.Contains(string(o.Output), "well") {
		t.Errorf("%s", o.Output)
	}
	attempts, err := p.Attempts(t.Context(), tenant, id)
	if err != nil || len(attempts) != 2 {
		t.Errorf("%+v: %v", attempts, err)
	}

	id = p.start(t, StartRequest{Name: "elsewhere"}) // whose code is the worker's
	if _, err := client.CompleteWorkflowTask(t.Context(), &protos.WorkflowResponse{InstanceId: id, CompletionToken: next().GetCompletionToken(), CustomStatus: wrapperspb.String(tooLarge)}); status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	if o := p.ends(t, id, forebay.OrchestrationFailed); o.Failure.Type != string(forebay.CodePayloadTooLarge) {
		t.Errorf("%+v", o.Failure)
	}
}
