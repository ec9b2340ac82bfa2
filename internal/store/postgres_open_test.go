//go:build unix

package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/forebayhq/forebay/internal/pgtest"
)

// Many processes may find an empty database at once; one makes the tables.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	for range 3 {
		u, err := url.Parse(pgtest.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		query := u.Query()
		query.Set("search_path", "public") // a schema that exists already
		u.RawQuery = query.Encode()
		var group errgroup.Group
		for range 8 {
			group.Go(func() error {
				s, err := Open(context.Background(), Options{URL: u.String(), Serve: true})
				if err != nil {
					return err
				}
				return s.DB.Close()
			})
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// A commit whose answer is lost may have been done: nobody may take its results for a refusal.
func TestLostCommitHasNoResults(t *testing.T) {
	t.Parallel()
	r := &request[[]Submitted]{done: make(chan struct{}), run: func(*tx) ([]Submitted, error) { return make([]Submitted, 1), nil }}
	if err := r.apply(nil); err != nil {
		t.Fatal(err)
	}
	r.finish(errDisconnected)
	if <-r.done; r.result != nil || !errors.Is(r.err, errDisconnected) {
		t.Errorf("results %v with the error %v", r.result, r.err)
	}
}

// A migration may take longer than any transaction, and is given up only when its caller does.
func TestSlowMigration(t *testing.T) {
	t.Parallel()
	const usual = 2 * time.Second
	slow := func(t *testing.T, takes string) *postgresConn {
		server := newClockServer(t)
		server.run(t, `CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(`+takes+`); END';
			CREATE EVENT TRIGGER slow ON ddl_command_start WHEN TAG IN ('CREATE SEQUENCE') EXECUTE FUNCTION slow()`)
		c, err := reachPostgres(t.Context(), server.url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.allowed = usual
		if err := c.simple(fmt.Sprintf("SET statement_timeout = %d", usual.Milliseconds())); err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("is waited for", func(t *testing.T) {
		t.Parallel()
		c := slow(t, "2.5")
		if err := c.prepareDatabase(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if version, err := c.version(); err != nil || version != schemaVersion() {
			t.Errorf("the schema is %d: %v", version, err)
		}
		var stopped *pgconn.PgError
		if err := c.simple("SELECT pg_sleep(60)"); !errors.As(err, &stopped) && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("what comes after it may take as long: %v", err)
		}
	})
	t.Run("is given up", func(t *testing.T) {
		t.Parallel()
		c := slow(t, "10")
		ctx, cancel := context.WithTimeout(t.Context(), usual/4)
		defer cancel()
		if err := c.prepareDatabase(ctx, false); !errors.Is(err, errDisconnected) {
			t.Errorf("%v", err)
		}
	})
}
