package sqlite

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A process that is being started has a copy of each descriptor until it runs its program. It
// does not keep the lock.
func TestTheLockOfAFileEndsWithACopyOfItsDescriptor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "forebay.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first, held, err := lockData(path)
	if err != nil || !held || first == nil {
		t.Fatal(first, held, err)
	}
	inherited, err := syscall.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	unlockData(first)
	second, held, err := lockData(path)
	if err != nil || !held {
		t.Fatal("the lock was not ended", err)
	}
	unlockData(second)
}
