package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

// How jobs are submitted over HTTP.
const (
	WarmUp    = 512 // jobs before the clock starts: connections, prepared statements, heap
	BulkLines = 250 // jobs in a bulk submit
)

// submission is a small job as clients send it.
var submission = []byte(`{"task":"chat","input":"When is high water at the harbour tomorrow morning?"}`)

// Service is a server in a process of its own, and the canned model it calls.
type Service struct {
	*Child
	Client
	Model   *CannedModel // nil: it calls another
	Release func() error
}

// StartService starts a server and the model that it calls. It has a database of its own on
// SQLite; without a bench it has none.
func StartService(ctx context.Context, b *measure.Bench, role string, how Behaviour) (*Service, error) {
	if b == nil {
		return StartServiceOn(ctx, nil, role, how, measure.Place{})
	}
	place, err := b.SQLite().Place(ctx)
	if err != nil {
		return nil, err
	}
	s, err := StartServiceOn(ctx, b, role, how, place)
	if err != nil {
		return nil, errors.Join(err, place.Release())
	}
	s.Release = place.Release
	return s, nil
}

// StartServiceOn starts a server on a database that may be others' too.
func StartServiceOn(ctx context.Context, b *measure.Bench, role string, how Behaviour, at measure.Place) (*Service, error) {
	model, err := StartModel(how)
	if err != nil {
		return nil, err
	}
	s := &Service{Model: model, Client: NewClient(), Release: func() error { return nil }}
	spec := ChildSpec{Role: role, Model: model.URL}
	if b != nil {
		spec.Database, spec.Blobs = at.Database, filepath.Join(at.Dir, "blobs")
		if b.CPUProfile != "" {
			spec.Profile = b.CPUProfile + ".server"
		}
	}
	if s.Child, err = StartChild(ctx, spec); err != nil {
		model.Stop()
		return nil, err
	}
	return s, nil
}

// StartServiceFor starts a server whose model has these deployments. Its queue has the settings.
func StartServiceFor(ctx context.Context, at measure.Place, queue server.Queue, deployments ...server.Deployment) (*Service, error) {
	c, err := StartChild(ctx, ChildSpec{Role: "forebay", Database: at.Database, Blobs: filepath.Join(at.Dir, "blobs"), Deployments: deployments,
		Queue: queue})
	if err != nil {
		return nil, err
	}
	return &Service{Child: c, Client: NewClient(), Release: func() error { return nil }}, nil
}

// Close ends the server and its model, and removes its database.
func (s *Service) Close() error {
	err := s.Child.Stop()
	if s.Model != nil {
		s.Model.Stop()
	}
	s.CloseIdleConnections()
	return errors.Join(err, s.Release())
}

// Submit submits a small job.
func (s *Service) Submit(ctx context.Context) error {
	_, err := s.PostBody(ctx, s.URL+"/v1/jobs", "application/json", submission)
	return err
}

// SubmitBulk sends so many jobs in requests of BulkLines.
func (s *Service) SubmitBulk(ctx context.Context, jobs int) error {
	const clients = 8
	requests := (jobs + BulkLines - 1) / BulkLines
	return measure.InParallel(clients, requests, func(i int) error {
		lines := min(BulkLines, jobs-i*BulkLines)
		body := bytes.Repeat(append(submission, '\n'), lines)
		answer, err := s.PostBody(ctx, s.URL+"/v1/jobs/bulk", "application/x-ndjson", body)
		if err == nil && bytes.Count(answer, []byte(`"job":{`)) != lines {
			err = fmt.Errorf("a bulk submit of %d jobs made %d", lines, bytes.Count(answer, []byte(`"job":{`)))
		}
		return err
	})
}

// Recorded waits until the model has answered so many calls and no job is live any more.
func (s *Service) Recorded(ctx context.Context, calls int64) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.Model.answered.Load() >= calls {
			var q forebay.QueueInfo
			if err := s.get(ctx, s.URL+"/v1/queues/"+forebay.DefaultQueue, &q); err != nil {
				return err
			}
			if q.Active+q.Scheduled+q.Locked == 0 {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the model answered %d calls of %d: %w", s.Model.answered.Load(), calls, ctx.Err())
		}
	}
}

// Succeeded checks that there are so many jobs and that all have succeeded.
func (s *Service) Succeeded(ctx context.Context, jobs int) error {
	found, cursor := 0, ""
	for {
		var page forebay.Page[struct {
			Status forebay.Status `json:"status"`
		}]
		if err := s.get(ctx, fmt.Sprintf("%s/v1/jobs?limit=%d&cursor=%s", s.URL, forebay.MaxPageSize, url.QueryEscape(cursor)), &page); err != nil {
			return err
		}
		for _, job := range page.Items {
			if job.Status != forebay.StatusSucceeded {
				return fmt.Errorf("a job ended as %s", job.Status)
			}
			found++
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if found != jobs {
		return fmt.Errorf("%d jobs were submitted and %d are there", jobs, found)
	}
	return nil
}

// Count is how many jobs have the status, up to a page of 500.
func (s *Service) Count(ctx context.Context, status forebay.Status) (int, error) {
	var page forebay.Page[json.RawMessage]
	err := s.get(ctx, s.URL+"/v1/jobs?limit=500&status="+string(status), &page)
	return len(page.Items), err
}

// BulkBodies yields the bodies of bulk submits of chat jobs with these inputs.
func BulkBodies(inputs []json.RawMessage) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		var body bytes.Buffer
		for i, input := range inputs {
			fmt.Fprintf(&body, `{"task":"chat","input":%s}`+"\n", input)
			if (i+1)%BulkLines == 0 || i+1 == len(inputs) {
				if !yield(body.Bytes()) {
					return
				}
				body.Reset()
			}
		}
	}
}

// Drained waits until no job is live.
func (s *Service) Drained(ctx context.Context) (q forebay.QueueInfo, err error) {
	for {
		if err := s.get(ctx, s.URL+"/v1/queues/"+forebay.DefaultQueue, &q); err != nil {
			return q, err
		}
		if q.Active+q.Scheduled+q.Locked == 0 {
			return q, nil
		}
		if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
			return q, fmt.Errorf("%d jobs are still live: %w", q.Active+q.Scheduled+q.Locked, err)
		}
	}
}
