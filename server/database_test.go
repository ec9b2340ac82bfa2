//go:build unix

package server_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// ours makes a database of Forebay's and then runs the script on it.
func ours(t *testing.T, path, script string) {
	t.Helper()
	s, err := server.New(server.Options{Database: "sqlite:" + path})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	theirs(t, path, script)
}

// theirs runs a script on a database file, making it if need be.
func theirs(t *testing.T, path, script string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := sqlitex.ExecuteScript(conn, script, nil); err != nil {
		t.Fatal(err)
	}
}

func TestUnusableDatabases(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(path string)
		want    string
	}{
		"text":           {func(path string) { writeFile(t, path, bytes.Repeat([]byte("this is a letter\n"), 1000)) }, "not a database"},
		"zeros":          {func(path string) { writeFile(t, path, make([]byte, 64<<10)) }, "not a database"},
		"another's id":   {func(path string) { theirs(t, path, "PRAGMA application_id = 1234; CREATE TABLE t (x)") }, "another program"},
		"another's":      {func(path string) { theirs(t, path, "CREATE TABLE jobs (id)") }, "another program"},
		"newer":          {func(path string) { ours(t, path, "PRAGMA user_version = 999") }, "newer Forebay"},
		"damaged header": {func(path string) { ours(t, path, ""); overwrite(t, path, 20, 60) }, "damaged"},
		"damaged schema": {func(path string) { ours(t, path, ""); overwrite(t, path, 100, 8000) }, "damaged"},
		"a folder": {func(path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "cannot be opened"},
	} {
		path := servertest.DatabaseFile(t)
		c.prepare(path)
		before, _ := os.ReadFile(path) // a folder has no content
		s, err := server.New(server.Options{Database: "sqlite:" + path})
		if err == nil {
			t.Errorf("%s: was opened", name)
			s.Close()
			continue
		}
		checkRefusal(t, name, err, c.want, path)
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	missing := filepath.Join(t.TempDir(), "no", "such", "folder", "forebay.db")
	_, err := server.New(server.Options{Database: "sqlite:" + missing})
	checkRefusal(t, "missing folder", err, "folder", missing)
}

// overwrite puts bytes that make no sense into a file.
func overwrite(t *testing.T, path string, from, to int) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < to; i++ {
		content[i] = 0xA5
	}
	writeFile(t, path, content)
}

// checkRefusal checks that an error is about the database, in one line that says what is wrong and
// nothing of how it was found out.
func checkRefusal(t *testing.T, name string, err error, want, path string) {
	t.Helper()
	if forebay.CodeOf(err) != forebay.CodeDatabaseUnusable {
		t.Errorf("%s: %v has the code %s", name, err, forebay.CodeOf(err))
		return
	}
	checkMessage(t, name, err.Error(), want, path)
}

func checkMessage(t *testing.T, name, message, want, path string) {
	t.Helper()
	if !strings.Contains(message, want) {
		t.Errorf("%s: %q does not say %q", name, message, want)
	}
	for _, no := range []string{"\n", filepath.Dir(path), "PRAGMA", "SELECT", "sqlite:", "goroutine"} {
		if strings.Contains(message, no) {
			t.Errorf("%s: %q holds %q", name, message, no)
		}
	}
}

// What a process without rights gets. The tests may run as root, who has all of them.
func TestDatabaseWithoutRights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		folder, file os.FileMode
		want         string
	}{
		"read-only file":   {0o777, 0o444, "read-only"},
		"unreadable file":  {0o777, 0o000, "cannot be opened"},
		"read-only folder": {0o555, 0o666, "folder cannot be written to"},
	} {
		path := servertest.DatabaseFile(t)
		ours(t, path, "")
		folder := filepath.Dir(path)
		if err := os.Remove(path + ".lock"); err != nil {
			t.Fatal(err)
		}
		for of, mode := range map[string]os.FileMode{filepath.Dir(folder): 0o755, folder: c.folder, path: c.file} {
			if err := os.Chmod(of, mode); err != nil {
				t.Fatal(err)
			}
		}
		p := servertest.Launch(t, servertest.ProcessOptions{Database: path, Unprivileged: true})
		if code := p.Wait(); code != 1 {
			t.Errorf("%s: the server exited with %d", name, code)
		}
		checkMessage(t, name, strings.TrimSuffix(p.Stderr.String(), "\n"), c.want, path)
	}
}

// The check of a database tells its size, and of a file that cannot shrink while it is served what
// to do about that.
func TestCheckTellsTheSpaceOfAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forebay.db")
	if _, err := server.Migrate(t.Context(), "sqlite:"+path); err != nil {
		t.Fatal(err)
	}
	space := func() string {
		checks, _ := server.CheckDatabase(t.Context(), "sqlite:"+path)
		for _, check := range checks {
			if check.Name == "space" && check.OK {
				return check.Detail
			}
		}
		t.Fatalf("nothing is told of the space: %+v", checks)
		return ""
	}
	if told := space(); !strings.Contains(told, "MiB") || strings.Contains(told, "forebay compact") {
		t.Errorf("of a new file: %s", told)
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"PRAGMA auto_vacuum = NONE", "VACUUM"} {
		if err := sqlitex.ExecuteTransient(conn, sql, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if told := space(); !strings.Contains(told, "forebay compact once") {
		t.Errorf("of an older file: %s", told)
	}
	if _, err := server.Compact(t.Context(), "sqlite:"+path); err != nil {
		t.Fatal(err)
	}
	if told := space(); strings.Contains(told, "forebay compact") {
		t.Errorf("once it was compacted: %s", told)
	}
}
