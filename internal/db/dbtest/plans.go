package dbtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
)

// PlansOnSQLite checks that SQLite walks an index for each of these statements. None may sort.
// None may scan a table, except in the allowed steps, whose tables are small.
func (f Fixture[S]) PlansOnSQLite(t *testing.T, allowed []string, statements ...string) {
	s := f.Serving(t, Databases["sqlite"](t))
	for _, sql := range statements {
		err := f.DB(s).Read(t.Context(), func(c driver.Conn) error {
			return c.Prep("EXPLAIN QUERY PLAN " + sql).Each(func(r driver.Row) error {
				step := r.Text(3)
				scans := strings.HasPrefix(step, "SCAN ") && !strings.HasPrefix(step, "SCAN bounded") // what a subquery with a limit has found
				if step == "USE TEMP B-TREE FOR ORDER BY" || scans && !slices.Contains(allowed, step) {
					t.Errorf("%s\n  in %.300s", step, sql)
				}
				return nil
			})
		})
		if err != nil {
			t.Errorf("%v: %.100s", err, sql)
		}
	}
}

// PlansOnPostgres checks that PostgreSQL looks up each row, also while it believes the tables
// to be empty. It checks these statements and those that are registered with the driver. A
// table that it scanned then it would scan for as long as it keeps the plan. While somebody
// keeps an old snapshot, nothing ever leaves a table. A row that a key names is looked up by that
// key, in a new database as well, which was never analyzed.
func (f Fixture[S]) PlansOnPostgres(t *testing.T, statements ...string) {
	f.plans(t, func(pg *postgres.Conn) ([]string, error) {
		forms, err := pg.Forms(t.Context())
		return append(forms, statements...), err
	}, walks)
}

// plans checks that statements use keys in a database without rows, before it is analyzed and
// afterwards. None may walk then.
func (f Fixture[S]) plans(t *testing.T, statements func(*postgres.Conn) ([]string, error), walks func(plan []string) bool) {
	s := f.Serving(t, db.Options{URL: Postgres(t)})
	err := f.DB(s).Read(t.Context(), func(c driver.Conn) error {
		pg := c.Driver.(*postgres.Conn)
		list, err := statements(pg)
		if err != nil {
			return err
		}
		keys, err := uniqueKeys(c)
		if err != nil {
			return err
		}
		check := func(analyzed bool) error {
			for _, sql := range list {
				plan, err := pg.Plan(t.Context(), sql)
				if err != nil {
					return err
				}
				if step, key := unusedKey(plan, keys); key != "" {
					t.Errorf("analyzed: %t; %s is not used in %q: %s\n%s", analyzed, key, step, sql, strings.Join(plan, "\n"))
				} else if analyzed && walks(plan) {
					t.Errorf("%s\n%s", sql, strings.Join(plan, "\n"))
				}
			}
			return nil
		}
		if err := check(false); err != nil {
			return err
		}
		if err := pg.ExecSimple("VACUUM ANALYZE"); err != nil {
			return err
		}
		return check(true)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// walks reports whether a plan reads more than the rows it is asked for.
func walks(plan []string) bool {
	for i, step := range plan {
		next := ""
		if i+1 < len(plan) {
			next = strings.TrimSpace(plan[i+1])
		}
		scan := strings.Contains(step, "Index") && strings.Contains(step, " Scan ")
		walks := scan && !strings.HasPrefix(next, "Index Cond:")
		// What is found by its number is found by nothing else.
		byNumber := (strings.Contains(step, "messages_") || strings.Contains(step, "bodies_")) && !strings.Contains(step, "_pkey") &&
			(strings.HasPrefix(next, "Index Cond: (seq = ") || i+2 < len(plan) && strings.HasPrefix(strings.TrimSpace(plan[i+2]), "Filter: ") && strings.Contains(plan[i+2], "seq = "))
		if strings.Contains(step, "Seq Scan") || strings.Contains(step, "Sort") || walks || byNumber {
			return true
		}
	}
	return false
}
