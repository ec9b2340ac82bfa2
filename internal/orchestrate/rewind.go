package orchestrate

import (
	"context"
	"errors"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/protobuf/proto"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
)

// maxRewinds is how often a rewind is planned anew when instances have changed under it.
const maxRewinds = 10

// Rewind lets an instance that failed go on: the activities that failed, or that its end cut off, are called again, the sub-orchestrations
// that failed are rewound as well, and what had succeeded is not done again.
func (s *Service) Rewind(ctx context.Context, tenant, id, reason string) error {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	again := newEvent() // does nothing but make a turn
	again.EventType = &protos.HistoryEvent_ExecutionResumed{ExecutionResumed: &protos.ExecutionResumedEvent{Input: textOf(reason)}}
	event, err := proto.Marshal(again)
	if err != nil {
		return err
	}
	for range maxRewinds {
		plan := rewind{Service: s, tenant: tenant, no: no, event: event}
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
		if err := s.store.RewindOrchestrations(ctx, plan.all); !errors.Is(err, store.ErrChanged) {
			return err
		}
	}
	return store.ErrChanged
}

// rewind plans which instances go on from where.
type rewind struct {
	*Service
	tenant string
	no     int64
	event  []byte
	all    []store.Rewound
}

// add plans for an instance that failed, and for those that it has called.
func (w *rewind) add(ctx context.Context, row store.OrchestrationRow) error {
	events, err := w.history(ctx, row.No)
	if err != nil {
		return err
	}
	r := store.Rewound{Tenant: w.no, ID: row.ID, No: row.No, Name: row.Name, Execution: row.Execution, Event: w.event,
		Audit: act(ctx, w.tenant, "rewind-orchestration", row.ID, nil)}
	done, undone := succeeded(events), map[int32]bool{}
	latest := map[string]int32{} // of those that were called with one id it is the last one that there is
	for _, e := range events {
		if c := e.GetChildWorkflowInstanceCreated(); c != nil {
			latest[c.InstanceId] = e.EventId
		}
	}
	for _, e := range events {
		if _, isStep := stepOf(e); !isStep || done[e.EventId] || e.GetDetachedWorkflowInstanceCreated() != nil {
			continue
		}
		undone[e.EventId] = true
		if c := e.GetChildWorkflowInstanceCreated(); c != nil && latest[c.InstanceId] == e.EventId {
			answer, stays, err := w.child(ctx, &r, row.ID, c.InstanceId)
			if err != nil {
				return err
			}
			undone[e.EventId] = !stays
			if answer != nil {
				answer.GetChildWorkflowInstanceCompleted().TaskScheduledId = e.EventId
				events = append(events, answer)
			}
		}
	}
	for _, e := range events {
		_, isStep := stepOf(e)
		if isStep && undone[e.EventId] || e.GetExecutionCompleted() != nil || e.GetTaskFailed() != nil || e.GetChildWorkflowInstanceFailed() != nil {
			continue
		}
		if r.History, err = appendEvent(r.History, e); err != nil {
			return err
		}
		r.Events++
	}
	w.all = append(w.all, r)
	return nil
}

// succeeded are the steps that have had a result.
func succeeded(events []*protos.HistoryEvent) map[int32]bool {
	done := map[int32]bool{}
	for _, e := range events {
		switch v := e.GetEventType().(type) {
		case *protos.HistoryEvent_TaskCompleted:
			done[v.TaskCompleted.TaskScheduledId] = true
		case *protos.HistoryEvent_ChildWorkflowInstanceCompleted:
			done[v.ChildWorkflowInstanceCompleted.TaskScheduledId] = true
		case *protos.HistoryEvent_TimerFired:
			done[v.TimerFired.TimerId] = true
		}
	}
	return done
}

// child sees to a sub-orchestration that has not answered well. It stays in the history if it is rewound, too, goes on already, or has completed since: then
// its answer, which found nobody, is returned. Otherwise it is called again.
func (w *rewind) child(ctx context.Context, parent *store.Rewound, parentID, id string) (answer *protos.HistoryEvent, stays bool, err error) {
	row, err := w.store.Orchestration(ctx, w.no, id)
	switch {
	case err != nil && forebay.CodeOf(err) == forebay.CodeNotFound:
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case row.ParentID != parentID: // another has its id by now
		return nil, false, nil
	case row.Status == forebay.OrchestrationFailed:
		return nil, true, w.add(ctx, row)
	case row.Status == forebay.OrchestrationCompleted:
		answer = newEvent()
		answer.EventType = &protos.HistoryEvent_ChildWorkflowInstanceCompleted{ChildWorkflowInstanceCompleted: &protos.ChildWorkflowInstanceCompletedEvent{Result: value(row.Output)}}
		return answer, true, nil
	case row.Status.Terminal():
		return nil, false, nil
	}
	parent.Awaits = append(parent.Awaits, id)
	return nil, true, nil
}
