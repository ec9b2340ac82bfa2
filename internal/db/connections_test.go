package db

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/pgtest"
	"golang.org/x/sync/errgroup"
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

// A connection that was lost while nobody used it is made anew before anybody is told.
func TestLostConnections(t *testing.T) {
	url := pgtest.Database(t)
	s := serve(t, Options{URL: url})
	storeOne(t, s)
	if n, err := pgtest.Terminate(t.Context(), url); err != nil || n == 0 {
		t.Fatalf("%d connections were ended (%v)", n, err)
	}
	storeOne(t, s)
	if all := names(t, s); len(all) != 2 {
		t.Errorf("%d rows", len(all))
	}
}

// A commit whose answer is lost may have been done: nobody may take its results for a refusal.
func TestLostCommitHasNoResults(t *testing.T) {
	t.Parallel()
	r := &Request[[]int]{Done: make(chan struct{}), Run: func(*Tx) ([]int, error) { return make([]int, 1), nil }}
	if err := r.apply(nil); err != nil {
		t.Fatal(err)
	}
	r.finish(driver.ErrDisconnected)
	if <-r.Done; r.result != nil || !errors.Is(r.err, driver.ErrDisconnected) {
		t.Errorf("results %v with the error %v", r.result, r.err)
	}
}

// losesAnswer is a connection on which a commit is done and its answer is lost.
type losesAnswer struct{ driver.Driver }

func (l losesAnswer) Commit() error { return errors.Join(l.Driver.Commit(), driver.ErrDisconnected) }

// A commit whose answer is lost may have been done. So its watchers are told, in all processes.
func TestLostCommitIsTold(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{URL: pgtest.Database(t)})
	const row = 4711
	changes, stop := s.Watch(row)
	defer stop()
	told := make(chan struct{}, 1)
	_, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange}, func(tx *Tx) (struct{}, error) {
		publish := tx.w.publish
		tx.w.publish = func(n *Notification) {
			if slices.Contains(n.changed, row) {
				told <- struct{}{}
			}
			publish(n)
		}
		tx.Changed(row)
		tx.Driver = losesAnswer{tx.Driver}
		return struct{}{}, nil
	})
	if forebay.CodeOf(err) != forebay.CodeUnavailable {
		t.Fatalf("the commit ended with %v", err)
	}
	for who, heard := range map[string]<-chan struct{}{"here": changes, "elsewhere": told} {
		select {
		case <-heard:
		case <-time.After(time.Minute):
			t.Errorf("nobody was told %s", who)
		}
	}
}
