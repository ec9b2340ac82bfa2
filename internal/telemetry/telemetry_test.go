package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/orchestrate"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
	"go.opentelemetry.io/otel/semconv/v1.41.0/messagingconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

var encoder = attribute.DefaultEncoder()

// collect reads what the recorder has, by metric and labels.
func collect(t *testing.T, r *recorder) map[string]map[string]float64 {
	t.Helper()
	scopes, err := r.Produce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[string]float64{}
	for _, m := range scopes[0].Metrics {
		values := map[string]float64{}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				values[p.Attributes.Encoded(encoder)] += float64(p.Value)
			}
		case metricdata.Sum[float64]:
			for _, p := range data.DataPoints {
				values[p.Attributes.Encoded(encoder)] += p.Value
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				values[p.Attributes.Encoded(encoder)] += float64(p.Count)
			}
		}
		got[m.Name] = values
	}
	return got
}

func TestNamesAreTheConventions(t *testing.T) {
	for ours, theirs := range map[string]string{
		sendDuration: messagingconv.ClientOperationDuration{}.Name(), processDuration: messagingconv.ProcessDuration{}.Name(),
		genAIDuration: genaiconv.ClientOperationDuration{}.Name(), genAITokens: genaiconv.ClientTokenUsage{}.Name(),
		genAIFirstChunk: genaiconv.ClientOperationTimeToFirstChunk{}.Name(), genAIServerFirst: genaiconv.ServerTimeToFirstToken{}.Name(),
	} {
		if ours != theirs {
			t.Errorf("%s is %s in the conventions", ours, theirs)
		}
	}
}

// However many tenants, errors and combinations come, there are so many series and the sums are
// right.
func TestLabelsAreBounded(t *testing.T) {
	r := &recorder{began: time.Now()}
	m := newMetrics(r)
	const tenants, goroutines = 3000, 4
	var running sync.WaitGroup
	for range goroutines {
		running.Go(func() {
			for i := range tenants {
				for task := range 4 {
					m.tokens.of(useLabels{fmt.Sprint("tenant-", i), fmt.Sprint("task-", task), "east", tokenInput}).add(1)
				}
				m.process.of(messagingLabels{opProcess, "default", fmt.Sprint("code-", i)}).record(1)
				m.attempts.of(attemptLabels{queue: "default", deployment: fmt.Sprint("http:", i), task: "x"}).add(1)
				m.attempts.of(attemptLabels{queue: "default", deployment: fmt.Sprint("http:", i), task: "y"}).add(1)
			}
		})
	}
	running.Wait()
	got := collect(t, r)
	for name, want := range map[string]struct {
		series int
		sum    float64
	}{
		tokensUsed:      {4 * (maxTenants + 1), goroutines * tenants * 4},
		processDuration: {maxErrorTypes + 1, goroutines * tenants},
		jobAttempts:     {maxSeries + 1, goroutines * tenants * 2},
	} {
		sum := 0.0
		for _, v := range got[name] {
			sum += v
		}
		if len(got[name]) > want.series || sum != want.sum {
			t.Errorf("%s has %d series with a sum of %v, want at most %d and %v", name, len(got[name]), sum, want.series, want.sum)
		}
	}
	others := 0.0
	for labels, v := range got[tokensUsed] {
		if strings.Contains(labels, "forebay.tenant="+other) {
			others += v
		}
	}
	if want := float64(goroutines * (tenants - maxTenants) * 4); others != want {
		t.Errorf("%v tokens of other tenants, want %v", others, want)
	}
}

func TestHistogram(t *testing.T) {
	f := &family{spec: seconds("x", "", []float64{1, 2, 4})}
	s := f.series(present(nil))
	for _, v := range []float64{0, 1, 1.5, 2, 3, 100} {
		s.record(v)
	}
	p := s.histogram(time.Time{}, time.Time{})
	if fmt.Sprint(p.BucketCounts) != "[2 2 1 1]" || p.Count != 6 || p.Sum != 107.5 {
		t.Errorf("%+v", p)
	}
	if s.add(math.Inf(1)); !math.IsInf(s.histogram(time.Time{}, time.Time{}).Sum, 1) {
		t.Error("sums do not add up")
	}
}

func TestSampler(t *testing.T) {
	link := func(sampled bool) trace.SpanContext {
		flags := trace.TraceFlags(0)
		if sampled {
			flags = trace.FlagsSampled
		}
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: flags, Remote: true})
	}
	for _, test := range []struct {
		name, arg                       string
		alone, linkSampled, linkDropped bool
	}{
		{"", "", true, true, false},
		{"parentbased_always_on", "", true, true, false},
		{"parentbased_always_off", "", false, true, false},
		{"parentbased_traceidratio", "0", false, true, false},
		{"parentbased_traceidratio", "", true, true, false},
		{"always_on", "", true, true, true},
		{"always_off", "1", false, false, false},
		{"traceidratio", "0", false, false, false},
	} {
		s, err := samplerOf(env("OTEL_TRACES_SAMPLER", test.name, "OTEL_TRACES_SAMPLER_ARG", test.arg))
		if err != nil {
			t.Fatal(err)
		}
		decide := func(links ...trace.Link) bool {
			return s.ShouldSample(sdktrace.SamplingParameters{ParentContext: t.Context(), TraceID: trace.TraceID{9}, Links: links}).Decision == sdktrace.RecordAndSample
		}
		if decide() != test.alone || decide(trace.Link{SpanContext: link(true)}) != test.linkSampled || decide(trace.Link{SpanContext: link(false)}) != test.linkDropped {
			t.Errorf("%q %q: alone %t, linked to a sampled one %t, to another %t", test.name, test.arg,
				decide(), decide(trace.Link{SpanContext: link(true)}), decide(trace.Link{SpanContext: link(false)}))
		}
	}
	for _, bad := range [][2]string{{"sometimes", ""}, {"traceidratio", "2"}, {"parentbased_traceidratio", "NaN"}} {
		if _, err := samplerOf(env("OTEL_TRACES_SAMPLER", bad[0], "OTEL_TRACES_SAMPLER_ARG", bad[1])); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestEnvironmentDecidesWhatIsSent(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, test := range []struct {
		configured      string
		env             []string
		metrics, traces bool
		warned          bool
	}{
		{},
		{env: []string{endpoint, "http://c:4318"}, metrics: true, traces: true},
		{configured: "http://c:4318", metrics: true, traces: true},
		{env: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/v1/traces"}, traces: true},
		{env: []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:4318/v1/metrics"}, metrics: true},
		{env: []string{"OTEL_TRACES_EXPORTER", "otlp"}, traces: true},
		{env: []string{endpoint, "http://c:4318", "OTEL_METRICS_EXPORTER", "none"}, traces: true},
		{env: []string{endpoint, "http://c:4318", "OTEL_SDK_DISABLED", "true"}},
		{configured: "http://c:4318", env: []string{"OTEL_SDK_DISABLED", "true", "OTEL_TRACES_EXPORTER", "none"}, metrics: true},
		{env: []string{endpoint, "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, warned: true},
		{env: []string{endpoint, "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"}, traces: true, warned: true},
	} {
		var log bytes.Buffer
		o := Options{Endpoint: test.configured, Getenv: env(test.env...), Logger: slog.New(slog.NewTextHandler(&log, nil))}
		got, err := o.destination()
		if err != nil || got.metrics != test.metrics || got.traces != test.traces || (log.Len() > 0) != test.warned {
			t.Errorf("%q %v: %+v %v %s", test.configured, test.env, got, err, &log)
		}
	}
	for _, list := range []string{"secret", "a=b,secret", "=secret", "a=%zzsecret"} {
		_, err := New(Options{Getenv: env(endpoint, "http://c:4318", "OTEL_EXPORTER_OTLP_HEADERS", list), Logger: slog.New(slog.DiscardHandler)})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("headers %q: %v", list, err)
		}
	}
	off, err := New(Options{Getenv: env(), Logger: slog.New(slog.DiscardHandler)})
	if off != nil || err != nil || off.Jobs() != nil || off.Webhooks() != nil || off.Traces() {
		t.Errorf("nothing is asked for: %+v %v", off, err)
	}
	off.Shutdown(t.Context())
	if p := (nothing{}); off.Provider(p, Deployment{}) != model.Provider(p) {
		t.Error("without telemetry providers are wrapped")
	}
}

// A retry links to the submit like the attempt before it, and an attempt that called nothing
// leaves no span.
func TestSpansOfAttempts(t *testing.T) {
	m := measuring(t)
	spans := tracing(t, m, sdktrace.AlwaysSample())
	o := m.Jobs()
	s := jobs.Submission{Tenant: "acme", Queue: "default", Task: "chat", JobID: "job_1", Began: time.Now()}
	o.Submitting(t.Context(), &s)
	o.Submitted(&s, false, nil)
	attempt := func(record jobs.AttemptRecord, settled bool, cause, err error) {
		d := jobs.Delivery{Tenant: "acme", Queue: &jobs.Queue{Name: "default"}, Received: time.Now()}
		d.ID, d.Task, d.Traceparent = "job_1", "chat", s.Traceparent
		ctx, cancel := context.WithCancelCause(t.Context())
		_, c := o.Starting(ctx, &d)
		cancel(cause)
		c.Called(err)
		if settled {
			c.Settled(record, "")
			c.Settled(jobs.AttemptRecord{Outcome: "again"}, "")
		}
		c.Over()
	}
	attempt(jobs.AttemptRecord{Outcome: forebay.OutcomeRetried, ErrorCode: "server_error"}, true, nil, errors.New("x"))
	attempt(jobs.AttemptRecord{}, false, nil, &forebay.TaskError{Code: "deployment_paused", Uncalled: true})
	attempt(jobs.AttemptRecord{}, true, jobs.ErrCancelled, context.Canceled)
	attempt(jobs.AttemptRecord{}, true, jobs.ErrLockLost, context.Canceled)
	attempt(jobs.AttemptRecord{}, false, nil, nil) // its outcome could not be recorded
	got := spans.GetSpans()
	if len(got) != 5 {
		t.Fatalf("%d spans", len(got))
	}
	outcomes := []string{"", "retried", "cancelled", "lost", ""}
	for i, span := range got[1:] {
		if len(span.Links) != 1 || span.Links[0].SpanContext.SpanID() != got[0].SpanContext.SpanID() || span.Parent.IsValid() {
			t.Errorf("span %d: links %v, parent %v", i+1, span.Links, span.Parent)
		}
		outcome := ""
		for _, a := range span.Attributes {
			if a.Key == keyOutcome {
				outcome = a.Value.AsString()
			}
		}
		if outcome != outcomes[i+1] {
			t.Errorf("span %d has the outcome %q, want %q", i+1, outcome, outcomes[i+1])
		}
	}
}

// Queues are counted once for all who ask within a while, and not at all while nobody does.
func TestQueuesAreCountedWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := 0
		c := newReading(&readings{log: slog.New(slog.DiscardHandler)}, "queues", func(context.Context) ([]backlog.Depth, error) {
			if counts++; counts == 3 {
				return nil, errors.New("no")
			}
			return []backlog.Depth{{Queue: "default", Ready: int64(counts)}}, nil
		})
		<-time.After(time.Hour)
		for range 10 {
			if got := c.get(); len(got) != 1 || got[0].Ready != 1 {
				t.Fatalf("%+v", got)
			}
		}
		<-time.After(readAge)
		if got := c.get(); got[0].Ready != 2 || counts != 2 {
			t.Fatalf("%+v after %d counts", got, counts)
		}
		<-time.After(readAge)
		if got := c.get(); got != nil {
			t.Fatalf("what cannot be counted is %+v", got)
		}
	})
}

// Gauges show what is read, under the first so many tenants' and orchestrators' names; of the
// others together the oldest turn, and the budget that is used most.
func TestGauges(t *testing.T) {
	const all = maxTenants + 50
	var deployments []forebay.Deployment
	var budgets []BudgetUse
	var turns []orchestrate.OldestItem
	for i := range all {
		name := fmt.Sprint("name-", i)
		limit := forebay.QuotaAmount{Tokens: 100}
		deployments = append(deployments, forebay.Deployment{Name: name, Breaker: forebay.BreakerOpen, Limit: limit, Used: limit})
		of := BudgetUse{Tenant: name, Period: "day", Limit: 2, Used: 1}
		tokens, key, keyTokens := of, of, of
		tokens.Tokens, key.Key, keyTokens.Tokens, keyTokens.Key = true, "key_"+name, true, "key_"+name
		budgets = append(budgets, of, tokens, key, keyTokens)
		turns = append(turns, orchestrate.OldestItem{Orchestrator: name, Age: time.Duration(i) * time.Second})
	}
	slices.Reverse(turns[maxFunctions:])
	register := func(m *Telemetry) error {
		return errors.Join(
			m.Deployments(func() map[string]int64 { return nil }, func(context.Context) ([]forebay.Deployment, error) { return deployments, nil }),
			m.Budgets(func(context.Context) ([]BudgetUse, error) { return budgets, nil }),
			m.OpenOrchestrations(func(context.Context, int64) ([]orchestrate.OpenCount, error) {
				return []orchestrate.OpenCount{{Status: forebay.OrchestrationRunning, Instances: 7}}, nil
			}, func(context.Context) ([]orchestrate.OldestItem, error) { return turns, nil }))
	}
	m := measuring(t)
	if err := errors.Join(register(m), register(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.registry.Gather(); err != nil { // gives the names
		t.Fatal(err)
	}
	for i, most := maxTenants*4, maxTenants*4+80; i < most+4; i++ {
		if budgets[i].Used = 1.5; i >= most {
			budgets[i].Limit, budgets[i].Used = 10, 9
		}
	}
	turns[maxFunctions/20].Age = all * time.Second // it was too young for a name
	m.readings.at = time.Time{}                    // all is read anew
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got, others := map[string]int{}, map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = len(f.GetMetric())
		for _, metric := range f.GetMetric() {
			for _, l := range metric.GetLabel() {
				if l.GetValue() == other {
					others[f.GetName()] = metric.GetGauge().GetValue()
				}
			}
		}
	}
	for name, series := range map[string]int{
		"forebay_breaker_state": all, "forebay_quota_limit": all, "forebay_quota_used": all, "forebay_deployment_paused": all, "forebay_deployment_denied": all,
		"forebay_budget_limit_usd": maxTenants + 1, "forebay_budget_used_usd": maxTenants + 1,
		"forebay_budget_limit_tokens": maxTenants + 1, "forebay_budget_used_tokens": maxTenants + 1,
		"forebay_key_budget_limit_usd": maxTenants + 1, "forebay_key_budget_used_usd": maxTenants + 1,
		"forebay_key_budget_limit_tokens": maxTenants + 1, "forebay_key_budget_used_tokens": maxTenants + 1,
		"forebay_orchestration_instances": 1, "forebay_orchestration_oldest_age_seconds": maxFunctions + 1,
	} {
		if got[name] != series {
			t.Errorf("%s has %d series, want %d", name, got[name], series)
		}
	}
	for _, of := range []string{"", "key_"} {
		for _, unit := range []string{"usd", "tokens"} {
			limit, used := others["forebay_"+of+"budget_limit_"+unit], others["forebay_"+of+"budget_used_"+unit]
			if limit != 10 || used != 9 {
				t.Errorf("of budgets without names, %s%s show %v of %v", of, unit, used, limit)
			}
		}
	}
	if oldest := others["forebay_orchestration_oldest_age_seconds"]; oldest != all {
		t.Errorf("the oldest turn of the others is %v s old", oldest)
	}
}

func TestCorrelate(t *testing.T) {
	var log bytes.Buffer
	l := slog.New(Correlate(slog.NewJSONHandler(&log, nil))).With(slog.String("a", "b"))
	l.InfoContext(t.Context(), "outside")
	l.InfoContext(trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})), "inside")
	var lines []map[string]any
	for line := range strings.Lines(log.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, entry)
	}
	if lines[0]["trace_id"] != nil || lines[1]["trace_id"] != "01"+strings.Repeat("0", 30) || lines[1]["span_id"] != "02"+strings.Repeat("0", 14) || lines[1]["a"] != "b" {
		t.Error(lines)
	}
}

func TestContentIsCut(t *testing.T) {
	got := messagesJSON([]model.Message{{Role: model.RoleSystem, Content: "be brief"}, {Role: model.RoleUser, Content: strings.Repeat("ä", maxContentBytes)}, {Role: model.RoleUser, Content: "left out"}}, "")
	var list []struct {
		Role  string
		Parts []struct{ Type, Content string }
	}
	if err := json.Unmarshal([]byte(got), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Parts[0].Content != "be brief" || list[1].Role != "user" || strings.Contains(got, "\uFFFD") || strings.Trim(list[1].Parts[0].Content, "ä") != "" {
		t.Errorf("%.200s", got)
	}
}

// forwards forwards a request, and begins with a token.
type forwards struct{ nothing }

func (forwards) Takes(string) bool { return true }
func (forwards) Forward(ctx context.Context, req model.ForwardRequest) (model.ForwardResponse, error) {
	err := req.Write(nil)
	return model.ForwardResponse{Model: "gpt-2", Usage: forebay.TokenUsage{InputTokens: 3, OutputTokens: 4}, FinishReason: "stop"}, err
}

// A provider that forwards does so when it is observed, and another does not begin to.
func TestForwardedCallsAreObserved(t *testing.T) {
	m := measuring(t)
	spans := tracing(t, m, sdktrace.AlwaysSample())
	if _, ok := m.Provider(nothing{}, Deployment{}).(model.Forwarder); ok {
		t.Error("a provider that cannot forward says it can")
	}
	f, ok := m.Provider(forwards{}, Deployment{Name: "east", Provider: "openai", Model: "gpt"}).(model.Forwarder)
	if !ok {
		t.Fatal("a provider cannot forward any more")
	}
	for path, operation := range map[string]string{"chat/completions": "chat", "responses": "chat", "completions": "text_completion", "embeddings": "embeddings", "moderations": "moderations", "messages/count_tokens": "count_tokens"} {
		written := false
		resp, err := f.Forward(t.Context(), model.ForwardRequest{Path: path, Write: func([]byte) error { written = true; return nil }})
		if err != nil || !written || resp.Model != "gpt-2" {
			t.Errorf("%s: %v, %+v", path, err, resp)
		}
		got := spans.GetSpans()
		if last := got[len(got)-1]; last.Name != operation+" gpt" {
			t.Errorf("%s has the span %q", path, last.Name)
		}
	}
}
