package db

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/sqlite"
	"github.com/forebayhq/forebay/internal/raced"
)

// fill makes a database with rows in every table: so many in events, a few in the others. They
// have every possible NULL, empty texts and bytes, and one body larger than a chunk.
func fill(t testing.TB, where Options, events int) {
	t.Helper()
	s, err := openTarget(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	optional := nullable(t)
	tables, err := schemaTables()
	if err != nil {
		t.Fatal(err)
	}
	err = s.transaction(func(c driver.Conn) error {
		for _, table := range tables {
			if table.name == "audit" || table.name == "audit_acts" {
				continue // see below
			}
			rows := 7
			if table.name == "events" {
				rows = events
			}
			for n := range int64(rows) {
				cells := make([]cell, len(table.columns))
				for i, column := range table.columns {
					key := slices.Contains(table.key, i)
					switch cells[i].Kind = column.kind; {
					case optional[table.name+"."+column.name] && !key && n%3 == 0:
						cells[i].Null = true
					case column.kind == driver.KindInt:
						if cells[i].Int = 10*n + 1; !key {
							cells[i].Int += 1 << 50 // no time is soon
						}
					case optional[table.name+"."+column.name] && !key && n%3 == 1:
						cells[i].Bytes = []byte{}
					case column.kind == driver.KindText:
						cells[i].Bytes = fmt.Appendf(nil, "ä%d", n)
					default:
						cells[i].Bytes = []byte{0xff, 0, byte(n)}
						if table.name == "bodies" && n == 2 {
							cells[i].Bytes = make([]byte, maxChunkBytes+1)
						}
					}
				}
				if err := insertRow(c, table, cells); err != nil {
					return fmt.Errorf("fill %s: %w", table.name, err)
				}
			}
		}
		if err := fillAudit(c, 7); err != nil {
			return err
		}
		return s.engine.ContinueFrom(1_000_000, numberedOf(tables))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// fillAudit appends so many entries to the audit log, whose triggers take only what follows the
// last one.
func fillAudit(c driver.Conn, entries int64) error {
	previous := make([]byte, 32)
	for n := range entries {
		hash := make([]byte, 32)
		hash[0] = byte(n + 1)
		err := c.Prep(`INSERT INTO audit (no, at, tenant, actor, action, target, detail, prev, hash) VALUES (?, ?, '', 'local', 'pause', ?, '', ?, ?)`).
			Int(n + 1).Int(n).Text(fmt.Sprint("q", n)).Blob(previous).Blob(hash).Exec()
		if err == nil {
			err = c.Prep("INSERT INTO audit_acts (no, tenant, actor, action) VALUES (?, '', 'local', 'pause')").Int(n + 1).Exec()
		}
		if err != nil {
			return err
		}
		previous = hash
	}
	return nil
}

// nullable returns the columns, as table.column, that may be NULL.
func nullable(t testing.TB) map[string]bool {
	t.Helper()
	c, err := sqlite.OpenWriter(filepath.Join(t.TempDir(), "forebay.db"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	found := map[string]bool{}
	err = driver.Conn{Driver: c}.Prep(`SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' AND c."notnull" = 0`).
		Each(func(r driver.Row) error { found[r.Text(0)] = true; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// everything reads all of a database, but for the sequence number to go on with, which each
// kind of database keeps elsewhere.
func everything(t testing.TB, where Options) map[string][][]cell {
	t.Helper()
	s, err := openSource(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	tables, err := schemaTables()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][][]cell{}
	for _, table := range tables {
		if all[table.name], err = rowsAfter(s.Conn, table, nil, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	all["counters"] = slices.DeleteFunc(all["counters"], func(cells []cell) bool { return string(cells[0].Bytes) == "seq" })
	return all
}

func quiet(CopyProgress) {}

func TestCopy(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	t.Parallel()
	for _, kinds := range [][2]string{{"sqlite", "postgresql"}, {"postgresql", "sqlite"}, {"sqlite", "sqlite"}, {"postgresql", "postgresql"}} {
		t.Run(kinds[0]+" to "+kinds[1], func(t *testing.T) {
			t.Parallel()
			from, to := engines[kinds[0]](t), engines[kinds[1]](t)
			fill(t, from, 2*maxChunkRows+1)
			var chunks []string
			report, err := Copy(t.Context(), from, to, func(p CopyProgress) {
				if !p.Verifying {
					chunks = append(chunks, p.Table)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			before, after := everything(t, from), everything(t, to)
			rows := 0
			if kinds[0] == "sqlite" {
				rows++ // the counter of sequence numbers
			}
			for name, original := range before {
				rows += len(original)
				if !reflect.DeepEqual(original, after[name]) {
					t.Errorf("%s is not the same", name)
				}
			}
			if int(report.Rows) != rows || len(report.Tables) != len(before) || report.Blobs != 4*(2+5+2)+7*2 {
				t.Errorf("reported %d rows of %d, %d tables, %d blobs", report.Rows, rows, len(report.Tables), report.Blobs)
			}
			events, bodies := 0, 0
			for _, name := range chunks {
				switch name {
				case "events":
					events++
				case "bodies":
					bodies++
				}
			}
			if events != 3 || bodies != 3 {
				t.Errorf("%d chunks of events, %d of bodies", events, bodies)
			}
		})
	}
}

// PostgreSQL cannot hold every text that SQLite can.
func TestCopyOfForeignText(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	from, to := engines["sqlite"](t), engines["postgresql"](t)
	s, err := Open(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a\x00b", "a\xffc", "b"} {
		_, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange}, func(t *Tx) (int, error) {
			return 0, t.Prep("INSERT INTO tenants (name, created_at) VALUES (?, 0)").Text(name).Exec()
		})
		mustDo(t, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), from, to, quiet); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, cells := range everything(t, to)["tenants"] {
		names = append(names, string(cells[1].Bytes))
	}
	if !slices.Equal(names, []string{"a\uFFFDb", "a\uFFFDc", "b"}) {
		t.Errorf("%q", names)
	}
}

// Whatever table or column a database has is copied.
func TestCopyKnowsEveryTable(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	tables, err := schemaTables()
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, table := range tables {
		for _, column := range table.columns {
			known = append(known, table.name+"."+column.name)
		}
		if len(table.key) == 0 {
			t.Errorf("%s has no primary key", table.name)
		}
	}
	slices.Sort(known)
	for kind, sql := range map[string]string{
		"sqlite":     "SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' AND t.name NOT GLOB 'chunk_words*'",
		"postgresql": "SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'forebay' AND is_generated = 'NEVER'",
	} {
		where := engines[kind](t)
		s, err := openTarget(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		defer s.release()
		var there []string
		err = s.Prep(sql).Each(func(r driver.Row) error {
			if name := r.Text(0); !strings.HasPrefix(name, "probes.") && !strings.HasPrefix(name, "chunk_halfvecs.") && name != "schema_version.version" {
				there = append(there, name)
			}
			return nil
		})
		slices.Sort(there)
		if err != nil || !slices.Equal(there, known) {
			t.Errorf("%s has %q, copied are %q: %v", kind, there, known, err)
		}
	}
}
