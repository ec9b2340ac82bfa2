package servicebus

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/api/connections"
)

// dialWebSocket returns a stream over a WebSocket.
func (b *bench) dialWebSocket() (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(b.Context(), "ws://"+b.address+webSocketPath, &websocket.DialOptions{Subprotocols: []string{webSocketSubprotocol}})
}

// A client over a WebSocket may call AMQP what the standard calls it.
func TestSubprotocolsOfWebSockets(t *testing.T) {
	b := newBench(t, nil)
	for _, name := range webSocketSubprotocols {
		ws, _, err := websocket.Dial(t.Context(), "ws://"+b.address+webSocketPath, &websocket.DialOptions{Subprotocols: []string{name}})
		if err != nil {
			t.Fatal(err)
		}
		if got := ws.Subprotocol(); got != name {
			t.Errorf("%q instead of %q", got, name)
		}
		_ = ws.CloseNow()
	}
}

// Serve waits also for connections over WebSockets, so that nothing is stored after it.
func TestServeWaitsForWebSockets(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{})
	ws, _, err := b.dialWebSocket()
	if err != nil {
		t.Fatal(err)
	}
	p := open(b, websocket.NetConn(context.Background(), ws, websocket.MessageBinary), "any", "any")
	p.begin(1000)
	p.sends(0, "orders")
	p.send(transfer(0, 0), encoded(t, []byte("m")))
	expect[*wire.Disposition](p)
	b.stop()
	expect[*wire.Close](p) // which this client does not answer
	<-b.ended
	if n := b.server.Connections(); n != 0 {
		t.Errorf("%d connections are served after Serve has returned", n)
	}
}

// What the guard refuses is refused before anything else, also over a WebSocket.
func TestTheGuardIsAskedFirst(t *testing.T) {
	refusals := map[int]error{
		http.StatusForbidden:    errors.New("not from here"),
		http.StatusUnauthorized: forebay.Errorf(forebay.CodeUnauthorized, "not without a key"),
	}
	for status, refusal := range refusals {
		b := newGuardedBench(t, nil, func(*http.Request) error { return refusal })
		if ws, answer, err := b.dialWebSocket(); err == nil || answer == nil || answer.StatusCode != status {
			t.Errorf("a WebSocket got %v (%v) instead of status %d", ws, err, status)
		}
		answer, err := http.Get("http://" + b.address + "/orders")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != status {
			t.Errorf("a request got status %d instead of %d", answer.StatusCode, status)
		}
	}
}

// without has no descriptor for the first connections.
type without struct {
	net.Listener
	descriptors int
}

func (l *without) Accept() (net.Conn, error) {
	if l.descriptors++; l.descriptors <= 2 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// A process that has no descriptor left for a while goes on to serve.
func TestServeGoesOnWithoutDescriptors(t *testing.T) {
	b := newBench(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		web := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: patience}
		ended <- b.Serve(ctx, &without{Listener: l}, ServeOptions{HTTP: web, Connections: connections.New(1000)})
	}()
	b.address = l.Addr().String()
	p := b.connect("any", "any")
	p.begin(1000)
	p.Close()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
