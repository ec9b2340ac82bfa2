package main

import (
	"context"
	"errors"
	"slices"
	"time"
)

// hangingModels measures what submitting takes while no model answers.
func hangingModels(ctx context.Context, b *bench) (table, error) {
	t := table{
		title: "Submit over HTTP while every model hangs",
		text: `First one submit every 5 ms, each timed from when it was due; then 64 clients submit as fast as they can. The model reads
every call and never answers; beside it, one that answers at once.`,
		columns: []string{"paced p50 ms", "paced p99 ms", "paced p99.9 ms", "burst submits/s", "burst p50 ms", "burst p99 ms", "burst p99.9 ms"},
	}
	contenders := []contender{{"every model hangs", func(ctx context.Context) (sample, error) { return submitting(ctx, b, behaviour{hang: true}) }}}
	if b.peers {
		contenders = append(contenders, contender{"the model answers", func(ctx context.Context) (sample, error) { return submitting(ctx, b, behaviour{}) }})
	}
	if err := t.takeTurns(ctx, min(3, b.rounds), contenders...); err != nil {
		return t, err
	}
	t.note("p99 of the paced submits, hanging / answering: %s", format(t.median("every model hangs", "paced p99 ms")/t.median("the model answers", "paced p99 ms")))
	return t, nil
}

func submitting(ctx context.Context, b *bench, how behaviour) (s sample, err error) {
	f, err := startService(ctx, b, "forebay", how)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if _, err := produce(warmUp, func() error { return f.submit(ctx) }); err != nil {
		return nil, err
	}
	slow := make([]time.Duration, pace*b.size(5, 3))
	if err := paced(ctx, pace, len(slow), func(i int, due time.Time) error {
		err := f.submit(ctx)
		slow[i] = time.Since(due)
		return err
	}); err != nil {
		return nil, err
	}
	begun, jobs := time.Now(), b.size(8000, 4000)
	burst, err := produce(jobs, func() error { return f.submit(ctx) })
	if err != nil {
		return nil, err
	}
	rate := float64(jobs) / time.Since(begun).Seconds()
	slices.Sort(slow)
	slices.Sort(burst)
	return sample{
		"paced p50 ms": percentile(slow, 0.5), "paced p99 ms": percentile(slow, 0.99), "paced p99.9 ms": percentile(slow, 0.999),
		"burst submits/s": rate,
		"burst p50 ms":    percentile(burst, 0.5), "burst p99 ms": percentile(burst, 0.99), "burst p99.9 ms": percentile(burst, 0.999),
	}, nil
}
