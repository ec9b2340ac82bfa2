package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"
	"google.golang.org/protobuf/proto"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/orchestrate/policy"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
	"github.com/forebayhq/forebay/internal/panics"
)

func (h *taskHub) NextActivityWorkItem(ctx context.Context) (*backend.ActivityWorkItem, error) {
	for {
		select {
		case a := <-h.activities:
			var e *protos.HistoryEvent
			err := panics.Run(h.log, "reading an activity", func() (err error) {
				e, err = history.Decode(a.Event.Bytes)
				return err
			})
			if err != nil || e.GetTaskScheduled() == nil {
				h.refuse(ctx, a)
				continue
			}
			h.inProgress.Store(e, a)
			return &backend.ActivityWorkItem{SequenceNumber: a.Token, InstanceID: api.InstanceID(a.ID), NewEvent: e, Properties: map[string]any{itemKey: a}}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// fetch loads an activity's event from blob storage before the activity is executed. An activity
// whose event is gone is refused.
func (h *taskHub) fetch(ctx context.Context, a *ActivityItem) {
	var event []byte
	err := panics.Run(h.log, "reading an activity", func() (err error) {
		bound, cancel := h.bound(ctx, a.Token)
		defer cancel(nil)
		event, err = h.load(bound, a.Event)
		return err
	})
	if err == nil || errors.Is(err, history.ErrUnreadable) {
		a.Event.Bytes = event
		h.activities <- a
		return
	}
	defer h.release(a.Token)
	ctx, stop := settling(ctx)
	defer stop()
	abandoned := h.store.AbandonActivity(ctx, a, h.backoff(a.Lost+4), false)
	if err = errors.Join(err, abandoned); !errors.Is(err, forebay.ErrLockLost) {
		h.log.Warn("cannot read an activity", slog.String("instance", a.ID), slog.Any("error", err))
	}
}

// refuse fails an activity that cannot be read.
func (h *taskHub) refuse(ctx context.Context, a *ActivityItem) {
	defer h.release(a.Token)
	err := h.settle(ctx, a, history.TaskFailed(int32(a.EventID), "", &protos.TaskFailureDetails{ErrorType: "Unreadable", ErrorMessage: "the activity cannot be read", IsNonRetriable: true}))
	if err != nil {
		h.log.Error("cannot fail an activity that cannot be read", slog.Any("error", err))
	}
}

// maxLostDeliveries is how often a work item may be lost with its process before it counts as
// poison.
const maxLostDeliveries = 10

// CompleteActivityWorkItem stores the outcome of an attempt. The instance gets the final
// outcome; any other schedules a retry.
func (h *taskHub) CompleteActivityWorkItem(ctx context.Context, wi *backend.ActivityWorkItem) (err error) {
	defer panics.Contain(&err, h.log, "storing an activity's result")
	a := wi.Properties[itemKey].(*ActivityItem)
	defer h.workers.ActivityDone(h.tenant, a.ID, int32(a.EventID))
	if h.cutOff(a.Token) {
		return errStopping // the engine then abandons it
	}
	if err := h.settle(ctx, a, wi.Result); err != nil {
		return err
	}
	h.inProgress.Delete(wi.NewEvent)
	h.release(a.Token)
	return nil
}

// settle stores the outcome of an attempt, unless the lock is lost.
func (h *taskHub) settle(ctx context.Context, a *ActivityItem, result *protos.HistoryEvent) error {
	outcome, err := h.outcome(a, result)
	if err != nil {
		return err
	}
	put, err := h.storeActivityResult(ctx, a, &outcome.Event)
	if err != nil {
		return err
	}
	if err := h.storeOutcome(ctx, a.Token, put, func(ctx context.Context) error { return h.store.SettleActivity(ctx, a, outcome) }); err != nil {
		return unlessLost(err)
	}
	h.opts.Observe(ProcessedItem{Kind: workqueues.Activities, Name: a.Name, Outcome: outcome.Outcome})
	return nil
}

func (h *taskHub) outcome(a *ActivityItem, result *protos.HistoryEvent) (o ActivityOutcome, err error) {
	if size := len(result.GetTaskCompleted().GetResult().GetValue()); int64(size) > h.opts.MaxBytes {
		result = history.TaskFailed(int32(a.EventID), result.GetTaskCompleted().GetTaskExecutionId(), &protos.TaskFailureDetails{
			ErrorType: string(forebay.CodePayloadTooLarge), ErrorMessage: fmt.Sprintf("the result has %d bytes; the limit is %d", size, h.opts.MaxBytes), IsNonRetriable: true})
	}
	o.Outcome = ActivitySucceeded
	if failed := result.GetTaskFailed(); failed != nil {
		history.BoundFailure(failed.GetFailureDetails())
		why := history.FailureOf(failed.GetFailureDetails())
		if why == nil {
			why = &forebay.OrchestrationFailure{Type: "Unknown", Message: "the activity failed"}
		}
		o.Outcome, o.ErrorType, o.Error = ActivityFailed, why.Type, why.Message
		if delay, again := policy.Decode(a.Policy).Next(a.Failures+1, why, a.ScheduledAt, h.store.Now()); again {
			o.Outcome, o.Delay = ActivityRetried, delay
			return o, nil
		}
	}
	o.Event.Bytes, err = proto.Marshal(result)
	return o, err
}

// AbandonActivityWorkItem gives an attempt without an outcome back, as when its worker has left.
func (h *taskHub) AbandonActivityWorkItem(ctx context.Context, wi *backend.ActivityWorkItem) (err error) {
	defer panics.Contain(&err, h.log, "giving an activity back")
	a := wi.Properties[itemKey].(*ActivityItem)
	defer h.workers.ActivityDone(h.tenant, a.ID, int32(a.EventID))
	h.inProgress.Delete(wi.NewEvent)
	defer h.release(a.Token)
	return unlessLost(h.storeOutcome(ctx, a.Token, nil, func(ctx context.Context) error {
		return h.store.AbandonActivity(ctx, a, h.backoff(a.Lost+1), h.mayHaveBegun(a.Token))
	}))
}
