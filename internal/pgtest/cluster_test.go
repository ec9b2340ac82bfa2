//go:build unix

package pgtest

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := New(t, map[string]string{"work_mem": "1234kB"})
	passwordIsAsked(t, c)
	address := c.Database(t)
	conn := connect(t, address)
	exec1(t, conn, "CREATE TABLE kept (n bigint)")
	for i, mode := range []Mode{Fast, Immediate, Crash} {
		exec1(t, connect(t, address), "INSERT INTO kept VALUES (1)")
		if err := c.Stop(mode); err != nil {
			t.Fatal(err)
		}
		if err := ping(t.Context(), address); err == nil || c.Running() {
			t.Errorf("a stopped server answers (it runs: %t)", c.Running())
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := connect(t, address).QueryRow(t.Context(), "SELECT count(*) FROM kept").Scan(&n); err != nil || n != i+1 {
			t.Errorf("after %d stops there are %d rows: %v", i+1, n, err)
		}
	}
	c.Database(t) // the connection that made the first one was lost
	c.Set("fsync", "off")
	if err := c.Restart(t.Context(), Fast); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"work_mem": "1234kB", "fsync": "off"} {
		var value string
		if err := connect(t, address).QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil || value != want {
			t.Errorf("%s is %q: %v", name, value, err)
		}
	}
}

// passwordIsAsked fails unless the server asks for its password, and keeps what only checks it.
func passwordIsAsked(t *testing.T, c *Cluster) {
	t.Helper()
	var kept string
	err := connect(t, c.URL()).QueryRow(t.Context(), "SELECT rolpassword FROM pg_authid WHERE rolname = current_user").Scan(&kept)
	if err != nil || !strings.HasPrefix(kept, "SCRAM-SHA-256$1:") {
		t.Errorf("the server keeps %q: %v", kept, err)
	}
	u, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(superuser, "another")
	var refused *pgconn.PgError
	if err := ping(t.Context(), u.String()); !errors.As(err, &refused) || refused.Code != "28P01" {
		t.Errorf("with another password: %v", err)
	}
}

func TestClusterThatCannotStart(t *testing.T) {
	t.Parallel()
	if _, err := Open(t.Context(), Options{Dir: openFolders(t), Settings: map[string]string{"shared_buffers": "lots"}}); err == nil {
		t.Error("a server with a senseless setting was started")
	} else {
		t.Log(err)
	}
}

func TestTerminate(t *testing.T) {
	t.Parallel()
	address, other := Database(t), Database(t)
	first, second, third := connect(t, address), connect(t, address), connect(t, other)
	if n, err := Terminate(t.Context(), address); err != nil || n != 2 {
		t.Errorf("%d connections were ended: %v", n, err)
	}
	if err := first.Ping(t.Context()); err == nil {
		t.Error("the first connection still works")
	}
	if err := second.Ping(t.Context()); err == nil {
		t.Error("the second connection still works")
	}
	if err := third.Ping(t.Context()); err != nil {
		t.Errorf("another database's connection: %s", err)
	}
}
