package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

const secretAnswer = "the-collector's-own-words"

// exportTo sends a span there and returns what is logged.
func exportTo(t *testing.T, endpoint string, within time.Duration) (logged []map[string]any) {
	t.Helper()
	var log bytes.Buffer
	exporter, err := destination{endpoint: endpoint}.spanExporter(slog.New(slog.NewJSONHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := exporter.ExportSpans(ctx, tracetest.SpanStubs{{Name: "x"}}.Snapshots()); err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Contains(text, secretAnswer) || strings.Contains(text, "127.0.0.1") {
		t.Errorf("the log has the collector's answer or its address: %s", text)
	}
	for line := range strings.Lines(log.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		logged = append(logged, entry)
	}
	return logged
}

// The log says why a collector gets nothing, so that an operator knows where to look.
func TestComplaintsSayWhy(t *testing.T) {
	answering := func(status int, body []byte) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			w.Header().Set("Retry-After", "3600") // longer than the exporter repeats anything
			w.WriteHeader(status)
			_, _ = w.Write(body)
		}))
		t.Cleanup(s.Close)
		return s
	}
	partly, err := proto.Marshal(&collecttraces.ExportTraceServiceResponse{
		PartialSuccess: &collecttraces.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: secretAnswer}})
	if err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	over := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(func() {
		close(over)
		silent.Close()
	})
	foreign := httptest.NewTLSServer(nil)
	foreign.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	t.Cleanup(foreign.Close)

	for name, c := range map[string]struct {
		endpoint string
		within   time.Duration
		failure  string
		status   float64
	}{
		"nothing listens": {gone.URL, time.Minute, "connection", 0},
		"no answer":       {silent.URL, 50 * time.Millisecond, "timeout", 0},
		"unauthorized":    {answering(http.StatusUnauthorized, []byte(secretAnswer)).URL, time.Minute, "status", 401},
		"busy":            {answering(http.StatusServiceUnavailable, []byte(secretAnswer)).URL, time.Minute, "status", 0},
		"a part":          {answering(http.StatusOK, partly).URL, time.Minute, "partial", 0},
		"certificate":     {foreign.URL, time.Minute, "tls", 0},
	} {
		t.Run(name, func(t *testing.T) {
			logged := exportTo(t, c.endpoint, c.within)
			if len(logged) != 1 || logged[0]["failure"] != c.failure || logged[0]["signal"] != "traces" {
				t.Fatalf("logged %v, want the failure %s", logged, c.failure)
			}
			if status, _ := logged[0]["status"].(float64); status != c.status {
				t.Errorf("the status is %v, want %v", status, c.status)
			}
		})
	}
}

func TestAddressThatIsNone(t *testing.T) {
	if failure, _ := classify(fmt.Errorf("export: %w", &net.DNSError{IsNotFound: true})); failure != "address" {
		t.Errorf("a name without an address is %q", failure)
	}
	if failure, _ := classify(errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x00"`)); failure != "not_http" {
		t.Errorf("the port for gRPC is %q", failure)
	}
}

// What was complained of is said to be over, once.
func TestComplaintsEnd(t *testing.T) {
	var log bytes.Buffer
	c := complaints{log: slog.New(slog.NewTextHandler(&log, nil)), signal: "traces"}
	c.about(nil)
	c.about(io.EOF)
	c.about(io.EOF)
	c.about(nil)
	c.about(nil)
	if text := log.String(); strings.Count(text, "refuses") != 1 || strings.Count(text, "accepts data again") != 1 {
		t.Errorf("logged:\n%s", text)
	}
}
