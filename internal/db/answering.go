package db

import (
	"context"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// Each process that answers requests holds a shared advisory lock, of the schema and of what it
// answers, on the connection that it writes through. The lock ends with the connection, so
// those that hold it are those that live.
const (
	sqlAnswering = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1180844410 AND objsubid = 2
  AND objid = CAST(hashtext(current_setting('search_path') || ' ' || ?) AS oid)
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
)

// CountServers returns how many processes answer the same kind of requests on this database; at
// least 1, which is this one.
func (s *DB) CountServers(ctx context.Context) (n int64, err error) {
	if !s.Shared() || s.serverKind == "" {
		return 1, nil
	}
	err = s.Read(ctx, func(c driver.Conn) error {
		_, err := c.Prep(sqlAnswering).Text(s.serverKind).One(func(r driver.Row) { n = r.Int(0) })
		return err
	})
	return max(n, 1), err
}
