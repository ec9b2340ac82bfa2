// Package dbtest runs the tests of stores on SQLite and on PostgreSQL, by a clock that a test
// can move.
package dbtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"
)

// Databases makes new, empty databases of each kind.
var Databases = map[string]func(testing.TB) db.Options{
	"sqlite":     func(t testing.TB) db.Options { return db.Options{Path: SQLite(t)} },
	"postgresql": func(t testing.TB) db.Options { return db.Options{URL: Postgres(t)} },
}

// How many of rapid's 100 runs of random operations each engine gets. Each has another seed:
// what one pass of the tests does not try, the next one may.
const (
	SQLiteRuns   = 40
	PostgresRuns = 4
	shortRuns    = 10 // SQLite's with -short
)

// Repeat is FOREBAY_MODEL_RUNS, which multiplies the runs: a whole number, 1 if it is not set.
var Repeat = sync.OnceValue(func() int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("FOREBAY_MODEL_RUNS"), "1"))
	if err != nil || n < 1 {
		panic("FOREBAY_MODEL_RUNS is to be a whole number from 1")
	}
	return n
})

// Fixture is how a package opens S, the stores that its tests need, on a database.
type Fixture[S any] struct {
	Open func(context.Context, db.Options) (S, error)
	DB   func(S) *db.DB
	// Parked counts the operations that wait for something: a claim for a job, a receiver for a
	// message.
	Parked func(S, *db.Tx) int
	// Begin is when the clock of a schema begins, for tests that compare it with that of this
	// machine; nil: in 2030.
	Begin func() time.Time
}

// Engine is a kind of database and a clock for it that a test moves.
type Engine[S any] interface {
	Open(rapid.TB) S     // a new, empty database
	Reopen(rapid.TB) S   // the same one again, after it was closed
	Options() db.Options // of that one
	Now() int64          // milliseconds since 1970
	Pass(S, time.Duration)
	// Settle returns once the stores have done what they can do at this time, and what waits has
	// either ended (done) or found nothing.
	Settle(s S, done <-chan struct{})
}

// OnEveryEngine runs random operations many times on SQLite and on PostgreSQL.
func (f Fixture[S]) OnEveryEngine(t *testing.T, run func(*rapid.T, Engine[S])) {
	sqlite, postgres := SQLiteRuns*Repeat(), PostgresRuns*Repeat()
	if testing.Short() {
		sqlite, postgres = min(sqlite, shortRuns), min(postgres, PostgresRuns/2)
	}
	f.run(t, sqlite, postgres, run)
}

// Once runs operations that are always the same, once on SQLite and once on PostgreSQL.
func (f Fixture[S]) Once(t *testing.T, run func(*rapid.T, Engine[S])) { f.run(t, 1, 1, run) }

// run runs operations so many times on the engines.
func (f Fixture[S]) run(t *testing.T, sqlite, postgres int, run func(*rapid.T, Engine[S])) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		dir, serial := t.TempDir(), 0
		synctest.Test(t, func(t *testing.T) {
			// As an interface: rapid asks a *testing.T for its deadline, which a bubble forbids.
			rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
				if serial++; serial > sqlite {
					return
				}
				run(t, f.Bubble(filepath.Join(dir, fmt.Sprintf("%d.db", serial))))
			})
		})
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		server, serial := NewClockServer(t), 0
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			if serial++; serial > postgres {
				return // each statement is a round trip to the server here
			}
			run(t, f.ClockSchema(server))
		})
	})
}

// WithStores tests new stores on SQLite and on PostgreSQL, by the real clock.
func (f Fixture[S]) WithStores(t *testing.T, test func(*testing.T, S)) {
	t.Parallel()
	for kind, database := range Databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, f.Serving(t, database(t)))
		})
	}
}

// Serving opens stores that serve until the test ends, and fails it if they do not close well.
func (f Fixture[S]) Serving(t testing.TB, opts db.Options) S {
	t.Helper()
	s := f.Serve(t, opts)
	t.Cleanup(func() {
		if err := f.DB(s).Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Serve opens stores that serve until the test closes them.
func (f Fixture[S]) Serve(t rapid.TB, opts db.Options) S {
	t.Helper()
	opts.Serve = true
	s, err := f.Open(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Bubble is SQLite in a synctest bubble, whose clock is the database's.
func (f Fixture[S]) Bubble(path string) Bubble[S] { return Bubble[S]{f, path} }

// ClockSchema is a database of PostgreSQL whose clock the test sets.
func (f Fixture[S]) ClockSchema(server *ClockServer) *ClockSchema[S] {
	return &ClockSchema[S]{fixture: f, server: server}
}

// Bubble is the Engine that Fixture.Bubble makes.
type Bubble[S any] struct {
	fixture Fixture[S]
	path    string
}

// The methods are those of Engine.

func (b Bubble[S]) Open(t rapid.TB) S {
	if err := newFile(b.path); err != nil {
		t.Fatal(err)
	}
	return b.Reopen(t)
}

func (b Bubble[S]) Reopen(t rapid.TB) S       { return b.fixture.Serve(t, b.Options()) }
func (b Bubble[S]) Options() db.Options       { return db.Options{Path: b.path} }
func (b Bubble[S]) Now() int64                { return time.Now().UnixMilli() }
func (b Bubble[S]) Settle(S, <-chan struct{}) { synctest.Wait() }
func (b Bubble[S]) Pass(_ S, d time.Duration) { <-time.After(d); synctest.Wait() }

// ClockServer is a PostgreSQL server on which a test makes databases whose clocks it sets.
type ClockServer struct{ address string }

// NewClockServer finds the server.
func NewClockServer(t testing.TB) *ClockServer { return &ClockServer{pgtest.Server(t)} }

// ClockSchema is the Engine that Fixture.ClockSchema makes. Its schema stands before PostgreSQL's
// own functions in the search path. So its clock_timestamp is the one that the stores ask for the
// time.
type ClockSchema[S any] struct {
	fixture Fixture[S]
	server  *ClockServer
	at      int64
	t       rapid.TB
	url     string
	pg      *pgconn.PgConn
}

func (c *ClockSchema[S]) Open(t rapid.TB) S {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	if c.fixture.Begin != nil {
		begin = c.fixture.Begin()
	}
	c.t = t
	ctx := context.Background()
	address, drop, err := clocked().CopyOn(ctx, c.server.address)
	if err != nil {
		t.Fatal(err)
	}
	t.(interface{ Cleanup(func()) }).Cleanup(func() {
		if c.pg != nil {
			_ = c.pg.Close(ctx) // the database goes with it
		}
		if err := drop(ctx); err != nil {
			t.Error(err)
		}
	})
	if c.url, err = inClockSchema(address); err == nil {
		c.pg, err = pgconn.Connect(ctx, c.url)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.set(begin.UnixMilli())
	return c.Reopen(t)
}

// Run runs SQL beside the stores.
func (c *ClockSchema[S]) Run(t rapid.TB, sql string) {
	t.Helper()
	if _, err := c.pg.Exec(context.Background(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// set sets the clock; nobody is told.
func (c *ClockSchema[S]) set(at int64) {
	c.at = at
	c.Run(c.t, fmt.Sprintf("UPDATE clock SET at = %d", at))
}

func (c *ClockSchema[S]) Reopen(t rapid.TB) S {
	c.t = t
	return c.fixture.Serve(t, c.Options())
}

func (c *ClockSchema[S]) Options() db.Options {
	return db.Options{URL: c.url}
}

func (c *ClockSchema[S]) Now() int64 { return c.at }

// Advance moves the clock; nobody is told.
func (c *ClockSchema[S]) Advance(d time.Duration) {
	c.set(c.at + d.Milliseconds())
}

func (c *ClockSchema[S]) Pass(s S, d time.Duration) {
	c.Advance(d)
	c.fixture.DB(s).Notified(&db.Notification{Lost: true}) // nobody's timer runs by this clock
	c.Settle(s, nil)
}

func (c *ClockSchema[S]) Settle(s S, done <-chan struct{}) {
	for waiting := done == nil; ; {
		// What was parked when this ran has been served by its transaction, if it could be.
		parked, err := db.Transact(context.Background(), c.fixture.DB(s).Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (int, error) {
			return c.fixture.Parked(s, t), nil
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

// InOneTransaction has the writer take these calls together, in their order, and returns what
// each came to.
func InOneTransaction(t *testing.T, d *db.DB, calls ...func() error) []error {
	t.Helper()
	begun, gate := make(chan struct{}), make(chan struct{})
	var callers sync.WaitGroup
	callers.Go(func() {
		_, err := db.Transact(t.Context(), d.Writer, db.Op{Stage: db.StageChange}, func(*db.Tx) (int, error) { close(begun); <-gate; return 0, nil })
		if err != nil {
			t.Error(err)
		}
	})
	<-begun
	ends := make([]error, len(calls))
	for i, call := range calls {
		callers.Go(func() { ends[i] = call() })
		for len(d.Writer.Ops) <= i {
			<-time.After(time.Millisecond)
		}
	}
	close(gate)
	callers.Wait()
	return ends
}
