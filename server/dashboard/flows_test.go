package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// nasty is a text that must not reach a page as it is.
const nasty = "<script>alert(1)</script> javascript:alert(1) \u202egnp.exe"

// escaped is what a page shows of it.
const escaped = "&lt;script&gt;alert(1)&lt;/script&gt; javascript:alert(1) \ufffdgnp.exe"

const diamond = `workflow: diamond
description: four steps <b>
steps:
  first:
    task: chat
  left:
    task: chat
    after: first
  right:
    task: chat
    if: steps.first.status == "failed"
  last:
    task: chat
    after: [first, left, right]
    continue_on_error: true
`

// flows gives a server orchestrators and a workflow. The activity says fails until release is
// closed.
func flows(t *testing.T, release chan struct{}) func(*server.Options) {
	says := server.NewActivity("says", func(context.Context, string) (string, error) {
		select {
		case <-release:
			return nasty, nil
		default:
			return "", errors.New("refused: " + nasty)
		}
	}).WithRetry(forebay.RetryPolicy{MaxAttempts: 2, First: time.Millisecond})
	child := server.NewOrchestrator("child", says.Call)
	fails := server.NewOrchestrator("fails", child.Call)
	waits := server.NewOrchestrator("waits", func(o *server.Orchestration, in string) (string, error) {
		o.SetStatus(map[string]string{"at": nasty})
		if err := o.Sleep(time.Millisecond); err != nil {
			return "", err
		}
		return server.WaitForEvent[string](o, "approval", time.Hour)
	})
	file := filepath.Join(t.TempDir(), "diamond.yaml")
	if err := os.WriteFile(file, []byte(diamond), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) {
		o.Blob = "file://" + t.TempDir()
		o.Durable = []server.DurableFunction{says, child, fails, waits}
		o.Workflows = []string{file}
	}
}

// instanceIs waits until an instance has that status.
func (s *running) instanceIs(t *testing.T, key, id string, status forebay.OrchestrationStatus) (o forebay.Orchestration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		var err error
		if o, err = s.client(t, key).Orchestration(ctx, id); err != nil {
			t.Fatalf("%s is %s: %v", id, o.Status, err)
		}
		if o.Status == status {
			return o
		}
	}
}

func (s *running) startInstance(t *testing.T, key, name, id, input string) {
	t.Helper()
	if _, err := s.client(t, key).StartOrchestration(t.Context(), name, id, json.RawMessage(input)); err != nil {
		t.Fatal(err)
	}
}

// An instance is listed and shown with what happened, and its forms change it.
func TestPagesOfOrchestrations(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		release := make(chan struct{})
		s := start(t, database, flows(t, release))
		key := s.key(t, forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate)
		v := s.visit(t, key)
		const id = "order 1/<b>"
		at := "/orchestrations/" + url.PathEscape(id)
		s.startInstance(t, key, "waits", id, `"`+strings.ReplaceAll(nasty, "\u202e", `\u202e`)+`"`)
		s.startInstance(t, key, "fails", "bad-1", `"x"`)
		s.instanceIs(t, key, "bad-1", forebay.OrchestrationFailed)

		v.get("/orchestrations").is(200).has("order 1/&lt;b&gt;", "bad-1", "part of", "Failed").lacks("<b>")
		v.get("/orchestrations?status=Failed&name=fails&prefix=bad").is(200).has("bad-1").lacks("order 1")
		v.get("/orchestrations?from=2000-01-01T00:00&until=2000-01-02T00:00").is(200).has("No instance here")
		v.get("/orchestrations?from=yesterday").is(http.StatusUnprocessableEntity)
		v.get("/orchestrations?status=Odd").is(http.StatusUnprocessableEntity)
		v.get(at).is(200).has("javascript:alert(1) \ufffdgnp.exe", "Suspend", "Send it an event").lacks("<script>", "\u202e", "Rewind")

		bad := v.get("/orchestrations/bad-1").is(200).has("sub-orchestration", "Rewind", "Purge it", "show its parts", "refused: &lt;script&gt;").lacks("Terminate it", "<script>", "\u202e")
		inner := bad.one(`href="/ui(/orchestrations/bad-1[?]child=[^"]+)"`)
		v.get(strings.ReplaceAll(inner, "&amp;", "&")).is(200).has("hide its parts", "activity", "2 attempts")
		v.get("/orchestrations/nobody").is(http.StatusNotFound)
		whole := v.get("/orchestrations/bad-1/history").is(200)
		if !json.Valid([]byte(whole.body)) || !strings.Contains(whole.header.Get("Content-Disposition"), "attachment") || !strings.HasPrefix(whole.header.Get("Content-Type"), "text/plain") {
			t.Errorf("%v %s", whole.header, whole.body)
		}

		v.post(at+"/suspend", url.Values{"reason": {nasty}}).is(200).has("is being suspended")
		s.instanceIs(t, key, id, forebay.OrchestrationSuspended)
		v.get(at).is(200).has("Resume", escaped)
		v.post(at+"/resume", url.Values{}).is(200).has("goes on")
		s.instanceIs(t, key, id, forebay.OrchestrationRunning)
		v.post(at+"/raise", url.Values{"event": {"approval"}, "data": {"{oops"}}).is(http.StatusUnprocessableEntity).has("must be JSON", "{oops", `value="approval"`)
		v.post(at+"/raise", url.Values{"event": {"approval"}, "data": {`"yes"`}}).is(200).has("The event approval was sent")
		s.instanceIs(t, key, id, forebay.OrchestrationCompleted)
		v.get(at).is(200).has("wait for event", "received", "Completed")

		close(release)
		v.post("/orchestrations/bad-1/rewind", url.Values{}).is(200).has("what had failed is done again")
		s.instanceIs(t, key, "bad-1", forebay.OrchestrationCompleted)
		v.get("/orchestrations/bad-1").is(200).has(`\u003cscript\u003ealert(1)\u003c/script\u003e javascript:alert(1) ` + "\ufffdgnp.exe").lacks("\u202e")
		again := v.post("/orchestrations/bad-1/restart", url.Values{}).is(200).has("started anew")
		if again.path == "/ui/orchestrations/bad-1" {
			t.Errorf("the new instance is at %s", again.path)
		}
		v.post("/orchestrations/bad-1/restart", url.Values{"keep": {"yes"}}).is(200).has("started anew")
		s.instanceIs(t, key, "bad-1", forebay.OrchestrationCompleted)

		v.post("/orchestrations/bad-1/purge", url.Values{"confirm": {"bad"}}).is(http.StatusUnprocessableEntity).has("nothing was changed")
		v.post("/orchestrations/bad-1/purge", url.Values{"confirm": {"bad-1"}}).is(200).has("was deleted with its history")
		v.get("/orchestrations/bad-1").is(http.StatusNotFound)
		s.startInstance(t, key, "waits", "long", `"x"`)
		s.instanceIs(t, key, "long", forebay.OrchestrationRunning)
		v.post("/orchestrations/long/terminate", url.Values{"confirm": {""}}).is(http.StatusUnprocessableEntity)
		v.post("/orchestrations/long/terminate", url.Values{"confirm": {"long"}}).is(200)
		s.instanceIs(t, key, "long", forebay.OrchestrationTerminated)
	})
}

// A list of instances goes on where its page ended.
func TestOrchestrationsArePaged(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := start(t, "sqlite:"+dbtest.SQLite(t), flows(t, release))
	key := s.key(t, forebay.ScopeSubmit, forebay.ScopeRead)
	v := s.visit(t, key)
	for range 51 {
		s.startInstance(t, key, "waits", "", `"x"`)
	}
	first := v.get("/orchestrations?name=waits").is(200).has("50 instances on this page")
	next := strings.ReplaceAll(first.one(`rel="next" href="/ui([^"]+)"`), "&amp;", "&")
	v.get(next).is(200).has("1 instance on this page").lacks("Next page")
}

// A declared workflow is drawn, started and followed.
func TestPagesOfWorkflows(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database, flows(t, make(chan struct{})))
		key := s.key(t, forebay.ScopeSubmit, forebay.ScopeRead)
		v := s.visit(t, key)
		v.get("/workflows").is(200).has("diamond", "analyze-document", "four steps &lt;b&gt;").lacks("<b>")
		page := v.get("/workflows/diamond").is(200).has("<svg role=\"img\"", "if … chat", "None was started yet", "Start the workflow", "after: [first, left, right]")
		if n := strings.Count(page.body, `class="tip"`); n != 4 { // first to last is implied
			t.Errorf("%d edges are drawn, want 4", n)
		}
		v.get("/workflows/nothing").is(http.StatusNotFound)
		v.post("/workflows/diamond/start", url.Values{"input": {"{oops"}, "id": {"d 1"}}).is(http.StatusUnprocessableEntity).has("must be JSON", "{oops", `value="d 1"`)
		started := v.post("/workflows/diamond/start", url.Values{"input": {`"hello"`}, "id": {"d 1"}}).is(200).has("The instance d 1 was started", "This is the state of the instance")
		if started.path != "/ui/workflows/diamond?instance=d+1" {
			t.Errorf("the browser is at %s", started.path)
		}
		s.instanceIs(t, key, "d 1", forebay.OrchestrationCompleted)
		v.get("/workflows/diamond?instance=d+1").is(200).has(`class="step succeeded"`, `class="step skipped"`, "skipped", "✓ first")
		v.get("/orchestrations/" + url.PathEscape("d 1")).is(200).has("/ui/workflows/diamond?instance=d&#43;1")
		v.get("/workflows/analyze-document?instance=d+1").is(http.StatusUnprocessableEntity).has("no instance of this workflow")
		v.get("/workflows/diamond?instance=nobody").is(http.StatusNotFound)
	})
}

// Whoever may only look sees no forms and changes nothing. Other tenants see nothing.
func TestScopesOnPagesOfFlows(t *testing.T) {
	t.Parallel()
	s := start(t, "sqlite:"+dbtest.SQLite(t), flows(t, make(chan struct{})))
	key := s.key(t, forebay.ScopeSubmit, forebay.ScopeRead)
	s.startInstance(t, key, "waits", "one", `"secret"`)
	s.instanceIs(t, key, "one", forebay.OrchestrationRunning)
	acts := []string{"suspend", "resume", "terminate", "rewind", "restart", "purge", "raise"}
	form := url.Values{"confirm": {"one"}, "event": {"approval"}, "data": {`"x"`}, "input": {`"x"`}}

	submits := s.visit(t, key)
	submits.get("/orchestrations/one").is(200).has("Send it an event", "secret").lacks("Suspend", "Terminate it", "Start again")
	for _, act := range acts[:6] {
		submits.post("/orchestrations/one/"+act, form).is(http.StatusForbidden)
	}
	views := s.visit(t, s.key(t, forebay.ScopeView))
	views.get("/orchestrations/one").is(200).has("secret").lacks("<form")
	views.get("/workflows/diamond").is(200).lacks("<form")
	for _, act := range acts {
		views.post("/orchestrations/one/"+act, form).is(http.StatusForbidden)
	}
	views.post("/workflows/diamond/start", form).is(http.StatusForbidden)

	elsewhere := s.visit(t, s.keyOf(t, "other", forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate))
	elsewhere.get("/orchestrations").is(200).lacks("one")
	elsewhere.get("/orchestrations/one").is(http.StatusNotFound)
	elsewhere.get("/orchestrations/one/history").is(http.StatusNotFound)
	for _, act := range acts {
		elsewhere.post("/orchestrations/one/"+act, form).is(http.StatusNotFound)
	}
	elsewhere.get("/orchestrations/one?tenant=acme").is(http.StatusForbidden)

	visits := s.visit(t, s.keyOf(t, "other", forebay.ScopeView, forebay.ScopeOperate))
	visits.get("/orchestrations/one?tenant=acme").is(200).has("need a key with the scope").lacks("secret", "Terminate it")
	visits.post("/orchestrations/one/terminate?tenant=acme", form).is(http.StatusForbidden)
	if o := s.instanceIs(t, key, "one", forebay.OrchestrationRunning); o.Failure != nil {
		t.Errorf("%+v", o)
	}
}
