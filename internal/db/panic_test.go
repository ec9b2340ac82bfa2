package db

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/forebayhq/forebay/internal/panics"
)

// An operation that panics fails alone: those of its transaction are carried out, and so is
// what comes later.
func TestAnOperationThatPanicsFailsAlone(t *testing.T) {
	s, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 3 {
		var running sync.WaitGroup
		for range 20 {
			running.Go(func() {
				if _, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange}, func(*Tx) (int, error) { panic("a part of the input") }); !errors.Is(err, panics.ErrPanicked) {
					t.Errorf("the operation that panics: %v", err)
				}
			})
			running.Go(func() {
				if n, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange}, func(*Tx) (int, error) { return 7, nil }); err != nil || n != 7 {
					t.Errorf("another operation: %d, %v", n, err)
				}
			})
		}
		running.Wait()
	}
}
