package queue

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/pgtest"
)

// askAll has many callers ask for a number at once and checks that all of the same name get the
// same.
func askAll(t *testing.T, callers int, name func(i int) string, ask func(string) (int64, error)) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	nos, start := map[string]int64{}, make(chan struct{})
	for i := range callers {
		all.Go(func() {
			<-start
			no, err := ask(name(i))
			mu.Lock()
			defer mu.Unlock()
			if known, ok := nos[name(i)]; err != nil || no == 0 || ok && known != no {
				t.Errorf("%s has the numbers %d and %d: %v", name(i), no, known, err)
			}
			nos[name(i)] = no
		})
	}
	close(start)
	all.Wait()
	seen := map[int64]bool{}
	for name, no := range nos {
		if seen[no] {
			t.Errorf("another has the number of %s", name)
		}
		seen[no] = true
	}
}

// Few write transactions serve many callers with names that are not in memory. Known names are
// only read. Each new name is written once, together with other new ones.
func TestManyAskForNames(t *testing.T) {
	const callers = 200
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		var operations atomic.Int64
		s.DB.OnCommit(func(c db.Commit) { operations.Add(int64(c.Operations)) })
		took := func(what string, most int64) {
			t.Helper()
			if n := operations.Swap(0); n > most {
				t.Errorf("%s: %d operations of the writer, not %d", what, n, most)
			}
		}
		one := func(name string) func(int) string { return func(int) string { return name } }
		tenant := func(name string) (int64, error) { return s.Queues.EnsureTenant(t.Context(), name) }
		askAll(t, callers, one("new"), tenant)
		took("a new tenant", 1)
		askAll(t, callers, one("new queue"), func(name string) (int64, error) { return s.Queues.EnsureQueue(t.Context(), name) })
		took("a new queue", 1)
		s.Queues.names.mu.Lock()
		s.Queues.names.tenants = nil
		s.Queues.names.mu.Unlock()
		askAll(t, callers, one("new"), tenant)
		took("a known tenant", 0)

		// Names that come while the writer is busy share a transaction.
		begun, gate := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(*db.Tx) (int, error) { close(begun); <-gate; return 0, nil }); err != nil {
				t.Error(err)
			}
		})
		<-begun
		all.Go(func() { askAll(t, callers, func(i int) string { return fmt.Sprint("new", i/2) }, tenant) })
		for gathered := 0; gathered < callers/2; runtime.Gosched() {
			s.Queues.names.mu.RLock()
			if s.Queues.names.batch != nil {
				gathered = len(s.Queues.names.batch.names)
			}
			s.Queues.names.mu.RUnlock()
		}
		close(gate)
		all.Wait()
		took("a hundred new tenants", 2) // with the one that kept it busy
	})
}

// The same through a network: what counts there is how often somebody waits for an answer while
// holding the lock.
func TestManyAskForANewTenantOverANetwork(t *testing.T) {
	t.Parallel()
	s, few := overANetwork(t)
	if _, err := s.Queues.EnsureTenant(t.Context(), "first"); err != nil { // opens a connection to read from, and prepares statements
		t.Fatal(err)
	}
	few(60, "200 callers", func() {
		askAll(t, 200, func(int) string { return "new" }, func(name string) (int64, error) { return s.Queues.EnsureTenant(t.Context(), name) })
	})
}

// overANetwork opens a store that reaches its PostgreSQL through a proxy. few fails if something
// takes more round trips.
func overANetwork(t *testing.T) (s *stores, few func(most int64, what string, do func())) {
	t.Helper()
	direct := dbtest.Databases["postgresql"](t).URL
	proxy := pgtest.NewProxy(t, direct)
	s, err := openStores(t.Context(), db.Options{URL: proxy.URL(direct), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.DB.Close() })
	return s, func(most int64, what string, do func()) {
		t.Helper()
		before := proxy.RoundTrips()
		do()
		if trips := proxy.RoundTrips() - before; trips > most { // some are the store's own, by time
			t.Errorf("%s took %d round trips", what, trips)
		}
	}
}
