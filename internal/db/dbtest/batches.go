package dbtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
)

// BatchesOnPostgres checks what statements have declared by [driver.Only]. Random executions of
// them must lead to the same rows whether each is sent at once or they wait and are batched.
// Between them are statements that have declared nothing. Domains declare as they are imported.
func BatchesOnPostgres(t *testing.T, runs int) {
	b := batches{T: t, columns: map[string][]column{}}
	ctx := context.Background()
	var err error
	if b.Conn, err = postgres.ConnectURL(ctx, Postgres(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Conn.Close() })
	if b.tables(); len(b.columns) == 0 {
		t.Fatal("nothing is declared")
	}
	for table, columns := range given {
		if no, found := strings.CutPrefix(columns, "no "); found && no != "" {
			b.must(b.ExecSimple("ALTER TABLE " + table + " ALTER COLUMN no RESTART WITH 1000"))
		}
	}
	for _, sql := range slices.Sorted(maps.Keys(driver.Reach)) {
		b.declare(sql)
	}
	for _, table := range slices.Sorted(maps.Keys(b.columns)) { // which have declared nothing
		if first := b.columns[table][0]; first.kind == driver.KindInt {
			other := "orchestration_inbox"
			b.statements = append(b.statements, batched{"DELETE FROM " + table + " WHERE " + first.name + " = ?", []string{table}, []driver.Kind{driver.KindInt}, nil},
				batched{"DELETE FROM " + table + " WHERE " + first.name + " = ? AND " + first.name + " IN (SELECT instance FROM " + other + ")", []string{table}, []driver.Kind{driver.KindInt}, nil})
		}
	}
	merged := 0
	for run := range runs {
		seed := rand.Uint64()
		b.random = rand.New(rand.NewPCG(seed, 0))
		b.inTransaction(func() {
			b.choose()
			for _, table := range b.tried {
				b.fill(table)
			}
			list, want := b.oneByOne()
			got, sent := b.together(list)
			if merged += len(list) - sent; got != want {
				t.Fatalf("run %d with seed %d: batches of these lead to other rows:\n%v\n%s", run, seed, list, difference(want, got))
			}
		})
	}
	if merged < runs {
		t.Errorf("in %d runs %d executions became part of another", runs, merged)
	}
}

// batches has what the checks know of the database.
type batches struct {
	*testing.T
	*postgres.Conn
	columns    map[string][]column // of the tables that are declared
	statements []batched
	random     *rand.Rand
	pool       []batched // of the run, which meet in some tables
	tried      []string  // these tables, and others that they use
	serial     int64
}

type column struct {
	name     string
	kind     driver.Kind
	optional bool
}

// batched is a statement, its tables, and which parameters of it name things.
type batched struct {
	sql    string
	tables []string
	kinds  []driver.Kind
	keys   []int
}

// execution is a statement with its parameters.
type execution struct {
	batched
	values []int64
}

func (e execution) String() string { return fmt.Sprintln(strings.TrimSpace(e.sql), e.values) }

func (b *batches) must(err error) {
	if b.Helper(); err != nil {
		b.Fatal(err)
	}
}

func (b *batches) prep(sql string) driver.Statement { return driver.Conn{Driver: b.Conn}.Prep(sql) }

// tables finds the columns of the tables that statements have declared. Unique indexes are none.
func (b *batches) tables() {
	for _, reach := range driver.Reach {
		for _, r := range reach {
			if b.columns[r.Table] != nil {
				continue
			}
			b.must(b.prep("SELECT column_name::text, data_type::text, (is_nullable = 'YES')::int::bigint FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = ? AND is_generated = 'NEVER' ORDER BY ordinal_position").
				Text(r.Table).Each(func(row driver.Row) error {
				kind := map[string]driver.Kind{"bigint": driver.KindInt, "text": driver.KindText, "bytea": driver.KindBytes}[row.Text(1)]
				b.columns[r.Table] = append(b.columns[r.Table], column{row.Text(0), kind, row.Int(2) != 0})
				return nil
			}))
		}
	}
}

func (b *batches) declare(sql string) {
	kinds, err := postgres.Kinds(b.Context(), b.Conn, sql)
	b.must(err)
	s := batched{sql: sql, kinds: kinds}
	for _, r := range driver.Reach[sql] {
		if s.tables = append(s.tables, r.Table); r.By > 0 {
			s.keys = append(s.keys, r.By-1)
		}
	}
	b.statements = append(b.statements, s)
}

// inTransaction leaves nothing behind.
func (b *batches) inTransaction(do func()) {
	_, err := b.Begin(driver.BeginOptions{})
	b.must(err)
	do()
	b.must(b.Rollback())
}

// choose takes a few of the statements of one table for a run.
func (b *batches) choose() {
	of := b.statements[b.random.IntN(len(b.statements))].tables
	table := of[b.random.IntN(len(of))]
	b.pool, b.tried = nil, nil
	for _, i := range b.random.Perm(len(b.statements)) {
		s := b.statements[i]
		if !slices.Contains(s.tables, table) || len(b.pool) == 4 {
			continue
		}
		b.pool = append(b.pool, s)
		for _, table := range s.tables {
			if len(b.columns[table]) > 0 && !slices.Contains(b.tried, table) {
				b.tried = append(b.tried, table)
			}
		}
	}
}

// things is how many things there are of a kind.
const things = 3

// value is a parameter: mostly a thing, so that executions meet.
func (b *batches) value() int64 { return 1 + b.random.Int64N(things) }

func bind(st driver.Statement, k driver.Kind, v int64) driver.Statement {
	switch k {
	case driver.KindText:
		return st.Text(fmt.Sprint(v))
	case driver.KindBytes:
		return st.Blob(fmt.Append(nil, v))
	}
	return st.Int(v)
}

// fill stores some rows in a table.
func (b *batches) fill(table string) {
	var names, marks []string
	for _, c := range b.columns[table] {
		names, marks = append(names, c.name), append(marks, "?")
	}
	sql := "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(marks, ", ") + ") ON CONFLICT DO NOTHING"
	for range 2 * things {
		st := b.prep(sql)
		for _, c := range b.columns[table] {
			if c.optional && b.random.IntN(3) == 0 {
				st = st.Null(c.kind)
			} else {
				st = bind(st, c.kind, b.value())
			}
		}
		_, err := st.Count()
		b.must(err)
	}
}

// oneByOne runs random executions, each at once, and undoes them. It returns those that the
// database takes, and the rows that they lead to.
func (b *batches) oneByOne() (list []execution, rows string) {
	b.must(b.ExecSimple("SAVEPOINT filled"))
	for range 40 {
		s := b.pool[b.random.IntN(len(b.pool))]
		e := execution{batched: s}
		fresh := b.random.IntN(2) == 0
		inserts := strings.HasPrefix(strings.TrimSpace(s.sql), "INSERT")
		for i := range s.kinds {
			b.serial++
			switch {
			case inserts && i == 0 && b.random.IntN(2) > 0, inserts && fresh && !slices.Contains(s.keys, i):
				e.values = append(e.values, 1000+b.serial) // the key of a new row, perhaps
			case b.random.IntN(3) == 0:
				e.values = append(e.values, 100+b.random.Int64N(things))
			default:
				e.values = append(e.values, b.value())
			}
		}
		b.must(b.ExecSimple("SAVEPOINT one"))
		if _, err := e.bound(b).Count(); err != nil {
			b.must(b.ExecSimple("ROLLBACK TO one"))
			continue
		}
		list = append(list, e)
	}
	rows = b.content()
	b.must(b.ExecSimple("ROLLBACK TO filled"))
	return list, rows
}

func (e execution) bound(b *batches) driver.Statement {
	st := b.prep(e.sql)
	for i, k := range e.kinds {
		st = bind(st, k, e.values[i])
	}
	return st
}

// together lets the executions wait, and returns the rows, and how many statements were sent.
func (b *batches) together(list []execution) (rows string, sent int) {
	for _, e := range list {
		b.must(e.bound(b).Exec())
	}
	sent = postgres.Waiting(b.Conn)
	return b.content(), sent
}

// content is all rows of the tables. Numbers that the database gives are left out.
func (b *batches) content() string {
	var all strings.Builder
	for _, table := range b.tried {
		b.must(b.prep("SELECT x::text FROM (SELECT " + b.compared(table) + " FROM " + table + ") x ORDER BY 1").Each(func(r driver.Row) error {
			fmt.Fprintln(&all, table, r.Text(0))
			return nil
		}))
	}
	return all.String()
}

// given are columns whose numbers the database gives, from 1000, or that refer to such.
var given = map[string]string{"documents": "no latest", "document_revisions": "no document", "document_jobs": "revision"}

func (b *batches) compared(table string) string {
	var names []string
	for _, c := range b.columns[table] {
		name := c.name
		if slices.Contains(strings.Fields(given[table]), name) {
			name = "CASE WHEN " + name + " BETWEEN 0 AND 999 THEN " + name + " END"
		} else if name == "freed_at" { // in a transaction it is always the same
			name = "freed_at IS NULL"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// difference are the lines of only one of two texts.
func difference(want, got string) string {
	var lines strings.Builder
	for _, side := range []struct{ mark, has, lacks string }{{"-", want, got}, {"+", got, want}} {
		others := strings.Split(side.lacks, "\n")
		for _, line := range strings.Split(side.has, "\n") {
			if !slices.Contains(others, line) {
				fmt.Fprintln(&lines, side.mark, line)
			}
		}
	}
	return lines.String()
}
