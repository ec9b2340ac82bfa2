package store

import (
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/forebayhq/forebay"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// version returns the schema's version, 0 when there is none, and refuses a file that is another
// program's.
func (c *sqliteConn) version() (version int64, err error) {
	id, err := c.pragma("application_id")
	if err != nil {
		return 0, err
	}
	version, err = c.pragma("user_version")
	if err != nil {
		return 0, err
	}
	var tables int64
	if _, err := (conn{driver: c}).prep("SELECT count(*) FROM sqlite_schema").one(func(r row) { tables = r.int(0) }); err != nil {
		return 0, err
	}
	if id != applicationID && (tables > 0 || id != 0 || version != 0) {
		return 0, forebay.Errorf(forebay.CodeDatabaseUnusable, "the database file belongs to another program; name another file")
	}
	return version, nil
}

// checkOurs refuses a file that is another program's or a newer Forebay's.
func (c *sqliteConn) checkOurs() (version int64, err error) {
	if version, err = c.version(); err != nil {
		return 0, err
	}
	return version, refuseUnknown(version)
}

// migrate brings the schema up to date in one transaction, during which nobody else can.
func (c *sqliteConn) migrate() error {
	if _, err := c.begin(beginning{}); err != nil {
		return err
	}
	return finish(c, c.applyMigrations())
}

func (c *sqliteConn) applyMigrations() error {
	version, err := c.checkOurs() // again: another process may have been faster
	if err != nil {
		return err
	}
	mark := fmt.Sprintf("\nPRAGMA application_id = %d;\nPRAGMA user_version = %d;", applicationID, schemaVersion())
	return migrateFrom(version, func(script string) error { return sqlitex.ExecuteScript(c.Conn, forSQLite(script)+mark, nil) })
}

// pragma returns the integer value of a PRAGMA.
func (c *sqliteConn) pragma(name string) (value int64, err error) {
	_, err = (conn{driver: c}).prep("PRAGMA " + name).one(func(r row) { value = r.int(0) })
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	return value, nil
}

func sqliteVersion(name string) (int64, error) {
	name, err := realPath(name)
	if err != nil {
		return 0, err
	}
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	raw, err := sqlite.OpenConn(untouched(name), sqlite.OpenReadOnly, sqlite.OpenURI)
	if err != nil {
		return 0, unusable("the database file cannot be opened", err)
	}
	defer raw.Close()
	version, err := newSQLiteConn(raw).version()
	if err != nil {
		return 0, unusableUnlessKnown(err)
	}
	return version, nil
}

// untouched is the URI of a file that is opened without a trace. Only a file with a WAL, which is in
// use or was left by a crash, needs the other files that SQLite makes beside it; they are there then.
func untouched(name string) string {
	uri := url.URL{Scheme: "file", Path: name}
	if wal, err := os.Stat(name + "-wal"); err != nil || wal.Size() == 0 {
		uri.RawQuery = "immutable=1"
	}
	return uri.String()
}

func (c *sqliteConn) hasTable(name string) (found bool, err error) {
	return conn{driver: c}.prep("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?").text(name).one(func(row) {})
}

func (c *sqliteConn) drop(tables []string) error {
	for _, name := range append(tables, wordsTable) {
		if err := c.run("DROP TABLE " + name); err != nil {
			return err
		}
	}
	if err := c.run("PRAGMA user_version = 0"); err != nil {
		return err
	}
	return c.run("PRAGMA application_id = 0")
}

func (c *sqliteConn) nextSeq() (next int64, err error) {
	_, err = conn{driver: c}.prep(sqlNextSeq).one(func(r row) { next = r.int(0) })
	return next, err
}

// continueFrom has to count only messages; rows are numbered after the last one there is.
func (c *sqliteConn) continueFrom(nextSeq int64, _ map[string]string) error {
	return conn{driver: c}.prep(sqlCount).text("seq").int(nextSeq).exec()
}
