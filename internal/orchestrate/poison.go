package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
	"github.com/forebayhq/forebay/internal/panics"
)

// A work item is poison if it kills its process each time, for example by a stack overflow or by
// its memory. So is one whose result can never be stored. It would be retried for ever, and
// would take other work items of its process with it. So after maxLostDeliveries lost deliveries
// the instance fails, and its code is not run. The new events still go into the history, so the
// instance can be rewound once its code is mended.

// failurePoison is the failure type of such an instance.
const failurePoison = "TurnLost"

// mayPass reports whether an error of the store says nothing about what was to be stored.
func mayPass(err error) bool {
	code := forebay.CodeOf(err)
	return code == forebay.CodeUnavailable || code == forebay.CodeStorageFull || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// noteUnreadable blames a work item whose data can never be read.
func (h *taskHub) noteUnreadable(item *OrchestrationItem, err error) error {
	if errors.Is(err, history.ErrUnreadable) {
		h.poisonSuspects.Store(item.ID, struct{}{})
	}
	return err
}

// failPoison fails the instance of a poison work item.
func (h *taskHub) failPoison(ctx context.Context, item *OrchestrationItem) {
	defer h.release(item.Token)
	var orphans, put []string
	var result *OrchestrationResult
	err := panics.Run(h.log, "failing an instance", func() (err error) {
		if result, err = h.poisonResult(ctx, item); err == nil {
			put, err = h.storeResultPayloads(ctx, item, result)
		}
		return err
	})
	ctx, cancel := settling(ctx)
	defer cancel()
	if err == nil {
		orphans, err = h.store.CompleteOrchestration(ctx, item, result)
		h.deleteIfRefused(ctx, err, put)
	}
	if err == nil {
		h.cache.Forget(item.Instance)
		h.cancelJobs(ctx, h.tenant, orphans)
		h.opts.Observe(ProcessedItem{Kind: workqueues.Orchestrations, Name: item.Name, Outcome: ItemStored, Ended: result.Status})
		return
	}
	if err = errors.Join(unlessLost(err), unlessLost(h.store.AbandonOrchestration(ctx, item, h.backoff(item.Deliveries), false))); err != nil {
		h.log.Warn("cannot fail an orchestration whose work item is poison", slog.String("instance", item.ID), slog.Any("error", err))
	}
}

// poisonResult is the result with which the instance of a poison work item ends.
func (h *taskHub) poisonResult(ctx context.Context, item *OrchestrationItem) (*OrchestrationResult, error) {
	ctx, cancel := h.bound(ctx, item.Token)
	defer cancel(nil)
	start, err := h.startOf(ctx, item.Instance)
	if err != nil && !errors.Is(err, history.ErrUnreadable) { // otherwise no parent can be told
		return nil, err
	}
	var seen []*protos.HistoryEvent
	for _, a := range item.Arrived {
		e, err := h.arrivedEvent(ctx, a)
		switch {
		case errors.Is(err, history.ErrUnreadable):
		case err != nil:
			return nil, err
		default:
			seen = append(seen, e)
		}
	}
	return endAs(item, &backend.WorkflowRuntimeState{StartEvent: start, CustomStatus: history.Value(item.Custom)}, seen, failurePoison,
		fmt.Sprintf("%d times in a row its turn took the process with it that carried it out, or could not be stored", item.LostDeliveries))
}
