package jobs

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
)

func subqueueKind(where forebay.SetAside) queue.SubqueueKind {
	if where == forebay.Quarantine {
		return queue.SubqueueQuarantine
	}
	return queue.SubqueueDeadLetter
}

// deadLetterQuery resolves the names in a request for dead-lettered or quarantined jobs.
func (s *Service) deadLetterQuery(ctx context.Context, tenant, name string, where forebay.SetAside, f forebay.SetAsideFilter) (DeadLetterQuery, error) {
	q, err := s.queues.named(tenant, name)
	if err != nil {
		return DeadLetterQuery{}, err
	}
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return DeadLetterQuery{}, err
	}
	if len(f.JobIDs) > maxFilterIDs {
		return DeadLetterQuery{}, forebay.Invalid("filter.job_ids", "has %d ids; the limit is %d", len(f.JobIDs), maxFilterIDs)
	}
	return DeadLetterQuery{Subqueue: queue.SubqueueOf(q.no, subqueueKind(where)), Tenant: no, Filter: f, Condition: forebay.ConditionOf(ctx)}, nil
}

const maxFilterIDs = 1000

// DeadLetters lists the jobs in a queue's dead-letter or quarantine subqueue, newest first.
func (s *Service) DeadLetters(ctx context.Context, tenant, queue string, where forebay.SetAside, f forebay.SetAsideFilter, limit int, cursor string) (forebay.Page[forebay.SetAsideJob], error) {
	if _, err := s.queues.named(tenant, queue); err != nil {
		return forebay.Page[forebay.SetAsideJob]{}, err
	}
	return s.DeadLettersAcross(ctx, tenant, where, forebay.SetAsideAcross{Queue: queue, Filter: f}, limit, cursor)
}

// PeekDeadLetter returns one such job with its input.
func (s *Service) PeekDeadLetter(ctx context.Context, tenant, queue string, where forebay.SetAside, jobID string) (forebay.SetAsideJob, error) {
	q, err := s.deadLetterQuery(ctx, tenant, queue, where, forebay.SetAsideFilter{JobIDs: []string{jobID}})
	if err != nil {
		return forebay.SetAsideJob{}, err
	}
	q.Limit, q.ReadBody = 1, true
	rows, err := s.store.DeadLetters(ctx, q)
	if err != nil {
		return forebay.SetAsideJob{}, err
	}
	if len(rows) == 0 {
		return forebay.SetAsideJob{}, forebay.ErrNotFound
	}
	view := rows[0].View(tenant, queue)
	view.Input, err = s.payloads.Get(ctx, rows[0].Input, rows[0].InputBlob, rows[0].InputSize)
	return view, err
}

// redriveStep is how many jobs one redrive or purge transaction moves.
const redriveStep = 500

// RedriveDeadLetters sends the matching jobs back as their next generation. Each follows at most
// one of several redrives at the same time. A condition is about the one job that is named, and
// holds for its generation.
func (s *Service) RedriveDeadLetters(ctx context.Context, tenant, queue string, where forebay.SetAside, req forebay.RedriveRequest, actor string) (forebay.RedriveReport, error) {
	report := forebay.RedriveReport{DryRun: req.DryRun, Reasons: map[string]int{}, JobIDs: []string{}}
	q, err := s.deadLetterQuery(ctx, tenant, queue, where, req.Filter)
	if err != nil {
		return report, err
	}
	if err := request.CheckRedrive(req); err != nil {
		return report, err
	}
	edit, err := s.prepareEdit(ctx, q, req)
	if err != nil || req.Edit != nil && edit == nil {
		return report, err
	}
	audit := audit.Act{Tenant: tenant, Actor: actor, Action: "redrive", Target: queue + "/" + string(where), Detail: request.FilterDetail(req.Filter)}
	err = s.eachDeadLetter(ctx, q, req.Max, func(rows []DeadLetter) error {
		batch := make([]Redrive, len(rows))
		for i, row := range rows {
			if req.RatePerSecond > 0 {
				batch[i].Delay = time.Duration(float64(report.Matched+i) / req.RatePerSecond * float64(time.Second))
			}
			batch[i].Seq, batch[i].Generation, batch[i].Edit = row.Seq, int64(row.Generation), edit
			report.Reasons[row.Reason]++
			if len(report.JobIDs) < 100 {
				report.JobIDs = append(report.JobIDs, row.ID)
			}
		}
		report.Matched += len(rows)
		if req.DryRun {
			return nil
		}
		done, err := s.store.Redrive(ctx, batch, audit)
		for _, moved := range done {
			if moved {
				report.Redriven++
			} else {
				report.Skipped++
			}
		}
		return err
	})
	if edit != nil && edit.InputBlob != "" && report.Redriven == 0 {
		s.removeInput(ctx, req.Filter.JobIDs[0], edit.InputBlob, err == nil, err)
	}
	if err == nil && report.Redriven == 0 && !req.DryRun {
		err = q.Condition.Check("") // another redrive or purge took it
	}
	return report, err
}

// prepareEdit checks an edit against the job's task as if it were submitted.
func (s *Service) prepareEdit(ctx context.Context, q DeadLetterQuery, req forebay.RedriveRequest) (*RedriveEdit, error) {
	if req.Edit == nil {
		return nil, nil
	}
	q.Limit, q.ReadBody = 1, true
	rows, err := s.store.DeadLetters(ctx, q)
	if err != nil || len(rows) == 0 {
		return nil, err // nothing will match
	}
	name := rows[0].Task
	if req.Edit.Task != "" {
		name = req.Edit.Task
	}
	task, ok := s.settings.Load().tasks[name]
	if !ok {
		return nil, request.UnknownTask(name)
	}
	input := req.Edit.Input
	if input == nil {
		if input, err = s.payloads.Get(ctx, rows[0].Input, rows[0].InputBlob, rows[0].InputSize); err != nil {
			return nil, err
		}
	}
	if err := request.CheckInput(ctx, &task, input, s.maxInput); err != nil {
		return nil, err
	}
	edit := &RedriveEdit{Task: req.Edit.Task, MaxAttempts: orDefault(req.Edit.MaxAttempts, 0)}
	if req.Edit.Input == nil && rows[0].InputBlob != "" {
		edit.MaxOutputTokens, edit.Estimate = request.KeepOf(&task, input)
	}
	if req.Edit.Input != nil && !req.DryRun {
		edit.InputSize = int64(len(input))
		edit.Input, edit.InputBlob, err = s.payloads.Put(ctx, q.Tenant, rows[0].ID, "input", input)
		if edit.InputBlob != "" {
			edit.MaxOutputTokens, edit.Estimate = request.KeepOf(&task, input)
		}
	}
	return edit, err
}

// eachDeadLetter calls f with the matching rows in steps, newest first, until limit rows (0:
// all).
func (s *Service) eachDeadLetter(ctx context.Context, q DeadLetterQuery, limit int, f func([]DeadLetter) error) error {
	for seen := 0; limit == 0 || seen < limit; {
		q.Limit = redriveStep
		if limit > 0 {
			q.Limit = min(redriveStep, limit-seen)
		}
		rows, err := s.store.DeadLetters(ctx, q)
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := f(rows); err != nil {
			return err
		}
		seen += len(rows)
		q.Below, q.Condition = rows[len(rows)-1].Seq, forebay.Condition{}
	}
	return nil
}

// PurgeDeadLetters removes the matching jobs from the subqueue for good. The job records stay,
// failed. A job that was redriven meanwhile stays, though it may have failed again.
func (s *Service) PurgeDeadLetters(ctx context.Context, tenant, queue string, where forebay.SetAside, f forebay.SetAsideFilter, actor string) (forebay.PurgeReport, error) {
	var report forebay.PurgeReport
	q, err := s.deadLetterQuery(ctx, tenant, queue, where, f)
	if err != nil {
		return report, err
	}
	audit := audit.Act{Tenant: tenant, Actor: actor, Action: "purge", Target: queue + "/" + string(where), Detail: request.FilterDetail(f)}
	return report, s.eachDeadLetter(ctx, q, 0, func(rows []DeadLetter) error {
		list := make([]Purge, len(rows))
		for i, row := range rows {
			list[i] = Purge{row.Seq, int64(row.Generation)}
		}
		purged, err := s.store.PurgeDeadLetters(ctx, list, audit)
		report.Purged += purged
		return err
	})
}
