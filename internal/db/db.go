// Package db is the engine below the domains: an open database, and the writer that shares each
// transaction among callers.
//
// A domain is a [Domain]: it registers a [Participant] with the writer and changes its rows by
// [Transact]. Operations of concurrent callers share one transaction and one fsync: the writer
// takes what has queued up while the last commit ran (group commit). A participant keeps what
// it needs in memory, serves those who wait within the transaction, and hears what other
// processes have committed. So nobody polls, and an idle server runs almost no statements.
//
// SQLite is WAL with synchronous=FULL; PostgreSQL must have fsync and synchronous_commit on.
// What was acknowledged survives a power cut. One process serves a SQLite file. Any number
// share a PostgreSQL database, one transaction at a time among them, and notify each other.
//
// The engine names no domain; a test sees to that.
package db

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/sqlite"
)

// Options opens a database.
type Options struct {
	Path string // of the SQLite database file; made when it does not exist
	URL  string // of a PostgreSQL database, postgres://…; instead of Path
	// Serve is for a process that delivers messages. It takes a SQLite file for itself alone. Without
	// it the store reads and writes beside serving processes, for administration.
	Serve bool
	// Answers names what kind of clients' requests the process answers; "": none. CountServers
	// counts those of one kind.
	ServerKind string
	// Existing refuses to make a new database.
	Existing bool
	// Warn hears what an operator should know, in a sentence without a path. It is called seldom.
	Warn func(message string) `json:"-"`
}

func (o Options) warn() func(string) {
	if o.Warn == nil {
		return func(string) {}
	}
	return o.Warn
}

// Domain is a part of Forebay that keeps rows in the database.
type Domain interface {
	// Attach comes first. The database is not open yet.
	Attach(*DB)
	// Join has the domain's participants join a writer. There are one or two.
	Join(*Writer)
}

// What a domain may do besides.
type (
	// starter begins what goes on until the database closes. The writers work.
	starter interface {
		Start(context.Context, Options) error
	}
	// hearer takes in, on a goroutine that is not the writer's, what other processes have committed.
	hearer interface{ Received(*Notification) }
	// stopper ends what start began. The writers have stopped.
	stopper interface{ Stop() }
)

// DB is an open database. It is safe for concurrent use.
type DB struct {
	connect  func(context.Context) (driver.Conn, error) // makes a connection for reading
	Writer   *Writer
	Inserter *Writer // stores new rows beside the writer; nil: the writer does
	domains  []Domain
	readers  *readers
	// Searchers are those for searches, which PostgreSQL plans as it thinks best; nil: readers do.
	Searchers      *readers
	connectSearch  func(context.Context) (driver.Conn, error)
	signals        *signals                                                 // to and from other processes; nil: there are none
	takePlace      func(context.Context) (n int, release func(), err error) // nil: there is one process
	watches        Watches
	endCheckpoints func()       // nil: there are none
	file           *sqlite.File // the SQLite file that is served; nil: none
	health         health
	clockBack      chan<- struct{} // to be told that the clock went back; nil: nobody listens
	alone          bool            // no other process delivers from this database
	serverKind     string          // as in Options
	release        func()          // of what makes it so; called last
	closing        sync.Once
	closed         error
}

// Open opens the database, brings its schema up to date and checks that it is durable. The
// domains are those whose rows are written.
func Open(ctx context.Context, opts Options, domains ...Domain) (d *DB, err error) {
	if opts.URL != "" {
		d, err = openPostgres(ctx, opts, domains)
	} else {
		d, err = openSQLite(opts, domains)
	}
	if err != nil {
		return nil, err
	}
	if d.alone {
		// Nobody else can hold these locks: their process is dead, for the file was free.
		_, err = Transact(ctx, d.Writer, Op{Stage: StageSettle}, func(t *Tx) (_ struct{}, err error) {
			for _, p := range t.w.parts {
				if h, ok := p.(TakesOver); ok && err == nil {
					err = h.TakeOver(t)
				}
			}
			return struct{}{}, err
		})
	}
	for _, m := range domains {
		if s, ok := m.(starter); ok && err == nil {
			err = s.Start(ctx, opts)
		}
	}
	if opts.Serve && err == nil {
		var ahead bool
		if ahead, err = d.madeAhead(ctx); ahead {
			d.clockBack <- struct{}{}
		}
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// begin begins to write through the connection. publish tells other processes; nil: there are
// none.
func (s *DB) begin(c driver.Conn, opts Options, domains []Domain, publish func(*Notification)) (err error) {
	s.readers = newReaders(s.connect)
	if s.connectSearch != nil {
		s.Searchers = newReaders(s.connectSearch)
	}
	s.Writer, s.domains = newWriter(c, &s.watches, opts.Serve, publish), domains
	for _, d := range domains {
		d.Attach(s)
		d.Join(s.Writer)
	}
	if err = s.Writer.loadParts(); err != nil {
		c.Close()
		s.release()
		return c.UserError(err)
	}
	if err := s.startCheckpoints(); err != nil {
		c.Close()
		s.release()
		return err
	}
	s.startHealth()
	if opts.Serve {
		back := make(chan struct{}, 1)
		s.Writer.clockBack, s.clockBack = back, back
		s.health.probes.Go(func() { s.keepClock(back, opts.warn()) })
	}
	go s.Writer.run()
	return nil
}

// Place returns a number that no other process of the database has while this one runs: the lowest
// that is free. A process asks for it once, before it serves.
func (s *DB) Place(ctx context.Context) (int, error) {
	if s.takePlace == nil {
		return 0, nil
	}
	n, free, err := s.takePlace(ctx)
	if err != nil {
		return 0, err
	}
	release := s.release
	s.release = func() { free(); release() }
	return n, nil
}

// Close waits for the transaction and the reads under way and closes the database. Calls that come
// later fail.
func (s *DB) Close() error {
	s.closing.Do(func() {
		s.stopHealth()
		if s.endCheckpoints != nil {
			s.endCheckpoints()
		}
		if s.Inserter != nil {
			s.closed = s.Inserter.stop()
		}
		s.closed = errors.Join(s.closed, s.Writer.stop())
		for _, d := range s.domains {
			if stops, ok := d.(stopper); ok {
				stops.Stop()
			}
		}
		s.closed = errors.Join(s.closed, s.readers.close(), s.Searchers.close())
		s.release()
	})
	return s.closed
}

// Check reports whether the database can be written to right now, by writing to it.
func (s *DB) Check(ctx context.Context) error {
	_, err := Transact(ctx, s.Writer, Op{Stage: StageChange}, func(t *Tx) (struct{}, error) {
		return struct{}{}, t.Prep("INSERT INTO probes (no, at) VALUES (1, ?1) ON CONFLICT (no) DO UPDATE SET at = ?1").Int(t.Now).Exec()
	})
	return err
}

// Now is the database's time, about.
func (s *DB) Now() time.Time { return driver.FromMillis(s.Writer.Conn.Now()) }

// Here is a time of the database as this process's clock will show it, about.
func (s *DB) ToLocal(at time.Time) time.Time { return at.Add(time.Since(s.Now())) }

// Shared reports whether other processes may deliver from the database at the same time.
func (s *DB) Shared() bool { return s.Writer.Shared() }
