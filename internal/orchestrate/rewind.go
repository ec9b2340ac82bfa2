package orchestrate

import (
	"context"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/protobuf/proto"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
)

// Rewind lets an instance that failed go on: the activities that failed are called again, the sub-orchestrations
// that failed are rewound as well, and what had succeeded is not done again.
func (s *Service) Rewind(ctx context.Context, tenant, id, reason string) error {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	return s.rewind(ctx, no, id, reason)
}

func (s *Service) rewind(ctx context.Context, tenant int64, id, reason string) error {
	row, err := s.store.Orchestration(ctx, tenant, id)
	if err != nil {
		return err
	}
	if row.Status != forebay.OrchestrationFailed {
		return forebay.Errorf(forebay.CodeConflict, "only an instance that has failed can be rewound; %s is %s", id, row.Status)
	}
	events, err := s.history(ctx, row.No)
	if err != nil {
		return err
	}
	for _, child := range failedChildren(events) {
		err := s.rewind(ctx, tenant, child, reason)
		// One that is gone is made again; one that goes on already will answer.
		if code := forebay.CodeOf(err); err != nil && code != forebay.CodeNotFound && code != forebay.CodeConflict {
			return err
		}
	}
	kept, err := s.beforeFailure(ctx, tenant, events)
	if err != nil {
		return err
	}
	r := store.Rewound{Tenant: tenant, No: row.No, Name: row.Name, Execution: row.Execution, Events: len(kept)}
	for _, e := range kept {
		if r.History, err = appendEvent(r.History, e); err != nil {
			return err
		}
	}
	again := newEvent() // does nothing but make a turn
	again.EventType = &protos.HistoryEvent_ExecutionResumed{ExecutionResumed: &protos.ExecutionResumedEvent{Input: textOf(reason)}}
	if r.Event, err = proto.Marshal(again); err != nil {
		return err
	}
	return s.store.RewindOrchestration(ctx, r)
}

// failedChildren returns the ids of the sub-orchestrations that failed.
func failedChildren(events []*protos.HistoryEvent) (ids []string) {
	created := map[int32]string{}
	for _, e := range events {
		if c := e.GetChildWorkflowInstanceCreated(); c != nil {
			created[e.EventId] = c.InstanceId
		} else if f := e.GetChildWorkflowInstanceFailed(); f != nil {
			ids = append(ids, created[f.TaskScheduledId])
		}
	}
	return ids
}

// beforeFailure returns the history without its end and without the failures: failed activities as if they had not been scheduled,
// failed sub-orchestrations as if they had not answered yet.
func (s *Service) beforeFailure(ctx context.Context, tenant int64, events []*protos.HistoryEvent) (kept []*protos.HistoryEvent, err error) {
	undone := map[int32]bool{}
	for _, e := range events {
		if f := e.GetTaskFailed(); f != nil {
			undone[f.TaskScheduledId] = true
		}
	}
	for _, e := range events {
		if c := e.GetChildWorkflowInstanceCreated(); c != nil {
			_, err := s.store.Orchestration(ctx, tenant, c.InstanceId)
			if forebay.CodeOf(err) == forebay.CodeNotFound && err != nil {
				undone[e.EventId] = !answered(events, e.EventId)
			} else if err != nil {
				return nil, err
			}
		}
		switch {
		case e.GetExecutionCompleted() != nil, e.GetTaskFailed() != nil, e.GetChildWorkflowInstanceFailed() != nil:
		case (e.GetTaskScheduled() != nil || e.GetChildWorkflowInstanceCreated() != nil) && undone[e.EventId]:
		default:
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// answered reports whether a sub-orchestration has completed.
func answered(events []*protos.HistoryEvent, id int32) bool {
	for _, e := range events {
		if c := e.GetChildWorkflowInstanceCompleted(); c != nil && c.TaskScheduledId == id {
			return true
		}
	}
	return false
}
