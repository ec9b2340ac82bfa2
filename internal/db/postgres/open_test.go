//go:build unix

package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/jackc/pgx/v5/pgconn"
)

// A migration may take longer than any transaction, and is given up only when its caller does.
func TestSlowMigration(t *testing.T) {
	raced.Skip(t, raced.Waiting)
	t.Parallel()
	const usual = 2 * time.Second
	slow := func(t *testing.T, takes string) *Conn {
		address := pgtest.Database(t)
		admin, err := pgconn.Connect(t.Context(), address)
		mustDo(t, err)
		defer admin.Close(context.WithoutCancel(t.Context()))
		_, err = admin.Exec(t.Context(), `CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(`+takes+`); END';
			CREATE EVENT TRIGGER slow ON ddl_command_start WHEN TAG IN ('CREATE SEQUENCE') EXECUTE FUNCTION slow()`).ReadAll()
		mustDo(t, err)
		c, err := ConnectURL(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.allowed = usual
		if err := c.ExecSimple(fmt.Sprintf("SET statement_timeout = %d", usual.Milliseconds())); err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("is waited for", func(t *testing.T) {
		t.Parallel()
		c := slow(t, "2.5")
		if err := c.PrepareDatabase(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if version, err := c.version(); err != nil || version != schema.Latest() {
			t.Errorf("the schema is %d: %v", version, err)
		}
		var stopped *pgconn.PgError
		if err := c.ExecSimple("SELECT pg_sleep(60)"); !errors.As(err, &stopped) && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("what comes after it may take as long: %v", err)
		}
	})
	t.Run("is given up", func(t *testing.T) {
		t.Parallel()
		c := slow(t, "10")
		ctx, cancel := context.WithTimeout(t.Context(), usual/4)
		defer cancel()
		if err := c.PrepareDatabase(ctx, false); !errors.Is(err, driver.ErrDisconnected) {
			t.Errorf("%v", err)
		}
	})
}

// A server that takes no connection, or has no place for the tables, is told apart from one that
// cannot be reached.
func TestWhyADatabaseDoesNotOpen(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	for _, c := range []struct {
		change func(*url.URL, url.Values)
		want   string
	}{
		{func(u *url.URL, _ url.Values) { u.Host = "127.0.0.1:1" }, "nothing listens at that host and port"},
		{func(_ *url.URL, q url.Values) { q.Set("sslmode", "yes") }, "has a value that PostgreSQL does not know"},
		{func(_ *url.URL, q url.Values) { q.Set("sslmode", "verify-full"); q.Set("sslrootcert", "/nowhere.pem") }, "cannot be read: /nowhere.pem"},
		{func(_ *url.URL, q url.Values) { q.Set("entra_id", "yes") }, "entra_id must be true or false"},
		{func(u *url.URL, _ url.Values) { u.User = url.UserPassword("nobody", "wrong") }, "refuses this user"},
		{func(u *url.URL, _ url.Values) { u.User = url.User(u.User.Username()) }, "wants a password, and there is none"},
		{func(u *url.URL, _ url.Values) { u.Path = "/nowhere" }, "has no database of that name"},
		{func(_ *url.URL, q url.Values) { q.Set("sslmode", "require") }, "has no TLS"},
		{func(_ *url.URL, q url.Values) { q.Set("serach_path", "forebay") }, "does not know a parameter of the URL"},
		{func(_ *url.URL, q url.Values) { q.Set("search_path", `"unclosed`) }, "does not take the value of a parameter of the URL"},
		{func(_ *url.URL, q url.Values) { q.Set("default_transaction_read_only", "on") }, "takes no writes"},
		{func(_ *url.URL, q url.Values) { q.Set("search_path", "nowhere") }, "no schema of the URL's search_path"},
	} {
		u, err := url.Parse(address)
		mustDo(t, err)
		query := u.Query()
		c.change(u, query)
		u.RawQuery = query.Encode()
		conn, err := ConnectURL(t.Context(), u.String())
		if err == nil {
			err = UnusableOnServer(conn.PrepareDatabase(t.Context(), false))
			conn.Close()
		}
		if forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// A server without TLS, whose connections break, is not said to lack what its URL does not demand.
func TestBrokenConnectionToAServerWithoutTLS(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			first := make([]byte, 8)
			if _, err := io.ReadFull(c, first); err == nil && [4]byte(first[4:]) == [4]byte{4, 210, 22, 47} { // SSLRequest
				_, _ = c.Write([]byte{'N'})
			}
			_ = c.Close()
		}
	}()
	for mode, want := range map[string]bool{"": false, "?sslmode=prefer": false, "?sslmode=disable": false, "?sslmode=require": true} {
		_, err := ConnectURL(t.Context(), "postgres://forebay@"+l.Addr().String()+"/forebay"+mode)
		if err == nil || strings.Contains(err.Error(), "has no TLS") != want {
			t.Errorf("%q: %v", mode, err)
		}
	}
}

// A migration that loses its connection says so in words, and has changed nothing.
func TestMigrationThatIsCutOff(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	admin, err := pgconn.Connect(t.Context(), address)
	mustDo(t, err)
	defer admin.Close(context.WithoutCancel(t.Context()))
	_, err = admin.Exec(t.Context(), `CREATE FUNCTION cut() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); END';
		CREATE EVENT TRIGGER cut ON ddl_command_start WHEN TAG IN ('CREATE SEQUENCE') EXECUTE FUNCTION cut()`).ReadAll()
	mustDo(t, err)
	c, err := ConnectURL(t.Context(), address)
	mustDo(t, err)
	defer func() { c.Close() }()
	err = UnusableOnServer(c.PrepareDatabase(t.Context(), false))
	if forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), "starting or stopping") {
		t.Errorf("%v", err)
	}
	c, err = ConnectURL(t.Context(), address)
	mustDo(t, err)
	if version, err := c.version(); version != 0 || err != nil {
		t.Errorf("the schema is %d: %v", version, err)
	}
}

// A connection that turns out to lead to another process of the server writes nothing.
func TestServerProcessThatChanges(t *testing.T) {
	t.Parallel()
	c, err := ConnectURL(t.Context(), pgtest.Database(t))
	mustDo(t, err)
	defer c.Close()
	mustDo(t, c.PrepareDatabase(t.Context(), false))
	c.backend++
	if _, err := c.Begin(driver.BeginOptions{}); forebay.CodeOf(c.TranslateError(err)) != forebay.CodeUnavailable {
		t.Errorf("%v", err)
	}
	mustDo(t, c.Rollback())
}

// A database that takes no writes for a while is not one that cannot be reached, be it noticed by
// a write or by a new connection.
func TestDatabaseThatIsReadOnly(t *testing.T) {
	t.Parallel()
	c := openPostgresConn(t)
	mustDo(t, c.Present(SharedPresence))
	mustDo(t, c.ExecSimple("SET default_transaction_read_only = on"))
	refused := func(err error) {
		t.Helper()
		if err = c.TranslateError(err); forebay.CodeOf(err) != forebay.CodeUnavailable || !strings.Contains(err.Error(), "takes no writes right now") {
			t.Errorf("%v", err)
		}
	}
	refused(c.ExecSimple("CREATE TABLE a (b int)"))
	c.Target.RuntimeParams["default_transaction_read_only"] = "on"
	c.Close()
	_, err := c.Begin(driver.BeginOptions{})
	refused(err)
}

// A server whose client is gone without a word finds out, and ends the connection. Its own
// settings may have it look after hours.
func TestServerLooksForClientsThatAreGone(t *testing.T) {
	t.Parallel()
	c, err := ConnectURL(t.Context(), pgtest.Database(t))
	mustDo(t, err)
	defer c.Close()
	for _, name := range []string{"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count"} {
		n, err := c.millis("SELECT setting FROM pg_settings WHERE name = '" + name + "'")
		if mustDo(t, err); n < 1 || n > 15 {
			t.Errorf("%s is %d", name, n)
		}
	}
}
