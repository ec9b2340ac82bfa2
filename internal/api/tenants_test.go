package api_test

import (
	"net/http"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestTenants(t *testing.T) {
	f := newFixture(t)
	f.key = f.newKey("acme", forebay.ScopeAdmin)
	if r := f.do("GET", "/v1/tenants/nobody", ""); r.StatusCode != http.StatusNotFound {
		t.Errorf("a tenant that is not there: %d", r.StatusCode)
	}
	set := into[forebay.Tenant](t, f.do("PUT", "/v1/tenants/acme", `{"budget":{"daily_usd":0.5,"monthly_tokens":1000}}`), http.StatusOK)
	if set.Budget.DailyUSD == nil || *set.Budget.DailyUSD != forebay.Dollar/2 || *set.Budget.MonthlyTokens != 1000 || set.Budget.MonthlyUSD != nil {
		t.Errorf("set %+v", set.Budget)
	}
	capped := into[forebay.Tenant](t, f.do("PUT", "/v1/tenants/acme", `{"concurrency":3}`), http.StatusOK)
	if capped.Concurrency != 3 || capped.Running == nil || *capped.Running != 0 || *capped.Budget.DailyUSD != *set.Budget.DailyUSD {
		t.Errorf("capped %+v", capped)
	}
	if free := into[forebay.Tenant](t, f.do("PUT", "/v1/tenants/acme", `{"concurrency":0}`), http.StatusOK); free.Concurrency != 0 || free.Running != nil {
		t.Errorf("not capped any more: %+v", free)
	}
	for body, field := range map[string]string{
		`{}`:                                              "",
		`{"concurrency":-1}`:                              "concurrency",
		`{"concurrency":1000001}`:                         "concurrency",
		`{"concurrency":"3"}`:                             "concurrency",
		`{"budget":{"daily_usd":-1}}`:                     "budget.daily_usd",
		`{"budget":{"monthly_tokens":-1}}`:                "budget.monthly_tokens",
		`{"budget":{"weekly_usd":1}}`:                     "budget.weekly_usd",
		`{"budget":{"daily_tokens":1152921504606846976}}`: "budget.daily_tokens",
	} {
		r := f.do("PUT", "/v1/tenants/acme", body)
		if p := into[forebay.Error](t, r, http.StatusUnprocessableEntity); p.Field != field {
			t.Errorf("%s: about %q, want %q", body, p.Field, field)
		}
	}
	made := into[forebay.APIKey](t, f.do("POST", "/v1/keys", `{"tenant":"acme","scopes":["submit"],"budget":{"daily_tokens":7}}`), http.StatusCreated)
	if made.Budget == nil || *made.Budget.DailyTokens != 7 {
		t.Errorf("made %+v", made)
	}
	changed := into[forebay.APIKey](t, f.do("PUT", "/v1/keys/"+made.ID+"/budget", `{"daily_usd":2}`), http.StatusOK)
	if changed.Budget == nil || changed.Budget.DailyTokens != nil || *changed.Budget.DailyUSD != 2*forebay.Dollar {
		t.Errorf("changed %+v", changed.Budget)
	}
	if r := f.do("PUT", "/v1/keys/key_none/budget", `{}`); r.StatusCode != http.StatusNotFound {
		t.Errorf("a key that is not there: %d", r.StatusCode)
	}
	got := into[forebay.Tenant](t, f.do("GET", "/v1/tenants/acme", ""), http.StatusOK)
	if len(got.Keys) != 1 || got.Keys[0].KeyID != made.ID || len(got.Usage) != 2 || got.Usage[1].Period != forebay.BudgetMonth || got.SetBy == "" {
		t.Errorf("got %+v", got)
	}
	all := into[forebay.Page[forebay.Tenant]](t, f.do("GET", "/v1/tenants", ""), http.StatusOK).Items
	if len(all) != 1 || all[0].Name != "acme" {
		t.Errorf("all %+v", all)
	}
	acts := into[forebay.Page[forebay.AuditEntry]](t, f.do("GET", "/v1/audit?action=set-budget", ""), http.StatusOK).Items
	if len(acts) != 2 || acts[0].Tenant != "acme" || acts[1].Detail != `{"daily_usd":0.5,"monthly_tokens":1000}` {
		t.Errorf("acts %+v", acts)
	}
	acts = into[forebay.Page[forebay.AuditEntry]](t, f.do("GET", "/v1/audit?action=set-concurrency", ""), http.StatusOK).Items
	if len(acts) != 2 || acts[1].Target != "tenant acme" || acts[1].Detail != "3" {
		t.Errorf("acts %+v", acts)
	}
	f.key = f.newKey("acme", forebay.ScopeOperate)
	if r := f.do("GET", "/v1/tenants/acme", ""); r.StatusCode != http.StatusForbidden {
		t.Errorf("without the scope admin: %d", r.StatusCode)
	}
}

func TestPausedTenantWaits(t *testing.T) {
	f := newFixture(t)
	f.key = f.newKey("acme", forebay.ScopeAdmin, forebay.ScopeSubmit, forebay.ScopeRead)
	if paused := into[forebay.Tenant](t, f.do("POST", "/v1/tenants/acme/pause", ""), http.StatusOK); !paused.Paused {
		t.Errorf("paused %+v", paused)
	}
	job := into[forebay.Job](t, f.do("POST", "/v1/jobs", `{"task":"echo","input":1}`), http.StatusAccepted)
	if got := into[forebay.Job](t, f.do("GET", "/v1/jobs/"+job.ID, ""), http.StatusOK); got.Status != forebay.StatusQueued || got.WaitingFor == nil || *got.WaitingFor != forebay.WaitPaused {
		t.Errorf("%s, waiting for %v", got.Status, got.WaitingFor)
	}
	all := into[forebay.Page[forebay.Tenant]](t, f.do("GET", "/v1/tenants", ""), http.StatusOK).Items
	if len(all) != 1 || !all[0].Paused {
		t.Errorf("all %+v", all)
	}
	if resumed := into[forebay.Tenant](t, f.do("POST", "/v1/tenants/acme/resume", ""), http.StatusOK); resumed.Paused {
		t.Errorf("resumed %+v", resumed)
	}
	if got := into[forebay.Job](t, f.do("GET", "/v1/jobs/"+job.ID, ""), http.StatusOK); got.WaitingFor != nil {
		t.Errorf("waiting for %v after the resume", *got.WaitingFor)
	}
	if r := f.do("POST", "/v1/tenants/nobody/pause", ""); r.StatusCode != http.StatusNotFound {
		t.Errorf("a tenant that is not there: %d", r.StatusCode)
	}
}
