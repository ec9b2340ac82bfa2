package durabletask

import (
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

// A worker that offers to keep histories, as the SDK for Go does, sees the history as it is. A
// rewind replaces a part of it, of which the worker is not told.
func TestWorkerThatKeepsHistoriesAndARewind(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		p := run(t, where, orchestrate.Options{Remote: true})
		conn, err := grpc.NewClient(p.serve(t), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		limit := time.AfterFunc(time.Minute, func() { _ = conn.Close() })
		t.Cleanup(func() { limit.Stop(); _ = conn.Close() })
		client := protos.NewTaskHubSidecarServiceClient(conn)
		stream, err := client.GetWorkItems(t.Context(), &protos.GetWorkItemsRequest{
			Capabilities: []protos.WorkerCapability{protos.WorkerCapability_WORKER_CAPABILITY_STATEFUL_HISTORY}})
		if err != nil {
			t.Fatal(err)
		}
		id := p.start(t, orchestrate.StartRequest{Name: "remote"})
		row, err := p.Row(t.Context(), tenant, id)
		if err != nil {
			t.Fatal(err)
		}
		var kept []*protos.HistoryEvent
		next := func() *protos.WorkItem {
			item, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			req := item.GetWorkflowRequest()
			if req == nil {
				return item
			}
			kept = append(kept[:req.GetCachedHistory().GetEventCount():req.GetCachedHistory().GetEventCount()], req.GetPastEvents()...)
			stored, err := p.Events(t.Context(), row.No)
			if err != nil {
				t.Fatal(err)
			}
			stored, _ = withoutRedundantSuspends(stored, nil)
			if len(kept) != len(stored) {
				t.Fatalf("the worker sees %d events of %d", len(kept), len(stored))
			}
			for i := range kept {
				if !proto.Equal(kept[i], stored[i]) {
					t.Fatalf("the worker sees as event %d\n%v, which is\n%v", i, kept[i], stored[i])
				}
			}
			return item
		}
		answerTurn(t, client, next(), schedule(0, "good"))
		answerActivity(t, client, next(), `"good"`)
		answerTurn(t, client, next(), schedule(1, "bad"))
		answerActivity(t, client, next(), "")
		answerTurn(t, client, next(), schedule(-1, "refused")) // fails the instance
		p.ends(t, id, forebay.OrchestrationFailed)
		if err := p.Rewind(t.Context(), tenant, id, ""); err != nil {
			t.Fatal(err)
		}
		answerTurn(t, client, next(), schedule(1, "mended"))
		answerActivity(t, client, next(), `"mended"`)
		answerTurn(t, client, next(), &protos.WorkflowAction{Id: 2, WorkflowActionType: &protos.WorkflowAction_CompleteWorkflow{
			CompleteWorkflow: &protos.CompleteWorkflowAction{WorkflowStatus: protos.OrchestrationStatus_ORCHESTRATION_STATUS_COMPLETED}}})
		p.ends(t, id, forebay.OrchestrationCompleted)
	})
}
