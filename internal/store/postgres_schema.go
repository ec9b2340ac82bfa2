package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// version returns the schema's version, 0 when there is none.
func (c *postgresConn) version() (version int64, err error) {
	found := false
	// Looking into pg_class makes the server notice what others have created since the transaction began.
	if _, err := (conn{driver: c}).prep("SELECT EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass('schema_version'))").one(func(r row) { found = r.int(0) != 0 }); err != nil || !found {
		return 0, err
	}
	_, err = (conn{driver: c}).prep("SELECT version FROM schema_version").one(func(r row) { version = r.int(0) })
	return version, err
}

// migrationPatience is what a migration may take, or the wait for another process's: large tables may be
// rewritten.
const migrationPatience = 24 * time.Hour

// migrate brings the schema up to date in one transaction, during which nobody else writes.
func (c *postgresConn) migrate(ctx context.Context) error {
	return c.unhurried(ctx, func() error {
		// Not as other transactions begin, which ask what no table can answer yet.
		if err := c.simple("BEGIN; SET LOCAL statement_timeout = 0; " + sqlLockPostgres); err != nil {
			return err
		}
		err := finish(c, c.applyMigrations())
		if errors.Is(err, errUnconfirmed) {
			return c.explain(err)
		}
		return err
	})
}

// unhurried runs f, which may take long. When ctx ends it is given up.
func (c *postgresConn) unhurried(ctx context.Context, f func() error) error {
	usual := c.allowed
	c.allowed = migrationPatience
	c.patience()
	pg := c.pg
	stop := context.AfterFunc(ctx, func() { within(pg, 0) })
	defer func() {
		stop()
		c.allowed = usual
		c.patience()
	}()
	return f()
}

func (c *postgresConn) applyMigrations() error {
	path := c.config.RuntimeParams["search_path"]
	if path == postgresSchema {
		if err := c.simple("CREATE SCHEMA IF NOT EXISTS " + postgresSchema); err != nil {
			return err
		}
	}
	version, err := c.version() // again: another process may have been faster
	if err == nil {
		err = refuseUnknown(version)
	}
	if err != nil {
		return err
	}
	err = migrateFrom(version, func(script string) error { return c.simple(forPostgres(script)) })
	if err != nil {
		return err
	}
	return c.simple(fmt.Sprintf("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL); DELETE FROM schema_version; INSERT INTO schema_version VALUES (%d)", schemaVersion()))
}

func (c *postgresConn) hasTable(name string) (bool, error) {
	return conn{driver: c}.prep("SELECT 1 FROM pg_class WHERE oid = to_regclass(?)").text(name).one(func(row) {})
}

// drop leaves the schema, which may be another's.
func (c *postgresConn) drop(tables []string) error {
	tables = append(tables, "schema_version")
	var functions []string
	err := conn{driver: c}.prep(`SELECT DISTINCT CAST(p.proname AS text) FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
		WHERE NOT t.tgisinternal AND t.tgrelid IN (to_regclass('` + strings.Join(tables, "'), to_regclass('") + "'))").each(func(r row) error {
		functions = append(functions, r.text(0))
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.simple("DROP TABLE " + strings.Join(tables, ", ") + "; DROP SEQUENCE seqs"); err != nil || len(functions) == 0 {
		return err
	}
	return c.simple("DROP FUNCTION " + strings.Join(functions, ", "))
}

func postgresVersion(ctx context.Context, address string) (int64, error) {
	c, err := reachPostgres(ctx, address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	version, err := c.version()
	if err != nil {
		return 0, unusableOnServer(err)
	}
	return version, nil
}

func (c *postgresConn) nextSeq() (next int64, err error) {
	_, err = conn{driver: c}.prep("SELECT max(n) FROM (" + sqlNextSeq + ` UNION ALL
SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END FROM seqs) x(n)`).one(func(r row) { next = r.int(0) })
	return next, err
}

func (c *postgresConn) continueFrom(nextSeq int64, numbered map[string]string) error {
	if _, err := (conn{driver: c}).prep("SELECT setval('seqs', ?, false)").int(nextSeq).one(func(row) {}); err != nil {
		return err
	}
	for table, key := range numbered {
		sql := fmt.Sprintf("SELECT setval(pg_get_serial_sequence('%[1]s', '%[2]s'), (SELECT coalesce(max(%[2]s), 0) + 1 FROM %[1]s), false)", table, key)
		set := false
		if _, err := (conn{driver: c}).prep(sql).one(func(r row) { set = !r.isNull(0) }); err != nil {
			return err
		}
		if !set {
			return fmt.Errorf("%s of %s has no sequence", key, table)
		}
	}
	return nil
}
