package server_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/server"
)

// A call embeds no more than each deployment of its route takes; what failed because it was more
// is done again in such parts.
func TestEmbeddingOfDeployments(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("Herons stand in shallow water and wait for what comes by. ", 20)
	for _, engine := range []string{"sqlite", "postgresql"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			at, chunks := documentEngines[engine](t), int64(0)
			few := func(most int, calls *atomic.Int64) *func(modelsim.Call) modelsim.Reply {
				reply := func(c modelsim.Call) modelsim.Reply {
					calls.Add(1)
					if len(c.Inputs) > most {
						return modelsim.Reply{Status: http.StatusBadRequest}
					}
					return modelsim.Reply{}
				}
				return &reply
			}
			run := func(name string, most int, deployments []server.Deployment, body func(t *testing.T, l *library) (calls int64)) {
				t.Run(name, func(t *testing.T) {
					l := openLibrary(t, server.Options{Database: at, Deployments: deployments, Documents: server.Documents{ChunkTokens: 20, OverlapTokens: 1}})
					var calls atomic.Int64
					l.embed.Store(few(most, &calls))
					if want := body(t, l); calls.Load() != want {
						t.Errorf("%d calls, want %d", calls.Load(), want)
					}
				})
			}
			run("without a limit", 2, nil, func(t *testing.T, l *library) int64 {
				d := l.add("old", content)
				if chunks = d.Chunks; d.Status != forebay.DocumentFailed || chunks < 7 {
					t.Fatalf("%+v", d)
				}
				return 1
			})
			limits := []server.Deployment{{Name: "a", EmbeddingInputs: 5}, {Name: "b", EmbeddingInputs: 2}, {Name: "c"}}
			run("inputs", 2, limits, func(t *testing.T, l *library) int64 {
				if _, err := l.Do(t.Context(), http.MethodPost, "/v1/documents/old/retry", nil, nil, nil); err != nil {
					t.Fatal(err)
				}
				for _, d := range []forebay.Document{l.await("old"), l.add("new", content)} {
					if d.Status != forebay.DocumentReady {
						t.Errorf("%+v", d)
					}
				}
				return 2 * ((chunks + 1) / 2)
			})
			run("tokens", 1, []server.Deployment{{Name: "a", EmbeddingTokens: 1000}, {Name: "b", EmbeddingTokens: 20}}, func(t *testing.T, l *library) int64 {
				if d := l.add("newer", content); d.Status != forebay.DocumentReady || d.Chunks != chunks {
					t.Errorf("%+v", d)
				}
				return chunks
			})
		})
	}
}

func TestEmbeddingTokensHoldAChunk(t *testing.T) {
	o := server.Options{Deployments: []server.Deployment{{Name: "a", Provider: server.ProviderSim, EmbeddingTokens: 399}}}
	if err := o.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), "deployments[0].embedding_tokens") {
		t.Errorf("%v", err)
	}
	o.Documents.ChunkTokens = 399
	if err := o.WithDefaults().Validate(); err != nil {
		t.Error(err)
	}
}
