//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/toolchain"
)

// Bouncer starts a PgBouncer in front of the server of that URL for one test, and returns the
// same database's URL through it. mode is its pool_mode: session, transaction or statement.
// ignored is its ignore_startup_parameters.
func Bouncer(t testing.TB, database, mode, ignored string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal("the server's URL cannot be read")
	}
	program, err := bouncerProgram(t.Context())
	if err != nil {
		t.Fatalf("this test needs PgBouncer (Debian: apt-get install pgbouncer): %s", err)
	}
	who, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "forebay-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	users, settings := filepath.Join(dir, "users"), filepath.Join(dir, "pgbouncer.ini")
	for name, content := range map[string]string{
		users: fmt.Sprintf("%q %q\n", u.User.Username(), password),
		settings: fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = %s
default_pool_size = 30
ignore_startup_parameters = %s
`, u.Hostname(), u.Port(), port, users, mode, ignored),
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := who.give(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := who.give(dir); err != nil {
		t.Fatal(err)
	}
	bouncer := who.command(dir, program, settings)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	said := func() []byte {
		content, _ := os.ReadFile(log.Name()) // nothing, after an error
		return lastBytes(content)
	}
	bouncer.Stdout, bouncer.Stderr = log, log
	if err := bouncer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bouncer.Process.Signal(syscall.SIGQUIT) // at once; it may be gone already
		_ = bouncer.Wait()
		log.Close()
		if t.Failed() {
			t.Logf("PgBouncer said:\n%s", said())
		}
	})
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	address := u.String()
	for start := time.Now(); ; <-time.After(10 * time.Millisecond) {
		err := ping(t.Context(), address)
		if err == nil {
			return address
		}
		if time.Since(start) > startTimeout {
			t.Fatalf("PgBouncer does not answer: %s: %s", err, said())
		}
	}
}

func bouncerProgram(ctx context.Context) (string, error) {
	find := func() (string, error) {
		if program, err := exec.LookPath("pgbouncer"); err == nil {
			return program, nil
		}
		return exec.LookPath("/usr/sbin/pgbouncer")
	}
	if program, err := find(); err == nil {
		return program, nil
	}
	if err := toolchain.Install(ctx, toolchain.Packages{"apt-get": {"pgbouncer"}, "apk": {"pgbouncer"}, "dnf": {"pgbouncer"}}); err != nil {
		return "", err
	}
	return find()
}
