// Package telemetry measures and traces a server with OpenTelemetry. Prometheus can scrape
// metrics, or OTLP over HTTP sends them. OTLP over HTTP sends traces. Logs contain the ids of
// traces.
//
// It implements the observers of other packages, which do not import it. Names follow the semantic
// conventions for messaging and for generative AI, version 1.41.0. Other names begin with
// "forebay.".
//
// A submit is a PRODUCER span that continues the client's trace. The job stores its context. Each
// attempt, perhaps days later, is a CONSUMER span in its own trace with a link to the submit.
// Within it a call of a model is a CLIENT span. A sampler that follows a span's parent also
// follows that link.
//
// No prompt, output, secret, URL or error message becomes part of telemetry. Prompts and outputs
// can become attributes of spans if an option asks for it. The number of label values is bounded.
//
// # Observers
//
// Packages that do something say so through an observer of their own: jobs.Observer,
// store.OnCommit, the webhooks' sender; a model's provider is wrapped. internal/telemetry is
// behind all of them, so nothing else knows OpenTelemetry, and without it each is a nil check.
// What two places could count is counted by one of them. How jobs ended, and which attempts were
// lost, the store counts in the transaction that makes it so. What an attempt used and took is
// counted by the one who settled it, after that was on disk.
//
// The counters and histograms of the hot path are the package's own, atomic additions that the
// SDK's readers collect. The SDK's instruments, with labels that are known beforehand, cost a job
// five times as much. What stands in the queues is counted when somebody collects, by one
// statement whose parts each stop at a limit.
//
// A job keeps the context of its submit's span in the column that had the client's. An attempt
// links to it and begins a trace of its own, for it may come days later and many times.
package telemetry

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forebayhq/forebay"
)

const scopeName = "github.com/forebayhq/forebay"

// Options says what is measured and where it goes. There is no telemetry without Prometheus and
// without an endpoint. The endpoint may be configured or come from the standard
// OTEL_EXPORTER_OTLP_… variables.
type Options struct {
	Prometheus bool                      // metrics are scraped
	Endpoint   string                    // base URL of an OTLP collector; wins over the environment's
	Headers    map[string]forebay.Secret // sent to it
	// CaptureContent makes prompts and outputs attributes of spans.
	CaptureContent bool
	Version        string
	Logger         *slog.Logger
	Getenv         func(string) string // nil: os.Getenv
}

// Telemetry is the telemetry of one server.
type Telemetry struct {
	log       *slog.Logger
	capture   bool
	meters    *sdkmetric.MeterProvider // nil: no metrics
	tracers   *sdktrace.TracerProvider // nil: no traces
	tracer    trace.Tracer             // nil: no traces
	meter     metric.Meter             // nil: no metrics
	metrics   *metrics                 // nil: no metrics
	readings  *readings                // of gauges
	registry  *prometheus.Registry     // nil: nobody scrapes
	propagate propagation.TraceContext //
}

// New returns the telemetry that the options ask for, or nil if they ask for none. It does not
// connect to anything.
func New(opts Options) (*Telemetry, error) {
	if opts.Getenv == nil {
		opts.Getenv = os.Getenv
	}
	to, err := opts.destination()
	if err != nil {
		return nil, err
	}
	if !opts.Prometheus && !to.metrics && !to.traces {
		return nil, nil
	}
	t := &Telemetry{log: opts.Logger, capture: opts.CaptureContent, readings: &readings{log: opts.Logger}}
	of, err := resource.New(context.Background(),
		resource.WithAttributes(semconv.ServiceName(system), semconv.ServiceVersion(opts.Version), semconv.ServiceInstanceID(rand.Text())),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		// err quotes the value.
		return nil, errors.New("OTEL_RESOURCE_ATTRIBUTES: is not a list of key=value")
	}
	if opts.Prometheus || to.metrics {
		if err := t.measure(opts, to, of); err != nil {
			return nil, err
		}
	}
	if to.traces {
		if err := t.trace(opts, to, of); err != nil {
			t.Shutdown(context.Background())
			return nil, err
		}
	}
	return t, nil
}

func (t *Telemetry) measure(opts Options, to destination, of *resource.Resource) error {
	scope := instrumentation.Scope{Name: scopeName, Version: opts.Version, SchemaURL: semconv.SchemaURL}
	recorder := &recorder{scope: scope, began: time.Now()}
	options := []sdkmetric.Option{sdkmetric.WithResource(of), sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter), sdkmetric.WithCardinalityLimit(maxSeries)}
	if opts.Prometheus {
		t.registry = prometheus.NewRegistry()
		t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		reader, err := otelprom.New(otelprom.WithRegisterer(t.registry), otelprom.WithoutScopeInfo(), otelprom.WithProducer(recorder))
		if err != nil {
			return err
		}
		options = append(options, sdkmetric.WithReader(reader))
	}
	if to.metrics {
		exporter, err := to.metricExporter(t.log)
		if err != nil {
			return err
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithProducer(recorder))))
	}
	t.meters = sdkmetric.NewMeterProvider(options...)
	t.meter = t.meters.Meter(scope.Name, metric.WithInstrumentationVersion(scope.Version), metric.WithSchemaURL(scope.SchemaURL))
	t.metrics = newMetrics(recorder)
	return nil
}

func (t *Telemetry) trace(opts Options, to destination, of *resource.Resource) error {
	sampler, err := samplerOf(opts.Getenv)
	if err != nil {
		return err
	}
	exporter, err := to.spanExporter(t.log)
	if err != nil {
		return err
	}
	t.tracers = sdktrace.NewTracerProvider(sdktrace.WithResource(of), sdktrace.WithSampler(sampler), sdktrace.WithBatcher(exporter))
	t.tracer = t.tracers.Tracer(scopeName, trace.WithInstrumentationVersion(opts.Version), trace.WithSchemaURL(semconv.SchemaURL))
	return nil
}

// shutdownTimeout bounds the time for sending the last data.
const shutdownTimeout = 5 * time.Second

// Shutdown sends the remaining data, if the collector accepts it in time, and stops.
func (t *Telemetry) Shutdown(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	var stopping sync.WaitGroup
	stop := func(signal string, shutdown func(context.Context) error) {
		stopping.Go(func() {
			if shutdown(ctx) != nil {
				t.log.Warn("the last telemetry data could not be sent", slog.String("signal", signal))
			}
		})
	}
	if t.tracers != nil {
		stop("traces", t.tracers.Shutdown)
	}
	if t.meters != nil {
		stop("metrics", t.meters.Shutdown)
	}
	stopping.Wait()
}

// Traces reports whether traces are recorded.
func (t *Telemetry) Traces() bool { return t != nil && t.tracer != nil }
