package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// destination is where OTLP data goes. The exporters read everything else from the environment:
// headers, timeouts, compression, certificates, and endpoints of single signals.
type destination struct {
	endpoint        string // from the configuration; "": from the environment
	headers         map[string]string
	metrics, traces bool
}

// destination decides which signals are sent. A signal needs an endpoint, and
// OTEL_METRICS_EXPORTER or OTEL_TRACES_EXPORTER must not turn it off.
func (o Options) destination() (destination, error) {
	d := destination{endpoint: o.Endpoint}
	if d.endpoint == "" && strings.EqualFold(o.Getenv("OTEL_SDK_DISABLED"), "true") {
		return d, nil
	}
	if len(o.Headers) > 0 {
		d.headers = map[string]string{}
		for name, value := range o.Headers {
			d.headers[name] = value.Reveal()
		}
	}
	on := func(signal string) bool {
		exporters := strings.FieldsFunc(o.Getenv("OTEL_"+signal+"_EXPORTER"), func(r rune) bool { return r == ',' || r == ' ' })
		asked := slices.Contains(exporters, "otlp")
		if len(exporters) > 0 && !asked {
			return false
		}
		if d.endpoint == "" && !speaksHTTP(o.Getenv, signal) {
			o.Logger.Warn("OTLP is not sent: only http/protobuf is supported; see OTEL_EXPORTER_OTLP_PROTOCOL", slog.String("signal", strings.ToLower(signal)))
			return false
		}
		return asked || d.endpoint != "" || o.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || o.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"} {
		if !headerList(o.Getenv(name)) {
			return d, errors.New(name + ": is not a list of key=value")
		}
	}
	d.metrics, d.traces = on("METRICS"), on("TRACES")
	if d.endpoint != "" {
		return d, CheckEndpoint(d.endpoint)
	}
	return d, nil
}

// headerList reports whether the SDK can parse the list. The SDK would print a list that it cannot
// parse.
func headerList(list string) bool {
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		_, nameErr := url.PathUnescape(name)
		_, valueErr := url.PathUnescape(value)
		if !ok || strings.TrimSpace(name) == "" || nameErr != nil || valueErr != nil {
			return false
		}
	}
	return true
}

func speaksHTTP(getenv func(string) string, signal string) bool {
	protocol := getenv("OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	return protocol == "" || protocol == "http/protobuf"
}

// CheckEndpoint reports what is wrong with the base URL of a collector. It does not quote the URL.
func CheckEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must be a URL such as http://collector:4318")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("must hold no user, query or fragment; credentials belong in otlp_headers")
	}
	return nil
}

func (d destination) url(path string) string { return strings.TrimRight(d.endpoint, "/") + path }

func (d destination) spanExporter(log *slog.Logger) (sdktrace.SpanExporter, error) {
	var options []otlptracehttp.Option
	if d.endpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(d.url("/v1/traces")))
	}
	if d.headers != nil {
		options = append(options, otlptracehttp.WithHeaders(d.headers))
	}
	exporter, err := otlptracehttp.New(context.Background(), options...)
	return quietSpans{exporter, &complaints{log: log, signal: "traces"}}, err
}

func (d destination) metricExporter(log *slog.Logger) (sdkmetric.Exporter, error) {
	var options []otlpmetrichttp.Option
	if d.endpoint != "" {
		options = append(options, otlpmetrichttp.WithEndpointURL(d.url("/v1/metrics")))
	}
	if d.headers != nil {
		options = append(options, otlpmetrichttp.WithHeaders(d.headers))
	}
	exporter, err := otlpmetrichttp.New(context.Background(), options...)
	return quietMetrics{exporter, &complaints{log: log, signal: "metrics"}}, err
}

type quietSpans struct {
	sdktrace.SpanExporter
	complaints *complaints
}

func (e quietSpans) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.complaints.about(e.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

type quietMetrics struct {
	sdkmetric.Exporter
	complaints *complaints
}

func (e quietMetrics) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	e.complaints.about(e.Exporter.Export(ctx, m))
	return nil
}
