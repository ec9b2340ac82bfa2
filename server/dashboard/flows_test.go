package dashboard_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// An instance is listed and shown with what happened, and its forms change it.
func TestPagesOfOrchestrations(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		release := make(chan struct{})
		s := dashboardtest.Start(t, database, dashboardtest.Flows(t, release))
		key := s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate)
		v := s.Visit(t, key)
		const id = "-order 1/<b>"
		at := "/orchestrations/" + url.PathEscape(id)
		dashboardtest.StartInstance(t, s, key, "waits", id, `"`+strings.ReplaceAll(dashboardtest.Nasty, "\u202e", `\u202e`)+`"`)
		dashboardtest.StartInstance(t, s, key, "fails", "bad-1", `"x"`)
		dashboardtest.InstanceIs(t, s, key, "bad-1", forebay.OrchestrationFailed)

		v.Get("/orchestrations").Is(200).Has("order 1/&lt;b&gt;", "bad-1", "part of", "Failed").Lacks("<b>")
		v.Get("/orchestrations?status=Failed&name=fails&prefix=bad").Is(200).Has("bad-1").Lacks("order 1")
		v.Get("/orchestrations?from=2000-01-01T00:00&until=2000-01-02T00:00").Is(200).Has("No instance here")
		v.Get("/orchestrations?from=yesterday").Is(http.StatusUnprocessableEntity)
		v.Get("/orchestrations?status=Odd").Is(http.StatusUnprocessableEntity)
		v.Get(at).Is(200).Has("javascript:alert(1) \ufffdgnp.exe", "Suspend", "Send it an event", "forebay orchestrations show -- &#39;-order 1/&lt;b&gt;&#39;").Lacks("<script>", "\u202e", "Rewind")

		bad := v.Get("/orchestrations/bad-1").Is(200).Has("sub-orchestration", "Rewind", "Purge it", "show its parts", "refused: &lt;script&gt;").Lacks("Terminate it", "<script>", "\u202e")
		inner := bad.One(`href="/ui(/orchestrations/bad-1[?]child=[^"]+)"`)
		v.Get(strings.ReplaceAll(inner, "&amp;", "&")).Is(200).Has("hide its parts", "activity", "2 attempts")
		v.Get("/orchestrations/nobody").Is(http.StatusNotFound)
		whole := v.Get("/orchestrations/bad-1/history").Is(200)
		if !json.Valid([]byte(whole.Body)) || !strings.Contains(whole.Header.Get("Content-Disposition"), "attachment") || !strings.HasPrefix(whole.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%v %s", whole.Header, whole.Body)
		}

		v.Post(at+"/suspend", url.Values{"reason": {dashboardtest.Nasty}}).Is(200).Has("is being suspended")
		dashboardtest.InstanceIs(t, s, key, id, forebay.OrchestrationSuspended)
		v.Get(at).Is(200).Has("Resume", dashboardtest.Escaped)
		v.Post(at+"/resume", url.Values{}).Is(200).Has("goes on")
		dashboardtest.InstanceIs(t, s, key, id, forebay.OrchestrationRunning)
		v.Post(at+"/raise", url.Values{"event": {"approval"}, "data": {"{oops"}}).Is(http.StatusUnprocessableEntity).Has("must be JSON", "{oops", `value="approval"`)
		v.Post(at+"/raise", url.Values{"event": {"approval"}, "data": {`"yes"`}}).Is(200).Has("The event approval was sent")
		dashboardtest.InstanceIs(t, s, key, id, forebay.OrchestrationCompleted)
		v.Get(at).Is(200).Has("wait for event", "received", "Completed")

		close(release)
		v.Post("/orchestrations/bad-1/rewind", url.Values{}).Is(200).Has("what had failed is done again")
		dashboardtest.InstanceIs(t, s, key, "bad-1", forebay.OrchestrationCompleted)
		v.Get("/orchestrations/bad-1").Is(200).Has(`\u003cscript\u003ealert(1)\u003c/script\u003e javascript:alert(1) ` + "\ufffdgnp.exe").Lacks("\u202e")
		again := v.Post("/orchestrations/bad-1/restart", url.Values{}).Is(200).Has("started anew")
		if again.Path == "/ui/orchestrations/bad-1" {
			t.Errorf("the new instance is at %s", again.Path)
		}
		v.Post("/orchestrations/bad-1/restart", url.Values{"keep": {"yes"}}).Is(200).Has("started anew")
		dashboardtest.InstanceIs(t, s, key, "bad-1", forebay.OrchestrationCompleted)

		v.Post("/orchestrations/bad-1/purge", url.Values{"confirm": {"bad"}}).Is(http.StatusUnprocessableEntity).Has("nothing was changed")
		v.Post("/orchestrations/bad-1/purge", url.Values{"confirm": {"bad-1"}}).Is(200).Has("was deleted with its history")
		v.Get("/orchestrations/bad-1").Is(http.StatusNotFound)
		dashboardtest.StartInstance(t, s, key, "waits", "long", `"x"`)
		dashboardtest.InstanceIs(t, s, key, "long", forebay.OrchestrationRunning)
		v.Post("/orchestrations/long/terminate", url.Values{"confirm": {""}}).Is(http.StatusUnprocessableEntity)
		v.Post("/orchestrations/long/terminate", url.Values{"confirm": {"long"}}).Is(200)
		dashboardtest.InstanceIs(t, s, key, "long", forebay.OrchestrationTerminated)
	})
}

// A list of instances goes on where its page ended.
func TestOrchestrationsArePaged(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), dashboardtest.Flows(t, release))
	key := s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead)
	v := s.Visit(t, key)
	for range 51 {
		dashboardtest.StartInstance(t, s, key, "waits", "", `"x"`)
	}
	first := v.Get("/orchestrations?name=waits").Is(200).Has("50 instances on this page")
	next := strings.ReplaceAll(first.One(`rel="next" href="/ui([^"]+)"`), "&amp;", "&")
	v.Get(next).Is(200).Has("1 instance on this page").Lacks("Next page")
}

// A declared workflow is drawn, started and followed.
func TestPagesOfWorkflows(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database, dashboardtest.Flows(t, make(chan struct{})))
		key := s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead)
		v := s.Visit(t, key)
		v.Get("/workflows").Is(200).Has("diamond", "analyze-document", "four steps &lt;b&gt;").Lacks("<b>")
		page := v.Get("/workflows/diamond").Is(200).Has("<svg role=\"img\"", "if … chat", "None was started yet", "Start the workflow", "after: [first, left, right]")
		if n := strings.Count(page.Body, `class="tip"`); n != 4 { // first to last is implied
			t.Errorf("%d edges are drawn, want 4", n)
		}
		v.Get("/workflows/nothing").Is(http.StatusNotFound)
		v.Post("/workflows/diamond/start", url.Values{"input": {"{oops"}, "id": {"d 1"}}).Is(http.StatusUnprocessableEntity).Has("must be JSON", "{oops", `value="d 1"`)
		started := v.Post("/workflows/diamond/start", url.Values{"input": {`"hello"`}, "id": {"d 1"}}).Is(200).Has("The instance d 1 was started", "This is the state of the instance")
		if started.Path != "/ui/workflows/diamond?instance=d+1" {
			t.Errorf("the browser is at %s", started.Path)
		}
		dashboardtest.InstanceIs(t, s, key, "d 1", forebay.OrchestrationCompleted)
		v.Get("/workflows/diamond?instance=d+1").Is(200).Has(`class="step succeeded"`, `class="step skipped"`, "skipped", "✓ first")
		v.Get("/orchestrations/" + url.PathEscape("d 1")).Is(200).Has("/ui/workflows/diamond?instance=d&#43;1")
		v.Get("/workflows/analyze-document?instance=d+1").Is(http.StatusUnprocessableEntity).Has("no instance of this workflow")
		v.Get("/workflows/diamond?instance=nobody").Is(http.StatusNotFound)
	})
}

// Whoever may only look sees no forms and changes nothing. Other tenants see nothing.
func TestScopesOnPagesOfFlows(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), dashboardtest.Flows(t, make(chan struct{})))
	key := s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead)
	dashboardtest.StartInstance(t, s, key, "waits", "one", `"secret"`)
	dashboardtest.InstanceIs(t, s, key, "one", forebay.OrchestrationRunning)
	acts := []string{"suspend", "resume", "terminate", "rewind", "restart", "purge", "raise"}
	form := url.Values{"confirm": {"one"}, "event": {"approval"}, "data": {`"x"`}, "input": {`"x"`}}

	submits := s.Visit(t, key)
	submits.Get("/orchestrations/one").Is(200).Has("Send it an event", "secret").Lacks("Suspend", "Terminate it", "Start again")
	for _, act := range acts[:6] {
		submits.Post("/orchestrations/one/"+act, form).Is(http.StatusForbidden)
	}
	views := s.Visit(t, s.Key(t, forebay.ScopeView))
	views.Get("/orchestrations/one").Is(200).Has("secret").Lacks("<form")
	views.Get("/workflows/diamond").Is(200).Lacks("<form")
	for _, act := range acts {
		views.Post("/orchestrations/one/"+act, form).Is(http.StatusForbidden)
	}
	views.Post("/workflows/diamond/start", form).Is(http.StatusForbidden)

	elsewhere := s.Visit(t, s.KeyOf(t, "other", forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate))
	elsewhere.Get("/orchestrations").Is(200).Lacks("one")
	elsewhere.Get("/orchestrations/one").Is(http.StatusNotFound)
	elsewhere.Get("/orchestrations/one/history").Is(http.StatusNotFound)
	for _, act := range acts {
		elsewhere.Post("/orchestrations/one/"+act, form).Is(http.StatusNotFound)
	}
	elsewhere.Get("/orchestrations/one?tenant=acme").Is(http.StatusForbidden)

	visits := s.Visit(t, s.KeyOf(t, "other", forebay.ScopeView, forebay.ScopeOperate))
	visits.Get("/orchestrations/one?tenant=acme").Is(200).Has("need a key with the scope").Lacks("secret", "Terminate it")
	visits.Post("/orchestrations/one/terminate?tenant=acme", form).Is(http.StatusForbidden)
	if o := dashboardtest.InstanceIs(t, s, key, "one", forebay.OrchestrationRunning); o.Failure != nil {
		t.Errorf("%+v", o)
	}
}
