package db

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/db/schema"
	raw "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// A database of the oldest version that still opens becomes like a new one, and keeps its rows.
func TestUpgradedSchemaIsTheNewOne(t *testing.T) {
	t.Parallel()
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			fresh, old := database(t), database(t)
			createOldest(t, old)
			if s, err := ReadSchema(t.Context(), old); err != nil || s.Database != schema.Oldest {
				t.Fatalf("the old database is %+v: %v", s, err)
			}
			upgraded := openUntilEnd(t, old)
			if s, err := ReadSchema(t.Context(), old); err != nil || s.Database != schema.Latest() {
				t.Errorf("the upgraded database is %+v: %v", s, err)
			}
			want, got := structure(t, openUntilEnd(t, fresh)), structure(t, upgraded)
			for _, line := range want {
				if !slices.Contains(got, line) {
					t.Errorf("the upgraded database lacks %s", line)
				}
			}
			for _, line := range got {
				if !slices.Contains(want, line) {
					t.Errorf("a new database has no %s", line)
				}
			}
			if len(want) < 50 {
				t.Errorf("only %d things were compared", len(want))
			}
			mustDo(t, upgraded.Read(t.Context(), func(c driver.Conn) error {
				found, err := c.Prep("SELECT subqueue, flow, visible_at, lock_token FROM messages WHERE seq = 7").One(func(r driver.Row) {
					for i, want := range []int64{5, 16, 1700000000000, 99} {
						if r.Int(i) != want {
							t.Errorf("column %d has %d, was %d", i, r.Int(i), want)
						}
					}
				})
				if !found {
					t.Error("the message is gone")
				}
				return err
			}))
		})
	}
}

const sqlOldMessage = "INSERT INTO messages (seq, lane, rank, visible, token, size) VALUES (7, 5, 16, 1700000000000, 99, 1)"

// createOldest makes a database of the oldest version, with a message.
func createOldest(t *testing.T, where Options) {
	t.Helper()
	script, err := os.ReadFile("schema/testdata/schema_29.sql")
	mustDo(t, err)
	if where.URL == "" {
		c, err := raw.OpenConn(where.Path)
		mustDo(t, err)
		defer c.Close()
		mark := "PRAGMA application_id = " + fmt.Sprint(schema.ApplicationID) + "; PRAGMA user_version = " + fmt.Sprint(schema.Oldest) + ";"
		mustDo(t, sqlitex.ExecuteScript(c, schema.ForSQLite(string(script))+";"+sqlOldMessage+";"+mark, nil))
		return
	}
	c, err := postgres.ConnectURL(t.Context(), where.URL)
	mustDo(t, err)
	defer c.Close()
	mustDo(t, c.ExecSimple("CREATE SCHEMA forebay; "+schema.ForPostgres(string(script))+"CREATE TABLE schema_version (version BIGINT NOT NULL); INSERT INTO schema_version VALUES ("+
		fmt.Sprint(schema.Oldest)+"); "+sqlOldMessage))
}

var spaces = regexp.MustCompile(`\s+`)

// structure describes each table, index, trigger and sequence of a database in a line.
func structure(t *testing.T, s *DB) (lines []string) {
	t.Helper()
	sql := `SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema`
	if s.Shared() {
		sql = `SELECT 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' ||
  CAST(a.attidentity AS text) || CAST(a.attgenerated AS text) || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || coalesce(array_to_string(c.reloptions, ','), '')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind = 'r'
UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = current_schema()
UNION ALL SELECT 'sequence ' || sequencename FROM pg_sequences WHERE schemaname = current_schema()
UNION ALL SELECT 'trigger ' || pg_get_triggerdef(g.oid) FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
  WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND NOT g.tgisinternal`
	}
	mustDo(t, s.Read(t.Context(), func(c driver.Conn) error {
		return c.Prep(sql).Each(func(r driver.Row) error {
			text := regexp.MustCompile(`(?m)\s*--.*$`).ReplaceAllString(r.Text(0), "")
			lines = append(lines, strings.ReplaceAll(spaces.ReplaceAllString(text, " "), `"`, ""))
			return nil
		})
	}))
	return lines
}
