//go:build unix

package store

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/forebayhq/forebay/internal/pgtest"
)

// Many processes may find an empty database at once; one makes the tables.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	for range 3 {
		u, err := url.Parse(pgtest.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		query := u.Query()
		query.Set("search_path", "public") // a schema that exists already
		u.RawQuery = query.Encode()
		var group errgroup.Group
		for range 8 {
			group.Go(func() error {
				s, err := Open(context.Background(), Options{URL: u.String(), Serve: true})
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
