package servicebus

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/sleep"
)

const (
	// firstBytesTime is how long a client may take for its TLS handshake and its first bytes.
	firstBytesTime = 20 * time.Second
	// webSocketPath is where AMQP is spoken over a WebSocket.
	webSocketPath        = "/$servicebus/websocket"
	webSocketSubprotocol = "AMQPWSB10"
)

// webSocketSubprotocols are the names of AMQP: that of Service Bus, and that of the standard (AMQP
// over WebSockets 1.0, 2.1), without which Qpid JMS does not go on.
var webSocketSubprotocols = []string{webSocketSubprotocol, "amqp"}

// ServeOptions say how a listener is served.
type ServeOptions struct {
	TLS *tls.Config // nil: without encryption
	// HTTP returns the server for requests other than those for a WebSocket.
	HTTP *http.Server
	// Guard refuses a request over HTTP, also one for a WebSocket, before anything reads it. It may
	// be nil.
	Guard func(*http.Request) error
	// Connections counts connections with those of other listeners.
	Connections *connections.Set
}

// Serve serves the connections of a listener until ctx ends: AMQP, AMQP over WebSockets and HTTP,
// which their first bytes tell apart. It closes the listener, and the
// connections with an error after which clients connect again.
func (e *Endpoint) Serve(ctx context.Context, l net.Listener, o ServeOptions) error {
	var sockets gate // the server of HTTP does not wait for them
	defer sockets.close()
	l = o.Connections.Listen(l, true) // no answer in HTTP to a client that may speak AMQP
	requests := newHandoff(l.Addr())
	web := o.HTTP
	web.Handler = guarded(o.Guard, e.webSockets(ctx, &sockets, web.Handler))
	web.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if begun, ok := c.(*begunConn); ok {
			ctx = withCounted(ctx, begun.counted)
		}
		return ctx
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() { _ = web.Serve(requests) })
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	defer func() {
		timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		if web.Shutdown(timeout) != nil {
			_ = web.Close()
		}
	}()
	for short := false; ; {
		c, err := l.Accept()
		switch {
		case err == nil:
			short = false
			serving.Go(func() { e.serveAccepted(ctx, c, o.TLS, requests) })
		case ctx.Err() != nil:
			return nil
		case !passing(err):
			return err
		default:
			if !short {
				short = true
				e.log.Warn("no connection of a Service Bus client can be accepted; trying again", slog.Any("error", err))
			}
			_ = sleep.For(ctx, acceptPause)
		}
	}
}

// acceptPause is the pause after a connection could not be accepted.
const acceptPause = 100 * time.Millisecond

// passing reports whether accepting may work again soon: the process has no descriptor left now.
func passing(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && errno.Temporary()
}

// serveAccepted finds out what a client speaks. It returns when an AMQP connection is over, or at
// once if the connection is one for HTTP.
func (e *Endpoint) serveAccepted(ctx context.Context, accepted net.Conn, encrypted *tls.Config, requests *handoff) {
	counted, _ := accepted.(*connections.Connection)
	c := accepted
	if encrypted != nil {
		c = tls.Server(accepted, encrypted)
	}
	stop := context.AfterFunc(ctx, func() { _ = accepted.Close() })
	begun, err := firstBytes(c, counted)
	if !stop() || err != nil {
		_ = accepted.Close()
		return
	}
	if bytes.Equal(begun.first, []byte("AMQP")) {
		e.serveAMQP(ctx, begun, counted)
		return
	}
	requests.put(begun)
}

// serveAMQP serves AMQP on a stream.
func (e *Endpoint) serveAMQP(ctx context.Context, c net.Conn, counted *connections.Connection) {
	ctx = context.WithValue(withCounted(ctx, counted), peerKey{}, e.verifier.From(addressOf(c.RemoteAddr())))
	if err := e.server.ServeConn(ctx, c); err != nil {
		e.log.Debug("a connection of a Service Bus client ended", slog.Any("error", err))
	}
}

// begunConn is a connection whose first bytes were read.
type begunConn struct {
	net.Conn
	first   []byte // not read yet
	counted *connections.Connection
}

// firstBytes reads as much as tells AMQP from HTTP.
func firstBytes(c net.Conn, counted *connections.Connection) (*begunConn, error) {
	if err := c.SetDeadline(time.Now().Add(firstBytesTime)); err != nil {
		return nil, err
	}
	first := make([]byte, len("AMQP"))
	if _, err := io.ReadFull(c, first); err != nil {
		return nil, err
	}
	return &begunConn{Conn: c, first: first, counted: counted}, c.SetDeadline(time.Time{})
}

func (c *begunConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// guarded serves the requests that the guard lets through.
func guarded(guard func(*http.Request) error, next http.Handler) http.Handler {
	if guard == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard(r); err != nil {
			status := http.StatusForbidden
			if forebay.CodeOf(err) == forebay.CodeUnauthorized {
				status = http.StatusUnauthorized
			}
			http.Error(w, err.Error(), status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// webSockets speaks AMQP over WebSockets, and leaves other requests to next.
func (e *Endpoint) webSockets(ctx context.Context, open *gate, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(strings.TrimSuffix(r.URL.Path, "/"), webSocketPath) {
			next.ServeHTTP(w, r)
			return
		}
		if !open.enter() {
			http.Error(w, "the server is shutting down", http.StatusServiceUnavailable)
			return
		}
		defer open.leave()
		// Web pages of other origins are refused by the library.
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: webSocketSubprotocols, CompressionMode: websocket.CompressionDisabled})
		if err != nil {
			e.log.Debug("a WebSocket was refused", slog.Any("error", err))
			return
		}
		ws.SetReadLimit(-1) // a frame of AMQP has a limit of its own, and may lie across messages
		e.serveAMQP(ctx, remoteConn{websocket.NetConn(context.WithoutCancel(ctx), ws, websocket.MessageBinary), r.RemoteAddr}, countedIn(r.Context()))
	})
}

// remoteConn is a stream that knows where it comes from.
type remoteConn struct {
	net.Conn
	address string
}

func (c remoteConn) RemoteAddr() net.Addr { return addressText(c.address) }

// addressText is an address of TCP as text.
type addressText string

func (addressText) Network() string  { return "tcp" }
func (a addressText) String() string { return string(a) }

type countedKey struct{}

// withCounted keeps the counted connection below a stream.
func withCounted(ctx context.Context, c *connections.Connection) context.Context {
	return context.WithValue(ctx, countedKey{}, c)
}

func countedIn(ctx context.Context) *connections.Connection {
	c, _ := ctx.Value(countedKey{}).(*connections.Connection)
	return c
}

// handoff is a listener whose connections somebody else has accepted.
type handoff struct {
	address net.Addr
	conns   chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func newHandoff(address net.Addr) *handoff {
	return &handoff{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// put passes a connection on, or closes it if nobody accepts any more.
func (h *handoff) put(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		_ = c.Close()
	}
}

func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, errHandoffClosed
	}
}

var errHandoffClosed = errors.Join(net.ErrClosed, http.ErrServerClosed)

func (h *handoff) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handoff) Addr() net.Addr { return h.address }
