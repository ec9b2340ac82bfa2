package server_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// startGRPC runs a server with keys, and returns its database, where it answers by gRPC, and a key
// that may do everything.
func startGRPC(t *testing.T) (keys *server.Keys, address string, key forebay.APIKey) {
	t.Helper()
	database := "sqlite:" + dbtest.SQLite(t)
	keys, err := server.OpenKeys(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = keys.Create(t.Context(), "acme", []forebay.Scope{forebay.ScopeAdmin}, nil, forebay.Budget{}); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Options{Database: database, Listen: "127.0.0.1:0", ShutdownTimeout: time.Second,
		Orchestrations: server.Orchestrations{GRPC: server.OrchestrationsGRPC{Address: "127.0.0.1:0"}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, keys.Close()); err != nil {
			t.Error(err)
		}
	})
	return keys, s.GRPCAddr(t.Context()).String(), key
}

// A worker's stream ends when another process, here the one that works on the keys, revokes its
// key.
func TestWorkersStreamEndsWithItsKey(t *testing.T) {
	t.Parallel()
	keys, address, key := startGRPC(t)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key.Key), time.Minute)
	defer cancel()
	client := protos.NewTaskHubSidecarServiceClient(conn)
	stream, err := client.GetWorkItems(ctx, &protos.GetWorkItemsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.StartInstance(ctx, &protos.CreateInstanceRequest{InstanceId: "first", Name: "remote"}); err != nil {
		t.Fatal(err)
	}
	if item, err := stream.Recv(); err != nil || item.GetWorkflowRequest().GetInstanceId() != "first" {
		t.Fatalf("the worker was sent %v, %v", item, err)
	}
	if _, err := keys.Revoke(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	if item, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("after the revocation the worker was sent %v, %v", item, err)
	}
}

// rawGRPC is a connection that speaks HTTP/2 by hand, as no client does.
type rawGRPC struct {
	*http2.Framer
	conn   net.Conn
	header bytes.Buffer
	next   uint32
}

func dialRaw(t *testing.T, address string) *rawGRPC {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	r := &rawGRPC{Framer: http2.NewFramer(conn, conn), conn: conn, next: 1}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return r
}

// call opens a stream and begins a message of 48 MiB on it, which does not end.
func (r *rawGRPC) call(key string) error {
	r.header.Reset()
	encoder := hpack.NewEncoder(&r.header)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/TaskHubSidecarService/StartInstance"}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", "Bearer " + key}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return err
		}
	}
	id := r.next
	r.next += 2
	if err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: r.header.Bytes(), EndHeaders: true}); err != nil {
		return err
	}
	return r.WriteData(id, false, append([]byte{0, 3, 0, 0, 0}, make([]byte, 100)...))
}

// A connection whose calls have no key is answered each time, and is closed after many.
func TestConnectionWithoutAKeyIsClosed(t *testing.T) {
	t.Parallel()
	_, address, _ := startGRPC(t)
	r := dialRaw(t, address)
	go func() {
		for range 200 {
			if r.call("") != nil {
				return
			}
		}
	}()
	refused := 0
	for {
		frame, err := r.ReadFrame()
		if err != nil {
			break // it is closed
		}
		if h, ok := frame.(*http2.HeadersFrame); ok && h.StreamEnded() {
			refused++
		}
	}
	if refused < 50 {
		t.Errorf("%d calls were answered before the connection was closed", refused)
	}
}
