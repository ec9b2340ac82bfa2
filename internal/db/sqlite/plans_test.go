package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// A statement is prepared once, also if values become 0 or 1, or limit its rows.
func TestStatementsArePreparedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "forebay.db")
	writer, err := OpenWriter(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	reader, err := OpenReader(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	tls := libc.NewTLS()
	defer tls.Close()
	for name, c := range map[string]driver.Conn{"writer": {Driver: writer}, "reader": reader} {
		for _, sql := range []string{
			"SELECT seq FROM messages WHERE subqueue = ? AND flow = ? AND visible_at > ? ORDER BY visible_at LIMIT 1",
			"SELECT seq FROM messages WHERE subqueue = ? AND visible_at > ? LIMIT ?",
		} {
			for value := range int64(4) {
				if err := c.Prep(sql).Int(value).Int(2 * value).Int(value).Each(func(driver.Row) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			prepared, err := c.Driver.(*Conn).Conn.Prepare(sql)
			if err != nil {
				t.Fatal(err)
			}
			if n := lib.Xsqlite3_stmt_status(tls, handle(prepared, "stmt"), lib.SQLITE_STMTSTATUS_REPREPARE, 0); n != 0 {
				t.Errorf("%s: prepared anew %d times: %s", name, n, sql)
			}
		}
	}
}
