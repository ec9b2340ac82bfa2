package model

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// A connection that has gone dead without a word does not fail the calls that come later.
func TestDeadConnection(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var first, silent atomic.Pointer[net.Conn] // silent is the connection that says nothing more
	server.Listener, server.EnableHTTP2 = muting{server.Listener, &first, &silent}, true
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	transport := sharedTransport.Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	transport.HTTP2.SendPingTimeout, transport.HTTP2.PingTimeout = 100*time.Millisecond, 2*time.Second
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	for i, fails := range []bool{false, true, false} {
		if i == 1 {
			silent.Store(first.Load())
		}
		resp, err := client.Get(server.URL)
		if (err != nil) != fails {
			t.Errorf("call %d: %v", i+1, err)
		}
		if err == nil {
			if resp.Body.Close(); resp.ProtoMajor != 2 {
				t.Errorf("it is %s", resp.Proto)
			}
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
