package dbtest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/jackc/pgx/v5/pgconn"
)

// BatchesOnPostgres checks what statements have declared by [driver.Only]. Random executions of
// them must lead to the same rows whether each is sent at once or they wait and are batched. Each
// two statements that name the same table are tried so often, about. Some have declared nothing.
// Domains declare as they are imported.
func BatchesOnPostgres(t *testing.T, times int) {
	b := batches{T: t, columns: map[string][]column{}}
	var err error
	if b.Conn, err = postgres.ConnectURL(t.Context(), Postgres(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	b.readTables()
	for _, table := range []string{"documents", "document_revisions"} {
		b.must(b.ExecSimple("ALTER TABLE " + table + " ALTER COLUMN no RESTART WITH " + fmt.Sprint(firstGiven)))
	}
	b.must(b.ExecSimple("CREATE TEMPORARY TABLE refused (no BIGINT)"))
	for _, sql := range slices.Sorted(maps.Keys(driver.Reach)) {
		b.add(sql)
	}
	b.undeclared()
	pairs := b.pairs()
	if len(pairs) == 0 {
		t.Fatal("nothing is declared")
	}
	merged, tries := 0, 0
	for _, pair := range pairs {
		for range pair.tries(times) {
			merged += b.try(pair)
			tries++
		}
	}
	if merged < tries {
		t.Errorf("in %d tries %d executions became part of another", tries, merged)
	}
}

// batches has what the checks know of the database.
type batches struct {
	*testing.T
	*postgres.Conn
	columns    map[string][]column // of all tables
	statements []batched
	random     *rand.Rand
	serial     int64
}

type column struct {
	name     string
	kind     driver.Kind
	optional bool
}

// batched is a statement, the tables that its text names, and which parameters of it name things.
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

func (b *batches) readTables() {
	const sql = "SELECT table_name::text, column_name::text, data_type::text, (is_nullable = 'YES')::int::bigint FROM information_schema.columns " +
		"WHERE table_schema = current_schema() AND is_generated = 'NEVER' ORDER BY 1, ordinal_position"
	b.must(b.prep(sql).Each(func(r driver.Row) error {
		kind := map[string]driver.Kind{"bigint": driver.KindInt, "text": driver.KindText, "bytea": driver.KindBytes}[r.Text(2)]
		b.columns[r.Text(0)] = append(b.columns[r.Text(0)], column{r.Text(1), kind, r.Int(3) != 0})
		return nil
	}))
}

var words = regexp.MustCompile(`\w+`)

// add takes a statement in. It must not be only its declaration that says which tables it uses.
func (b *batches) add(sql string) {
	kinds, err := postgres.Kinds(b.Context(), b.Conn, sql)
	b.must(err)
	s := batched{sql: sql, kinds: kinds}
	for _, word := range words.FindAllString(sql, -1) {
		if b.columns[word] != nil && !slices.Contains(s.tables, word) {
			s.tables = append(s.tables, word)
		}
	}
	for _, r := range driver.Reach[sql] {
		if r.By > 0 {
			s.keys = append(s.keys, r.By-1)
		}
	}
	b.statements = append(b.statements, s)
}

// undeclared adds statements of the same tables that have declared nothing, among them deletions
// that are batched. Other batches that have declared nothing do not bear a row twice.
func (b *batches) undeclared() {
	var tables []string
	for _, s := range b.statements {
		tables = append(tables, s.tables...)
	}
	slices.Sort(tables)
	for _, sql := range slices.Sorted(maps.Keys(driver.BatchForms)) {
		if strings.HasPrefix(sql, "DELETE") && driver.Reach[sql] == nil && slices.ContainsFunc(words.FindAllString(sql, -1), func(w string) bool { return slices.Contains(tables, w) }) {
			b.add(sql)
		}
	}
	for _, table := range slices.Compact(tables) {
		first := b.columns[table][0].name
		b.add("DELETE FROM " + table + " WHERE " + first + " = ?")
		if b.columns[table][0].kind == driver.KindInt {
			b.add("DELETE FROM " + table + " WHERE " + first + " = ? AND " + first + " IN (SELECT instance FROM orchestration_inbox)")
		}
	}
}

// pair are two statements that name the same table.
type pair [2]batched

func (b *batches) pairs() (pairs []pair) {
	for i, one := range b.statements {
		for _, other := range b.statements[i:] {
			shared := slices.ContainsFunc(one.tables, func(table string) bool { return slices.Contains(other.tables, table) })
			if driver.Reach[one.sql] != nil && shared { // the declared ones come first
				pairs = append(pairs, pair{one, other})
			}
		}
	}
	return pairs
}

// tries is how often a pair is tried. Where one adds rows and the other removes some, most can go
// wrong: an index may have what is removed. If one has declared nothing and changes the same table
// as the other, little can.
func (p pair) tries(times int) int {
	adds, removes := false, false
	for _, s := range p {
		sql := strings.TrimSpace(s.sql)
		adds, removes = adds || strings.HasPrefix(sql, "INSERT"), removes || strings.HasPrefix(sql, "DELETE")
	}
	switch {
	case driver.Reach[p[1].sql] == nil && p[0].tables[0] == p[1].tables[0]:
		return 1
	case adds && removes:
		return 5 * times
	}
	return times
}

// try compares the two ways once. It returns how many executions became part of another, and
// leaves nothing behind.
func (b *batches) try(pair pair) (merged int) {
	seed := rand.Uint64()
	b.random = rand.New(rand.NewPCG(seed, 0))
	var tables []string
	for _, s := range pair {
		tables = append(tables, s.tables...)
	}
	slices.Sort(tables)
	tables = slices.Compact(tables)
	_, err := b.Begin(driver.BeginOptions{})
	b.must(err)
	list, want := b.oneByOne(pair[:], tables)
	got, sent, err := b.together(list, tables)
	if err != nil {
		got = err.Error()
	}
	if got != want {
		b.Fatalf("with seed %d batches of these lead to other rows:\n%v\n%s", seed, list, difference(want, got))
	}
	b.must(b.Rollback())
	return len(list) - sent
}

const (
	things     = 3         // how many things there are of a kind
	mostTried  = 16        // executions
	firstGiven = 1000      // numbers that the database gives
	firstFresh = 1_000_000 // numbers of new things
)

func (b *batches) thing() int64 { return 1 + b.random.Int64N(things) }

func (b *batches) fresh() int64 {
	b.serial++
	return firstFresh + b.serial
}

// literal is a value as a parameter of that kind has it.
func literal(k driver.Kind, v int64) string {
	switch k {
	case driver.KindText:
		return fmt.Sprintf("'%d'::text", v)
	case driver.KindBytes:
		return fmt.Sprintf("'\\x%x'::bytea", fmt.Append(nil, v))
	}
	return fmt.Sprintf("%d::bigint", v)
}

func bind(st driver.Statement, k driver.Kind, v int64) driver.Statement {
	switch k {
	case driver.KindText:
		return st.Text(fmt.Sprint(v))
	case driver.KindBytes:
		return st.Blob(fmt.Append(nil, v))
	}
	return st.Int(v)
}

// filling stores some rows in a table.
func (b *batches) filling(table string) string {
	var names, rows []string
	for _, c := range b.columns[table] {
		names = append(names, c.name)
	}
	for n := range int64(2 * things) {
		var values []string
		for _, c := range b.columns[table] {
			switch v := b.random.IntN(8); {
			case v == 0 && c.optional:
				values = append(values, "NULL")
			case v < 3 && c.kind != driver.KindInt: // one that no other row has
				values = append(values, literal(c.kind, b.fresh()))
			case v < 4:
				values = append(values, literal(c.kind, b.thing()))
			default: // what one thing has in many tables belongs together
				values = append(values, literal(c.kind, 1+n%things))
			}
		}
		rows = append(rows, "("+strings.Join(values, ", ")+")")
	}
	return "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES " + strings.Join(rows, ", ") + " ON CONFLICT DO NOTHING;"
}

// execution is a random one of a statement. Often all its parameters are of one thing.
func (b *batches) execution(s batched) execution {
	e := execution{batched: s}
	inserts := strings.HasPrefix(strings.TrimSpace(s.sql), "INSERT")
	thing, random, fresh := b.thing(), 2+6*b.random.IntN(2), inserts && b.random.IntN(3) == 0
	for i := range s.kinds {
		switch v := b.random.IntN(10); {
		case inserts && i == 0 && v < 5, fresh && !slices.Contains(s.keys, i):
			e.values = append(e.values, b.fresh()) // the key of a new row, perhaps
		case v == 9:
			e.values = append(e.values, 100+b.thing()) // of which nothing is stored at first
		case v == 8:
			e.values = append(e.values, firstFresh+b.serial-b.random.Int64N(4)) // perhaps stored by one before
		case v < random:
			e.values = append(e.values, b.thing())
		default:
			e.values = append(e.values, thing)
		}
	}
	return e
}

// oneByOne runs random executions, each at once, and undoes them. It returns those that the
// database takes, and the rows that they lead to. All are sent in one round trip.
func (b *batches) oneByOne(pool []batched, tables []string) (taken []execution, rows string) {
	var script strings.Builder
	for _, table := range tables {
		script.WriteString(b.filling(table))
	}
	script.WriteString("SAVEPOINT filled; DO $do$ BEGIN\n")
	var list []execution
	for i := range 2 + b.random.IntN(mostTried-1) { // of many, the later ones hide what the first did
		e := b.execution(pool[b.random.IntN(len(pool))])
		list = append(list, e)
		fmt.Fprintf(&script, "BEGIN %s; EXCEPTION WHEN OTHERS THEN INSERT INTO refused VALUES (%d); END;\n", e.literally(), i)
	}
	script.WriteString("END $do$; SELECT no FROM refused;")
	results, err := b.Pg.Exec(b.Context(), script.String()+b.content(tables)).ReadAll()
	b.must(err)
	refused := map[string]bool{}
	for _, r := range results[len(results)-2].Rows {
		refused[string(r[0])] = true
	}
	for i, e := range list {
		if !refused[fmt.Sprint(i)] {
			taken = append(taken, e)
		}
	}
	b.must(b.ExecSimple("ROLLBACK TO filled"))
	return taken, lines(results[len(results)-1])
}

var parameter = regexp.MustCompile(`\?(\d*)`)

// literally is the execution without parameters.
func (e execution) literally() string {
	n := 0
	return parameter.ReplaceAllStringFunc(e.sql, func(mark string) string {
		i := n
		if _, err := fmt.Sscanf(mark, "?%d", &i); err == nil {
			i--
		}
		n = max(n, i+1)
		return literal(e.kinds[i], e.values[i])
	})
}

// together lets the executions wait, and returns the rows, and how many statements were sent.
func (b *batches) together(list []execution, tables []string) (rows string, sent int, err error) {
	for _, e := range list {
		st := b.prep(e.sql)
		for i, k := range e.kinds {
			st = bind(st, k, e.values[i])
		}
		b.must(st.Exec())
	}
	sent = postgres.Waiting(b.Conn)
	if _, err := b.prep("SELECT 1").One(func(driver.Row) {}); err != nil { // behind those that wait
		return "", sent, err
	}
	results, err := b.Pg.Exec(b.Context(), b.content(tables)).ReadAll()
	b.must(err)
	return lines(results[0]), sent, nil
}

func lines(r *pgconn.Result) string {
	var all strings.Builder
	for _, row := range r.Rows {
		fmt.Fprintf(&all, "%s\n", row[0])
	}
	return all.String()
}

// content selects all rows of tables.
func (b *batches) content(tables []string) string {
	var selects []string
	for _, table := range tables {
		var columns []string
		for _, c := range b.columns[table] {
			switch expression := given[table][c.name]; {
			case expression != "":
				columns = append(columns, fmt.Sprintf("CASE WHEN o.%s BETWEEN %d AND %d THEN %s ELSE o.%[1]s::text END", c.name, firstGiven, firstFresh, expression))
			case c.name == "freed_at": // in a transaction it is always the same
				columns = append(columns, "o.freed_at IS NULL")
			default:
				columns = append(columns, "o."+c.name)
			}
		}
		selects = append(selects, "SELECT '"+table+" ' || x::text FROM (SELECT "+strings.Join(columns, ", ")+" FROM "+table+" o) x")
	}
	return strings.Join(selects, " UNION ALL ") + " ORDER BY 1"
}

// given are columns whose numbers the database gives, or that refer to such, and what says the
// same however it counts.
var given = map[string]map[string]string{
	"documents":          {"no": "''", "latest": "(SELECT r.id FROM document_revisions r WHERE r.no = o.latest)"},
	"document_revisions": {"no": "''", "document": "(SELECT d.tenant || '/' || d.id FROM documents d WHERE d.no = o.document)"},
	"document_jobs":      {"revision": "(SELECT r.id FROM document_revisions r WHERE r.no = o.revision)"},
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
