package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

func TestJobLife(t *testing.T) {
	f := newFixture(t)
	r := f.do("POST", "/v1/jobs", `{"task":"echo","input":{"a":[1,"é\u0000"]},"queue":"default","priority":7,"session_id":null,
		"correlation_id":"order-7","scheduled_at":null,"deadline":null,"max_attempts":2,"max_cost_usd":0.25,"max_total_tokens":9000,"metadata":{"k":"v"}}`,
		"X-Request-Id", "my-request")
	job := into[forebay.Job](t, r, http.StatusAccepted)
	if r.Header.Get("Location") != "/v1/jobs/"+job.ID || r.Header.Get("Retry-After") == "" {
		t.Errorf("headers %v", r.Header)
	}
	if r.Header.Get("X-Request-Id") != "my-request" {
		t.Errorf("request id %q is not the one sent", r.Header.Get("X-Request-Id"))
	}
	if job.Status != forebay.StatusQueued || job.Priority != 7 || job.MaxAttempts != 2 || job.CorrelationID != "order-7" ||
		*job.MaxCostUSD != forebay.USD(0.25) || *job.MaxTotalTokens != 9000 || job.Metadata["k"] != "v" || job.Tenant != forebay.DefaultTenant {
		t.Errorf("job %+v", job)
	}
	wantProblem(t, f.do("GET", job.Links.Result, ""), http.StatusConflict, forebay.CodeConflict)

	f.settle(`{"text":"<done>"}`, nil)
	job = into[forebay.Job](t, f.do("GET", job.Links.Self, ""), http.StatusOK)
	if job.Status != forebay.StatusSucceeded || string(job.Result) != `{"text":"<done>"}` || job.Usage.InputTokens != 3 {
		t.Errorf("job %+v", job)
	}
	r = f.do("GET", job.Links.Result, "")
	if string(r.body) != `{"text":"<done>"}` || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("result %s as %s", r.body, r.Header.Get("Content-Type"))
	}
	attempts := into[forebay.Page[forebay.Attempt]](t, f.do("GET", job.Links.Attempts, ""), http.StatusOK)
	if len(attempts.Items) != 1 || attempts.Items[0].Outcome != forebay.OutcomeSucceeded {
		t.Errorf("attempts %+v", attempts)
	}
	wantProblem(t, f.do("POST", job.Links.Cancel, ""), http.StatusConflict, forebay.CodeConflict)
	wantProblem(t, f.do("POST", job.Links.Self+"/redrive", ""), http.StatusConflict, forebay.CodeConflict)

	log := f.logs.String()
	for _, want := range []string{`"route":"POST /v1/jobs"`, `"status":202`, `"request_id":"my-request"`, `"correlation_id":"order-7"`, `"tenant":"default"`, `"duration_ms"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	if strings.Contains(log, "done") || strings.Contains(log, `"é`) {
		t.Errorf("the log holds a payload: %s", log)
	}
}

func TestLargeResultStreams(t *testing.T) {
	f := newFixture(t)
	large := `"` + strings.Repeat("x", 300<<10) + `"`
	job := f.submit(jobBody(large))
	f.settle(large, nil)
	job = into[forebay.Job](t, f.do("GET", job.Links.Self, ""), http.StatusOK)
	if string(job.Result) != "null" {
		t.Errorf("a result of 300 KiB is inline: %d bytes", len(job.Result))
	}
	r := f.do("GET", job.Links.Result, "")
	if string(r.body) != large || r.ContentLength != int64(len(large)) {
		t.Errorf("got %d bytes, length %d, want %d", len(r.body), r.ContentLength, len(large))
	}
	if r = f.do("HEAD", job.Links.Result, ""); r.StatusCode != 200 || r.ContentLength != int64(len(large)) {
		t.Errorf("HEAD: status %d, length %d", r.StatusCode, r.ContentLength)
	}
}

func TestIdempotencyKey(t *testing.T) {
	f := newFixture(t)
	first := f.submit(jobBody(`1`), "Idempotency-Key", "k1")
	r := f.do("POST", "/v1/jobs", jobBody(`1`), "Idempotency-Key", "k1")
	again := into[forebay.Job](t, r, http.StatusAccepted)
	if again.ID != first.ID || r.Header.Get("Location") != "/v1/jobs/"+first.ID || r.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("second submit made %s, headers %v; want %s", again.ID, r.Header, first.ID)
	}
	wantProblem(t, f.do("POST", "/v1/jobs", jobBody(`2`), "Idempotency-Key", "k1"), http.StatusUnprocessableEntity, forebay.CodeIdempotencyMismatch)
	wantProblem(t, f.do("POST", "/v1/jobs", jobBody(`2`), "Idempotency-Key", strings.Repeat("k", 256)), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
	p := wantProblem(t, f.do("POST", "/v1/jobs", jobBody(`2`), "Idempotency-Key", ""), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
	if p.Field != "Idempotency-Key" || p.Detail != "Idempotency-Key: is empty; send 1 to 255 bytes, or leave the header out" {
		t.Errorf("an empty key: %+v", p)
	}
}

func TestListFilters(t *testing.T) {
	f := newFixture(t)
	var ids []string
	for range 3 {
		ids = append(ids, f.submit(`{"task":"echo","input":1,"correlation_id":"c"}`).ID)
	}
	into[forebay.Job](t, f.do("POST", "/v1/jobs/"+ids[0]+"/cancel", ""), http.StatusOK)
	for query, want := range map[string]int{
		"":                                    3,
		"?status=queued":                      2,
		"?status=queued,cancelled":            3,
		"?status=queued&status=cancelled":     3,
		"?status=succeeded":                   0,
		"?correlation_id=c&task=echo":         3,
		"?correlation_id=other&queue=default": 0,
	} {
		got := into[forebay.Page[forebay.Job]](t, f.do("GET", "/v1/jobs"+query, ""), http.StatusOK)
		if len(got.Items) != want || got.Items == nil {
			t.Errorf("%s: %d jobs, want %d", query, len(got.Items), want)
		}
	}
	var seen []string
	for cursor := ""; ; {
		page := into[forebay.Page[forebay.Job]](t, f.do("GET", "/v1/jobs?limit=2&cursor="+cursor, ""), http.StatusOK)
		for _, job := range page.Items {
			seen = append(seen, job.ID)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if len(seen) != 3 || seen[0] != ids[2] || seen[2] != ids[0] {
		t.Errorf("paged %v, want %v backwards", seen, ids)
	}
}

func TestLongPoll(t *testing.T) {
	f := newFixture(t)
	job := f.submit(jobBody(`1`))
	answers := make(chan forebay.Job)
	poll := func() {
		r := f.send(f.request("GET", job.Links.Self+"?wait=60s", nil))
		var got forebay.Job
		json.Unmarshal(r.body, &got)
		answers <- got
	}
	go poll()
	f.settle(`"ok"`, nil)
	if got := <-answers; got.Status != forebay.StatusSucceeded {
		t.Errorf("long poll answered %s", got.Status)
	}

	job = f.submit(jobBody(`1`))
	begun := time.Now()
	go poll()
	f.api.Drain()
	if got := <-answers; got.Status != forebay.StatusQueued || time.Since(begun) > 30*time.Second {
		t.Errorf("after Drain the long poll answered %s, after %v", got.Status, time.Since(begun))
	}
	wantProblem(t, f.do("GET", "/readyz", ""), http.StatusServiceUnavailable, forebay.CodeUnavailable)
}

func TestSetAside(t *testing.T) {
	f := newFixture(t)
	const base = "/v1/queues/default/dead-letters"
	poison := f.submit(jobBody(`"poison"`))
	f.settle("", forebay.Permanent("content_filter", "refused"))

	page := into[forebay.Page[forebay.SetAsideJob]](t, f.do("GET", base+"?reason=content_filter&job_ids="+poison.ID, ""), http.StatusOK)
	if len(page.Items) != 1 || page.Items[0].JobID != poison.ID || page.Items[0].Input != nil {
		t.Fatalf("listed %+v", page)
	}
	none := into[forebay.Page[forebay.SetAsideJob]](t, f.do("GET", base+"?before=2001-01-01T00:00:00Z", ""), http.StatusOK)
	if len(none.Items) != 0 {
		t.Errorf("the before filter let %d through", len(none.Items))
	}
	peeked := into[forebay.SetAsideJob](t, f.do("GET", base+"/"+poison.ID, ""), http.StatusOK)
	if string(peeked.Input) != `"poison"` || peeked.Reason != "content_filter" {
		t.Errorf("peeked %+v", peeked)
	}
	wantProblem(t, f.do("GET", "/v1/queues/default/quarantine/"+poison.ID, ""), http.StatusNotFound, forebay.CodeNotFound)
	wantProblem(t, f.do("GET", "/v1/queues/none/dead-letters", ""), http.StatusNotFound, forebay.CodeUnknownQueue)

	// Nothing here may purge or redrive anything.
	for _, body := range []string{`{}`, `{"filter":{}}`, `{"filter":null}`, `{"all":false}`, `{"filter":{"job_ids":[]}}`, `{"filter":{"task":""}}`, `{"filter":{"task":"echo"},"all":true}`} {
		wantProblem(t, f.do("POST", base+"/purge", body), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
	}
	wantProblem(t, f.do("POST", base+"/purge", ``), http.StatusBadRequest, forebay.CodeInvalidJSON)
	wantProblem(t, f.do("POST", base+"/purge", `{"al":true}`), http.StatusUnprocessableEntity, forebay.CodeUnknownField)
	wantProblem(t, f.do("POST", base+"/redrive", `{"filter":{"job_ids":[]}}`), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("POST", base+"/redrive", `{}`), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("POST", base+"/redrive", `{"edit":{"input":1}}`), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
	if p := wantProblem(t, f.do("POST", base+"/redrive", `{"filter":{"before":"yesterday"}}`), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest); !strings.Contains(p.Detail, "RFC 3339") {
		t.Errorf("detail %q", p.Detail)
	}

	dry := into[forebay.RedriveReport](t, f.do("POST", base+"/redrive", `{"dry_run":true}`), http.StatusOK)
	if dry.Matched != 1 || dry.Redriven != 0 || dry.Reasons["content_filter"] != 1 {
		t.Errorf("dry run %+v", dry)
	}
	done := into[forebay.RedriveReport](t, f.do("POST", base+"/redrive", `{"filter":{"job_ids":["`+poison.ID+`"]},"edit":{"input":"sweet"}}`), http.StatusOK)
	if done.Redriven != 1 {
		t.Errorf("redrive %+v", done)
	}
	if job := into[forebay.Job](t, f.do("GET", poison.Links.Self, ""), http.StatusOK); job.Generation != 2 || job.Status.Terminal() {
		t.Errorf("after the redrive %+v", job)
	}
	f.settle("", forebay.Permanent("content_filter", "refused"))
	if job := into[forebay.Job](t, f.do("POST", poison.Links.Self+"/redrive", ""), http.StatusAccepted); job.Generation != 3 {
		t.Errorf("after the second redrive %+v", job)
	}
	f.settle("", forebay.Permanent("content_filter", "refused"))
	purged := into[forebay.PurgeReport](t, f.do("POST", base+"/purge", `{"all":true}`), http.StatusOK)
	if purged.Purged != 1 {
		t.Errorf("purged %d", purged.Purged)
	}
	report := into[forebay.RetryReport](t, f.do("GET", "/v1/reports/retries", ""), http.StatusOK)
	if report.Attempts != 3 || report.Failed != 3 {
		t.Errorf("report %+v", report)
	}
	wantProblem(t, f.do("GET", "/v1/reports/retries?since=2030-01-01T00:00:00Z&until=2029-01-01T00:00:00Z", ""), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
}

func TestQueuesTasksDeployments(t *testing.T) {
	f := newFixture(t)
	f.submit(jobBody(`1`))
	queues := into[forebay.Page[forebay.QueueInfo]](t, f.do("GET", "/v1/queues", ""), http.StatusOK)
	if len(queues.Items) != 1 || queues.Items[0].Active != 1 {
		t.Errorf("queues %+v", queues)
	}
	for _, step := range []struct {
		verb   string
		paused bool
	}{{"pause", true}, {"resume", false}} {
		if q := into[forebay.QueueInfo](t, f.do("POST", "/v1/queues/default/"+step.verb, ""), http.StatusOK); q.Paused != step.paused {
			t.Errorf("after %s paused is %v", step.verb, q.Paused)
		}
	}
	wantProblem(t, f.do("POST", "/v1/queues/none/pause", ""), http.StatusNotFound, forebay.CodeUnknownQueue)
	wantProblem(t, f.do("GET", "/v1/queues/none", ""), http.StatusNotFound, forebay.CodeUnknownQueue)

	tasks := into[forebay.Page[map[string]any]](t, f.do("GET", "/v1/tasks", ""), http.StatusOK)
	if len(tasks.Items) != 2 || tasks.Items[0]["name"] != "echo" || tasks.Items[0]["queue"] != "default" {
		t.Errorf("tasks %v", tasks)
	}
	deployments := into[forebay.Page[map[string]any]](t, f.do("GET", "/v1/deployments", ""), http.StatusOK)
	if len(deployments.Items) != 1 || deployments.Items[0]["simulated"] != true {
		t.Errorf("deployments %v", deployments)
	}
	set := f.do("PUT", "/v1/deployments/sim/sim", `{"error_rate":0.5}`)
	if set.StatusCode != 200 || strings.TrimSpace(string(set.body)) != `{"error_rate":0.5}` || string(f.sims.faults) != `{"error_rate":0.5}` {
		t.Errorf("set faults: %d %s", set.StatusCode, set.body)
	}
	acts := into[forebay.Page[forebay.AuditEntry]](t, f.do("GET", "/v1/audit?action=set-sim-faults", ""), 200).Items
	if len(acts) != 1 || acts[0].Target != "sim" || acts[0].Detail != `{"error_rate":0.5}` || acts[0].Actor == "" {
		t.Errorf("audited as %+v", acts)
	}
	wantProblem(t, f.do("PUT", "/v1/deployments/sim/sim", `[1]`), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("PUT", "/v1/deployments/other/sim", `{}`), http.StatusNotFound, forebay.CodeNotFound)
	wantProblem(t, f.do("GET", "/v1/deployments/other/sim", ""), http.StatusNotFound, forebay.CodeNotFound)
	for _, path := range []string{"/healthz", "/readyz", "/"} {
		into[map[string]any](t, f.do("GET", path, ""), http.StatusOK)
	}
}

func TestDeployments(t *testing.T) {
	f := newFixture(t)
	if got := into[forebay.Deployment](t, f.do("GET", "/v1/deployments/sim", ""), http.StatusOK); got.Name != "sim" || got.Paused || got.Breaker != forebay.BreakerClosed {
		t.Errorf("%+v", got)
	}
	if got := into[forebay.Deployment](t, f.do("POST", "/v1/deployments/sim/pause", ""), http.StatusOK); !got.Paused || f.sims.actor == "" {
		t.Errorf("paused by %q: %+v", f.sims.actor, got)
	}
	into[forebay.Deployment](t, f.do("POST", "/v1/deployments/sim/forget", ""), http.StatusOK)
	if !f.sims.forgotten {
		t.Error("nothing was forgotten")
	}
	if got := into[forebay.Deployment](t, f.do("POST", "/v1/deployments/sim/resume", ""), http.StatusOK); got.Paused {
		t.Errorf("resumed: %+v", got)
	}
	if got := into[forebay.Page[forebay.DeploymentChange]](t, f.do("GET", "/v1/deployments/sim/changes?limit=3&cursor=x", ""), http.StatusOK); len(got.Items) != 1 ||
		got.Items[0].TokensPerMinute != 3 || got.NextCursor != "x" {
		t.Errorf("%+v", got)
	}
	for _, request := range []string{"GET /v1/deployments/other", "POST /v1/deployments/other/pause", "POST /v1/deployments/other/resume", "POST /v1/deployments/other/forget", "GET /v1/deployments/other/changes"} {
		method, path, _ := strings.Cut(request, " ")
		wantProblem(t, f.do(method, path, ""), http.StatusNotFound, forebay.CodeNotFound)
	}
	wantProblem(t, f.do("GET", "/v1/deployments/sim/changes?limit=501", ""), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
}
