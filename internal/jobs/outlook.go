package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/queue"
)

// planOf is plan for a job whose input is not at hand.
func (s *Service) planOf(row *JobRow) []admission.Option {
	return admission.Asking(s.plan(row.Task, nil, row.InputSize), row.MaxOutputTokens)
}

// whole is the view of a job. For a waiting one it has what holds it back and when it may start.
func (s *Service) whole(ctx context.Context, tenant string, row JobRow) (forebay.Job, error) {
	if !row.Ready && !waitsForTime(&row) {
		return s.view(tenant, row), nil
	}
	q := backlog.Query{Job: row.backlogJob(), Ready: row.Ready, Paused: row.Paused, Options: s.planOf(&row), Shares: s.share}
	if queue := s.byNo[row.Queue]; queue != nil {
		q.Retry = queue.retryLimits()
	}
	o, err := s.backlog.Outlook(ctx, &q)
	if err != nil {
		return forebay.Job{}, err
	}
	row.Waiting = o.Waiting
	job := s.view(tenant, row)
	job.ExpectedStartAt = o.Start
	if row.Ready {
		if job.QueuePosition = &o.Position; o.AtLeast > 0 {
			job.QueuePositionAtLeast = &o.AtLeast
		}
	}
	return job, nil
}

// backlogJob is the job as package backlog knows it.
func (j *JobRow) backlogJob() backlog.Job {
	return backlog.Job{Seq: j.Seq, Tenant: j.Tenant, Subqueue: queue.Subqueue(j.subqueue), Flow: j.flow, Visible: j.visible, Waiting: j.Waiting}
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

// views are those of a list of jobs. Ready ones have what would hold them back if they were next.
func (s *Service) views(ctx context.Context, tenant string, rows []JobRow) ([]forebay.Job, error) {
	list := make([]forebay.Job, len(rows))
	var holding admission.Holding
	for i := range rows {
		row := &rows[i]
		if row.Ready && row.Waiting == "" {
			if holding.Deployments == nil {
				var err error
				if holding, err = s.store.Admission.Holding(ctx); err != nil {
					return nil, err
				}
			}
			row.Waiting = backlog.Holds(holding, row.Tenant, s.planOf(row))
		}
		list[i] = s.view(tenant, *row)
	}
	return list, nil
}
