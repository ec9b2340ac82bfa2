package dbtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres returns the URL of a new PostgreSQL database that has the latest schema and no rows. It
// is dropped when the test ends. A test of how the schema is made uses [pgtest.Database].
func Postgres(t testing.TB) string {
	t.Helper()
	return latest().Copy(t)
}

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
