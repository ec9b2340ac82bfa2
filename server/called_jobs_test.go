package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// execute changes a database that no server uses.
func execute(t *testing.T, database, sql string) {
	t.Helper()
	if path, ok := strings.CutPrefix(database, "sqlite:"); ok {
		conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
		if err == nil {
			err = errors.Join(sqlitex.ExecuteTransient(conn, sql, nil), conn.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "SET search_path = forebay"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// A job that an orchestration calls is submitted once, whatever happens to the processes, and its
// end reaches the instance.
func TestCalledJobs(t *testing.T) {
	for kind, database := range map[string]func(t *testing.T) string{
		"sqlite":     func(t *testing.T) string { return "sqlite:" + dbtest.SQLite(t) },
		"postgresql": func(t *testing.T) string { return dbtest.Postgres(t) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testCalledJobs(t, database(t))
		})
	}
}

func testCalledJobs(t *testing.T, database string) {
	var runs atomic.Int32
	begun, open, cut := make(chan struct{}, 10), make(chan struct{}), make(chan struct{})
	task := forebay.Task{Name: "work", MaxAttempts: 1, Run: func(ctx context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
		var how string
		if err := json.Unmarshal(call.Input, &how); err != nil {
			return forebay.TaskResult{}, err
		}
		runs.Add(1)
		switch how {
		case "fail":
			return forebay.TaskResult{}, &forebay.TaskError{Class: forebay.ClassPermanent, Code: "refused", Message: "it was refused"}
		case "hang":
			begun <- struct{}{}
			<-ctx.Done()
			close(cut)
			return forebay.TaskResult{}, ctx.Err()
		case "wait":
			begun <- struct{}{}
			select {
			case <-open:
			case <-ctx.Done():
				return forebay.TaskResult{}, ctx.Err()
			}
		}
		return forebay.TaskResult{Output: json.RawMessage(`{"how": "` + how + `"}`)}, nil
	}}
	call := server.NewOrchestrator("call", func(o *server.Orchestration, in [2]string) (json.RawMessage, error) {
		return server.CallTask[json.RawMessage](o, in[0], in[1], server.TaskOptions{})
	})
	blobs := t.TempDir()
	run := func() (*server.Server, func()) {
		s, err := server.New(server.Options{
			Database: database, Listen: "127.0.0.1:0", Blob: "file://" + filepath.ToSlash(blobs), Logger: slog.New(slog.DiscardHandler),
			Functions: []forebay.Task{task}, Durable: []server.DurableFunction{call}, ShutdownTimeout: 50 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		return s, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	s, stop := run()
	defer func() { stop() }()
	begin := func(task, how string) string {
		t.Helper()
		id, err := s.StartOrchestration(t.Context(), forebay.DefaultTenant, "call", "", [2]string{task, how})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	ends := func(id string, status forebay.OrchestrationStatus, words string) {
		t.Helper()
		o, err := s.WaitOrchestration(t.Context(), forebay.DefaultTenant, id, time.Minute)
		said := string(o.Output)
		if o.Failure != nil {
			said = o.Failure.Message
		}
		if err != nil || o.Status != status || !strings.Contains(said, words) {
			t.Errorf("%s: %s %q (%+v): %v", id, o.Status, said, o.Failure, err)
		}
	}
	ends(begin("work", "well"), forebay.OrchestrationCompleted, `{"how":"well"}`)
	ends(begin("work", "fail"), forebay.OrchestrationFailed, "it was refused")
	ends(begin("unknown", ""), forebay.OrchestrationFailed, "there is no task unknown")

	// What is large goes by blob storage. Once the job is over there are the instance's input and
	// output, and what each of its two turns saw, which no sweep takes. What nothing refers to is
	// swept; what started the instance, and what was asked of the activity, is freed and goes an hour
	// later.
	long := "long" + strings.Repeat("g", forebay.InlineBytes)
	id := begin("work", long)
	ends(id, forebay.OrchestrationCompleted, `{"how":"`+long+`"}`)
	const kept, freed = 4, 2
	stored := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(5 * time.Millisecond) {
			names, err := filepath.Glob(filepath.Join(blobs, "t.*.orchestrations.*"))
			if err == nil && len(names) == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%q instead of %d payloads: %v", names, want, err)
			}
		}
	}
	stored(kept + freed)
	stop()
	if err := os.WriteFile(filepath.Join(blobs, "t.1.orchestrations.LEFTBEHIND.70000"), []byte("left by a crash"), 0o600); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(blobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		before := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(filepath.Join(blobs, e.Name()), before, before); err != nil {
			t.Fatal(err)
		}
	}
	stored(kept + freed + 1)
	s, stop = run()
	stored(kept + freed)
	stop()
	execute(t, database, "UPDATE orchestration_blobs SET freed_at = freed_at - 3600000")
	s, stop = run()
	stored(kept)
	ends(id, forebay.OrchestrationCompleted, `{"how":"`+long+`"}`)

	// A server that stops while a job runs: the job goes on in the next one, and is not submitted
	// again.
	runs.Store(0)
	id = begin("work", "wait")
	<-begun
	stop()
	s, stop = run()
	<-begun
	close(open)
	ends(id, forebay.OrchestrationCompleted, `{"how":"wait"}`)
	if n := runs.Load(); n != 2 {
		t.Errorf("%d runs", n)
	}
	attempts, err := s.ActivityAttempts(t.Context(), forebay.DefaultTenant, id)
	if err != nil || len(attempts) != 1 || attempts[0].Outcome != "succeeded" {
		t.Errorf("%+v: %v", attempts, err)
	}

	// Nobody needs the job of an instance that was terminated.
	id = begin("work", "hang")
	<-begun
	if err := s.TerminateOrchestration(t.Context(), forebay.DefaultTenant, id, "enough"); err != nil {
		t.Fatal(err)
	}
	ends(id, forebay.OrchestrationTerminated, "enough")
	select {
	case <-cut:
	case <-time.After(time.Minute):
		t.Error("the job goes on")
	}
}
