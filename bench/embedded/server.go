// Package embedded runs a server in this process, and counts what its task "life" does.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/server"
)

// Server is a server in this process on a database of its own.
type Server struct {
	*server.Server
	b         *measure.Bench
	On        measure.Engine
	Place     measure.Place
	Producers int
	gate      Gate                  // that the task "life" has to pass
	current   atomic.Pointer[lives] // what it counts for
	cancel    context.CancelFunc
	done      chan error
}

// Start starts a server with the task "life" and those given, on a fresh database.
func Start(ctx context.Context, b *measure.Bench, on measure.Engine, queues map[string]server.Queue, functions ...forebay.Task) (*Server, error) {
	return StartAs(ctx, b, on, func(o *server.Options) {
		o.Functions = append(functions, o.Functions...)
		for name, q := range queues {
			o.Queues[name] = q
		}
	})
}

// StartAs starts one whose options are adjusted first.
func StartAs(ctx context.Context, b *measure.Bench, on measure.Engine, adjust func(*server.Options)) (*Server, error) {
	place, err := on.Place(ctx)
	if err != nil {
		return nil, err
	}
	e := &Server{b: b, On: on, Place: place, Producers: measure.Workers, done: make(chan error, 1)}
	options := server.Options{
		Database: place.Database, Blob: filepath.Join(place.Dir, "blobs"), Role: server.RoleWorker,
		Log: server.Log{Level: "warn"}, ShutdownTimeout: time.Second,
		Queues: map[string]server.Queue{forebay.DefaultQueue: {Concurrency: measure.Workers}},
		Functions: []forebay.Task{{Name: "life", Run: func(ctx context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
			if err := e.gate.Pass(ctx); err != nil {
				return forebay.TaskResult{}, err
			}
			e.current.Load().ran(call.JobID)
			return forebay.TaskResult{Output: measure.Payload}, nil
		}}},
	}
	adjust(&options)
	if e.Server, err = server.New(options); err != nil {
		return nil, errors.Join(err, place.Release())
	}
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() { e.done <- e.Run(ctx) }()
	return e, nil
}

// Stop ends the server, and removes its database.
func (e *Server) Stop() error { return e.StopBefore(func() error { return nil }) }

// StopBefore ends the server and does something before its database is gone.
func (e *Server) StopBefore(last func() error) error {
	e.cancel()
	return errors.Join(<-e.done, last(), e.Place.Release())
}

// lives counts the jobs of one round as their functions run.
type lives struct {
	ids   []string // in the order in which they ran
	next  atomic.Int64
	left  atomic.Int64
	ended chan struct{}
}

func newLives(jobs int) *lives {
	l := &lives{ids: make([]string, jobs), ended: make(chan struct{})}
	l.left.Store(int64(jobs))
	return l
}

func (l *lives) ran(id string) {
	if i := int(l.next.Add(1)) - 1; i < len(l.ids) {
		l.ids[i] = id
	}
	if l.left.Add(-1) == 0 {
		close(l.ended)
	}
}

// Live submits so many jobs and runs as many; when others wait before them in the queue, those.
func (e *Server) Live(ctx context.Context, jobs int) (measure.Sample, error) {
	if err := e.On.Prepare(ctx); err != nil {
		return nil, err
	}
	l := newLives(jobs)
	e.current.Store(l)
	m := measure.StartMeter(e.b.Dir, e.On)
	e.gate.Open(jobs)
	enqueue, err := measure.ProduceFrom(e.Producers, jobs, func() error {
		_, err := e.Submit(ctx, forebay.DefaultTenant, forebay.SubmitRequest{Task: "life", Input: measure.Payload})
		return err
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-l.ended:
	case <-ctx.Done():
		return nil, fmt.Errorf("%d jobs of %d did not run: %w", l.left.Load(), jobs, ctx.Err())
	}
	// All functions have run; of the last ones the results may still be on their way to the disk.
	last := l.ids[max(0, jobs-8*measure.Workers):]
	if err := e.succeeded(ctx, last, time.Time{}); err != nil {
		return nil, err
	}
	s := m.Stop(jobs, enqueue)
	return s, e.succeeded(ctx, l.ids, time.Now())
}

// succeeded waits for the jobs and checks that each has its result, recorded by that time if it is
// not zero.
func (e *Server) succeeded(ctx context.Context, ids []string, by time.Time) error {
	return measure.InParallel(4, len(ids), func(i int) error {
		job, err := e.Wait(ctx, forebay.DefaultTenant, ids[i], time.Minute)
		switch {
		case err != nil:
			return err
		case job.Status != forebay.StatusSucceeded || len(job.Result) != measure.PayloadBytes:
			return fmt.Errorf("a job ended as %s with a result of %d bytes", job.Status, len(job.Result))
		case !by.IsZero() && job.CompletedAt.After(by):
			return fmt.Errorf("a job was recorded %v after the clock had stopped", job.CompletedAt.Sub(by))
		}
		return nil
	})
}

// RunMany submits jobs and lets all of them succeed.
func (e *Server) RunMany(ctx context.Context, jobs int) error {
	l := newLives(jobs)
	e.current.Store(l)
	e.gate.Open(jobs)
	err := measure.InParallel(512, jobs, func(int) error {
		_, err := e.Submit(ctx, forebay.DefaultTenant, forebay.SubmitRequest{Task: "life", Input: measure.Payload})
		return err
	})
	if err != nil {
		return err
	}
	select {
	case <-l.ended:
		return e.succeeded(ctx, l.ids[len(l.ids)-1:], time.Time{})
	case <-ctx.Done():
		return ctx.Err()
	}
}
