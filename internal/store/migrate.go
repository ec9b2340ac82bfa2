package store

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/forebayhq/forebay"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// applicationID marks a SQLite file as Forebay's (PRAGMA application_id): "FbAy".
const applicationID = 0x46624179

// SchemaVersion is the newest schema that this program knows: the one it needs.
func SchemaVersion() int64 { return schemaVersion() }

// schemaVersion is the number of the migrations.
func schemaVersion() int64 { return int64(len(migrationNames())) }

func migrationNames() []string {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		panic(err) // the pattern is constant
	}
	slices.Sort(names)
	return names
}

// migrationStep does what follows a script and SQL alone cannot do, in the same transaction.
func migrationStep(name string, c conn) error {
	if name == "migrations/0006_audit.sql" {
		return chainAudit(c)
	}
	return nil
}

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
	return version, refuseNewer(version)
}

func refuseNewer(version int64) error {
	if version <= schemaVersion() {
		return nil
	}
	return forebay.Errorf(forebay.CodeDatabaseUnusable,
		"the database was written by a newer Forebay (schema %d; this one knows %d); use that version or newer", version, schemaVersion())
}

// migrate brings the schema up to date in one transaction, during which nobody else can.
func (c *sqliteConn) migrate() error {
	if _, err := c.begin(needs{}); err != nil {
		return err
	}
	return finish(c, c.applyMigrations())
}

// finish commits a transaction or, if it has failed, rolls it back.
func finish(d driver, err error) error {
	if err == nil {
		err = d.commit()
	}
	if err != nil {
		err = errors.Join(err, d.rollback())
	}
	return err
}

// migrateFrom applies the migrations that come after a version. run executes a script, which leads to the
// version it is given.
func migrateFrom(version int64, d driver, run func(script string, version int) error) error {
	for i, name := range migrationNames() {
		if int64(i) < version {
			continue
		}
		script, err := migrationFiles.ReadFile(name)
		if err == nil {
			err = run(string(script), i+1)
		}
		if err == nil {
			err = migrationStep(name, conn{driver: d})
		}
		if err != nil {
			return fmt.Errorf("migrate to schema %d: %w", i+1, err)
		}
	}
	return nil
}

func (c *sqliteConn) applyMigrations() error {
	version, err := c.checkOurs() // again: another process may have been faster
	if err != nil {
		return err
	}
	return migrateFrom(version, c, func(script string, version int) error {
		sql := fmt.Sprintf("%s;\nPRAGMA application_id = %d;\nPRAGMA user_version = %d;", forSQLite(script), applicationID, version)
		return sqlitex.ExecuteScript(c.Conn, sql, nil)
	})
}

// pragma returns the integer value of a PRAGMA.
func (c *sqliteConn) pragma(name string) (value int64, err error) {
	_, err = (conn{driver: c}).prep("PRAGMA " + name).one(func(r row) { value = r.int(0) })
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	return value, nil
}
