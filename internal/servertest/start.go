package servertest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// Start runs a server on a database of its own and stops it at the test's end.
func Start(t testing.TB, opts server.Options) *server.Server {
	t.Helper()
	if opts.Database == "" {
		opts.Database = "sqlite:" + dbtest.SQLite(t)
	}
	opts.Listen = "127.0.0.1:0"
	opts.Log.Level = "error"
	s := UntilEnd(t, opts)
	if s.Addr(t.Context()) == nil {
		t.Fatal("the server does not listen")
	}
	return s
}

// UntilEnd runs a server until the test ends.
func UntilEnd(t testing.TB, opts server.Options) *server.Server {
	t.Helper()
	if opts.Blob == "" && !strings.HasPrefix(opts.Database, "sqlite:") { // its default is a folder of this one
		opts.Blob = t.TempDir()
	}
	s, stop := Run(t, opts)
	t.Cleanup(stop)
	return s
}

// Submit submits a job for the default tenant.
func Submit(t testing.TB, s *server.Server, task string, input any) forebay.Job {
	t.Helper()
	b, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	job, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: task, Input: b})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// Await waits until a job of the default tenant has ended.
func Await(t testing.TB, s *server.Server, id string) forebay.Job {
	t.Helper()
	job, err := s.Wait(t.Context(), forebay.DefaultTenant, id, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// Over returns the HTTP client's view of a server in this process.
func Over(t testing.TB, s *server.Server) Remote {
	t.Helper()
	return Remote{URL: "http://" + s.Addr(t.Context()).String()}
}

// Key makes a key beside a server.
func Key(t testing.TB, database, tenant string, scopes ...forebay.Scope) string {
	t.Helper()
	keys, err := server.OpenKeys(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	made, err := keys.Create(t.Context(), tenant, scopes, nil, forebay.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Key
}

// OnDatabases runs a test on SQLite and on PostgreSQL.
func OnDatabases(t *testing.T, test func(t *testing.T, database string)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+dbtest.SQLite(t)) })
	t.Run("postgresql", func(t *testing.T) { test(t, dbtest.Postgres(t)) })
}

// OnServers runs a test on a database of each kind, at once; "" is a new one of SQLite.
func OnServers(t *testing.T, f func(t *testing.T, database string)) {
	t.Helper()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			database := ""
			if engine == "postgres" {
				database = dbtest.Postgres(t)
			}
			f(t, database)
		})
	}
}

// SubmitMany submits one request so many times at once, and returns the jobs' IDs.
func SubmitMany(t *testing.T, r Remote, n int, req map[string]any) (ids []string) {
	t.Helper()
	line, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{BaseURL: r.URL})
	if err != nil {
		t.Fatal(err)
	}
	var one forebay.SubmitRequest
	if err := json.Unmarshal(line, &one); err != nil {
		t.Fatal(err)
	}
	for result, err := range c.SubmitBulk(t.Context(), slices.Values(slices.Repeat([]forebay.SubmitRequest{one}, n))) {
		if err != nil || result.Error != nil {
			t.Fatal(err, result.Error)
		}
		ids = append(ids, result.Job.ID)
	}
	return ids
}

// Operate pauses or resumes the default queue.
func Operate(t *testing.T, r Remote, what string) {
	t.Helper()
	if _, err := r.Do(t.Context(), http.MethodPost, "/v1/queues/default/"+what, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
}
