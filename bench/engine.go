package main

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

// engine is what servers keep their jobs in.
type engine interface {
	// place makes room for one server.
	place(ctx context.Context) (place, error)
	// cpu is the processor time that the engine has used outside this process.
	cpu() time.Duration
	// prepare writes down what is in memory, so that what was done before is not paid for now.
	prepare(ctx context.Context) error
}

// place is an empty database of its own, and a folder.
type place struct {
	database string // as in server.Options
	dir      string
	release  func() error
}

// sqliteEngine keeps each server's jobs in a file below the folder.
type sqliteEngine struct{ dir string }

func (b *bench) sqlite() engine { return sqliteEngine{b.dir} }

func (e sqliteEngine) place(context.Context) (place, error) {
	dir, err := os.MkdirTemp(e.dir, "forebay-")
	if err != nil {
		return place{}, err
	}
	return place{"sqlite:" + filepath.Join(dir, "forebay.db"), dir, func() error { return os.RemoveAll(dir) }}, nil
}

func (sqliteEngine) cpu() time.Duration            { return 0 }
func (sqliteEngine) prepare(context.Context) error { return nil }

// postgresEngine keeps them in databases of one PostgreSQL server that this program starts. All
// contenders share the server and its settings.
type postgresEngine struct {
	cluster *pgtest.Cluster
	dir     string
}

// postgresSettings are those of the measurements, on top of PostgreSQL's defaults.
var postgresSettings = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
	"shared_buffers": "256MB", "max_wal_size": "2GB", "max_connections": "400",
}

// postgres returns the server, starting it the first time.
func (b *bench) postgres(ctx context.Context) (*postgresEngine, error) {
	if b.pg != nil {
		return b.pg, nil
	}
	// PostgreSQL does not run as root; the account it then runs as has to get to its folder.
	if err := os.Chmod(b.dir, 0o711); err != nil {
		return nil, err
	}
	cluster, err := pgtest.Open(ctx, pgtest.Options{Dir: b.dir, Settings: postgresSettings})
	if err != nil {
		return nil, fmt.Errorf("%w (-results chooses the folder)", err)
	}
	b.pg = &postgresEngine{cluster, b.dir}
	return b.pg, b.pg.checkDurable(ctx)
}

// close stops the server, if it was needed.
func (b *bench) close() error {
	if b.pg == nil {
		return nil
	}
	return b.pg.cluster.Close()
}

// checkDurable makes sure that the settings took effect.
func (e *postgresEngine) checkDurable(ctx context.Context) error {
	return e.query(ctx, func(conn *pgx.Conn) error {
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

// query lends a connection to the server's own database.
func (e *postgresEngine) query(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, e.cluster.URL())
	if err != nil {
		return err
	}
	return errors.Join(f(conn), conn.Close(ctx))
}

func (e *postgresEngine) place(ctx context.Context) (place, error) {
	address, drop, err := pgtest.CreateDatabase(ctx, e.cluster.URL())
	if err != nil {
		return place{}, err
	}
	dir, err := os.MkdirTemp(e.dir, "blobs-")
	release := func() error { return errors.Join(drop(context.Background()), os.RemoveAll(dir)) }
	if err != nil {
		return place{}, errors.Join(err, release())
	}
	return place{address, dir, release}, e.prepare(ctx)
}

func (e *postgresEngine) prepare(ctx context.Context) error {
	return e.query(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CHECKPOINT")
		return err
	})
}

// settle does at once what autovacuum would do later, in the middle of a measurement.
func (e *postgresEngine) settle(ctx context.Context, database string) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "VACUUM ANALYZE")
	return errors.Join(err, conn.Close(ctx))
}

// cpu sums the server's processes, those that have ended included.
func (e *postgresEngine) cpu() time.Duration {
	main := strconv.Itoa(e.cluster.PID())
	var sum time.Duration
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, stat := range stats {
		pid := filepath.Base(filepath.Dir(stat))
		// The fields after the program's name, which may hold anything: state, parent, …
		_, rest, _ := strings.Cut(firstLine(stat), ") ")
		f := strings.Fields(rest)
		if len(f) < 15 || pid != main && f[1] != main {
			continue
		}
		if ran := strings.Fields(firstLine(filepath.Join("/proc", pid, "schedstat"))); len(ran) == 3 {
			sum += time.Duration(number(ran[0]))
		}
		if pid == main {
			const tick = 10 * time.Millisecond                       // USER_HZ is 100 on every Linux
			sum += time.Duration(number(f[13])+number(f[14])) * tick // cutime, cstime
		}
	}
	return sum
}
