package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

const (
	warmUp    = 512 // jobs before the clock starts: connections, prepared statements, heap
	bulkLines = 250 // jobs in a bulk submit
)

// submission is a small job as clients send it.
var submission = []byte(`{"task":"chat","input":"When is high water at the harbour tomorrow morning?"}`)

// overHTTP measures jobs that call a model over HTTP.
func overHTTP(ctx context.Context, b *bench) (table, error) {
	t := table{
		title: "Over HTTP, with a loopback model",
		text: `64 keep-alive clients send ` + "`POST /v1/jobs`" + ` (task chat, a short question); the server calls a loopback model by HTTP
(an answer of eight streamed tokens); the clock stops when the last result is recorded. Bulk: 8 clients send NDJSON of ` +
			fmt.Sprint(bulkLines) + ` jobs
a request to ` + "`POST /v1/jobs/bulk`" + `. Bare: the same clients, and a net/http handler that makes the same call with net/http,
reads it to its end and answers; nothing is stored, nothing is parsed. The server has a process of its own; clients and model
share the other.`,
		columns: []string{jobRate, "submit p50 ms", "submit p99 ms", "server CPU µs/job"},
	}
	jobs := b.size(8000, 4000)
	contenders := []contender{
		{"Forebay", func(ctx context.Context) (sample, error) { return forebayRate(ctx, b, jobs, false) }},
		{"Forebay, bulk submit", func(ctx context.Context) (sample, error) { return forebayRate(ctx, b, jobs, true) }},
	}
	if b.peers {
		contenders = append(contenders, contender{"bare HTTP calls", func(ctx context.Context) (sample, error) { return bareRate(ctx, jobs) }})
	}
	if err := t.takeTurns(ctx, b.rounds, contenders...); err != nil {
		return t, err
	}
	bare := t.median("bare HTTP calls", jobRate)
	t.expect("Forebay's rate as a share of the bare calls'", t.median("Forebay", jobRate)/bare, "≥", 0.5)
	t.expect("with bulk submit", t.median("Forebay, bulk submit", jobRate)/bare, "≥", 0.5)
	return t, nil
}

// service is a server in a process of its own, and the canned model it calls.
type service struct {
	*child
	client
	model   *cannedModel // nil: it calls another
	release func() error
}

func startService(ctx context.Context, b *bench, role string, how behaviour) (*service, error) {
	if b == nil {
		return startServiceOn(ctx, nil, role, how, place{})
	}
	place, err := b.sqlite().place(ctx)
	if err != nil {
		return nil, err
	}
	s, err := startServiceOn(ctx, b, role, how, place)
	if err != nil {
		return nil, errors.Join(err, place.release())
	}
	s.release = place.release
	return s, nil
}

// startServiceOn starts a server on a database that may be others' too.
func startServiceOn(ctx context.Context, b *bench, role string, how behaviour, at place) (*service, error) {
	model, err := startModel(how)
	if err != nil {
		return nil, err
	}
	s := &service{model: model, client: newClient(), release: func() error { return nil }}
	spec := childSpec{Role: role, Model: model.url}
	if b != nil {
		spec.Database, spec.Blobs = at.database, filepath.Join(at.dir, "blobs")
		if b.cpuProfile != "" {
			spec.Profile = b.cpuProfile + ".server"
		}
	}
	if s.child, err = startChild(ctx, spec); err != nil {
		model.stop()
		return nil, err
	}
	return s, nil
}

// startServiceFor starts a server whose model has these deployments, and its queue these settings.
func startServiceFor(ctx context.Context, at place, queue server.Queue, deployments ...server.Deployment) (*service, error) {
	c, err := startChild(ctx, childSpec{Role: "forebay", Database: at.database, Blobs: filepath.Join(at.dir, "blobs"), Deployments: deployments,
		Queue: queue})
	if err != nil {
		return nil, err
	}
	return &service{child: c, client: newClient(), release: func() error { return nil }}, nil
}

func (s *service) close() error {
	err := s.child.stop()
	if s.model != nil {
		s.model.stop()
	}
	s.CloseIdleConnections()
	return errors.Join(err, s.release())
}

func (s *service) submit(ctx context.Context) error {
	_, err := s.post(ctx, s.url+"/v1/jobs", "application/json", submission)
	return err
}

// submitBulk sends so many jobs in requests of bulkLines.
func (s *service) submitBulk(ctx context.Context, jobs int) error {
	const clients = 8
	requests := (jobs + bulkLines - 1) / bulkLines
	return inParallel(clients, requests, func(i int) error {
		lines := min(bulkLines, jobs-i*bulkLines)
		body := bytes.Repeat(append(submission, '\n'), lines)
		answer, err := s.post(ctx, s.url+"/v1/jobs/bulk", "application/x-ndjson", body)
		if err == nil && bytes.Count(answer, []byte(`"job":{`)) != lines {
			err = fmt.Errorf("a bulk submit of %d jobs made %d", lines, bytes.Count(answer, []byte(`"job":{`)))
		}
		return err
	})
}

// recorded waits until the model has answered so many calls and no job is live any more.
func (s *service) recorded(ctx context.Context, calls int64) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.model.answered.Load() >= calls {
			var q forebay.QueueInfo
			if err := s.get(ctx, s.url+"/v1/queues/"+forebay.DefaultQueue, &q); err != nil {
				return err
			}
			if q.Active+q.Scheduled+q.Locked == 0 {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the model answered %d calls of %d: %w", s.model.answered.Load(), calls, ctx.Err())
		}
	}
}

// succeeded checks that there are so many jobs and that all have succeeded.
func (s *service) succeeded(ctx context.Context, jobs int) error {
	found, cursor := 0, ""
	for {
		var page forebay.Page[struct {
			Status forebay.Status `json:"status"`
		}]
		if err := s.get(ctx, fmt.Sprintf("%s/v1/jobs?limit=%d&cursor=%s", s.url, forebay.MaxPageSize, url.QueryEscape(cursor)), &page); err != nil {
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

func forebayRate(ctx context.Context, b *bench, jobs int, bulk bool) (s sample, err error) {
	f, err := startService(ctx, b, "forebay", behaviour{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if _, err := produce(warmUp, func() error { return f.submit(ctx) }); err != nil {
		return nil, err
	}
	if err := f.recorded(ctx, warmUp); err != nil {
		return nil, err
	}
	s, err = timed(f, jobs, func() (took []time.Duration, err error) {
		if bulk {
			err = f.submitBulk(ctx, jobs)
		} else {
			took, err = produce(jobs, func() error { return f.submit(ctx) })
		}
		return took, errors.Join(err, f.recorded(ctx, int64(warmUp+jobs)))
	})
	return s, errors.Join(err, f.succeeded(ctx, warmUp+jobs))
}

func bareRate(ctx context.Context, jobs int) (s sample, err error) {
	bare, err := startService(ctx, nil, "bare", behaviour{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	call := func() error { return bare.submit(ctx) }
	if _, err := produce(warmUp, call); err != nil {
		return nil, err
	}
	return timed(bare, jobs, func() ([]time.Duration, error) { return produce(jobs, call) })
}

// timed measures what the service takes to do f for so many jobs.
func timed(s *service, jobs int, f func() ([]time.Duration, error)) (sample, error) {
	before, err := usageOf(s.pid)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	submits, err := f()
	took := time.Since(begun)
	if err != nil {
		return nil, err
	}
	after, err := usageOf(s.pid)
	if err != nil {
		return nil, err
	}
	n := float64(jobs)
	m := sample{jobRate: n / took.Seconds(), "server CPU µs/job": (after.cpu - before.cpu).Seconds() * 1e6 / n}
	if len(submits) > 0 {
		slices.Sort(submits)
		m["submit p50 ms"], m["submit p99 ms"] = percentile(submits, 0.5), percentile(submits, 0.99)
	}
	return m, nil
}

// quoted is a JSON string of that many bytes.
func quoted(n int) json.RawMessage {
	return slices.Concat([]byte{'"'}, bytes.Repeat([]byte("The tide table. "), n/16+1)[:n-2], []byte{'"'})
}
