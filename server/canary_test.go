package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// What must never be seen: secrets, and what is said to a model and what it says.
const (
	canaryPrompt    = "canaryprompt5tr4wberries"
	canaryOutput    = "canaryoutput8lackberries"
	canaryModelKey  = "sk-canarymodelkey0123456789"
	canaryHeader    = "canaryfunctionheader0123"
	canaryHook      = "canaryhookpath0123456789"
	canaryCollector = "canarycollectorkey012345"
	canaryDatabase  = "canarydatabasepassword01"
	canaryWrongKey  = "fb_canarywrongkey0123456789"
	canaryFolder    = "canaryfolder"
)

var canarySigning = "whsec_" + base64.StdEncoding.EncodeToString([]byte("canary-signing-secret-012345"))

// A server at debug level goes through many failures. Nothing that it logs, measures, traces or
// answers with an error contains a secret or a payload.
func TestNothingSecretIsSeen(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), canaryFolder)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		testCanaries(t, "sqlite:"+filepath.Join(folder, "forebay.db"), func() {})
	})
	t.Run("postgresql", func(t *testing.T) {
		database := dbtest.Postgres(t)
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		if _, set := u.User.Password(); !set { // then any will do
			u.User = url.UserPassword(u.User.Username(), canaryDatabase)
		}
		testCanaries(t, u.String(), func() {
			if n, err := pgtest.Terminate(t.Context(), database); err != nil || n == 0 {
				t.Errorf("%d connections were ended: %v", n, err)
			}
		})
	})
}

// errorBodies collects the bodies of all errors that the server answers with.
type errorBodies struct {
	bytes.Buffer
	statuses map[int]int
}

func (b *errorBodies) call(t *testing.T, method, address, key string, body io.Reader) (status int, answer []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 400 {
		b.statuses[resp.StatusCode]++
		b.Write(answer)
	}
	return resp.StatusCode, answer
}

func testCanaries(t *testing.T, database string, disturb func()) {
	model := modelsim.StartTest(func(c modelsim.Call) modelsim.Reply {
		repeated := "you said " + c.Prompt + " with the key " + canaryModelKey
		switch kind, _, _ := strings.Cut(c.Marker, "-"); {
		case kind == "broken" && c.Number == 1:
			return modelsim.Reply{Status: http.StatusInternalServerError, Message: repeated}
		case kind == "bad":
			return modelsim.Reply{Status: http.StatusBadRequest, Code: "nonsense", Message: repeated}
		case kind == "locked":
			return modelsim.Reply{Status: http.StatusForbidden, Message: repeated}
		case kind == "garbled":
			return modelsim.Reply{Body: []byte(`data: {"choices":"` + canaryOutput + `"}` + "\n\n")}
		case kind == "hang":
			return modelsim.Reply{Hang: true}
		}
		return modelsim.Reply{Text: canaryOutput + " and more"}
	})
	t.Cleanup(model.Close)
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, "%s %v", body, r.Header)
	}))
	t.Cleanup(echo.Close)
	hooked := make(chan struct{}, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprintf(w, "%s %v %s", body, r.Header, canaryOutput)
		hooked <- struct{}{}
	}))
	t.Cleanup(hook.Close)
	to := startCollector(t)
	deployment := simulatedDeployment(model)
	deployment.APIKey = canaryModelKey
	s := startWatched(t, to, server.Options{
		Database: database, Deployments: []server.Deployment{deployment}, Queues: quick, ShutdownTimeout: 10 * time.Millisecond,
		Webhooks:  server.Webhooks{AllowHTTP: true, AllowAddresses: []string{"127.0.0.0/8"}},
		Telemetry: server.Telemetry{OTLPHeaders: map[string]forebay.Secret{"x-key": canaryCollector}},
		Tasks: map[string]server.TaskOption{
			"echo": {HTTP: &server.HTTPTask{URL: echo.URL, Headers: map[string]forebay.Secret{"X-Key": canaryHeader}}},
			"form": {Prompt: "{{.needed}} " + canaryPrompt},
		},
		Functions: []forebay.Task{
			{Name: "panics", Run: func(_ context.Context, c forebay.TaskCall) (forebay.TaskResult, error) { panic(string(c.Input)) }},
			{Name: "fails", Run: func(_ context.Context, c forebay.TaskCall) (forebay.TaskResult, error) {
				return forebay.TaskResult{Output: json.RawMessage(canaryOutput)}, nil
			}},
			{Name: "errs", MaxAttempts: 1, Run: func(_ context.Context, c forebay.TaskCall) (forebay.TaskResult, error) {
				return forebay.TaskResult{}, errors.New("cannot work on " + string(c.Input))
			}},
		},
	})
	seen := errorBodies{statuses: map[int]int{}}
	post := func(path, key string, body any) (int, []byte) {
		b, ok := body.(string)
		if !ok {
			encoded, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			b = string(encoded)
		}
		return seen.call(t, http.MethodPost, s.URL+path, key, strings.NewReader(b))
	}
	must := func(status int, answer []byte) []byte {
		t.Helper()
		if status > 299 {
			t.Fatalf("%d %s", status, answer)
		}
		return answer
	}
	must(post("/v1/webhooks", "", map[string]any{"name": "hook", "url": hook.URL + "/" + canaryHook, "secret": canarySigning}))
	var key forebay.APIKey
	if err := json.Unmarshal(must(post("/v1/keys", "", map[string]any{"scopes": []string{"admin"}})), &key); err != nil || key.Key == "" {
		t.Fatal(err, key)
	}
	var weak forebay.APIKey
	if err := json.Unmarshal(must(post("/v1/keys", key.Key, map[string]any{"scopes": []string{"read"}})), &weak); err != nil {
		t.Fatal(err)
	}
	submit := func(task string, input any) string {
		t.Helper()
		var job forebay.Job
		if err := json.Unmarshal(must(post("/v1/jobs", key.Key, map[string]any{"task": task, "input": input, "max_attempts": 2,
			"metadata": map[string]string{"note": canaryPrompt}})), &job); err != nil {
			t.Fatal(err)
		}
		return job.ID
	}
	wait := func(id string) {
		t.Helper()
		for job := (forebay.Job{}); !job.Status.Terminal(); {
			_, answer := seen.call(t, http.MethodGet, s.URL+"/v1/jobs/"+id+"?wait=30s", key.Key, nil)
			if err := json.Unmarshal(must(http.StatusOK, answer), &job); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, marker := range []string{"good-1", "broken-1", "bad-1", "locked-1", "garbled-1"} {
		wait(submit("chat", modelsim.Marked(marker, canaryPrompt)))
	}
	for _, task := range []string{"echo", "panics", "fails", "errs"} {
		wait(submit(task, canaryPrompt))
	}
	hanging := submit("chat", modelsim.Marked("hang-1", canaryPrompt))
	if err := model.Await(t.Context(), func(st modelsim.Stats) bool { return st.InFlight == 1 }); err != nil {
		t.Fatal(err)
	}
	must(post("/v1/jobs/"+hanging+"/cancel", key.Key, ""))
	<-hooked

	disturb()
	post("/v1/jobs", key.Key, map[string]any{"task": "chat", "input": canaryPrompt}) // may fail, once
	for _, bad := range []string{
		`{"task":"chat","input":"` + canaryPrompt, `{"task":"chat","input":{"messages":"` + canaryPrompt + `"}}`, `{"task":"form","input":{"text":"` + canaryPrompt + `"}}`,
		`{"task":"chat","input":"x","priority":"` + canaryPrompt + `"}`, `{"task":"chat","input":"x","scheduled_at":"` + canaryPrompt + `"}`,
		`{"task":"nonsense","input":"` + canaryPrompt + `"}`, `["` + canaryPrompt + `"]`,
	} {
		if status, answer := post("/v1/jobs", key.Key, bad); status < 400 {
			t.Errorf("%s was accepted: %s", bad, answer)
		}
	}
	post("/v1/jobs/bulk", key.Key, `{"task":"chat","input":{"messages":"`+canaryPrompt+`"}}`)
	post("/v1/jobs", "", map[string]any{"task": "chat", "input": canaryPrompt})
	post("/v1/jobs", canaryWrongKey, map[string]any{"task": "chat", "input": canaryPrompt})
	post("/v1/jobs", weak.Key, map[string]any{"task": "chat", "input": canaryPrompt})
	post("/v1/webhooks", key.Key, map[string]any{"name": "bad", "url": "http://user:" + canaryHook + "@127.0.0.1/", "secret": canarySigning})
	post("/v1/webhooks", key.Key, map[string]any{"name": "bad", "url": hook.URL + "/" + canaryHook, "secret": "whsec_" + canaryHook})
	for _, path := range []string{"/v1/jobs/" + canaryPrompt, "/v1/jobs?cursor=" + canaryPrompt, "/" + canaryPrompt, "/v1/jobs?key=" + key.Key} {
		seen.call(t, http.MethodGet, s.URL+path, key.Key, nil)
	}
	must(seen.call(t, http.MethodDelete, s.URL+"/v1/keys/"+weak.ID, key.Key, nil))
	seen.call(t, http.MethodGet, s.URL+"/v1/jobs", weak.Key, nil)

	scraped := scrapeOf(t, s.Server)
	submit("chat", modelsim.Marked("hang-2", canaryPrompt))
	if err := model.Await(t.Context(), func(st modelsim.Stats) bool { return st.InFlight == 1 }); err != nil {
		t.Fatal(err)
	}
	s.stop() // in the middle of a call

	if len(to.named("chat test")) < 5 || len(to.metrics) == 0 || scraped.sum("forebay_webhook_deliveries_total") == 0 {
		t.Errorf("%d calls traced, %d metrics sent: too little was looked at", len(to.named("chat test")), len(to.metrics))
	}
	if n := strings.Count(s.logs.String(), "\n"); n < 30 {
		t.Errorf("only %d lines were logged", n)
	}
	for _, status := range []int{400, 401, 403, 404, 422} {
		if seen.statuses[status] == 0 {
			t.Errorf("no error with status %d was seen: %v", status, seen.statuses)
		}
	}
	password := canaryDatabase
	if u, err := url.Parse(database); err == nil && u.User != nil {
		password, _ = u.User.Password()
	}
	for where, text := range map[string]string{"the log": s.logs.String(), "the metrics": scraped.text, "what was exported": to.everything(), "the bodies of errors": seen.String()} {
		for _, canary := range []string{canaryPrompt, canaryOutput, canaryModelKey, canaryHeader, canaryHook, canaryCollector, password, canaryWrongKey, canaryFolder,
			canarySigning, strings.TrimPrefix(canarySigning, "whsec_"), key.Key, weak.Key} {
			if i := strings.Index(text, canary); i >= 0 {
				t.Errorf("%s shows %q: …%.300q…", where, canary, text[max(0, i-150):])
			}
		}
	}
}

// Prompts and outputs are on spans when that is asked for, cut to a bound, and nowhere else.
func TestContentIsCapturedOnRequest(t *testing.T) {
	t.Parallel()
	model := modelsim.StartTest(func(modelsim.Call) modelsim.Reply { return modelsim.Reply{Text: canaryOutput} })
	t.Cleanup(model.Close)
	to := startCollector(t)
	deployment := simulatedDeployment(model)
	deployment.APIKey = canaryModelKey
	s := startWatched(t, to, server.Options{Deployments: []server.Deployment{deployment}, Telemetry: server.Telemetry{CaptureContent: true}})
	s.MustAwait(t, servertest.Submit(t, s.Server, "chat", canaryPrompt+strings.Repeat(" and so on", 100_000)).ID)
	scraped := scrapeOf(t, s.Server)
	s.stop()
	calls := to.named("chat test")
	if len(calls) != 1 {
		t.Fatal(calls)
	}
	input, output := attribute(calls[0], "gen_ai.input.messages"), attribute(calls[0], "gen_ai.output.messages")
	if !strings.Contains(input, canaryPrompt) || len(input) < 30_000 || len(input) > 40_000 || !json.Valid([]byte(input)) {
		t.Errorf("the input is %.100s… of %d bytes", input, len(input))
	}
	if !strings.Contains(output, canaryOutput) || !strings.Contains(output, `"role":"assistant"`) {
		t.Errorf("the output is %s", output)
	}
	for where, text := range map[string]string{"the log": s.logs.String(), "the metrics": scraped.text} {
		if strings.Contains(text, canaryPrompt) || strings.Contains(text, canaryOutput) {
			t.Errorf("%s shows it too", where)
		}
	}
	if strings.Contains(to.everything(), canaryModelKey) {
		t.Error("the key was exported")
	}
}
