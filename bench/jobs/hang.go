package jobs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
)

// HangingModels measures what submitting takes while no model answers.
func HangingModels(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	t := measure.Table{
		Title: "Submit over HTTP while every model hangs",
		Text: `First one submit every 5 ms, each timed from when it was due; then 64 clients submit as fast as they can. The model reads
every call and never answers; beside it, one that answers at once.`,
		Columns: []string{"paced p50 ms", "paced p99 ms", "paced p99.9 ms", "burst submits/s", "burst p50 ms", "burst p99 ms", "burst p99.9 ms"},
	}
	contenders := []measure.Contender{{Name: "every model hangs", Round: func(ctx context.Context) (measure.Sample, error) {
		return submitting(ctx, b, serving.Behaviour{Hang: true})
	}}}
	if b.Peers {
		contenders = append(contenders, measure.Contender{Name: "the model answers", Round: func(ctx context.Context) (measure.Sample, error) { return submitting(ctx, b, serving.Behaviour{}) }})
	}
	if err := t.TakeTurns(ctx, min(3, b.Rounds), contenders...); err != nil {
		return t, err
	}
	t.Note("p99 of the paced submits, hanging / answering: %s", measure.Format(t.Median("every model hangs", "paced p99 ms")/t.Median("the model answers", "paced p99 ms")))
	return t, nil
}

func submitting(ctx context.Context, b *measure.Bench, how serving.Behaviour) (s measure.Sample, err error) {
	f, err := serving.StartService(ctx, b, "forebay", how)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := measure.Produce(serving.WarmUp, func() error { return f.Submit(ctx) }); err != nil {
		return nil, err
	}
	slow := make([]time.Duration, pace*b.Size(5, 3))
	if err := measure.Paced(ctx, pace, len(slow), func(i int, due time.Time) error {
		err := f.Submit(ctx)
		slow[i] = time.Since(due)
		return err
	}); err != nil {
		return nil, err
	}
	begun, jobs := time.Now(), b.Size(8000, 4000)
	burst, err := measure.Produce(jobs, func() error { return f.Submit(ctx) })
	if err != nil {
		return nil, err
	}
	rate := float64(jobs) / time.Since(begun).Seconds()
	slices.Sort(slow)
	slices.Sort(burst)
	return measure.Sample{
		"paced p50 ms": measure.Percentile(slow, 0.5), "paced p99 ms": measure.Percentile(slow, 0.99), "paced p99.9 ms": measure.Percentile(slow, 0.999),
		"burst submits/s": rate,
		"burst p50 ms":    measure.Percentile(burst, 0.5), "burst p99 ms": measure.Percentile(burst, 0.99), "burst p99.9 ms": measure.Percentile(burst, 0.999),
	}, nil
}
