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

// Dial connects. A pooler that refuses settings is asked for a connection without any. It may
// also drop them, so they are set again.
func Dial(ctx context.Context, target *Target) (*pgconn.PgConn, error) {
	config, err := target.current(ctx)
	if err != nil {
		return nil, err
	}
	pg, err := pgconn.ConnectConfig(ctx, config)
	const protocolViolation = "08P01"
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == protocolViolation && strings.Contains(refused.Message, "startup parameter") {
		config.RuntimeParams = map[string]string{"client_encoding": "UTF8"} // which every pooler knows
		pg, err = pgconn.ConnectConfig(ctx, config)
	}
	if err != nil {
		return nil, err
	}
	Within(pg, PostgresDial)
	if _, err := pg.Exec(ctx, applySettings(target.RuntimeParams)+sqlNewSettings).ReadAll(); err != nil {
		closing, cancel := context.WithCancel(context.Background())
		cancel()
		_ = pg.Close(closing)
		return nil, err
	}
	return pg, nil
}

// sqlNewSettings sets what not every version has. A cache of rows that are looked up once each is
// waste. Connections wait for work, and migrations and backups are long transactions. A start
// refuses synchronous_commit = off. A role may be given it later.
const sqlNewSettings = `SELECT set_config(name, value, false) FROM (VALUES
('enable_memoize', 'off'), ('idle_session_timeout', '0'), ('transaction_timeout', '0')) x(name, value)
WHERE current_setting(name, true) IS NOT NULL;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'`

// applySettings sets what the connection was asked to begin with.
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
	other, err := Connect(ctx, c.Target)
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
