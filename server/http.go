package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/api/connections"
)

// serveHTTP answers requests until ctx ends. Then it ends event streams and long polls, and lets
// other requests finish.
func (s *Server) serveHTTP(ctx context.Context, listener net.Listener) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	signIns := newSignIns(s)
	dashboard, err := newDashboard(s, signIns)
	if err != nil {
		return err
	}
	surfaces := s.surfaces()
	if dashboard != nil {
		surfaces = append(surfaces, dashboard)
	}
	waiting := &connections.Waiters{}
	handler := api.New(api.Options{
		Jobs: s.jobs, Deltas: s.deltas, Keys: s.keys, SignIns: signIns, Tenants: s.tenants, Audit: s.store.Audit, Reports: s.store.Reports, Purger: s.retention, Messages: s.bus, Webhooks: s.webhooks, Documents: s.documents, Deployments: s.deployments, Orchestrations: s.orchestrations, Workflows: s.declared, Live: s.live, Limits: s.limits,
		Logger: s.log, Version: s.options.Version,
		MaxInputBytes: s.options.Limits.MaxInputBytes, MemoryBytes: s.options.Limits.MemoryBytes, MaxDocument: s.options.Documents.MaxBytes,
		Surfaces: surfaces, Dashboard: s.options.UI.base(), Closed: s.options.UI.behindProxy(),
		Connections: s.options.Limits.connections(), Waiters: waiting, CodeInQuery: s.options.Orchestrations.CodeInQuery,
	})
	if dashboard != nil {
		dashboard.Use(handler)
	}
	server := handler.Server(requests)
	server.Handler = s.telemetry.Requests(server.Handler)
	listener = handler.Listener(listener, s.certificate.Load() != nil)
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		timeout, cancel := context.WithTimeout(requests, s.options.ShutdownTimeout+answerTime)
		defer cancel()
		stopped <- errors.Join(server.Shutdown(timeout), waiting.AwaitUpgraded(timeout))
	}()
	if s.certificate.Load() != nil {
		server.TLSConfig.GetCertificate = s.certificateNow
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if err := <-stopped; err != nil {
		s.log.Warn("requests were cut off by the stop", slog.Any("error", err))
		err = server.Close()
		cancel()
		end, done := context.WithTimeout(context.WithoutCancel(ctx), cutOffTime)
		defer done()
		return errors.Join(err, waiting.AwaitUpgraded(end))
	}
	return nil
}

// answerTime is how long those have to be answered whose calls a stop has cut off. Their clients
// are to hear that, and not of a broken connection.
const answerTime = 5 * time.Second

// cutOffTime bounds how long connections may take to end that speak another protocol than HTTP.
// They hang up after [transfer.DrainTimeout], and then their calls are cancelled.
const cutOffTime = 15 * time.Second

// maxConnections is the limit of connections if nothing else limits them.
const maxConnections = 8192

// connections returns how many HTTP connections may be open at once. The default is a third of the
// file descriptors. Another third is for the payloads of requests. The rest is for the database,
// calls to models and blob storage.
func (l Limits) connections() int {
	if l.Connections > 0 {
		return l.Connections
	}
	if descriptors := fileDescriptors(); descriptors > 0 {
		return int(max(8, min(maxConnections, descriptors/3)))
	}
	return maxConnections
}
