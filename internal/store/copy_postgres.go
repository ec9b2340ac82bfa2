package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// presence is an advisory lock, of a schema, that everybody holds who uses it: shared by the processes
// that run on it, exclusive to a copy. It ends with the connection.
type presence string

const (
	sharedPresence    presence = "SELECT pg_try_advisory_lock_shared(1180844409, hashtext(current_setting('search_path')))"
	exclusivePresence presence = "SELECT pg_try_advisory_lock(1180844409, hashtext(current_setting('search_path')))"
)

// present takes the lock, again with each new connection if it is shared.
func (c *postgresConn) present(p presence) error {
	free := false
	if _, err := (conn{driver: c}).prep(string(p)).one(func(r row) { free = r.int(0) != 0 }); err != nil {
		return err
	}
	if free {
		c.shared = p == sharedPresence
		return nil
	}
	if p == sharedPresence {
		return forebay.Errorf(forebay.CodeDatabaseUnusable, "this database is being copied right now, or copied to; wait until that is done")
	}
	return forebay.Errorf(forebay.CodeDatabaseUnusable, "%s", takenFromCopy)
}

// presenceWait is how long a copy waits for a process that was there to be gone, as its server sees it.
const presenceWait = 5 * time.Second

func openPostgresSide(ctx context.Context, address string, target bool) (*side, error) {
	c, err := reachPostgres(ctx, address)
	if err != nil {
		return nil, err
	}
	s := &side{conn: conn{driver: c}, engine: c, release: func() {
		if c.pg != nil && !c.pg.IsClosed() {
			_ = c.simple("SELECT pg_advisory_unlock_all()") // at once: the server may take a while to see that we have gone
		}
		c.Close()
	}}
	err = c.refusePooled(ctx)
	if err == nil {
		err = c.presentAlone(ctx)
	}
	if err == nil && target {
		err = c.prepareDatabase(ctx, false)
	}
	if err != nil {
		s.release()
		return nil, unusableOnServer(err)
	}
	return s, nil
}

func (c *postgresConn) presentAlone(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); ; {
		err := c.present(exclusivePresence)
		var refused *forebay.Error
		if err == nil || !errors.As(err, &refused) || time.Since(start) > presenceWait {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *postgresConn) refuseUnfinishedCopy() error { return refuseUnfinished(c) }

func (c *postgresConn) hasTable(name string) (bool, error) {
	return conn{driver: c}.prep("SELECT 1 FROM pg_class WHERE oid = to_regclass(?)").text(name).one(func(row) {})
}

func (c *postgresConn) nextSeq() (next int64, err error) {
	_, err = conn{driver: c}.prep("SELECT max(n) FROM (" + sqlNextSeq + ` UNION ALL
SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END FROM seqs) x(n)`).one(func(r row) { next = r.int(0) })
	return next, err
}

func (c *postgresConn) continueFrom(nextSeq int64, tables []copyTable) error {
	if _, err := (conn{driver: c}).prep("SELECT setval('seqs', ?, false)").int(nextSeq).one(func(row) {}); err != nil {
		return err
	}
	for _, t := range tables {
		if !t.numbered() {
			continue
		}
		key := t.names(t.key)
		sql := fmt.Sprintf("SELECT setval(pg_get_serial_sequence('%[1]s', '%[2]s'), (SELECT coalesce(max(%[2]s), 0) + 1 FROM %[1]s), false)", t.name, key)
		set := false
		if _, err := (conn{driver: c}).prep(sql).one(func(r row) { set = !r.isNull(0) }); err != nil {
			return err
		}
		if !set {
			return fmt.Errorf("%s of %s has no sequence", key, t.name)
		}
	}
	return nil
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
