package durabletask

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

// A worker whose answer is refused while its key cannot be looked up loses its connection. It
// would not send the answer again, and the work item would be under way for ever.
func TestAnswerOfAnUncheckedWorker(t *testing.T) {
	t.Parallel()
	p := run(t, db.Options{Path: dbtest.SQLite(t), Serve: true}, orchestrate.Options{Registry: orchestrate.NewRegistry()})
	var away atomic.Bool
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	address := serveAt(ctx, t, &running, p.server, ServeOptions{Authenticate: func(ctx context.Context, key string) (forebay.Caller, bool, error) {
		if away.Load() {
			return forebay.Caller{}, false, forebay.Errorf(forebay.CodeUnavailable, "the database cannot be reached")
		}
		return anybody(ctx, key)
	}})
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	worker := protos.NewTaskHubSidecarServiceClient(conn)
	items, err := worker.GetWorkItems(ctx, &protos.GetWorkItemsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Hello(ctx, &emptypb.Empty{}); err != nil { // the calls of a connection are admitted in turn
		t.Fatal(err)
	}
	away.Store(true)
	if _, err := worker.CompleteActivityTask(ctx, &protos.ActivityResponse{InstanceId: "one"}); status.Code(err) != codes.Unavailable {
		t.Errorf("the answer: %v", err)
	}
	for err = nil; err == nil; {
		_, err = items.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the work items: %v", err)
	}
	cancel()
}
