package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/doctor"
	"github.com/forebayhq/forebay/server"
)

// startServer runs the serve command on a new database. stop ends it as a signal does and returns
// its exit code; it may be called again.
func startServer(t *testing.T) (url, database string, stop func() int) {
	t.Helper()
	database = "sqlite:" + filepath.Join(t.TempDir(), "forebay.db")
	url, stop = startServerOn(t, database)
	return url, database, stop
}

func startServerOn(t *testing.T, database string) (url string, stop func() int) {
	t.Helper()
	return serveWith(t, "--database", database)
}

// serveFile runs the serve command with a configuration on a new database.
func serveFile(t *testing.T, file string) (url string, stop func() int) {
	t.Helper()
	return serveWith(t, "--config", file, "--database", "sqlite:"+filepath.Join(t.TempDir(), "forebay.db"))
}

func serveWith(t *testing.T, arguments ...string) (url string, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log, stderr := io.Pipe()
	exited := make(chan int, 1)
	a := &command.App{In: strings.NewReader(""), Out: io.Discard, Err: stderr, Now: time.Now, Zone: time.UTC}
	go func() {
		code := a.Run(ctx, root(a), append([]string{"serve", "--listen", "127.0.0.1:0"}, arguments...))
		stderr.Close()
		exited <- code
	}()
	listening := make(chan string, 1)
	go func() {
		defer close(listening)
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			var entry struct{ Listen string }
			if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Listen != "" {
				listening <- entry.Listen
			}
		}
	}()
	stop = func() int {
		cancel()
		code := <-exited
		exited <- code
		return code
	}
	t.Cleanup(func() { stop() })
	address, ok := <-listening
	if !ok {
		t.Fatalf("serve ended with exit code %d", stop())
	}
	return "http://" + address, stop
}

func TestAgainstAServer(t *testing.T) {
	url, database, stop := startServer(t)
	run := func(want int, args ...string) string {
		t.Helper()
		got := commandLine{url: url, in: "From standard input."}.run(t.Context(), args...)
		if got.code != want {
			t.Fatalf("forebay %s: exit code %d, want %d; %s%s", strings.Join(args, " "), got.code, want, got.out, got.err)
		}
		return got.out
	}

	var answer struct{ Text string }
	if out := run(0, "submit", "chat", "--input", "hello", "--wait"); json.Unmarshal([]byte(out), &answer) != nil || answer.Text == "" {
		t.Errorf("submit --wait printed %q", out)
	}
	var job forebay.Job
	out := run(0, "submit", "summarize", "-", "--metadata", "k=v", "--priority", "9", "--correlation-id", "c-1", "-o", "json")
	if err := json.Unmarshal([]byte(out), &job); err != nil || job.Metadata["k"] != "v" || job.Priority != 9 || job.CorrelationID != "c-1" {
		t.Fatalf("submitted %s: %v", out, err)
	}
	if out := run(0, "jobs", "watch", job.ID); !strings.Contains(out, "accepted") || !strings.Contains(out, "succeeded") {
		t.Errorf("watch printed %q", out)
	}
	run(0, "jobs", "get", job.ID, "--wait")
	if out := run(0, "jobs", "result", job.ID); !strings.Contains(out, "From standard input") {
		t.Errorf("result printed %q", out)
	}
	if out := run(0, "jobs", "attempts", job.ID, "-o", "jsonl"); !strings.Contains(out, `"outcome":"succeeded"`) {
		t.Errorf("attempts printed %q", out)
	}
	if out := run(0, "jobs", "list", "--status", "succeeded", "--limit", "1", "-o", "json"); strings.Count(out, `"id"`) != 1 {
		t.Errorf("list printed %q", out)
	}
	run(command.ExitNotFound, "jobs", "get", "job_00000000000000000000000000")
	run(command.ExitConflict, "jobs", "redrive", job.ID)
	run(0, "submit", "chat", "--input", "a", "--idempotency-key", "same")
	run(command.ExitConflict, "submit", "chat", "--input", "b", "--idempotency-key", "same")
	run(command.ExitUsage, "submit", "nosuchtask", "--input", "a")
	run(command.ExitUsage, "submit", "chat", "--input", "a", "--deadline", "2020-01-02T15:04:05Z")

	// A job that cannot succeed is set aside, inspected, changed and redriven.
	run(0, "deployments", "sim", "simulated", `{"refuse_phrases":["forbidden"]}`)
	if out := (commandLine{url: url}).run(t.Context(), "submit", "chat", "--input", "a forbidden thing", "--wait"); out.code != command.ExitFailed || !strings.Contains(out.err, "failed: ") {
		t.Errorf("refused job: %+v", out)
	}
	var set []forebay.SetAsideJob
	if err := json.Unmarshal([]byte(run(0, "dlq", "list", "-o", "json")), &set); err != nil || len(set) != 1 {
		t.Fatalf("dead letters are %+v, %v", set, err)
	}
	if out := run(0, "dlq", "peek", set[0].JobID); !strings.Contains(out, "a forbidden thing") {
		t.Errorf("peek printed %q", out)
	}
	if out := run(0, "dlq", "redrive", "--all", "--dry-run"); !strings.Contains(out, "0 (dry run)") {
		t.Errorf("dry run printed %q", out)
	}
	run(0, "dlq", "redrive", set[0].JobID, "--set-input", "an allowed thing")
	if out := run(0, "jobs", "get", set[0].JobID, "--wait", "-o", "json"); !strings.Contains(out, `"generation": 2`) || !strings.Contains(out, `"status": "succeeded"`) {
		t.Errorf("redriven job: %s", out)
	}
	if out := run(0, "dlq", "purge", "--all"); !strings.HasSuffix(strings.TrimSpace(out), "0") {
		t.Errorf("purge printed %q", out)
	}

	if out := run(0, "queues", "pause", "default"); !strings.Contains(out, "paused") {
		t.Errorf("pause printed %q", out)
	}
	waiting := strings.Fields(run(0, "submit", "chat", "--input", "waits"))[0]
	if out := run(0, "jobs", "cancel", waiting); !strings.Contains(out, "cancelled") {
		t.Errorf("cancel printed %q", out)
	}
	if out := run(0, "queues", "resume", "default"); !strings.Contains(out, "running") {
		t.Errorf("resume printed %q", out)
	}
	if out := run(0, "report", "retries", "--since", "2020-01-01T00:00:00Z", "--until", time.Now().Add(time.Hour).UTC().Format(time.RFC3339)); !strings.Contains(out, "attempts") {
		t.Errorf("report printed %q", out)
	}

	// Plain messages.
	run(0, "queues", "create", "mail", "--lock", "30s", "--detect-duplicates")
	run(0, "messages", "send", "mail", "--body", "hello", "--property", "n=1", "--message-id", "m-1")
	if got := (commandLine{url: url}).run(t.Context(), "messages", "receive", "mail", "--wait", "2m"); got.code != command.ExitUsage || !strings.Contains(got.err, "wait: must be a time from 0s to 60s") {
		t.Errorf("a wait of two minutes: %+v", got)
	}
	if out := run(0, "tasks", "show", "summarize"); !strings.Contains(out, "\nTakes:\n{\n") || !strings.Contains(out, "\n    \"summary\": {\n") {
		t.Errorf("tasks show printed %s", out)
	}
	var letters []forebay.Message
	if err := json.Unmarshal([]byte(run(0, "messages", "receive", "mail", "--wait", "5s", "-o", "json")), &letters); err != nil || len(letters) != 1 || *letters[0].Body != "hello" {
		t.Fatalf("received %+v, %v", letters, err)
	}
	run(0, "messages", "dead-letter", "mail", letters[0].LockToken, "--reason", "illegible")
	if out := run(0, "messages", "peek", "mail/$deadletterqueue"); !strings.Contains(out, "illegible") {
		t.Errorf("peek printed %q", out)
	}
	run(command.ExitConflict, "messages", "complete", "mail", letters[0].LockToken)
	var later forebay.SentMessage
	if err := json.Unmarshal([]byte(run(0, "messages", "send", "mail", "--body", "later", "--scheduled-at", "1h", "-o", "json")), &later); err != nil {
		t.Fatal(err)
	}
	run(0, "messages", "cancel", "mail", strconv.FormatInt(later.SequenceNumber, 10))
	run(command.ExitNotFound, "messages", "cancel", "mail", strconv.FormatInt(later.SequenceNumber, 10))
	run(0, "queues", "create", "steps", "--require-session")
	run(command.ExitNotFound, "messages", "accept-session", "steps")
	run(0, "messages", "send", "steps", "--body", "1", "--session-id", "order-7")
	var session forebay.Session
	if err := json.Unmarshal([]byte(run(0, "messages", "accept-session", "steps", "-o", "json")), &session); err != nil || session.SessionID != "order-7" {
		t.Fatalf("accepted %+v, %v", session, err)
	}
	if out := run(0, "messages", "receive", "steps", "--session-token", session.SessionToken); !strings.Contains(out, "order-7") {
		t.Errorf("receive printed %q", out)
	}
	if out := run(0, "messages", "get-state", "steps", session.SessionToken); out != "" {
		t.Errorf("get-state printed %q before any was set", out)
	}
	run(0, "messages", "set-state", "steps", session.SessionToken, "--state", "done: 1\n")
	if out := run(0, "messages", "get-state", "steps", session.SessionToken); out != "done: 1\n" {
		t.Errorf("get-state printed %q", out)
	}
	run(0, "messages", "set-state", "steps", session.SessionToken, "--file", "-")
	if out := run(0, "messages", "get-state", "steps", session.SessionToken, "-o", "json"); !strings.Contains(out, "RnJvbSBzdGFuZGFyZCBpbnB1dC4=") {
		t.Errorf("get-state printed %q", out)
	}
	run(command.ExitUsage, "messages", "set-state", "steps", session.SessionToken)
	run(command.ExitUsage, "messages", "set-state", "steps", session.SessionToken, "--clear", "--state", "x")
	if out := run(0, "messages", "renew-session", "steps", session.SessionToken); !strings.Contains(out, "locked until") {
		t.Errorf("renew-session printed %q", out)
	}
	run(0, "messages", "send", "steps", "--body", "1", "--session-id", "order-8")
	var held []forebay.SessionInfo
	if err := json.Unmarshal([]byte(run(0, "messages", "sessions", "steps", "-o", "json")), &held); err != nil || len(held) != 2 ||
		held[0].SessionID != "order-7" || held[0].LockedUntil == nil || held[0].StateBytes != len("From standard input.") || !held[0].HasMessages ||
		held[1].SessionID != "order-8" || held[1].LockedUntil != nil || held[1].StateBytes != 0 || !held[1].HasMessages {
		t.Errorf("sessions are %+v, %v", held, err)
	}
	run(command.ExitConflict, "messages", "sessions", "mail")
	run(0, "messages", "close-session", "steps", session.SessionToken)
	run(command.ExitConflict, "messages", "set-state", "steps", session.SessionToken, "--clear")
	for range 3 {
		run(0, "messages", "send", "mail", "--body", "old")
	}
	if out := run(0, "messages", "delete", "mail", "--before", "2020-01-02T15:04:05Z"); !strings.HasSuffix(strings.TrimSpace(out), "0") {
		t.Errorf("delete printed %q", out)
	}
	if out := run(0, "messages", "delete", "mail", "--all", "--max", "2"); !strings.HasSuffix(strings.TrimSpace(out), "2") {
		t.Errorf("delete printed %q", out)
	}
	if out := run(0, "messages", "delete", "mail", "--all"); !strings.HasSuffix(strings.TrimSpace(out), "1") {
		t.Errorf("delete printed %q", out)
	}
	run(command.ExitUsage, "messages", "delete", "mail")
	run(command.ExitUsage, "messages", "delete", "mail", "--before", "")
	if out := run(0, "queues", "list"); !strings.Contains(out, "steps") || !strings.Contains(out, "default") {
		t.Errorf("list printed %q", out)
	}
	run(0, "queues", "delete", "mail")
	run(command.ExitNotFound, "messages", "peek", "mail")

	// A second server on the same database is refused; doctor says who has it.
	if got := (commandLine{}).run(t.Context(), "serve", "--listen", "127.0.0.1:0", "--database", database); got.code != command.ExitStorage {
		t.Errorf("a second server: %+v", got)
	}
	if got := (commandLine{}).run(t.Context(), "doctor", "--listen", strings.TrimPrefix(url, "http://"), "--database", database); !strings.Contains(got.out, "is running on this database") || !strings.Contains(got.out, "taken, as a server is running") {
		t.Errorf("doctor: %+v", got)
	}
	if code := stop(); code != command.ExitOK {
		t.Errorf("serve ended with %d after being asked to stop, want 0", code)
	}
}

func TestBatchAgainstAServer(t *testing.T) {
	url, _, _ := startServer(t)
	file, out := batchFileOf(t, 300)
	got := commandLine{url: url}.run(t.Context(), "batch", "run", file, "-o", out, "--task", "embed")
	if got.code != command.ExitOK {
		t.Fatalf("%+v", got)
	}
	if all := results(t, out); len(all) != 300 {
		t.Errorf("%d results", len(all))
	}
	// Without its output everything is collected again, and nothing is done twice.
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	if got = (commandLine{url: url}).run(t.Context(), "batch", "run", file, "-o", out, "--task", "embed"); got.code != command.ExitOK {
		t.Fatalf("%+v", got)
	}
	list := commandLine{url: url}.run(t.Context(), "jobs", "list", "--limit", "0", "-o", "jsonl")
	if n := strings.Count(list.out, "\n"); n != 300 {
		t.Errorf("%d jobs after running 300 lines twice", n)
	}
}

func TestKeysBeforeAServerAndBeside(t *testing.T) {
	url, database, stop := startServer(t)
	create := func(scopes string, args ...string) forebay.APIKey {
		t.Helper()
		args = append([]string{"keys", "create", "--tenant", "acme", "--scopes", scopes, "--database", database, "-o", "json"}, args...)
		got := commandLine{}.run(t.Context(), args...)
		var key forebay.APIKey
		if err := json.Unmarshal([]byte(got.out), &key); err != nil || got.code != command.ExitOK || got.err != "" || !strings.HasPrefix(key.Key, "fb_") {
			t.Fatalf("%+v: %v", got, err)
		}
		return key
	}
	reader := create("read", "--expires", "2999-01-02T15:04:05Z")
	if reader.Tenant != "acme" || reader.ExpiresAt == nil || reader.ExpiresAt.Year() != 2999 {
		t.Errorf("key is %+v", reader)
	}
	with := func(key forebay.APIKey) commandLine {
		return commandLine{url: url, environ: []string{"FOREBAY_API_KEY=" + key.Key}}
	}
	if got := with(reader).run(t.Context(), "jobs", "list"); got.code != command.ExitOK {
		t.Errorf("with the key: %+v", got)
	}
	if got := with(reader).run(t.Context(), "submit", "chat", "--input", "a"); got.code != command.ExitUnauthorized {
		t.Errorf("without the scope: %+v", got)
	}
	if got := with(forebay.APIKey{Key: "fb_wrong"}).run(t.Context(), "jobs", "list"); got.code != command.ExitUnauthorized {
		t.Errorf("with a wrong key: %+v", got)
	}

	list := commandLine{}.run(t.Context(), "keys", "list", "--database", database)
	if !strings.Contains(list.out, reader.ID) || !strings.Contains(list.out, "valid") || strings.Contains(list.out, reader.Key) {
		t.Errorf("list: %+v", list)
	}
	stop()
	if got := (commandLine{}).run(t.Context(), "keys", "revoke", reader.ID, "--database", database); got.code != command.ExitOK {
		t.Errorf("revoke without a server: %+v", got)
	}
	if got := (commandLine{}).run(t.Context(), "keys", "list", "--database", database); !strings.Contains(got.out, "revoked") {
		t.Errorf("list: %+v", got)
	}
	if got := (commandLine{}).run(t.Context(), "keys", "revoke", "key_unknown", "--database", database); got.code != command.ExitNotFound {
		t.Errorf("revoke of an unknown key: %+v", got)
	}
	if got := (commandLine{}).run(t.Context(), "keys", "create", "--scopes", "everything", "--database", database); got.code != command.ExitUsage {
		t.Errorf("unknown scope: %+v", got)
	}
}

// wrong returns what the doctor finds wrong. How fast and how full this machine's disk is, is no
// matter of a test.
func (c commandLine) wrong(t *testing.T, args ...string) (list []doctor.Finding) {
	t.Helper()
	got := c.run(t.Context(), append([]string{"doctor", "-o", "jsonl"}, args...)...)
	for line := range bytes.Lines([]byte(got.out)) {
		var f doctor.Finding
		if err := json.Unmarshal(line, &f); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !f.OK && !slices.Contains([]string{"free space", "fsync", "durable write"}, f.Name) {
			list = append(list, f)
		}
	}
	return list
}

func TestDoctorOnAFreshFolder(t *testing.T) {
	if wrong := (commandLine{}).wrong(t, "--database", "sqlite:"+filepath.Join(t.TempDir(), "forebay.db"), "--listen", "127.0.0.1:0"); len(wrong) > 0 {
		t.Errorf("%+v", wrong)
	}
	missing := commandLine{}.run(t.Context(), "doctor", "--database", "sqlite:/nowhere/forebay.db", "--listen", "127.0.0.1:0")
	if missing.code != command.ExitStorage || !strings.Contains(missing.out, "WRONG") {
		t.Errorf("folder that does not exist: %+v", missing)
	}
	shared := commandLine{}.run(t.Context(), "doctor", "--database", "postgres://127.0.0.1:1/forebay", "--listen", "127.0.0.1:0")
	if !strings.Contains(shared.out, "cannot be reached") || !strings.Contains(shared.out, "the folder forebay.blobs where a server is started") {
		t.Errorf("PostgreSQL: %+v", shared)
	}
}

func TestSimulated(t *testing.T) {
	sim, real := server.Deployment{Provider: server.ProviderSim}, server.Deployment{Provider: server.ProviderOpenAI}
	for _, c := range []struct {
		deployments []server.Deployment
		want        bool
	}{{nil, true}, {[]server.Deployment{sim}, true}, {[]server.Deployment{sim, real}, false}} {
		if got := simulated(server.Options{Deployments: c.deployments}); got != c.want {
			t.Errorf("%v: %v", c.deployments, got)
		}
	}
}
