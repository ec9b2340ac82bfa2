package store

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/forebayhq/forebay/internal/pgtest"
)

// engine is a kind of database and a clock for it that a test moves.
type engine interface {
	open(t rapid.TB) *Store   // a new, empty database
	reopen(t rapid.TB) *Store // the same one again, after it was closed
	where() Options           // of that one
	now() int64
	pass(s *Store, d time.Duration)
	// settle returns once the store has done what it can do at this time, and what waits has either
	// ended (done) or found nothing.
	settle(s *Store, done <-chan struct{})
}

// How many of rapid's 100 runs of random operations each engine gets. Each has another seed, so that what one
// pass of the tests does not try the next one may. more multiplies them.
const (
	sqliteRuns   = 40
	postgresRuns = 6
	shortRuns    = 10 // SQLite's where tests are to be short
)

// more is FOREBAY_MODEL_RUNS, a whole number; 1 if it is not set.
var more = sync.OnceValue(func() int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("FOREBAY_MODEL_RUNS"), "1"))
	if err != nil || n < 1 {
		panic("FOREBAY_MODEL_RUNS is to be a whole number from 1")
	}
	return n
})

// onEveryEngine runs random operations many times on SQLite and on PostgreSQL.
func onEveryEngine(t *testing.T, run func(*rapid.T, engine)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		dir, serial := t.TempDir(), 0
		synctest.Test(t, func(t *testing.T) {
			rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) { // as an interface: rapid asks a *testing.T for its deadline, which a bubble forbids
				if serial++; serial > sqliteRuns*more() || testing.Short() && serial > shortRuns {
					return
				}
				run(t, bubble{filepath.Join(dir, fmt.Sprintf("%d.db", serial))})
			})
		})
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		server, serial := newClockServer(t), 0
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			if serial++; serial > postgresRuns*more() || testing.Short() && serial > postgresRuns/3 {
				return // each statement is a round trip to the server here
			}
			run(t, &clockSchema{server: server, name: fmt.Sprintf("s%d", serial)})
		})
	})
}

// withStore tests a new store on SQLite and one on PostgreSQL, by the real clock.
func withStore(t *testing.T, test func(*testing.T, *Store)) {
	t.Parallel()
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			where := database(t)
			where.Serve = true
			s, err := Open(t.Context(), where)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.DB.Close() })
			test(t, s)
		})
	}
}

// inOneTransaction has the writer take these calls together, in their order, and returns what each came to.
func inOneTransaction(t *testing.T, s *Store, calls ...func() error) []error {
	t.Helper()
	begun, gate := make(chan struct{}), make(chan struct{})
	var callers sync.WaitGroup
	callers.Go(func() {
		_, err := transact(t.Context(), s.DB.writer, op{stage: stageChange}, func(*tx) (int, error) { close(begun); <-gate; return 0, nil })
		if err != nil {
			t.Error(err)
		}
	})
	<-begun
	ends := make([]error, len(calls))
	for i, call := range calls {
		callers.Go(func() { ends[i] = call() })
		for len(s.DB.writer.ops) <= i {
			<-time.After(time.Millisecond)
		}
	}
	close(gate)
	callers.Wait()
	return ends
}

func tenantOf(t *testing.T, s *Store, name string) int64 {
	t.Helper()
	no, err := s.Queues.EnsureTenant(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return no
}

func queueOf(t *testing.T, s *Store, name string) int64 {
	t.Helper()
	no, err := s.Queues.EnsureQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return no
}

func openServing(t rapid.TB, where Options) *Store {
	where.Serve = true
	s, err := Open(context.Background(), where)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bubble is SQLite in a synctest bubble, whose clock is the database's.
type bubble struct{ path string }

func (b bubble) open(t rapid.TB) *Store {
	return openServing(t, b.where())
}

func (b bubble) where() Options { return Options{Path: b.path} }

func (b bubble) reopen(t rapid.TB) *Store { return b.open(t) }

func (b bubble) now() int64 { return time.Now().UnixMilli() }

func (b bubble) pass(_ *Store, d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b bubble) settle(*Store, <-chan struct{}) { synctest.Wait() }

// clockServer is a PostgreSQL database in which a test makes schemas whose clock it sets.
type clockServer struct {
	url string
	pg  *pgconn.PgConn
}

func newClockServer(t *testing.T) *clockServer {
	address := pgtest.Database(t)
	pg, err := pgconn.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pg.Close(context.WithoutCancel(t.Context())) })
	return &clockServer{url: address, pg: pg}
}

func (c *clockServer) run(t rapid.TB, sql string) {
	if _, err := c.pg.Exec(context.Background(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// clockSchema is one such schema. It stands before PostgreSQL's own functions in the search path, so
// that its clock_timestamp is the one that the store asks for the time.
type clockSchema struct {
	server *clockServer
	name   string
	at     int64
	t      rapid.TB
}

func (c *clockSchema) open(t rapid.TB) *Store {
	c.t, c.at = t, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	c.server.run(t, fmt.Sprintf(`CREATE SCHEMA %[1]s; CREATE TABLE %[1]s.clock (at bigint); INSERT INTO %[1]s.clock VALUES (%[2]d);
		CREATE FUNCTION %[1]s.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT to_timestamp(at / 1000.0) FROM %[1]s.clock'`, c.name, c.at))
	return c.reopen(t)
}

func (c *clockSchema) reopen(t rapid.TB) *Store { return openServing(t, c.where()) }

func (c *clockSchema) where() Options {
	u, err := url.Parse(c.server.url)
	if err != nil {
		c.t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", c.name+",pg_catalog")
	u.RawQuery = query.Encode()
	return Options{URL: u.String()}
}

func (c *clockSchema) now() int64 { return c.at }

func (c *clockSchema) advance(d time.Duration) {
	c.at += d.Milliseconds()
	c.server.run(c.t, fmt.Sprintf("UPDATE %s.clock SET at = %d", c.name, c.at))
}

func (c *clockSchema) pass(s *Store, d time.Duration) {
	c.advance(d)
	s.DB.hear(&notification{lost: true}) // nobody's timer runs by this clock
	c.settle(s, nil)
}

func (c *clockSchema) settle(s *Store, done <-chan struct{}) {
	for waiting := done == nil; ; {
		// What was parked when this ran has been served by its transaction, if it could be.
		parked, err := transact(context.Background(), s.DB.writer, op{stage: stageChange}, func(t *tx) (int, error) {
			return len(jobsKey.in(t.w).parked) + len(busKey.in(t.w).parked), nil
		})
		if err != nil {
			c.t.Fatal(err)
		}
		if waiting {
			return
		}
		waiting = parked > 0
		select {
		case <-done:
			return
		default:
		}
	}
}
