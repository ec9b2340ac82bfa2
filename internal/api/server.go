package api

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/api/transfer"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
)

// Limits of HTTP/2.
const (
	maxStreams      = 100       // open at once on a connection
	connectionBytes = 512 << 10 // unread bytes of a connection's bodies
	streamBytes     = 256 << 10 // unread bytes of one body
	pingAfter       = 30 * time.Second
	pingTimeout     = 15 * time.Second
)

// Server returns an HTTP server of the API. Requests end with ctx. Shutdown ends event streams and
// long polls at once and lets other requests finish. Streams have no time limit, so whole requests
// have none. Each body and each write has its own.
func (a *API) Server(ctx context.Context) *http.Server {
	s := &http.Server{
		Handler:           a,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}},
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       connections.ConnContext,
		ConnState:         connections.ConnState,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: connectionBytes, MaxReceiveBufferPerStream: streamBytes,
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: transfer.Timeout,
		},
		// These are mostly TLS handshakes that clients break off.
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	s.RegisterOnShutdown(a.Drain)
	return s
}

// Listener returns a listener that enforces the limit of connections. Connections above it are
// closed. An unencrypted one gets a 503 first.
func (a *API) Listener(l net.Listener, encrypted bool) net.Listener {
	return a.connections.Listen(l, encrypted)
}
