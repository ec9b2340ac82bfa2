package api_test

import (
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

func TestJobFilters(t *testing.T) {
	f := newFixture(t)
	admin, viewer := f.newKey("ops", forebay.ScopeAdmin), f.newKey("ops", forebay.ScopeView)
	f.key = f.newKey("acme", forebay.ScopeSubmit, forebay.ScopeRead)
	plain := f.submit(jobBody(`1`)).ID
	rich := f.submit(`{"task":"echo","input":1,"priority":9,"session_id":"s","correlation_id":"c","metadata":{"team":"red","note":"a: b"}}`).ID
	second := f.submit(`{"task":"echo","input":1,"session_id":"s","metadata":{"team":"blue"}}`).ID
	own := f.key
	f.key = f.newKey("rival", forebay.ScopeSubmit, forebay.ScopeRead)
	theirs := f.submit(`{"task":"echo","input":1,"priority":9,"metadata":{"team":"red"}}`).ID
	soon := url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339))
	for _, c := range []struct {
		key, query string
		want       []string
	}{
		{own, "", []string{second, rich, plain}},
		{own, "priority=9", []string{rich}},
		{own, "priority=0", nil},
		{own, "session_id=s", []string{second, rich}},
		{own, "session_id=s&metadata=team:blue", []string{second}},
		{own, "metadata=team:red", []string{rich}},
		{own, "metadata=team:red&metadata=note:" + url.QueryEscape("a: b"), []string{rich}},
		{own, "metadata=team:red&metadata=note:a", nil},
		{own, "waiting_for=session", []string{second}},
		{own, "waiting_for=paused", nil},
		{own, "status=queued&status=running", []string{second, rich, plain}},
		{own, "correlation_id=c&priority=9", []string{rich}},
		{own, "created_after=" + soon, nil},
		{own, "created_before=" + soon, []string{second, rich, plain}},
		{viewer, "", nil},
		{viewer, "all_tenants=true", []string{theirs, second, rich, plain}},
		{viewer, "all_tenants=true&metadata=team:red", []string{theirs, rich}},
		{viewer, "all_tenants=true&session_id=s", []string{second, rich}},
		{viewer, "all_tenants=true&created_before=" + soon, []string{theirs, second, rich, plain}},
		{admin, "all_tenants=true&limit=2", []string{theirs, second}},
	} {
		page := into[forebay.Page[forebay.Job]](t, f.do("GET", "/v1/jobs?"+c.query, "", "Authorization", "Bearer "+c.key), 200)
		var got []string
		for _, job := range page.Items {
			got = append(got, job.ID)
			if want := map[bool]string{true: "rival", false: "acme"}[job.ID == theirs]; job.Tenant != want {
				t.Errorf("%s is %s's", job.ID, job.Tenant)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.query, got, c.want)
		}
		if more := c.query == "all_tenants=true&limit=2"; more != (page.NextCursor != "") || more != (page.SearchedTo != nil) {
			t.Errorf("%s: next %q, searched to %v", c.query, page.NextCursor, page.SearchedTo)
		}
	}
	f.key = own
	// A cursor of another's list is a place in one's own.
	all := into[forebay.Page[forebay.Job]](t, f.do("GET", "/v1/jobs?all_tenants=true&limit=1", "", "Authorization", "Bearer "+viewer), 200)
	if page := into[forebay.Page[forebay.Job]](t, f.do("GET", "/v1/jobs?cursor="+all.NextCursor, ""), 200); len(page.Items) != 3 || page.Items[0].ID != second {
		t.Errorf("%+v", page)
	}
	many := url.Values{}
	for i := range forebay.MaxMetadataEntries + 1 {
		many.Add("metadata", strconv.Itoa(i)+":x")
	}
	for _, query := range []string{"priority=10", "priority=x", "waiting_for=nothing", "metadata=team", "metadata=:x", "metadata=a:b&metadata=a:c", "status=none", many.Encode()} {
		wantProblem(t, f.do("GET", "/v1/jobs?"+query, ""), 422, forebay.CodeInvalidRequest)
	}
}
