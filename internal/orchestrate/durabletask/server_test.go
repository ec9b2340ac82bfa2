package durabletask

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // what clients may compress with
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/orchestrate"
)

var errKey = forebay.Errorf(forebay.CodeUnauthorized, "the API key is missing, unknown, expired or revoked")

// serveKeys has a process serve callers with the key "good", and returns a connection to it.
func serveKeys(t *testing.T, hold func(context.Context, forebay.Caller) (context.Context, func())) (*process, *grpc.ClientConn) {
	t.Helper()
	p := run(t, db.Options{Path: filepath.Join(t.TempDir(), "forebay.db")}, orchestrate.Options{Remote: true})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	address := serveAt(ctx, t, &running, p.server, ServeOptions{Hold: hold, Authenticate: func(_ context.Context, key string) (forebay.Caller, bool, error) {
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
	})
	return p, conn
}

func withKey(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
}

// A call without a key is refused by its headers, before its message has been sent.
func TestCallIsRefusedBeforeItsMessage(t *testing.T) {
	_, conn := serveKeys(t, nil)
	methods := slices.Collect(maps.Keys(microsoftCalls))
	for _, m := range protos.TaskHubSidecarService_ServiceDesc.Methods {
		methods = append(methods, m.MethodName)
	}
	for _, method := range methods {
		for _, key := range []string{"", "bad"} {
			ctx, cancel := context.WithTimeout(withKey(t.Context(), key), time.Minute)
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+protos.TaskHubSidecarService_ServiceDesc.ServiceName+"/"+method)
			if err == nil {
				err = stream.RecvMsg(&protos.CompleteTaskResponse{})
			}
			cancel()
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s with the key %q: %v", method, key, err)
			}
		}
	}
}

// Dapr's SDKs send the key that DAPR_API_TOKEN holds in a header of their own.
func TestKeyInDaprsHeader(t *testing.T) {
	_, conn := serveKeys(t, nil)
	for key, want := range map[string]codes.Code{"good": codes.OK, "bad": codes.Unauthenticated} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), daprToken, key)
		if _, err := protos.NewTaskHubSidecarServiceClient(conn).Hello(ctx, &emptypb.Empty{}); status.Code(err) != want {
			t.Errorf("with the key %q: %v", key, err)
		}
	}
}

func TestCompressedMessageIsRefused(t *testing.T) {
	_, conn := serveKeys(t, nil)
	client := protos.NewTaskHubSidecarServiceClient(conn)
	ctx := withKey(t.Context(), "good")
	large := &protos.CreateInstanceRequest{InstanceId: "i", Name: "n", Input: wrapperspb.String(strings.Repeat(" ", 1<<20) + "1")}
	if _, err := client.StartInstance(ctx, large, grpc.UseCompressor("gzip")); status.Code(err) != codes.Unimplemented {
		t.Errorf("a compressed message: %v", err)
	}
	if _, err := client.StartInstance(ctx, large); err != nil {
		t.Errorf("the same, not compressed: %v", err)
	}
}

// Open calls end with their key, and a worker is sent nothing more.
func TestOpenCallsEndWithTheirKey(t *testing.T) {
	revoked, revoke := context.WithCancelCause(context.Background())
	p, conn := serveKeys(t, func(ctx context.Context, _ forebay.Caller) (context.Context, func()) {
		held, end := context.WithCancelCause(ctx)
		stop := context.AfterFunc(revoked, func() { end(context.Cause(revoked)) })
		return held, func() { stop(); end(nil) }
	})
	client := protos.NewTaskHubSidecarServiceClient(conn)
	ctx, cancel := context.WithTimeout(withKey(t.Context(), "good"), time.Minute)
	defer cancel()
	stream, err := client.GetWorkItems(ctx, &protos.GetWorkItemsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := p.start(t, orchestrate.StartRequest{Name: "remote"})
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := client.WaitForInstanceCompletion(ctx, &protos.GetInstanceRequest{InstanceId: id})
		waits <- err
	}()
	revoke(errKey)
	p.start(t, orchestrate.StartRequest{Name: "remote", Input: []byte(`"not for the worker"`)})
	if item, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the worker was sent %v, %v", item, err)
	}
	if err := <-waits; status.Code(err) != codes.Unauthenticated {
		t.Errorf("the call that waited ended with %v", err)
	}
}

// wire is the transport of a message that has arrived.
type wire struct{ left []byte }

func (w *wire) ReadMessageHeader(header []byte) error {
	if len(w.left) < len(header) {
		return io.EOF
	}
	w.left = w.left[copy(header, w.left):]
	return nil
}

func (w *wire) Read(n int) (mem.BufferSlice, error) {
	if len(w.left) < n {
		return nil, io.ErrUnexpectedEOF
	}
	b := mem.SliceBuffer(w.left[:n])
	w.left = w.left[n:]
	return mem.BufferSlice{b}, nil
}

func framed(compressed byte, length int, body []byte) *wire {
	return &wire{append(binary.BigEndian.AppendUint32([]byte{compressed}, uint32(length)), body...)}
}

func TestMessagesAreReadWithinBounds(t *testing.T) {
	const most = 1 << 20
	many := func(n int) (b []byte) { // actions without anything in them: two bytes here, a hundred in memory
		for range n {
			b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), nil)
		}
		return b
	}
	failure := &protos.TaskFailureDetails{}
	for range maxDepth {
		failure = &protos.TaskFailureDetails{InnerFailure: failure}
	}
	deep, err := proto.Marshal(&protos.ActivityResponse{FailureDetails: failure})
	if err != nil {
		t.Fatal(err)
	}
	valid, err := proto.Marshal(&protos.WorkflowResponse{InstanceId: "i", CustomStatus: wrapperspb.String(strings.Repeat("x", most/2))})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		wire *wire
		into proto.Message
		want codes.Code
	}{
		"a valid one":            {framed(0, len(valid), valid), &protos.WorkflowResponse{}, codes.OK},
		"an empty one":           {framed(0, 0, nil), &protos.WorkflowResponse{}, codes.OK},
		"none":                   {&wire{}, &protos.WorkflowResponse{}, codes.InvalidArgument},
		"one that ends early":    {framed(0, 100, []byte("x")), &protos.WorkflowResponse{}, codes.InvalidArgument},
		"one that is too large":  {framed(0, most+1, nil), &protos.WorkflowResponse{}, codes.ResourceExhausted},
		"one that says too much": {framed(0, 1<<32-1, nil), &protos.WorkflowResponse{}, codes.ResourceExhausted},
		"a compressed one":       {framed(1, len(valid), valid), &protos.WorkflowResponse{}, codes.Unimplemented},
		"one of many fields":     {framed(0, 2*maxFields+2, many(maxFields+1)), &protos.WorkflowResponse{}, codes.InvalidArgument},
		"one that is deep":       {framed(0, len(deep), deep), &protos.ActivityResponse{}, codes.InvalidArgument},
		"one that is no message": {framed(0, 3, []byte{0xff, 0xff, 0xff}), &protos.WorkflowResponse{}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			limit := most
			if strings.Contains(name, "many fields") {
				limit = 4 * most
			}
			r := receiver{log: slog.New(slog.DiscardHandler), pool: memory.New(2 * int64(limit)), tenant: tenant, maxMessage: limit}
			own := &reservation{}
			err := r.read(t.Context(), c.wire, c.into, own, make(chan int, 1))
			if status.Code(err) != c.want {
				t.Errorf("%v, expected %v", err, c.want)
			}
			own.release()
			if held := r.pool.Held(); held != 0 {
				t.Errorf("%d bytes were not given back", held)
			}
		})
	}
}

// The memory of a response is held until the work item is done: the engine has the response for
// longer than the call.
func TestMemoryOfAResponseIsHeldUntilItsItemIsDone(t *testing.T) {
	h := &taskHub{}
	given := 0
	bring := func(key string) {
		reserved := &reservation{}
		reserved.add(func() { given++ })
		h.keepAnswer(context.WithValue(t.Context(), reservationKey{}, reserved), key)
		reserved.release() // as the call does
	}
	h.expectAnswer("item")
	bring("item")
	if given != 0 {
		t.Error("the room was given back with the call")
	}
	bring("another")
	if given != 1 {
		t.Error("the room of an answer that nobody waits for is kept")
	}
	h.answered("item")
	if given != 2 {
		t.Error("the room was not given back with the work item")
	}
	bring("item")
	if given != 3 {
		t.Error("the room of a late answer is kept")
	}
}

type fakeConn struct {
	net.Conn
	remote string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", c.remote)
	return a
}

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnections(nil, 0)
		port := 1000
		open := func(address string) *connection {
			port++
			return c.admit(&fakeConn{remote: net.JoinHostPort(address, strconv.Itoa(port))})
		}
		var first *connection
		for i := range maxAddressConnections {
			conn := open("192.0.2.1")
			if conn == nil {
				t.Fatalf("connection %d of an address was refused", i)
			}
			if i == 0 {
				first = conn
			}
		}
		next := open("192.0.2.1")
		if next == nil || !first.Conn.(*fakeConn).closed || c.addresses["192.0.2.1"] != maxAddressConnections {
			t.Error("a new connection did not take the place of the oldest of its address that sends nothing")
		}
		other := open("2001:db8::1")
		if other == nil {
			t.Fatal("another address was refused")
		}
		c.noteCall(other.RemoteAddr().String(), true)
		if err := next.Close(); err != nil {
			t.Fatal(err)
		}
		<-time.After(authenticateTime + time.Second)
		synctest.Wait()
		if len(c.open) != 1 || other.Conn.(*fakeConn).closed {
			t.Errorf("%d connections are open; only the one with a call that was let in should be", len(c.open))
		}
		for range maxRefused {
			c.noteCall(other.RemoteAddr().String(), false)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if !other.Conn.(*fakeConn).closed || len(c.addresses) != 0 {
			t.Errorf("a connection whose calls are refused is open; addresses %v", c.addresses)
		}
	})
}

// Connections with an admitted call are not closed for new ones.
func TestKnownConnectionsKeepTheirPlaces(t *testing.T) {
	c := newConnections(nil, 2)
	first := c.admit(&fakeConn{remote: "192.0.2.1:1"})
	silent := c.admit(&fakeConn{remote: "192.0.2.2:1"})
	c.noteCall("192.0.2.1:1", true)
	second := c.admit(&fakeConn{remote: "192.0.2.3:1"})
	if second == nil || first.Conn.(*fakeConn).closed || !silent.Conn.(*fakeConn).closed {
		t.Fatal("the place was not taken of the connection that sends nothing")
	}
	c.noteCall("192.0.2.3:1", true)
	if c.admit(&fakeConn{remote: "192.0.2.4:1"}) != nil {
		t.Error("there are more connections than there may be")
	}
	for _, conn := range []*connection{silent, first, second} {
		_ = conn.Close()
	}
	if len(c.open)+len(c.addresses)+c.anonymous.Len() != 0 {
		t.Errorf("left behind: %v, %v, %d", c.open, c.addresses, c.anonymous.Len())
	}
}

// Refused calls in a row delay their connection, and no other.
func TestRefusedCallsHoldUpTheirConnection(t *testing.T) {
	const hostile, other = "192.0.2.1:1", "192.0.2.1:2"
	c := newConnections(nil, 10)
	for _, remote := range []string{hostile, other} {
		defer c.admit(&fakeConn{remote: remote}).Close()
	}
	for i := range 2 * freeRefused {
		if pause := c.noteCall(hostile, false); pause > 0 != (i >= freeRefused) {
			t.Errorf("refused call %d holds up its connection for %v", i+1, pause)
		}
	}
	if pause := c.noteCall(other, false); pause > 0 {
		t.Errorf("another connection is held up for %v", pause)
	}
	if pause := c.noteCall(hostile, true) + c.noteCall(hostile, false); pause > 0 {
		t.Errorf("after a call that was let in it is held up for %v", pause)
	}
}

// A refused call with a known key does not delay its connection, and neither do calls while keys
// cannot be looked up.
func TestOnlyStrangersHoldUpTheirConnection(t *testing.T) {
	const remote = "192.0.2.1:1"
	address, err := net.ResolveTCPAddr("tcp", remote)
	if err != nil {
		t.Fatal(err)
	}
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: address})
	for name, c := range map[string]struct {
		err     error
		refused int64
		code    codes.Code
	}{
		"no such scope":        {nil, 0, codes.PermissionDenied},
		"keys are not to read": {forebay.Errorf(forebay.CodeUnavailable, "the database is away"), 0, codes.Unavailable},
		"no such key":          {forebay.Errorf(forebay.CodeUnauthorized, "the API key is not known"), 3, codes.Unauthenticated},
	} {
		e := (&Server{}).endpoint(nil, ServeOptions{Authenticate: func(context.Context, string) (forebay.Caller, bool, error) {
			return forebay.Caller{KeyID: "key_1"}, false, c.err
		}})
		e.opts.Limits = limits.New(nil, forebay.TenantLimits{})
		conn := e.connections.admit(&fakeConn{remote: remote})
		for range 3 {
			if _, err := e.admit(ctx, &tap.Info{FullMethodName: "/service/StartInstance"}); status.Code(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := conn.refused.Load(); got != c.refused {
			t.Errorf("%s: %d calls count as refused, not %d", name, got, c.refused)
		}
		_ = conn.Close()
	}
}

// A stop does not wait for silent connections.
func TestDrainEndsConnectionsWithoutACall(t *testing.T) {
	c := newConnections(nil, 10)
	known, silent := c.admit(&fakeConn{remote: "192.0.2.1:1"}), c.admit(&fakeConn{remote: "192.0.2.2:1"})
	c.noteCall("192.0.2.1:1", true)
	c.drain()
	if known.Conn.(*fakeConn).closed || !silent.Conn.(*fakeConn).closed {
		t.Error("not those without a call were ended")
	}
	if c.admit(&fakeConn{remote: "192.0.2.3:1"}) != nil {
		t.Error("a connection was taken after that")
	}
	_ = known.Close()
}

func TestCallsAreBounded(t *testing.T) {
	e := (&Server{}).endpoint(nil, ServeOptions{})
	var leaves []func()
	enter := func(tenant string) error {
		leave, err := e.enter(tenant)
		if err == nil {
			leaves = append(leaves, leave)
		}
		return err
	}
	for range maxTenantCalls {
		if err := enter("greedy"); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter("greedy"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one call too many: %v", err)
	}
	if err := enter("other"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	for _, leave := range leaves {
		leave()
	}
	if e.calls != 0 || len(e.tenants) != 0 {
		t.Errorf("left behind: %d, %v", e.calls, e.tenants)
	}
}
