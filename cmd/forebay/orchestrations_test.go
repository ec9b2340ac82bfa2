package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/server"
)

// embeddingVariable turns this test binary into a program that embeds a server with orchestrators.
// It holds the database.
const embeddingVariable = "FOREBAY_TEST_EMBEDDING"

func TestMain(m *testing.M) {
	if database := os.Getenv(embeddingVariable); database != "" {
		if err := embedding(database); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(command.ExitFailed)
		}
		return
	}
	os.Exit(m.Run())
}

// embedding runs a server until standard input ends, and says its address.
func embedding(database string) error {
	var calls atomic.Int32
	charge := server.NewActivity("charge", func(_ context.Context, number int) (string, error) {
		if calls.Add(1) == 1 {
			return "", errors.New("the bank is closed")
		}
		return fmt.Sprint("charged for ", number), nil
	})
	order := server.NewOrchestrator("order", func(o *server.Orchestration, in struct{ Number int }) (string, error) {
		o.SetStatus("waits for approval")
		if ok, err := server.WaitForEvent[bool](o, "approved", time.Hour); err != nil || !ok {
			return "refused", err
		}
		return charge.Call(o, in.Number)
	})
	greet := server.NewOrchestrator("greet", func(_ *server.Orchestration, name string) (string, error) { return "hello " + name, nil })
	s, err := server.New(server.Options{Database: database, Listen: "127.0.0.1:0", Durable: []server.DurableFunction{order, greet, charge}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	go func() {
		if address := s.Addr(ctx); address != nil {
			fmt.Println(address)
		}
	}()
	return s.Run(ctx)
}

// startEmbedding runs the program in a process of its own.
func startEmbedding(t *testing.T, database string) (url string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), embeddingVariable+"="+database)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + strings.TrimSpace(line)
}

func TestOrchestrationsAgainstAServer(t *testing.T) {
	url := startEmbedding(t, "sqlite:"+filepath.Join(t.TempDir(), "forebay.db"))
	run := func(want int, args ...string) ran {
		t.Helper()
		got := commandLine{url: url, in: `"from standard input"`}.run(t.Context(), append([]string{"orchestrations"}, args...)...)
		if got.code != want {
			t.Fatalf("forebay orchestrations %s: exit code %d, want %d; %s%s", strings.Join(args, " "), got.code, want, got.out, got.err)
		}
		return got
	}
	says := func(got ran, out, err string) {
		t.Helper()
		if !strings.Contains(got.out, out) || !strings.Contains(got.err, err) {
			t.Errorf("printed %q and %q; want %q and %q", got.out, got.err, out, err)
		}
	}
	says(run(command.ExitUsage, "start", "ordr"), "", "there is no orchestrator ordr; there are: analyze-document, greet, order")
	says(run(0, "start", "greet", "--text", "--input", "you", "--wait"), `"hello you"`+"\n", "")
	says(run(0, "start", "greet", "--file", "-", "--wait"), `"hello from standard input"`, "")
	says(run(command.ExitFailed, "start", "greet", "--input", "1", "--wait"), "", "Failed: input: is not what the orchestrator takes")
	says(run(0, "start", "order", "--input", `{"number":7}`, "--id", "o/1"), "o/1\n", "")
	says(run(command.ExitConflict, "start", "order", "--id", "o/1"), "", "there is an instance o/1 already")
	says(run(command.ExitConflict, "restart", "o/1", "--same-id"), "", "not over")
	says(run(command.ExitConflict, "purge", "o/1"), "", "not over")
	says(run(command.ExitConflict, "rewind", "o/1"), "", "only an instance that has failed")

	says(run(0, "suspend", "o/1", "--reason", "lunch"), "o/1 will be suspended", "")
	says(run(0, "raise", "o/1", "approved", "--input", "true"), "o/1 was sent approved", "")
	says(run(0, "resume", "o/1"), "o/1 will be resumed", "")
	says(run(0, "get", "o/1", "--wait"), "the bank is closed", "")
	says(run(0, "history", "o/1"), "TaskFailed", "")
	says(run(0, "attempts", "o/1"), "charge    1        failed", "")
	run(0, "rewind", "o/1", "--reason", "it is open")
	var o forebay.Orchestration
	got := run(0, "get", "o/1", "--wait", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &o); err != nil || o.Status != forebay.OrchestrationCompleted || string(o.Output) != `"charged for 7"` {
		t.Fatalf("rewound: %s", got.out)
	}
	says(run(command.ExitConflict, "terminate", "o/1"), "", "is over")
	says(run(command.ExitConflict, "raise", "o/1", "approved"), "", "is over")

	again := strings.TrimSpace(run(0, "restart", "o/1").out)
	says(run(0, "list", "--status", "pending,running", "-o", "jsonl"), again, "")
	run(0, "terminate", again, "--reason", "enough")
	says(run(0, "get", again, "--wait"), "enough", "")
	run(0, "restart", again, "--same-id", "-o", "json")
	run(0, "terminate", again)
	says(run(0, "get", again, "--wait"), "Terminated", "")

	if got := run(0, "list", "--limit", "2", "-o", "jsonl"); strings.Count(got.out, "\n") != 2 {
		t.Errorf("listed %s", got.out)
	}
	says(run(0, "purge", "--status", "terminated", "--prefix", again), "purged  1", "")
	run(0, "purge", "o/1")
	says(run(command.ExitNotFound, "get", "o/1"), "", "there is no instance o/1")
	says(run(0, "purge", "--created-before", "2020-01-01T00:00:00Z"), "purged  0", "")
	says(run(0, "purge", "--all"), "purged  3", "")
	if got := run(0, "list", "-o", "json"); got.out != "[]\n" {
		t.Errorf("left over: %s", got.out)
	}
}

// A server of the command alone has the built-in workflows.
func TestUnknownOrchestrator(t *testing.T) {
	url, _, _ := startServer(t)
	got := commandLine{url: url}.run(t.Context(), "orchestrations", "start", "order")
	if got.code != command.ExitUsage || !strings.Contains(got.err, "there is no orchestrator order; there are: analyze-document") {
		t.Errorf("exit code %d, %s", got.code, got.err)
	}
}

// Who copies the command that a lost server leaves gets the instance, whatever its id.
func TestLostServerNamesTheInstance(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			json.NewEncoder(w).Encode(map[string]string{"id": "-it's 1"})
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		json.NewEncoder(w).Encode(map[string]any{"code": forebay.CodeForbidden, "detail": "no"})
	}))
	defer server.Close()
	got := commandLine{url: server.URL}.run(t.Context(), "orchestrations", "start", "order", "--wait")
	if got.code != command.ExitUnauthorized || got.err != "forebay: no; the instance is on disk: forebay orchestrations show -- '-it'\\''s 1'\n" {
		t.Errorf("%+v", got)
	}
}
