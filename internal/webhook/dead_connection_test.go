package webhook

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// A connection that has gone dead without a word fails the try that it has, and no other.
func TestDeadConnection(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var first, silent atomic.Pointer[net.Conn] // silent is the connection that says nothing more
	server.Listener, server.EnableHTTP2 = muting{server.Listener, &first, &silent}, true
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	s := newSender(t, SenderOptions{Policy: local(), RootCAs: roots})
	of := s.transport.(*http.Transport).HTTP2
	of.SendPingTimeout, of.PingTimeout = 100*time.Millisecond, 2*time.Second
	for i, want := range []Failure{"", FailedConnection, ""} {
		if i == 1 {
			silent.Store(first.Load())
		}
		if a := s.Send(t.Context(), endpointAt(server.URL), Message{ID: "e"}); a.Failure != want {
			t.Errorf("try %d: %+v", i+1, a)
		}
	}
}

// muting is a listener whose first connection can fall silent.
type muting struct {
	net.Listener
	first, silent *atomic.Pointer[net.Conn]
}

func (l muting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.first.CompareAndSwap(nil, &c)
	return muted{c, l.silent}, err
}

type muted struct {
	net.Conn
	silent *atomic.Pointer[net.Conn]
}

func (c muted) Write(p []byte) (int, error) {
	if silent := c.silent.Load(); silent != nil && *silent == c.Conn {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
