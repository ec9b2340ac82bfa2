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
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
)

// Options opens a store.
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
	// AuditEvents are the types of events of jobs that this process appends to the audit log.
	AuditEvents []forebay.EventType
	// Identities tell what this process calls by the names of deployments.
	Identities Identities
	// Warn hears what an operator should know, in a sentence without a path. It is called seldom.
	Warn func(message string) `json:"-"`
}

func (o Options) warn() func(string) {
	if o.Warn == nil {
		return func(string) {}
	}
	return o.Warn
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	connect   func(context.Context) (conn, error) // makes a connection for reading
	writer    *writer
	submitter *writer // stores new jobs beside the writer; nil: the writer does
	readers   *readers
	// searchers are those for searches, which PostgreSQL plans as it thinks best; nil: readers do.
	searchers      *readers
	connectSearch  func(context.Context) (conn, error)
	vectors        atomic.Pointer[VectorSupport] // nil: not looked for yet
	watches        watches
	names          names
	topics         topicRules
	endCheckpoints func()      // nil: there are none
	endSlow        func()      // ends the goroutine that judges what takes long; nil: there is none
	file           *sqliteFile // the SQLite file that is served; nil: none
	health         health
	clockBack      chan<- struct{} // to be told that the clock went back; nil: nobody listens
	alone          bool            // no other process delivers from this database
	answers        string          // as in Options
	release        func()          // of what makes it so; called last
	closing        sync.Once
	closed         error
}

// Open opens the database, brings its schema up to date and checks that it is durable.
func Open(ctx context.Context, opts Options) (s *Store, err error) {
	if opts.URL != "" {
		s, err = openPostgres(ctx, opts)
	} else {
		s, err = openSQLite(opts)
	}
	if err != nil {
		return nil, err
	}
	if s.alone {
		// Nobody else can hold these locks: their process is dead, for the file was free.
		_, err = transact(ctx, s.writer, op{stage: stageSettle}, func(t *tx) (_ struct{}, err error) {
			for _, p := range t.w.parts {
				if h, ok := p.(heir); ok && err == nil {
					err = h.takeOver(t)
				}
			}
			return struct{}{}, err
		})
	}
	if opts.Serve && err == nil {
		err = s.PurgeDropped(ctx)
	}
	if opts.Serve && err == nil {
		var ahead bool
		if ahead, err = s.madeAhead(ctx); ahead {
			s.clockBack <- struct{}{}
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start begins to write through the connection. publish tells other processes; nil: there are none.
func (s *Store) start(c conn, opts Options, publish func(*notification)) (err error) {
	s.readers = newReaders(s.connect)
	if s.connectSearch != nil {
		s.searchers = newReaders(s.connectSearch)
	}
	s.writer = newWriter(c, &s.watches, opts.Serve, publish)
	joinAll(s.writer, s, opts)
	if err = s.writer.loadParts(); err != nil {
		c.Close()
		s.release()
		return c.domainError(err)
	}
	s.Identify(opts.Identities)
	if err := s.startCheckpoints(); err != nil {
		c.Close()
		s.release()
		return err
	}
	s.startJudging()
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
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.stopHealth()
		if s.endCheckpoints != nil {
			s.endCheckpoints()
		}
		if s.submitter != nil {
			s.closed = s.submitter.stop()
		}
		s.closed = errors.Join(s.closed, s.writer.stop())
		if s.endSlow != nil {
			s.endSlow()
		}
		s.closed = errors.Join(s.closed, s.readers.close(), s.searchers.close())
		s.release()
	})
	return s.closed
}

// Check reports whether the database can be written to right now, by writing to it.
func (s *Store) Check(ctx context.Context) error {
	_, err := transact(ctx, s.writer, op{stage: stageChange}, func(t *tx) (struct{}, error) {
		return struct{}{}, t.prep("INSERT INTO probes (no, at) VALUES (1, ?1) ON CONFLICT (no) DO UPDATE SET at = ?1").int(t.now).exec()
	})
	return err
}

// Now is the database's time, about.
func (s *Store) Now() time.Time { return fromMillis(s.writer.conn.now()) }

// Here is a time of the database as this process's clock will show it, about.
func (s *Store) Here(at time.Time) time.Time { return at.Add(time.Since(s.Now())) }

// Shared reports whether other processes may deliver from the database at the same time.
func (s *Store) Shared() bool { return s.writer.shared() }

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func fromMillisOrNil(r row, i int) *time.Time {
	if r.isNull(i) {
		return nil
	}
	t := fromMillis(r.int(i))
	return &t
}
