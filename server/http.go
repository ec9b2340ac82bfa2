package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/forebayhq/forebay/internal/api"
)

// serveHTTP answers requests until ctx ends, then lets those under way finish; event streams and
// long polls end at once.
func (s *Server) serveHTTP(ctx context.Context, listener net.Listener) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	handler := api.New(api.Options{
		Service: s.jobs, Messages: s.bus, Webhooks: s.webhooks, Documents: s.documents, Deployments: s.deployments, Orchestrations: s.orchestrations, Limits: s.limits,
		Logger: s.log, Version: s.options.Version,
		MaxInputBytes: s.options.Limits.MaxInputBytes, MemoryBytes: s.options.Limits.MemoryBytes, MaxDocument: s.options.Documents.MaxBytes,
	})
	server := handler.Server(requests)
	server.Handler = s.telemetry.Requests(server.Handler)
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		timeout, cancel := context.WithTimeout(requests, max(time.Second, s.options.ShutdownTimeout))
		defer cancel()
		stopped <- server.Shutdown(timeout)
	}()
	var err error
	if s.certificate != nil {
		server.TLSConfig.Certificates = []tls.Certificate{*s.certificate}
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if err := <-stopped; err != nil {
		s.log.Warn("requests were cut off by the stop", slog.Any("error", err))
		return server.Close()
	}
	return nil
}
