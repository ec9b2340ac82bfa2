package telemetry

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/jobs/events"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

// nothing answers at once.
type nothing struct{}

func (nothing) Chat(ctx context.Context, _ model.ChatRequest) (model.ChatResponse, error) {
	return model.ChatResponse{Text: "x", Usage: forebay.TokenUsage{InputTokens: 10, OutputTokens: 2}}, nil
}
func (nothing) Embed(context.Context, model.EmbedRequest) (model.EmbedResponse, error) {
	return model.EmbedResponse{}, nil
}

func measuring(t testing.TB) *Telemetry {
	t.Helper()
	m, err := New(Options{Prometheus: true, Logger: slog.New(slog.DiscardHandler), Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Shutdown(context.WithoutCancel(t.Context())) })
	return m
}

// tracing adds traces that go nowhere.
func tracing(t testing.TB, m *Telemetry, sampler sdktrace.Sampler) *tracetest.InMemoryExporter {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	m.tracers = sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSyncer(kept))
	m.tracer, m.propagate = m.tracers.Tracer("test"), propagation.TraceContext{}
	return kept
}

// life is all that telemetry hears of one job that goes well.
func life(ctx context.Context, o jobs.Observer, p model.Provider, m *Telemetry) {
	now := time.Now()
	s := jobs.Submission{Tenant: "acme", Queue: "default", Task: "chat", JobID: "job_1", Began: now}
	o.Submitting(ctx, &s)
	o.Submitted(&s, false, nil)
	d := jobs.Delivery{Tenant: "acme", Queue: &jobs.Queue{Name: "default"}, Received: now}
	d.ID, d.Task, d.Number, d.Generation, d.Traceparent, d.CreatedAt, d.LockedAt = "job_1", "chat", 1, 1, s.Traceparent, now, now
	ctx, c := o.Starting(ctx, &d)
	resp, err := p.Chat(ctx, model.ChatRequest{})
	c.Called(err)
	c.Settled(jobs.AttemptRecord{Deployment: "east", Outcome: forebay.OutcomeSucceeded, Usage: resp.Usage, Cost: 1000}, forebay.StatusSucceeded)
	c.Over()
	m.Committed(db.Commit{Operations: 3, Duration: time.Millisecond})
	m.JobsChanged(events.Tally{Succeeded: 1})
}

// BenchmarkJob is what telemetry costs a job, all its metrics and spans together.
func BenchmarkJob(b *testing.B) {
	run := func(b *testing.B, m *Telemetry) {
		o, p := m.Jobs(), m.Provider(nothing{}, Deployment{Name: "east", Provider: "openai", Model: "gpt"})
		b.ReportAllocs()
		b.ResetTimer()
		for b.Loop() {
			life(b.Context(), o, p, m)
		}
	}
	b.Run("metrics", func(b *testing.B) { run(b, measuring(b)) })
	b.Run("traces unsampled", func(b *testing.B) {
		m := measuring(b)
		tracing(b, m, sdktrace.NeverSample())
		run(b, m)
	})
	b.Run("traces", func(b *testing.B) {
		m := measuring(b)
		tracing(b, m, sdktrace.AlwaysSample())
		m.tracers.UnregisterSpanProcessor(nil)
		run(b, m)
	})
}
