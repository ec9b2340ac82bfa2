package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forebayhq/forebay"
)

// Between a process and its server may stand a connection pooler, such as PgBouncer. It may
// drop the settings that a connection begins with, or refuse a connection that has some. It may
// also give each transaction another server connection. Then advisory locks, prepared
// statements, LISTEN and settings belong to whoever comes next.

const (
	sqlBackend = "SELECT pg_backend_pid()"
	pooled     = "a connection pooler gives each transaction another connection, which loses locks and settings; connect to the server itself, or have it pool sessions"
)

// errPooled marks a transaction that began at another of the server's processes than the
// connection.
var errPooled = errors.New("the connection has changed its server process")

// Dial connects. A pooler that refuses settings is asked for a connection without any: they are
// set afterwards.
func Dial(ctx context.Context, config *pgconn.Config) (*pgconn.PgConn, error) {
	pg, err := pgconn.ConnectConfig(ctx, config)
	const protocolViolation = "08P01"
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != protocolViolation || !strings.Contains(refused.Message, "startup parameter") {
		return pg, err
	}
	bare := config.Copy()
	bare.RuntimeParams = map[string]string{"client_encoding": "UTF8"} // which every pooler knows
	return pgconn.ConnectConfig(ctx, bare)
}

// applySettings sets what the connection was asked to begin with, for a pooler may have dropped
// it.
func applySettings(wanted map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if _, ours := postgresSettings[name]; ours || name == "search_path" {
			fmt.Fprintf(&b, "SELECT set_config(%s, %s, false);", quoteLiteral(name), quoteLiteral(wanted[name]))
		}
	}
	return b.String()
}

// quoteLiteral writes a text as a literal that means the same whatever
// standard_conforming_strings says.
func quoteLiteral(text string) string {
	return " E'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

// RefusePooled refuses a pooler that gives transactions connections as they come. Such a pooler
// gives another connection of ours the server process of this one. Or it gives this one a new
// process once its own is taken.
func (c *Conn) RefusePooled(ctx context.Context) error {
	if c.backend == int64(c.Pg.PID()) {
		return nil // the server told us its process itself: nothing stands between
	}
	other, err := Connect(ctx, c.Config)
	if err != nil {
		return unreachable(err)
	}
	defer other.Close()
	pooledError := forebay.Errorf(forebay.CodeDatabaseUnusable, "%s", pooled)
	if err := other.ExecSimple("BEGIN"); err != nil {
		return pooledError.Caused(err) // not even for one transaction
	}
	taken, err := other.millis(sqlBackend)
	if err != nil {
		return err
	}
	now, err := c.millis(sqlBackend)
	if err != nil {
		return err
	}
	if taken == c.backend || now != c.backend || other.backend == c.backend {
		return pooledError
	}
	return nil
}
