package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
)

// jobViews makes what clients see of jobs.
type jobViews struct {
	queues    *queueSet
	settings  *liveSettings
	backlog   *backlog.Reader
	admission *admission.Store
}

// planOf is plan for a job whose input is not at hand.
func (v *jobViews) planOf(row *JobRow) []admission.Option {
	return admission.Asking(v.settings.plan(row.Task, nil, row.InputSize, request.Kept(row.Estimate)), row.MaxOutputTokens)
}

// whole is the view of a job. For a waiting one it has what holds it back and when it may start.
func (v *jobViews) whole(ctx context.Context, tenant string, row JobRow) (forebay.Job, error) {
	if !row.Ready && !waitsForTime(&row) {
		return v.view(tenant, row), nil
	}
	q := backlog.Query{Job: backlogJob(&row), TenantName: tenant, Ready: row.Ready, Paused: row.Paused, Options: v.planOf(&row), Shares: v.settings.share}
	if queue := v.queues.byNo[row.Queue]; queue != nil {
		q.Retry = queue.retryLimits()
	}
	o, err := v.backlog.Outlook(ctx, &q)
	if err != nil {
		return forebay.Job{}, err
	}
	row.Waiting = o.Waiting
	job := v.view(tenant, row)
	job.ExpectedStartAt, job.WaitingOn = o.Start, append(job.WaitingOn, o.Causes...)
	if row.Ready {
		if job.QueuePosition = &o.Position; o.AtLeast > 0 {
			job.QueuePositionAtLeast = &o.AtLeast
		}
	}
	return job, nil
}

// Backlog returns what waits in the queues, of one tenant or of all (""), and when it is expected
// to be done. workers tells how many places for calls a queue has, and how many are taken.
func (s *Service) Backlog(ctx context.Context, tenant string, workers func(queue string, retry bool) (places, taken int)) (b forebay.Backlog, err error) {
	q := backlog.LinesQuery{Shares: s.settings.share, Workers: workers, Plan: func(task string, size int64, estimate []byte, maxOutput int64) []admission.Option {
		return s.views.planOf(&JobRow{Task: task, InputSize: size, Estimate: estimate, MaxOutputTokens: maxOutput})
	}, Retry: func(no int64) (limits backlog.RetryLimits, known bool) {
		if q := s.queues.byNo[no]; q != nil {
			return q.retryLimits(), true
		}
		return limits, false
	}}
	if tenant != "" {
		if q.Tenant, err = s.store.EnsureTenant(ctx, tenant); err != nil {
			return b, err
		}
	}
	return s.views.backlog.Lines(ctx, &q)
}

// backlogJob is a job as package backlog knows it.
func backlogJob(j *JobRow) backlog.Job {
	return backlog.Job{Seq: j.Seq, Tenant: j.Tenant, Subqueue: queue.Subqueue(j.Subqueue), Flow: j.Flow, Visible: j.Visible, Waiting: j.Waiting}
}

// retryLimits are what bounds the queue's retries now.
func (q *Queue) retryLimits() backlog.RetryLimits {
	limits := backlog.RetryLimits{Concurrency: q.Retry.Concurrency, Rate: q.Retry.Rate}
	if q.pace != nil {
		limits.Budget = q.pace()
	}
	return limits
}

// waitsForTime reports whether a job that is not ready waits only for its time.
func waitsForTime(row *JobRow) bool {
	return row.VisibleAt != nil && row.Waiting != forebay.WaitWorker && !row.Paused
}

// view is the job as clients see it.
func (v *jobViews) view(tenant string, row JobRow) forebay.Job {
	queue := ""
	if q, ok := v.queues.byNo[row.Queue]; ok {
		queue = q.Name
	}
	return row.View(tenant, queue)
}

// fresh is the view of a job that was stored just now.
func (v *jobViews) fresh(tenant string, j *NewJob, made Submitted) forebay.Job {
	row := JobRow{
		ID: j.ID, Queue: j.Queue, Task: j.Task, Priority: j.Priority, MaxAttempts: j.MaxAttempts, MaxCost: j.MaxCost, MaxTotalTokens: j.MaxTotalTokens,
		CreatedAt: made.CreatedAt, Deadline: j.Deadline, CorrelationID: j.CorrelationID, SessionID: j.SessionID, Metadata: j.Metadata, Reply: j.Reply,
		Status: forebay.StatusQueued, Generation: 1,
	}
	switch {
	case made.Held:
		row.Waiting = forebay.WaitSession
	case j.ScheduledAt != nil && j.ScheduledAt.After(made.CreatedAt):
		row.Status, row.VisibleAt, row.Waiting = forebay.StatusScheduled, j.ScheduledAt, forebay.WaitSchedule
	}
	return v.view(tenant, row)
}
