package api_test

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/raced"
)

var pathParameter = regexp.MustCompile(`\{[^}]+\}`)

// A viewer reads at every address and changes nothing at any, at home and elsewhere, whatever else
// his key allows at home.
func TestViewersChangeNothing(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	f := newFixture(t, withOrchestrations(t))
	f.newKey("acme", forebay.ScopeRead)
	viewer := f.newKey("ops", forebay.ScopeView)
	mixed := f.newKey("ops", forebay.ScopeView, forebay.ScopeSubmit, forebay.ScopeOperate, forebay.ScopeRead)
	doc := into[object](t, f.do("GET", "/openapi.json", ""), 200)
	changing, reading := 0, 0
	for path, item := range doc["paths"].(object) {
		for method, op := range item.(object) {
			if op.(object)["security"] == nil {
				continue
			}
			at := pathParameter.ReplaceAllString(path, "7")
			method := strings.ToUpper(method)
			calls := [][]string{{"Authorization", "Bearer " + viewer}, {"Authorization", "Bearer " + viewer, forebay.TenantHeader, "acme"}, {"Authorization", "Bearer " + mixed, forebay.TenantHeader, "acme"}}
			for i, headers := range calls {
				asked := method
				if path == "/v1/events" {
					asked = http.MethodHead // a stream without an end
				}
				r := f.do(asked, at, "{}", headers...)
				switch {
				case method != http.MethodGet && path != "/v1/topics/{topic}/test": // that has a body, and changes nothing
					changing++
					wantProblem(t, r, http.StatusForbidden, forebay.CodeForbidden)
				case strings.HasSuffix(path, "/input") || i > 0 && (strings.HasSuffix(path, "/result") || strings.HasSuffix(path, "/state")):
					wantProblem(t, r, http.StatusForbidden, forebay.CodeForbidden)
				default:
					reading++
					if r.StatusCode == http.StatusForbidden || r.StatusCode == http.StatusUnauthorized || r.StatusCode >= 500 {
						t.Errorf("%s %s, call %d: %d", method, path, i, r.StatusCode)
					}
				}
			}
			description := op.(object)["description"].(string)
			if method == http.MethodGet && (strings.Contains(description, "Scope: `operate`") || strings.Contains(description, "Scope: `admin`")) && !strings.Contains(description, "or `view`") {
				t.Errorf("%s %s: %s", method, path, description)
			}
		}
	}
	if changing < 100 || reading < 50 {
		t.Errorf("%d calls that change and %d that read", changing, reading)
	}
	entries := into[forebay.Page[forebay.AuditEntry]](t, f.do("GET", "/v1/audit", "", "Authorization", "Bearer "+viewer), 200)
	for _, e := range entries.Items {
		if e.Action != "create-key" {
			t.Errorf("the audit log has %+v", e)
		}
	}
}

func TestTenantHeader(t *testing.T) {
	f := newFixture(t)
	theirs := f.newKey("acme", forebay.ScopeSubmit, forebay.ScopeRead)
	admin, viewer := f.newKey("ops", forebay.ScopeAdmin), f.newKey("ops", forebay.ScopeView)
	f.key = theirs
	job := f.submit(jobBody(`"secret"`))
	own := f.do("GET", "/v1/jobs/"+job.ID, "", forebay.TenantHeader, "acme")
	if into[forebay.Job](t, own, 200).Tenant != "acme" {
		t.Errorf("%s", own.body)
	}
	all := []forebay.Scope{forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate, forebay.ScopePayload}
	for _, c := range []struct {
		key, tenant, method, path, body string
		status                          int
		code                            forebay.Code
	}{
		{f.newKey("rival", all...), "acme", "GET", "/v1/jobs/" + job.ID, "", 403, forebay.CodeForbidden},
		{f.newKey("rival", all...), "acme", "POST", "/v1/jobs", jobBody(`1`), 403, forebay.CodeForbidden},
		{f.newKey("rival", all...), "nobody", "GET", "/v1/jobs", "", 403, forebay.CodeForbidden}, // does not learn who exists
		{f.newKey("rival", all...), "", "GET", "/v1/jobs?all_tenants=true", "", 403, forebay.CodeForbidden},
		{f.newKey("rival", all...), "", "GET", "/v1/dead-letters?all_tenants=true", "", 403, forebay.CodeForbidden},
		{f.newKey("rival", all...), "", "GET", "/v1/dead-letters/groups?all_tenants=true", "", 403, forebay.CodeForbidden},
		{viewer, "nobody", "GET", "/v1/jobs", "", 404, forebay.CodeNotFound},
		{viewer, "no body", "GET", "/v1/jobs", "", 422, forebay.CodeInvalidRequest},
		{viewer, "", "GET", "/v1/jobs/" + job.ID, "", 404, forebay.CodeNotFound},
		{viewer, "acme", "GET", "/v1/jobs/" + job.ID, "", 200, ""},
		{viewer, "acme", "POST", "/v1/jobs", jobBody(`1`), 403, forebay.CodeForbidden},
		{viewer, "acme", "POST", "/v1/jobs/" + job.ID + "/cancel", "", 403, forebay.CodeForbidden},
		{admin, "nobody", "POST", "/v1/jobs", jobBody(`1`), 404, forebay.CodeNotFound},
		{admin, "acme", "POST", "/v1/jobs", jobBody(`2`), 202, ""},
		{admin, "acme", "POST", "/v1/jobs/" + job.ID + "/cancel", "", 200, ""},
	} {
		headers := []string{"Authorization", "Bearer " + c.key}
		if c.tenant != "" {
			headers = append(headers, forebay.TenantHeader, c.tenant)
		}
		r := f.do(c.method, c.path, c.body, headers...)
		if c.code != "" {
			wantProblem(t, r, c.status, c.code)
		} else if into[forebay.Job](t, r, c.status).Tenant != "acme" {
			t.Errorf("%s", r.body)
		}
	}
	f.key = admin
	tenants := into[forebay.Page[forebay.Tenant]](t, f.do("GET", "/v1/tenants", ""), 200)
	if slices.ContainsFunc(tenants.Items, func(t forebay.Tenant) bool { return t.Name == "nobody" }) {
		t.Error("asking for a tenant has made it")
	}
	if !strings.Contains(f.logs.String(), `"tenant":"acme","key_tenant":"ops"`) {
		t.Error("the access log does not tell whose key it was")
	}
	twice := f.request("GET", "/v1/jobs", nil)
	twice.Header[forebay.TenantHeader] = []string{"acme", "ops"}
	wantProblem(t, f.send(twice), 422, forebay.CodeInvalidRequest)
}

// A key's budget counts the jobs of its own tenant, so it cannot make jobs elsewhere.
func TestBudgetDoesNotTravel(t *testing.T) {
	f := newFixture(t)
	f.newKey("acme", forebay.ScopeRead)
	tokens := int64(1000)
	key, err := f.keys.Create(context.Background(), "ops", []forebay.Scope{forebay.ScopeAdmin}, nil, forebay.Budget{DailyTokens: &tokens}, "test")
	if err != nil {
		t.Fatal(err)
	}
	f.key = key.Key
	wantProblem(t, f.do("POST", "/v1/jobs", jobBody(`1`), forebay.TenantHeader, "acme"), 403, forebay.CodeForbidden)
	if r := f.do("GET", "/v1/jobs", "", forebay.TenantHeader, "acme"); r.StatusCode != 200 {
		t.Errorf("%s", r.body)
	}
	f.submit(jobBody(`1`))
}
