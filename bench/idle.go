package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// idle measures what a server does that has nothing to do.
func idle(ctx context.Context, b *bench) (table, error) {
	span := time.Duration(b.size(10, 5)) * time.Second
	t := table{
		title: "Idle",
		text: fmt.Sprintf(`A server that has finished 1,000 jobs (the first row: while it does), left alone for %v after 2 s of rest; at the same time,
a Go process that waits for its standard input. Reads and writes are system calls. Wake-ups: how often any thread of the
process went to sleep again; a process that does not wake runs no statement.`, span),
		columns: []string{"CPU ms/s", "reads/s", "writes/s", "wake-ups/s", "resident MB"},
	}
	f, err := startService(ctx, b, "forebay", behaviour{})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	yardstick, err := startChild(ctx, childSpec{Role: "idle"})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, yardstick.stop()) }()
	const jobs = 1000
	err = watchProcesses(&t, []string{"Forebay, running the 1,000 jobs"}, []*child{f.child}, func() error {
		_, err := produce(jobs, func() error { return f.submit(ctx) })
		return errors.Join(err, f.recorded(ctx, jobs))
	})
	if err != nil {
		return t, err
	}
	f.CloseIdleConnections()
	time.Sleep(2 * time.Second)
	err = watchProcesses(&t, []string{"Forebay, idle", "an idle Go process"}, []*child{f.child, yardstick}, func() error {
		select {
		case <-time.After(span):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	t.expect("idle Forebay's share of one processor in %", t.median("Forebay, idle", "CPU ms/s")/10, "<", 0.1)
	return t, err
}

// watchProcesses adds a row for each process with what it does while f runs.
func watchProcesses(t *table, names []string, processes []*child, f func() error) (err error) {
	before := make([]usage, len(processes))
	begun := time.Now()
	for i, p := range processes {
		if before[i], err = usageOf(p.pid); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	seconds := time.Since(begun).Seconds()
	for i, p := range processes {
		after, err := usageOf(p.pid)
		if err != nil {
			return err
		}
		t.rows = append(t.rows, row{names[i], []sample{{
			"CPU ms/s":    (after.cpu - before[i].cpu).Seconds() * 1000 / seconds,
			"reads/s":     float64(after.reads-before[i].reads) / seconds,
			"writes/s":    float64(after.writes-before[i].writes) / seconds,
			"wake-ups/s":  float64(after.switches-before[i].switches) / seconds,
			"resident MB": memoryOf(p.pid, "VmRSS"),
		}}})
	}
	return nil
}
