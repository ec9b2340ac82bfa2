//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// childVariable makes this test binary a user of PostgreSQL that can be killed.
const childVariable = "FOREBAY_PGTEST_CHILD"

func TestMain(m *testing.M) {
	if role, ok := os.LookupEnv(childVariable); ok {
		linger = 100 * time.Millisecond
		fmt.Println(child(role))
		io.Copy(io.Discard, os.Stdin) // until it is killed
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child starts or joins a server and returns its address, or an error.
func child(role string) string {
	if role == "shared" {
		address, err := shared(context.Background())
		if err != nil {
			return err.Error()
		}
		return address
	}
	c, err := Open(context.Background(), Options{})
	if err != nil {
		return err.Error()
	}
	return c.URL()
}

// launch starts a child whose servers are below the folder, and returns its output.
func launch(t *testing.T, role, folder string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+role, "TMPDIR="+folder)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	var said string
	if _, err := fmt.Fscanln(stdout, &said); err != nil || !strings.HasPrefix(said, "postgres://") {
		t.Fatalf("the child says %q: %v", said, err)
	}
	return cmd, said
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // it may be gone
	_ = cmd.Wait()
}

// openFolders returns a folder that every account can enter.
func openFolders(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// awaitGone waits until the folder holds no server's folder and the server does not answer.
func awaitGone(t *testing.T, folder, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := filepath.Glob(filepath.Join(folder, "*", folderPrefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%q is left", left)
		}
	}
	if err := ping(t.Context(), address); err == nil {
		t.Error("the server still answers")
	}
}

func TestServerOfKilledProcessEnds(t *testing.T) {
	t.Parallel()
	folder := openFolders(t)
	c, address := launch(t, "own", folder)
	if err := ping(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	kill(c)
	awaitGone(t, folder, address)
}

func TestSharedServer(t *testing.T) {
	t.Parallel()
	folder := openFolders(t)
	first, address := launch(t, "shared", folder)
	second, same := launch(t, "shared", folder)
	if address != same {
		t.Errorf("two users have the servers %s and %s", address, same)
	}
	kill(first)
	third, same := launch(t, "shared", folder)
	kill(second)
	if err := ping(t.Context(), address); err != nil || address != same {
		t.Errorf("a third user has %s, which says %v; the first had %s", same, err, address)
	}
	kill(third)
	awaitGone(t, folder, address)
	last, other := launch(t, "shared", folder)
	if err := ping(t.Context(), other); err != nil {
		t.Errorf("after the last user had left, a new one got %s: %s", other, err)
	}
	kill(last)
	awaitGone(t, folder, other) // before the test's folder is removed
}

// A machine that lost its power leaves folders without processes.
func TestSweep(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f, err := makeFolder(root)
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.MkdirTemp(root, folderPrefix)
	if err != nil {
		t.Fatal(err)
	}
	// The id of an unrelated process.
	if err := os.Mkdir(filepath.Join(left, dataFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprintf("%d\n", os.Getpid())
	if err := os.WriteFile(filepath.Join(left, dataFolder, "postmaster.pid"), []byte(pid), 0o600); err != nil {
		t.Fatal(err)
	}
	sweep(root)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder that nobody uses: %v", err)
	}
	if _, err := os.Stat(f.path); err != nil {
		t.Errorf("the folder in use: %s", err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	var addresses [2]string
	t.Run("in use", func(t *testing.T) {
		for i := range addresses {
			addresses[i] = Database(t)
			conn := connect(t, addresses[i]) // stays open: the drop must not mind
			var tables int
			if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables); err != nil || tables != 0 {
				t.Errorf("a new database has %d tables: %v", tables, err)
			}
			exec1(t, conn, "CREATE TABLE x (n bigint)")
		}
		for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
			var value string
			if err := connect(t, addresses[0]).QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil || value != "on" {
				t.Errorf("%s is %q: %v", name, value, err)
			}
		}
	})
	for _, address := range addresses {
		if err := ping(t.Context(), address); err == nil || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("after its test the database says %v", err)
		}
	}
}

func TestAbandonedDatabases(t *testing.T) {
	t.Parallel()
	c := New(t, nil)
	yesterday := time.Now().Add(-abandoned - time.Minute).Unix()
	old, others := fmt.Sprintf("%s%d_abc", databasePrefix, yesterday), "forebay"
	conn := connect(t, c.URL())
	exec1(t, conn, "CREATE DATABASE "+old)
	exec1(t, conn, "CREATE DATABASE "+others)
	young := c.Database(t)
	sweepDatabases(t.Context(), c.URL())
	for name, want := range map[string]bool{old: false, others: true} {
		u, err := url.Parse(c.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + name
		if err := ping(t.Context(), u.String()); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ping(t.Context(), young); err != nil {
		t.Error(err)
	}
}

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func exec1(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %s", statement, err)
	}
}
