package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
)

// reported is how long to wait until even idle connections have reported to PostgreSQL's
// statistics, which they do after 10 s.
const reported = 12 * time.Second

// Processes measures what three servers with nothing to do ask of one PostgreSQL.
func Processes(ctx context.Context, b *measure.Bench) (t measure.Table, err error) {
	span := time.Duration(b.Size(30, 10)) * time.Second
	const count, jobs = 3, 1000
	t = measure.Table{
		Title: "Three idle processes on one PostgreSQL",
		Text: fmt.Sprintf(`Three servers on one database have finished 1,000 jobs over HTTP (the first row: while they do), and are left alone for %v
after %v of rest. Transactions are the database's, from pg_stat_database: with nothing to do, each is a statement or two.
CPU is that of the three together and, of it, PostgreSQL's, which has its own background work.`, span, reported),
		Columns: []string{"transactions/s", "CPU ms/s", "of it PostgreSQL"},
	}
	pg, err := b.Postgres(ctx)
	if err != nil {
		return t, err
	}
	place, err := pg.Place(ctx)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, place.Release()) }()
	var servers []*serving.Service
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.Close())
		}
	}()
	for range count {
		s, err := serving.StartServiceOn(ctx, b, "forebay", serving.Behaviour{}, place)
		if err != nil {
			return t, err
		}
		servers = append(servers, s)
	}
	rest := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	watch := func(name string, f, settle func() error) error {
		s, err := watchServers(ctx, pg, place.Database, servers, f, settle)
		t.Rows = append(t.Rows, measure.Row{Name: name, Samples: []measure.Sample{s}})
		return err
	}
	err = watch("running the 1,000 jobs", func() error {
		_, err := measure.Produce(jobs, func() error { return servers[0].Submit(ctx) })
		for _, s := range servers {
			defer s.CloseIdleConnections()
		}
		return errors.Join(err, servers[0].Recorded(ctx, 0))
	}, func() error { return rest(reported) })
	if err != nil {
		return t, err
	}
	const idle = "idle"
	if err := watch(idle, func() error { return rest(span) }, func() error { return nil }); err != nil {
		return t, err
	}
	t.Expect("transactions a second of an idle process", t.Median(idle, "transactions/s")/count, "<", 2)
	return t, nil
}

// watchServers says what the servers ask of the database while f runs. The database knows it after
// settle.
func watchServers(ctx context.Context, pg *measure.PostgresEngine, database string, servers []*serving.Service, f, settle func() error) (measure.Sample, error) {
	cpu := func() (own, engine time.Duration, err error) {
		for _, s := range servers {
			u, err := measure.UsageOf(s.PID)
			if err != nil {
				return 0, 0, err
			}
			own += u.CPU
		}
		return own, pg.CPU(), nil
	}
	transactions, err := transactionsOf(ctx, pg, database)
	if err != nil {
		return nil, err
	}
	own, engine, err := cpu()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := f(); err != nil {
		return nil, err
	}
	seconds := time.Since(begun).Seconds()
	ownAfter, engineAfter, err := cpu()
	if err != nil {
		return nil, err
	}
	if err := settle(); err != nil {
		return nil, err
	}
	after, err := transactionsOf(ctx, pg, database)
	own, engine = ownAfter-own, engineAfter-engine
	return measure.Sample{
		"transactions/s":   (after - transactions) / seconds,
		"CPU ms/s":         (own + engine).Seconds() * 1000 / seconds,
		"of it PostgreSQL": engine.Seconds() * 1000 / seconds,
	}, err
}

// transactionsOf is how many transactions the database has seen. It asks from another database, so
// that the question is not counted.
func transactionsOf(ctx context.Context, pg *measure.PostgresEngine, database string) (n float64, err error) {
	config, err := pgx.ParseConfig(database)
	if err != nil {
		return 0, err
	}
	err = pg.Query(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1", config.Database).Scan(&n)
	})
	return n, err
}
