package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/gofrs/flock"
)

// Files of a database beside its own, by the ends of their names.
const (
	LockSuffix = ".lock"
	WalSuffix  = "-wal"
	ShmSuffix  = "-shm"
)

// privateMode is the mode of all these files, because they hold secrets.
const privateMode = 0o600

// File is a database file that this process has taken. Two locks keep it. One is on a file
// beside it. The other is on the file itself, where the system has a lock that SQLite does not
// use. It holds even if somebody removes the first.
type File struct {
	Path string
	warn func(string)
	mu   sync.Mutex
	lock *flock.Flock
	data *os.File               // with the lock on the database itself; nil: there is none
	made map[string]fs.FileInfo // by the end of its name, the file that must still be there
	lost error                  // why nothing may be written any more
}

// TakeFile takes a database file for this process alone, making it if make is set. taken is
// what to say when another one has it.
func TakeFile(path, taken string, make bool, warn func(string)) (*File, error) {
	f := &File{Path: path, warn: warn}
	lock, err := lockBeside(path)
	if err != nil {
		return nil, driver.Unusable("the database's folder cannot be written to", err)
	}
	if lock == nil {
		return nil, forebay.Errorf(forebay.CodeDatabaseUnusable, "%s", taken)
	}
	f.lock = lock
	if make {
		err = MakePrivate(path)
	}
	held := true
	if err == nil {
		f.data, held, err = lockData(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		err = driver.Unusable("the database file cannot be opened", err)
	case !held:
		err = forebay.Errorf(forebay.CodeDatabaseUnusable, "%s", taken)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Release()
		return nil, err
	}
	return f, nil
}

// lockBeside takes the lock on the file beside a database; nil: another has it.
func lockBeside(path string) (*flock.Flock, error) {
	lock := flock.New(path+LockSuffix, flock.SetPermissions(privateMode))
	if held, err := lock.TryLock(); err != nil || !held {
		return nil, err
	}
	return lock, nil
}

// Release lets others take the file. No connection to it may be open any more: with the file's
// last close SQLite would lose the locks of its own.
func (f *File) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.data != nil {
		unlockData(f.data)
		f.data = nil
	}
	if f.lock != nil {
		f.lock.Unlock()
	}
}

// Opened notes which files there are, now that SQLite has them open. From here on they must stay.
func (f *File) Opened() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made = map[string]fs.FileInfo{}
	for _, end := range []string{"", WalSuffix} {
		if f.made[end], err = os.Stat(f.Path + end); err != nil {
			return driver.Unusable("the database's files cannot be looked at", err)
		}
	}
	return nil
}

// Check tells why nothing may be written any more: a file that this process has open is not the
// one of that name. What is written then is read by nobody, or damages what another process
// writes. nil: all is well.
func (f *File) Check() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost != nil || f.made == nil {
		return f.lost
	}
	for _, file := range []struct{ end, name string }{{"", "database file"}, {WalSuffix, "write-ahead log (-wal)"}} {
		if now, err := os.Stat(f.Path + file.end); isAnother(f.made[file.end], now, err) {
			return f.lose(file.name)
		}
	}
	mine, err := f.lock.Stat()
	if err != nil {
		return f.lose("lock file")
	}
	if now, err := os.Stat(f.Path + LockSuffix); isAnother(mine, now, err) {
		return f.lockAgain()
	}
	return nil
}

// known is check without a look: each commit looks.
func (f *File) known() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// isAnother reports whether a look at a name shows that the file is not there. A look that
// fails shows nothing.
func isAnother(file, now fs.FileInfo, err error) bool {
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(file, now)
}

// lockAgain makes the lock file that somebody has removed anew. The lock on the database itself
// has kept others away meanwhile.
func (f *File) lockAgain() error {
	if f.data == nil {
		return f.lose("lock file")
	}
	lock, err := lockBeside(f.Path)
	if err != nil || lock == nil {
		return nil // who holds it for the moment is refused by the lock on the database; it is tried again
	}
	old := f.lock
	f.lock = lock
	old.Close()
	f.warn("the lock file of the database was removed or replaced under the running server; it is made anew")
	return nil
}

func (f *File) lose(what string) error {
	f.lost = forebay.Errorf(forebay.CodeUnavailable,
		"the %s was removed or replaced under the running server; nothing is stored until the server is restarted", what)
	f.warn(f.lost.Error())
	return f.lost
}

// MakePrivate makes a database file that only its owner can read. SQLite would make one that
// others can read. It also keeps others out of an existing file. SQLite gives the files that it
// makes beside it the same mode.
func MakePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, privateMode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// No umask is to keep its owner from it. Closing loses no locks: nobody in this process can
	// have opened it yet.
	return errors.Join(f.Chmod(privateMode), f.Close())
}

// Tighten keeps others than their owner out of the files of a database. It does not open them.
func Tighten(path string, warn func(string)) {
	for _, end := range []string{"", WalSuffix, ShmSuffix, LockSuffix} {
		info, err := os.Stat(path + end)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&^privateMode == 0 {
			continue
		}
		if err := os.Chmod(path+end, info.Mode().Perm()&privateMode); err != nil && warn != nil {
			warn(fmt.Sprintf("other users of this machine may read the database (mode %#o of the file NAME%s), and this user may not change that",
				info.Mode().Perm(), end))
		}
	}
}

// InUse reports whether a serving process holds the database file. Somebody may have removed
// the lock file under it, so the lock on the file itself is asked for too. Asking makes no
// file.
func InUse(path string) bool {
	return lockedBeside(path) || dataLocked(path)
}

// lockedBeside reports whether a process has the lock on the file beside a database. It asks
// for a lock that several may have, so that two who ask do not take each other for a server.
func lockedBeside(path string) bool {
	if _, err := os.Stat(path + LockSuffix); err != nil {
		return false
	}
	lock := flock.New(path+LockSuffix, flock.SetFlag(os.O_RDONLY))
	held, err := lock.TryRLock()
	if held {
		lock.Unlock()
	}
	return err == nil && !held
}

// minFreeDisk is how many bytes of a disk have to be free.
const minFreeDisk = 1 << 20
