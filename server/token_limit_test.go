package server_test

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// A job keeps to its own limit in tokens over all that is done for it, and says so when it cannot
// go on.
func TestJobKeepsToItsTokens(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, server.Options{Deployments: []server.Deployment{{Name: "east", Provider: server.ProviderSim}},
		Models: map[string]server.Model{"chat": {Deployments: []server.ModelDeployment{{Name: "east"}}}}})
	run := func(limit int64) forebay.Job {
		t.Helper()
		job, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: "sentiment", Input: []byte(`"What a fine day."`), MaxTotalTokens: &limit})
		if err != nil {
			t.Fatal(err)
		}
		if job = servertest.Await(t, s, job.ID); job.MaxTotalTokens == nil || *job.MaxTotalTokens != limit {
			t.Errorf("%+v", job)
		}
		return job
	}
	if job := run(1000); job.Status != forebay.StatusSucceeded || job.Usage.InputTokens+job.Usage.OutputTokens > 1000 {
		t.Errorf("with room: %+v", job)
	}
	// Of which 100 are for the answer.
	job := run(120)
	if job.Status != forebay.StatusFailed || job.Error == nil || job.Error.Code != "token_limit" || !strings.Contains(job.Error.Message, "more than the 120 tokens") || job.Usage != (forebay.Usage{}) {
		t.Errorf("without: %+v %+v", job, job.Error)
	}
}
