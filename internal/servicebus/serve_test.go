package servicebus

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/coder/websocket"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// dialWebSocket returns a stream over a WebSocket.
func (b *bench) dialWebSocket() (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(b.Context(), "ws://"+b.address+webSocketPath, &websocket.DialOptions{Subprotocols: []string{webSocketSubprotocol}})
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
