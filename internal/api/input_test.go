package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestBadInput(t *testing.T) {
	f := newFixture(t)
	job := f.submit(jobBody(`1`))
	const jsonType = "application/json"
	for _, c := range []struct {
		name, method, path, body, contentType string
		status                                int
		code                                  forebay.Code
		field                                 string
	}{
		{"empty body", "POST", "/v1/jobs", ``, jsonType, 400, forebay.CodeInvalidJSON, "body"},
		{"only space", "POST", "/v1/jobs", " \n", jsonType, 400, forebay.CodeInvalidJSON, "body"},
		{"broken JSON", "POST", "/v1/jobs", `{"task":`, jsonType, 400, forebay.CodeInvalidJSON, "body"},
		{"trailing garbage", "POST", "/v1/jobs", jobBody(`1`) + `x`, jsonType, 400, forebay.CodeInvalidJSON, "body"},
		{"two values", "POST", "/v1/jobs", jobBody(`1`) + jobBody(`2`), jsonType, 400, forebay.CodeInvalidJSON, "body"},
		{"invalid UTF-8", "POST", "/v1/jobs", jobBody("\"\xff\""), jsonType, 400, forebay.CodeInvalidJSON, "body"},
		{"NUL byte", "POST", "/v1/jobs", jobBody("\"\x00\""), jsonType, 400, forebay.CodeInvalidJSON, "body"},
		{"too deep", "POST", "/v1/jobs", jobBody(strings.Repeat("[", 5000) + strings.Repeat("]", 5000)), jsonType, 400, forebay.CodeInvalidJSON, "body"},
		{"not an object", "POST", "/v1/jobs", `[1]`, jsonType, 422, forebay.CodeInvalidRequest, "body"},
		{"null", "POST", "/v1/jobs", `null`, jsonType, 422, forebay.CodeInvalidRequest, "body"},
		{"unknown field", "POST", "/v1/jobs", `{"task":"echo","input":1,"prio":1}`, jsonType, 422, forebay.CodeUnknownField, "prio"},
		{"other case", "POST", "/v1/jobs", `{"Task":"echo","input":1}`, jsonType, 422, forebay.CodeUnknownField, "Task"},
		{"header field in body", "POST", "/v1/jobs", `{"task":"echo","input":1,"idempotency_key":"k"}`, jsonType, 422, forebay.CodeUnknownField, "idempotency_key"},
		{"field twice", "POST", "/v1/jobs", `{"task":"echo","input":1,"input":2}`, jsonType, 422, forebay.CodeInvalidRequest, "input"},
		{"no task", "POST", "/v1/jobs", `{"input":1}`, jsonType, 422, forebay.CodeInvalidRequest, "task"},
		{"no input", "POST", "/v1/jobs", `{"task":"echo"}`, jsonType, 422, forebay.CodeInvalidRequest, "input"},
		{"unknown task", "POST", "/v1/jobs", `{"task":"none","input":1}`, jsonType, 422, forebay.CodeUnknownTask, "task"},
		{"unknown queue", "POST", "/v1/jobs", `{"task":"echo","input":1,"queue":"none"}`, jsonType, 422, forebay.CodeUnknownQueue, "queue"},
		{"task refuses input", "POST", "/v1/jobs", `{"task":"picky","input":1}`, jsonType, 422, forebay.CodeInvalidRequest, "input"},
		{"task of wrong type", "POST", "/v1/jobs", `{"task":5,"input":1}`, jsonType, 422, forebay.CodeInvalidRequest, "task"},
		{"priority of wrong type", "POST", "/v1/jobs", `{"task":"echo","input":1,"priority":"5"}`, jsonType, 422, forebay.CodeInvalidRequest, "priority"},
		{"fractional priority", "POST", "/v1/jobs", `{"task":"echo","input":1,"priority":5.5}`, jsonType, 422, forebay.CodeInvalidRequest, "priority"},
		{"huge priority", "POST", "/v1/jobs", `{"task":"echo","input":1,"priority":1e99}`, jsonType, 422, forebay.CodeInvalidRequest, "priority"},
		{"priority out of range", "POST", "/v1/jobs", `{"task":"echo","input":1,"priority":10}`, jsonType, 422, forebay.CodeInvalidRequest, "priority"},
		{"bad time", "POST", "/v1/jobs", `{"task":"echo","input":1,"deadline":"tomorrow"}`, jsonType, 422, forebay.CodeInvalidRequest, "deadline"},
		{"time as number", "POST", "/v1/jobs", `{"task":"echo","input":1,"scheduled_at":17}`, jsonType, 422, forebay.CodeInvalidRequest, "scheduled_at"},
		{"past deadline", "POST", "/v1/jobs", `{"task":"echo","input":1,"deadline":"2001-01-01T00:00:00Z"}`, jsonType, 422, forebay.CodeInvalidRequest, "deadline"},
		{"money as string", "POST", "/v1/jobs", `{"task":"echo","input":1,"max_cost_usd":"1"}`, jsonType, 422, forebay.CodeInvalidRequest, "max_cost_usd"},
		{"too much money", "POST", "/v1/jobs", `{"task":"echo","input":1,"max_cost_usd":1e300}`, jsonType, 422, forebay.CodeInvalidRequest, "max_cost_usd"},
		{"tokens as string", "POST", "/v1/jobs", `{"task":"echo","input":1,"max_total_tokens":"1"}`, jsonType, 422, forebay.CodeInvalidRequest, "max_total_tokens"},
		{"no tokens", "POST", "/v1/jobs", `{"task":"echo","input":1,"max_total_tokens":0}`, jsonType, 422, forebay.CodeInvalidRequest, "max_total_tokens"},
		{"too many tokens", "POST", "/v1/jobs", `{"task":"echo","input":1,"max_total_tokens":1000000000001}`, jsonType, 422, forebay.CodeInvalidRequest, "max_total_tokens"},
		{"metadata of wrong type", "POST", "/v1/jobs", `{"task":"echo","input":1,"metadata":{"a":1}}`, jsonType, 422, forebay.CodeInvalidRequest, "metadata.a"},
		{"metadata of no object", "POST", "/v1/jobs", `{"task":"echo","input":1,"metadata":["a"]}`, jsonType, 422, forebay.CodeInvalidRequest, "metadata"},
		{"null in metadata", "POST", "/v1/jobs", `{"task":"echo","input":1,"metadata":{"k":null}}`, jsonType, 422, forebay.CodeInvalidRequest, "metadata.k"},
		{"metadata twice", "POST", "/v1/jobs", `{"task":"echo","input":1,"metadata":{"k":"a","\u006b":"b"}}`, jsonType, 422, forebay.CodeInvalidRequest, "metadata.k"},
		{"half a character", "POST", "/v1/jobs", `{"task":"echo","input":1,"correlation_id":"\udc00"}`, jsonType, 422, forebay.CodeInvalidRequest, "correlation_id"},
		{"half a character in metadata", "POST", "/v1/jobs", `{"task":"echo","input":1,"metadata":{"k":"\ud83d"}}`, jsonType, 422, forebay.CodeInvalidRequest, "metadata"},
		{"session", "POST", "/v1/jobs", `{"task":"echo","input":1,"session_id":"a\u0007"}`, jsonType, 422, forebay.CodeInvalidRequest, "session_id"},
		{"form", "POST", "/v1/jobs", `a=b`, "application/x-www-form-urlencoded", 415, forebay.CodeUnsupportedMedia, ""},
		{"other charset", "POST", "/v1/jobs", jobBody(`1`), "application/json; charset=latin1", 415, forebay.CodeUnsupportedMedia, ""},
		{"broken content type", "POST", "/v1/jobs", jobBody(`1`), ";;", 415, forebay.CodeUnsupportedMedia, ""},
		{"JSON as bulk", "POST", "/v1/jobs/bulk", jobBody(`1`), jsonType, 415, forebay.CodeUnsupportedMedia, ""},
		{"input over the limit", "POST", "/v1/jobs", jobBody(`"` + strings.Repeat("x", maxInput) + `"`), jsonType, 413, forebay.CodePayloadTooLarge, "input"},
		{"body over the limit", "POST", "/v1/jobs", jobBody(`"` + strings.Repeat("x", 2*maxInput) + `"`), jsonType, 413, forebay.CodePayloadTooLarge, "body"},

		{"bad status", "GET", "/v1/jobs?status=done", "", "", 422, forebay.CodeInvalidRequest, "status"},
		{"bad limit", "GET", "/v1/jobs?limit=many", "", "", 422, forebay.CodeInvalidRequest, "limit"},
		{"limit too high", "GET", "/v1/jobs?limit=501", "", "", 422, forebay.CodeInvalidRequest, "limit"},
		{"limit zero", "GET", "/v1/jobs?limit=0", "", "", 422, forebay.CodeInvalidRequest, "limit"},
		{"bad time", "GET", "/v1/jobs?created_after=yesterday", "", "", 422, forebay.CodeInvalidRequest, "created_after"},
		{"bad cursor", "GET", "/v1/jobs?cursor=nonsense", "", "", 422, forebay.CodeInvalidCursor, "cursor"},
		{"unknown parameter", "GET", "/v1/jobs?state=failed", "", "", 422, forebay.CodeUnknownField, "state"},
		{"NUL in query", "GET", "/v1/jobs?queue=a%00b", "", "", 422, forebay.CodeInvalidRequest, "query"},
		{"invalid UTF-8 in query", "GET", "/v1/jobs?queue=%ff", "", "", 422, forebay.CodeInvalidRequest, "query"},
		{"broken query", "GET", "/v1/jobs?queue=%zz", "", "", 422, forebay.CodeInvalidRequest, "query"},
		{"bad wait", "GET", job.Links.Self + "?wait=soon", "", "", 422, forebay.CodeInvalidRequest, "wait"},
		{"long wait", "GET", job.Links.Self + "?wait=61s", "", "", 422, forebay.CodeInvalidRequest, "wait"},
		{"negative wait", "GET", job.Links.Self + "?wait=-1s", "", "", 422, forebay.CodeInvalidRequest, "wait"},
		{"bad event number", "GET", job.Links.Events + "?after=x", "", "", 422, forebay.CodeInvalidRequest, "after"},
		{"bad report time", "GET", "/v1/reports/retries?since=yesterday", "", "", 422, forebay.CodeInvalidRequest, "since"},
		{"scopes in another case", "POST", "/v1/keys", `{"Scopes":["read"]}`, jsonType, 422, forebay.CodeUnknownField, "Scopes"},
		{"scopes twice", "POST", "/v1/keys", `{"scopes":["read"],"scopes":["admin"]}`, jsonType, 422, forebay.CodeInvalidRequest, "scopes"},
		{"null scope", "POST", "/v1/keys", `{"scopes":[null]}`, jsonType, 422, forebay.CodeInvalidRequest, "scopes[0]"},
		{"filter in another case", "POST", "/v1/queues/default/dead-letters/purge", `{"filter":{"TASK":"echo"}}`, jsonType, 422, forebay.CodeUnknownField, "filter.TASK"},
		{"time in a filter", "POST", "/v1/queues/default/dead-letters/purge", `{"filter":{"before":7}}`, jsonType, 422, forebay.CodeInvalidRequest, "filter.before"},
		{"body of a cancel", "POST", job.Links.Cancel, `{"reason":"x"}`, jsonType, 422, forebay.CodeInvalidRequest, "body"},
		{"body of a redrive", "POST", job.Links.Self + "/redrive", `[]`, jsonType, 422, forebay.CodeInvalidRequest, "body"},
		{"long body of a pause", "POST", "/v1/queues/default/pause", strings.Repeat(" ", 1<<20), jsonType, 422, forebay.CodeInvalidRequest, "body"},
		{"body of a resume", "POST", "/v1/queues/default/resume", `x`, "text/plain", 422, forebay.CodeInvalidRequest, "body"},
		{"bad scope", "POST", "/v1/keys", `{"scopes":["root"]}`, jsonType, 422, forebay.CodeInvalidRequest, "scopes"},
		{"no scopes", "POST", "/v1/keys", `{}`, jsonType, 422, forebay.CodeInvalidRequest, "scopes"},
		{"scopes of wrong type", "POST", "/v1/keys", `{"scopes":"admin"}`, jsonType, 422, forebay.CodeInvalidRequest, "scopes"},
		{"bad tenant", "POST", "/v1/keys", `{"scopes":["read"],"tenant":"a/b"}`, jsonType, 422, forebay.CodeInvalidRequest, "tenant"},
		{"past expiry", "POST", "/v1/keys", `{"scopes":["read"],"expires_at":"2001-01-01T00:00:00Z"}`, jsonType, 422, forebay.CodeInvalidRequest, "expires_at"},
		{"null key", "POST", "/v1/keys", `null`, jsonType, 422, forebay.CodeInvalidRequest, "body"},

		{"no such job", "GET", "/v1/jobs/job_00000000000000000000000000", "", "", 404, forebay.CodeNotFound, ""},
		{"odd job id", "GET", "/v1/jobs/" + strings.Repeat("a", 5000), "", "", 404, forebay.CodeNotFound, ""},
		{"NUL in path", "GET", "/v1/jobs/a%00b", "", "", 404, forebay.CodeNotFound, ""},
		{"invalid UTF-8 in path", "GET", "/v1/jobs/%ff", "", "", 404, forebay.CodeNotFound, ""},
		{"no such key", "DELETE", "/v1/keys/key_none", "", "", 404, forebay.CodeNotFound, ""},
		{"no such address", "GET", "/v2/jobs", "", "", 404, forebay.CodeNotFound, ""},
		{"below an address", "GET", "/healthz/x", "", "", 404, forebay.CodeNotFound, ""},
		{"unclean path", "GET", "/v1//jobs", "", "", 404, forebay.CodeNotFound, ""},
		{"wrong method", "PUT", "/v1/jobs", "{}", jsonType, 405, forebay.CodeMethodNotAllowed, ""},
		{"delete a job", "DELETE", job.Links.Self, "", "", 405, forebay.CodeMethodNotAllowed, ""},
		{"preflight", "OPTIONS", "/v1/jobs", "", "", 405, forebay.CodeMethodNotAllowed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := *f
			f.t = t
			var headers []string
			if c.contentType != "" {
				headers = []string{"Content-Type", c.contentType}
			}
			p := wantProblem(t, f.do(c.method, c.path, c.body, headers...), c.status, c.code)
			if p.Field != c.field {
				t.Errorf("field %q, want %q: %s", p.Field, c.field, p.Detail)
			}
			if c.status == 405 && f.do(c.method, c.path, c.body, headers...).Header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			if c.status == 413 && !strings.ContainsAny(p.Detail, "0123456789") {
				t.Errorf("the limit is not named: %s", p.Detail)
			}
		})
	}
	for query, want := range map[string]string{
		"limit=many": "limit: must be a whole number", "limit=0": "limit: must be at least 1", "limit=501": "limit: must be at most 500",
		"created_after=yesterday": "created_after: must be an RFC 3339 time such as 2030-01-02T15:04:05Z", "all_tenants=ja": "all_tenants: must be true or false",
	} {
		if p := wantProblem(t, f.do("GET", "/v1/jobs?"+query, ""), 422, forebay.CodeInvalidRequest); p.Detail != want {
			t.Errorf("%s: %q, want %q", query, p.Detail, want)
		}
	}
	if p := wantProblem(t, f.do("GET", "/v1/reports/usage?step=minute", ""), 422, forebay.CodeInvalidRequest); p.Detail != "step: must be one of hour, day, all" {
		t.Errorf("%q", p.Detail)
	}
	if p := wantProblem(t, f.do("PUT", "/v1/tenants/default", `{"budget":{"daily_usd":"five"}}`, "Content-Type", jsonType), 422, forebay.CodeInvalidRequest); !strings.HasSuffix(p.Detail, "must be a number of US dollars") {
		t.Errorf("%q", p.Detail)
	}
	if page := into[forebay.Page[forebay.Job]](t, f.do("GET", "/v1/jobs", ""), http.StatusOK); len(page.Items) != 1 {
		t.Errorf("bad requests made %d jobs", len(page.Items)-1)
	}
	r := f.do("POST", "/v1/jobs", "x", "Content-Encoding", "gzip")
	wantProblem(t, r, http.StatusUnsupportedMediaType, forebay.CodeUnsupportedMedia)
	r = f.do("GET", "/v1/jobs", "", "X-Request-Id", strings.Repeat("r", 200))
	if id := r.Header.Get("X-Request-Id"); id == "" || len(id) > 128 {
		t.Errorf("an overlong request id was answered with %q", id)
	}
}

// Chunked bodies have no length to check beforehand.
func TestChunkedBody(t *testing.T) {
	f := newFixture(t)
	chunked := func(body string) reply {
		return f.send(f.request("POST", "/v1/jobs", struct{ *strings.Reader }{strings.NewReader(body)}))
	}
	into[forebay.Job](t, chunked(jobBody(`"small"`)), http.StatusAccepted)
	job := into[forebay.Job](t, chunked(jobBody(`"`+strings.Repeat("x", 200<<10)+`"`)), http.StatusAccepted)
	if job.Status != forebay.StatusQueued {
		t.Errorf("job %+v", job)
	}
	wantProblem(t, chunked(jobBody(`"`+strings.Repeat("x", 2*maxInput)+`"`)), http.StatusRequestEntityTooLarge, forebay.CodePayloadTooLarge)
}
