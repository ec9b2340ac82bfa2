// Package jobs measures jobs: their whole life, in process and over HTTP, with River beside it,
// and how soon they start. It also measures them while many others wait, models hang, payloads
// are large, a transaction stays open or somebody reads the dashboard. And it measures idle
// servers.
package jobs

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/embedded"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/server"
)

// Life measures the full life of a small job in process.
func Life(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	t := measure.Table{
		Title: "Full life of a 1 KiB job, in process",
		Text: `64 producers submit jobs of 1 KiB; 64 consumers run each as a Go function that returns 1 KiB; the clock stops
when the last result is recorded. Forebay: ` + "`server.Submit` and `server.Run`" + `, no HTTP, on SQLite; afterwards every job is
read back and must have its result. River ` + riverVersion + ` on SQLite through modernc.org/sqlite: ` + "`client.Insert`" + `, 64 workers,
1 KiB recorded as output, one connection as its documentation asks, and of its fetch cooldowns the fastest (1 ms). Both in
WAL mode with synchronous=FULL. Disk: one writer appends 4 KiB and fsyncs, again and again.`,
		Columns: []string{measure.JobRate, "enqueue p50 ms", "enqueue p99 ms", "CPU µs/job", "allocations/job", "disk flushes/job", "fsyncs/s"},
	}
	contenders := []measure.Contender{{Name: "Forebay", Round: func(ctx context.Context) (measure.Sample, error) {
		return forebayLife(ctx, b, b.SQLite(), b.Size(40_000, 20_000), measure.Workers)
	}}}
	if b.Peers {
		contenders = append(contenders,
			measure.Contender{Name: "River on SQLite", Round: func(ctx context.Context) (measure.Sample, error) {
				return riverLife(ctx, b, riverSQLite(b), b.Size(4000, 2000))
			}},
			measure.Contender{Name: "the disk", Round: func(ctx context.Context) (measure.Sample, error) { return diskRate(b.Dir, time.Second) }})
	}
	if err := t.TakeTurns(ctx, b.Rounds, contenders...); err != nil {
		return t, err
	}
	t.Expect("Forebay's rate as a multiple of River's", t.Median("Forebay", measure.JobRate)/t.Median("River on SQLite", measure.JobRate), "≥", 10)
	t.Expect("Forebay's enqueue p99 in ms", t.Median("Forebay", "enqueue p99 ms"), "<", 15)
	return t, nil
}

// forebayLife is one round with so many jobs, from so many goroutines to as many.
func forebayLife(ctx context.Context, b *measure.Bench, on measure.Engine, jobs, goroutines int) (measure.Sample, error) {
	e, err := embedded.Start(ctx, b, on, map[string]server.Queue{forebay.DefaultQueue: {Concurrency: goroutines}})
	if err != nil {
		return nil, err
	}
	e.Producers = goroutines
	s, err := e.Live(ctx, jobs)
	if stopErr := e.Stop(); err == nil {
		err = stopErr
	}
	return s, err
}
