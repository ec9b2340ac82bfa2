package dbtest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/db/sqlite"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres returns the URL of a new PostgreSQL database that has the latest schema and no rows. It
// is dropped when the test ends. A test of how the schema is made uses [pgtest.Database].
func Postgres(t testing.TB) string {
	t.Helper()
	return latest().Copy(t)
}

// SQLite returns the path of a new SQLite database that has the latest schema and no rows. It is a
// copy: to make the tables takes longer. A test of how the schema is made names a path of its own.
func SQLite(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forebay.db")
	if err := newFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// newFile makes such a database at a path.
func newFile(path string) error {
	content, err := latestFile()
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// latestFile is an SQLite database of the latest schema.
var latestFile = sync.OnceValues(func() (content []byte, err error) {
	dir, err := os.MkdirTemp("", "forebay-template-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "forebay.db")
	c, err := sqlite.OpenWriter(path, false)
	if err != nil {
		return nil, err
	}
	if err := c.Close(); err != nil { // which leaves nothing in the WAL
		return nil, err
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("a closed database has a WAL beside it, or cannot be looked at: %w", cmp.Or(err, errors.New("the file is there")))
	}
	return os.ReadFile(path)
})

// latest is a database of the latest schema.
var latest = sync.OnceValue(func() pgtest.Template {
	return pgtest.Template{Name: "latest_" + fingerprint(), Fill: migrate}
})

// clockSchema is the name of the schema that [ClockSchema] uses.
const clockSchema = "clocked"

// clocked is a database of the latest schema whose clock is a row.
var clocked = sync.OnceValue(func() pgtest.Template {
	return pgtest.Template{Name: "clocked_" + fingerprint(), Fill: func(ctx context.Context, address string) error {
		pg, err := pgconn.Connect(ctx, address)
		if err != nil {
			return err
		}
		_, err = pg.Exec(ctx, fmt.Sprintf(`CREATE SCHEMA %[1]s; CREATE TABLE %[1]s.clock (at bigint); INSERT INTO %[1]s.clock VALUES (0);
			CREATE FUNCTION %[1]s.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT to_timestamp(at / 1000.0) FROM %[1]s.clock'`, clockSchema)).ReadAll()
		if err = errors.Join(err, pg.Close(ctx)); err != nil {
			return err
		}
		if address, err = inClockSchema(address); err != nil {
			return err
		}
		return migrate(ctx, address)
	}}
})

// inClockSchema is the address of a database for those that use the tables of its [clockSchema].
func inClockSchema(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	query := u.Query()
	query.Set("search_path", clockSchema+",pg_catalog")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// migrate gives an empty database the latest schema.
func migrate(ctx context.Context, address string) error {
	c, err := postgres.ConnectURL(ctx, address)
	if err != nil {
		return err
	}
	return errors.Join(c.PrepareDatabase(ctx, false), c.Close())
}

// fingerprint tells schemas apart by their text.
func fingerprint() string {
	text := sha256.New()
	err := schema.MigrateFrom(0, func(script string) error {
		_, err := text.Write([]byte(schema.ForPostgres(script)))
		return err
	})
	if err != nil {
		panic(err) // the scripts are part of the program
	}
	return fmt.Sprintf("%x", text.Sum(nil)[:8])
}
