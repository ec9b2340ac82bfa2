package dbtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/raced"
)

// MostTrips is how many round trips to PostgreSQL a transaction of any operations takes at most.
const MostTrips = 6

// Trips counts the round trips of transactions on PostgreSQL.
type Trips[S any] struct {
	Stores  S
	fixture Fixture[S]
	db      *db.DB
	mu      sync.Mutex
	most    int64 // of a transaction with operations, since together began
}

// Trips opens stores on a new PostgreSQL database whose round trips are counted. What it
// tries are orders of coroutines. The race detector learns more from the other tests of a domain.
func (f Fixture[S]) Trips(t *testing.T) *Trips[S] {
	raced.Skip(t, raced.Sequential)
	s := f.Serving(t, db.Options{URL: Postgres(t)})
	c := &Trips[S]{Stores: s, fixture: f, db: f.DB(s)}
	c.db.OnCommit(func(commit db.Commit) {
		if commit.Err != nil && !errors.Is(commit.Err, db.ErrNotAlone) {
			t.Error(commit.Err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if commit.Operations > 0 {
			c.most = max(c.most, commit.RoundTrips)
		}
	})
	return c
}

// Together has both writers take calls together, each of which is one operation. It fails if
// one of the transactions takes more than [MostTrips] in every try. A few trips come by time,
// not from the operations.
func (c *Trips[S]) Together(t *testing.T, what string, prepare func() []func() error) {
	t.Helper()
	c.Within(t, MostTrips, what, prepare)
}

// ErrApart is what a call of Together returns where the machine was too slow for what should come
// at the same time. The try does not count. The next one should leave more time.
var ErrApart = errors.New("not all of it came at the same time")

// Within is Together with another limit.
func (c *Trips[S]) Within(t *testing.T, most int64, what string, prepare func() []func() error) {
	t.Helper()
	const tries, mostApart = 4, 5
	var trips int64
	apart := 0
	for n := 0; n < tries; n++ {
		var err error
		if trips, err = c.try(t, what, prepare()); err != nil {
			if n, apart = n-1, apart+1; apart > mostApart {
				t.Fatal(err)
			}
			t.Log(err)
		} else if trips <= most || t.Failed() {
			return
		}
	}
	t.Errorf("%s: %d round trips", what, trips)
}

// try returns an error for calls that were apart.
func (c *Trips[S]) try(t *testing.T, what string, calls []func() error) (trips int64, err error) {
	t.Helper()
	gate := c.hold()
	var callers sync.WaitGroup
	ends := make([]error, len(calls))
	var ended atomic.Int64 // before they have come to a writer: nothing else ends while it is held
	for i, call := range calls {
		callers.Go(func() {
			ends[i] = call()
			ended.Add(1)
		})
	}
	for deadline := time.Now().Add(2 * time.Minute); c.arrived()+int(ended.Load()) < len(calls); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%s: %d of %d calls have come to a writer", what, c.arrived(), len(calls))
			break
		}
	}
	c.mu.Lock()
	c.most = 0
	c.mu.Unlock()
	close(gate.end)
	callers.Wait()
	for i, err := range ends {
		if errors.Is(err, ErrApart) {
			return 0, fmt.Errorf("%s: %w", what, err)
		}
		if err != nil {
			t.Fatalf("%s: call %d: %v", what, i, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("%s: %d round trips for %d", what, c.most, len(calls))
	return c.most, nil
}

// Plans checks that all that was asked ahead so far uses keys, see [Fixture.PlansOnPostgres].
// Entities may be walked: there are few.
func (c *Trips[S]) Plans(t *testing.T) {
	t.Helper()
	gate := c.hold()
	var forms []string
	for _, w := range []*db.Writer{c.db.Writer, c.db.Inserter} {
		forms = append(forms, postgres.AheadForms(w.Conn.Driver.(*postgres.Conn))...)
	}
	close(gate.end)
	slices.Sort(forms)
	c.fixture.plans(t, func(*postgres.Conn) ([]string, error) { return slices.Compact(forms), nil }, func([]string) bool { return false })
}

// hold keeps both writers from their next transactions, until its end is closed.
func (c *Trips[S]) hold() visit {
	gate := visit{make(chan struct{}), make(chan struct{})}
	for _, w := range []*db.Writer{c.db.Writer, c.db.Inserter} {
		w.Visits <- gate
		<-gate.begun
	}
	return gate
}

// visit keeps a writer from its next transaction.
type visit struct{ begun, end chan struct{} }

func (v visit) Visit() { v.begun <- struct{}{}; <-v.end }

// arrived is how many calls wait for a writer.
func (c *Trips[S]) arrived() int {
	return len(c.db.Writer.Ops) + len(c.db.Writer.Visits) + len(c.db.Inserter.Ops)
}
