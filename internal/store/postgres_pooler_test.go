//go:build unix

package store

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/pgtest"
)

// Through a pooler that gives each transaction another connection nothing starts and nothing is made. Through one that
// pools sessions all works, also if it drops or refuses the settings of a connection.
func TestConnectionPoolers(t *testing.T) {
	t.Parallel()
	settings := append(slices.Collect(maps.Keys(postgresSettings)), "search_path")
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
			s, err := Open(t.Context(), Options{URL: address, Serve: true})
			switch {
			case !c.works && (forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), "pooler")):
				t.Errorf("opening it: %v", err)
			case c.works && err != nil:
				t.Fatal(err)
			}
			if err == nil {
				queue, tenant := queueOf(t, s, "q"), tenantOf(t, s, "t")
				put(t, s, tenant, queue, 3, nil)
				take(t, s, SubqueueOf(queue, SubqueueMain), 3, 1e9)
				mustDo(t, s.DB.Close())
			}
			want := 0
			if c.works {
				want = 1
			}
			for schema, n := range map[string]int{"public": 0, postgresSchema: want} {
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

// A connection that turns out to lead to another process of the server writes nothing.
func TestServerProcessThatChanges(t *testing.T) {
	t.Parallel()
	c, err := reachPostgres(t.Context(), pgtest.Database(t))
	mustDo(t, err)
	defer c.Close()
	mustDo(t, c.prepareDatabase(t.Context(), false))
	c.backend++
	if _, err := c.begin(beginning{}); forebay.CodeOf(c.explain(err)) != forebay.CodeUnavailable {
		t.Errorf("%v", err)
	}
	mustDo(t, c.rollback())
}
