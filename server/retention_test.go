//go:build unix

package server_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// A job whose retention has ended is gone after the next start. A job that is dead-lettered stays,
// and so does one with unlimited retention.
func TestOldJobsArePurged(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := servertest.DatabaseFile(t)
		testOldJobsArePurged(t, "sqlite:"+path, func(script string) { theirs(t, path, script) })
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		address := dbtest.Postgres(t)
		testOldJobsArePurged(t, address, func(script string) {
			c, err := pgx.Connect(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.WithoutCancel(t.Context()))
			if _, err := c.Exec(t.Context(), "SET search_path = forebay; "+script); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// aMonth makes everything a month older.
const aMonth = `
UPDATE jobs SET created_at = created_at - 2592000000;
UPDATE outcomes SET completed_at = completed_at - 2592000000;
UPDATE messages SET visible_at = visible_at - 2592000000`

func testOldJobsArePurged(t *testing.T, database string, run func(script string)) {
	ctx := t.Context()
	opts := server.Options{Database: database, Blob: t.TempDir(), Functions: []forebay.Task{
		{Name: "good", Run: func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
			return forebay.TaskResult{Output: []byte(`"done"`)}, nil
		}},
		{Name: "bad", MaxAttempts: 1, Run: func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
			return forebay.TaskResult{}, errors.New("no")
		}},
	}}
	var good, bad, cancelled forebay.Job
	running(t, opts, func(s *server.Server) {
		good, bad = servertest.Await(t, s, servertest.Submit(t, s, "good", "x").ID), servertest.Await(t, s, servertest.Submit(t, s, "bad", "x").ID)
		later := time.Now().Add(time.Hour)
		var err error
		if cancelled, err = s.Submit(ctx, forebay.DefaultTenant, forebay.SubmitRequest{Task: "good", Input: []byte("1"), ScheduledAt: &later}); err != nil {
			t.Fatal(err)
		}
	})
	if good.Status != forebay.StatusSucceeded || bad.Status != forebay.StatusFailed {
		t.Fatalf("%s, %s", good.Status, bad.Status)
	}
	keep := 20 * 24 * time.Hour
	run("DELETE FROM counters WHERE name LIKE 'turn/purge %'") // what is kept otherwise is purged at once
	for _, c := range []struct {
		name      string
		retention server.Retention
		gone      []forebay.Job
	}{
		{"90 days unless configured", server.Retention{}, nil},
		{"succeeded for ever", server.Retention{Succeeded: new(time.Duration(0)), Failed: &keep}, nil},
		{"succeeded", server.Retention{Succeeded: &keep}, []forebay.Job{good}},
		{"set aside", server.Retention{Succeeded: &keep, SetAside: &keep}, []forebay.Job{good, bad}},
	} {
		if c.name == "succeeded for ever" {
			run(aMonth)
		}
		purges := purgeLog{make(chan struct{}, 1)}
		opts.Logger, opts.Retention = slog.New(purges), c.retention
		running(t, opts, func(s *server.Server) {
			select {
			case <-purges.done:
			case <-time.After(time.Minute):
				t.Fatalf("%s: no purge", c.name)
			}
			for _, job := range []forebay.Job{good, bad, cancelled} {
				want := error(nil)
				for _, gone := range c.gone {
					if gone.ID == job.ID {
						want = forebay.ErrNotFound
					}
				}
				if _, err := s.Wait(ctx, forebay.DefaultTenant, job.ID, 0); !errors.Is(err, want) {
					t.Errorf("%s: %s: %v", c.name, job.Task, err)
				}
			}
		})
	}
}

// running runs a server for as long as f takes.
func running(t *testing.T, opts server.Options, f func(*server.Server)) {
	t.Helper()
	opts.Listen = "127.0.0.1:0"
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := server.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	f(s)
}

// purgeLog hears that the jobs were purged.
type purgeLog struct{ done chan struct{} }

func (purgeLog) Enabled(context.Context, slog.Level) bool { return true }
func (p purgeLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "purged old jobs" {
		p.done <- struct{}{}
	}
	return nil
}
func (p purgeLog) WithAttrs([]slog.Attr) slog.Handler { return p }
func (p purgeLog) WithGroup(string) slog.Handler      { return p }
