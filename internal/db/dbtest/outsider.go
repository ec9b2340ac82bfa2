package dbtest

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/jackc/pgx/v5/pgconn"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Outside is a database to which somebody else can write besides the stores.
type Outside[S any] struct {
	Name string
	// Open opens stores that are closed when the test ends.
	Open func() S
	// Tamper runs SQL as somebody who can write to the database could.
	Tamper func(sql string) error
	// Dialect translates the SQL of tests.
	Dialect *strings.Replacer
}

// FromOutside runs a test on a new SQLite file and on a new PostgreSQL database.
func (f Fixture[S]) FromOutside(t *testing.T, test func(*testing.T, Outside[S])) {
	opened := func(t *testing.T, opts db.Options) func() S {
		return func() S {
			s := f.Serve(t, opts)
			t.Cleanup(func() { f.DB(s).Close() })
			return s
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "forebay.db")
		test(t, Outside[S]{"sqlite", opened(t, db.Options{Path: path}), func(sql string) error {
			c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
			if err != nil {
				return err
			}
			return errors.Join(sqlitex.ExecuteScript(c, sql, nil), c.Close())
		}, strings.NewReplacer("ZEROS", "zeroblob(32)", "SHORT", "x'00'",
			"TRIGGERS OFF", "DROP TRIGGER audit_append; DROP TRIGGER audit_update; DROP TRIGGER audit_delete")})
	})
	t.Run("postgresql", func(t *testing.T) {
		address := Postgres(t)
		test(t, Outside[S]{"postgresql", opened(t, db.Options{URL: address}), func(sql string) error {
			c, err := pgconn.Connect(context.Background(), address)
			if err != nil {
				return err
			}
			_, err = c.Exec(context.Background(), "CREATE SCHEMA IF NOT EXISTS forebay; SET search_path = forebay; "+sql).ReadAll()
			return errors.Join(err, c.Close(context.Background()))
		}, strings.NewReplacer("ZEROS", "decode(repeat('00', 32), 'hex')", "SHORT", "decode('00', 'hex')",
			"TRIGGERS OFF", "DROP TRIGGER audit_append ON audit; DROP TRIGGER audit_refuse ON audit")})
	})
}
