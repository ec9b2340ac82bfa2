//go:build unix

package store

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/forebayhq/forebay/internal/pgtest"
)

// Many processes may find an empty database at once; one makes the tables.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	for range 3 {
		address := pgtest.Database(t) + "&search_path=public" // a schema that exists already
		var group errgroup.Group
		for range 8 {
			group.Go(func() error {
				s, err := Open(context.Background(), Options{URL: address, Serve: true})
				if err != nil {
					return err
				}
				return s.Close()
			})
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// A commit whose answer is lost may have been done: nobody may take its results for a refusal.
func TestLostCommitHasNoResults(t *testing.T) {
	t.Parallel()
	r := &request[[]Submitted]{done: make(chan struct{}), run: func(*tx) ([]Submitted, error) { return make([]Submitted, 1), nil }}
	if err := r.apply(nil); err != nil {
		t.Fatal(err)
	}
	r.finish(errDisconnected)
	if <-r.done; r.result != nil || !errors.Is(r.err, errDisconnected) {
		t.Errorf("results %v with the error %v", r.result, r.err)
	}
}
