//go:build unix

package server_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// An API process takes jobs and carries none out; one for retries carries out what has failed
// before, and nothing else.
func TestRoles(t *testing.T) {
	t.Parallel()
	model := modelsim.StartTest(func(c modelsim.Call) modelsim.Reply {
		if c.Marker == "again" && c.Number == 1 {
			return modelsim.Reply{Status: http.StatusInternalServerError}
		}
		return modelsim.Reply{}
	})
	t.Cleanup(model.Close)
	o := servertest.ProcessOptions{Database: dbtest.Postgres(t), Blob: filepath.Join(t.TempDir(), "blobs"), Endpoint: model.URL()}
	const delay = 5 * time.Second // in which the worker is killed
	o.Queue.Retry = server.Retry{Policy: "fixed", First: delay, Max: delay}
	start := func(role string) *servertest.Process {
		o.Role = role
		p := servertest.Launch(t, o)
		p.MustListen(t)
		return p
	}
	front := servertest.Remote{URL: start(server.RoleAPI).MustListen(t)}
	again := front.Send(t, "again")
	worker := start(server.RoleWorker)
	for waiting := again; waiting.Status != forebay.StatusRetrying; {
		if err := front.Get(t.Context(), "/v1/jobs/"+again.ID+"?wait=200ms", &waiting); err != nil || waiting.Status.Terminal() {
			t.Fatalf("the job that is to be retried is %s: %v", waiting.Status, err)
		}
	}
	worker.Kill()
	fresh := front.Send(t, "fresh")
	start(server.RoleRetryWorker)
	if job, attempts := front.MustAwait(t, again.ID); job.Status != forebay.StatusSucceeded || len(attempts) != 2 {
		t.Errorf("the job that failed once is %s after attempts %v", job.Status, servertest.Outcomes(attempts))
	}
	if n := model.Calls("fresh"); n != 0 {
		t.Errorf("a fresh job was called %d times, with no process whose role that is", n)
	}
	start(server.RoleWorker)
	if job, attempts := front.MustAwait(t, fresh.ID); job.Status != forebay.StatusSucceeded || len(attempts) != 1 {
		t.Errorf("the fresh job is %s after attempts %v", job.Status, servertest.Outcomes(attempts))
	}
}

func TestRolesThatCannotWork(t *testing.T) {
	for role, want := range map[string]string{
		"frontend":             "is none of all, api, worker, retry-worker",
		server.RoleAPI:         "needs PostgreSQL: a SQLite file serves one process, so nobody would carry the jobs out",
		server.RoleRetryWorker: "needs PostgreSQL",
		server.RoleWorker:      "",
		"":                     "",
	} {
		err := server.Options{Role: role}.WithDefaults().Validate()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), "role") || !strings.Contains(err.Error(), want)) {
			t.Errorf("role %q: %v", role, err)
		}
		shared := server.Options{Role: role, Database: "postgres://db/forebay"}.WithDefaults().Validate()
		if (shared == nil) != (role != "frontend") {
			t.Errorf("role %q on PostgreSQL: %v", role, shared)
		}
	}
}
