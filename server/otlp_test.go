package server_test

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector takes OTLP over HTTP and keeps what it got.
type collector struct {
	http *httptest.Server

	mu      sync.Mutex
	spans   []*tracepb.Span
	metrics []string // names
	raw     bytes.Buffer
	headers []http.Header
}

func startCollector(t *testing.T) *collector {
	c := &collector{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		var req collecttraces.ExportTraceServiceRequest
		c.take(t, w, r, &req, func() {
			for _, of := range req.ResourceSpans {
				for _, scope := range of.ScopeSpans {
					c.spans = append(c.spans, scope.Spans...)
				}
			}
		})
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		var req collectmetrics.ExportMetricsServiceRequest
		c.take(t, w, r, &req, func() {
			for _, of := range req.ResourceMetrics {
				for _, scope := range of.ScopeMetrics {
					for _, m := range scope.Metrics {
						c.metrics = append(c.metrics, m.Name)
					}
				}
			}
		})
	})
	c.http = httptest.NewServer(mux)
	t.Cleanup(c.http.Close)
	return c
}

func (c *collector) take(t *testing.T, w http.ResponseWriter, r *http.Request, into proto.Message, keep func()) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, into)
	}
	if err != nil {
		t.Errorf("%s: %v", r.URL.Path, err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(body)
	c.headers = append(c.headers, r.Header.Clone())
	keep()
}

// named returns the spans of that name, oldest first.
func (c *collector) named(name string) (spans []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			spans = append(spans, s)
		}
	}
	slices.SortFunc(spans, func(a, b *tracepb.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	return spans
}

// everything is all bytes that came.
func (c *collector) everything() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}

// attribute returns a text of the span's.
func attribute(s *tracepb.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// traceparent is the context of a span as a header says it.
func traceparent(s *tracepb.Span) string {
	return "00-" + hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId) + "-01"
}
