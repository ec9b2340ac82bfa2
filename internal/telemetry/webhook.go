package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forebayhq/forebay/internal/webhook"
)

// webhookOutcomes are the outcomes of a delivery attempt, in the words of operators.
var webhookOutcomes = map[webhook.Verb]string{
	webhook.Complete: "delivered", webhook.Retry: "retried", webhook.Release: "released", webhook.GiveUp: "given_up",
}

// Webhooks returns the observer of deliveries to webhooks, or nil without telemetry.
func (t *Telemetry) Webhooks() func(webhook.Endpoint, webhook.Delivery, webhook.Outcome) {
	if t == nil {
		return nil
	}
	return t.delivered
}

// delivered records a delivery attempt to a webhook. The span is in its own trace with a link to
// the submit. It contains neither the URL nor the message.
func (t *Telemetry) delivered(e webhook.Endpoint, d webhook.Delivery, o webhook.Outcome) {
	outcome, failure := webhookOutcomes[o.Verb], string(o.Attempt.Failure)
	if t.tracer != nil {
		options := append(t.linkTo(d.Traceparent), trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(o.Attempt.At))
		_, span := t.tracer.Start(context.Background(), "deliver webhook", options...)
		if span.IsRecording() {
			attrs := []attribute.KeyValue{semconv.HTTPRequestMethodPost, keyTenant.String(e.Tenant), keyWebhook.String(e.Name), keyAttempt.Int(d.Count),
				keyOutcome.String(outcome), semconv.MessagingMessageID(d.ID)}
			if o.Attempt.Status != 0 {
				attrs = append(attrs, semconv.HTTPResponseStatusCode(o.Attempt.Status))
			}
			span.SetAttributes(attrs...)
			fail(span, failure)
		}
		span.End(trace.WithTimestamp(o.Attempt.At.Add(o.Attempt.Duration)))
	}
	if m := t.metrics; m != nil {
		m.deliveries.of(webhookLabels{e.Tenant, outcome, failure}).add(1)
		m.webhookDuration.of(webhookLabels{"", outcome, failure}).record(o.Attempt.Duration.Seconds())
	}
}
