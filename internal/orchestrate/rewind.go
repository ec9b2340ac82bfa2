package orchestrate

import (
	"context"
	"errors"
	"slices"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/protobuf/proto"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

// maxRewindAttempts is how often a rewind is planned again because instances have changed
// meanwhile.
const maxRewindAttempts = 10

// Rewind lets a failed instance go on. Activities that failed or were dropped at the end are
// called again. Sub-orchestrations that failed are rewound too. Steps that succeeded are not
// repeated.
func (s *Instances) Rewind(ctx context.Context, tenant, id, reason string) error {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	again := history.NewEvent() // only wakes the instance
	again.EventType = &protos.HistoryEvent_ExecutionResumed{ExecutionResumed: &protos.ExecutionResumedEvent{Input: textOf(reason)}}
	event, err := proto.Marshal(again)
	if err != nil {
		return err
	}
	for range maxRewindAttempts {
		plan := rewind{Instances: s, tenant: tenant, no: no, again: again, event: event}
		row, err := s.store.Orchestration(ctx, no, id)
		if err != nil {
			return err
		}
		if row.Status != forebay.OrchestrationFailed {
			return forebay.Errorf(forebay.CodeConflict, "only an instance that has failed can be rewound; %s is %s", id, row.Status)
		}
		if err := plan.add(ctx, row); err != nil {
			return err
		}
		if err := plan.carryOut(ctx); !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return ErrChanged
}

// rewind plans the new histories of a failed instance and of its failed sub-orchestrations.
type rewind struct {
	*Instances
	tenant string
	no     int64
	again  *protos.HistoryEvent
	event  []byte // the same
	all    []Rewound
}

// carryOut stores the plan.
func (w *rewind) carryOut(ctx context.Context) error {
	var histories []*Payload
	for i := range w.all {
		if h := &w.all[i].History; isLarge(h.Bytes) {
			histories = append(histories, h)
		}
	}
	put, err := w.storePayloads(ctx, w.no, histories...)
	if err != nil {
		return err
	}
	err = w.store.RewindOrchestrations(ctx, w.all)
	w.deleteIfRefused(ctx, err, put)
	return err
}

// add plans the rewind of a failed instance and of its sub-orchestrations.
func (w *rewind) add(ctx context.Context, row OrchestrationRow) error {
	events, err := w.Events(ctx, row.No)
	if err != nil {
		return err
	}
	stays, err := w.handledFailures(ctx, row, events)
	if err != nil {
		return err
	}
	r := Rewound{Tenant: w.no, ID: row.ID, No: row.No, Name: row.Name, Execution: row.Execution, Event: w.event, FailedAt: *row.CompletedAt,
		Audit: act(ctx, w.tenant, "rewind-orchestration", row.ID, nil)}
	done, undone := history.Succeeded(events), history.StepsToRepeat(events, stays)
	for _, e := range events {
		c := e.GetChildWorkflowInstanceCreated()
		if c == nil || done[e.EventId] || stays[e.EventId] {
			continue
		}
		answer, awaited, err := w.child(ctx, &r, row.ID, e.EventId, c.InstanceId)
		if err != nil {
			return err
		}
		undone[e.EventId] = !awaited
		if answer != nil {
			answer.GetChildWorkflowInstanceCompleted().TaskScheduledId = e.EventId
			events = append(events, answer)
		}
	}
	if r.Outdated, err = w.store.outdated(ctx, row.No); err != nil {
		return err
	}
	for _, e := range history.Rewind(events, undone, stays) {
		if r.History.Bytes, err = history.Append(r.History.Bytes, e); err != nil {
			return err
		}
		r.Events++
	}
	if r.Events == 0 {
		return forebay.Errorf(forebay.CodeConflict, "%s failed in its first turn, of which nothing is on record; restart it", row.ID)
	}
	w.all = append(w.all, r)
	return nil
}

// child plans for a sub-orchestration without a successful answer. The call stays in the history
// if the child is rewound, is still open, or has completed since. In the last case child returns
// the answer, which had found no receiver. Otherwise the call is repeated.
func (w *rewind) child(ctx context.Context, parent *Rewound, parentID string, call int32, id string) (answer *protos.HistoryEvent, stays bool, err error) {
	row, err := w.store.Orchestration(ctx, w.no, id)
	switch {
	case err != nil && forebay.CodeOf(err) == forebay.CodeNotFound:
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case row.ParentID != parentID: // another instance has the id by now
		return nil, false, nil
	}
	if same, err := w.calledBy(ctx, row, parent.Execution, call); err != nil || !same {
		return nil, false, err
	}
	switch {
	case row.Status == forebay.OrchestrationFailed:
		return nil, true, w.add(ctx, row)
	case row.Status == forebay.OrchestrationCompleted:
		if err := w.Fill(ctx, &row); err != nil {
			return nil, false, err
		}
		answer = history.NewEvent()
		answer.EventType = &protos.HistoryEvent_ChildWorkflowInstanceCompleted{ChildWorkflowInstanceCompleted: &protos.ChildWorkflowInstanceCompletedEvent{Result: history.Value(row.Output)}}
		return answer, true, nil
	case row.Status.Terminal():
		return nil, false, nil
	}
	parent.Awaits = append(parent.Awaits, Awaited{id, row.No})
	return nil, true, nil
}

// calledBy reports whether this call made the instance. The parent may have called the same id
// before, in this execution or an earlier one.
func (w *rewind) calledBy(ctx context.Context, row OrchestrationRow, execution string, call int32) (bool, error) {
	start, err := w.startOf(ctx, row.No)
	parent := start.GetParentInstance()
	return parent.GetTaskScheduledId() == call && parent.GetWorkflowInstance().GetExecutionId().GetValue() == execution, err
}

// startOf returns the start event of an instance. It is in the history, or still in the inbox.
func (s *Instances) startOf(ctx context.Context, instance int64) (*protos.ExecutionStartedEvent, error) {
	item, waiting, err := s.store.OrchestrationStart(ctx, instance)
	if err != nil {
		return nil, err
	}
	if item == nil {
		if waiting == nil {
			return nil, nil
		}
		event, err := s.load(ctx, *waiting)
		if err != nil {
			return nil, err
		}
		e, err := history.Decode(event)
		return e.GetExecutionStarted(), err
	}
	first, err := s.load(ctx, *item)
	if err != nil {
		return nil, err
	}
	events, err := history.DecodeAll(nil, first)
	i := slices.IndexFunc(events, func(e *protos.HistoryEvent) bool { return e.GetExecutionStarted() != nil })
	if i < 0 {
		return nil, err
	}
	return events[i].GetExecutionStarted(), err
}
