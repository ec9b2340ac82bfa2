package openai

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/memory"
)

// taken is an answer whose connection is taken over.
type taken struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (w taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// onPipe tests a connection whose client writes and reads bytes, in a bubble.
func onPipe(t *testing.T, test func(t *testing.T, s *socket, ctx context.Context, client net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		r := httptest.NewRequest(http.MethodGet, "/v1/responses", nil)
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} {
			r.Header.Set(name, value)
		}
		conn, err := websocket.Accept(taken{httptest.NewRecorder(), server}, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetReadLimit(-1)
		line, hangUp := context.WithCancel(context.Background())
		ctx, cut := context.WithCancelCause(context.Background())
		s := &socket{API: New(Options{MaxBody: 10 << 20}), conn: conn, line: line, hangUp: hangUp, cut: cut, draining: make(chan struct{}), pace: transfer.NewPace(transfer.WriteBytesPerSecond)}
		test(t, s, ctx, client)
		hangUp()
		_ = conn.CloseNow()
		_ = client.Close()
		<-time.After(time.Minute) // what the test has begun ends
	})
}

// upload sends a message in one frame, at that many bytes a second.
func upload(client net.Conn, size, rate int) {
	header := append(binary.BigEndian.AppendUint64([]byte{0x81, 0xff}, uint64(size)), 0, 0, 0, 0)
	_, _ = client.Write(header)
	for part := make([]byte, rate); size > 0; size -= len(part) {
		<-time.After(time.Second)
		if _, err := client.Write(part[:min(size, len(part))]); err != nil {
			return
		}
	}
}

// readOne reads a message.
func (s *socket) readOne(ctx context.Context) (size int, err error) {
	_, r, err := s.conn.Reader(s.line)
	if err != nil {
		return 0, err
	}
	m := message{SurfaceRequest: &api.SurfaceRequest{Request: httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)}}
	err = s.readAll(&m, r)
	return len(m.body), err
}

// A client that cannot answer a ping, because it is sending a message at the pace of HTTP, is not
// taken for gone. One that sends nothing is.
func TestPingsLeaveUploadsAlone(t *testing.T) {
	onPipe(t, func(t *testing.T, s *socket, ctx context.Context, client net.Conn) {
		go s.ping()
		go io.Copy(io.Discard, client)
		began := time.Now()
		go upload(client, 9<<20, 130<<10)
		if n, err := s.readOne(ctx); n != 9<<20 || err != nil || ctx.Err() != nil {
			t.Errorf("%d bytes after %s: %v, %v", n, time.Since(began), err, context.Cause(ctx))
		}
		began = time.Now()
		go s.readOne(ctx)
		<-ctx.Done()
		if took := time.Since(began); !errors.Is(context.Cause(ctx), errLeft) || took > socketPing+socketPingWait || took < socketPingWait {
			t.Errorf("after %s: %v", took, context.Cause(ctx))
		}
	})
}

// An upload that is slower than a body of HTTP may be is cut off.
func TestSlowUploads(t *testing.T) {
	onPipe(t, func(t *testing.T, s *socket, ctx context.Context, client net.Conn) {
		began := time.Now()
		go upload(client, 9<<20, 40<<10)
		go s.readOne(ctx)
		<-ctx.Done()
		if took := time.Since(began); !errors.Is(context.Cause(ctx), errSlowClient) || took < transfer.Timeout || took > 4*transfer.Timeout {
			t.Errorf("after %s: %v", took, context.Cause(ctx))
		}
	})
}

// Time in which the server has no memory is not the client's.
func TestUploadsWaitForMemory(t *testing.T) {
	onPipe(t, func(t *testing.T, s *socket, ctx context.Context, client net.Conn) {
		pool := memory.New(1 << 20)
		others := pool.Claim("a")
		if !others.TryGrow(1 << 20) {
			t.Fatal("the pool has no room")
		}
		const size, slow = 200 << 10, transfer.Timeout - 2*time.Second
		go func() {
			header := append(binary.BigEndian.AppendUint64([]byte{0x81, 0xff}, size), 0, 0, 0, 0)
			_, _ = client.Write(header)
			<-time.After(slow)
			_, _ = client.Write(make([]byte, size))
		}()
		go func() {
			<-time.After(slow + 8*time.Second)
			others.Release()
		}()
		claim := pool.Claim("b")
		if n, err := s.readOne(memory.With(ctx, claim)); n != size || err != nil || ctx.Err() != nil {
			t.Errorf("%d bytes: %v, %v", n, err, context.Cause(ctx))
		}
		if held := claim.Held(); held < size-transfer.FreeBytes || held > size {
			t.Errorf("%d bytes hold %d", size, held)
		}
	})
}

// A large event may be read at the pace of HTTP's answers, and no slower.
func TestSlowReaders(t *testing.T) {
	for rate, want := range map[int]error{40 << 10: nil, 16 << 10: errSlowClient} {
		onPipe(t, func(t *testing.T, s *socket, ctx context.Context, client net.Conn) {
			go s.ping()
			go s.readOne(ctx)
			go func() {
				for part := make([]byte, rate/8); ; <-time.After(time.Second / 8) {
					if _, err := io.ReadFull(client, part); err != nil {
						return
					}
				}
			}()
			began := time.Now()
			err := s.send("", make([]byte, 5<<20))
			if (err == nil) != (want == nil) || !errors.Is(context.Cause(ctx), want) {
				t.Errorf("%d bytes a second, after %s: %v, %v", rate, time.Since(began), err, context.Cause(ctx))
			}
		})
	}
}

// A server that stops hangs up on a client that reads nothing as soon as HTTP does. It does not
// matter whether the unread data was being written before the stop or is written after it.
func TestStopLeavesStalledReaders(t *testing.T) {
	for _, before := range []bool{true, false} {
		onPipe(t, func(t *testing.T, s *socket, ctx context.Context, client net.Conn) {
			draining := make(chan struct{})
			s.draining = draining
			go s.hurry()
			stop := func() { close(draining) }
			if before {
				time.AfterFunc(time.Second, stop)
			} else {
				stop()
			}
			began := time.Now()
			if err := s.send("", make([]byte, 1<<20)); err == nil {
				t.Error("it was read")
			}
			if took := time.Since(began); took > transfer.DrainTimeout+2*time.Second {
				t.Errorf("a client that reads nothing has %s (written before the stop: %v)", took, before)
			}
		})
	}
}
