package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace"
)

// maxScrapes is the limit of concurrent scrapes.
const maxScrapes = 4

// Serve answers GET /metrics until ctx ends.
func (t *Telemetry) Serve(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		ErrorLog: &scrapeErrors{log: t.log}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes, Timeout: 10 * time.Second,
	}))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		_ = server.Close() // does not wait for scrapes
	})()
	err := server.Serve(listener)
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}

// scrapeErrors logs that a scrape failed, at most once a minute. A scraper that leaves makes an
// error for each metric.
type scrapeErrors struct {
	log  *slog.Logger
	mu   sync.Mutex
	said time.Time
}

func (e *scrapeErrors) Println(v ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.said.IsZero() || time.Since(e.said) >= time.Minute {
		e.log.Warn("metrics cannot be collected, or their reader has left", slog.String("error", strings.TrimSpace(fmt.Sprintln(v...))))
		e.said = time.Now()
	}
}

// Requests puts the trace that a request names into its context. Logs use it, and so do jobs that
// name no trace themselves.
func (t *Telemetry) Requests(next http.Handler) http.Handler {
	if !t.Traces() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if of := t.remote(r.Header.Get(traceparentHeader)); of.IsValid() {
			r = r.WithContext(trace.ContextWithRemoteSpanContext(r.Context(), of))
		}
		next.ServeHTTP(w, r)
	})
}
