package durabletask

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

const largeAnswer = 3 << 20

// serveLarge serves tenants, whose keys are their names. Each has a large instance "large".
func serveLarge(t *testing.T, change func(*endpoint), tenants ...string) (*endpoint, func() protos.TaskHubSidecarServiceClient) {
	t.Helper()
	p := run(t, db.Options{Path: filepath.Join(t.TempDir(), "forebay.db")}, orchestrate.Options{Remote: true, MaxBytes: 4 << 20}, func(o *Options) { o.MemoryBytes = 1 << 20 })
	for _, name := range tenants {
		if _, err := p.Start(t.Context(), name, orchestrate.StartRequest{Name: "remote", ID: "large", Input: []byte(`"` + strings.Repeat("x", largeAnswer) + `"`)}); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := p.server.endpoint(listener, ServeOptions{Authenticate: func(_ context.Context, key string) (forebay.Caller, bool, error) {
		return forebay.Caller{KeyID: "key_" + key, Tenant: key, Scopes: forebay.Scopes}, false, nil
	}})
	change(e)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.serve(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return e, func() protos.TaskHubSidecarServiceClient {
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(1<<20), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return protos.NewTaskHubSidecarServiceClient(conn)
	}
}

// leaveUnread calls for the large instance and reads nothing of the answer.
func leaveUnread(ctx context.Context, t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/TaskHubSidecarService/GetInstance")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&protos.GetInstanceRequest{InstanceId: "large", GetInputsAndOutputs: true}); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Unread answers hold no more than their tenant's share of memory, and others are answered
// meanwhile.
func TestUnreadAnswersAreBounded(t *testing.T) {
	e, dial := serveLarge(t, func(*endpoint) {}, "greedy", "other")
	address := e.connections.Addr().String()
	greedy, stop := context.WithCancel(withKey(t.Context(), "greedy"))
	defer stop()
	for range 6 {
		leaveUnread(greedy, t, address)
	}
	until(t, "the share of the tenant is used up", func() bool { return e.sent.Held() >= 2*largeAnswer })
	got, err := dial().GetInstance(withKey(t.Context(), "other"), &protos.GetInstanceRequest{InstanceId: "large", GetInputsAndOutputs: true})
	if err != nil || len(got.GetWorkflowState().GetInput().GetValue()) < largeAnswer {
		t.Errorf("another tenant was answered %d bytes, %v", len(got.GetWorkflowState().GetInput().GetValue()), err)
	}
	if held := e.sent.Held(); held > e.sent.Capacity()/2 {
		t.Errorf("unread answers hold %d of %d bytes", held, e.sent.Capacity())
	}
	stop()
	until(t, "the memory is given back", func() bool { return e.sent.Held() == 0 })
}

// A client that does not read its answer in time loses its connection, and the memory is
// released.
func TestAnswerThatIsNotReadInTime(t *testing.T) {
	e, _ := serveLarge(t, func(e *endpoint) { e.answerTime = -time.Hour }, "greedy")
	conn := leaveUnread(withKey(t.Context(), "greedy"), t, e.connections.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !conn.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("the connection is open still")
	}
	until(t, "the memory is given back", func() bool { return e.sent.Held() == 0 })
}
