package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
)

// OverHTTP measures jobs that call a model over HTTP.
func OverHTTP(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	t := measure.Table{
		Title: "Over HTTP, with a loopback model",
		Text: `64 keep-alive clients send ` + "`POST /v1/jobs`" + ` (task chat, a short question); the server calls a loopback model by HTTP
(an answer of eight streamed tokens); the clock stops when the last result is recorded. Bulk: 8 clients send NDJSON of ` +
			fmt.Sprint(serving.BulkLines) + ` jobs
a request to ` + "`POST /v1/jobs/bulk`" + `. Bare: the same clients, and a net/http handler that makes the same call with net/http,
reads it to its end and answers; nothing is stored, nothing is parsed. The server has a process of its own; clients and model
share the other.`,
		Columns: []string{measure.JobRate, "submit p50 ms", "submit p99 ms", "server CPU µs/job"},
	}
	jobs := b.Size(8000, 4000)
	contenders := []measure.Contender{
		{Name: "Forebay", Round: func(ctx context.Context) (measure.Sample, error) { return forebayRate(ctx, b, jobs, false) }},
		{Name: "Forebay, bulk submit", Round: func(ctx context.Context) (measure.Sample, error) { return forebayRate(ctx, b, jobs, true) }},
	}
	if b.Peers {
		contenders = append(contenders, measure.Contender{Name: "bare HTTP calls", Round: func(ctx context.Context) (measure.Sample, error) { return bareRate(ctx, jobs) }})
	}
	if err := t.TakeTurns(ctx, b.Rounds, contenders...); err != nil {
		return t, err
	}
	bare := t.Median("bare HTTP calls", measure.JobRate)
	t.Expect("Forebay's rate as a share of the bare calls'", t.Median("Forebay", measure.JobRate)/bare, "≥", 0.5)
	t.Expect("with bulk submit", t.Median("Forebay, bulk submit", measure.JobRate)/bare, "≥", 0.5)
	return t, nil
}

func forebayRate(ctx context.Context, b *measure.Bench, jobs int, bulk bool) (s measure.Sample, err error) {
	f, err := serving.StartService(ctx, b, "forebay", serving.Behaviour{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := measure.Produce(serving.WarmUp, func() error { return f.Submit(ctx) }); err != nil {
		return nil, err
	}
	if err := f.Recorded(ctx, serving.WarmUp); err != nil {
		return nil, err
	}
	s, err = timed(f, jobs, func() (took []time.Duration, err error) {
		if bulk {
			err = f.SubmitBulk(ctx, jobs)
		} else {
			took, err = measure.Produce(jobs, func() error { return f.Submit(ctx) })
		}
		return took, errors.Join(err, f.Recorded(ctx, int64(serving.WarmUp+jobs)))
	})
	return s, errors.Join(err, f.Succeeded(ctx, serving.WarmUp+jobs))
}

func bareRate(ctx context.Context, jobs int) (s measure.Sample, err error) {
	bare, err := serving.StartService(ctx, nil, "bare", serving.Behaviour{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	call := func() error { return bare.Submit(ctx) }
	if _, err := measure.Produce(serving.WarmUp, call); err != nil {
		return nil, err
	}
	return timed(bare, jobs, func() ([]time.Duration, error) { return measure.Produce(jobs, call) })
}

// timed measures what the service takes to do f for so many jobs.
func timed(s *serving.Service, jobs int, f func() ([]time.Duration, error)) (measure.Sample, error) {
	before, err := measure.UsageOf(s.PID)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	submits, err := f()
	took := time.Since(begun)
	if err != nil {
		return nil, err
	}
	after, err := measure.UsageOf(s.PID)
	if err != nil {
		return nil, err
	}
	n := float64(jobs)
	m := measure.Sample{measure.JobRate: n / took.Seconds(), "server CPU µs/job": (after.CPU - before.CPU).Seconds() * 1e6 / n}
	if len(submits) > 0 {
		slices.Sort(submits)
		m["submit p50 ms"], m["submit p99 ms"] = measure.Percentile(submits, 0.5), measure.Percentile(submits, 0.99)
	}
	return m, nil
}
