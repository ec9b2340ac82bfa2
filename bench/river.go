package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite"
)

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

// riverClient is River on a SQLite database of its own, as durable as Forebay.
type riverClient struct {
	*river.Client[*sql.Tx]
	db  *sql.DB
	dir string
}

func startRiver(ctx context.Context, b *bench, work func(context.Context, riverArgs) error) (*riverClient, error) {
	dir, err := os.MkdirTemp(b.dir, "river-")
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "river.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // as River's documentation asks
	if err := checkDurable(db); err != nil {
		return nil, err
	}
	driver := riversqlite.New(db)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: log})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	registered := river.NewWorkers()
	river.AddWorker(registered, &riverWorker{work: work})
	c, err := river.NewClient(driver, &river.Config{
		Logger: log, Workers: registered, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		FetchCooldown: river.FetchCooldownMin, FetchPollInterval: riverPoll,
	})
	if err != nil {
		return nil, err
	}
	return &riverClient{c, db, dir}, nil
}

// riverPoll is how often River looks for jobs unasked. An insert through the same client wakes it
// anyway; polling faster than this slows it down.
const riverPoll = 50 * time.Millisecond

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

func (c *riverClient) close(ctx context.Context) error {
	err := c.Stop(ctx)
	c.db.Close()
	os.RemoveAll(c.dir)
	return err
}

// riverLife is forebayLife with River.
func riverLife(ctx context.Context, b *bench, jobs int) (sample, error) {
	text := string(payload[1 : len(payload)-1])
	c, err := startRiver(ctx, b, func(ctx context.Context, _ riverArgs) error { return river.RecordOutput(ctx, text) })
	if err != nil {
		return nil, err
	}
	// River tells of a job once it is recorded as completed.
	completed, unsubscribe := c.SubscribeConfig(&river.SubscribeConfig{ChanSize: jobs, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer unsubscribe()
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	m := startMeter(b.dir)
	enqueue, err := produce(jobs, func() error {
		_, err := c.Insert(ctx, riverArgs{Payload: text}, nil)
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
	return m.stop(jobs, enqueue), c.close(ctx)
}
