package api_test

import (
	"net/http"
	"testing"

	"github.com/forebayhq/forebay"
)

// A tenant sees its own use. Whoever may view sees that of all, together or apart.
func TestUsageReport(t *testing.T) {
	f := newFixture(t)
	admin := f.newKey("ops", forebay.ScopeAdmin)
	viewer := f.newKey("ops", forebay.ScopeView)
	f.key = admin
	own := f.newKey("acme", forebay.ScopeSubmit, forebay.ScopeRead)
	other := f.newKey("globex", forebay.ScopeSubmit, forebay.ScopeRead)
	for key, jobs := range map[string]int{own: 3, other: 2} {
		f.key = key
		for range jobs {
			f.submit(jobBody(`1`))
		}
	}
	for range 4 {
		f.settle(`"x"`, nil)
	}
	f.settle("", forebay.Permanent("content_filter", "refused"))

	f.key = own
	report := into[forebay.UsageReport](t, f.do("GET", "/v1/reports/usage?by=tenant,task", ""), http.StatusOK)
	if len(report.Rows) != 1 || report.Total.Attempts != 3 || *report.Rows[0].Tenant != "acme" || *report.Rows[0].Task != "echo" || report.Rows[0].Model != nil {
		t.Errorf("of the tenant: %+v", report)
	}
	for _, path := range []string{"/v1/reports/usage", "/v1/reports/retries", "/v1/queues", "/v1/queues/default"} {
		wantProblem(t, f.do("GET", path+"?all_tenants=true", ""), http.StatusForbidden, forebay.CodeForbidden)
	}
	for _, bad := range []string{"by=user", "by=task,task", "step=week", "since=yesterday", "since=2030-01-02T00:00:00Z&until=2030-01-01T00:00:00Z", "all_tenants=1x", "tenant=globex"} {
		if r := f.do("GET", "/v1/reports/usage?"+bad, ""); r.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", bad, r.StatusCode, r.body)
		}
	}

	for _, f.key = range []string{viewer, admin} {
		report = into[forebay.UsageReport](t, f.do("GET", "/v1/reports/usage?by=tenant&by=model&step=day&all_tenants=true", ""), http.StatusOK)
		if len(report.Rows) != 2 || *report.Rows[0].Tenant != "acme" || *report.Rows[1].Tenant != "globex" || *report.Rows[0].Model != "chat" ||
			report.Rows[0].Attempts != 3 || report.Rows[1].Attempts != 2 || report.Step != forebay.UsageDaily {
			t.Errorf("of all tenants: %+v", report)
		}
		report = into[forebay.UsageReport](t, f.do("GET", "/v1/reports/usage?all_tenants=true", ""), http.StatusOK)
		if len(report.Rows) != 1 || report.Total.Attempts != 5 || report.Total.Succeeded != 4 || report.Total.Failed != 1 || report.Rows[0].Tenant != nil {
			t.Errorf("of all tenants together: %+v", report)
		}
		retries := into[forebay.RetryReport](t, f.do("GET", "/v1/reports/retries?all_tenants=true", ""), http.StatusOK)
		if retries.Attempts != 5 || len(retries.ByError) != 1 || retries.ByError[0] != (forebay.ErrorRetries{Class: forebay.ClassPermanent, Code: "content_filter", Failed: 1}) {
			t.Errorf("%+v", retries)
		}
	}
}

// Whoever may view sees what waits in a queue for all tenants together.
func TestQueuesOfAllTenants(t *testing.T) {
	f := newFixture(t)
	viewer := f.newKey("ops", forebay.ScopeView)
	for tenant, jobs := range map[string]int{"acme": 3, "globex": 2} {
		f.key = f.newKey(tenant, forebay.ScopeSubmit)
		for range jobs {
			f.submit(jobBody(`1`))
		}
	}
	f.settle("", forebay.Permanent("content_filter", "refused"))
	f.key = viewer
	queues := into[forebay.Page[forebay.QueueInfo]](t, f.do("GET", "/v1/queues?all_tenants=true", ""), http.StatusOK)
	one := into[forebay.QueueInfo](t, f.do("GET", "/v1/queues/default?all_tenants=true", ""), http.StatusOK)
	if len(queues.Items) != 1 {
		t.Fatalf("%+v", queues)
	}
	for _, q := range []forebay.QueueInfo{queues.Items[0], one} {
		if q.Active != 4 || q.DeadLetter != 1 || q.CountsCapped || q.OldestAgeSeconds == nil {
			t.Errorf("%+v", q)
		}
	}
	if q := into[forebay.QueueInfo](t, f.do("GET", "/v1/queues/default", ""), http.StatusOK); q.Active != 0 {
		t.Errorf("of a tenant without jobs: %+v", q)
	}
	wantProblem(t, f.do("GET", "/v1/queues?kind=messages&all_tenants=true", ""), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("GET", "/v1/queues/none?all_tenants=true", ""), http.StatusNotFound, forebay.CodeUnknownQueue)
}

// A list of keys tells what is used of their budgets, and when these begin again.
func TestKeysTellTheUseOfBudgets(t *testing.T) {
	f := newFixture(t)
	f.key = f.newKey("ops", forebay.ScopeAdmin)
	made := into[forebay.APIKey](t, f.do("POST", "/v1/keys", `{"tenant":"acme","scopes":["submit"],"budget":{"daily_tokens":1000}}`), http.StatusCreated)
	for _, key := range into[forebay.Page[forebay.APIKey]](t, f.do("GET", "/v1/keys", ""), http.StatusOK).Items {
		switch {
		case key.ID != made.ID && key.BudgetUsage == nil:
		case key.ID != made.ID || len(key.BudgetUsage) != 2:
			t.Errorf("%+v", key)
		default:
			day, month := key.BudgetUsage[0], key.BudgetUsage[1]
			if day.Period != forebay.BudgetDay || month.Period != forebay.BudgetMonth || !day.EndsAt.After(key.CreatedAt) || month.EndsAt.Before(day.EndsAt) ||
				day.Tokens != 0 || *key.Budget.DailyTokens != 1000 {
				t.Errorf("%+v", key)
			}
		}
	}
}
