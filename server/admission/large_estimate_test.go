//go:build unix

package admission_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// TestLargeInputsAreReserved: what a chat asks for is set aside though its input lies in blob
// storage, and again after its input was edited.
func TestLargeInputsAreReserved(t *testing.T) {
	t.Parallel()
	servertest.OnServers(t, func(t *testing.T, database string) {
		model := startMetered(t, "east")
		east := model.configured()
		east[0].TokensPerMinute *= 10 // the pace holds nothing back
		s := servertest.Start(t, server.Options{Database: database, Blob: "file://" + filepath.ToSlash(t.TempDir()), Deployments: east,
			Models: map[string]server.Model{"chat": server.InOrder("east")}})
		r := servertest.Over(t, s)
		const prompt, first, second = 80_000, 700, 9000
		large := func(output int) map[string]any {
			return map[string]any{"messages": []any{map[string]any{"role": "user", "content": strings.Repeat("tide", prompt/4)}}, "max_tokens": output}
		}
		used := func() int64 {
			t.Helper()
			var d forebay.Deployment
			if err := r.Get(t.Context(), "/v1/deployments/east", &d); err != nil {
				t.Fatal(err)
			}
			return d.Used.Tokens
		}
		// The prompt is about as many tokens as a fourth of its bytes; what is not asked for would be
		// 4,096.
		reserved := func(what string, got, output int64) {
			t.Helper()
			if least := int64(prompt/4) + output; got < least || got > least+200 {
				t.Errorf("%s: %d tokens were set aside; about %d are asked for", what, got, least)
			}
		}
		model.faults(t, "[{errors: {400: 1}}]")
		req := map[string]any{"task": "chat", "input": large(first)}
		job, _, err := r.Submit(t.Context(), "", req)
		if err != nil {
			t.Fatal(err)
		}
		if job, attempts := r.MustAwait(t, job.ID); job.Status != forebay.StatusFailed {
			t.Fatalf("%s after %v", job.Status, servertest.Outcomes(attempts))
		}
		before := used()
		reserved("submitted", before, first)

		model.faults(t, "none")
		redrive := map[string]any{"filter": map[string]any{"job_ids": []string{job.ID}}, "edit": map[string]any{"input": large(second)}}
		if _, err := r.Do(t.Context(), http.MethodPost, "/v1/queues/default/dead-letters/redrive", nil, redrive, nil); err != nil {
			t.Fatal(err)
		}
		if job, attempts := r.MustAwait(t, job.ID); job.Status != forebay.StatusSucceeded {
			t.Fatalf("%s after %v", job.Status, servertest.Outcomes(attempts))
		}
		reserved("edited", used()-before, second)
	})
}
