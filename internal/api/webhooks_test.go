package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestWebhooks(t *testing.T) {
	f := newFixture(t)
	f.key = f.newKey("acme", forebay.ScopeOperate)
	ids := make(chan string, 5)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ids <- r.Header.Get("webhook-id") }))
	t.Cleanup(receiver.Close)

	r := f.do("POST", "/v1/webhooks", `{"name":"billing","url":"`+receiver.URL+`","event_types":["succeeded","failed"]}`)
	made := into[forebay.Webhook](t, r, http.StatusCreated)
	if r.Header.Get("Location") != "/v1/webhooks/billing" || !strings.HasPrefix(made.Secret, "whsec_") || len(made.EventTypes) != 2 || made.Concurrency != 4 {
		t.Errorf("made %s", r.body)
	}
	wantProblem(t, f.do("POST", "/v1/webhooks", `{"name":"billing","url":"`+receiver.URL+`"}`), http.StatusConflict, forebay.CodeConflict)

	for _, r := range []reply{f.do("GET", "/v1/webhooks", ""), f.do("GET", "/v1/webhooks/billing", "")} {
		if r.StatusCode != http.StatusOK || !strings.Contains(string(r.body), `"billing"`) || strings.Contains(string(r.body), "whsec_") {
			t.Errorf("got %d %s", r.StatusCode, r.body)
		}
	}
	if try := into[forebay.WebhookTry](t, f.do("POST", "/v1/webhooks/billing/test", ""), http.StatusOK); try.Outcome != forebay.WebhookDelivered || try.MessageID != <-ids {
		t.Errorf("test %+v", try)
	}
	rotated := into[forebay.Webhook](t, f.do("POST", "/v1/webhooks/billing/rotate-secret", ""), http.StatusOK)
	if rotated.Secret == "" || rotated.Secret == made.Secret || rotated.Secrets != 2 {
		t.Errorf("rotated %+v", rotated)
	}
	rotated = into[forebay.Webhook](t, f.do("POST", "/v1/webhooks/billing/rotate-secret", `{"overlap_hours":0}`), http.StatusOK)
	if rotated.Secrets != 1 {
		t.Errorf("rotated %+v", rotated)
	}
	disabled := into[forebay.Webhook](t, f.do("PUT", "/v1/webhooks/billing", `{"url":"`+receiver.URL+`","disabled":true}`), http.StatusOK)
	if disabled.DisabledAt == nil || len(disabled.EventTypes) != 0 || disabled.Secret != "" {
		t.Errorf("disabled %+v", disabled)
	}
	for _, list := range []string{"tries", "dead-letters"} {
		if r := f.do("GET", "/v1/webhooks/billing/"+list, ""); r.StatusCode != http.StatusOK || !strings.Contains(string(r.body), `"items":[]`) {
			t.Errorf("%s: %d %s", list, r.StatusCode, r.body)
		}
	}
	if report := into[forebay.RedeliverReport](t, f.do("POST", "/v1/webhooks/billing/redeliver", `{"all":true}`), http.StatusOK); report.Redelivered != 0 {
		t.Errorf("redelivered %+v", report)
	}

	for _, c := range []struct{ method, path, body string }{
		{"POST", "", `{"name":"x","url":"https://10.0.0.1/"}`}, {"POST", "", `{"name":"x","url":"https://user:pw@8.8.8.8/"}`},
		{"POST", "", `{"name":"x/y","url":"https://8.8.8.8/"}`}, {"POST", "", `{"name":"x","url":"https://8.8.8.8/","event_types":["none"]}`},
		{"POST", "", `{"name":"x","url":"https://8.8.8.8/","secret":"short"}`}, {"PUT", "/billing", `{"url":"gopher://8.8.8.8/"}`},
		{"POST", "/billing/rotate-secret", `{"overlap_hours":1000}`}, {"POST", "/billing/redeliver", `{}`}, {"POST", "/billing/test", `{"x":1}`},
	} {
		p := wantProblem(t, f.do(c.method, "/v1/webhooks"+c.path, c.body), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
		if strings.Contains(p.Detail, "10.0.0.1") || strings.Contains(p.Detail, "pw") {
			t.Errorf("%s: says too much: %s", c.body, p.Detail)
		}
	}
	wantProblem(t, f.do("POST", "/v1/webhooks", `{"name":"x","url":"https://8.8.8.8/","surprise":1}`), http.StatusUnprocessableEntity, forebay.CodeUnknownField)
	wantProblem(t, f.do("GET", "/v1/webhooks/billing/dead-letters?cursor=x", ""), http.StatusUnprocessableEntity, forebay.CodeInvalidCursor)

	f.key = f.newKey("other", forebay.ScopeOperate)
	for _, c := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/test"}, {"POST", "/rotate-secret"}, {"GET", "/tries"}, {"GET", "/dead-letters"}} {
		wantProblem(t, f.do(c[0], "/v1/webhooks/billing"+c[1], ""), http.StatusNotFound, forebay.CodeNotFound)
	}
	f.key = f.newKey("acme", forebay.ScopeOperate)
	if r := f.do("DELETE", "/v1/webhooks/billing", ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("deleted: %d %s", r.StatusCode, r.body)
	}
	wantProblem(t, f.do("DELETE", "/v1/webhooks/billing", ""), http.StatusNotFound, forebay.CodeNotFound)
	if p := wantProblem(t, f.do("GET", "/v1/webhooks/none", ""), http.StatusNotFound, forebay.CodeNotFound); p.Detail != `there is no webhook "none"` {
		t.Errorf("what is not there: %s", p.Detail)
	}
	p := wantProblem(t, f.do("PUT", "/v1/webhooks/none", `{"url":"https://8.8.8.8/"}`), http.StatusNotFound, forebay.CodeNotFound)
	if p.Detail != `there is no webhook "none" to change; POST /v1/webhooks makes one` {
		t.Errorf("a change of what is not there: %s", p.Detail)
	}
	if strings.Contains(f.logs.String(), "whsec_") {
		t.Error("a secret is in the log")
	}
}
