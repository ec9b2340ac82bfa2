//go:build linux

package db

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/sqlite"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/gofrs/flock"
)

// secondServer names, in the environment of a child of this test, the database that it is to
// serve.
const secondServer = "FOREBAY_TEST_SECOND_SERVER"

// TestSecondServer is the second process of other tests.
func TestSecondServer(t *testing.T) {
	path := os.Getenv(secondServer)
	if path == "" {
		return
	}
	s, err := Open(t.Context(), Options{Path: path, Serve: true})
	if err == nil {
		s.Close()
	}
	if forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), "another Forebay server") {
		t.Errorf("a second server got %v", err)
	}
}

func refusedToOthers(t *testing.T, path string) {
	t.Helper()
	if _, err := Open(t.Context(), Options{Path: path, Serve: true}); forebay.CodeOf(err) != forebay.CodeDatabaseUnusable {
		t.Errorf("a second server in this process got %v", err)
	}
	second := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSecondServer$")
	second.Env = append(os.Environ(), secondServer+"="+path)
	if said, err := second.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

type warnings struct {
	mu   sync.Mutex
	said []string
}

func (w *warnings) add(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, message)
}

func (w *warnings) expect(t *testing.T, n int, words string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.said) != n || n > 0 && !strings.Contains(w.said[0], words) {
		t.Errorf("warnings: %q, want %d about %q", w.said, n, words)
	}
}

// Whoever removes the lock file as stale does not let a second server in, and the first goes on.
func TestLockFileRemovedUnderTheServer(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"removed":  func(t *testing.T, path string) { mustDo(t, os.Remove(path)) },
		"replaced": func(t *testing.T, path string) { mustDo(t, os.Remove(path)); mustDo(t, os.WriteFile(path, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			path, warned := filepath.Join(t.TempDir(), "forebay.db"), &warnings{}
			s := serve(t, Options{Path: path, Serve: true, Warn: warned.add})
			harm(t, path+sqlite.LockSuffix)
			refusedToOthers(t, path)
			storeOne(t, s)
			storeOne(t, s)
			warned.expect(t, 1, "made anew")
			refusedToOthers(t, path)
			if info, err := os.Stat(path + sqlite.LockSuffix); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the lock file: %v %v", info, err)
			}
		})
	}
}

// A server whose files are gone or others acknowledges nothing more and says why; what it had
// acknowledged is there when it starts again.
func TestFilesRemovedUnderTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		end  string
		harm func(t *testing.T, path string)
		kept bool
	}{
		"WAL removed":    {sqlite.WalSuffix, func(t *testing.T, path string) { mustDo(t, os.Remove(path)) }, true},
		"WAL replaced":   {sqlite.WalSuffix, func(t *testing.T, path string) { mustDo(t, os.Remove(path)); mustDo(t, os.WriteFile(path, nil, 0o600)) }, true},
		"database moved": {"", func(t *testing.T, path string) { mustDo(t, os.Rename(path, path+".old")) }, false},
		"database replaced": {"", func(t *testing.T, path string) {
			mustDo(t, os.Rename(path, path+".old"))
			mustDo(t, os.WriteFile(path, nil, 0o600))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			path, warned := filepath.Join(t.TempDir(), "forebay.db"), &warnings{}
			s := serve(t, Options{Path: path, Serve: true, Warn: warned.add})
			storeOne(t, s)
			c.harm(t, path+c.end)
			if wrong, _ := failing(t, s); wrong["files"] != forebay.CodeUnavailable {
				t.Errorf("what is known to fail is %v", wrong)
			}
			for range 3 {
				_, err := Transact(t.Context(), s.Writer, Op{Stage: StageSubmit}, insertNames("after", 1))
				if forebay.CodeOf(err) != forebay.CodeUnavailable || !strings.Contains(err.Error(), "restarted") {
					t.Errorf("a submit got %v", err)
				}
			}
			warned.expect(t, 1, "removed or replaced")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if !c.kept {
				return
			}
			again, err := Open(t.Context(), Options{Path: path, Serve: true})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if all := names(t, again); !slices.Equal(all, []string{"row-0"}) {
				t.Errorf("of what was acknowledged before there is %q", all)
			}
		})
	}
}

func modes(t *testing.T, path string) map[string]os.FileMode {
	t.Helper()
	found := map[string]os.FileMode{}
	for _, end := range []string{"", sqlite.WalSuffix, sqlite.ShmSuffix, sqlite.LockSuffix} {
		info, err := os.Stat(path + end)
		if end == sqlite.LockSuffix && os.IsNotExist(err) {
			continue // a command takes none
		}
		if err != nil {
			t.Error(err)
			continue
		}
		found[end] = info.Mode().Perm()
	}
	return found
}

// The files of a database are for their owner, new ones and those that an older version has made.
func TestFilesAreForTheirOwner(t *testing.T) {
	for name, opts := range map[string]Options{"server": {Serve: true}, "command": {}} {
		t.Run(name, func(t *testing.T) {
			opts.Path = filepath.Join(t.TempDir(), "forebay.db")
			for _, before := range []os.FileMode{0o600, 0o644} {
				if before != 0o600 {
					mustDo(t, os.Chmod(opts.Path, before))
					opts.Serve = true // who tightens
				}
				s := openUntilEnd(t, opts)
				storeOne(t, s)
				for end, mode := range modes(t, opts.Path) {
					if mode != 0o600 {
						t.Errorf("NAME%s has the mode %o; the database had %o", end, mode, before)
					}
				}
				mustDo(t, s.Close())
			}
		})
	}
}

// The target of a copy is no less private.
func TestCopyIsForItsOwner(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	dir := t.TempDir()
	from, to := Options{Path: filepath.Join(dir, "from.db")}, Options{Path: filepath.Join(dir, "to.db")}
	s := openUntilEnd(t, from)
	mustDo(t, s.Close())
	if _, err := Copy(t.Context(), from, to, func(CopyProgress) {}); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"", sqlite.LockSuffix} {
		if info, err := os.Stat(to.Path + end); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("NAME%s: %v %v", end, info, err)
		}
	}
}

// A server is known to use its database though somebody has removed the lock file. Asking makes
// none, and leaves the server's locks as they are.
func TestInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "forebay.db")
	noLockFile := func(when string) {
		t.Helper()
		if _, err := os.Stat(path + sqlite.LockSuffix); !os.IsNotExist(err) {
			t.Errorf("%s: asking made a lock file (%v)", when, err)
		}
	}
	if sqlite.InUse(path) {
		t.Error("a database that is not there is in use")
	}
	noLockFile("before there is a database")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("asking made a database (%v)", err)
	}
	s := serve(t, Options{Path: path, Serve: true})
	if !sqlite.InUse(path) {
		t.Error("a database that is served is not in use")
	}
	mustDo(t, os.Remove(path+sqlite.LockSuffix))
	for range 2 {
		if !sqlite.InUse(path) {
			t.Error("a database whose server has lost its lock file is not in use")
		}
	}
	noLockFile("while it is served")
	refusedToOthers(t, path)
	storeOne(t, s)
	mustDo(t, s.Close())
	if sqlite.InUse(path) {
		t.Error("a database whose server has stopped is in use")
	}
	again, err := Open(t.Context(), Options{Path: path, Serve: true})
	mustDo(t, err)
	mustDo(t, again.Close())
}

// Another process that has the lock file for a while does not stop the server, which takes it
// when it is free.
func TestLockFileHeldByAnother(t *testing.T) {
	path, warned := filepath.Join(t.TempDir(), "forebay.db"), &warnings{}
	s := serve(t, Options{Path: path, Serve: true, Warn: warned.add})
	mustDo(t, os.Remove(path+sqlite.LockSuffix))
	// As a second server has it until the lock on the database refuses it.
	other := flock.New(path + sqlite.LockSuffix)
	held, err := other.TryLock()
	if err != nil || !held {
		t.Fatal(held, err)
	}
	storeOne(t, s)
	warned.expect(t, 0, "")
	refusedToOthers(t, path)
	mustDo(t, other.Unlock())
	storeOne(t, s)
	warned.expect(t, 1, "made anew")
	if held, err := other.TryLock(); err != nil || held {
		t.Errorf("the lock file is free: %v", err)
	}
	refusedToOthers(t, path)
}
