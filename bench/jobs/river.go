package jobs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite"

	"github.com/forebayhq/forebay/bench/embedded"
	"github.com/forebayhq/forebay/bench/measure"
)

// riverVersion is what docs/benchmarks.md has figures of. On PostgreSQL 0.51 was not faster.
const riverVersion = "0.31"

// riverArgs is a job of River's: 1 KiB of payload, or a number for those who watch the clock.
type riverArgs struct {
	Payload string `json:"payload,omitempty"`
	Number  int    `json:"number"`
}

func (riverArgs) Kind() string { return "life" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	work func(context.Context, riverArgs) error
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	return w.work(ctx, job.Args)
}

// riverDatabase is a database with River's tables. T is its driver's transaction.
type riverDatabase[T any] struct {
	driver    riverdriver.Driver[T]
	on        measure.Engine
	address   string // of PostgreSQL
	producers int
	workers   int
	poll      time.Duration // how often River looks for jobs unasked
	release   func() error
}

// migrated adds River's tables.
func (d riverDatabase[T]) migrated(ctx context.Context) (riverDatabase[T], error) {
	migrator, err := rivermigrate.New(d.driver, &rivermigrate.Config{Logger: riverLog})
	if err != nil {
		return d, err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return d, err
}

var riverLog = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

// riverSQLite returns what opens a SQLite database as durable as Forebay's. An insert through the
// same client wakes River in any case, and faster polling slows it down.
func riverSQLite(b *measure.Bench) func(context.Context) (riverDatabase[*sql.Tx], error) {
	return func(ctx context.Context) (d riverDatabase[*sql.Tx], err error) {
		dir, err := os.MkdirTemp(b.Dir, "river-")
		if err != nil {
			return d, err
		}
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "river.db")+
			"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)")
		if err != nil {
			return d, err
		}
		db.SetMaxOpenConns(1) // as River's documentation asks
		if err := checkDurable(db); err != nil {
			return d, err
		}
		return riverDatabase[*sql.Tx]{
			driver: riversqlite.New(db), on: b.SQLite(), producers: measure.Workers, workers: measure.Workers, poll: 50 * time.Millisecond,
			release: func() error { return errors.Join(db.Close(), os.RemoveAll(dir)) },
		}.migrated(ctx)
	}
}

// checkDurable makes sure that the settings in the database's address took effect.
func checkDurable(db *sql.DB) error {
	var mode string
	var synchronous int
	if err := db.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if err := db.QueryRow("PRAGMA synchronous").Scan(&synchronous); err != nil {
		return err
	}
	if mode != "wal" || synchronous != 2 {
		return fmt.Errorf("River's database has journal_mode=%s and synchronous=%d", mode, synchronous)
	}
	return nil
}

// riverTuning is what River's users can choose on PostgreSQL.
type riverTuning struct {
	producers, workers int
	conns              int32 // in the pool
	poll               time.Duration
}

// riverPostgres opens a database on the engine's server.
func riverPostgres(ctx context.Context, pg *measure.PostgresEngine, tuning riverTuning) (d riverDatabase[pgx.Tx], err error) {
	place, err := pg.Place(ctx)
	if err != nil {
		return d, err
	}
	config, err := pgxpool.ParseConfig(place.Database)
	if err != nil {
		return d, err
	}
	config.MaxConns = tuning.conns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return d, err
	}
	return riverDatabase[pgx.Tx]{
		driver: riverpgxv5.New(pool), on: pg, address: place.Database, producers: tuning.producers, workers: tuning.workers, poll: tuning.poll,
		release: func() error {
			pool.Close()
			return place.Release()
		},
	}.migrated(ctx)
}

// riverClient is River, running.
type riverClient[T any] struct {
	*river.Client[T]
	database riverDatabase[T]
}

// start runs River on the database.
func (d riverDatabase[T]) start(ctx context.Context, work func(context.Context, riverArgs) error) (riverClient[T], error) {
	registered := river.NewWorkers()
	river.AddWorker(registered, &riverWorker{work: work})
	c, err := river.NewClient(d.driver, &river.Config{
		Logger: riverLog, Workers: registered, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: d.workers}},
		FetchCooldown: river.FetchCooldownMin, FetchPollInterval: d.poll, JobTimeout: -1,
	})
	if err != nil {
		return riverClient[T]{}, err
	}
	return riverClient[T]{c, d}, c.Start(ctx)
}

// riverLife is forebayLife with River, on a database of its own.
func riverLife[T any](ctx context.Context, b *measure.Bench, open func(context.Context) (riverDatabase[T], error), jobs int) (measure.Sample, error) {
	d, err := open(ctx)
	if err != nil {
		return nil, err
	}
	s, err := d.live(ctx, b, jobs)
	return s, errors.Join(err, d.release())
}

// live is what embedded.Server does by the same name, with River.
func (d riverDatabase[T]) live(ctx context.Context, b *measure.Bench, jobs int) (s measure.Sample, err error) {
	if err := d.on.Prepare(ctx); err != nil {
		return nil, err
	}
	var g embedded.Gate
	c, err := d.start(ctx, func(ctx context.Context, _ riverArgs) error {
		if g.Pass(ctx) != nil {
			return river.JobSnooze(0) // the round is over: the job waits for the next one
		}
		return river.RecordOutput(ctx, measure.Text)
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.StopAndCancel(context.WithoutCancel(ctx))) }()
	// River tells of a job once it is recorded as completed.
	completed, unsubscribe := c.SubscribeConfig(&river.SubscribeConfig{ChanSize: jobs, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer unsubscribe()
	m := measure.StartMeter(b.Dir, d.on)
	g.Open(jobs)
	enqueue, err := measure.ProduceFrom(d.producers, jobs, func() error {
		_, err := c.Insert(ctx, riverArgs{Payload: measure.Text}, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	for range jobs {
		select {
		case <-completed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return m.Stop(jobs, enqueue), nil
}
