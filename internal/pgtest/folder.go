//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// A server's folder is below a root folder. Beside its data it holds two lock files. Whoever uses
// the server shares the lock on usersFile. The janitor that will clean up holds the lock on
// janitorFile. The kernel releases a lock when its holder ends in any way. So a lock, unlike a
// file with a process id, is never left behind. Folders are created and removed under the lock on
// startFile.
const (
	folderPrefix = "server-"
	dataFolder   = "data"
	usersFile    = "users.lock"
	janitorFile  = "janitor.lock"
	startFile    = "start.lock"
)

// folder is a server's folder that this process uses.
type folder struct {
	path    string
	users   *flock.Flock
	janitor *exec.Cmd
}

// defaultRoot is below the folder for temporary files, one for each user.
func defaultRoot() (string, error) {
	root := filepath.Join(os.TempDir(), fmt.Sprintf("forebay-pgtest-%d", os.Geteuid()))
	if err := os.Mkdir(root, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(root)
	if err != nil {
		return "", err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(owner.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s is not a folder of this user", root)
	}
	return root, nil
}

// openFolder creates a folder for a server that is not shared.
func openFolder(root string) (*folder, error) {
	if root == "" {
		var err error
		if root, err = defaultRoot(); err != nil {
			return nil, err
		}
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	unlock, err := lockStart(root)
	if err != nil {
		return nil, err
	}
	defer unlock()
	f, err := makeFolder(root)
	if err != nil {
		return nil, err
	}
	if f.janitor, err = startJanitor(f.path, duty{}, nil); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// lockStart lets one process at a time create, adopt or remove servers.
func lockStart(root string) (unlock func(), err error) {
	start := flock.New(filepath.Join(root, startFile))
	if err := start.Lock(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", root, err)
	}
	return func() { start.Unlock() }, nil
}

// makeFolder creates a folder that this process uses from the start. The caller holds startFile.
func makeFolder(root string) (*folder, error) {
	sweep(root)
	path, err := os.MkdirTemp(root, folderPrefix)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o711); err != nil { // another account than the tests' may run the server
		return nil, err
	}
	users, err := use(path)
	return &folder{path: path, users: users}, err
}

// use takes a share of the lock that keeps a server alive.
func use(path string) (*flock.Flock, error) {
	users := flock.New(filepath.Join(path, usersFile))
	if err := users.RLock(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return users, nil
}

// close removes the folder, whose server has stopped, and waits for the janitor.
func (f *folder) close() error {
	err := errors.Join(remove(f.path), f.users.Close())
	if f.janitor != nil {
		err = errors.Join(err, f.janitor.Wait())
	}
	return err
}

// sweep removes folders without users and without a janitor, such as after a crash of the
// machine. The caller holds startFile.
func sweep(root string) {
	folders, _ := filepath.Glob(filepath.Join(root, folderPrefix+"*"))
	for _, path := range folders {
		users, janitor := flock.New(filepath.Join(path, usersFile)), flock.New(filepath.Join(path, janitorFile))
		unused, _ := users.TryLock()
		unwatched, _ := janitor.TryLock()
		if unused && unwatched {
			destroy(path)
		}
		users.Close()
		janitor.Close()
	}
}

// destroy stops the server of a folder that another process started, and removes the folder.
func destroy(path string) {
	data := filepath.Join(path, dataFolder)
	for _, signal := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
		if pid := postmaster(data); pid != 0 && syscall.Kill(pid, signal) == nil {
			awaitEnd(data, 10*time.Second)
		}
	}
	_ = remove(path) // the next sweep tries again
}

// remove removes the folder of a stopped server. Other processes than its main one may still be
// writing: they notice its end by themselves.
func remove(path string) error {
	for deadline := time.Now().Add(10 * time.Second); ; wait(50 * time.Millisecond) {
		err := os.RemoveAll(path)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// postmaster is the id of the process that serves a data folder, 0 if there is none. Another
// process may have got a stale id, so the process must work in the folder.
func postmaster(data string) int {
	content, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 1 {
		return 0
	}
	if at, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil {
		if at == data {
			return pid
		}
		return 0
	}
	if command, err := exec.Command("ps", "-p", first, "-o", "command=").Output(); err != nil || !strings.Contains(string(command), data) {
		return 0
	}
	return pid
}

func awaitEnd(data string, atMost time.Duration) {
	for deadline := time.Now().Add(atMost); postmaster(data) != 0 && time.Now().Before(deadline); {
		wait(20 * time.Millisecond)
	}
}

// wait lets other processes run.
func wait(d time.Duration) { <-time.NewTimer(d).C }

var errNotFound = errors.New("no shared server runs")

// ping connects once. It waits long, because a slow server on a busy machine must not be taken
// for none.
func ping(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return execute(ctx, address, "SELECT 1")
}
