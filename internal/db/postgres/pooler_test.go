//go:build unix

package postgres_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// Through a pooler that gives each transaction another connection nothing starts and nothing is
// made. Through one that pools sessions all works, also if it drops or refuses the settings of
// a connection.
func TestConnectionPoolers(t *testing.T) {
	t.Parallel()
	settings := append(slices.Collect(maps.Keys(postgres.Settings)), "search_path")
	for name, c := range map[string]struct {
		mode    string
		ignored []string
		works   bool
	}{
		"sessions, settings dropped":     {"session", settings, true},
		"sessions, settings refused":     {"session", nil, true},
		"transactions, settings dropped": {"transaction", settings, false},
		"transactions, settings refused": {"transaction", nil, false},
		"statements":                     {"statement", settings, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := pgtest.Database(t)
			address := pgtest.Bouncer(t, direct, c.mode, strings.Join(c.ignored, ", "))
			s, err := db.Open(t.Context(), db.Options{URL: address, Serve: true})
			switch {
			case !c.works && (forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), "pooler")):
				t.Errorf("opening it: %v", err)
			case c.works && err != nil:
				t.Fatal(err)
			}
			if err == nil {
				_, err := db.Transact(t.Context(), s.Writer, db.Op{Stage: db.StageChange}, func(tx *db.Tx) (int, error) {
					return 0, tx.Prep("INSERT INTO queues (name, created_at) VALUES ('q', 0)").Exec()
				})
				if err := errors.Join(err, s.Close()); err != nil {
					t.Error(err)
				}
			}
			want := 0
			if c.works {
				want = 1
			}
			for schema, n := range map[string]int{"public": 0, postgres.Schema: want} {
				if found := schemasWithJobs(t, direct, schema); found != n {
					t.Errorf("%d tables of jobs in %s, want %d", found, schema, n)
				}
			}
		})
	}
}

func schemasWithJobs(t *testing.T, address, schema string) (n int) {
	t.Helper()
	pg, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close(t.Context())
	err = pg.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE tablename = 'jobs' AND schemaname = $1", schema).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
