package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// logged collects what is logged, as JSON and at debug level.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// watched is a server that serves and sends all it measures.
type watched struct {
	*server.Server
	servertest.Remote
	logs *logged
	stop func() // sends what was not sent yet; the test's end does it too
}

func startWatched(t *testing.T, to *collector, opts server.Options) watched {
	t.Helper()
	w := watched{logs: &logged{}}
	if opts.Database == "" {
		opts.Database = "sqlite:" + dbtest.SQLite(t)
	}
	opts.Blob = cmp.Or(opts.Blob, t.TempDir())
	opts.Listen, opts.Metrics.Listen = "127.0.0.1:0", "127.0.0.1:0"
	if to != nil {
		opts.Telemetry.OTLPEndpoint = to.http.URL
	}
	opts.Logger = slog.New(slog.NewJSONHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := server.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	w.Server, w.stop = s, sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	w.Remote = servertest.Over(t, s)
	return w
}

// unruly answers by the beginning of the marker.
func unruly(c modelsim.Call) modelsim.Reply {
	switch kind, _, _ := strings.Cut(c.Marker, "-"); {
	case kind == "broken" && c.Number == 1:
		return modelsim.Reply{Status: http.StatusInternalServerError, Message: "ask again"}
	case kind == "busy" && c.Number == 1:
		return modelsim.Reply{Status: http.StatusTooManyRequests, RetryAfter: 20 * time.Millisecond}
	case kind == "bad":
		return modelsim.Reply{Status: http.StatusBadRequest, Code: "nonsense", Message: "no"}
	}
	return modelsim.Reply{}
}

var quick = map[string]server.Queue{forebay.DefaultQueue: {Retry: server.Retry{First: time.Millisecond, Max: 5 * time.Millisecond, Budget: 0.9}}}

func TestMetricsOfManyJobs(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	t.Parallel()
	model := modelsim.StartTest(unruly)
	t.Cleanup(model.Close)
	deployment := simulatedDeployment(model)
	deployment.Price = forebay.Price{Input: 1000, Output: 2000}
	s := startWatched(t, nil, server.Options{Deployments: []server.Deployment{deployment}, Queues: quick})

	const good, broken, bad, busy = 200, 20, 10, 3
	var ids []string
	for kind, n := range map[string]int{"good": good, "broken": broken, "bad": bad, "busy": busy} {
		for i := range n {
			ids = append(ids, s.Send(t, fmt.Sprintf("%s-%d", kind, i)).ID)
		}
	}
	var input, output int64
	var cost forebay.Money
	for _, id := range ids {
		job, _ := s.MustAwait(t, id)
		input, output, cost = input+job.Usage.InputTokens, output+job.Usage.OutputTokens, cost+job.Usage.CostUSD
	}
	if _, _, err := s.Remote.Submit(t.Context(), "", map[string]any{"task": "nonsense", "input": 1}); err == nil {
		t.Fatal("an unknown task was accepted")
	}
	if _, _, err := s.Remote.Submit(t.Context(), "", map[string]any{"task": "chat", "input": "later", "scheduled_at": time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	const all = good + broken + bad + busy
	wants := []struct {
		value  float64
		name   string
		labels []string
	}{
		{all + 1, "messaging_client_operation_duration_seconds", []string{"messaging_system", "forebay", "messaging_operation_name", "send", "messaging_destination_name", "default", "error_type", ""}},
		{1, "messaging_client_operation_duration_seconds", []string{"error_type", "unknown_task"}},
		{all + broken + busy, "messaging_process_duration_seconds", []string{"messaging_operation_name", "process"}},
		{broken, "messaging_process_duration_seconds", []string{"error_type", "server_error"}},
		{good + broken + busy, "forebay_job_ended_total", []string{"forebay_status", "succeeded"}},
		{bad, "forebay_job_ended_total", []string{"forebay_status", "failed"}},
		{good + broken + busy, "forebay_job_attempts_total", []string{"forebay_outcome", "succeeded", "forebay_deployment", "simulated", "forebay_task", "chat", "forebay_queue", "default"}},
		{broken, "forebay_job_attempts_total", []string{"forebay_outcome", "retried", "forebay_error_class", "transient"}},
		{bad, "forebay_job_attempts_total", []string{"forebay_outcome", "failed", "forebay_error_class", "permanent"}},
		{busy, "forebay_job_attempts_total", []string{"forebay_outcome", "throttled", "forebay_error_class", "throttled"}},
		{busy, "forebay_deployment_throttled_total", []string{"forebay_deployment", "simulated"}},
		{all, "forebay_job_wait_duration_seconds", nil},
		{all, "forebay_job_duration_seconds", []string{"forebay_task", "chat"}},
		{bad, "forebay_job_duration_seconds", []string{"forebay_status", "failed"}},
		{float64(input), "forebay_tokens_total", []string{"gen_ai_token_type", "input", "forebay_tenant", "default", "forebay_task", "chat", "forebay_deployment", "simulated"}},
		{float64(output), "forebay_tokens_total", []string{"gen_ai_token_type", "output"}},
		{all + broken + busy, "gen_ai_client_operation_duration_seconds", []string{"gen_ai_operation_name", "chat", "gen_ai_provider_name", "openai", "gen_ai_request_model", "test"}},
		{busy, "gen_ai_client_operation_duration_seconds", []string{"error_type", "rate_limited"}},
		{good + broken + busy, "gen_ai_client_token_usage", []string{"gen_ai_token_type", "input"}},
		{good + broken + busy, "gen_ai_server_time_to_first_token_seconds", nil},
		{good + broken + busy, "gen_ai_client_operation_time_to_first_chunk_seconds", nil},
		{1, "forebay_queue_messages", []string{"forebay_queue", "default", "forebay_state", "scheduled"}},
		{bad, "forebay_queue_messages", []string{"forebay_state", "dead_letter"}},
		{0, "forebay_queue_messages", []string{"forebay_state", "locked"}},
		{0, "forebay_deployment_in_flight", []string{"forebay_deployment", "simulated"}},
		{0, "forebay_store_commit_failures_total", nil},
	}
	var got scrape
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(got.text)
		}
	})
	// The end of a job is visible a moment before it is measured.
	servertest.Eventually(t, time.Minute, func() (wrong error) {
		got = scrapeOf(t, s.Server)
		for _, want := range wants {
			if sum := got.sum(want.name, want.labels...); sum != want.value {
				wrong = errors.Join(wrong, fmt.Errorf("%s%v is %v, want %v", want.name, want.labels, sum, want.value))
			}
		}
		return wrong
	})
	if spent := got.sum("forebay_cost_usd_total"); spent < 0.99*float64(cost)/1e9 || spent > 1.01*float64(cost)/1e9 || spent == 0 {
		t.Errorf("the cost is %v, the jobs' %s", spent, cost)
	}
	if commits := got.sum("forebay_store_commit_duration_seconds"); commits < 10 || commits > 10*all {
		t.Errorf("%v commits", commits)
	}
}

// A client's trace leads to the span of the submit. Links lead from there to each attempt and,
// within it, to the call of the model. A function gets the context of the attempt. Deliveries to
// webhooks link to the submit too.
func TestTraceOfAJob(t *testing.T) {
	t.Parallel()
	model := modelsim.StartTest(unruly)
	t.Cleanup(model.Close)
	handed := make(chan string, 1)
	function := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handed <- r.Header.Get("traceparent") }))
	t.Cleanup(function.Close)
	notified := make(chan forebay.Event, 30)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e forebay.Event
		_ = json.NewDecoder(r.Body).Decode(&e) // an empty event is waited for in vain
		notified <- e
	}))
	t.Cleanup(hook.Close)
	to := startCollector(t)
	s := startWatched(t, to, server.Options{
		Deployments: []server.Deployment{simulatedDeployment(model)}, Queues: quick,
		Tasks:     map[string]server.TaskOption{"score": {HTTP: &server.HTTPTask{URL: function.URL}}},
		Telemetry: server.Telemetry{OTLPHeaders: map[string]forebay.Secret{"x-collector-key": "let-me-in"}},
		Webhooks:  server.Webhooks{AllowHTTP: true, AllowAddresses: []string{"127.0.0.0/8"}},
	})
	if _, err := s.Do(t.Context(), http.MethodPost, "/v1/webhooks", nil, map[string]any{"name": "hook", "url": hook.URL, "event_types": []string{"succeeded"}}, nil); err != nil {
		t.Fatal(err)
	}
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	var job, score forebay.Job
	body := servertest.Chat(modelsim.Marked("broken-1", "say something"))
	body["correlation_id"] = "order-7"
	if _, err := s.Do(t.Context(), http.MethodPost, "/v1/jobs", map[string]string{"Traceparent": "00-" + trace + "-" + parent + "-01"}, body, &job); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(t.Context(), http.MethodPost, "/v1/jobs", nil, map[string]any{"task": "score", "input": 1}, &score); err != nil {
		t.Fatal(err)
	}
	s.MustAwait(t, job.ID)
	s.MustAwait(t, score.ID)
	unsampled := servertest.Chat(modelsim.Marked("good-1", "say something"))
	if _, err := s.Do(t.Context(), http.MethodPost, "/v1/jobs", map[string]string{"Traceparent": "00-" + strings.Repeat("a", 32) + "-" + parent + "-00"}, unsampled, &score); err != nil {
		t.Fatal(err)
	}
	s.MustAwait(t, score.ID)
	for range 3 {
		<-notified
	}
	s.stop()

	sends := to.named("send default")
	if len(sends) != 2 {
		t.Fatalf("%d submits, want the two that are sampled: %v", len(sends), to.spans)
	}
	send := sends[0]
	if hex.EncodeToString(send.TraceId) != trace || hex.EncodeToString(send.ParentSpanId) != parent || send.Kind != tracepb.Span_SPAN_KIND_PRODUCER {
		t.Errorf("the submit does not continue the client's trace: %v", send)
	}
	for key, want := range map[string]string{"messaging.system": "forebay", "messaging.destination.name": "default", "messaging.message.id": job.ID,
		"messaging.message.conversation_id": "order-7", "forebay.task": "chat", "forebay.tenant": "default"} {
		if got := attribute(send, key); got != want {
			t.Errorf("%s of the submit is %q, want %q", key, got, want)
		}
	}
	var attempts []*tracepb.Span
	for _, span := range to.named("process default") {
		switch {
		case len(span.Links) != 1 || len(span.ParentSpanId) != 0 || span.Kind != tracepb.Span_SPAN_KIND_CONSUMER:
			t.Errorf("an attempt is nested or has no link: %v", span)
		case bytes.Equal(span.Links[0].SpanId, send.SpanId):
			attempts = append(attempts, span)
			if bytes.Equal(span.TraceId, send.TraceId) {
				t.Errorf("an attempt is in the submit's trace")
			}
		default:
			if got := <-handed; got != traceparent(span) {
				t.Errorf("the function got %q, the attempt is %q", got, traceparent(span))
			}
		}
	}
	if len(attempts) != 2 || attribute(attempts[0], "forebay.outcome") != "retried" || attribute(attempts[0], "error.type") != "server_error" ||
		attempts[0].Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || attribute(attempts[1], "forebay.outcome") != "succeeded" {
		t.Fatalf("attempts: %v", attempts)
	}
	calls := to.named("chat test")
	if len(calls) != 2 {
		t.Fatalf("%d calls of the model", len(calls))
	}
	for i, call := range calls {
		if !bytes.Equal(call.TraceId, attempts[i].TraceId) || !bytes.Equal(call.ParentSpanId, attempts[i].SpanId) || call.Kind != tracepb.Span_SPAN_KIND_CLIENT {
			t.Errorf("call %d is not within its attempt: %v", i, call)
		}
	}
	for key, want := range map[string]string{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "test", "gen_ai.response.model": "test"} {
		if got := attribute(calls[1], key); got != want {
			t.Errorf("%s of the call is %q, want %q", key, got, want)
		}
	}
	linked := map[string]bool{}
	deliveries := to.named("deliver webhook")
	for _, span := range deliveries {
		if len(span.Links) == 1 && len(span.ParentSpanId) == 0 {
			linked[string(span.Links[0].SpanId)] = true
		}
	}
	if len(deliveries) != 2 || !linked[string(send.SpanId)] || !linked[string(sends[1].SpanId)] {
		t.Errorf("the deliveries of the two sampled jobs do not link to their submits: %v", deliveries)
	}
	for _, line := range strings.Split(s.logs.String(), "\n") {
		var entry struct{ Msg, TraceID, SpanID string }
		if json.Unmarshal([]byte(strings.NewReplacer("trace_id", "TraceID", "span_id", "SpanID").Replace(line)), &entry) == nil && entry.Msg == "call failed" &&
			(entry.TraceID != hex.EncodeToString(attempts[0].TraceId) || entry.SpanID != hex.EncodeToString(attempts[0].SpanId)) {
			t.Errorf("logged without the attempt's ids: %s", line)
		}
	}
	if !strings.Contains(s.logs.String(), `"trace_id":"`+trace+`"`) || !strings.Contains(s.logs.String(), "call failed") {
		t.Errorf("no log line of the request or of the call has its trace:\n%s", s.logs)
	}
	if to.headers[0].Get("x-collector-key") != "let-me-in" {
		t.Errorf("headers %v", to.headers[0])
	}
}

// A collector that is down, or takes nothing, neither holds jobs up nor makes the stop an error.
func TestCollectorThatTakesNothing(t *testing.T) {
	raced.Skip(t, raced.Waiting)
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close() // nothing listens there any more
	over := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(func() {
		close(over)
		silent.Close()
	})
	for _, endpoint := range []string{gone.URL, silent.URL} {
		s := startWatched(t, nil, server.Options{Telemetry: server.Telemetry{OTLPEndpoint: endpoint}})
		for range 20 {
			if job := servertest.Await(t, s.Server, servertest.Submit(t, s.Server, "chat", "hello").ID); job.Status != forebay.StatusSucceeded {
				t.Fatalf("a job is %s", job.Status)
			}
		}
		began := time.Now()
		s.stop()
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the stop took %s", took)
		}
		if strings.Contains(s.logs.String(), endpoint) || !strings.Contains(s.logs.String(), "OTLP collector") && !strings.Contains(s.logs.String(), "could not be sent") {
			t.Errorf("the log says nothing, or where the collector is: %s", s.logs)
		}
	}
}

// An address of the API's own is refused before anything starts.
func TestMetricsNeedAnAddressOfTheirOwn(t *testing.T) {
	for _, pair := range [][2]string{{"127.0.0.1:8080", "127.0.0.1:8080"}, {"127.0.0.1:8080", ":8080"}, {"0.0.0.0:8080", "10.0.0.1:8080"}, {"localhost:8080", "127.0.0.1:8080"}} {
		o := server.Options{Listen: pair[0], Metrics: server.Metrics{Listen: pair[1]}}
		if err := o.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), "metrics.listen") {
			t.Errorf("%v: %v", pair, err)
		}
		o.Role = server.RoleWorker
		if err := o.WithDefaults().Validate(); err != nil {
			t.Errorf("%v, without an API: %v", pair, err)
		}
	}
	for _, o := range []server.Options{
		{Metrics: server.Metrics{Listen: "9464"}},
		{Telemetry: server.Telemetry{OTLPEndpoint: "collector:4318"}},
		{Telemetry: server.Telemetry{OTLPEndpoint: "http://user:secret@collector:4318"}},
		{Telemetry: server.Telemetry{OTLPHeaders: map[string]forebay.Secret{"a": "b"}}},
		{Telemetry: server.Telemetry{OTLPEndpoint: "http://collector:4318", OTLPHeaders: map[string]forebay.Secret{"a": "secret\n"}}},
	} {
		if err := o.WithDefaults().Validate(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", o.Telemetry, err)
		}
	}
	o := server.Options{Listen: "127.0.0.1:8080", Metrics: server.Metrics{Listen: "127.0.0.1:9464"}}
	if err := o.WithDefaults().Validate(); err != nil {
		t.Error(err)
	}
}
