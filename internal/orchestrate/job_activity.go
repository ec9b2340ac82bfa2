package orchestrate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/panics"
)

// TaskActivity is the activity that is executed as a job. Its input names the task. The instance
// waits while the job goes through quota, budget, breaker and retries.
const TaskActivity = "forebay.task"

// TaskRequest is the input of TaskActivity. Its fields are those of a submitted job.
type TaskRequest struct {
	Task           string            `json:"task"`
	Input          json.RawMessage   `json:"input"`
	Queue          string            `json:"queue,omitempty"`
	Priority       *int              `json:"priority,omitempty"`
	SessionID      *string           `json:"session_id,omitempty"`
	MaxAttempts    *int              `json:"max_attempts,omitempty"`
	MaxCostUSD     *forebay.Money    `json:"max_cost_usd,omitempty"`
	MaxTotalTokens *int64            `json:"max_total_tokens,omitempty"`
	Deadline       *time.Time        `json:"deadline,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
}

// Jobs submits the jobs of activities and returns their outcomes.
type Jobs interface {
	// Submit stores the job and detaches the activity from its lock, in one transaction.
	Submit(ctx context.Context, tenant int64, req forebay.SubmitRequest, caller *ActivityItem) error
	// Outcome returns the result of an ended job, or its failure.
	Outcome(ctx context.Context, tenant int64, job string) (json.RawMessage, *forebay.OrchestrationFailure, error)
	Cancel(ctx context.Context, tenant int64, job string) error
}

// callTask submits the job of an activity.
func (h *taskHub) callTask(ctx context.Context, a *ActivityItem) {
	defer h.release(a.Token)
	err := panics.Run(h.log, "submitting the job of an activity", func() error { return h.submit(ctx, a) })
	ctx, cancel := settling(ctx)
	defer cancel()
	var refused *forebay.Error
	switch {
	case err == nil, errors.Is(err, forebay.ErrLockLost):
		return
	case errors.As(err, &refused) && refused.Code != forebay.CodeUnavailable && refused.Code != forebay.CodeStorageFull && refused.Code != forebay.CodeInternal:
		err = h.settle(ctx, a, history.TaskFailed(int32(a.EventID), "", &protos.TaskFailureDetails{
			ErrorType: string(refused.Code), ErrorMessage: refused.Error(), IsNonRetriable: true}))
	default:
		err = errors.Join(err, h.store.AbandonActivity(ctx, a, h.backoff(a.Lost+4), false))
	}
	if unlessLost(err) != nil {
		h.log.Warn("cannot submit the job of an orchestration", slog.String("instance", a.ID), slog.Any("error", err))
	}
}

func (h *taskHub) submit(ctx context.Context, a *ActivityItem) error {
	bound, stop := h.bound(ctx, a.Token)
	event, err := h.load(bound, a.Event)
	stop(nil)
	if err != nil && !errors.Is(err, history.ErrUnreadable) {
		return err
	}
	var e *protos.HistoryEvent
	if err == nil {
		e, err = history.Decode(event)
	}
	if err != nil {
		return forebay.Errorf(forebay.CodeInvalidRequest, "the activity cannot be read")
	}
	var req TaskRequest
	decoder := json.NewDecoder(bytes.NewReader([]byte(e.GetTaskScheduled().GetInput().GetValue())))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&req); err != nil {
		return forebay.Errorf(forebay.CodeInvalidJSON, "the input of %s is not {task, input, …}", TaskActivity)
	}
	ctx, cancel := settling(ctx)
	defer cancel()
	return h.opts.Jobs.Submit(ctx, h.tenant, forebay.SubmitRequest{Task: req.Task, Input: req.Input, Queue: req.Queue, Priority: req.Priority,
		SessionID: req.SessionID, MaxAttempts: req.MaxAttempts, MaxCostUSD: req.MaxCostUSD, MaxTotalTokens: req.MaxTotalTokens, Deadline: req.Deadline, Metadata: req.Metadata}, a)
}

// arrived returns the new events of a work item.
func (h *taskHub) arrived(ctx context.Context, item *OrchestrationItem) (events []*protos.HistoryEvent, err error) {
	events = make([]*protos.HistoryEvent, len(item.Arrived))
	var elsewhere []int
	for i, a := range item.Arrived {
		if a.Job != "" || a.Event.Blob != "" {
			elsewhere = append(elsewhere, i)
		} else if events[i], err = history.Decode(a.Event.Bytes); err != nil {
			return nil, err
		}
	}
	if len(elsewhere) == 0 {
		return events, nil
	}
	ctx, cancel := h.bound(ctx, item.Token)
	defer cancel(nil)
	return events, forEach(ctx, len(elsewhere), func(ctx context.Context, i int) (err error) {
		i = elsewhere[i]
		events[i], err = h.arrivedEvent(ctx, item.Arrived[i])
		return err
	})
}

// arrivedEvent returns one new event. The end of a job becomes the outcome of its activity.
func (h *taskHub) arrivedEvent(ctx context.Context, a Arrived) (*protos.HistoryEvent, error) {
	if a.Job == "" {
		event, err := h.load(ctx, a.Event)
		if err != nil {
			return nil, err
		}
		return history.Decode(event)
	}
	if h.opts.Jobs == nil {
		return nil, ErrNoWorker
	}
	result, failure, err := h.opts.Jobs.Outcome(ctx, h.tenant, a.Job)
	switch {
	case err != nil:
		return nil, err
	case failure != nil:
		return history.TaskFailed(int32(a.EventID), "", history.DetailsOf(failure)), nil
	}
	return history.TaskCompleted(int32(a.EventID), "", wrapperspb.String(string(result))), nil
}

// cancelJobs cancels jobs whose instance has ended. A job that is missed goes on, and nobody
// reads its result.
func (s *Instances) cancelJobs(ctx context.Context, tenant int64, jobs []string) {
	if s.opts.Jobs == nil {
		return
	}
	for _, id := range jobs {
		if err := s.opts.Jobs.Cancel(ctx, tenant, id); err != nil && forebay.CodeOf(err) != forebay.CodeConflict {
			s.log.Warn("cannot cancel the job of an orchestration that is over", slog.String("job_id", id), slog.Any("error", err))
		}
	}
}
