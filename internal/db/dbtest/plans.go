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
// keeps an old snapshot, nothing ever leaves a table.
func (f Fixture[S]) PlansOnPostgres(t *testing.T, statements ...string) {
	s := f.Serving(t, db.Options{URL: Postgres(t)})
	err := f.DB(s).Read(t.Context(), func(c driver.Conn) error {
		pg := c.Driver.(*postgres.Conn)
		if err := pg.ExecSimple("VACUUM ANALYZE"); err != nil {
			return err
		}
		forms, err := pg.Forms(t.Context())
		if err != nil {
			return err
		}
		for _, sql := range append(forms, statements...) {
			plan, err := pg.Plan(t.Context(), sql)
			if err != nil {
				return err
			}
			if walks(plan) {
				t.Errorf("%s\n%s", sql, strings.Join(plan, "\n"))
			}
		}
		return nil
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
