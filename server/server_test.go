package server_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// start runs a server on a database of its own and stops it at the test's end.
func start(t testing.TB, opts server.Options) *server.Server {
	t.Helper()
	if opts.Database == "" {
		opts.Database = "sqlite:" + filepath.Join(t.TempDir(), "forebay.db")
	}
	opts.Listen = "127.0.0.1:0"
	opts.Log.Level = "error"
	s := runUntilEnd(t, opts)
	if s.Addr(t.Context()) == nil {
		t.Fatal("the server does not listen")
	}
	return s
}

// runUntilEnd runs a server until the test ends.
func runUntilEnd(t testing.TB, opts server.Options) *server.Server {
	t.Helper()
	if opts.Blob == "" && !strings.HasPrefix(opts.Database, "sqlite:") { // its default is a folder of this one
		opts.Blob = t.TempDir()
	}
	s, err := server.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func submit(t testing.TB, s *server.Server, task string, input any) forebay.Job {
	t.Helper()
	b, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	job, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: task, Input: b})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func await(t testing.TB, s *server.Server, id string) forebay.Job {
	t.Helper()
	job, err := s.Wait(t.Context(), forebay.DefaultTenant, id, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func TestEveryBuiltInTaskRunsOnTheSimulatedDeployment(t *testing.T) {
	s := start(t, server.Options{})
	text := "The harbour board approved the new breakwater on 3 May 2024. Anna Keller, the chief engineer, said the works cost $4 million. Fishermen are delighted."
	for _, task := range []string{"chat", "summarize", "classify", "extract", "sentiment", "embed"} {
		var input any = text
		if task == "classify" {
			input = map[string]any{"text": text, "labels": []string{"construction", "cooking"}}
		}
		job := await(t, s, submit(t, s, task, input).ID)
		if job.Status != forebay.StatusSucceeded || len(job.Result) < 10 || job.Usage.InputTokens == 0 {
			t.Errorf("%s ended as %s: %s %+v", task, job.Status, job.Result, job.Error)
		}
	}
}

// A server that is asked to stop while it starts has not failed.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s, err := server.New(server.Options{Database: database, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// over returns the HTTP client's view of a server in this process.
func over(t testing.TB, s *server.Server) servertest.Remote {
	t.Helper()
	return servertest.Remote{URL: "http://" + s.Addr(t.Context()).String()}
}
