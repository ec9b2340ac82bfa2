package api_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/raced"
)

func TestAudit(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	f := newFixture(t)
	f.key = f.newKey("acme", forebay.ScopeAdmin)
	made := into[forebay.APIKey](t, f.do("POST", "/v1/keys", `{"tenant":"other","scopes":["read"]}`), http.StatusCreated)
	into[forebay.APIKey](t, f.do("DELETE", "/v1/keys/"+made.ID, ""), http.StatusOK)
	into[forebay.QueueInfo](t, f.do("POST", "/v1/queues/default/pause", ""), http.StatusOK)
	into[forebay.QueueInfo](t, f.do("POST", "/v1/queues/default/resume", ""), http.StatusOK)

	all := into[forebay.Page[forebay.AuditEntry]](t, f.do("GET", "/v1/audit", ""), http.StatusOK).Items
	var acts []string
	for _, e := range all {
		acts = append(acts, strings.Join([]string{e.Tenant, e.Action, e.Target}, " "))
		if e.Hash != e.ComputeHash() {
			t.Errorf("entry %d cannot be checked by a client: %+v", e.Number, e)
		}
		if wrong := e.Actor == "local"; wrong || strings.Contains(e.Detail, made.Key) {
			t.Errorf("got %+v", e)
		}
	}
	want := " resume default| pause default|other revoke-key " + made.ID + "|other create-key " + made.ID
	if got := strings.Join(acts, "|"); !strings.HasPrefix(got, want) || len(all) != 5 {
		t.Errorf("got %s", got)
	}
	if d := all[3].Detail; d != `{"scopes":["read"]}` {
		t.Errorf("detail %s", d)
	}

	into[forebay.MessageQueue](t, f.do("PUT", "/v1/queues/mail", ""), http.StatusCreated)
	queues := into[forebay.Page[forebay.AuditEntry]](t, f.do("GET", "/v1/audit?action=put-queue&tenant=acme&actor="+all[0].Actor, ""), http.StatusOK).Items
	if len(queues) != 1 || queues[0].Target != "mail" {
		t.Errorf("queues %+v", queues)
	}

	first := into[forebay.Page[forebay.AuditEntry]](t, f.do("GET", "/v1/audit?tenant=other&limit=1", ""), http.StatusOK)
	second := into[forebay.Page[forebay.AuditEntry]](t, f.do("GET", "/v1/audit?tenant=other&limit=1&cursor="+first.NextCursor, ""), http.StatusOK)
	if len(first.Items) != 1 || first.Items[0].Action != "revoke-key" || len(second.Items) != 1 || second.Items[0].Action != "create-key" {
		t.Errorf("pages %+v %+v", first, second)
	}

	// By time, from the third entry on or before it. Entries may be of the same millisecond.
	third := all[2].At
	for name, selects := range map[string]func(time.Time) bool{
		"created_after":  func(at time.Time) bool { return !at.Before(third) },
		"created_before": func(at time.Time) bool { return at.Before(third) },
	} {
		var want, got []int64
		for _, e := range all {
			if selects(e.At) {
				want = append(want, e.Number)
			}
		}
		query := url.Values{name: {third.Format(time.RFC3339Nano)}, "limit": {"1"}}
		for more := true; more; more = query.Get("cursor") != "" {
			page := into[forebay.Page[forebay.AuditEntry]](t, f.do("GET", "/v1/audit?"+query.Encode(), ""), http.StatusOK)
			for _, e := range page.Items {
				if e.Number <= all[0].Number {
					got = append(got, e.Number)
				}
			}
			query.Set("cursor", page.NextCursor)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		for at, detail := range map[string]string{
			"yesterday":            ": must be an RFC 3339 time such as 2030-01-02T15:04:05Z",
			"1900-01-01T00:00:00Z": ": lies outside the years 1970 to 9999",
		} {
			p := wantProblem(t, f.do("GET", "/v1/audit?"+name+"="+at, ""), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
			if p.Field != name || p.Detail != name+detail {
				t.Errorf("%s=%s: field %q, %q", name, at, p.Field, p.Detail)
			}
		}
	}

	v := into[forebay.AuditVerification](t, f.do("GET", "/v1/audit/verify?limit=2", ""), http.StatusOK)
	if !v.Intact || v.Done || v.Checked != 2 {
		t.Errorf("got %+v", v)
	}
	v = into[forebay.AuditVerification](t, f.do("GET", "/v1/audit/verify?from="+v.Head, ""), http.StatusOK)
	if !v.Intact || !v.Done || v.Head != "6:"+queues[0].Hash {
		t.Errorf("got %+v", v)
	}
	v = into[forebay.AuditVerification](t, f.do("GET", "/v1/audit/verify?from=5:"+all[1].Hash, ""), http.StatusOK)
	if v.Intact || v.Broken == nil || v.Broken.Number != 5 {
		t.Errorf("another head: %+v", v)
	}
	for _, query := range []string{"from=x", "from=5:ab", "limit=1", "limit=10001"} {
		wantProblem(t, f.do("GET", "/v1/audit/verify?"+query, ""), http.StatusUnprocessableEntity, forebay.CodeInvalidRequest)
	}
}
