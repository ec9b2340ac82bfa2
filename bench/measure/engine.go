package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forebayhq/forebay/internal/pgtest"
)

// Engine is what servers keep their jobs in.
type Engine interface {
	// Place makes room for one server.
	Place(ctx context.Context) (Place, error)
	// CPU is the processor time that the engine has used outside this process.
	CPU() time.Duration
	// Prepare writes down what is in memory, so that what was done before is not paid for now.
	Prepare(ctx context.Context) error
}

// Place is an empty database of its own, and a folder.
type Place struct {
	Database string // as in server.Options
	Dir      string
	Release  func() error
}

// sqliteEngine keeps each server's jobs in a file below the folder.
type sqliteEngine struct{ dir string }

// SQLite returns the engine that needs no server.
func (b *Bench) SQLite() Engine { return sqliteEngine{b.Dir} }

// Place makes a folder.
func (e sqliteEngine) Place(context.Context) (Place, error) {
	dir, err := os.MkdirTemp(e.dir, "forebay-")
	if err != nil {
		return Place{}, err
	}
	return Place{"sqlite:" + filepath.Join(dir, "forebay.db"), dir, func() error { return os.RemoveAll(dir) }}, nil
}

// CPU is nothing: SQLite runs in the process that uses it.
func (sqliteEngine) CPU() time.Duration { return 0 }

// Prepare does nothing, for each commit is on disk.
func (sqliteEngine) Prepare(context.Context) error { return nil }

// PostgresEngine keeps them in databases of one PostgreSQL server that this program starts. All
// contenders share the server and its settings.
type PostgresEngine struct {
	cluster *pgtest.Cluster
	dir     string
}

// postgresSettings are those of the measurements, on top of PostgreSQL's defaults.
var postgresSettings = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
	"shared_buffers": "256MB", "max_wal_size": "2GB", "max_connections": "400",
}

// Postgres returns the server, starting it the first time.
func (b *Bench) Postgres(ctx context.Context) (*PostgresEngine, error) {
	if b.pg != nil {
		return b.pg, nil
	}
	// PostgreSQL does not run as root; the account it then runs as has to get to its folder.
	if err := os.Chmod(b.Dir, 0o711); err != nil {
		return nil, err
	}
	cluster, err := pgtest.Open(ctx, pgtest.Options{Dir: b.Dir, Settings: postgresSettings})
	if err != nil {
		return nil, fmt.Errorf("%w (-results chooses the folder)", err)
	}
	b.pg = &PostgresEngine{cluster, b.Dir}
	return b.pg, b.pg.checkDurable(ctx)
}

// Close stops the server, if it was needed.
func (b *Bench) Close() error {
	if b.pg == nil {
		return nil
	}
	return b.pg.Close()
}

// PostgresWithVectors starts another server, which has pgvector. Who asks for it closes it.
func (b *Bench) PostgresWithVectors(ctx context.Context) (*PostgresEngine, error) {
	cluster, err := pgtest.OpenVectors(ctx, pgtest.Options{Dir: b.Dir, Settings: postgresSettings})
	if err != nil {
		return nil, err
	}
	return &PostgresEngine{cluster, b.Dir}, nil
}

// Close stops the server.
func (e *PostgresEngine) Close() error { return e.cluster.Close() }

// checkDurable makes sure that the settings took effect.
func (e *PostgresEngine) checkDurable(ctx context.Context) error {
	return e.Query(ctx, func(conn *pgx.Conn) error {
		for name, want := range postgresSettings {
			var value string
			if err := conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
				return err
			}
			if value != want {
				return fmt.Errorf("PostgreSQL has %s=%s, not %s", name, value, want)
			}
		}
		return nil
	})
}

// Query lends a connection to the server's own database.
func (e *PostgresEngine) Query(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, e.cluster.URL())
	if err != nil {
		return err
	}
	return errors.Join(f(conn), conn.Close(ctx))
}

// Place makes a database, once what was done before is written down.
func (e *PostgresEngine) Place(ctx context.Context) (Place, error) {
	address, drop, err := pgtest.CreateDatabase(ctx, e.cluster.URL())
	if err != nil {
		return Place{}, err
	}
	dir, err := os.MkdirTemp(e.dir, "blobs-")
	release := func() error { return errors.Join(drop(context.Background()), os.RemoveAll(dir)) }
	if err != nil {
		return Place{}, errors.Join(err, release())
	}
	return Place{address, dir, release}, e.Prepare(ctx)
}

// Prepare makes a checkpoint.
func (e *PostgresEngine) Prepare(ctx context.Context) error {
	return e.Query(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CHECKPOINT")
		return err
	})
}

// Settle does at once what autovacuum would do later, in the middle of a measurement.
func (e *PostgresEngine) Settle(ctx context.Context, database string) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "VACUUM ANALYZE")
	return errors.Join(err, conn.Close(ctx))
}

// CPU sums the server's processes, those that have ended included.
func (e *PostgresEngine) CPU() time.Duration {
	main := strconv.Itoa(e.cluster.PID())
	var sum time.Duration
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, stat := range stats {
		pid := filepath.Base(filepath.Dir(stat))
		// The fields after the program's name, which may hold anything: state, parent, …
		_, rest, _ := strings.Cut(FirstLine(stat), ") ")
		f := strings.Fields(rest)
		if len(f) < 15 || pid != main && f[1] != main {
			continue
		}
		if ran := strings.Fields(FirstLine(filepath.Join("/proc", pid, "schedstat"))); len(ran) == 3 {
			sum += time.Duration(number(ran[0]))
		}
		if pid == main {
			const tick = 10 * time.Millisecond                       // USER_HZ is 100 on every Linux
			sum += time.Duration(number(f[13])+number(f[14])) * tick // cutime, cstime
		}
	}
	return sum
}

// Engines are both engines, by name.
func Engines(ctx context.Context, b *Bench) (map[string]Engine, error) {
	pg, err := b.Postgres(ctx)
	return map[string]Engine{"SQLite": b.SQLite(), "PostgreSQL": pg}, err
}

// EngineNames are the names of Engines, in the order of the report.
var EngineNames = []string{"SQLite", "PostgreSQL"}
