//go:build unix

package stores_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/stores"
)

// standby is a server whose commits can be made to wait for a standby that there is not.
type standby struct {
	t      *testing.T
	admin  *pgx.Conn
	probe  *pgx.Conn // commits, to see whether commits wait
	warned bool      // by the server
	url    string
}

func newStandby(t *testing.T) *standby {
	cluster := pgtest.New(t, nil)
	config, err := pgx.ParseConfig(cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	s := &standby{t: t}
	config.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { s.warned = true }
	for _, c := range []**pgx.Conn{&s.admin, &s.probe} {
		if *c, err = pgx.ConnectConfig(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*c).Close(context.WithoutCancel(t.Context())) })
	}
	s.url = cluster.Database(t)
	return s
}

// names has the server wait for these standbys from now on.
func (s *standby) names(names string) {
	s.t.Helper()
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = '" + names + "'", "SELECT pg_reload_conf()"} {
		if _, err := s.admin.Exec(s.t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			s.t.Fatal(err)
		}
	}
	s.until("the setting", "SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = '"+names+"'")
	// Another process of the server tells all the others that they have to wait.
	for s.warned = false; names != "" && !s.warned; {
		done := make(chan error, 1)
		go func() {
			_, err := s.probe.Exec(s.t.Context(), "SELECT pg_logical_emit_message(true, 'test', '')", pgx.QueryExecModeSimpleProtocol)
			done <- err
		}()
		for waits := true; waits; {
			select {
			case err := <-done:
				if err != nil {
					s.t.Fatal(err)
				}
				waits = false
			case <-time.After(5 * time.Millisecond):
				s.count(sqlStopWaits("pg_cancel_backend"))
			}
		}
	}
}

// sqlStopWaits ends all waits for a standby by a function of the server, and counts them.
func sqlStopWaits(function string) string {
	return "SELECT count(*) FROM pg_stat_activity WHERE CASE WHEN wait_event = 'SyncRep' THEN " + function + "(pid) END"
}

func (s *standby) count(sql string) (n int) {
	s.t.Helper()
	if err := s.admin.QueryRow(s.t.Context(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// until runs a query until it counts something.
func (s *standby) until(what, sql string) {
	s.t.Helper()
	for start := time.Now(); ; <-time.After(5 * time.Millisecond) {
		if s.count(sql) > 0 {
			return
		}
		if time.Since(start) > time.Minute {
			s.t.Fatalf("%s did not come", what)
		}
	}
}

// stopping runs f and ends its commit's wait for the standby by a function of the server.
func (s *standby) stopping(function string, f func() error) error {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	s.until("a commit that waits", sqlStopWaits(function))
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		s.t.Fatal("the commit did not end")
		return nil
	}
}

// A commit whose wait for the standby was ended early is no success, whoever made it. A repeat
// is none either, before the standby has it.
func TestCommitThatNoStandbyConfirmed(t *testing.T) {
	t.Parallel()
	for _, function := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
		t.Run(function, func(t *testing.T) {
			t.Parallel()
			server := newStandby(t)
			s, tenant, queue := openWith(t, db.Options{URL: server.url, Serve: true})
			job := []jobs.NewJob{{ID: "job_first", Tenant: tenant, Queue: queue, Task: "echo", MaxAttempts: 1, Input: []byte("1"), InputSize: 1,
				IdempotencyKey: "order-7", BodyHash: []byte("hash")}}
			submit := func() error {
				results, err := s.Jobs.Submit(t.Context(), job)
				if err == nil && results[0].Err == nil && results[0].ID != "job_first" {
					t.Errorf("the key made %s", results[0].ID)
				}
				return err
			}
			server.names("nobody")
			for _, made := range []struct {
				what string
				by   func() error
			}{
				{"a submit", submit},
				{"its repeat", submit},
				{"a change by the other writer", func() error { _, err := s.Queues.EnsureQueue(t.Context(), "other"); return err }},
			} {
				if err := server.stopping(function, made.by); forebay.CodeOf(err) != forebay.CodeUnavailable {
					t.Errorf("%s was answered with %v", made.what, err)
				}
				job[0].ID = "job_second"
			}
			server.names("")
			if err := submit(); err != nil {
				t.Errorf("the repeat when the standby was back: %v", err)
			}
			page, err := s.Jobs.Jobs(t.Context(), jobs.JobQuery{Tenant: tenant, Limit: 10})
			if err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != "job_first" {
				t.Errorf("%v: %+v", err, page.Jobs)
			}
		})
	}
}

// A transaction whose statements turn out to have changed nothing waits for the standby like
// one that wrote: its caller is told what it found.
func TestTransactionThatChangedNothingWaits(t *testing.T) {
	t.Parallel()
	server := newStandby(t)
	s, _, queue := openWith(t, db.Options{URL: server.url, Serve: true})
	server.names("nobody")
	for _, sql := range []string{
		"INSERT INTO queues (no, name, created_at) SELECT no, 'none', 0 FROM queues WHERE no = ?",
		"INSERT INTO queues (no, name, created_at) VALUES (?, 'default', 0) ON CONFLICT DO NOTHING",
		"UPDATE queues SET paused = 1 WHERE no = ?",
		"DELETE FROM queues WHERE no = ?",
	} {
		err := server.stopping("pg_cancel_backend", func() error {
			_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *db.Tx) (struct{}, error) { return struct{}{}, tx.Prep(sql).Int(queue + 1000).Exec() })
			return err
		})
		if forebay.CodeOf(err) != forebay.CodeUnavailable {
			t.Errorf("%s was answered with %v", sql, err)
		}
	}
	server.names("")
}

// What else commits goes by the same answer: migrations, and each chunk of a copy.
func TestMigrationThatNoStandbyConfirmed(t *testing.T) {
	t.Parallel()
	server := newStandby(t)
	server.names("nobody")
	err := server.stopping("pg_cancel_backend", func() error {
		s, err := stores.Open(t.Context(), db.Options{URL: server.url})
		if err == nil {
			s.DB.Close()
		}
		return err
	})
	server.names("") // or nothing could be dropped
	if forebay.CodeOf(err) != forebay.CodeUnavailable {
		t.Errorf("opening a database whose migration is not confirmed: %v", err)
	}
}
