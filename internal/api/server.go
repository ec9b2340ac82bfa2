package api

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
)

// Of HTTP/2, beside what its streams have in common with other requests.
const (
	maxStreams      = 100       // of a connection at once
	connectionBytes = 512 << 10 // that a connection's bodies may send ahead of their readers
	streamBytes     = 256 << 10 // the same of one body
	pingAfter       = 30 * time.Second
	pingTimeout     = 15 * time.Second
)

// Server returns an HTTP server of the API. Requests end with ctx; its Shutdown ends event streams and
// long polls at once and lets other requests finish. There is no time limit on whole requests, since
// streams have none: each body has its own, and so has each write.
func (a *API) Server(ctx context.Context) *http.Server {
	s := &http.Server{
		Handler:           a,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}},
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       connContext,
		ConnState:         connState,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: connectionBytes, MaxReceiveBufferPerStream: streamBytes,
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: transferTimeout,
		},
		// Mostly clients that break off a TLS handshake.
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	s.RegisterOnShutdown(a.Drain)
	return s
}
