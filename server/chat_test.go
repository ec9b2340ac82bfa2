package server_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// claudeAnswer is an answer of Anthropic's API that calls a tool.
const claudeAnswer = `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":1}}],` +
	`"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":6}}`

// chatModels are the models of tests: of OpenAI's API, of Anthropic's, and of both, Anthropic's
// first.
func chatModels(t *testing.T, database string, gpt, claude *servertest.Upstream) *server.Server {
	return servertest.Start(t, server.Options{
		Database: database, Blob: "file://" + filepath.ToSlash(t.TempDir()),
		Deployments: []server.Deployment{
			{Name: "gpt", Provider: server.ProviderOpenAI, Endpoint: gpt.URL, Model: "real", TokensPerMinute: 50_000},
			{Name: "claude", Provider: server.ProviderAnthropic, Endpoint: claude.URL, Model: "claude"},
		},
		Models: map[string]server.Model{"chat": server.InOrder("gpt"), "claude": server.InOrder("claude"), "both": server.InOrder("claude", "gpt")},
		Tasks:  map[string]server.TaskOption{"chat": {Models: []string{"claude", "both"}}},
	})
}

// picture is a message with a picture of so many bytes.
func picture(bytes int) string {
	return `{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("iVBO", bytes/4) + `"}}]}`
}

// TestWholeChat: a job takes a whole request of OpenAI's API, its deployment gets it as it is, and
// the result has the answer. What lies in blob storage is called and counted as what does not.
func TestWholeChat(t *testing.T) {
	t.Parallel()
	servertest.OnServers(t, func(t *testing.T, database string) {
		gpt := servertest.StartUpstream(t, servertest.AnswerPlainly)
		claude := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, claudeAnswer)
		})
		s := chatModels(t, database, gpt, claude)
		tools := `[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"z":{},"a":{}}}}}]`
		for _, test := range []struct {
			name, fields string
			bytes        int // of the picture
			to           *servertest.Upstream
		}{
			{"small", `"seed":12345678901234567890,"tools":` + tools + `,"nobody":{"z":1.50,"a":"<&>"}`, 40, gpt},
			{"large", `"seed":12345678901234567890,"tools":` + tools, 400_000, gpt},
			{"small for Anthropic", `"model":"claude","tools":` + tools, 40, claude},
			{"large for Anthropic", `"model":"claude","tools":` + tools, 400_000, claude},
			{"small that both can", `"model":"both","tools":` + tools, 40, claude},
			{"small that one can", `"model":"both","seed":1`, 40, gpt},
			{"large that one can", `"model":"both","seed":1`, 400_000, gpt},
		} {
			before := test.to.Calls.Load()
			input := `{"messages":[{"role":"system","content":"S"},` + picture(test.bytes) + `],"max_tokens":50,"raw":true,` + test.fields + `}`
			made, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: "chat", Input: json.RawMessage(input)})
			if err != nil {
				t.Fatal(err)
			}
			job := servertest.Await(t, s, made.ID)
			if job.Status != forebay.StatusSucceeded {
				t.Fatalf("%s: %s %+v", test.name, job.Status, job.Error)
			}
			if test.to.Calls.Load() != before+1 {
				t.Errorf("%s: another deployment was called", test.name)
			}
			sent, result := test.to.Body(), gjson.ParseBytes(job.Result)
			if test.to == claude {
				if gjson.Get(sent, "messages.0.content.1.source.media_type").Str != "image/png" || gjson.Get(sent, "tools.0.input_schema.properties").Raw != `{"z":{},"a":{}}` {
					t.Errorf("%s: Anthropic got %.500s", test.name, sent)
				}
				if got := result.Get("tool_calls.0.function.arguments").Str; got != `{"a":1}` || result.Get("finish_reason").Str != "tool_calls" || result.Get("raw.id").Str != "msg_1" {
					t.Errorf("%s: result %s", test.name, job.Result)
				}
				continue
			}
			for field := range strings.SplitSeq(test.fields, `,"`) {
				if part := strings.TrimPrefix(field, `"`); !strings.HasPrefix(part, "model") && !strings.Contains(sent, `"`+strings.TrimPrefix(part, `"`)) {
					t.Errorf("%s: the provider did not get %s: %.500s", test.name, part, sent)
				}
			}
			if !strings.Contains(sent, picture(test.bytes)) || result.Get("text").Str != "hï" || result.Get("raw.big").Raw != "12345678901234567890" {
				t.Errorf("%s: result %.500s of %.500s", test.name, job.Result, sent)
			}
		}
		// Four calls of gpt, each with a picture, which is no text of 100,000 tokens.
		var d forebay.Deployment
		if err := servertest.Over(t, s).Get(t.Context(), "/v1/deployments/gpt", &d); err != nil || d.Used.Tokens > 10_000 || d.Used.Tokens < 4*800 {
			t.Errorf("%d tokens are counted, %v", d.Used.Tokens, err)
		}
	})
}

// TestChatsThatNobodyCanAnswer: what no deployment of a model can do is refused at submit, by the
// field. So are models that the task does not allow.
func TestChatsThatNobodyCanAnswer(t *testing.T) {
	t.Parallel()
	gpt, claude := servertest.StartUpstream(t, servertest.AnswerPlainly), servertest.StartUpstream(t, servertest.AnswerPlainly)
	s := chatModels(t, "", gpt, claude)
	deep := strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70)
	for fields, want := range map[string]string{
		`"model":"claude","seed":1`: "input.seed", `"model":"claude","n":2`: "input.n", `"model":"claude","nobody":1`: "input.nobody",
		`"model":"claude","logprobs":true`: "input.logprobs", `"model":"claude","temperature":1.5`: "input.temperature",
		`"model":"gpt-5"`: "input.model", `"stream":true`: "input.stream", `"tools":[{"type":"function"}]`: "input.tools[0].function",
		`"tools":[{"type":"function","function":{"name":"f","parameters":` + deep + `}}]`: "input",
		`"n":129`: "input.n", `"MODEL":"x"`: "input.MODEL",
	} {
		_, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: "chat", Input: json.RawMessage(`{"messages":[{"role":"user","content":"a"}],` + fields + `}`)})
		e, ok := errors.AsType[*forebay.Error](err)
		if !ok || e.Field != want {
			t.Errorf("%.80s: %v, want an error about %s", fields, err, want)
		}
	}
	if gpt.Calls.Load()+claude.Calls.Load() > 0 {
		t.Error("something was called")
	}
	raced.Skip(t, raced.MuchData)
	// Ten megabytes of tools are read in time, and refused or sent as they are.
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, `,{"type":"function","function":{"name":"f%d","description":%q}}`, i, strings.Repeat("d", 9000))
	}
	input := `{"messages":[{"role":"user","content":"a"}],"tools":[` + many.String()[1:] + `]}`
	if job := servertest.Await(t, s, servertest.Submit(t, s, "chat", json.RawMessage(input)).ID); !job.Status.Terminal() && job.WaitingFor == nil {
		t.Errorf("%s %+v", job.Status, job.Error)
	}
}

// TestDeltasOfARunningJob: who follows a job's events with deltas sees the answer grow, from
// whichever process; who follows them without sees events alone.
func TestDeltasOfARunningJob(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"one process": false, "two processes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := make(chan struct{}, 8)
			u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, n int64) {
				w.Header().Set("Content-Type", "text/event-stream")
				say := func(text, finish string) {
					fmt.Fprintf(w, "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":%s}]}\n\n", text, finish)
					w.(http.Flusher).Flush()
				}
				say("The Limmat ", "null")
				select { // the answer goes on when the client has its beginning
				case <-seen:
				case <-r.Context().Done():
					return
				}
				if n == 1 { // and breaks off, once
					panic(http.ErrAbortHandler)
				}
				say("flows.", `"stop"`)
				_, _ = io.WriteString(w, "data: [DONE]\n\n")
			})
			o := server.Options{
				Deployments: []server.Deployment{{Name: "up", Provider: server.ProviderOpenAI, Endpoint: u.URL, Model: "m"}},
				Queues:      map[string]server.Queue{"default": {Retry: server.Retry{First: time.Millisecond, Max: time.Millisecond}}},
			}
			var s *server.Server
			if shared {
				o.Database, o.Blob = dbtest.Postgres(t), "file://"+filepath.ToSlash(t.TempDir())
				worker := o
				worker.Role, o.Role = server.RoleWorker, server.RoleAPI
				s = servertest.Start(t, o)
				startWorker(t, worker)
			} else {
				s = servertest.Start(t, o)
			}
			job := servertest.Submit(t, s, "chat", "Which river flows through Zürich?")
			resp, err := http.Get(servertest.Over(t, s).URL + "/v1/jobs/" + job.ID + "/events?deltas=true") //nolint:noctx // the test's end closes it
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			texts, last := map[int]string{}, ""
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
					last = event
				}
				data, ok := strings.CutPrefix(lines.Text(), "data: ")
				if !ok || last != "delta" {
					continue
				}
				var d forebay.Delta
				if err := json.Unmarshal([]byte(data), &d); err != nil || d.JobID != job.ID || d.Generation != 1 || d.Offset != len(texts[d.Attempt]) {
					t.Fatalf("delta %s after %q: %v", data, texts[d.Attempt], err)
				}
				if texts[d.Attempt] += d.Text; texts[d.Attempt] == "The Limmat " {
					seen <- struct{}{}
				}
			}
			if last != string(forebay.EventSucceeded) || texts[1] != "The Limmat " || !shared && texts[2] != "The Limmat flows." {
				t.Errorf("the last event is %s, the deltas are %v", last, texts)
			}
			if got := servertest.Await(t, s, job.ID); gjson.GetBytes(got.Result, "text").Str != "The Limmat flows." {
				t.Errorf("result %s", got.Result)
			}
			events, err := servertest.Over(t, s).Events(t.Context(), job.ID)
			if err != nil || len(events) < 4 {
				t.Errorf("%d events without deltas, %v", len(events), err)
			}
		})
	}
}

// startWorker runs a server that answers no HTTP, until the test ends.
func startWorker(t *testing.T, o server.Options) {
	t.Helper()
	o.Log.Level = "error"
	servertest.UntilEnd(t, o)
}
