package history

import (
	"context"

	"github.com/dapr/durabletask-go/api/helpers"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend/runtimestate"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// StartSpan continues the trace that the instance was started in. The span has the same id in
// each work item.
func StartSpan(ctx context.Context, state *protos.WorkflowRuntimeState, arrived []*protos.HistoryEvent) (context.Context, trace.Span) {
	start := Started(state.OldEvents, arrived)
	if state.StartEvent != nil {
		start = state.StartEvent
	}
	if start.GetParentTraceContext() == nil {
		return ctx, helpers.NoopSpan()
	}
	traced, err := helpers.ContextFromTraceContext(ctx, start.ParentTraceContext)
	if err != nil {
		return ctx, helpers.NoopSpan()
	}
	ctx, span := helpers.StartNewRunWorkflowSpan(traced, start, runtimestate.GetStartedTime(state))
	if start.WorkflowSpanID == nil {
		start.WorkflowSpanID = wrapperspb.String(span.SpanContext().SpanID().String())
	} else if id, err := trace.SpanIDFromHex(start.WorkflowSpanID.Value); err == nil {
		helpers.ChangeSpanID(span, id)
	}
	return ctx, span
}

// EndSpan ends the span of a work item. Only the work item that ends the instance publishes it.
func EndSpan(state *protos.WorkflowRuntimeState, span trace.Span, continues bool) {
	switch {
	case continues:
		span.SetAttributes(attribute.String("durabletask.runtime_status", helpers.ToRuntimeStatusString(protos.OrchestrationStatus_ORCHESTRATION_STATUS_CONTINUED_AS_NEW)))
	case runtimestate.IsCompleted(state):
		if failure, err := runtimestate.FailureDetails(state); err == nil {
			span.SetStatus(codes.Error, failure.ErrorMessage)
		}
		span.SetAttributes(attribute.String("durabletask.runtime_status", helpers.ToRuntimeStatusString(runtimestate.RuntimeStatus(state))))
	default:
		helpers.CancelSpan(span)
	}
	span.End()
}
