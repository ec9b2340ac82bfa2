//go:build unix

package blob

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// A FIFO is no object, and opening it must not wait for a writer.
func TestFIFOInASource(t *testing.T) {
	folder := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(folder, "pipe.txt"), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := OpenSource(t.Context(), "file://"+folder)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	read := make(chan error, 1)
	go func() {
		_, _, err := source.Open(t.Context(), "pipe.txt")
		read <- err
	}()
	select {
	case err := <-read:
		if forebay.CodeOf(err) != forebay.CodeNotFound {
			t.Errorf("read: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the read waits for a writer")
	}
}
