package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// snapshot measures how a transaction that stays open slows claims. While it lasts, PostgreSQL
// cannot clean up deleted or replaced rows.
func snapshot(ctx context.Context, b *bench) (table, error) {
	const rate = 1000 // jobs a second
	span := time.Duration(b.size(60, 15)) * time.Second
	const p99, idle, none = "p99 ms", "with an open transaction", "without"
	t := table{
		title: "From enqueue to the start of the handler beside an idle transaction, on PostgreSQL",
		text: fmt.Sprintf(`%s jobs/s for %v, in process. Another connection has begun a transaction (repeatable read, one SELECT on every table) just before
and leaves it open all the time. Counted are the jobs of the second half, when most dead rows lie about.`, format(rate), span),
		columns: []string{"p50 ms", p99, "highest ms"},
	}
	pg, err := b.postgres(ctx)
	if err != nil {
		return t, err
	}
	jobs := int(span.Seconds()) * rate
	round := func(open bool) func(context.Context) (sample, error) {
		return func(ctx context.Context) (s sample, err error) {
			st := newStarts(jobs)
			e, err := startEmbedded(ctx, b, pg, nil, st.task())
			if err != nil {
				return nil, err
			}
			if open {
				release, err := hold(ctx, e.place.database)
				if err != nil {
					return nil, errors.Join(err, e.stop())
				}
				defer func() { err = errors.Join(err, release()) }()
			}
			err = paced(ctx, rate, jobs, func(i int, _ time.Time) error { return st.submit(ctx, e, i) })
			return st.sample(ctx, jobs/2, err, e.stop)
		}
	}
	if err := t.takeTurns(ctx, b.size(2, 1), contender{none, round(false)}, contender{idle, round(true)}); err != nil {
		return t, err
	}
	t.expect("p99 with an open transaction as a multiple of that without", t.median(idle, p99)/t.median(none, p99), "<", 2)
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
