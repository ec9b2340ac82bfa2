package store

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/forebayhq/forebay"
)

// Compacting gives back what deleted rows have left and keeps the others; a server's file is refused.
func TestCompact(t *testing.T) {
	where := Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true}
	s, tenant, queue := openWith(t, where)
	put(t, s, tenant, queue, 200, func(j *NewJob) { j.Input = make([]byte, 50_000) })
	put(t, s, tenant, queue, 1, func(j *NewJob) { j.ID = "job_kept" })
	_, err := transact(t.Context(), s.DB.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
		return struct{}{}, t.prep("DELETE FROM jobs WHERE id <> 'job_kept'").exec()
	})
	mustDo(t, err)
	if _, err := Compact(t.Context(), where); forebay.CodeOf(err) != forebay.CodeDatabaseUnusable {
		t.Errorf("while a server runs: %v", err)
	}
	mustDo(t, s.DB.Close())
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compact(interrupted, where); err == nil {
		t.Error("an interrupted compaction succeeded")
	}
	done, err := Compact(t.Context(), where)
	if err != nil || done.Before < 10_000_000 || done.After > 2_000_000 {
		t.Errorf("%+v %v", done, err)
	}
	again, err := Open(t.Context(), where)
	mustDo(t, err)
	defer again.DB.Close()
	if _, err := again.Jobs.Job(t.Context(), tenant, "job_kept"); err != nil {
		t.Errorf("what was there: %v", err)
	}
}
