package store

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/forebayhq/forebay"
)

//go:embed schema
var schemaFiles embed.FS

// applicationID marks a SQLite file as Forebay's (PRAGMA application_id): "FbAy".
const applicationID = 0x46624179

// oldestSchema is the oldest version that can be brought up to date. Older ones were of no release.
const oldestSchema = 29

// SchemaVersion is the newest schema that this program knows: the one it needs.
func SchemaVersion() int64 { return schemaVersion() }

func schemaVersion() int64 { return oldestSchema + int64(len(migrations())) }

// migrations names the scripts that lead from one version to the next, the oldest version's first.
func migrations() []string {
	names, err := fs.Glob(schemaFiles, "schema/[0-9]*.sql")
	if err != nil {
		panic(err) // the pattern is constant
	}
	slices.Sort(names)
	return names
}

// scriptsFrom names the scripts that a database of that version lacks, in order; version 0 has no tables yet.
func scriptsFrom(version int64) []string {
	switch {
	case version == 0:
		return []string{"schema/schema.sql"}
	case version < oldestSchema || version > schemaVersion():
		return nil
	}
	return migrations()[version-oldestSchema:]
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
	return version, refuseUnknown(version)
}

// refuseUnknown refuses a version that this program can neither use nor bring up to date.
func refuseUnknown(version int64) error {
	switch {
	case version > 0 && version < oldestSchema:
		return forebay.Errorf(forebay.CodeDatabaseUnusable,
			"the database was written by a Forebay from before the first release (schema %d); this one knows %d and newer", version, oldestSchema)
	case version <= schemaVersion():
		return nil
	}
	return forebay.Errorf(forebay.CodeDatabaseUnusable,
		"the database was written by a newer Forebay (schema %d; this one knows %d); use that version or newer", version, schemaVersion())
}

// migrate brings the schema up to date in one transaction, during which nobody else can.
func (c *sqliteConn) migrate() error {
	if _, err := c.begin(beginning{}); err != nil {
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

// migrateFrom runs the scripts that a database of that version lacks.
func migrateFrom(version int64, run func(script string) error) error {
	for _, name := range scriptsFrom(version) {
		script, err := schemaFiles.ReadFile(name)
		if err == nil {
			err = run(string(script))
		}
		if err != nil {
			return fmt.Errorf("migrate from schema %d, %s: %w", version, scriptName(name), err)
		}
	}
	return nil
}

// scriptName is what users call a script.
func scriptName(file string) string { return strings.TrimSuffix(path.Base(file), ".sql") }

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
