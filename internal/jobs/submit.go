package jobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/jsoncheck"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/turns"
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
	results := make([]forebay.SubmitResult, len(reqs))
	batch := make([]NewJob, 0, len(reqs))
	places := make([]int, 0, len(reqs)) // of the batch's jobs in results
	observed := s.observeSubmits(len(reqs))
	defer observed.ended(tenant, results)
	taken := taken{make([]limits.Taken, 0, 2*len(reqs))}
	defer taken.done()
	var limited error // in a sequence, the first refusal by a limit
	tenantNo, err := s.store.EnsureTenant(ctx, tenant)
	for i := range reqs {
		if err != nil {
			results[i].Error = asError(err)
			continue
		}
		refusal := limited
		if refusal == nil {
			refusal = taken.job(ctx, s, tenant, &reqs[i])
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
		observed.storing(ctx, i, tenant, s.byNo[job.Queue].Name, &job)
		batch, places = append(batch, job), append(places, i)
	}
	if len(batch) == 0 {
		return results
	}
	stored, err := s.store.Submit(ctx, batch)
	for n, i := range places {
		s.submitted(ctx, tenant, &batch[n], stored, n, err, &results[i])
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
		view := s.view(tenant, row)
		result.Job, result.Existing = &view, true
		return
	}
	view := s.fresh(tenant, job, stored[n])
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

// Bounds of times a client may give.
const maxAhead = 10 * 366 * 24 * time.Hour

// newJob checks the request and returns what is stored of it. Its large input is in blob storage
// then.
func (s *Service) newJob(ctx context.Context, tenant string, tenantNo int64, req *forebay.SubmitRequest) (NewJob, error) {
	task, ok := s.settings.Load().tasks[req.Task]
	if !ok {
		return NewJob{}, unknownTask(req.Task)
	}
	if err := s.checkInput(ctx, &task, req.Input); err != nil {
		return NewJob{}, err
	}
	queue, err := s.queueFor(tenant, &task, req.Queue)
	if err != nil {
		return NewJob{}, err
	}
	if err := checkFields(req); err != nil {
		return NewJob{}, err
	}
	if err := checkTimes(req, s.store.Now()); err != nil {
		return NewJob{}, err
	}
	metadata, err := EncodeMetadata(req.Metadata)
	if err != nil {
		return NewJob{}, err
	}
	scheduled, deadline := stored(req.ScheduledAt), stored(req.Deadline)
	job := NewJob{
		ID: ids.New(jobPrefix), Tenant: tenantNo, Queue: queue.no, Task: req.Task, Class: classOf(&task),
		Priority: orDefault(req.Priority, forebay.DefaultPriority), MaxAttempts: orDefault(req.MaxAttempts, queue.attempts(&task)),
		MaxCost: req.MaxCostUSD, MaxTotalTokens: req.MaxTotalTokens, ScheduledAt: scheduled, Deadline: deadline, CorrelationID: orDefault(req.CorrelationID, ""), SessionID: orDefault(req.SessionID, ""),
		KeyID: forebay.BudgetKeyOf(ctx), Caller: callerOf(ctx),
		Metadata: metadata, Input: req.Input, InputSize: int64(len(req.Input)), IdempotencyKey: req.IdempotencyKey,
	}
	if validTraceparent(req.Traceparent) {
		job.Traceparent = req.Traceparent
	}
	if req.IdempotencyKey != "" {
		if job.BodyHash, err = bodyHash(req); err != nil {
			return NewJob{}, err
		}
	}
	job.Input, job.InputBlob, err = s.payloads.Put(ctx, tenantNo, job.ID, "input", req.Input)
	if job.InputBlob != "" {
		job.MaxOutputTokens = maxOutput(&task, req.Input)
	}
	return job, err
}

func unknownTask(name string) error {
	if !forebay.ValidName(name) {
		return forebay.Invalid("task", "is required: the name of a task")
	}
	return &forebay.Error{Code: forebay.CodeUnknownTask, Field: "task", Message: "there is no task " + name}
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

// stored returns a time as the database keeps it: UTC, in milliseconds.
func stored(at *time.Time) *time.Time {
	if at == nil {
		return nil
	}
	t := at.UTC().Truncate(time.Millisecond)
	return &t
}

func (s *Service) checkInput(ctx context.Context, task *forebay.Task, input json.RawMessage) (err error) {
	if stopped := turns.Parse(ctx, len(input), func() { err = s.checkInputNow(task, input) }); stopped != nil {
		return stopped
	}
	return err
}

func (s *Service) checkInputNow(task *forebay.Task, input json.RawMessage) error {
	if len(input) == 0 {
		return forebay.Invalid("input", "is required")
	}
	if int64(len(input)) > s.maxInput {
		return &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: "input",
			Message: fmt.Sprintf("is %d bytes; the limit is %d", len(input), s.maxInput)}
	}
	if err := jsoncheck.Check("input", input); err != nil {
		return err
	}
	if task.Check == nil {
		return nil
	}
	if err := task.Check(input); err != nil {
		var known *forebay.Error
		if errors.As(err, &known) {
			return err
		}
		return forebay.Invalid("input", "%s", err.Error())
	}
	return nil
}

func (s *Service) queueFor(tenant string, task *forebay.Task, name string) (*Queue, error) {
	if name == "" {
		name = task.Queue
	}
	if name == "" {
		name = forebay.DefaultQueue
	}
	return s.queue(tenant, name)
}

// queue returns a queue that the tenant may use.
func (s *Service) queue(tenant, name string) (*Queue, error) {
	q, ok := s.queues[name]
	if !ok || len(q.Tenants) > 0 && !slices.Contains(q.Tenants, tenant) {
		if !forebay.ValidName(name) {
			return nil, forebay.Invalid("queue", "is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'")
		}
		return nil, &forebay.Error{Code: forebay.CodeUnknownQueue, Field: "queue", Message: "there is no queue " + name}
	}
	return q, nil
}

func checkFields(req *forebay.SubmitRequest) error {
	switch {
	case req.SessionID != nil && !validSessionID(*req.SessionID):
		return forebay.Invalid("session_id", "must be 1 to %d characters of text without control characters", forebay.MaxIDCharacters)
	case req.Priority != nil && (*req.Priority < forebay.MinPriority || *req.Priority > forebay.MaxPriority):
		return forebay.Invalid("priority", "is %d; it goes from 0 (last) to 9 (first)", *req.Priority)
	case req.MaxAttempts != nil && (*req.MaxAttempts < 1 || *req.MaxAttempts > forebay.MaxAttemptsLimit):
		return forebay.Invalid("max_attempts", "is %d; it goes from 1 to %d", *req.MaxAttempts, forebay.MaxAttemptsLimit)
	case req.MaxCostUSD != nil && *req.MaxCostUSD <= 0:
		return forebay.Invalid("max_cost_usd", "must be more than 0")
	case req.MaxTotalTokens != nil && (*req.MaxTotalTokens < 1 || *req.MaxTotalTokens > forebay.MaxTotalTokens):
		return forebay.Invalid("max_total_tokens", "is %d; it goes from 1 to %d", *req.MaxTotalTokens, int64(forebay.MaxTotalTokens))
	case req.CorrelationID != nil && !forebay.ValidText(*req.CorrelationID, forebay.MaxCorrelationBytes):
		return forebay.Invalid("correlation_id", "must be 1 to %d bytes of text without control characters", forebay.MaxCorrelationBytes)
	case req.IdempotencyKey != "" && !forebay.ValidText(req.IdempotencyKey, forebay.MaxIdempotencyKeyBytes):
		return forebay.Invalid("Idempotency-Key", "must be 1 to %d bytes of text without control characters", forebay.MaxIdempotencyKeyBytes)
	}
	return nil
}

func validSessionID(id string) bool {
	return forebay.ValidText(id, utf8.UTFMax*forebay.MaxIDCharacters) && utf8.RuneCountInString(id) <= forebay.MaxIDCharacters
}

func checkTimes(req *forebay.SubmitRequest, now time.Time) error {
	if at := req.ScheduledAt; at != nil && at.After(now.Add(maxAhead)) {
		return forebay.Invalid("scheduled_at", "is more than ten years ahead")
	}
	at := req.Deadline
	switch {
	case at == nil:
		return nil
	case !at.After(now) && req.IdempotencyKey == "": // with a key it may be a repeat, so the store checks it
		return forebay.Invalid("deadline", "has passed already")
	case at.After(now.Add(maxAhead)):
		return forebay.Invalid("deadline", "is more than ten years ahead")
	case req.ScheduledAt != nil && !at.After(*req.ScheduledAt):
		return forebay.Invalid("deadline", "is not after scheduled_at")
	}
	return nil
}

// EncodeMetadata checks a client's metadata and returns what is stored of it; nil for none.
func EncodeMetadata(metadata map[string]string) ([]byte, error) {
	if len(metadata) == 0 {
		return nil, nil
	}
	if len(metadata) > forebay.MaxMetadataEntries {
		return nil, forebay.Invalid("metadata", "has %d entries; the limit is %d", len(metadata), forebay.MaxMetadataEntries)
	}
	for key := range metadata {
		if !forebay.ValidText(key, forebay.MaxMetadataKeyBytes) {
			return nil, forebay.Invalid("metadata", "has a key that is not 1 to %d bytes of text without control characters", forebay.MaxMetadataKeyBytes)
		}
	}
	b, err := json.Marshal(metadata)
	if err == nil && len(b) > forebay.MaxMetadataBytes {
		return nil, forebay.Invalid("metadata", "is %d bytes as JSON; the limit is %d", len(b), forebay.MaxMetadataBytes)
	}
	return b, err
}

// bodyHash is equal for requests that mean the same. White space and the idempotency key do not
// count.
func bodyHash(req *forebay.SubmitRequest) ([]byte, error) {
	bare := *req
	bare.IdempotencyKey, bare.Traceparent = "", ""
	var input bytes.Buffer
	if err := json.Compact(&input, req.Input); err != nil {
		return nil, err
	}
	bare.Input = input.Bytes()
	b, err := json.Marshal(bare)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	return sum[:], nil
}

// validTraceparent reports whether s is a version-00 traceparent (W3C Trace Context, section
// 3.2). That specification asks to ignore any other.
func validTraceparent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	for i := 3; i < len(s); i++ {
		c := s[i]
		if i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
