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

// An orchestrator may go on after a failure: it compensates, does something else, or does not mind. Replayed without that failure it would not ask
// for what it asked for then, and an instance whose history has more than its code asks for cannot go on. So such a failure stays.
//
// What failed later is taken away anyway. So in doubt are the failures alone that had arrived when something was asked for that has succeeded.
// Whether the code had taken notice of them the history does not say: they may be of a fan-out whose results it takes one after the other.
// The code says it, replayed without them.

// maxReplayed bounds the events of all the replays for one instance; they take about two seconds then. What is in doubt still, stays.
const maxReplayed = 2_000_000

var unlogged = EngineLog{slog.New(slog.DiscardHandler)}

// tolerated returns the steps whose failures stay.
func (w *rewind) handledFailures(ctx context.Context, row OrchestrationRow, events []*protos.HistoryEvent) (map[int32]bool, error) {
	id, stays := api.InstanceID(row.ID), map[int32]bool{}
	ordered := w.registry.orderedFunc(row.Name)
	if ordered != nil { // it says so itself, if it comes as far; where it was suspended, once it is not any more
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
	// A failure that stays can still be taken away by a later rewind, but none can be brought back. Code that has killed its process is not run here.
	if ordered != nil || !w.registry.hasOrchestrator(row.Name) || row.Failure != nil && row.Failure.Type == failurePoison {
		return stays, ctx.Err()
	}
	code, left := task.NewTaskExecutorWithLogger(w.registry.engine, unlogged), maxReplayed
	var take func(calls []int32)
	take = func(calls []int32) { // away, as many as go
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
