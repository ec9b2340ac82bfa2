package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"

	"github.com/forebayhq/forebay/internal/jobs"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forebayhq/forebay"
)

// Names of messaging operations.
const (
	opSend    = "send"
	opProcess = "process"
)

// Jobs returns the observer of jobs, or nil without telemetry.
func (t *Telemetry) Jobs() jobs.Observer {
	if t == nil {
		return nil
	}
	return observer{t}
}

type observer struct{ *Telemetry }

// Submitting begins the PRODUCER span of a job. The job stores its context.
func (t observer) Submitting(ctx context.Context, s *jobs.Submission) {
	if t.tracer == nil {
		return
	}
	if remote := t.remote(s.Traceparent); remote.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote)
	}
	_, span := t.tracer.Start(ctx, opSend+" "+s.Queue, trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(s.Began))
	s.Trace = span
	s.Traceparent = t.traceparent(span.SpanContext())
	if span.IsRecording() {
		span.SetAttributes(append(messaging(opSend, s.Queue, s.JobID, s.CorrelationID), keyTask.String(s.Task), keyTenant.String(s.Tenant),
			semconv.MessagingMessageBodySize(int(s.InputBytes)))...)
	}
}

// Submitted ends that span.
func (t observer) Submitted(s *jobs.Submission, existing bool, err error) {
	code := ""
	if err != nil {
		code = string(forebay.CodeOf(err))
	}
	if span, ok := s.Trace.(trace.Span); ok {
		if existing {
			span.SetAttributes(keyExisting.Bool(true))
		}
		fail(span, code)
		span.End()
	}
	if t.metrics != nil {
		t.metrics.send.of(messagingLabels{opSend, s.Queue, code}).since(s.Began)
	}
}

// Returned counts a delivery that could not be called.
func (t observer) Returned(d *jobs.Delivery, why forebay.WaitReason) {
	if t.metrics != nil {
		t.metrics.waits.of(waitLabels{d.Queue.Name, string(why)}).add(1)
	}
}

// Held counts a scan of a queue that found jobs but could call none of them.
func (t observer) Held(queue string, why forebay.WaitReason) {
	if t.metrics != nil {
		t.metrics.waits.of(waitLabels{queue, string(why)}).add(1)
	}
}

// call is an attempt that is observed.
type call struct {
	t       *Telemetry
	d       *jobs.Delivery
	ctx     context.Context // its cause says why the attempt was cancelled
	span    trace.Span      // nil: not traced
	began   time.Time
	ended   time.Time
	err     error
	settled bool
}

// Starting begins the CONSUMER span of an attempt, in its own trace.
func (t observer) Starting(ctx context.Context, d *jobs.Delivery) (context.Context, jobs.ObservedCall) {
	c := &call{t: t.Telemetry, d: d, began: time.Now()}
	if t.tracer != nil {
		options := append(t.linkTo(d.Traceparent), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(c.began))
		ctx, c.span = t.tracer.Start(ctx, opProcess+" "+d.Queue.Name, options...)
		if c.span.IsRecording() {
			id := d.CorrelationID
			if id == "" {
				id = d.ID
			}
			c.span.SetAttributes(append(messaging(opProcess, d.Queue.Name, d.ID, id), keyTask.String(d.Task), keyTenant.String(d.Tenant),
				keyAttempt.Int(d.Number), keyGeneration.Int(d.Generation))...)
		}
	}
	c.ctx = ctx
	return ctx, c
}

func (c *call) Traceparent() string {
	if c.span == nil {
		return ""
	}
	return c.t.traceparent(c.span.SpanContext())
}

func (c *call) Called(err error) { c.ended, c.err = time.Now(), err }

// Settled records the outcome of an attempt, once.
func (c *call) Settled(a jobs.AttemptRecord, status forebay.Status) {
	if c.settled {
		return
	}
	c.settled = true
	outcome, code := a.Outcome, a.ErrorCode
	if outcome == "" {
		outcome, code = forebay.OutcomeLost, "lock_lost"
		if errors.Is(context.Cause(c.ctx), jobs.ErrCancelled) {
			outcome, code = forebay.OutcomeCancelled, string(forebay.OutcomeCancelled)
		}
	}
	if c.span != nil {
		c.span.SetAttributes(keyOutcome.String(string(outcome)), keyDeployment.String(a.Deployment))
		fail(c.span, code)
	}
	if c.t.metrics != nil {
		c.measure(a, outcome, code, status)
	}
}

func (c *call) measure(a jobs.AttemptRecord, outcome forebay.Outcome, code string, status forebay.Status) {
	m, d := c.t.metrics, c.d
	queue := d.Queue.Name
	m.process.of(messagingLabels{opProcess, queue, code}).record(c.ended.Sub(c.began).Seconds())
	if d.Number == 1 && d.Generation == 1 {
		m.wait.of(queue).record(d.LockedAt.Sub(d.CreatedAt).Seconds())
	}
	switch a.Outcome {
	case "", forebay.OutcomeLost, forebay.OutcomeCancelled:
		// The store counts these, even if their worker is gone.
	default:
		m.attempts.of(attemptLabels{queue, d.Task, a.Deployment, string(outcome), string(a.ErrorClass)}).add(1)
	}
	if a.Outcome == forebay.OutcomeThrottled {
		m.throttled.of(a.Deployment).add(1)
	}
	if status != "" && d.Generation == 1 {
		m.life.of(jobLabels{queue, d.Task, string(status)}).since(d.Here(d.CreatedAt))
	}
	if a.Usage.InputTokens > 0 {
		m.tokens.of(useLabels{d.Tenant, d.Task, a.Deployment, tokenInput}).add(float64(a.Usage.InputTokens))
	}
	if a.Usage.OutputTokens > 0 {
		m.tokens.of(useLabels{d.Tenant, d.Task, a.Deployment, tokenOutput}).add(float64(a.Usage.OutputTokens))
	}
	if a.Cost > 0 {
		m.cost.of(useLabels{d.Tenant, d.Task, a.Deployment, ""}).add(float64(a.Cost) / float64(forebay.Dollar))
	}
}

// Over ends the span, also if the outcome could not be recorded. A delivery that was returned
// without a call has no span: a span that never ends is not sent.
func (c *call) Over() {
	if c.span == nil {
		return
	}
	if !c.settled && c.err != nil {
		failure := forebay.AsTaskError(c.err)
		if failure.Uncalled {
			return
		}
		fail(c.span, failure.Code)
	}
	end := c.ended
	if end.IsZero() {
		end = time.Now()
	}
	c.span.End(trace.WithTimestamp(end))
}

// fail marks a span with an error code and no other detail. "" is success.
func fail(span trace.Span, code string) {
	if code != "" {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(code))
	}
}

func messaging(operation, queue, id, correlation string) []attribute.KeyValue {
	return append(make([]attribute.KeyValue, 0, 12), semconv.MessagingSystemKey.String(system), semconv.MessagingOperationName(operation),
		semconv.MessagingOperationTypeKey.String(operation), semconv.MessagingDestinationName(queue), semconv.MessagingMessageID(id),
		semconv.MessagingMessageConversationID(correlation))
}

const traceparentHeader = "traceparent"

// linkTo begins a trace with a link to the submit of a job, if that has a trace.
func (t *Telemetry) linkTo(traceparent string) []trace.SpanStartOption {
	options := []trace.SpanStartOption{trace.WithNewRoot()}
	if submit := t.remote(traceparent); submit.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: submit}))
	}
	return options
}

// remote parses a traceparent. The context is invalid if the text is.
func (t *Telemetry) remote(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(t.propagate.Extract(context.Background(), propagation.MapCarrier{traceparentHeader: traceparent}))
}

func (t *Telemetry) traceparent(span trace.SpanContext) string {
	carrier := propagation.MapCarrier{}
	t.propagate.Inject(trace.ContextWithSpanContext(context.Background(), span), carrier)
	return carrier[traceparentHeader]
}
