// Package mutetest has a server whose connection goes dead without a word, as behind a firewall
// that forgets it.
package mutetest

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// Server is a server of HTTP/2 over TLS that answers 200 to whatever comes.
type Server struct {
	*httptest.Server
	Roots         *x509.CertPool // who trusts them trusts it
	first, silent atomic.Pointer[net.Conn]
}

// Start starts a server that stops when the test ends.
func Start(t testing.TB) *Server {
	s := &Server{Server: httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), Roots: x509.NewCertPool()}
	s.Listener, s.EnableHTTP2 = listener{s.Listener, s}, true
	s.StartTLS()
	t.Cleanup(s.Close)
	s.Roots.AddCert(s.Certificate())
	return s
}

// Mute has the first connection say nothing from now on. It stays open.
func (s *Server) Mute() { s.silent.Store(s.first.Load()) }

type listener struct {
	net.Listener
	server *Server
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.server.first.CompareAndSwap(nil, &c)
	return conn{c, l.server}, err
}

type conn struct {
	net.Conn
	server *Server
}

func (c conn) Write(p []byte) (int, error) {
	if silent := c.server.silent.Load(); silent != nil && *silent == c.Conn {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
