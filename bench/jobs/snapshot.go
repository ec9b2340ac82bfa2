package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forebayhq/forebay/bench/embedded"
	"github.com/forebayhq/forebay/bench/measure"
)

// Snapshot measures how a transaction that stays open slows claims. While it lasts, PostgreSQL
// cannot clean up deleted or replaced rows.
func Snapshot(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	const rate = 1000 // jobs a second
	span := time.Duration(b.Size(60, 15)) * time.Second
	const p99, idle, none = "p99 ms", "with an open transaction", "without"
	t := measure.Table{
		Title: "From enqueue to the start of the handler beside an idle transaction, on PostgreSQL",
		Text: fmt.Sprintf(`%s jobs/s for %v, in process. Another connection has begun a transaction (repeatable read, one SELECT on every table) just before
and leaves it open all the time. Counted are the jobs of the second half, when most dead rows lie about.`, measure.Format(rate), span),
		Columns: []string{"p50 ms", p99, "highest ms"},
	}
	pg, err := b.Postgres(ctx)
	if err != nil {
		return t, err
	}
	jobs := int(span.Seconds()) * rate
	round := func(open bool) func(context.Context) (measure.Sample, error) {
		return func(ctx context.Context) (s measure.Sample, err error) {
			st := newStarts(jobs)
			e, err := embedded.Start(ctx, b, pg, nil, st.task())
			if err != nil {
				return nil, err
			}
			if open {
				release, err := hold(ctx, e.Place.Database)
				if err != nil {
					return nil, errors.Join(err, e.Stop())
				}
				defer func() { err = errors.Join(err, release()) }()
			}
			err = measure.Paced(ctx, rate, jobs, func(i int, _ time.Time) error { return st.submit(ctx, e, i) })
			return st.sample(ctx, jobs/2, err, e.Stop)
		}
	}
	if err := t.TakeTurns(ctx, b.Size(2, 1), measure.Contender{Name: none, Round: round(false)}, measure.Contender{Name: idle, Round: round(true)}); err != nil {
		return t, err
	}
	t.Expect("p99 with an open transaction as a multiple of that without", t.Median(idle, p99)/t.Median(none, p99), "<", 2)
	return t, nil
}

// hold opens a transaction that has seen every table, and leaves it open until release.
func hold(ctx context.Context, database string) (release func() error, err error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	release = func() error { return conn.Close(context.WithoutCancel(ctx)) }
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err != nil {
		return nil, errors.Join(err, release())
	}
	rows, _ := conn.Query(ctx, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range tables {
		if err == nil {
			_, err = conn.Exec(ctx, "SELECT 1 FROM "+pgx.Identifier{name}.Sanitize()+" LIMIT 1")
		}
	}
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}
