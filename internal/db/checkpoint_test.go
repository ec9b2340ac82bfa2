package db

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The WAL begins anew long before it is so long that a commit would have to copy it all.
func TestTheWALIsCopiedBesideTheWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "forebay.db")
	s, err := Open(t.Context(), Options{Path: path, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange}, func(t *Tx) (int, error) {
		t.w.checkpoints.pages = 64
		t.w.checkpoints.every.Store(4)
		return 0, nil
	}); err != nil {
		t.Fatal(err)
	}
	const byItself = 8000 // pages, which is less than SQLite lets the WAL become
	first, _ := walBegun(t, path)
	for n := 0; ; n++ {
		if _, err := Transact(t.Context(), s.Writer, Op{Stage: StageSubmit}, insertNames(fmt.Sprint(n), 1)); err != nil {
			t.Fatal(err)
		}
		begun, bytes := walBegun(t, path)
		if begun != first {
			return
		}
		if bytes > byItself*8192 {
			t.Fatalf("after %d transactions the WAL has %d bytes and has never begun anew", n, bytes)
		}
		<-time.After(time.Millisecond)
	}
}

// walBegun returns a number that changes whenever the WAL begins anew
// (https://www.sqlite.org/fileformat2.html#walformat), and the length of its file.
func walBegun(t *testing.T, path string) (number uint32, bytes int64) {
	t.Helper()
	f, err := os.Open(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	header := make([]byte, 16)
	if _, err := f.ReadAt(header, 0); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint32(header[12:]), info.Size()
}

// How often the goroutine looks at the WAL follows from how fast that grows.
func TestCheckpointsFollowTheWAL(t *testing.T) {
	s, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := newCheckpoints(s.connect)
	own, err := s.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := c.copy(own); err != nil {
		t.Fatal(err)
	}
	if every := c.every.Load(); every != 2*firstCommits || c.rest.Load() {
		t.Errorf("of a short WAL the next look comes after %d commits, and the writer is to copy: %v", every, c.rest.Load())
	}
	c.pages, c.before = 1, 0
	if err := c.copy(own); err != nil {
		t.Fatal(err)
	}
	if every := c.every.Load(); every >= 2*firstCommits || every < 1 || !c.rest.Load() {
		t.Errorf("of a long WAL the next look comes after %d commits, and the writer is to copy: %v", every, c.rest.Load())
	}
	c.every.Store(3)
	for range 2 {
		c.committed()
	}
	if len(c.wake) != 0 {
		t.Error("the goroutine was woken too early")
	}
	if c.committed(); len(c.wake) != 1 {
		t.Error("the goroutine was not woken")
	}
	for range 9 { // it is at work
		c.committed()
	}
	if len(c.wake) != 1 {
		t.Error("the goroutine was woken twice")
	}
}
