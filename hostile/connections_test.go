//go:build hostile

package hostile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Somebody without a key holds connections, or sends what is large.
var connections = register(
	Attack{Name: "gRPC messages of 64 MiB without a key", MemoryMiB: baseMemory, Window: time.Second, Run: func(ctx context.Context, s *Scene) error {
		message := startInstance(63 << 20)
		return s.invoke(ctx, func(context.Context) []byte { return message })
	}},
	Attack{Name: "gzip bombs by gRPC without a key", MemoryMiB: baseMemory, Window: time.Second, Run: func(ctx context.Context, s *Scene) error {
		bomb, err := compressed(startInstance(63 << 20))
		if err != nil {
			return err
		}
		encoding.RegisterCompressor(readyMade(bomb))
		return s.invoke(ctx, func(context.Context) []byte { return []byte("replaced by the compressor") }, grpc.UseCompressor("gzip"))
	}},
	Attack{Name: "gRPC streams without a key", MemoryMiB: baseMemory, Run: holdStreams},
	// 256 files are fewer than the connections, so the server has to let some go to serve others.
	Attack{Name: "connections that announce a body", MemoryMiB: baseMemory, Target: TargetOptions{OpenFiles: 256}, StopUnderAttack: true, Reconnects: true, Run: holdConnections},
	Attack{Name: "connections that send nothing", MemoryMiB: baseMemory, Target: TargetOptions{OpenFiles: 256}, StopUnderAttack: true, Reconnects: true, Run: holdSilent},
)

// startInstance is a request of that many bytes to start an instance, in protobuf.
func startInstance(bytes int) []byte {
	var input, b []byte
	input = protowire.AppendTag(input, 1, protowire.BytesType)
	input = protowire.AppendString(input, strings.Repeat("a", bytes))
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendString(b, "anything")
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	return protowire.AppendBytes(b, input)
}

// invoke calls from sixteen connections at once, one message after the other.
func (s *Scene) invoke(ctx context.Context, message func(context.Context) []byte, options ...grpc.CallOption) error {
	var running sync.WaitGroup
	for range 16 {
		conn, err := dialGRPC(s.GRPC)
		if err != nil {
			return err
		}
		defer conn.Close()
		running.Go(func() {
			s.Ready()
			for ctx.Err() == nil {
				var answer []byte
				err := conn.Invoke(ctx, "/TaskHubSidecarService/StartInstance", message(ctx), &answer,
					append(options, grpc.ForceCodec(rawCodec{}), grpc.MaxCallSendMsgSize(100<<20))...)
				s.Done(status.Code(err).String())
				pause(ctx, 5*time.Millisecond)
			}
		})
	}
	running.Wait()
	return nil
}

func dialGRPC(address string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// readyMade is a compressor that always has the same result.
type readyMade []byte

func (r readyMade) Name() string { return "gzip" }
func (r readyMade) Compress(w io.Writer) (io.WriteCloser, error) {
	_, err := w.Write(r)
	return discard{io.Discard}, err
}
func (r readyMade) Decompress(in io.Reader) (io.Reader, error) { return gzip.NewReader(in) }

type discard struct{ io.Writer }

func (discard) Close() error { return nil }

func compressed(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	return out.Bytes(), w.Close()
}

// holdStreams opens streams with large headers and sends nothing by them.
func holdStreams(ctx context.Context, s *Scene) error {
	conns := 10
	if s.Short {
		conns = 3
	}
	header := metadata.Pairs("filler", strings.Repeat("h", 4<<10))
	var running sync.WaitGroup
	for range conns {
		conn, err := dialGRPC(s.GRPC)
		if err != nil {
			return err
		}
		defer conn.Close()
		running.Go(func() {
			for range 1000 {
				opening, cancel := context.WithTimeout(ctx, time.Second)
				context.AfterFunc(ctx, cancel)
				if _, err := conn.NewStream(metadata.NewOutgoingContext(ctx, header), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
					"/TaskHubSidecarService/StartInstance", grpc.ForceCodec(rawCodec{})); err != nil {
					s.Done(status.Code(err).String())
				} else {
					s.Done("opened")
				}
				if opening.Err() != nil {
					return
				}
				cancel()
			}
		})
	}
	<-ctx.Done()
	running.Wait()
	return nil
}

// holdConnections keeps 300 connections that have had a refusal and owe the rest of their request.
func holdConnections(ctx context.Context, s *Scene) error {
	var running sync.WaitGroup
	var opened sync.WaitGroup
	for i := range 300 {
		opened.Add(1)
		first := sync.OnceFunc(opened.Done)
		running.Go(func() {
			defer first() // the attack may end before this connection begins
			for ; ctx.Err() == nil; pause(ctx, 200*time.Millisecond) {
				s.Done(owe(ctx, s, []string{"/v1/jobs", "/nowhere"}[i%2], first))
				first()
			}
		})
	}
	opened.Wait()
	s.Ready()
	running.Wait()
	return nil
}

// owe announces a body, reads the refusal and then waits until the server hangs up.
func owe(ctx context.Context, s *Scene, path string, answered func()) string {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		return "not connected"
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n", path)
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	answered()
	_ = conn.SetReadDeadline(time.Time{})
	if err != nil {
		_, _ = io.Copy(io.Discard, conn)
		return "no answer"
	}
	resp.Body.Close()
	_, _ = io.Copy(io.Discard, conn)
	return fmt.Sprint(resp.StatusCode)
}

// holdSilent keeps 300 connections that send nothing: to the API, and to the Durable Task
// protocol. Some of the latter send only HTTP/2's preface.
func holdSilent(ctx context.Context, s *Scene) error {
	api := strings.TrimPrefix(s.URL, "http://")
	var running, opened sync.WaitGroup
	for i := range 300 {
		opened.Add(1)
		first := sync.OnceFunc(opened.Done)
		running.Go(func() {
			defer first() // the attack may end before this connection begins
			for ; ctx.Err() == nil; pause(ctx, 200*time.Millisecond) {
				s.Done(silent(ctx, []string{api, s.GRPC, s.GRPC}[i%3], []string{"", "", http2Preface}[i%3], first))
				first()
			}
		})
	}
	opened.Wait()
	s.Ready()
	running.Wait()
	return nil
}

// http2Preface is what a client of HTTP/2 begins with, and its empty settings.
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// silent connects, sends no more than that and waits until the server hangs up.
func silent(ctx context.Context, address, begin string, connected func()) string {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "not connected"
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	connected()
	if _, err := io.WriteString(conn, begin); err != nil {
		return "hung up"
	}
	_, _ = io.Copy(io.Discard, conn)
	return "hung up"
}
