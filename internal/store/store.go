// Package store keeps jobs, their messages, attempts, outcomes and events in SQLite or PostgreSQL.
//
// Every change is a transition: a method that is one atomic step of a job's life, durable when it
// returns. Transitions of concurrent callers share one transaction and one fsync: a single writer
// goroutine takes what has queued up while the last commit ran (group commit). A claim that finds
// nothing stays with the writer until something becomes ready, so consumers never poll and an idle
// store runs almost no statements.
//
// SQLite is WAL with synchronous=FULL, PostgreSQL must have fsync and synchronous_commit on: what was
// acknowledged survives a power cut. One process serves a SQLite file; any number share a PostgreSQL
// database, one transaction at a time among them, and tell each other what has become ready.
package store

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Options opens a database.
type Options struct {
	Path string // of the SQLite database file; made when it does not exist
	URL  string // of a PostgreSQL database, postgres://…; instead of Path
	// Serve is for a process that delivers messages. It takes a SQLite file for itself alone. Without
	// it the store reads and writes beside serving processes, for administration.
	Serve bool
	// Answers names what kind of clients' requests the process answers; "": none. Answering counts those of one kind.
	Answers string
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

// domain is a part of Forebay that keeps rows in the database.
type domain interface {
	// attach comes first. The database is not open yet.
	attach(*DB)
	// join has the domain's participants join a writer. There are one or two.
	join(*writer)
}

// What a domain may do besides.
type (
	// starter begins what goes on until the database closes. The writers work.
	starter interface {
		start(context.Context, Options) error
	}
	// hearer takes in, on a goroutine that is not the writer's, what other processes have committed.
	hearer interface{ received(*notification) }
	// stopper ends what start began. The writers have stopped.
	stopper interface{ stop() }
)

// DB is an open database. It is safe for concurrent use.
type DB struct {
	connect func(context.Context) (conn, error) // makes a connection for reading
	writer  *writer
	beside  *writer // stores new rows beside the writer; nil: the writer does
	domains []domain
	readers *readers
	// searchers are those for searches, which PostgreSQL plans as it thinks best; nil: readers do.
	searchers      *readers
	connectSearch  func(context.Context) (conn, error)
	watches        watches
	endCheckpoints func()      // nil: there are none
	file           *sqliteFile // the SQLite file that is served; nil: none
	health         health
	clockBack      chan<- struct{} // to be told that the clock went back; nil: nobody listens
	alone          bool            // no other process delivers from this database
	answers        string          // as in Options
	release        func()          // of what makes it so; called last
	closing        sync.Once
	closed         error
}

// openDB opens the database, brings its schema up to date and checks that it is durable. The domains are those whose rows
// are written.
func openDB(ctx context.Context, opts Options, domains ...domain) (d *DB, err error) {
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
		_, err = transact(ctx, d.writer, op{stage: stageSettle}, func(t *tx) (_ struct{}, err error) {
			for _, p := range t.w.parts {
				if h, ok := p.(heir); ok && err == nil {
					err = h.takeOver(t)
				}
			}
			return struct{}{}, err
		})
	}
	for _, m := range domains {
		if s, ok := m.(starter); ok && err == nil {
			err = s.start(ctx, opts)
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

// begin begins to write through the connection. publish tells other processes; nil: there are none.
func (s *DB) begin(c conn, opts Options, domains []domain, publish func(*notification)) (err error) {
	s.readers = newReaders(s.connect)
	if s.connectSearch != nil {
		s.searchers = newReaders(s.connectSearch)
	}
	s.writer, s.domains = newWriter(c, &s.watches, opts.Serve, publish), domains
	for _, d := range domains {
		d.attach(s)
		d.join(s.writer)
	}
	if err = s.writer.loadParts(); err != nil {
		c.Close()
		s.release()
		return c.domainError(err)
	}
	if err := s.startCheckpoints(); err != nil {
		c.Close()
		s.release()
		return err
	}
	s.startHealth()
	if opts.Serve {
		back := make(chan struct{}, 1)
		s.writer.clockBack, s.clockBack = back, back
		s.health.probes.Go(func() { s.keepClock(back, opts.warn()) })
	}
	go s.writer.run()
	return nil
}

// Close waits for the transaction and the reads under way and closes the database. Calls that come
// later fail.
func (s *DB) Close() error {
	s.closing.Do(func() {
		s.stopHealth()
		if s.endCheckpoints != nil {
			s.endCheckpoints()
		}
		if s.beside != nil {
			s.closed = s.beside.stop()
		}
		s.closed = errors.Join(s.closed, s.writer.stop())
		for _, d := range s.domains {
			if stops, ok := d.(stopper); ok {
				stops.stop()
			}
		}
		s.closed = errors.Join(s.closed, s.readers.close(), s.searchers.close())
		s.release()
	})
	return s.closed
}

// Check reports whether the database can be written to right now, by writing to it.
func (s *DB) Check(ctx context.Context) error {
	_, err := transact(ctx, s.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
		return struct{}{}, t.prep("INSERT INTO probes (no, at) VALUES (1, ?1) ON CONFLICT (no) DO UPDATE SET at = ?1").int(t.now).exec()
	})
	return err
}

// Now is the database's time, about.
func (s *DB) Now() time.Time { return fromMillis(s.writer.conn.now()) }

// Here is a time of the database as this process's clock will show it, about.
func (s *DB) Here(at time.Time) time.Time { return at.Add(time.Since(s.Now())) }

// Shared reports whether other processes may deliver from the database at the same time.
func (s *DB) Shared() bool { return s.writer.shared() }
