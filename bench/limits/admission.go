package limits

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/embedded"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/server"
)

// Admission measures what it costs a job that it is admitted before it is called.
func Admission(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	const free, limited = ", no model", ", admitted"
	t := measure.Table{
		Title: "What admission costs a call",
		Text: `The full life of a 1 KiB job, in process, as in the first measurement: once as a function that calls no model, once as one whose
model has a deployment with limits of tokens and requests a minute that are never reached, so that each job is admitted as it is
claimed and its outcome is taken in as it is settled. Nothing is called. Reads and writes are those of the deployment's row, from
PostgreSQL's statistics; SQLite's writer is the only one and remembers what it wrote.`,
		Columns: []string{measure.JobRate, "CPU µs/job", measure.EngineShare, "enqueue p99 ms", "state reads/job", "state writes/job"},
	}
	pg, err := b.Postgres(ctx)
	if err != nil {
		return t, err
	}
	var contenders []measure.Contender
	for _, on := range []struct {
		name string
		measure.Engine
	}{{"SQLite", b.SQLite()}, {"PostgreSQL", pg}} {
		for _, admitted := range []bool{false, true} {
			name := on.name + free
			if admitted {
				name = on.name + limited
			}
			contenders = append(contenders, measure.Contender{Name: name, Round: func(ctx context.Context) (measure.Sample, error) {
				return admissionLife(ctx, b, on.Engine, admitted, b.Size(20_000, 10_000))
			}})
		}
	}
	if err := t.TakeTurns(ctx, b.Rounds, contenders...); err != nil {
		return t, err
	}
	for _, on := range []string{"SQLite", "PostgreSQL"} {
		t.Note("%s: admission costs %s µs of CPU a job; the rate is %.2f of that without", on,
			measure.Format(t.Median(on+limited, "CPU µs/job")-t.Median(on+free, "CPU µs/job")), t.Median(on+limited, measure.JobRate)/t.Median(on+free, measure.JobRate))
	}
	return t, nil
}

// limitedModel is what the task "life" calls when it is to be admitted.
const limitedModel = "limited"

func admissionLife(ctx context.Context, b *measure.Bench, on measure.Engine, admitted bool, jobs int) (measure.Sample, error) {
	e, err := embedded.StartAs(ctx, b, on, func(o *server.Options) {
		if !admitted {
			return
		}
		o.Deployments = []server.Deployment{{Name: limitedModel, Provider: server.ProviderOpenAI, Endpoint: "http://127.0.0.1:9/v1", Model: "none",
			TokensPerMinute: 2_000_000_000, RequestsPerMinute: 2_000_000}}
		o.Models = map[string]server.Model{limitedModel: server.InOrder(limitedModel)}
		life := &o.Functions[len(o.Functions)-1]
		run := life.Run
		life.Model = limitedModel
		life.Run = func(ctx context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
			used := quota.Usage{PromptTokens: int64(len(call.Input)) / forebay.BytesPerToken, OutputTokens: 10}
			quota.CallOf(ctx).Outcome = &quota.Outcome{Kind: quota.Succeeded, Usage: used}
			return run(ctx, call)
		}
	})
	if err != nil {
		return nil, err
	}
	s, err := e.Live(ctx, jobs)
	if stopErr := e.StopBefore(func() error {
		if _, ok := on.(*measure.PostgresEngine); ok && err == nil {
			return stateTraffic(ctx, e.Place.Database, jobs, s)
		}
		return nil
	}); err == nil {
		err = stopErr
	}
	return s, err
}

// stateTraffic adds how often the states of deployments were read and written for each job.
func stateTraffic(ctx context.Context, database string, jobs int, s measure.Sample) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	var reads, writes float64
	err = conn.QueryRow(ctx, `SELECT seq_scan + coalesce(idx_scan, 0), n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'deployment_states'`).Scan(&reads, &writes)
	// A read looks for the place of a name, then for its rows there.
	s["state reads/job"], s["state writes/job"] = (reads-writes)/2/float64(jobs), writes/float64(jobs)
	return errors.Join(err, conn.Close(ctx))
}
