package server

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/telemetry"
)

// validateTelemetry checks where metrics are served and sent.
func (o Options) validateTelemetry(bad func(field, format string, args ...any)) {
	if o.Metrics.Listen != "" {
		switch {
		case !hostPort(o.Metrics.Listen):
			bad("metrics.listen", "%.80q is not host:port", o.Metrics.Listen)
		case o.servesHTTP() && sameAddress(o.Metrics.Listen, o.Listen):
			bad("metrics.listen", "%.80q is where the API listens; metrics need an address of their own", o.Metrics.Listen)
		}
	}
	if o.Telemetry.OTLPEndpoint != "" {
		if err := telemetry.CheckEndpoint(o.Telemetry.OTLPEndpoint); err != nil {
			bad("telemetry.otlp_endpoint", "%s", err)
		}
	} else if len(o.Telemetry.OTLPHeaders) > 0 {
		bad("telemetry.otlp_headers", "are for telemetry.otlp_endpoint, which is not set")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Telemetry.OTLPHeaders)) {
		value := o.Telemetry.OTLPHeaders[name].Reveal()
		if !forebay.ValidName(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f }) {
			bad("telemetry.otlp_headers", "%.40q is no header's name, or its value no header's value", name)
		}
	}
}

// sameAddress reports whether two listeners would conflict. Port 0 never conflicts.
func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || everywhere(hostA) || everywhere(hostB) || loopback(hostA) && loopback(hostB)
}

func everywhere(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "" || err == nil && address.IsUnspecified()
}

func loopback(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }

// watch sets up telemetry, if it is configured.
func (s *Server) watch() (err error) {
	o := s.options
	s.telemetry, err = telemetry.New(telemetry.Options{
		Prometheus: o.Metrics.Listen != "", Endpoint: o.Telemetry.OTLPEndpoint, Headers: o.Telemetry.OTLPHeaders,
		CaptureContent: o.Telemetry.CaptureContent, Version: o.Version, Logger: s.log,
	})
	if err != nil {
		return forebay.Invalid("telemetry", "%s", err)
	}
	if s.telemetry.Traces() {
		s.log = slog.New(telemetry.Correlate(s.log.Handler()))
	}
	return nil
}

// watchStore starts to measure the store, its queues and the deployments.
func (s *Server) watchStore() error {
	s.store.Jobs.OnJobsChanged(jobsChanged(s.log, s.telemetry))
	if s.telemetry == nil {
		return nil
	}
	s.store.DB.OnCommit(s.telemetry.Committed)
	s.store.Orchestrations.OnActivitiesLost(s.telemetry.ActivitiesLost)
	if err := s.telemetry.Queues(s.store.Backlog.Depths); err != nil {
		return err
	}
	if err := s.telemetry.Database(s.store.DB.Space); err != nil {
		return err
	}
	if err := s.telemetry.Budgets(s.budgetUse); err != nil {
		return err
	}
	if err := s.telemetry.OpenOrchestrations(s.store.Orchestrations.OpenOrchestrations, s.store.Orchestrations.OldestReady); err != nil {
		return err
	}
	return s.telemetry.Deployments(s.deployments.inFlight, s.deployments.List)
}

// jobsChanged returns what hears of what transactions made of jobs. It logs once for all answers
// of a transaction that could not be sent: there may be many, for anybody's reason.
func jobsChanged(log *slog.Logger, metrics *telemetry.Telemetry) func(events.Tally) {
	return func(c events.Tally) {
		if c.Unanswered > 0 {
			log.Warn("answers of jobs to their messages could not be sent", slog.Int("answers", c.Unanswered), slog.String("job", c.FirstUnanswered), slog.String("code", string(c.FirstUnansweredBy)))
		}
		if metrics != nil {
			metrics.JobsChanged(c)
		}
	}
}

// listenMetrics listens on the address of metrics. It returns nil if metrics are not served.
func (s *Server) listenMetrics() (net.Listener, error) {
	if s.options.Metrics.Listen == "" {
		return nil, nil
	}
	listener, err := listen(s.options.Metrics.Listen)
	if err != nil {
		return nil, err
	}
	s.metricsAddr = listener.Addr()
	s.log.Info("metrics are served", slog.String("listen", s.metricsAddr.String()))
	return connections.Listen(listener, maxMetricsConnections), nil
}

// maxMetricsConnections is the limit of connections for metrics.
const maxMetricsConnections = 32

func closeIf(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}

// MetricsAddr waits until Run listens and returns the address of metrics. It returns nil if
// metrics are not served or ctx ends first.
func (s *Server) MetricsAddr(ctx context.Context) net.Addr {
	select {
	case <-s.ready:
		return s.metricsAddr
	case <-ctx.Done():
		return nil
	}
}
