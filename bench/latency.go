package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forebayhq/forebay"
)

const (
	pace     = 200      // jobs a second
	settling = pace / 2 // jobs that are not counted, since the first find nothing prepared
)

// latency measures how long after its submit a job starts.
func latency(ctx context.Context, b *bench) (table, error) {
	t := table{
		title: "From enqueue to the start of the handler, at 200 jobs/s",
		text: `In process, one submit every 5 ms; from before the submit until the job's function begins, so with the fsync of the
submit and of the claim, after half a second that is not counted. River on SQLite as above; on PostgreSQL with 64 workers and a pool of 16. Disk: one append of 4 KiB and fsync every 5 ms.`,
		columns: []string{"p50 ms", "p99 ms", "highest ms"},
	}
	jobs := settling + pace*b.size(4, 2)
	pg, err := b.postgres(ctx)
	if err != nil {
		return t, err
	}
	contenders := []contender{
		{"Forebay on SQLite", func(ctx context.Context) (sample, error) { return forebayLatency(ctx, b, b.sqlite(), jobs) }},
		{"Forebay on PostgreSQL", func(ctx context.Context) (sample, error) { return forebayLatency(ctx, b, pg, jobs) }},
	}
	if b.peers {
		river := func(ctx context.Context) (riverDatabase[pgx.Tx], error) { return riverPostgres(ctx, pg, riverTuned) }
		contenders = append(contenders,
			contender{"River on SQLite", func(ctx context.Context) (sample, error) { return riverLatency(ctx, riverSQLite(b), jobs) }},
			contender{"River on PostgreSQL", func(ctx context.Context) (sample, error) { return riverLatency(ctx, river, jobs) }},
			contender{"the disk", func(ctx context.Context) (sample, error) { return diskLatency(ctx, b, jobs) }})
	}
	return t, t.takeTurns(ctx, b.rounds, contenders...)
}

// paced calls f with 0 to n-1, rate times a second, and waits for all calls. Each has a goroutine
// of its own and starts at its time, so a slow call does not delay the next.
func paced(ctx context.Context, rate, n int, f func(i int, due time.Time) error) error {
	var (
		all    sync.WaitGroup
		failed atomic.Pointer[error]
	)
	begun := time.Now()
	for i := range n {
		due := begun.Add(time.Duration(i) * time.Second / time.Duration(rate))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return ctx.Err()
		}
		all.Go(func() {
			if err := f(i, due); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
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
func (s *starts) sample(ctx context.Context, uncounted int, err error, stop func() error) (sample, error) {
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
	return waits(s.waited[uncounted:]), nil
}

func waits(waited []time.Duration) sample {
	slices.Sort(waited)
	return sample{"p50 ms": percentile(waited, 0.5), "p99 ms": percentile(waited, 0.99), "highest ms": percentile(waited, 1)}
}

func forebayLatency(ctx context.Context, b *bench, on engine, jobs int) (sample, error) {
	s := newStarts(jobs)
	e, err := startEmbedded(ctx, b, on, nil, s.task())
	if err != nil {
		return nil, err
	}
	err = paced(ctx, pace, jobs, func(i int, _ time.Time) error { return s.submit(ctx, e, i) })
	return s.sample(ctx, settling, err, e.stop)
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

func (s *starts) submit(ctx context.Context, e *embedded, i int) error {
	s.enqueued[i] = time.Now()
	_, err := e.Submit(ctx, forebay.DefaultTenant, forebay.SubmitRequest{Task: "start", Input: strconv.AppendInt(nil, int64(i), 10)})
	return err
}

func riverLatency[T any](ctx context.Context, open func(context.Context) (riverDatabase[T], error), jobs int) (sample, error) {
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
	err = paced(ctx, pace, jobs, func(i int, _ time.Time) error {
		s.enqueued[i] = time.Now()
		_, err := c.Insert(ctx, riverArgs{Number: i}, nil)
		return err
	})
	return s.sample(ctx, settling, err, func() error { return errors.Join(c.Stop(ctx), d.release()) })
}

func diskLatency(ctx context.Context, b *bench, writes int) (sample, error) {
	took, err := appendAndSync(b.dir, func(n int, begun time.Time) bool {
		select {
		case <-time.After(time.Until(begun.Add(time.Duration(n) * time.Second / pace))):
		case <-ctx.Done():
			return false
		}
		return n < writes
	})
	if err != nil {
		return nil, err
	}
	return waits(took), nil
}
