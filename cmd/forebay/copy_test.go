package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/server"
)

// Jobs that wait in SQLite are copied and run on PostgreSQL; what has ended can be read there.
func TestFromSQLiteToPostgreSQL(t *testing.T) {
	url, file, stop := startServer(t)
	run := func(want int, args ...string) ran {
		t.Helper()
		got := commandLine{url: url}.run(t.Context(), args...)
		if got.code != want {
			t.Fatalf("forebay %s: exit code %d, want %d; %s%s", strings.Join(args, " "), got.code, want, got.out, got.err)
		}
		return got
	}
	submit := func(args ...string) (job forebay.Job) {
		t.Helper()
		if err := json.Unmarshal([]byte(run(command.ExitOK, append([]string{"submit", "chat", "-o", "json"}, args...)...).out), &job); err != nil {
			t.Fatal(err)
		}
		return job
	}
	done := submit("--input", "first")
	run(command.ExitOK, "jobs", "get", done.ID, "--wait")
	result := run(command.ExitOK, "jobs", "result", done.ID).out
	run(command.ExitOK, "queues", "pause", "default")
	waiting := submit("--input", "second", "--idempotency-key", "k")
	target := pgtest.Database(t)
	if got := run(command.ExitStorage, "copy", "--from", file, "--to", target); !strings.Contains(got.err, "stop it first") {
		t.Errorf("said %q", got.err)
	}
	if code := stop(); code != command.ExitOK {
		t.Fatalf("serve ended with %d", code)
	}

	var report server.CopyReport
	got := run(command.ExitOK, "copy", "--from", file, "--to", target, "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || report.Rows < 8 || got.err != "" {
		t.Errorf("copied %s, %q: %v", got.out, got.err, err)
	}
	if got := run(command.ExitConflict, "copy", "--from", file, "--to", target); !strings.Contains(got.err, "is not empty") {
		t.Errorf("said %q", got.err)
	}

	t.Chdir(t.TempDir()) // where payloads go
	url, stop = startServerOn(t, target)
	if again := submit("--input", "second", "--idempotency-key", "k"); again.ID != waiting.ID {
		t.Errorf("the idempotency key made another job, %s", again.ID)
	}
	run(command.ExitOK, "queues", "resume", "default")
	run(command.ExitOK, "jobs", "get", waiting.ID, "--wait")
	if out := run(command.ExitOK, "jobs", "result", done.ID).out; out != result {
		t.Errorf("the result was %q and is %q", result, out)
	}
	run(command.ExitOK, "submit", "chat", "--input", "third", "--wait")
	run(command.ExitOK, "audit", "verify")
	if code := stop(); code != command.ExitOK {
		t.Errorf("serve ended with %d", code)
	}
}

func TestCopyIsInterrupted(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	dir := t.TempDir()
	from, to := "sqlite:"+filepath.Join(dir, "a.db"), "sqlite:"+filepath.Join(dir, "b.db")
	if got := (commandLine{}).run(t.Context(), "keys", "create", "--database", from); got.code != command.ExitOK {
		t.Fatal(got.err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := commandLine{}.run(ctx, "copy", "--from", from, "--to", to)
	if got.code != command.ExitInterrupted || got.err != "forebay: interrupted; run the same command again to go on\n" {
		t.Errorf("exit code %d, %q", got.code, got.err)
	}
	if got := (commandLine{}).run(t.Context(), "keys", "list", "--database", to); got.code != command.ExitStorage || !strings.Contains(got.err, "unfinished copy") {
		t.Errorf("exit code %d, %q", got.code, got.err)
	}
	for _, args := range [][]string{{"copy", "--from", from, "--to", to}, {"keys", "list", "--database", to}} {
		if got := (commandLine{}).run(t.Context(), args...); got.code != command.ExitOK {
			t.Errorf("%s: exit code %d, %q", args, got.code, got.err)
		}
	}
	if got := (commandLine{}).run(t.Context(), "copy", "--to", to, "--abandon"); got.code != command.ExitConflict {
		t.Errorf("exit code %d, %q", got.code, got.err)
	}
}

func TestMigrate(t *testing.T) {
	for _, database := range []string{"sqlite:" + filepath.Join(t.TempDir(), "forebay.db"), pgtest.Database(t)} {
		var status server.Schema
		look := func() {
			t.Helper()
			got := commandLine{}.run(t.Context(), "migrate", "status", "--database", database, "-o", "json")
			if err := json.Unmarshal([]byte(got.out), &status); err != nil || got.code != command.ExitOK {
				t.Fatalf("%+v: %v", got, err)
			}
		}
		look()
		if status.Database != 0 || !slices.Equal(status.Pending, []string{"schema"}) {
			t.Errorf("before: %+v", status)
		}
		for _, says := range []string{"applied", "up to date"} {
			if got := (commandLine{}).run(t.Context(), "migrate", "up", "--database", database); got.code != command.ExitOK || !strings.Contains(got.out, says) {
				t.Errorf("%+v", got)
			}
		}
		look()
		if status.Database != status.Program || len(status.Pending) != 0 {
			t.Errorf("after: %+v", status)
		}
	}
}

func TestCopyKeepsPasswords(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	from := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	for _, to := range []string{"postgres://u:hush@127.0.0.1:1/x", "postgres://u:hush@[::1/x", "mysql://u:hush@h/x"} {
		var all bytes.Buffer
		for _, args := range [][]string{{"copy", "--from", to, "--to", from}, {"copy", "--to", to, "--abandon"}, {"migrate", "status", "--database", to}} {
			got := commandLine{}.run(t.Context(), args...)
			if got.code == command.ExitOK {
				t.Errorf("%s worked", args)
			}
			all.WriteString(got.out + got.err)
		}
		if strings.Contains(all.String(), "hush") {
			t.Errorf("said %s", &all)
		}
	}
}
