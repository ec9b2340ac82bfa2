package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/stores"
)

const durable = "/runtime/webhooks/durabletask"

// withOrchestrations gives an API orchestrators that run: "echo" returns its input, "wait" what
// the event "go" brings, and "flaky" fails at its first activity.
func withOrchestrations(t *testing.T) func(*api.Options) {
	t.Helper()
	s, err := stores.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.DB.Close() })
	r := orchestrate.NewRegistry()
	var calls atomic.Int32
	for _, err := range []error{
		r.AddOrchestrator("echo", "", func(o *task.WorkflowContext) (any, error) {
			var in json.RawMessage
			err := o.GetInput(&in)
			return in, err
		}),
		r.AddOrchestrator("wait", "", func(o *task.WorkflowContext) (any, error) {
			o.SetCustomStatus(`{"for":"go"}`)
			var got json.RawMessage
			err := o.WaitForSingleEvent("go", -1).Await(&got)
			return got, err
		}),
		r.AddOrchestrator("flaky", "", func(o *task.WorkflowContext) (any, error) {
			var got string
			err := o.CallActivity("flaky", task.WithActivityInput("in")).Await(&got)
			return got, err
		}),
		r.AddActivity("flaky", func(context.Context, json.RawMessage) (any, error) {
			if calls.Add(1) == 1 {
				return nil, errors.New("no luck")
			}
			return "out", nil
		}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	service := orchestrate.New(orchestrate.Options{Store: s.Orchestrations, Registry: r, MaxBytes: maxInput})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		service.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func(o *api.Options) { o.Orchestrations = service }
}

type instance struct {
	forebay.Orchestration
	HistoryEvents []map[string]any `json:"historyEvents"`
}

// until polls an instance, by the addresses that the answers give, until it has a status.
func (f *fixture) until(id string, want forebay.OrchestrationStatus) instance {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		r := f.do("GET", durable+"/instances/"+url.PathEscape(id), "")
		var got instance
		if err := json.Unmarshal(r.body, &got); err != nil || got.ID != id {
			f.t.Fatalf("status %d: %s", r.StatusCode, r.body)
		}
		if over := got.Status.Terminal(); over != (r.StatusCode == 200) || over == (r.StatusCode == 202) {
			f.t.Errorf("%s is %d", got.Status, r.StatusCode)
		}
		if r.StatusCode == 202 && (r.Header.Get("Retry-After") != "5" || !strings.HasSuffix(r.Header.Get("Location"), "/instances/"+url.PathEscape(id))) {
			f.t.Errorf("%s has the headers %v", got.Status, r.Header)
		}
		if got.Status == want {
			return got
		}
	}
	f.t.Fatalf("%s does not become %s", id, want)
	return instance{}
}

func (f *fixture) wantStatus(r reply, status int) reply {
	f.t.Helper()
	if r.StatusCode != status {
		f.t.Errorf("%s %s: status %d, want %d: %s", r.Request.Method, r.Request.URL, r.StatusCode, status, r.body)
	}
	return r
}

func TestOrchestrationStart(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	r := f.wantStatus(f.do("POST", durable+"/orchestrators/wait/a%20b%2F%C3%A9", `{"n": 1}`), 202)
	var uris map[string]string
	if err := json.Unmarshal(r.body, &uris); err != nil {
		t.Fatal(err)
	}
	at := f.server.URL + durable + "/instances/a%20b%2F%C3%A9"
	want := map[string]string{
		"id": "a b/é", "statusQueryGetUri": at, "sendEventPostUri": at + "/raiseEvent/{eventName}", "terminatePostUri": at + "/terminate?reason={text}",
		"suspendPostUri": at + "/suspend?reason={text}", "resumePostUri": at + "/resume?reason={text}", "rewindPostUri": at + "/rewind?reason={text}",
		"restartPostUri": at + "/restart", "purgeHistoryDeleteUri": at,
	}
	if fmt.Sprint(uris) != fmt.Sprint(want) {
		t.Errorf("addresses %v", uris)
	}
	if r.Header.Get("Location") != at || r.Header.Get("Retry-After") != "10" {
		t.Errorf("headers %v", r.Header)
	}
	if r := f.do("GET", strings.TrimPrefix(r.Header.Get("Location"), f.server.URL), "", "X-Forwarded-Proto", "https"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a server without keys answers through a proxy: %d", r.StatusCode)
	}
	o := f.until("a b/é", forebay.OrchestrationRunning)
	if o.Name != "wait" || string(o.Input) != `{"n": 1}` && string(o.Input) != `{"n":1}` || string(o.CustomStatus) != `{"for":"go"}` || o.Output != nil && string(o.Output) != "null" {
		t.Errorf("instance %+v", o)
	}

	wantProblem(t, f.do("POST", durable+"/orchestrators/wait/a%20b%2F%C3%A9", ""), 409, forebay.CodeConflict)
	p := wantProblem(t, f.do("POST", durable+"/orchestrators/eco", "1"), 404, forebay.CodeUnknownOrchestrator)
	if !strings.Contains(p.Detail, "no orchestrator eco; there are: echo, flaky, wait") {
		t.Errorf("detail %q", p.Detail)
	}
	for _, body := range []string{"{", `"a" "b"`, "\xff", strings.Repeat("[", 65) + strings.Repeat("]", 65)} {
		wantProblem(t, f.do("POST", durable+"/orchestrators/echo", body), 400, forebay.CodeInvalidJSON)
	}
	wantProblem(t, f.do("POST", durable+"/orchestrators/echo", `"`+strings.Repeat("x", maxInput)+`"`), 413, forebay.CodePayloadTooLarge)
	wantProblem(t, f.do("POST", durable+"/orchestrators/echo", "{}", "Content-Type", "text/plain"), 400, forebay.CodeUnsupportedMedia)
	wantProblem(t, f.do("POST", durable+"/orchestrators/echo/"+strings.Repeat("x", 257), "{}"), 400, forebay.CodeInvalidRequest)
	for _, query := range []string{"timeout=soon", "timeout=-1", "timeout=61", "timeout=NaN", "timeout=1&pollingInterval=-1", "pollingInterval=1"} {
		wantProblem(t, f.do("POST", durable+"/orchestrators/echo?"+query, "{}"), 400, forebay.CodeInvalidRequest)
	}
	wantProblem(t, f.do("GET", durable+"/orchestrators/echo", ""), 405, forebay.CodeMethodNotAllowed)
	if all := into[[]instance](t, f.do("GET", durable+"/instances", ""), 200); len(all) != 1 {
		t.Errorf("what was refused made instances: %v", all)
	}
}

func TestOrchestrationStartAndWait(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	start := durable + "/orchestrators/"
	for input, output := range map[string]string{`{"a":[1]}`: `{"a":[1]}`, "": "null", `"x"`: `"x"`} {
		if r := f.wantStatus(f.do("POST", start+"echo?timeout=60&pollingInterval=1", input), 200); strings.TrimSpace(string(r.body)) != output {
			t.Errorf("%s: output %s", input, r.body)
		}
	}
	if r := f.wantStatus(f.do("POST", start+"wait/w?timeout=0.01&pollingInterval=0.01", "1"), 202); !strings.Contains(string(r.body), `"statusQueryGetUri"`) {
		t.Errorf("not in time: %s", r.body)
	}
	failed := into[instance](t, f.do("POST", start+"flaky/f?timeout=60", ""), 200)
	if failed.Status != forebay.OrchestrationFailed || !strings.Contains(string(failed.Output), "no luck") || failed.Failure == nil {
		t.Errorf("failed: %+v", failed)
	}
	f.wantStatus(f.do("GET", durable+"/instances/f?returnInternalServerErrorOnFailure=false", ""), 200)
	if o := into[instance](t, f.do("GET", durable+"/instances/f?returnInternalServerErrorOnFailure=true", ""), 500); o.Status != forebay.OrchestrationFailed {
		t.Errorf("failed: %+v", o)
	}
	f.wantStatus(f.do("GET", durable+"/instances/w?returnInternalServerErrorOnFailure=true", ""), 202)
	f.wantStatus(f.do("GET", durable+"/instances/w?timeout=0.01", ""), 202)
	f.wantStatus(f.do("GET", durable+"/instances/w?wait=10ms", ""), 202)
	for _, query := range []string{"wait=soon", "wait=61s", "wait=1s&timeout=1"} {
		wantProblem(t, f.do("GET", durable+"/instances/w?"+query, ""), 400, forebay.CodeInvalidRequest)
	}
	f.wantStatus(f.do("POST", durable+"/instances/w/raiseEvent/go", "2"), 202)
	if o := into[instance](t, f.do("GET", durable+"/instances/w?wait=60s", ""), 200); string(o.Output) != "2" {
		t.Errorf("waited: %+v", o)
	}
}

func TestInstance(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	f.wantStatus(f.do("POST", durable+"/orchestrators/flaky/f?timeout=60", `"secret in"`), 200)
	var raw map[string]json.RawMessage
	r := f.wantStatus(f.do("GET", durable+"/instances/f?showInput=false", ""), 200)
	if err := json.Unmarshal(r.body, &raw); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"name", "instanceId", "runtimeStatus", "input", "customStatus", "output", "createdTime", "lastUpdatedTime", "historyEvents"} {
		if raw[name] == nil {
			t.Errorf("no %s in %s", name, r.body)
		}
	}
	if string(raw["input"]) != "null" || string(raw["historyEvents"]) != "null" || r.Header.Get("Location") != "" || r.Header.Get("Retry-After") != "" {
		t.Errorf("%v %s", r.Header, r.body)
	}
	kinds := func(query string) (kinds []string, events []map[string]any) {
		events = into[instance](t, f.do("GET", durable+"/instances/f?"+query, ""), 200).HistoryEvents
		for _, e := range events {
			kinds = append(kinds, e["EventType"].(string))
		}
		return kinds, events
	}
	got, events := kinds("showHistory=true")
	if !slices.Equal(got, []string{"ExecutionStarted", "TaskFailed", "ExecutionCompleted"}) {
		t.Fatalf("history %v", got)
	}
	if strings.Contains(fmt.Sprint(events), "secret in") || events[0]["FunctionName"] != "flaky" || events[1]["FunctionName"] != "flaky" ||
		events[1]["ScheduledTime"] == nil || events[1]["Timestamp"] == nil || !strings.Contains(events[1]["Reason"].(string), "no luck") || events[2]["OrchestrationStatus"] != "Failed" {
		t.Errorf("history %v", events)
	}
	f.wantStatus(f.do("POST", durable+"/instances/f/rewind?reason=again", ""), 202)
	f.until("f", forebay.OrchestrationCompleted)
	got, events = kinds("showHistory=true&showHistoryOutput=true")
	if events[0]["Input"] != "secret in" || !slices.Contains(got, "TaskCompleted") || events[len(events)-1]["Result"] != "out" {
		t.Errorf("history %v", events)
	}
	attempts := into[[]forebay.ActivityAttempt](t, f.do("GET", durable+"/instances/f/attempts", ""), 200)
	if len(attempts) != 2 || attempts[0].Outcome != "failed" || attempts[1].Outcome != "succeeded" {
		t.Errorf("attempts %+v", attempts)
	}
	for _, path := range []string{"/instances/none", "/instances/none/attempts", "/instances/none?timeout=1"} {
		wantProblem(t, f.do("GET", durable+path, ""), 404, forebay.CodeNotFound)
	}
	wantProblem(t, f.do("GET", durable+"/instances/f?showInput=perhaps", ""), 400, forebay.CodeInvalidRequest)
}

func TestInstances(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	for i := range 5 {
		f.wantStatus(f.do("POST", fmt.Sprintf("%s/orchestrators/echo/done-%d?timeout=60", durable, i), `"in"`), 200)
	}
	f.wantStatus(f.do("POST", durable+"/orchestrators/wait/open-0", `"in"`), 202)
	f.until("open-0", forebay.OrchestrationRunning)
	list := func(query, continuation string) (ids []string, next string) {
		t.Helper()
		r := f.do("GET", durable+"/instances?"+query, "", "x-ms-continuation-token", continuation)
		for _, o := range into[[]instance](t, r, 200) {
			ids = append(ids, o.ID)
			if hidden := string(o.Input) != `"in"`; hidden != strings.Contains(query, "showInput=false") {
				t.Errorf("%s: input %s", query, o.Input)
			}
		}
		return ids, r.Header.Get("x-ms-continuation-token")
	}
	for query, want := range map[string]int{
		"": 6, "runtimeStatus=Completed": 5, "runtimeStatus=running,suspended": 1, "runtimeStatus=Running&runtimeStatus=Completed": 6, "runtimeStatus=ContinuedAsNew": 0,
		"instanceIdPrefix=done-": 5, "instanceIdPrefix=done-3": 1, "name=wait": 1, "showInput=false": 6, "createdTimeFrom=2020-01-01T00:00:00Z": 6,
		"createdTimeFrom=2120-01-01T00:00:00Z": 0, "createdTimeTo=2020-01-01T00:00:00Z": 0, "createdTimeFrom=2020-01-01T00:00:00Z&createdTimeTo=2120-01-01T00:00:00%2B01:00": 6,
	} {
		if ids, next := list(query, ""); len(ids) != want || next != "" {
			t.Errorf("%s: %v, %q; want %d", query, ids, next, want)
		}
	}
	var all []string
	for next := ""; ; {
		ids, more := list("top=4", next)
		all = append(all, ids...)
		if next = more; next == "" {
			break
		}
	}
	if !slices.Equal(all, []string{"open-0", "done-4", "done-3", "done-2", "done-1", "done-0"}) {
		t.Errorf("pages %v", all)
	}
	if r := f.do("GET", durable+"/instances?instanceIdPrefix=x", ""); strings.TrimSpace(string(r.body)) != "[]" {
		t.Errorf("nothing is %s", r.body)
	}
	wantProblem(t, f.do("GET", durable+"/instances", "", "x-ms-continuation-token", "!"), 400, forebay.CodeInvalidCursor)
	for _, query := range []string{"top=0", "top=501", "runtimeStatus=Done", "createdTimeFrom=yesterday", "createdTimeFrom=2021-01-01T00:00:00Z&createdTimeTo=2020-01-01T00:00:00Z"} {
		wantProblem(t, f.do("GET", durable+"/instances?"+query, ""), 400, forebay.CodeInvalidRequest)
	}
	if ids, _ := list("status=Failed&taskHub=hub", ""); len(ids) != 6 {
		t.Errorf("a parameter that is not known here selects %v", ids)
	}
}

// A page of large instances ends before it takes up the server's memory.
func TestInstancesThatAreLarge(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	f := newFixture(t, withOrchestrations(t))
	large := `"` + strings.Repeat("x", maxInput-2) + `"`
	const n = 10 // with 2 MiB each: input and output
	for range n {
		f.wantStatus(f.do("POST", durable+"/orchestrators/echo?timeout=60", large), 200)
	}
	r := f.do("GET", durable+"/instances?showInput=false", "")
	first, next := into[[]instance](t, r, 200), r.Header.Get("x-ms-continuation-token")
	rest := into[[]instance](t, f.do("GET", durable+"/instances?showInput=false", "", "x-ms-continuation-token", next), 200)
	if len(first) != 8 || next == "" || len(first)+len(rest) != n {
		t.Errorf("pages of %d and %d, %q between them", len(first), len(rest), next)
	}
}

func TestInstanceVerbs(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	at := durable + "/instances/w"
	f.wantStatus(f.do("POST", durable+"/orchestrators/wait/w", `"in"`), 202)
	f.until("w", forebay.OrchestrationRunning)

	if r := f.wantStatus(f.do("POST", at+"/suspend?reason=lunch", ""), 202); len(r.body) != 0 {
		t.Errorf("body %s", r.body)
	}
	f.until("w", forebay.OrchestrationSuspended)
	f.wantStatus(f.do("POST", at+"/resume", "{}"), 202)
	f.until("w", forebay.OrchestrationRunning)
	wantProblem(t, f.do("POST", at+"/rewind", ""), 409, forebay.CodeConflict)
	wantProblem(t, f.do("POST", at+"/restart?restartWithNewInstanceId=false", ""), 409, forebay.CodeConflict)
	wantProblem(t, f.do("DELETE", at, ""), 412, forebay.CodeConflict)
	wantProblem(t, f.do("POST", at+"/terminate", `{"reason":"no"}`), 400, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("POST", at+"/terminate?reason="+strings.Repeat("x", 4097), ""), 400, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("POST", at+"/raiseEvent/go", "{"), 400, forebay.CodeInvalidJSON)
	wantProblem(t, f.do("POST", at+"/raiseEvent/go", "{}", "Content-Type", "application/x-www-form-urlencoded"), 400, forebay.CodeUnsupportedMedia)
	wantProblem(t, f.do("POST", at+"/raiseEvent/go", `"`+strings.Repeat("x", maxInput)+`"`), 413, forebay.CodePayloadTooLarge)
	wantProblem(t, f.do("POST", at+"/raiseEvent/"+strings.Repeat("x", 201), ""), 400, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("POST", at+"/explode", ""), 404, forebay.CodeNotFound)
	f.wantStatus(f.do("POST", at+"/raiseEvent/GO", `{"ok":true}`), 202)
	if o := f.until("w", forebay.OrchestrationCompleted); string(o.Output) != `{"ok":true}` {
		t.Errorf("output %s", o.Output)
	}

	for _, verb := range []string{"raiseEvent/go", "terminate", "suspend", "resume"} {
		wantProblem(t, f.do("POST", at+"/"+verb, ""), 410, forebay.CodeGone)
	}
	wantProblem(t, f.do("POST", at+"/rewind", ""), 410, forebay.CodeConflict)
	for _, verb := range []string{"raiseEvent/go", "terminate", "suspend", "resume", "rewind", "restart"} {
		wantProblem(t, f.do("POST", durable+"/instances/none/"+verb, ""), 404, forebay.CodeNotFound)
	}

	r := f.wantStatus(f.do("POST", at+"/restart", ""), 202)
	var again struct{ ID, StatusQueryGetURI string }
	if err := json.Unmarshal(r.body, &again); err != nil || again.ID == "w" || r.Header.Get("Location") != again.StatusQueryGetURI {
		t.Errorf("restarted %s", r.body)
	}
	if o := f.until(again.ID, forebay.OrchestrationRunning); string(o.Input) != `"in"` {
		t.Errorf("restarted with %s", o.Input)
	}
	if r := f.wantStatus(f.do("POST", at+"/restart?restartWithNewInstanceId=false", ""), 202); !strings.Contains(string(r.body), `"id":"w"`) {
		t.Errorf("restarted %s", r.body)
	}
	f.until("w", forebay.OrchestrationRunning)
	f.wantStatus(f.do("POST", at+"/terminate?reason=enough%20of%20it", ""), 202)
	if o := f.until("w", forebay.OrchestrationTerminated); !strings.Contains(string(o.Output), "enough of it") {
		t.Errorf("terminated %+v", o)
	}
}

func TestInstancePurge(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	for i := range 3 {
		f.wantStatus(f.do("POST", fmt.Sprintf("%s/orchestrators/echo/%d?timeout=60", durable, i), "1"), 200)
	}
	f.wantStatus(f.do("POST", durable+"/orchestrators/wait/open", ""), 202)
	if r := f.wantStatus(f.do("DELETE", durable+"/instances/0", ""), 200); strings.TrimSpace(string(r.body)) != `{"instancesDeleted":1}` {
		t.Errorf("purged %s", r.body)
	}
	wantProblem(t, f.do("DELETE", durable+"/instances/0", ""), 404, forebay.CodeNotFound)
	all := durable + "/instances?createdTimeFrom=2020-01-01T00:00:00Z"
	for _, bad := range []string{durable + "/instances", durable + "/instances?createdTimeTo=2020-01-01T00:00:00Z", durable + "/instances?createdTimeFrom=x", all + "&runtimeStatus=Running"} {
		wantProblem(t, f.do("DELETE", bad, ""), 400, forebay.CodeInvalidRequest)
	}
	wantProblem(t, f.do("DELETE", all+"&runtimeStatus=Failed", ""), 404, forebay.CodeNotFound)
	wantProblem(t, f.do("DELETE", all+"&top=1", ""), 400, forebay.CodeUnknownField)
	if r := f.wantStatus(f.do("DELETE", all+"&runtimeStatus=Completed,Failed", ""), 200); strings.TrimSpace(string(r.body)) != `{"instancesDeleted":2}` {
		t.Errorf("purged %s", r.body)
	}
	wantProblem(t, f.do("DELETE", all, ""), 404, forebay.CodeNotFound)
	f.until("open", forebay.OrchestrationRunning)
}

func TestOrchestrationScopesAndTenants(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	key := func(tenant string, scopes ...forebay.Scope) { f.key = f.newKey(tenant, scopes...) }
	key("acme", forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate)
	f.wantStatus(f.do("POST", durable+"/orchestrators/wait/w", `"secret"`), 202)
	f.until("w", forebay.OrchestrationRunning)
	f.wantStatus(f.do("POST", durable+"/orchestrators/echo/e?timeout=60", `1`), 200)
	routes := []struct {
		scope        forebay.Scope
		method, path string
	}{
		{forebay.ScopeSubmit, "POST", "/orchestrators/wait/w"}, {forebay.ScopeSubmit, "POST", "/instances/w/raiseEvent/other"},
		{forebay.ScopeRead, "GET", "/instances/w"}, {forebay.ScopeRead, "GET", "/instances/w/attempts"}, {forebay.ScopeRead, "GET", "/instances"},
		{forebay.ScopeOperate, "POST", "/instances/w/suspend"}, {forebay.ScopeOperate, "POST", "/instances/w/resume"}, {forebay.ScopeOperate, "POST", "/instances/w/terminate"},
		{forebay.ScopeOperate, "POST", "/instances/w/rewind"}, {forebay.ScopeOperate, "POST", "/instances/w/restart"}, {forebay.ScopeOperate, "DELETE", "/instances/e"},
		{forebay.ScopeOperate, "DELETE", "/instances?createdTimeFrom=2020-01-01T00:00:00Z"},
	}
	key("other", forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate)
	for _, c := range routes[1:] {
		r := f.do(c.method, durable+c.path, "")
		if c.path == "/instances" {
			if strings.TrimSpace(string(r.body)) != "[]" {
				t.Errorf("another tenant sees %s", r.body)
			}
			continue
		}
		wantProblem(t, r, 404, forebay.CodeNotFound)
	}
	// Each tenant has its own ids.
	f.wantStatus(f.do("POST", durable+"/orchestrators/echo/w?timeout=60", "1"), 200)
	for _, c := range routes {
		for _, scope := range []forebay.Scope{forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate} {
			if key("acme", scope); scope != c.scope {
				wantProblem(t, f.do(c.method, durable+c.path, ""), 403, forebay.CodeForbidden)
			} else if r := f.do(c.method, durable+c.path, ""); r.StatusCode == 401 || r.StatusCode == 403 {
				t.Errorf("%s %s: status %d with the scope %s", c.method, c.path, r.StatusCode, scope)
			}
		}
		f.key = ""
		wantProblem(t, f.do(c.method, durable+c.path, ""), 401, forebay.CodeUnauthorized)
	}
	key("acme", forebay.ScopeSubmit)
	if r := f.do("POST", durable+"/orchestrators/echo", "1", "X-Forwarded-Proto", "https"); !strings.HasPrefix(r.Header.Get("Location"), "https://") {
		t.Errorf("location %q behind a proxy that ends TLS", r.Header.Get("Location"))
	}
	if strings.Contains(f.logs.String(), "secret") {
		t.Error("an input is in the log")
	}
}
