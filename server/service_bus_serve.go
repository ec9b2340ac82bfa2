package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/servicebus"
	"github.com/forebayhq/forebay/internal/servicebus/atom"
)

func (b ServiceBus) validateListeners(encrypted bool, bad func(field, format string, args ...any)) {
	if b.Listen != "" {
		if !hostPort(b.Listen) {
			bad("service_bus.listen", "%.80q is not host:port", b.Listen)
		} else if !encrypted {
			bad("service_bus.listen", "needs tls; without it use service_bus.plain")
		}
	}
	if b.Plain == "" {
		return
	}
	host, _, err := net.SplitHostPort(b.Plain)
	if err != nil || !hostPort(b.Plain) {
		bad("service_bus.plain", "%.80q is not host:port", b.Plain)
		return
	}
	if at, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !at.IsLoopback()) {
		bad("service_bus.plain", "must be localhost or another address of this machine only: keys are sent without encryption")
	}
}

// busListeners are the addresses where Service Bus's clients connect. Each may be nil.
type busListeners struct{ encrypted, plain net.Listener }

func listenServiceBus(s *Server) (l busListeners, err error) {
	o := s.options.ServiceBus
	if o.Listen != "" {
		if l.encrypted, err = listen(o.Listen); err != nil {
			return l, err
		}
		s.busAddr = l.encrypted.Addr()
	}
	if o.Plain != "" {
		if l.plain, err = listen(o.Plain); err != nil {
			return l, errors.Join(err, l.close())
		}
		s.busPlainAddr = l.plain.Addr()
	}
	return l, nil
}

func (l busListeners) none() bool { return l.encrypted == nil && l.plain == nil }

func (l busListeners) close() error { return errors.Join(closeIf(l.encrypted), closeIf(l.plain)) }

// minBusConnections is the lowest limit of connections of Service Bus's clients.
const minBusConnections = 16

// serveServiceBus serves Service Bus's clients until ctx ends.
func serveServiceBus(ctx context.Context, s *Server, l busListeners) error {
	verifier := newVerifier(s)
	entities := atom.New(atom.Options{Entities: atom.Messaging(s.bus), Authorizer: atom.Verified(verifier, s.limits), MaxMessageBytes: s.bus.Messages.MaxBytes(), Logger: s.log})
	endpoint := servicebus.New(servicebus.Options{Messages: s.bus, Verifier: verifier, Limits: s.limits, Logger: s.log, MemoryBytes: s.options.Limits.MemoryBytes})
	counted := connections.New(max(minBusConnections, s.options.Limits.connections()/2))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var serving sync.WaitGroup
	errs := make([]error, 2)
	for i, listener := range []net.Listener{l.encrypted, l.plain} {
		if listener == nil {
			continue
		}
		o := servicebus.ServeOptions{Connections: counted, HTTP: busHTTP(s, entities), Guard: busGuard(s)}
		if listener == l.encrypted {
			o.TLS = &tls.Config{GetCertificate: s.certificateNow, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
		}
		serving.Go(func() {
			defer stop()
			errs[i] = endpoint.Serve(ctx, listener, o)
		})
	}
	serving.Wait()
	return errors.Join(errs...)
}

// Limits of a request over HTTP.
const (
	busHeaderTime  = 10 * time.Second
	busRequestTime = time.Minute
	busHeaderBytes = 16 << 10
)

// busGuard lets a server without keys answer its own machine only, and no web page. It may be
// asked by a name that was rebound to the loopback address.
func busGuard(s *Server) func(*http.Request) error {
	return func(r *http.Request) error {
		_, open, err := s.keys.Authenticate(r.Context(), "")
		if err == nil && open {
			return api.CheckLocal(r)
		}
		return nil // there are keys, or nobody knows: the token decides
	}
}

func busHTTP(s *Server, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: busHeaderTime, ReadTimeout: busRequestTime, WriteTimeout: busRequestTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: busHeaderBytes,
		// These are mostly connections that clients break off.
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// ServiceBusAddr waits until Run listens and returns the addresses for Service Bus's clients,
// with TLS and without. Each is nil if it is not served or ctx ends first.
func (s *Server) ServiceBusAddr(ctx context.Context) (encrypted, plain net.Addr) {
	select {
	case <-s.ready:
		return s.busAddr, s.busPlainAddr
	case <-ctx.Done():
		return nil, nil
	}
}
