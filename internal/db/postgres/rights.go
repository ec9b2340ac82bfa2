package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/jackc/pgx/v5/pgconn"
)

// The tables may belong to another user than the one that a process connects as. Then that one has
// been granted what it needs, or has not.

const lacksRights = "42501"

// sqlLacking names a table that may not be read and changed, or a sequence that may not be used.
// The tables stand for %[1]s.
const sqlLacking = `SELECT CAST(c.relname AS text) FROM pg_class c WHERE c.oid IN (%[1]s)
  AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
UNION ALL
SELECT CAST(s.relname AS text) FROM pg_class s WHERE s.relkind = 'S'
  AND (s.oid = to_regclass('seqs') OR EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = s.oid AND d.refobjid IN (%[1]s)))
  AND CASE s.relkind WHEN 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE') END
LIMIT 1`

// checkRights refuses a user that may not work on the tables.
func checkRights(c *Conn) error {
	tables := "to_regclass('" + strings.Join(schema.Tables(), "'), to_regclass('") + "')"
	lacking := ""
	if _, err := (driver.Conn{Driver: c}).Prep(fmt.Sprintf(sqlLacking, tables)).One(func(r driver.Row) { lacking = r.Text(0) }); err != nil {
		return err
	}
	if lacking != "" {
		return rightsTo(lacking)
	}
	return nil
}

func rightsTo(table string) error {
	return forebay.Errorf(forebay.CodeDatabaseUnusable, "this database user may not work on %s: "+
		"grant it SELECT, INSERT, UPDATE and DELETE on all tables of the schema, and USAGE on all its sequences", table)
}

// refusedTable is err, or what to do if it says that the user has no right to a table.
func refusedTable(err error, table string) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == lacksRights {
		return rightsTo(table)
	}
	return err
}

// checkSchema refuses a schema that is there and that the user may not use. It looks as if it were
// empty.
func checkSchema(c *Conn) error {
	path := c.Target.RuntimeParams["search_path"]
	closed, err := driver.Conn{Driver: c}.Prep("SELECT 1 FROM pg_namespace WHERE nspname = ? AND NOT has_schema_privilege(oid, 'USAGE')").
		Text(path).One(func(driver.Row) {})
	if err == nil && closed {
		return forebay.Errorf(forebay.CodeDatabaseUnusable, "this database user may not use the schema %s: grant it USAGE on that", path)
	}
	return err
}
