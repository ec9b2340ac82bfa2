package server_test

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

func TestEveryBuiltInTaskRunsOnTheSimulatedDeployment(t *testing.T) {
	s := servertest.Start(t, server.Options{})
	text := "The harbour board approved the new breakwater on 3 May 2024. Anna Keller, the chief engineer, said the works cost $4 million. Fishermen are delighted."
	for _, task := range []string{"chat", "summarize", "classify", "extract", "sentiment", "embed"} {
		var input any = text
		if task == "classify" {
			input = map[string]any{"text": text, "labels": []string{"construction", "cooking"}}
		}
		job := servertest.Await(t, s, servertest.Submit(t, s, task, input).ID)
		if job.Status != forebay.StatusSucceeded || len(job.Result) < 10 || job.Usage.InputTokens == 0 {
			t.Errorf("%s ended as %s: %s %+v", task, job.Status, job.Result, job.Error)
		}
	}
}

// A server that is asked to stop while it starts has not failed.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s, err := server.New(server.Options{Database: database, Listen: "127.0.0.1:0", Blob: t.TempDir()})
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
