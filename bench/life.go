package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

const (
	workers      = 64   // producers, and consumers
	payloadBytes = 1024 // of input, and of result
)

// life measures the full life of a small job in process.
func life(ctx context.Context, b *bench) (table, error) {
	t := table{
		title: "Full life of a 1 KiB job, in process",
		text: `64 producers submit jobs of 1 KiB; 64 consumers run each as a Go function that returns 1 KiB; the clock stops
when the last result is recorded. Forebay: ` + "`server.Submit` and `server.Run`" + `, no HTTP, on SQLite; afterwards every job is
read back and must have its result. River ` + riverVersion + ` on SQLite through modernc.org/sqlite: ` + "`client.Insert`" + `, 64 workers,
1 KiB recorded as output, one connection as its documentation asks, and of its fetch cooldowns the fastest (1 ms). Both in
WAL mode with synchronous=FULL. Disk: one writer appends 4 KiB and fsyncs, again and again.`,
		columns: []string{jobRate, "enqueue p50 ms", "enqueue p99 ms", "CPU µs/job", "allocations/job", "disk flushes/job", "fsyncs/s"},
	}
	contenders := []contender{{"Forebay", func(ctx context.Context) (sample, error) {
		return forebayLife(ctx, b, b.sqlite(), b.size(40_000, 20_000), workers)
	}}}
	if b.peers {
		contenders = append(contenders,
			contender{"River on SQLite", func(ctx context.Context) (sample, error) {
				return riverLife(ctx, b, riverSQLite(b), b.size(4000, 2000))
			}},
			contender{"the disk", func(ctx context.Context) (sample, error) { return diskRate(b.dir, time.Second) }})
	}
	if err := t.takeTurns(ctx, b.rounds, contenders...); err != nil {
		return t, err
	}
	t.expect("Forebay's rate as a multiple of River's", t.median("Forebay", jobRate)/t.median("River on SQLite", jobRate), "≥", 10)
	t.expect("Forebay's enqueue p99 in ms", t.median("Forebay", "enqueue p99 ms"), "<", 15)
	return t, nil
}

const (
	jobRate     = "jobs/s"
	engineShare = "of it PostgreSQL"
)

// forebayLife is one round with so many jobs, from so many goroutines to as many.
func forebayLife(ctx context.Context, b *bench, on engine, jobs, goroutines int) (sample, error) {
	e, err := startEmbedded(ctx, b, on, map[string]server.Queue{forebay.DefaultQueue: {Concurrency: goroutines}})
	if err != nil {
		return nil, err
	}
	e.producers = goroutines
	s, err := e.live(ctx, jobs)
	if stopErr := e.stop(); err == nil {
		err = stopErr
	}
	return s, err
}

// embedded is a server in this process on a database of its own.
type embedded struct {
	*server.Server
	b         *bench
	on        engine
	place     place
	producers int
	gate      gate                  // that the task "life" has to pass
	current   atomic.Pointer[lives] // what it counts for
	cancel    context.CancelFunc
	done      chan error
}

// startEmbedded starts a server with the task "life" and those given, on a fresh database.
func startEmbedded(ctx context.Context, b *bench, on engine, queues map[string]server.Queue, functions ...forebay.Task) (*embedded, error) {
	return startEmbeddedAs(ctx, b, on, func(o *server.Options) {
		o.Functions = append(functions, o.Functions...)
		for name, q := range queues {
			o.Queues[name] = q
		}
	})
}

// startEmbeddedAs starts one whose options are adjusted first.
func startEmbeddedAs(ctx context.Context, b *bench, on engine, adjust func(*server.Options)) (*embedded, error) {
	place, err := on.place(ctx)
	if err != nil {
		return nil, err
	}
	e := &embedded{b: b, on: on, place: place, producers: workers, done: make(chan error, 1)}
	options := server.Options{
		Database: place.database, Blob: filepath.Join(place.dir, "blobs"), Role: server.RoleWorker,
		Log: server.Log{Level: "warn"}, ShutdownTimeout: time.Second,
		Queues: map[string]server.Queue{forebay.DefaultQueue: {Concurrency: workers}},
		Functions: []forebay.Task{{Name: "life", Run: func(ctx context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
			if err := e.gate.pass(ctx); err != nil {
				return forebay.TaskResult{}, err
			}
			e.current.Load().ran(call.JobID)
			return forebay.TaskResult{Output: payload}, nil
		}}},
	}
	adjust(&options)
	if e.Server, err = server.New(options); err != nil {
		return nil, errors.Join(err, place.release())
	}
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() { e.done <- e.Run(ctx) }()
	return e, nil
}

func (e *embedded) stop() error { return e.stopBefore(func() error { return nil }) }

// stopBefore ends the server and does something before its database is gone.
func (e *embedded) stopBefore(last func() error) error {
	e.cancel()
	return errors.Join(<-e.done, last(), e.place.release())
}

// gate lets as many through as it was opened for; the others wait.
type gate struct {
	mu     sync.Mutex
	places int
	opened chan struct{} // closed when there are more places; nil if nobody waits
}

func (g *gate) open(places int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.places += places
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

func (g *gate) pass(ctx context.Context) error {
	for {
		g.mu.Lock()
		if g.places > 0 {
			g.places--
			g.mu.Unlock()
			return nil
		}
		if g.opened == nil {
			g.opened = make(chan struct{})
		}
		opened := g.opened
		g.mu.Unlock()
		select {
		case <-opened:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// payload is 1 KiB of JSON: a string.
var payload = json.RawMessage(`"` + strings.Repeat("The tide table of the harbour. ", 34)[:payloadBytes-2] + `"`)

// text is the payload without its quotation marks: the body of a message, and what River's jobs carry.
var text = string(payload[1 : len(payload)-1])

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

// live submits so many jobs and runs as many; when others wait before them in the queue, those.
func (e *embedded) live(ctx context.Context, jobs int) (sample, error) {
	if err := e.on.prepare(ctx); err != nil {
		return nil, err
	}
	l := newLives(jobs)
	e.current.Store(l)
	m := startMeter(e.b.dir, e.on)
	e.gate.open(jobs)
	enqueue, err := produceFrom(e.producers, jobs, func() error {
		_, err := e.Submit(ctx, forebay.DefaultTenant, forebay.SubmitRequest{Task: "life", Input: payload})
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
	last := l.ids[max(0, jobs-8*workers):]
	if err := e.succeeded(ctx, last, time.Time{}); err != nil {
		return nil, err
	}
	s := m.stop(jobs, enqueue)
	return s, e.succeeded(ctx, l.ids, time.Now())
}

// succeeded waits for the jobs and checks that each has its result, recorded by that time if it is
// not zero.
func (e *embedded) succeeded(ctx context.Context, ids []string, by time.Time) error {
	return inParallel(4, len(ids), func(i int) error {
		job, err := e.Wait(ctx, forebay.DefaultTenant, ids[i], time.Minute)
		switch {
		case err != nil:
			return err
		case job.Status != forebay.StatusSucceeded || len(job.Result) != payloadBytes:
			return fmt.Errorf("a job ended as %s with a result of %d bytes", job.Status, len(job.Result))
		case !by.IsZero() && job.CompletedAt.After(by):
			return fmt.Errorf("a job was recorded %v after the clock had stopped", job.CompletedAt.Sub(by))
		}
		return nil
	})
}

// meter measures what this process does for some jobs.
type meter struct {
	dir         string
	on          engine
	begun       time.Time
	cpu         time.Duration // of this process
	engineCPU   time.Duration
	allocations uint64
	flushes     uint64
	counted     bool
}

func startMeter(dir string, on engine) *meter {
	m := &meter{dir: dir, on: on, allocations: allocations(), cpu: cpuTime(), engineCPU: on.cpu()}
	m.flushes, m.counted = diskFlushes(dir)
	m.begun = time.Now()
	return m
}

// stop returns the meter's columns; it sorts the latencies.
func (m *meter) stop(jobs int, enqueue []time.Duration) sample {
	took, n := time.Since(m.begun), float64(jobs)
	own, engine := cpuTime()-m.cpu, m.on.cpu()-m.engineCPU
	slices.Sort(enqueue)
	s := sample{
		jobRate:           n / took.Seconds(),
		"enqueue p50 ms":  percentile(enqueue, 0.5),
		"enqueue p99 ms":  percentile(enqueue, 0.99),
		"CPU µs/job":      (own + engine).Seconds() * 1e6 / n,
		"allocations/job": float64(allocations()-m.allocations) / n,
	}
	if engine > 0 {
		s[engineShare] = engine.Seconds() * 1e6 / n
	}
	if flushes, ok := diskFlushes(m.dir); ok && m.counted {
		s["disk flushes/job"] = float64(flushes-m.flushes) / n
	}
	return s
}

func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// produce calls f so many times, spread over the producers, and returns how long each call took.
func produce(calls int, f func() error) ([]time.Duration, error) {
	return produceFrom(workers, calls, f)
}

func produceFrom(goroutines, calls int, f func() error) ([]time.Duration, error) {
	took := make([]time.Duration, calls)
	err := inParallel(goroutines, calls, func(i int) error {
		begun := time.Now()
		err := f()
		took[i] = time.Since(begun)
		return err
	})
	return took, err
}

// inParallel calls f with 0 to n-1 from so many goroutines, until one fails.
func inParallel(goroutines, n int, f func(int) error) error {
	var (
		next   atomic.Int64
		all    sync.WaitGroup
		failed atomic.Pointer[error]
	)
	for range goroutines {
		all.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// diskRate appends 4 KiB and fsyncs for a while.
func diskRate(dir string, span time.Duration) (sample, error) {
	took, err := appendAndSync(dir, func(n int, begun time.Time) bool { return time.Since(begun) < span })
	if err != nil {
		return nil, err
	}
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	return sample{"fsyncs/s": float64(len(took)) / sum.Seconds()}, nil
}

// appendAndSync appends 4 KiB to a new file and fsyncs it, for as long as more returns true. It
// returns how long each took.
func appendAndSync(dir string, more func(n int, begun time.Time) bool) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, "append-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page, begun := make([]byte, 4096), time.Now()
	for more(len(took), begun) {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}
