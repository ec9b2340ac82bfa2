package sqlite

import (
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// version returns the schema's version, 0 when there is none, and refuses a file that is another
// program's.
func (c *Conn) version() (version int64, err error) {
	id, err := c.pragma("application_id")
	if err != nil {
		return 0, err
	}
	version, err = c.pragma("user_version")
	if err != nil {
		return 0, err
	}
	var tables int64
	if _, err := (driver.Conn{Driver: c}).Prep("SELECT count(*) FROM sqlite_schema").One(func(r driver.Row) { tables = r.Int(0) }); err != nil {
		return 0, err
	}
	if id != schema.ApplicationID && (tables > 0 || id != 0 || version != 0) {
		return 0, forebay.Errorf(forebay.CodeDatabaseUnusable, "the database file belongs to another program; name another file")
	}
	return version, nil
}

// checkOurs refuses a file that is another program's or a newer Forebay's.
func (c *Conn) checkOurs() (version int64, err error) {
	if version, err = c.version(); err != nil {
		return 0, err
	}
	return version, schema.RefuseUnknown("the database", version)
}

// Migrate brings the schema up to date in one transaction, during which nobody else can.
func (c *Conn) Migrate() error {
	if _, err := c.Begin(driver.BeginOptions{}); err != nil {
		return err
	}
	return driver.Finish(c, c.applyMigrations())
}

func (c *Conn) applyMigrations() error {
	version, err := c.checkOurs() // again: another process may have been faster
	if err != nil {
		return err
	}
	mark := fmt.Sprintf("\nPRAGMA application_id = %d;\nPRAGMA user_version = %d;", schema.ApplicationID, schema.Latest())
	return schema.MigrateFrom(version, func(script string) error { return sqlitex.ExecuteScript(c.Conn, schema.ForSQLite(script)+mark, nil) })
}

// pragma returns the integer value of a PRAGMA.
func (c *Conn) pragma(name string) (value int64, err error) {
	_, err = (driver.Conn{Driver: c}).Prep("PRAGMA " + name).One(func(r driver.Row) { value = r.Int(0) })
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	return value, nil
}

// SchemaVersion is that of a file; 0: it has none yet.
func SchemaVersion(name string) (int64, error) {
	name, err := RealPath(name)
	if err != nil {
		return 0, err
	}
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	raw, err := sqlite.OpenConn(untouched(name), sqlite.OpenReadOnly, sqlite.OpenURI)
	if err != nil {
		return 0, driver.Unusable("the database file cannot be opened", err)
	}
	defer raw.Close()
	version, err := NewConn(raw).version()
	if err != nil {
		return 0, UnusableUnlessKnown(err)
	}
	return version, nil
}

// untouched is the URI of a file that is opened without a trace. Only a file with a WAL needs
// the other files that SQLite makes beside it. It is in use or was left by a crash, so they are
// there.
func untouched(name string) string {
	uri := url.URL{Scheme: "file", Path: name}
	if wal, err := os.Stat(name + "-wal"); err != nil || wal.Size() == 0 {
		uri.RawQuery = "immutable=1"
	}
	return uri.String()
}

func (c *Conn) HasTable(name string) (found bool, err error) {
	return driver.Conn{Driver: c}.Prep("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?").Text(name).One(func(driver.Row) {})
}

func (c *Conn) Drop(tables []string) error {
	for _, name := range append(tables, schema.WordsTable) {
		if err := c.Run("DROP TABLE " + name); err != nil {
			return err
		}
	}
	if err := c.Run("PRAGMA user_version = 0"); err != nil {
		return err
	}
	return c.Run("PRAGMA application_id = 0")
}

func (c *Conn) NextSeq() (next int64, err error) {
	_, err = driver.Conn{Driver: c}.Prep(schema.SQLNextSeq).One(func(r driver.Row) { next = r.Int(0) })
	return next, err
}

// ContinueFrom has to count only messages; rows are numbered after the last one there is.
func (c *Conn) ContinueFrom(nextSeq int64, _ map[string]string) error {
	return driver.Conn{Driver: c}.Prep(schema.SQLCount).Text("seq").Int(nextSeq).Exec()
}
