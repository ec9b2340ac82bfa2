package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Variable names the environment variable with the URL of a server to use.
const Variable = "FOREBAY_TEST_POSTGRES"

// databasePrefix begins the name of every database of this package. The second of its creation
// follows.
const databasePrefix = "forebay_test_"

// abandoned is the age from which a database has no owner: its test binary was killed.
const abandoned = 24 * time.Hour

// Server returns the URL of the server for tests, and starts it if necessary. Its user may create
// databases.
func Server(t testing.TB) string {
	t.Helper()
	address := os.Getenv(Variable)
	if address != "" {
		swept.Do(func() { sweepDatabases(t.Context(), address) })
		return address
	}
	address, err := shared(t.Context())
	if err != nil {
		t.Fatalf("this test needs PostgreSQL: %s", err)
	}
	return address
}

var swept sync.Once

// sweepDatabases drops databases that killed test binaries left on a server that outlives them.
// One that it may not drop belongs to somebody else.
func sweepDatabases(ctx context.Context, server string) {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return // the test that needs the server will say so
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, "SELECT datname FROM pg_database WHERE starts_with(datname, $1)", databasePrefix)
	names, _ := pgx.CollectRows(rows, pgx.RowTo[string]) // none, after an error
	for _, name := range names {
		at, _, _ := strings.Cut(strings.TrimPrefix(name, databasePrefix), "_")
		made, err := strconv.ParseInt(at, 10, 64)
		if err == nil && time.Since(time.Unix(made, 0)) > abandoned {
			_ = dropDatabase(ctx, server, name)
		}
	}
}

// Database creates an empty database for one test and returns its URL. It is dropped when the
// test ends.
func Database(t testing.TB) string {
	t.Helper()
	return databaseOn(t, Server(t))
}

func databaseOn(t testing.TB, server string) string {
	t.Helper()
	return dropped(t, CreateDatabase, server)
}

// dropped creates a database on a server, and drops it when the test ends.
func dropped(t testing.TB, create func(ctx context.Context, server string) (string, func(context.Context) error, error), server string) string {
	t.Helper()
	address, drop, err := create(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return address
}

// CreateDatabase creates an empty database on a server and returns its URL. drop drops it and
// ends the connections that are still open.
func CreateDatabase(ctx context.Context, server string) (address string, drop func(context.Context) error, err error) {
	return createLike(ctx, server, "template0")
}

func dropDatabase(ctx context.Context, server, name string) error {
	if err := administer(ctx, server, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop a database: %w", err)
	}
	return nil
}

// administrators are idle connections by the address of their server. To connect takes the server
// a quarter of what it takes to make a database.
var administrators struct {
	mu   sync.Mutex
	idle map[string][]*pgx.Conn
}

// administer runs one statement on a connection that is kept for the next one.
func administer(ctx context.Context, server, statement string) error {
	conn, err := administrator(ctx, server)
	if err != nil {
		return err
	}
	if _, err = conn.Exec(ctx, statement); conn.IsClosed() {
		return err
	}
	administrators.mu.Lock()
	defer administrators.mu.Unlock()
	if administrators.idle == nil {
		administrators.idle = map[string][]*pgx.Conn{}
	}
	administrators.idle[server] = append(administrators.idle[server], conn)
	return err
}

// administrator returns a connection that answers. The server may have been restarted since it was
// kept.
func administrator(ctx context.Context, server string) (*pgx.Conn, error) {
	for {
		administrators.mu.Lock()
		var conn *pgx.Conn
		if idle := administrators.idle[server]; len(idle) > 0 {
			conn = idle[len(idle)-1]
			administrators.idle[server] = idle[:len(idle)-1]
		}
		administrators.mu.Unlock()
		if conn == nil {
			return pgx.Connect(ctx, server)
		}
		if conn.Ping(ctx) == nil {
			return conn, nil
		}
		_ = conn.Close(ctx) // it is broken
	}
}

// Terminate ends all connections to the database of that URL, as an administrator would. It
// returns how many there were, once they have ended.
func Terminate(ctx context.Context, database string) (n int, err error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	return terminate(ctx, conn, conn.Config().Database)
}

// terminate ends all other connections to a database. A server before PostgreSQL 14 cannot wait
// for their end itself.
func terminate(ctx context.Context, conn *pgx.Conn, database string) (n int, err error) {
	var ended []int32
	if err := conn.QueryRow(ctx, `SELECT coalesce(array_agg(pid) FILTER (WHERE pg_terminate_backend(pid)), '{}') FROM pg_stat_activity
		WHERE datname = $1 AND pid <> pg_backend_pid()`, database).Scan(&ended); err != nil {
		return 0, err
	}
	for there := true; there; {
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity, pg_sleep(0.01) WHERE pid = ANY ($1))", ended).Scan(&there); err != nil {
			return len(ended), err
		}
	}
	return len(ended), nil
}

// execute runs one statement on a connection of its own.
func execute(ctx context.Context, address, statement string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}
