package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
)

// version returns the schema's version, 0 when there is none.
func (c *Conn) version() (version int64, err error) {
	found := false
	// Looking into pg_class makes the server notice what others have created since the transaction
	// began.
	if _, err := (driver.Conn{Driver: c}).Prep("SELECT EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass('schema_version'))").One(func(r driver.Row) { found = r.Int(0) != 0 }); err != nil {
		return 0, err
	}
	if !found {
		return 0, checkSchema(c)
	}
	_, err = (driver.Conn{Driver: c}).Prep("SELECT version FROM schema_version").One(func(r driver.Row) { version = r.Int(0) })
	return version, refusedTable(err, "schema_version")
}

// migrationPatience is what a migration may take, or the wait for another process's: large
// tables may be rewritten.
const migrationPatience = 24 * time.Hour

// migrate brings the schema up to date in one transaction, during which nobody else writes.
func (c *Conn) migrate(ctx context.Context) error {
	return c.WithoutTimeout(ctx, func() error {
		// Not as other transactions begin, which ask what no table can answer yet.
		if err := c.ExecSimple("BEGIN; SET LOCAL statement_timeout = 0; " + sqlLockPostgres); err != nil {
			return err
		}
		err := driver.Finish(c, c.applyMigrations())
		if errors.Is(err, errUnconfirmed) {
			return c.TranslateError(err)
		}
		return err
	})
}

// Unhurried runs f, which may take long. When ctx ends it is given up.
func (c *Conn) WithoutTimeout(ctx context.Context, f func() error) error {
	usual := c.allowed
	c.allowed = migrationPatience
	c.patience()
	pg := c.Pg
	stop := context.AfterFunc(ctx, func() { Within(pg, 0) })
	defer func() {
		stop()
		c.allowed = usual
		c.patience()
	}()
	return f()
}

func (c *Conn) applyMigrations() error {
	path := c.Target.RuntimeParams["search_path"]
	if path == postgresSchema {
		if err := createSchema(c); err != nil {
			return err
		}
	}
	version, err := c.version() // again: another process may have been faster
	if err == nil {
		err = schema.RefuseUnknown("the database", version)
	}
	if err != nil {
		return err
	}
	err = schema.MigrateFrom(version, func(script string) error { return c.ExecSimple(schema.ForPostgres(script)) })
	if err != nil {
		return err
	}
	return c.ExecSimple(fmt.Sprintf("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL); DELETE FROM schema_version; INSERT INTO schema_version VALUES (%d)", schema.Latest()))
}

// createSchema makes the schema unless it is there. Whoever may not make any may own that one, but
// may not even say IF NOT EXISTS.
func createSchema(c *Conn) error {
	found, err := driver.Conn{Driver: c}.Prep("SELECT 1 FROM pg_namespace WHERE nspname = ?").Text(postgresSchema).One(func(driver.Row) {})
	if err != nil || found {
		return err
	}
	return c.ExecSimple("CREATE SCHEMA " + postgresSchema)
}

func (c *Conn) HasTable(name string) (bool, error) {
	return driver.Conn{Driver: c}.Prep("SELECT 1 FROM pg_class WHERE oid = to_regclass(?)").Text(name).One(func(driver.Row) {})
}

// Drop leaves the schema, which may be another's.
func (c *Conn) Drop(tables []string) error {
	tables = append(tables, "schema_version")
	var functions []string
	err := driver.Conn{Driver: c}.Prep(`SELECT DISTINCT CAST(p.proname AS text) FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
		WHERE NOT t.tgisinternal AND t.tgrelid IN (to_regclass('` + strings.Join(tables, "'), to_regclass('") + "'))").Each(func(r driver.Row) error {
		functions = append(functions, r.Text(0))
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.ExecSimple("DROP TABLE " + strings.Join(tables, ", ") + "; DROP SEQUENCE seqs"); err != nil || len(functions) == 0 {
		return err
	}
	return c.ExecSimple("DROP FUNCTION " + strings.Join(functions, ", "))
}

// SchemaVersion is that of the database at the address; 0: it has none yet.
func SchemaVersion(ctx context.Context, address string) (int64, error) {
	c, err := ConnectURL(ctx, address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	version, err := c.version()
	if err != nil {
		return 0, UnusableOnServer(err)
	}
	return version, nil
}

func (c *Conn) NextSeq() (next int64, err error) {
	_, err = driver.Conn{Driver: c}.Prep("SELECT max(n) FROM (" + schema.SQLNextSeq + ` UNION ALL
SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END FROM seqs) x(n)`).One(func(r driver.Row) { next = r.Int(0) })
	return next, err
}

func (c *Conn) ContinueFrom(nextSeq int64, numbered map[string]string) error {
	if _, err := (driver.Conn{Driver: c}).Prep("SELECT setval('seqs', ?, false)").Int(nextSeq).One(func(driver.Row) {}); err != nil {
		return err
	}
	for table, key := range numbered {
		sql := fmt.Sprintf("SELECT setval(pg_get_serial_sequence('%[1]s', '%[2]s'), (SELECT coalesce(max(%[2]s), 0) + 1 FROM %[1]s), false)", table, key)
		set := false
		if _, err := (driver.Conn{Driver: c}).Prep(sql).One(func(r driver.Row) { set = !r.IsNull(0) }); err != nil {
			return err
		}
		if !set {
			return fmt.Errorf("%s of %s has no sequence", key, table)
		}
	}
	return nil
}
