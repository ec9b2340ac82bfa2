package durabletask

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/stores"
)

// limitedClient calls a process whose tenants have these limits.
func limitedClient(t *testing.T, l forebay.TenantLimits) (*process, protos.TaskHubSidecarServiceClient) {
	t.Helper()
	s, err := stores.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "forebay.db")})
	if err != nil {
		t.Fatal(err)
	}
	meter := limits.New(s.Tenants, l)
	p := runOn(t, s, orchestrate.Options{Remote: true, Limits: meter})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	address := serveAt(ctx, t, &running, p.server, ServeOptions{Authenticate: func(_ context.Context, key string) (forebay.Caller, bool, error) {
		if key != "good" {
			return forebay.Caller{}, false, errKey
		}
		return forebay.Caller{KeyID: "key_1", Tenant: tenant, Scopes: forebay.Scopes}, false, nil
	}})
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		running.Wait()
		meter.Close()
	})
	return p, protos.NewTaskHubSidecarServiceClient(conn)
}

func refusedBy(err error, name forebay.LimitName) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(status.Convert(err).Message(), string(name))
}

// Starts and events by gRPC are limited. Terminations and suspensions are not.
func TestLimitsByGRPC(t *testing.T) {
	instances, events, days := int64(2), int64(3), int64(1)
	_, client := limitedClient(t, forebay.TenantLimits{Orchestrations: &instances, OrchestrationEvents: &events, ScheduleAhead: &days})
	ctx := withKey(t.Context(), "good")
	start := func(id string, at *timestamppb.Timestamp) error {
		_, err := client.StartInstance(ctx, &protos.CreateInstanceRequest{InstanceId: id, Name: "n", ScheduledStartTimestamp: at})
		return err
	}
	if err := start("late", timestamppb.New(time.Now().Add(25*time.Hour))); !refusedBy(err, forebay.LimitScheduleAhead) {
		t.Errorf("a start that is too far ahead: %v", err)
	}
	for _, id := range []string{"a", "b"} {
		if err := start(id, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := start("c", nil); !refusedBy(err, forebay.LimitOrchestrations) {
		t.Errorf("a third instance: %v", err)
	}
	raise := func() error { // beside the events that start the two
		_, err := client.RaiseEvent(ctx, &protos.RaiseEventRequest{InstanceId: "a", Name: "e", Input: wrapperspb.String("1")})
		return err
	}
	if err := raise(); err != nil {
		t.Fatal(err)
	}
	if err := raise(); !refusedBy(err, forebay.LimitOrchestrationEvents) {
		t.Errorf("an event at the limit: %v", err)
	}
	if _, err := client.SuspendInstance(ctx, &protos.SuspendRequest{InstanceId: "a"}); err != nil {
		t.Errorf("a suspension at the limit: %v", err)
	}
	if _, err := client.TerminateInstance(ctx, &protos.TerminateRequest{InstanceId: "b"}); err != nil {
		t.Errorf("an end at the limit: %v", err)
	}
}

// Rates hold for gRPC. A caller without a key has the rate of its address. Results of workers
// are never refused.
func TestRatesByGRPC(t *testing.T) {
	perKey := int64(1)
	p, client := limitedClient(t, forebay.TenantLimits{KeyRequests: &perKey})
	known := withKey(t.Context(), "good")
	get := func(ctx context.Context) error {
		_, err := client.GetInstance(ctx, &protos.GetInstanceRequest{InstanceId: "i"})
		return err
	}
	refused := false
	for range 100 {
		refused = refused || refusedBy(get(known), forebay.LimitKeyRequests)
	}
	if !refused {
		t.Error("a hundred requests at once with a key that may send one a second")
	}
	for range 20 {
		if _, err := client.SuspendInstance(known, &protos.SuspendRequest{InstanceId: "i"}); status.Code(err) == codes.ResourceExhausted {
			t.Fatalf("what a worker's key asks for: %v", err)
		}
	}
	drained, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var draining sync.WaitGroup
	defer draining.Wait()
	defer stop()
	draining.Go(func() { // others at the same address
		for drained.Err() == nil {
			_ = p.server.opts.Limits.Stranger("127.0.0.1")
		}
	})
	for {
		err := get(withKey(drained, "bad"))
		if status.Code(err) == codes.ResourceExhausted {
			break
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Fatalf("any number of requests without a key: %v", err)
		}
	}
}
