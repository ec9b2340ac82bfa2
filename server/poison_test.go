//go:build unix

package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// TestPoisonedJobsEnd: over HTTP, jobs that always get a 500 open the breaker. Jobs submitted
// later still succeed. Each poison job ends within a bound of calls.
func TestPoisonedJobsEnd(t *testing.T) {
	t.Parallel()
	const poisoned, good, attempts = 12, 40, 2
	model := modelsim.StartTest(func(c modelsim.Call) modelsim.Reply {
		if len(c.Marker) > 3 && c.Marker[:3] == "bad" {
			return modelsim.Reply{Status: http.StatusInternalServerError}
		}
		return modelsim.Reply{}
	})
	t.Cleanup(model.Close)
	s := servertest.Start(t, server.Options{Database: "sqlite:" + dbtest.SQLite(t),
		Deployments: []server.Deployment{{Name: "east", Provider: server.ProviderOpenAI, Endpoint: model.URL(), Model: "m", APIKey: "k"}},
		Models:      map[string]server.Model{"chat": server.InOrder("east")},
		Queues: map[string]server.Queue{forebay.DefaultQueue: {Concurrency: 16,
			Retry: server.Retry{Policy: "fixed", First: 50 * time.Millisecond, Max: 50 * time.Millisecond}}}})
	r := servertest.Over(t, s)
	var ids []string
	for i := range poisoned + good {
		marker := fmt.Sprintf("[[good%d]]", i)
		if i < poisoned {
			marker = fmt.Sprintf("[[bad%d]]", i)
		}
		job, _, err := r.Submit(t.Context(), "", map[string]any{"task": "chat", "max_attempts": attempts, "input": map[string]any{
			"messages": []any{map[string]any{"role": "user", "content": marker}}, "max_tokens": 5}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, job.ID)
	}
	for i, id := range ids {
		job, calls := r.MustAwait(t, id)
		want := forebay.StatusSucceeded
		if i < poisoned {
			want = forebay.StatusFailed
		}
		if job.Status != want || len(calls) > 3*attempts {
			t.Errorf("job %d: %s after %d calls; expected %s after at most %d", i, job.Status, len(calls), want, 3*attempts)
		}
	}
}
