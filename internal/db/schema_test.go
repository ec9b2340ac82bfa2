package db

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/schema"
)

func TestReadSchema(t *testing.T) {
	t.Parallel()
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			where := database(t)
			read := func(want int64, pending int) []string {
				t.Helper()
				before := files(t, where.Path)
				s, err := ReadSchema(t.Context(), where)
				if err != nil || s.Database != want || s.Program != schema.Latest() || len(s.Pending) != pending {
					t.Errorf("read %+v: %v", s, err)
				}
				if after := files(t, where.Path); !maps.Equal(before, after) {
					t.Errorf("reading changed the files: %d, then %d", len(before), len(after))
				}
				return s.Pending
			}
			if all := read(0, 1); all[0] != "schema" {
				t.Errorf("pending are %q", all)
			}
			read(0, 1) // the first look made nothing
			serving := where
			serving.Serve = true
			s, err := Open(t.Context(), serving)
			if err != nil {
				t.Fatal(err)
			}
			read(schema.Latest(), 0) // beside a server
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			read(schema.Latest(), 0)
			for _, version := range []int64{schema.Oldest - 1, schema.Latest() + 1} {
				setVersion(t, where, version)
				read(version, 0)
				if _, err := Open(t.Context(), where); forebay.CodeOf(err) != forebay.CodeDatabaseUnusable {
					t.Errorf("schema %d was opened: %v", version, err)
				}
			}
		})
	}
	t.Run("another program's file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "other.db")
		if err := os.WriteFile(path, []byte(strings.Repeat("not a database", 100)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSchema(t.Context(), Options{Path: path}); forebay.CodeOf(err) != forebay.CodeDatabaseUnusable {
			t.Errorf("%v", err)
		}
	})
}

// files returns the content of all files beside a database file, but for the index of its WAL, in
// which readers note themselves.
func files(t *testing.T, path string) map[string]string {
	t.Helper()
	found := map[string]string{}
	if path == "" {
		return found
	}
	names, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "-shm") }) {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found[name] = string(content)
	}
	return found
}
