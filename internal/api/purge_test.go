package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/raced"
)

// A purge counts or deletes what ended as asked, of its tenant alone, and says so in the audit
// log.
func TestPurgeJobs(t *testing.T) {
	f := newFixture(t)
	f.key = f.newKey("other", forebay.ScopeAdmin)
	theirs := f.submit(`{"task":"echo","input":1}`)
	f.settle("1", nil)
	f.key = f.newKey("acme", forebay.ScopeAdmin)
	succeeded := f.submit(`{"task":"echo","input":1}`)
	f.settle("1", nil)
	setAside := f.submit(`{"task":"echo","input":1,"max_attempts":1}`)
	f.settle("", errors.New("no"))
	cancelled := f.submit(`{"task":"echo","input":1}`)
	into[forebay.Job](t, f.do("POST", "/v1/jobs/"+cancelled.ID+"/cancel", ""), http.StatusOK)
	waits := f.submit(`{"task":"echo","input":1}`)

	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	purge := func(body string) forebay.PurgeJobsReport {
		t.Helper()
		return into[forebay.PurgeJobsReport](t, f.do("POST", "/v1/jobs/purge", body), http.StatusOK)
	}
	for body, want := range map[string]int{
		`{"dry_run":true,"before":"` + later + `"}`:                        2,
		`{"dry_run":true,"before":"` + later + `","status":["failed"]}`:    0,
		`{"dry_run":true,"before":"` + later + `","status":["expired"]}`:   0,
		`{"dry_run":true,"before":"2020-01-01T00:00:00Z"}`:                 0,
		`{"dry_run":true,"before":"` + later + `","status":[]}`:            0,
		`{"before":"2020-01-01T00:00:00Z","status":["succeeded"]}`:         0,
		`{"dry_run":true,"before":"` + later + `","status":["cancelled"]}`: 1,
	} {
		if got := purge(body); got.Purged != want || got.NextCursor != "" || got.DryRun != strings.Contains(body, "dry_run") {
			t.Errorf("%s: %+v", body, got)
		}
	}
	if got := purge(`{"before":"` + later + `","status":["succeeded"]}`); got.Purged != 1 {
		t.Errorf("got %+v", got)
	}
	for id, status := range map[string]int{succeeded.ID: http.StatusNotFound, setAside.ID: http.StatusOK, cancelled.ID: http.StatusOK, waits.ID: http.StatusOK} {
		if got := f.do("GET", "/v1/jobs/"+id, "").StatusCode; got != status {
			t.Errorf("%s: status %d, want %d", id, got, status)
		}
	}
	entries := into[forebay.Page[forebay.AuditEntry]](t, f.do("GET", "/v1/audit?action=purge-jobs", ""), http.StatusOK).Items
	if len(entries) != 1 || entries[0].Tenant != "acme" || !strings.Contains(entries[0].Detail, "succeeded") {
		t.Errorf("audit %+v", entries)
	}
	if got := purge(`{"before":"` + later + `"}`); got.Purged != 1 {
		t.Errorf("got %+v", got)
	}
	for body, field := range map[string]string{
		`{"before":"` + later + `","status":["running"]}`: "status", `{"before":"0001-01-01T00:00:00Z"}`: "before", `{"before":"` + later + `","cursor":"x"}`: "cursor",
	} {
		if r := f.do("POST", "/v1/jobs/purge", body); r.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(string(r.body), field) {
			t.Errorf("%s: %d %s", body, r.StatusCode, r.body)
		}
	}
	f.key = f.newKey("other", forebay.ScopeOperate, forebay.ScopeRead)
	wantProblem(t, f.do("POST", "/v1/jobs/purge", `{"before":"`+later+`"}`), http.StatusForbidden, forebay.CodeForbidden)
	if got := f.do("GET", "/v1/jobs/"+theirs.ID, "").StatusCode; got != http.StatusOK {
		t.Errorf("another tenant's job: %d", got)
	}
}

// What is too much for one call goes on at its cursor.
func TestPurgeManyJobs(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	f := newFixture(t)
	const jobs = 2100
	var lines strings.Builder
	for i := range jobs {
		fmt.Fprintf(&lines, `{"task":"echo","input":%d}`+"\n", i)
	}
	if r := f.do("POST", "/v1/jobs/bulk", lines.String(), "Content-Type", "application/x-ndjson"); r.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", r.StatusCode, r.body[:min(len(r.body), 300)])
	}
	for range jobs {
		f.settle("1", nil)
	}
	body := func(cursor string) string {
		return fmt.Sprintf(`{"before":%q,"cursor":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339), cursor)
	}
	first := into[forebay.PurgeJobsReport](t, f.do("POST", "/v1/jobs/purge", body("")), http.StatusOK)
	second := into[forebay.PurgeJobsReport](t, f.do("POST", "/v1/jobs/purge", body(first.NextCursor)), http.StatusOK)
	if first.Purged != 2000 || first.NextCursor == "" || second.Purged != jobs-2000 || second.NextCursor != "" {
		t.Errorf("%+v, %+v", first, second)
	}
}
