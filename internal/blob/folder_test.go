package blob

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

func fileNames(t *testing.T, f *folder) []string {
	t.Helper()
	entries, err := os.ReadDir(f.root.Name())
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names
}

func testFolder(t *testing.T) (*Store, *folder) {
	t.Helper()
	s := open(t, t.TempDir())
	return s, s.backend.(*folder)
}

// What makes a put durable is the order: data on disk, then the name, then the folder on disk.
func TestPutSyncsDataBeforeNameAndNameBeforeReturn(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("folders are not synced on Windows")
	}
	s, f := testFolder(t)
	const name = "t.1.job_a.input"
	var synced []string
	f.sync = func(file *os.File) error {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		_, err = f.root.Stat(name)
		synced = append(synced, fmt.Sprintf("folder=%t named=%t bytes=%t", info.IsDir(), err == nil, info.IsDir() || info.Size() == 5))
		return file.Sync()
	}
	put(t, s, Key(1, "job_a", "input"), "12345")
	want := []string{"folder=false named=false bytes=true", "folder=true named=true bytes=true"}
	if !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
}

// New folders are entries of their parents: each parent is synced, outermost first.
func TestNewFoldersAreDurable(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("folders are not synced on Windows")
	}
	top := t.TempDir()
	var synced []string
	f := &folder{sync: func(file *os.File) error {
		synced = append(synced, file.Name())
		return file.Sync()
	}}
	for range 2 { // the second time there is nothing to do
		if err := f.make(filepath.Join(top, "a", "b")); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{top, filepath.Join(top, "a")}; !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
}

func TestStorageErrorsAreCodedAndShowNoPath(t *testing.T) {
	for _, c := range []struct {
		err  error
		code forebay.Code
	}{
		{syscall.ENOSPC, forebay.CodeStorageFull},
		{syscall.EDQUOT, forebay.CodeStorageFull},
		{syscall.EIO, forebay.CodeUnavailable},
	} {
		s, f := testFolder(t)
		f.sync = func(file *os.File) error {
			return &os.PathError{Op: "sync", Path: file.Name(), Err: c.err}
		}
		err := s.Put(t.Context(), Key(1, "job_a", "input"), strings.NewReader("x"), 1)
		wantCode(t, err, c.code)
		if !errors.Is(err, c.err) {
			t.Errorf("%v does not carry %v for the log", err, c.err)
		}
		if strings.ContainsAny(err.Error(), `/\`) {
			t.Errorf("the error shows a path: %v", err)
		}
		if names := fileNames(t, f); len(names) != 0 {
			t.Errorf("%v: left %q", c.err, names)
		}
	}
}

func TestFolderSyncFailureFailsThePut(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("folders are not synced on Windows")
	}
	s, f := testFolder(t)
	calls := 0
	f.sync = func(file *os.File) error {
		if calls++; calls == 2 {
			return syscall.EIO
		}
		return file.Sync()
	}
	wantCode(t, s.Put(t.Context(), Key(1, "job_a", "input"), strings.NewReader("x"), 1), forebay.CodeUnavailable)
}

func TestSweepTouchesOnlyItsOwnFiles(t *testing.T) {
	s, f := testFolder(t)
	put(t, s, Key(1, "job_a", "input"), "x")
	for _, name := range []string{"README.txt", ".hidden", "t.1.job_a.in put", unfinished + "old", unfinished + "new"} {
		if err := f.root.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.root.Mkdir("t.1.folder", 0o700); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-48 * time.Hour)
	for _, name := range []string{"README.txt", ".hidden", "t.1.job_a.in put", unfinished + "old", "t.1.job_a.input", "t.1.folder"} {
		if err := f.root.Chtimes(name, long, long); err != nil {
			t.Fatal(err)
		}
	}
	n, err := s.Sweep(t.Context(), time.Now().Add(-24*time.Hour), func([]string) (map[string]bool, error) { return nil, nil })
	if n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	got := fileNames(t, f)
	want := []string{".hidden", unfinished + "new", "README.txt", "t.1.folder", "t.1.job_a.in put"}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

func TestGetRefusesWhatIsNoFile(t *testing.T) {
	s, f := testFolder(t)
	if err := f.root.Mkdir("t.1.folder", 0o700); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Get(t.Context(), "t/1/folder")
	wantCode(t, err, forebay.CodeUnavailable)
}
