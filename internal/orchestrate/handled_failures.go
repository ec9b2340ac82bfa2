package orchestrate

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// An orchestrator may handle a failure and go on: it compensates, or takes another path.
// Replayed without that failure, the code would not ask for the steps that came after it. The
// history would then hold steps that the code does not ask for, and the instance could not go
// on. So a rewind keeps handled failures in the history.
//
// A rewind removes all failures after the last step that succeeded. So only earlier failures are
// in doubt. The history does not show whether the code had seen them: they may belong to a
// fan-out whose results the code awaits one by one. So the code is replayed without them, which
// tells.

// maxReplayed bounds the events of all replays for one instance: about two seconds of work.
// Failures that are still in doubt then are kept.
const maxReplayed = 2_000_000

var unlogged = EngineLog{slog.New(slog.DiscardHandler)}

// handledFailures returns the steps whose failures stay in the history.
func (w *rewind) handledFailures(ctx context.Context, row OrchestrationRow, events []*protos.HistoryEvent) (map[int32]bool, error) {
	id, stays := api.InstanceID(row.ID), map[int32]bool{}
	ordered := w.registry.orderedFunc(row.Name)
	// The code sets Handled itself, if it gets that far; if suspended, once resumed.
	if ordered != nil {
		for _, past := range [][]*protos.HistoryEvent{events, append(slices.Clip(events), w.again)} {
			run := newOrderedRun(past, nil)
			code, err := run.code(row.Name, ordered, unlogged)
			if err != nil {
				return nil, err
			}
			if history.Matches(ctx, code, id, past) {
				for _, e := range run.ended {
					stays[e.ID] = e.Handled
				}
				return stays, nil
			}
		}
	}
	doubtful := history.DoubtfulFailures(events)
	for _, call := range doubtful {
		stays[call] = true
	}
	// A failure that is kept can be removed by a later rewind, but one that is removed cannot
	// come back. Code of a poison work item is not run here.
	if ordered != nil || !w.registry.hasOrchestrator(row.Name) || row.Failure != nil && row.Failure.Type == failurePoison {
		return stays, ctx.Err()
	}
	code, left := task.NewTaskExecutorWithLogger(w.registry.engine, unlogged), maxReplayed
	var take func(calls []int32)
	take = func(calls []int32) { // removes as many failures as the code allows
		if left -= len(events); len(calls) == 0 || left < 0 || ctx.Err() != nil {
			return
		}
		fewer := maps.Clone(stays)
		for _, call := range calls {
			delete(fewer, call)
		}
		if history.Matches(ctx, code, id, append(history.Rewind(events, history.StepsToRepeat(events, fewer), fewer), w.again)) {
			stays = fewer
		} else if half := len(calls) / 2; half > 0 {
			take(calls[half:])
			take(calls[:half])
		}
	}
	take(doubtful)
	return stays, ctx.Err()
}
