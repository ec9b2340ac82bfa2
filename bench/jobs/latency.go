package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/embedded"
	"github.com/forebayhq/forebay/bench/measure"
)

const (
	pace     = 200      // jobs a second
	settling = pace / 2 // jobs that are not counted, since the first find nothing prepared
)

// Latency measures how long after its submit a job starts.
func Latency(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	t := measure.Table{
		Title: "From enqueue to the start of the handler, at 200 jobs/s",
		Text: `In process, one submit every 5 ms; from before the submit until the job's function begins, so with the fsync of the
submit and of the claim, after half a second that is not counted. River on SQLite as above; on PostgreSQL with 64 workers and a pool of 16. Disk: one append of 4 KiB and fsync every 5 ms.`,
		Columns: []string{"p50 ms", "p99 ms", "highest ms"},
	}
	jobs := settling + pace*b.Size(4, 2)
	pg, err := b.Postgres(ctx)
	if err != nil {
		return t, err
	}
	contenders := []measure.Contender{
		{Name: "Forebay on SQLite", Round: func(ctx context.Context) (measure.Sample, error) { return forebayLatency(ctx, b, b.SQLite(), jobs) }},
		{Name: "Forebay on PostgreSQL", Round: func(ctx context.Context) (measure.Sample, error) { return forebayLatency(ctx, b, pg, jobs) }},
	}
	if b.Peers {
		river := func(ctx context.Context) (riverDatabase[pgx.Tx], error) { return riverPostgres(ctx, pg, riverTuned) }
		contenders = append(contenders,
			measure.Contender{Name: "River on SQLite", Round: func(ctx context.Context) (measure.Sample, error) { return riverLatency(ctx, riverSQLite(b), jobs) }},
			measure.Contender{Name: "River on PostgreSQL", Round: func(ctx context.Context) (measure.Sample, error) { return riverLatency(ctx, river, jobs) }},
			measure.Contender{Name: "the disk", Round: func(ctx context.Context) (measure.Sample, error) { return diskLatency(ctx, b, jobs) }})
	}
	return t, t.TakeTurns(ctx, b.Rounds, contenders...)
}

// starts notes when numbered jobs were enqueued and when they began.
type starts struct {
	enqueued []time.Time
	waited   []time.Duration
	left     atomic.Int64
	ended    chan struct{}
}

func newStarts(jobs int) *starts {
	s := &starts{enqueued: make([]time.Time, jobs), waited: make([]time.Duration, jobs), ended: make(chan struct{})}
	s.left.Store(int64(jobs))
	return s
}

func (s *starts) began(i int) {
	s.waited[i] = time.Since(s.enqueued[i])
	if s.left.Add(-1) == 0 {
		close(s.ended)
	}
}

// sample waits until all jobs have begun, unless submitting failed, and stops the workers. It
// leaves out the first jobs.
func (s *starts) sample(ctx context.Context, uncounted int, err error, stop func() error) (measure.Sample, error) {
	if err == nil {
		select {
		case <-s.ended:
		case <-ctx.Done():
			err = fmt.Errorf("%d jobs did not begin: %w", s.left.Load(), ctx.Err())
		}
	}
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	return measure.Waits(s.waited[uncounted:]), nil
}

func forebayLatency(ctx context.Context, b *measure.Bench, on measure.Engine, jobs int) (measure.Sample, error) {
	s := newStarts(jobs)
	e, err := embedded.Start(ctx, b, on, nil, s.task())
	if err != nil {
		return nil, err
	}
	err = measure.Paced(ctx, pace, jobs, func(i int, _ time.Time) error { return s.submit(ctx, e, i) })
	return s.sample(ctx, settling, err, e.Stop)
}

// task is the function of numbered jobs.
func (s *starts) task() forebay.Task {
	return forebay.Task{Name: "start", Run: func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
		var i int
		if err := json.Unmarshal(call.Input, &i); err != nil {
			return forebay.TaskResult{}, forebay.Permanent("bad_input", err.Error())
		}
		s.began(i)
		return forebay.TaskResult{}, nil
	}}
}

func (s *starts) submit(ctx context.Context, e *embedded.Server, i int) error {
	s.enqueued[i] = time.Now()
	_, err := e.Submit(ctx, forebay.DefaultTenant, forebay.SubmitRequest{Task: "start", Input: strconv.AppendInt(nil, int64(i), 10)})
	return err
}

func riverLatency[T any](ctx context.Context, open func(context.Context) (riverDatabase[T], error), jobs int) (measure.Sample, error) {
	s := newStarts(jobs)
	d, err := open(ctx)
	if err != nil {
		return nil, err
	}
	c, err := d.start(ctx, func(_ context.Context, args riverArgs) error {
		s.began(args.Number)
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, d.release())
	}
	err = measure.Paced(ctx, pace, jobs, func(i int, _ time.Time) error {
		s.enqueued[i] = time.Now()
		_, err := c.Insert(ctx, riverArgs{Number: i}, nil)
		return err
	})
	return s.sample(ctx, settling, err, func() error { return errors.Join(c.Stop(ctx), d.release()) })
}
