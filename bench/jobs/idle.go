package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
)

// Idle measures what a server does that has nothing to do.
func Idle(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	span := time.Duration(b.Size(10, 5)) * time.Second
	t := measure.Table{
		Title: "Idle",
		Text: fmt.Sprintf(`A server that has finished 1,000 jobs (the first row: while it does), left alone for %v after 2 s of rest; at the same time,
a Go process that waits for its standard input. Reads and writes are system calls. Wake-ups: how often any thread of the
process went to sleep again; a process that does not wake runs no statement.`, span),
		Columns: []string{"CPU ms/s", "reads/s", "writes/s", "wake-ups/s", "resident MB"},
	}
	f, err := serving.StartService(ctx, b, "forebay", serving.Behaviour{})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	yardstick, err := serving.StartChild(ctx, serving.ChildSpec{Role: "idle"})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, yardstick.Stop()) }()
	const jobs = 1000
	err = watchProcesses(&t, []string{"Forebay, running the 1,000 jobs"}, []*serving.Child{f.Child}, func() error {
		_, err := measure.Produce(jobs, func() error { return f.Submit(ctx) })
		return errors.Join(err, f.Recorded(ctx, jobs))
	})
	if err != nil {
		return t, err
	}
	f.CloseIdleConnections()
	time.Sleep(2 * time.Second)
	err = watchProcesses(&t, []string{"Forebay, idle", "an idle Go process"}, []*serving.Child{f.Child, yardstick}, func() error {
		select {
		case <-time.After(span):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	t.Expect("idle Forebay's share of one processor in %", t.Median("Forebay, idle", "CPU ms/s")/10, "<", 0.1)
	return t, err
}

// watchProcesses adds a row for each process with what it does while f runs.
func watchProcesses(t *measure.Table, names []string, processes []*serving.Child, f func() error) (err error) {
	before := make([]measure.Usage, len(processes))
	begun := time.Now()
	for i, p := range processes {
		if before[i], err = measure.UsageOf(p.PID); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	seconds := time.Since(begun).Seconds()
	for i, p := range processes {
		after, err := measure.UsageOf(p.PID)
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, measure.Row{Name: names[i], Samples: []measure.Sample{{
			"CPU ms/s":    (after.CPU - before[i].CPU).Seconds() * 1000 / seconds,
			"reads/s":     float64(after.Reads-before[i].Reads) / seconds,
			"writes/s":    float64(after.Writes-before[i].Writes) / seconds,
			"wake-ups/s":  float64(after.Switches-before[i].Switches) / seconds,
			"resident MB": measure.MemoryOf(p.PID, "VmRSS"),
		}}})
	}
	return nil
}
