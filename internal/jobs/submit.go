package jobs

import (
	"context"
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/limits"
)

// Submit validates and stores one job. When it returns the job is on disk. existing says that the
// idempotency key had already made this very job.
func (s *Service) Submit(ctx context.Context, tenant string, req forebay.SubmitRequest) (job forebay.Job, existing bool, err error) {
	result := s.SubmitMany(ctx, tenant, []forebay.SubmitRequest{req})[0]
	if result.Error != nil {
		return forebay.Job{}, false, result.Error
	}
	return *result.Job, result.Existing, nil
}

// SubmitWatched is Submit, and then Watch without a read of the job. Changes that come before it
// returns are not told: look at the job once.
func (s *Service) SubmitWatched(ctx context.Context, tenant string, req forebay.SubmitRequest) (job forebay.Job, changes <-chan struct{}, stop func(), err error) {
	result := s.submit(ctx, tenant, []forebay.SubmitRequest{req}, nil, func(seq int64) { changes, stop = s.store.Watch(seq) })[0]
	switch {
	case result.Error != nil:
		return forebay.Job{}, nil, nil, result.Error
	case result.Existing:
		changes, stop, err = s.Watch(ctx, tenant, result.Job.ID)
	}
	return *result.Job, changes, stop, err
}

// SubmitMany stores each valid request, all in one transaction. It returns one result per
// request, in order, with Line unset.
func (s *Service) SubmitMany(ctx context.Context, tenant string, reqs []forebay.SubmitRequest) []forebay.SubmitResult {
	return s.SubmitRepeatable(ctx, tenant, reqs, nil)
}

// AtOnce is how many requests a caller should pass to SubmitMany. Others wait until all of a call
// are stored.
func (s *Service) AtOnce() int { return s.store.AtOnce() }

type continuingKey struct{}

// Continuing returns a context for jobs that follow from acknowledged work. The tenant's limits
// do not refuse them.
func Continuing(ctx context.Context) context.Context {
	return context.WithValue(ctx, continuingKey{}, true)
}

// SubmitRepeatable is SubmitMany for requests that are made from something else, such as
// messages, in their order. Two requests with one idempotency key are the same if their
// fingerprints are equal; nil: if their contents are. Once a limit of the tenant has refused a
// request, no later new one is stored, so that none overtakes it.
func (s *Service) SubmitRepeatable(ctx context.Context, tenant string, reqs []forebay.SubmitRequest, fingerprints [][]byte) []forebay.SubmitResult {
	return s.submit(ctx, tenant, reqs, fingerprints, nil)
}

// submit is SubmitRepeatable. It calls made, unless that is nil, with the number of each new job.
func (s *Service) submit(ctx context.Context, tenant string, reqs []forebay.SubmitRequest, fingerprints [][]byte, made func(seq int64)) []forebay.SubmitResult {
	results := make([]forebay.SubmitResult, len(reqs))
	batch := make([]NewJob, 0, len(reqs))
	places := make([]int, 0, len(reqs)) // of the batch's jobs in results
	observed := newSubmissions(s.observer, len(reqs))
	defer observed.ended(tenant, results)
	var taken limits.Jobs
	defer taken.Done()
	var limited error // in a sequence, the first refusal by a limit
	tenantNo, err := s.store.EnsureTenant(ctx, tenant)
	for i := range reqs {
		if err != nil {
			results[i].Error = asError(err)
			continue
		}
		refusal := limited
		if refusal == nil && ctx.Value(continuingKey{}) == nil {
			refusal = taken.Take(ctx, s.limits, tenant, &reqs[i], s.store.Now())
		}
		if fingerprints != nil {
			limited = refusal
		}
		if refusal != nil && reqs[i].IdempotencyKey == "" { // it cannot be a repeat
			results[i].Error = asError(refusal)
			continue
		}
		job, err := s.newJob(ctx, tenant, tenantNo, &reqs[i])
		if err != nil {
			results[i].Error = asError(err)
			continue
		}
		job.Refusal = refusal
		if fingerprints != nil {
			job.BodyHash = fingerprints[i]
		}
		observed.storing(ctx, i, tenant, s.queues.byNo[job.Queue].Name, &job)
		batch, places = append(batch, job), append(places, i)
	}
	if len(batch) == 0 {
		return results
	}
	stored, err := s.store.Submit(ctx, batch)
	for n, i := range places {
		if s.submitted(ctx, tenant, &batch[n], stored, n, err, &results[i]); made != nil && results[i].Error == nil && !results[i].Existing {
			made(stored[n].Seq)
		}
	}
	return results
}

// submitted fills in the result of one job of a batch, and removes the blob of a job that was not
// made.
func (s *Service) submitted(ctx context.Context, tenant string, job *NewJob, stored []Submitted, n int, err error, result *forebay.SubmitResult) {
	if err == nil {
		err = stored[n].Err
	}
	if job.InputBlob != "" && (err != nil || stored[n].Existing) {
		s.removeInput(ctx, job.ID, job.InputBlob, stored != nil, err)
	}
	if err != nil {
		result.Error = asError(err)
		return
	}
	if stored[n].Existing {
		row, err := s.store.Job(ctx, job.Tenant, stored[n].ID)
		if err != nil {
			result.Error = asError(err)
			return
		}
		view := s.views.view(tenant, row)
		result.Job, result.Existing = &view, true
		return
	}
	view := s.views.fresh(tenant, job, stored[n])
	result.Job = &view
}

// removeInput removes the payload of a job that was not stored with it: now, or once that is
// certain. answered says that its transaction is on disk.
func (s *Service) removeInput(ctx context.Context, id, key string, answered bool, err error) {
	switch code := forebay.CodeOf(err); {
	case answered, code != "" && code != forebay.CodeUnavailable && code != forebay.CodeInternal:
		s.payloads.Remove(ctx, key)
	case ctx.Err() == nil: // else the transaction may still be waiting
		s.payloads.Doubt(id, key)
	}
}

func asError(err error) *forebay.Error {
	var known *forebay.Error
	if errors.As(err, &known) {
		return known
	}
	return forebay.Errorf(forebay.CodeInternal, "something went wrong here").Caused(err)
}

// newJob checks the request and returns what is stored of it. Its large input is in blob storage
// then.
func (s *Service) newJob(ctx context.Context, tenant string, tenantNo int64, req *forebay.SubmitRequest) (NewJob, error) {
	task, ok := s.settings.Load().tasks[req.Task]
	if !ok {
		return NewJob{}, request.UnknownTask(req.Task)
	}
	if err := request.CheckInput(ctx, &task, req.Input, s.maxInput); err != nil {
		return NewJob{}, err
	}
	queue, err := s.queues.forTask(tenant, &task, req.Queue)
	if err != nil {
		return NewJob{}, err
	}
	if err := request.Check(req, s.store.Now()); err != nil {
		return NewJob{}, err
	}
	metadata, err := request.EncodeMetadata(req.Metadata)
	if err != nil {
		return NewJob{}, err
	}
	scheduled, deadline := request.Time(req.ScheduledAt), request.Time(req.Deadline)
	need, err := request.EstimateInTurn(ctx, &task, req.Input)
	if err != nil {
		return NewJob{}, err
	}
	job := NewJob{
		ID: ids.New(jobPrefix), Tenant: tenantNo, Queue: queue.no, Task: req.Task, Class: classOf(&task, need.Model),
		Priority: orDefault(req.Priority, forebay.DefaultPriority), MaxAttempts: orDefault(req.MaxAttempts, queue.attempts(&task)),
		MaxCost: req.MaxCostUSD, MaxTotalTokens: req.MaxTotalTokens, ScheduledAt: scheduled, Deadline: deadline, CorrelationID: orDefault(req.CorrelationID, ""), SessionID: orDefault(req.SessionID, ""),
		KeyID: forebay.BudgetKeyOf(ctx), Caller: callerOf(ctx), Volatile: queue.Own,
		Metadata: metadata, Input: req.Input, InputSize: int64(len(req.Input)), IdempotencyKey: req.IdempotencyKey,
	}
	if job.Reply, err = request.EncodeReply(tenant, req.ReplyTo); err != nil {
		return NewJob{}, err
	}
	if request.ValidTraceparent(req.Traceparent) {
		job.Traceparent = req.Traceparent
	}
	if req.IdempotencyKey != "" {
		if job.BodyHash, err = request.Hash(req); err != nil {
			return NewJob{}, err
		}
	}
	job.Input, job.InputBlob, err = s.payloads.Put(ctx, tenantNo, job.ID, "input", req.Input)
	if job.InputBlob != "" {
		job.MaxOutputTokens, job.Estimate = request.Keep(need, request.Estimate(&task, nil, job.InputSize))
	}
	return job, err
}

func orDefault[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

func (q *Queue) attempts(task *forebay.Task) int {
	if task.MaxAttempts > 0 {
		return task.MaxAttempts
	}
	return q.Retry.Attempts
}
