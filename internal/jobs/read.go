package jobs

import (
	"bytes"
	"context"
	"io"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/request"
)

func (s *Service) row(ctx context.Context, tenant, id string) (JobRow, error) {
	if !knownID(id) {
		return JobRow{}, forebay.ErrNotFound
	}
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return JobRow{}, err
	}
	return s.store.Job(ctx, no, id)
}

// Get returns the job as it stands.
func (s *Service) Get(ctx context.Context, tenant, id string) (forebay.Job, error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return forebay.Job{}, err
	}
	return s.views.whole(ctx, tenant, row)
}

// lookEvery is how often a wait reads its job where other processes may change it.
const lookEvery = 2 * time.Second

// Wait returns the job once it is terminal, or as it stands when ctx or the timeout ends first.
func (s *Service) Wait(ctx context.Context, tenant, id string, timeout time.Duration) (forebay.Job, error) {
	// Also when ctx has ended already: a caller that may not wait gets the job as it stands.
	begin := s.store.Moment()
	row, err := s.row(context.WithoutCancel(ctx), tenant, id)
	if err != nil || row.Status.Terminal() {
		return s.views.view(tenant, row), err
	}
	changes, stop := s.store.WatchSince(begin, row.Seq)
	defer stop()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var look <-chan time.Time
	if s.store.Shared() { // a process that is killed after a commit has told nobody of it
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-changes:
		case <-look:
		case <-timer.C:
			return s.views.whole(context.WithoutCancel(ctx), tenant, row)
		case <-ctx.Done():
			return s.views.view(tenant, row), nil
		}
		if row, err = s.store.Job(context.WithoutCancel(ctx), row.Tenant, id); err != nil || row.Status.Terminal() {
			return s.views.view(tenant, row), err
		}
	}
}

// Attempts returns all attempts of all generations, oldest first.
func (s *Service) Attempts(ctx context.Context, tenant, id string) ([]forebay.Attempt, error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	attempts, err := s.store.Attempts(ctx, row.Seq)
	for i := range attempts {
		if m := attempts[i].ErrorMessage; m != nil {
			*m = request.Text([]byte(*m))
		}
	}
	return attempts, err
}

// maxEvents is the most that Events returns at once.
const maxEvents = 1000

// Events returns the events numbered above after, oldest first, at most 1,000. done says that the
// job is terminal and that these are its last.
func (s *Service) Events(ctx context.Context, tenant, id string, after int64) (events []forebay.Event, done bool, err error) {
	// The job comes first: a job that is terminal now has all its events written.
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return nil, false, err
	}
	events, err = s.store.Events(ctx, row.Seq, after, maxEvents)
	done = row.Status.Terminal() && len(events) < maxEvents
	// The job may have succeeded between the two reads. The event has its result all the same.
	if err == nil && row.Status != forebay.StatusSucceeded && slices.ContainsFunc(events, func(e forebay.Event) bool { return e.Type == forebay.EventSucceeded }) {
		row, err = s.row(ctx, tenant, id)
	}
	if err != nil {
		return nil, false, err
	}
	queue := ""
	if q, ok := s.queues.byNo[row.Queue]; ok {
		queue = q.Name
	}
	metadata := request.DecodeMetadata(row.Metadata)
	for i := range events {
		e := &events[i]
		e.JobID, e.CorrelationID = row.ID, request.Correlation(row.CorrelationID, row.ID)
		e.Describe(row.Task, queue, metadata)
		if e.Type == forebay.EventSucceeded && e.Generation == row.Generation && len(row.Result) <= forebay.MaxEventResultBytes {
			e.Result = row.Result
		}
	}
	return events, done, nil
}

// Watch returns a channel that gets a value after each change of the job, until stop is called.
// At most one value is pending. Register before reading Events, so that no change is missed.
func (s *Service) Watch(ctx context.Context, tenant, id string) (changes <-chan struct{}, stop func(), err error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return nil, nil, err
	}
	changes, stop = s.store.Watch(row.Seq)
	return changes, stop, nil
}

// Result opens the result of a succeeded job, which is size bytes of JSON. It is CodeConflict
// while the job has not succeeded.
func (s *Service) Result(ctx context.Context, tenant, id string) (r io.ReadCloser, size int64, err error) {
	row, err := s.row(ctx, tenant, id)
	if err != nil {
		return nil, 0, err
	}
	if row.Status != forebay.StatusSucceeded {
		return nil, 0, forebay.Errorf(forebay.CodeConflict, "the job has no result: it is %s", row.Status)
	}
	if row.ResultBlob != "" {
		return s.payloads.Open(ctx, row.ResultBlob)
	}
	return io.NopCloser(bytes.NewReader(row.Result)), int64(len(row.Result)), nil
}

// Input opens the input of a job as it was submitted, or as the redrive wrote it that changed it
// last. It is size bytes of JSON.
func (s *Service) Input(ctx context.Context, tenant, id string) (r io.ReadCloser, size int64, err error) {
	if !knownID(id) {
		return nil, 0, forebay.ErrNotFound
	}
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, 0, err
	}
	var input []byte
	blob := ""
	err = s.store.Read(ctx, func(c driver.Conn) error {
		found, err := c.Prep(sqlInput).Text(id).Int(no).One(func(r driver.Row) { input, blob = r.Blob(0), r.Text(1) })
		if err == nil && !found {
			return forebay.ErrNotFound
		}
		return err
	})
	switch {
	case err != nil:
		return nil, 0, err
	case blob != "":
		return s.payloads.Open(ctx, blob)
	}
	return io.NopCloser(bytes.NewReader(input)), int64(len(input)), nil
}

const sqlInput = "SELECT input, input_blob FROM jobs WHERE id = ? AND tenant = ?"
