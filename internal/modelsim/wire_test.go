package modelsim

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

// The golden file holds everything that goes over the wire, header by header. Time stands still.
func TestWire(t *testing.T) {
	var transcript strings.Builder
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			title, path, body string
			kind              Kind
			calls             int // of which the last is shown
			script            Script
		}{
			{"OpenAI, plain", "/v1/chat/completions", chatOf("", 20), KindOpenAI, 1, nil},
			{"OpenAI, streamed", "/v1/chat/completions", chatOf(`"stream":true,"stream_options":{"include_usage":true},`, 8), KindOpenAI, 1, nil},
			{"OpenAI, out of tokens", "/v1/chat/completions", chatOf("", 600), KindOpenAI, 2, nil},
			{"OpenAI, out of requests", "/v1/chat/completions", chatOf("", 1), KindOpenAI, 7, nil},
			{"OpenAI, larger than the quota", "/v1/chat/completions", chatOf("", 1001), KindOpenAI, 1, nil},
			{"OpenAI, embeddings", "/v1/embeddings", `{"model":"m","input":["the harbour"],"dimensions":4}`, KindOpenAI, 1, nil},
			{"OpenAI, 500", "/v1/chat/completions", chatOf("", 20), KindOpenAI, 1, Script{{Errors: Rates{500: 1}}}},
			{"Azure, plain", "/openai/deployments/east/chat/completions?api-version=2024-10-21", chatOf("", 20), KindAzure, 1, nil},
			{"Azure, streamed", "/openai/deployments/east/chat/completions?api-version=2024-10-21", chatOf(`"stream":true,`, 8), KindAzure, 1, nil},
			{"Azure, out of tokens", "/openai/deployments/east/chat/completions?api-version=2024-10-21", chatOf("", 600), KindAzure, 2, nil},
			{"Azure, out of requests", "/openai/v1/embeddings", `{"model":"m","input":"x"}`, KindAzure, 2, nil},
			{"Azure, larger than the quota", "/openai/v1/chat/completions", chatOf("", 1001), KindAzure, 1, nil},
			{"Azure, content filter", "/openai/v1/chat/completions", chatOf("", 20), KindAzure, 1, Script{{ContentFilter: 1}}},
			{"Azure, high demand", "/openai/v1/chat/completions", chatOf("", 20), KindAzure, 1, Script{{Errors: Rates{429: 1}, RetryAfter: Duration(2500 * time.Millisecond)}}},
			{"Azure, 503", "/openai/v1/chat/completions", chatOf("", 20), KindAzure, 1, Script{{Errors: Rates{503: 1}, RetryAfter: Duration(2500 * time.Millisecond)}}},
			{"Azure PTU, full", "/openai/v1/chat/completions", chatOf("", 900), KindPTU, 8, nil},
			{"Azure PTU, plain", "/openai/v1/chat/completions", chatOf("", 20), KindPTU, 1, nil},
			{"Anthropic, plain", "/v1/messages", chatOf("", 20), KindAnthropic, 1, nil},
			{"Anthropic, streamed", "/v1/messages", chatOf(`"stream":true,`, 8), KindAnthropic, 1, nil},
			{"Anthropic, out of output tokens", "/v1/messages", chatOf("", 400), KindAnthropic, 3, nil},
			{"Anthropic, a large quota", "/v1/messages", chatOf("", 20), KindAnthropic, 1, Script{{Quota: 57, QuotaShown: true}}},
			{"Anthropic, overloaded", "/v1/messages", chatOf("", 20), KindAnthropic, 1, Script{{Errors: Rates{529: 1}}}},
			{"OpenAI, revoked key", "/v1/chat/completions", chatOf("", 20), KindOpenAI, 1, Script{{Denied: Unauthorized}}},
			{"OpenAI, no credit", "/v1/embeddings", `{"model":"m","input":"x"}`, KindOpenAI, 1, Script{{Denied: InsufficientQuota}}},
			{"OpenAI, no such model", "/v1/chat/completions", chatOf(`"stream":true,`, 20), KindOpenAI, 1, Script{{Denied: NotFound}}},
			{"Azure, revoked key", "/openai/v1/chat/completions", chatOf("", 20), KindAzure, 1, Script{{Denied: Unauthorized}}},
			{"Azure, no credit", "/openai/v1/chat/completions", chatOf("", 20), KindAzure, 1, Script{{Denied: InsufficientQuota}}},
			{"Azure, no such deployment", "/openai/deployments/east/chat/completions?api-version=2024-10-21", chatOf("", 20), KindAzure, 1, Script{{Denied: NotFound}}},
			{"Anthropic, revoked key", "/v1/messages", chatOf("", 20), KindAnthropic, 1, Script{{Denied: Unauthorized}}},
			{"Anthropic, no credit", "/v1/messages", chatOf("", 20), KindAnthropic, 1, Script{{Denied: InsufficientQuota}}},
			{"Anthropic, no such model", "/v1/messages", chatOf("", 20), KindAnthropic, 1, Script{{Denied: NotFound}}},
		} {
			var log strings.Builder
			s, err := NewServer(ServerOptions{AnyModel: true, Deployments: []Deployment{fast(func(d *Deployment) {
				d.Model, d.Kind, d.TokensPerMinute, d.RequestsPerMinute, d.Faults = "gpt-4o", c.kind, 1000, 6, c.script
				d.OutputSpread = 0
				if c.kind == KindPTU {
					d.RequestsPerMinute = -1
				}
			})}}, &log)
			if err != nil {
				t.Fatal(err)
			}
			var w *httptest.ResponseRecorder
			for range c.calls {
				r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
				if c.kind == KindAnthropic {
					r.Header.Set("anthropic-version", "2023-06-01")
				}
				w = httptest.NewRecorder()
				s.Handler().ServeHTTP(w, r)
			}
			s.Close()
			fmt.Fprintf(&transcript, "== %s\n%d\n", c.title, w.Code)
			for _, name := range slices.Sorted(maps.Keys(w.Header())) {
				fmt.Fprintf(&transcript, "%s: %s\n", name, w.Header().Get(name))
			}
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			fmt.Fprintf(&transcript, "\n%s\nlogged %s\n\n", strings.TrimSpace(w.Body.String()), lines[len(lines)-1])
		}
	})
	file := filepath.Join("testdata", "wire.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(transcript.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := transcript.String(); got != string(want) {
		t.Errorf("%s differs (go test -update writes it); got:\n%s", file, got)
	}
}

func chatOf(more string, max int) string {
	return fmt.Sprintf(`{"model":"m",%s"messages":[{"role":"user","content":"What does the harbour wait for?"}],"max_tokens":%d}`, more, max)
}

// A call in flight at a reset is counted neither before nor after it.
func TestResetForgetsCallsInFlight(t *testing.T) {
	d, err := NewService(fast(nil), 1, epoch)
	if err != nil {
		t.Fatal(err)
	}
	a := d.Begin(epoch, Cost{Prompt: 10})
	d.Reset(at(time.Second))
	d.End(at(2*time.Second), a, Gone, Used{})
	if st := d.Stats(); st.InFlight != 0 || st.Gone != 0 || st.TokensWasted != 0 || st.LastEndedAt != nil {
		t.Errorf("%+v", st)
	}
}

// clocked notes when each text of a stream is written.
type clocked struct {
	*httptest.ResponseRecorder
	began time.Time
	texts []time.Duration
}

func (c *clocked) Write(b []byte) (int, error) { return c.WriteString(string(b)) }

func (c *clocked) WriteString(s string) (int, error) {
	if strings.Contains(s, `"delta":{"content":`) {
		c.texts = append(c.texts, time.Since(c.began))
	}
	return c.ResponseRecorder.WriteString(s)
}

// A stream begins with its first token and goes on at its speed, in pieces of 50 ms. A script can
// slow it down.
func TestPace(t *testing.T) {
	for slowness, script := range map[time.Duration]Script{1: nil, 4: {{Latency: 4}}} {
		synctest.Test(t, func(t *testing.T) {
			s, err := NewServer(ServerOptions{AnyModel: true, Deployments: []Deployment{fast(func(d *Deployment) {
				d.FirstToken, d.TokensPerSecond, d.Faults = Duration(200*time.Millisecond), 100, script
				d.OutputTokens, d.OutputSpread = 12, 0
			})}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			w := &clocked{httptest.NewRecorder(), time.Now(), nil}
			s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(chatOf(`"stream":true,`, 100))))
			var want []time.Duration // 5 tokens in 50 ms, but 1 of them when each takes 40 ms
			for sent := 0; sent < 12; sent += max(5/int(slowness), 1) {
				want = append(want, slowness*(200+time.Duration(sent)*10)*time.Millisecond)
			}
			if took := time.Since(w.began); !slices.Equal(w.texts, want) || took != slowness*320*time.Millisecond {
				t.Errorf("texts after %v, all in %v; want %v", w.texts, took, want)
			}
			w = &clocked{httptest.NewRecorder(), time.Now(), nil}
			s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(chatOf("", 100))))
			if took := time.Since(w.began); took != slowness*320*time.Millisecond {
				t.Errorf("the plain answer took %v", took)
			}
		})
	}
}

// Of two calls at the same time, the later may be first at the lock.
func TestTimeDoesNotGoBack(t *testing.T) {
	d, err := NewService(fast(func(d *Deployment) { d.RequestsPerMinute = 0 }), 1, epoch)
	if err != nil {
		t.Fatal(err)
	}
	d.Begin(at(time.Minute), Cost{Prompt: 1})
	if a := d.Begin(at(time.Minute-1), Cost{Prompt: 1}); !a.now.Equal(at(time.Minute)) {
		t.Errorf("came at %v", a.now)
	}
	if w := d.Stats().Windows; len(w) != 1 || w[0].Calls != 2 {
		t.Errorf("windows %+v", w)
	}
}
