package dashboardtest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// OnDatabases runs a test on both engines.
func OnDatabases(t *testing.T, test func(t *testing.T, database string)) {
	for engine, database := range map[string]func(*testing.T) string{
		"sqlite":     func(t *testing.T) string { return "sqlite:" + dbtest.SQLite(t) },
		"postgresql": func(t *testing.T) string { return dbtest.Postgres(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, database(t))
		})
	}
}

// Parses is a task whose jobs fail for good unless their input has good, and whose results are
// hostile.
func Parses(o *server.Options) {
	o.Functions = append(o.Functions, forebay.Task{Name: "parse", Description: "fails without good", Run: parse})
}

// Hostile is what a model could write to harm those who look at it.
const Hostile = "<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">\u202e\u0000\u001b[2J"

func parse(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
	var input struct {
		Good  bool
		Large int
	}
	if err := json.Unmarshal(call.Input, &input); err != nil || !input.Good {
		return forebay.TaskResult{}, forebay.Permanent("unreadable", "the document cannot be read: "+Hostile)
	}
	output, err := json.Marshal(map[string]string{"text": Hostile + strings.Repeat("x", input.Large)})
	return forebay.TaskResult{Output: output}, err
}

// SignIn opens a page as who has a key.
func (s *Running) SignIn(t *testing.T, b *browsertest.Browser, key string) *browsertest.Page {
	t.Helper()
	page := b.Open(t)
	page.Go(s.URL + "/ui/sign-in")
	page.Type("input[name=key]", key)
	page.Submit("main button")
	page.Wait(`!document.querySelector('input[name=key]')`)
	page.Complaints()
	return page
}

// Job submits a job and waits until it has that status.
func (s *Running) Job(t *testing.T, key, task, input string, status forebay.Status) forebay.Job {
	t.Helper()
	c := s.Client(t, key)
	job, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: task, Input: json.RawMessage(input), Metadata: map[string]string{"customer": "<b>7</b>"}})
	if err == nil && status != "" {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		job, err = c.Wait(ctx, job.ID)
	}
	if err != nil || status != "" && job.Status != status {
		t.Fatalf("%s: %v, %v", job.ID, job.Status, err)
	}
	return job
}

// AuditOf returns the entries of an action, oldest first.
func (s *Running) AuditOf(t testing.TB, key, action string) (entries []forebay.AuditEntry) {
	t.Helper()
	var page struct {
		Items []forebay.AuditEntry `json:"items"`
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1/audit?limit=100&action="+action, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &page)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s: %v", resp.StatusCode, body, err)
	}
	for _, e := range page.Items {
		entries = append([]forebay.AuditEntry{e}, entries...)
	}
	return entries
}
