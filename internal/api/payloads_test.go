package api_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

// opened returns the targets of the audit rows about opened payloads, newest first.
func (f *fixture) opened(admin string) (targets []string) {
	f.t.Helper()
	page := into[forebay.Page[forebay.AuditEntry]](f.t, f.do("GET", "/v1/audit?action=open-payload", "", "Authorization", "Bearer "+admin), 200)
	for _, e := range page.Items {
		if e.Tenant != "acme" || e.Actor == "" || !strings.Contains(e.Detail, `"key_tenant"`) {
			f.t.Errorf("%+v", e)
		}
		targets = append(targets, e.Target)
	}
	return targets
}

func (f *fixture) wantOpened(admin string, want ...string) {
	f.t.Helper()
	if got := f.opened(admin); strings.Join(got, " ") != strings.Join(want, " ") {
		f.t.Errorf("opened %v, want %v", got, want)
	}
}

func TestInputs(t *testing.T) {
	f := newFixture(t)
	admin := f.newKey("ops", forebay.ScopeAdmin)
	owner, reader := f.newKey("acme", forebay.ScopeSubmit, forebay.ScopePayload), f.newKey("acme", forebay.ScopeRead, forebay.ScopeOperate)
	visitor := f.newKey("ops", forebay.ScopeView, forebay.ScopePayload)
	f.key = owner
	const exact = `{"big":123456789012345678901234567890,"small":1.10,"text":"a\u00e9ü"}`
	small := f.submit(jobBody(exact))
	large := `"` + strings.Repeat("ü", 100_000) + `"`
	big := f.submit(jobBody(large))

	for _, c := range []struct{ job, want string }{{small.ID, exact}, {big.ID, large}} {
		r := f.do("GET", "/v1/jobs/"+c.job+"/input", "")
		if r.StatusCode != 200 || string(r.body) != c.want {
			t.Fatalf("%d %.200s", r.StatusCode, r.body)
		}
		if h := r.Header; h.Get("Content-Type") != "application/json" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment;") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%v", h)
		}
	}
	// A preview ends with a whole character: ü has two bytes and a quotation mark comes first.
	r := f.do("GET", "/v1/jobs/"+big.ID+"/input?limit=4096", "")
	if string(r.body) != large[:4095] || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") || r.Header.Get("Forebay-Input-Bytes") != strconv.Itoa(len(large)) {
		t.Errorf("%d bytes, %v", len(r.body), r.Header)
	}
	if r := f.do("GET", "/v1/jobs/"+small.ID+"/input?limit=4096", ""); string(r.body) != exact || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", r.body, r.Header)
	}
	f.wantOpened(admin, big.ID+"/input", small.ID+"/input")

	for _, key := range []string{reader, f.newKey("ops", forebay.ScopeView)} {
		f.key = key
		wantProblem(t, f.do("GET", "/v1/jobs/"+small.ID+"/input", "", forebay.TenantHeader, "acme"), 403, forebay.CodeForbidden)
	}
	f.key = f.newKey("rival", forebay.ScopePayload, forebay.ScopeRead)
	wantProblem(t, f.do("GET", "/v1/jobs/"+small.ID+"/input", ""), 404, forebay.CodeNotFound)
	f.wantOpened(admin, big.ID+"/input", small.ID+"/input")
	f.key = visitor
	for range 50 {
		if r := f.do("GET", "/v1/jobs/"+small.ID+"/input", "", forebay.TenantHeader, "acme"); string(r.body) != exact {
			t.Fatalf("%s", r.body)
		}
	}
	f.wantOpened(admin, small.ID+"/input", big.ID+"/input", small.ID+"/input")
}

func TestResultsOfOtherTenants(t *testing.T) {
	f := newFixture(t)
	admin, viewer := f.newKey("ops", forebay.ScopeAdmin), f.newKey("ops", forebay.ScopeView)
	f.key = f.newKey("acme", forebay.ScopeSubmit, forebay.ScopeRead)
	job := f.submit(jobBody(`1`))
	f.settle(`"the answer"`, nil)
	at := "/v1/jobs/" + job.ID
	if got := into[forebay.Job](t, f.do("GET", at, ""), 200); string(got.Result) != `"the answer"` || got.ResultWithheld {
		t.Errorf("at home: %s %t", got.Result, got.ResultWithheld)
	}
	f.wantOpened(admin)

	f.key = viewer
	for _, query := range []string{"", "?wait=1s"} {
		got := into[forebay.Job](t, f.do("GET", at+query, "", forebay.TenantHeader, "acme"), 200)
		if string(got.Result) != "null" || !got.ResultWithheld || got.Status != forebay.StatusSucceeded {
			t.Errorf("a viewer sees %s %t", got.Result, got.ResultWithheld)
		}
	}
	wantProblem(t, f.do("GET", at+"/result", "", forebay.TenantHeader, "acme"), 403, forebay.CodeForbidden)
	wantProblem(t, f.do("GET", at+"/events?deltas=true", "", forebay.TenantHeader, "acme"), 403, forebay.CodeForbidden)
	if r := f.do("GET", at+"/events", "", forebay.TenantHeader, "acme"); r.StatusCode != 200 || strings.Contains(string(r.body), "the answer") || !strings.Contains(string(r.body), "succeeded") {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	f.wantOpened(admin)

	f.key = f.newKey("ops", forebay.ScopeView, forebay.ScopePayload)
	if got := into[forebay.Job](t, f.do("GET", at, "", forebay.TenantHeader, "acme"), 200); string(got.Result) != `"the answer"` {
		t.Errorf("with the scope payload: %s", got.Result)
	}
	f.wantOpened(admin, job.ID+"/result")
	f.key = admin
	if r := f.do("GET", at+"/result", "", forebay.TenantHeader, "acme"); string(r.body) != `"the answer"` {
		t.Errorf("%s", r.body)
	}
	if r := f.do("GET", at+"/events", "", forebay.TenantHeader, "acme"); !strings.Contains(string(r.body), "the answer") {
		t.Errorf("%s", r.body)
	}
	f.wantOpened(admin, job.ID+"/events", job.ID+"/result", job.ID+"/result")
}

func TestDeadLettersOfAllQueuesAndTenants(t *testing.T) {
	f := newFixture(t)
	admin, viewer := f.newKey("ops", forebay.ScopeAdmin), f.newKey("ops", forebay.ScopeView)
	owner := f.newKey("acme", forebay.ScopeSubmit, forebay.ScopeOperate)
	var ids []string
	for _, key := range []string{owner, f.newKey("rival", forebay.ScopeSubmit), owner} {
		f.key = key
		ids = append(ids, f.submit(jobBody(`"input"`)).ID)
		f.settle("", forebay.Permanent("content_filter", "refused"))
	}
	list := func(key, query string, headers ...string) (found []string) {
		t.Helper()
		page := into[forebay.Page[forebay.SetAsideJob]](t, f.do("GET", "/v1/dead-letters"+query, "", append(headers, "Authorization", "Bearer "+key)...), 200)
		for _, j := range page.Items {
			found = append(found, j.JobID+" "+j.Tenant+" "+j.Queue)
		}
		return found
	}
	first, second, third := ids[0]+" acme default", ids[1]+" rival default", ids[2]+" acme default"
	class := into[forebay.Page[forebay.SetAsideJob]](t, f.do("GET", "/v1/dead-letters", "", "Authorization", "Bearer "+owner), 200).Items[0].ErrorClass
	for _, c := range []struct {
		key, query string
		headers    []string
		want       []string
	}{
		{owner, "", nil, []string{third, first}},
		{viewer, "", nil, nil},
		{viewer, "", []string{forebay.TenantHeader, "acme"}, []string{third, first}},
		{viewer, "?all_tenants=true", nil, []string{third, second, first}},
		{viewer, "?all_tenants=true&task=echo&queue=default&error_class=" + string(class), nil, []string{third, second, first}},
		{viewer, "?all_tenants=true&task=picky", nil, nil},
		{viewer, "?all_tenants=true&error_class=throttled", nil, nil},
		{viewer, "?all_tenants=true&after=2100-01-01T00:00:00Z", nil, nil},
		{viewer, "?all_tenants=true&limit=1", nil, []string{third}},
	} {
		if got := list(c.key, c.query, c.headers...); strings.Join(got, ",") != strings.Join(c.want, ",") {
			t.Errorf("%s %v: %v", c.query, c.headers, got)
		}
	}
	groups := into[forebay.SetAsideGroups](t, f.do("GET", "/v1/dead-letters/groups?all_tenants=true", "", "Authorization", "Bearer "+viewer), 200)
	if len(groups.Groups) != 1 || groups.Groups[0].Count != 3 || groups.Groups[0].Task != "echo" || groups.Groups[0].ExampleJobID != ids[2] || !groups.Complete || groups.Counted != 3 {
		t.Errorf("%+v", groups)
	}
	if own := into[forebay.SetAsideGroups](t, f.do("GET", "/v1/dead-letters/groups", "", "Authorization", "Bearer "+owner), 200); own.Counted != 2 {
		t.Errorf("%+v", own)
	}

	peek := func(key string) forebay.SetAsideJob {
		t.Helper()
		return into[forebay.SetAsideJob](t, f.do("GET", "/v1/queues/default/dead-letters/"+ids[0], "", "Authorization", "Bearer "+key, forebay.TenantHeader, "acme"), 200)
	}
	if j := peek(viewer); j.Input != nil || !j.InputWithheld {
		t.Errorf("a viewer sees %s", j.Input)
	}
	f.wantOpened(admin)
	if j := peek(owner); string(j.Input) != `"input"` || j.InputWithheld {
		t.Errorf("an operator at home sees %s", j.Input)
	}
	if j := peek(admin); string(j.Input) != `"input"` {
		t.Errorf("an administrator sees %s", j.Input)
	}
	f.wantOpened(admin, ids[0]+"/input", ids[0]+"/input")
}

func TestMessagesOfOtherTenants(t *testing.T) {
	f := newFixture(t)
	admin := f.newKey("ops", forebay.ScopeAdmin)
	f.key = f.newKey("acme", forebay.ScopeSubmit, forebay.ScopeOperate, forebay.ScopeRead)
	if r := f.do("PUT", "/v1/queues/plain", "{}"); r.StatusCode != 201 {
		t.Fatalf("%s", r.body)
	}
	if r := f.do("POST", "/v1/queues/plain/messages", `{"body":"private"}`); r.StatusCode >= 300 {
		t.Fatalf("%s", r.body)
	}
	peek := func(key string) string {
		t.Helper()
		r := f.do("GET", "/v1/queues/plain/messages", "", "Authorization", "Bearer "+key, forebay.TenantHeader, "acme")
		if r.StatusCode != 200 {
			t.Fatalf("%s", r.body)
		}
		return string(r.body)
	}
	if body := peek(f.newKey("ops", forebay.ScopeView)); strings.Contains(body, "private") || !strings.Contains(body, `"body_withheld":true`) {
		t.Errorf("a viewer sees %s", body)
	}
	if body := peek(f.key); !strings.Contains(body, "private") {
		t.Errorf("at home: %s", body)
	}
	f.wantOpened(admin)
	if body := peek(admin); !strings.Contains(body, "private") {
		t.Errorf("an administrator sees %s", body)
	}
	number := into[forebay.Page[forebay.Message]](t, f.do("GET", "/v1/queues/plain/messages", ""), 200).Items[0].SequenceNumber
	f.wantOpened(admin, "plain/messages/"+strconv.FormatInt(number, 10))
}
