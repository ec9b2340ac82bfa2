package sqlite

import (
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
)

// lockData locks a database file itself, by flock(2): on Linux it does not meet the locks by
// fcntl(2) that SQLite takes on the same file. held is false when another has it.
func lockData(path string) (f *os.File, held bool, err error) {
	if f = keptOpen(path); f == nil {
		if f, err = os.OpenFile(path, os.O_RDONLY, 0); err != nil {
			return nil, false, err
		}
	}
	switch err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
		return f, true, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		keepOpen(f)
		return nil, false, nil
	}
	keepOpen(f)
	if errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.EINVAL) {
		return nil, true, nil // a file system without such locks
	}
	return nil, false, err
}

// dataLocked reports whether another has the lock on a database file itself. Like [lockData] it
// never closes the file.
func dataLocked(path string) bool {
	f := keptOpen(path)
	if f == nil {
		var err error
		if f, err = os.OpenFile(path, os.O_RDONLY, 0); err != nil {
			return false
		}
	}
	defer keepOpen(f)
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return errors.Is(err, syscall.EWOULDBLOCK)
	}
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	return false
}

// unlockData ends the lock. Nobody here has the file open any more, but a process that is being
// started may have the descriptor until it runs its program. So the lock is ended by itself:
// closing alone would leave it to that process.
func unlockData(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	f.Close()
}

// Closing any descriptor of a file ends all fcntl(2) locks of the process on it. That includes
// those of a store that has the same file open. So a file that could not be locked stays open
// for the next try.
var kept struct {
	mu    sync.Mutex
	files []*os.File
}

func keepOpen(f *os.File) {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	kept.files = append(kept.files, f)
}

// keptOpen returns the file of that name if one was kept open.
func keptOpen(path string) *os.File {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	now, err := os.Stat(path)
	if err != nil {
		return nil
	}
	for i, f := range kept.files {
		if info, err := f.Stat(); err == nil && os.SameFile(info, now) {
			kept.files = slices.Delete(kept.files, i, i+1)
			return f
		}
	}
	return nil
}
