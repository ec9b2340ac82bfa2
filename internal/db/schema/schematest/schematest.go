// Package schematest makes databases of the oldest schema that can still be brought up to date.
package schematest

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/db/schema"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

//go:embed schema_29.sql
var oldest string

//go:embed live_29.sql
var live string

// liveAt is the moment that the rows of live_29.sql show, in Unix milliseconds.
const liveAt = 1_900_000_000_000

var liveTime = regexp.MustCompile(`\b(?:19|18)\d{11}\b`)

// Live returns the rows that a server of the oldest schema left behind when it was killed at that
// moment: INSERT statements for SQLite. What it has spent it has spent today.
func Live(killed time.Time) string {
	rows := liveTime.ReplaceAllStringFunc(live, func(text string) string {
		at, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			panic(err) // the expression finds digits only
		}
		return strconv.FormatInt(at-liveAt+killed.UnixMilli(), 10)
	})
	year, month, day := time.Now().UTC().Date()
	return strings.NewReplacer(
		"TODAY", strconv.FormatInt(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).UnixMilli(), 10),
		"THIS_MONTH", strconv.FormatInt(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), 10),
	).Replace(rows)
}

// SQLite makes a file with the tables of the oldest schema and these rows.
func SQLite(t testing.TB, path, rows string) {
	t.Helper()
	c, err := sqlite.OpenConn(path)
	must(t, err)
	mark := fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", schema.ApplicationID, schema.Oldest)
	must(t, sqlitex.ExecuteScript(c, schema.ForSQLite(oldest)+rows+mark, nil))
	must(t, c.Close())
}

var blob = regexp.MustCompile(`\bx'([0-9a-f]*)'`)

// sqlContinue makes a PostgreSQL database number on after rows that were inserted with numbers.
const sqlContinue = `
SELECT setval('seqs', coalesce((SELECT max(value) FROM counters WHERE name = 'seq'), 1));
DO $$
DECLARE
  c record;
BEGIN
  FOR c IN SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES' LOOP
    EXECUTE format('SELECT setval(pg_get_serial_sequence(%L, %L), (SELECT coalesce(max(%I), 0) + 1 FROM %I), false)',
      c.table_name, c.column_name, c.column_name, c.table_name);
  END LOOP;
END $$;`

// PostgreSQL makes the tables of the oldest schema and these rows in an empty database.
func PostgreSQL(t testing.TB, url, rows string) {
	t.Helper()
	c, err := postgres.ConnectURL(t.Context(), url)
	must(t, err)
	defer c.Close()
	rows = blob.ReplaceAllString(schema.ForPostgres(rows), `CAST('\x$1' AS BYTEA)`)
	version := fmt.Sprintf("CREATE TABLE schema_version (version BIGINT NOT NULL); INSERT INTO schema_version VALUES (%d);", schema.Oldest)
	must(t, c.ExecSimple("CREATE SCHEMA forebay; "+schema.ForPostgres(oldest)+version+rows+sqlContinue))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
