//go:build unix

package server_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// A process that is killed between its commit and its word about that tells nobody. Whoever waits
// for the job at another process gets it all the same.
func TestWaitForWhatNobodyTells(t *testing.T) {
	t.Parallel()
	database := dbtest.Postgres(t)
	running(t, server.Options{Database: database, Blob: "file://" + filepath.ToSlash(t.TempDir())}, func(s *server.Server) {
		at := time.Now().Add(time.Hour)
		job, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: "chat", Input: json.RawMessage(`"x"`), ScheduledAt: &at})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan forebay.Job, 1)
		go func() {
			job, err := s.Wait(t.Context(), forebay.DefaultTenant, job.ID, 10*time.Second)
			if err != nil {
				t.Error(err)
			}
			ended <- job
		}()
		// The wait begins meanwhile. One that begins later finds an ended job.
		execute(t, database, `SELECT pg_sleep(0.3);
INSERT INTO outcomes (seq, status, generation, attempt, version, completed_at) SELECT seq, 'cancelled', 1, 0, 2, created_at FROM jobs;
DELETE FROM messages`)
		if job := <-ended; job.Status != forebay.StatusCancelled {
			t.Errorf("the job is %s", job.Status)
		}
	})
}
