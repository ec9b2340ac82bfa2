package db

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/forebayhq/forebay"
)

// Compacting gives back what deleted rows have left and keeps the others; a server's file is
// refused.
func TestCompact(t *testing.T) {
	where := Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true}
	s := fillAndFree(t, where)
	if _, err := Compact(t.Context(), where); forebay.CodeOf(err) != forebay.CodeDatabaseUnusable {
		t.Errorf("while a server runs: %v", err)
	}
	mustDo(t, s.Close())
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compact(interrupted, where); err == nil {
		t.Error("an interrupted compaction succeeded")
	}
	done, err := Compact(t.Context(), where)
	if err != nil || done.Before < 100<<20 || done.After > 4<<20 {
		t.Errorf("%+v %v", done, err)
	}
	if size := keptSize(t, serve(t, where)); size != 1<<20 {
		t.Errorf("of what was there %d bytes are left", size)
	}
}
