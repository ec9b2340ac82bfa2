package db

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/pgtest"
)

// The engine is tested without domains: an operation here stores rows whose names the test knows.

// engines makes new, empty databases of each kind.
var engines = map[string]func(testing.TB) Options{
	"sqlite":     func(t testing.TB) Options { return Options{Path: filepath.Join(t.TempDir(), "forebay.db")} },
	"postgresql": func(t testing.TB) Options { return Options{URL: pgtest.Database(t)} },
}

// withDB tests a new database of each kind that is served.
func withDB(t *testing.T, test func(*testing.T, *DB)) {
	t.Parallel()
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, serve(t, database(t)))
		})
	}
}

// serve opens a database until the test ends.
func serve(t testing.TB, opts Options) *DB {
	t.Helper()
	opts.Serve = true
	return openUntilEnd(t, opts)
}

func openUntilEnd(t testing.TB, opts Options) *DB {
	t.Helper()
	s, err := Open(t.Context(), opts)
	mustDo(t, err)
	t.Cleanup(func() { mustDo(t, s.Close()) })
	return s
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// insertNames is an operation of a party that stores so many rows.
func insertNames(name string, rows int) func(*Tx) (int, error) {
	return func(t *Tx) (int, error) {
		for i := range rows {
			if err := t.Prep("INSERT INTO tenants (name, created_at) VALUES (?, ?)").Text(fmt.Sprint(name, "-", i)).Int(t.Now).Exec(); err != nil {
				return 0, err
			}
		}
		return rows, nil
	}
}

// names are those of the rows, in the order in which they were stored.
func names(t testing.TB, s *DB) (all []string) {
	t.Helper()
	mustDo(t, s.Read(t.Context(), func(c driver.Conn) error {
		return c.Prep("SELECT name FROM tenants ORDER BY no").Each(func(r driver.Row) error { all = append(all, r.Text(0)); return nil })
	}))
	return all
}

// storeOne stores a row, or one more.
func storeOne(t *testing.T, s *DB) {
	t.Helper()
	_, err := Transact(t.Context(), s.Writer, Op{Stage: StageSubmit}, func(tx *Tx) (int, error) {
		return 0, tx.Prep("INSERT INTO tenants (name, created_at) SELECT 'row-' || count(*), 0 FROM tenants").Exec()
	})
	mustDo(t, err)
}
