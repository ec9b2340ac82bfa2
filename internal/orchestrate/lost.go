package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/backend"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/panics"
)

// A turn can kill its process each time, by a stack that overflows or by the memory that it takes, or lead to what can never be stored. It
// would be repeated for ever, and take everything else that its process does with it. So a turn that was lost maxLost times ends its
// instance, without its code. What had arrived for it goes into the history: once the code is mended the instance can be rewound.

// failureTurnLost is the type of the failure of such an instance.
const failureTurnLost = "TurnLost"

// passing reports whether an error of the store says nothing about what was to be stored.
func passing(err error) bool {
	switch forebay.CodeOf(err) {
	case forebay.CodeLockLost, forebay.CodeUnavailable, forebay.CodeStorageFull:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// unread notes of a turn whether what it needs can never be read.
func (h *hub) unread(turn *Turn, err error) error {
	if errors.Is(err, errHistory) {
		h.tried.Store(turn.ID, struct{}{})
	}
	return err
}

// giveUp fails an instance whose turn was lost too often.
func (h *hub) giveUp(ctx context.Context, turn *Turn) {
	defer h.release(turn.Token)
	var orphans, put []string
	var result *TurnResult
	err := panics.Run(h.log, "failing an instance", func() (err error) {
		if result, err = h.lostResult(ctx, turn); err == nil {
			put, err = h.keepTurn(ctx, turn, result)
		}
		return err
	})
	ctx, cancel := settling(ctx)
	defer cancel()
	if err == nil {
		orphans, err = h.store.CompleteTurn(ctx, turn, result)
		h.refused(ctx, err, put)
	}
	if err == nil {
		h.memory.forget(turn.Instance)
		h.cancelJobs(ctx, orphans)
		h.opts.Observe(Taken{Kind: WorkTurn, Name: turn.Name, Outcome: TurnStored, Ended: result.Status})
		return
	}
	if err = errors.Join(unlessLost(err), unlessLost(h.store.AbandonTurn(ctx, turn, h.pause(turn.Deliveries), false))); err != nil {
		h.log.Warn("cannot fail an orchestration whose turn was lost", slog.String("instance", turn.ID), slog.Any("error", err))
	}
}

// lostResult is the end of an instance whose turn was lost.
func (h *hub) lostResult(ctx context.Context, turn *Turn) (*TurnResult, error) {
	ctx, cancel := h.bound(ctx, turn.Token)
	defer cancel(nil)
	start, err := h.startOf(ctx, turn.Instance)
	if err != nil && !errors.Is(err, errHistory) { // and if it is that, nobody can be told
		return nil, err
	}
	begun := newEvent()
	begun.EventType = &protos.HistoryEvent_WorkflowStarted{WorkflowStarted: &protos.WorkflowStartedEvent{}}
	seen := []*protos.HistoryEvent{begun}
	for _, a := range turn.Arrived {
		e, err := h.arrivedEvent(ctx, a)
		switch {
		case errors.Is(err, errHistory):
		case err != nil:
			return nil, err
		default:
			seen = append(seen, e)
		}
	}
	result, err := endAs(&backend.WorkflowRuntimeState{StartEvent: start, CustomStatus: value(turn.Custom)}, failureTurnLost,
		fmt.Sprintf("%d times in a row its turn took the process with it that carried it out, or could not be stored", turn.Lost))
	if err != nil {
		return nil, err
	}
	var history []byte
	for _, e := range seen {
		if history, err = appendEvent(history, e); err != nil {
			return nil, err
		}
	}
	result.History.Bytes, result.Events = append(history, result.History.Bytes...), result.Events+len(seen)
	return result, nil
}
