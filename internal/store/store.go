// Package store keeps jobs, their messages, attempts, outcomes and events in SQLite.
//
// Every change is a transition: a method that is one atomic step of a job's life, durable when it
// returns. Transitions of concurrent callers share one transaction and one fsync: a single writer
// goroutine takes what has queued up while the last commit ran (group commit). A claim that finds
// nothing stays with the writer until something becomes ready, so consumers never poll and an idle
// store runs no statements.
//
// The database is WAL with synchronous=FULL: what was acknowledged survives a power cut.
package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"zombiezen.com/go/sqlite"

	"github.com/forebayhq/forebay"
)

// Options opens a store.
type Options struct {
	Path string // of the database file; made when it does not exist
	// Serve takes the file for this process alone: the one that delivers messages. Without it the
	// store reads and writes beside a serving process, for administration.
	Serve bool
	// Existing refuses to make a new file.
	Existing bool
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	path    string
	lock    *flock.Flock
	writer  *writer
	readers chan conn // idle read connections; nil entries are opened on demand
	watches watches
	names   names
	closing sync.Once
	closed  error
}

// maxReaders bounds the read connections; each holds its own page cache.
const maxReaders = 4

// Open opens the database, brings its schema up to date and checks that it is durable.
func Open(ctx context.Context, opts Options) (*Store, error) {
	path, err := realPath(opts.Path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); opts.Existing && errors.Is(err, os.ErrNotExist) {
		return nil, forebay.Errorf(forebay.CodeDatabaseUnusable, "there is no database file of that name")
	}
	s := &Store{path: path, readers: make(chan conn, maxReaders)}
	if opts.Serve {
		s.lock = flock.New(path + ".lock")
		held, err := s.lock.TryLock()
		if err != nil {
			return nil, unusable("the database's folder cannot be written to", err)
		}
		if !held {
			return nil, forebay.Errorf(forebay.CodeDatabaseUnusable, "another Forebay server is using this database; SQLite serves one process at a time")
		}
	}
	c, err := openWriter(path, opts.Serve)
	if err != nil {
		s.unlock()
		return nil, err
	}
	for range maxReaders {
		s.readers <- conn{}
	}
	s.writer, err = newWriter(c, &s.watches, opts.Serve)
	if err != nil {
		c.Close()
		s.unlock()
		return nil, err
	}
	go s.writer.run()
	if opts.Serve {
		// Nobody else can hold these locks: their process is dead, for the file was free.
		if err := s.releaseOrphans(ctx); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		if err := s.PurgeDropped(ctx); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// realPath is the one path of a file, whichever link leads to it: the lock stands beside it.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", unusable("the database's folder does not exist, or cannot be read", err)
	}
	return filepath.Join(folder, filepath.Base(path)), nil
}

// Close waits for the transaction and the reads under way and closes the database. Calls that come
// later fail.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closed = s.writer.stop()
		for range maxReaders {
			if c := <-s.readers; c.Conn != nil {
				s.closed = errors.Join(s.closed, c.Close())
			}
		}
		s.unlock()
	})
	return s.closed
}

func (s *Store) unlock() {
	if s.lock != nil {
		s.lock.Unlock()
	}
}

// openWriter opens the one connection that writes, with the durable settings enforced.
func openWriter(path string, serve bool) (conn, error) {
	raw, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		return conn{}, unusable("the database file cannot be opened", err)
	}
	c := conn{Conn: raw}
	c.SetBusyTimeout(10 * time.Second)
	if err := prepareDatabase(c, path, serve); err != nil {
		c.Close()
		return conn{}, err
	}
	return c, nil
}

func prepareDatabase(c conn, path string, serve bool) error {
	// The page size must be set before the journal mode, and only takes effect on a new file.
	version, err := checkOurs(c)
	if err != nil {
		return unusableUnlessKnown(err)
	}
	for _, pragma := range []string{
		"PRAGMA page_size = 8192",
		"PRAGMA journal_mode = WAL",
		"PRAGMA synchronous = FULL",
		"PRAGMA fullfsync = ON", // on macOS, where fsync alone does not reach the disk
		"PRAGMA checkpoint_fullfsync = ON",
		"PRAGMA wal_autocheckpoint = 8192", // pages: 64 MB
		"PRAGMA journal_size_limit = 134217728",
		"PRAGMA cache_size = -65536",
		"PRAGMA temp_store = MEMORY",
		"PRAGMA mmap_size = 0",
	} {
		if err := c.prep(pragma).exec(); err != nil {
			return unusableUnlessKnown(err)
		}
	}
	if version < schemaVersion() {
		if version > 0 && !serve && InUse(path) {
			return forebay.Errorf(forebay.CodeDatabaseUnusable, "an older Forebay is running on this database; stop it first")
		}
		if err := migrate(c); err != nil {
			return unusableUnlessKnown(err)
		}
	}
	// SQLite opens a file that it may not write to for reading, and says so at the first write.
	if err := c.prep("DELETE FROM audit WHERE no < 0").exec(); err != nil {
		return unusableUnlessKnown(err)
	}
	return checkDurable(c)
}

// checkDurable refuses to run on settings under which an acknowledged write could be lost.
func checkDurable(c conn) error {
	synchronous, err := c.pragma("synchronous")
	if err != nil {
		return err
	}
	var mode string
	if _, err := c.prep("PRAGMA journal_mode").one(func(r row) { mode = r.text(0) }); err != nil {
		return err
	}
	if synchronous < 2 || mode != "wal" {
		return forebay.Errorf(forebay.CodeDatabaseUnusable,
			"the database is not durable (journal_mode=%s, synchronous=%d; needs wal and 2): its file system may not support WAL", mode, synchronous)
	}
	return nil
}

func unusable(message string, err error) error {
	return forebay.Errorf(forebay.CodeDatabaseUnusable, "%s", message).Caused(err)
}

func unusableUnlessKnown(err error) error {
	var known *forebay.Error
	if errors.As(err, &known) {
		return err
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultNotADB, sqlite.ResultCorrupt:
		return unusable("the file is not a database, or is damaged", err)
	case sqlite.ResultReadOnly, sqlite.ResultPerm, sqlite.ResultAuth:
		return unusable("the database file, or its folder, is read-only", err)
	case sqlite.ResultFull:
		return unusable("the disk is full", err)
	case sqlite.ResultCantOpen, sqlite.ResultIOErr:
		return unusable("the database file cannot be read or written", err)
	case sqlite.ResultBusy:
		return unusable("the database is locked by another program", err)
	}
	return fmt.Errorf("open database: %w", err)
}

// read runs f on a read connection. f must be short: an open read keeps the WAL from shrinking.
func (s *Store) read(ctx context.Context, f func(conn) error) error {
	var c conn
	select {
	case c = <-s.readers:
	case <-s.writer.stopped:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.readers <- c }()
	if c.Conn == nil {
		opened, err := openReader(s.path)
		if err != nil {
			return domainError(err)
		}
		c = opened
	}
	start := time.Now()
	c.limit = func() error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(start) > maxReadTime {
			return forebay.Errorf(forebay.CodeUnavailable, "reading took too long; narrow the question")
		}
		return nil
	}
	return domainError(f(c))
}

// maxReadTime bounds a read: while it lasts the WAL cannot be reset.
const maxReadTime = 10 * time.Second

func openReader(path string) (conn, error) {
	raw, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return conn{}, err
	}
	c := conn{Conn: raw}
	c.SetBusyTimeout(10 * time.Second)
	for _, pragma := range []string{"PRAGMA query_only = ON", "PRAGMA cache_size = -8192"} {
		if err := c.prep(pragma).exec(); err != nil {
			return conn{}, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Check reports whether the database can be written to right now, by writing to it.
func (s *Store) Check(ctx context.Context) error {
	_, err := transact(ctx, s, stageChange, func(t *tx) (struct{}, error) {
		return struct{}{}, t.prep("INSERT INTO probes (no, at) VALUES (1, ?1) ON CONFLICT DO UPDATE SET at = ?1").int(t.now).exec()
	})
	return err
}

// names caches the numbers of tenants and queues, which never change.
type names struct {
	mu          sync.RWMutex
	tenants     map[string]int64
	queues      map[string]int64
	tenantNames map[int64]string
}

func now() int64 { return time.Now().UnixMilli() }

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func fromMillisOrNil(r row, i int) *time.Time {
	if r.isNull(i) {
		return nil
	}
	t := fromMillis(r.int(i))
	return &t
}

// InUse reports whether a serving process holds the database file.
func InUse(path string) bool {
	lock := flock.New(path + ".lock")
	if held, err := lock.TryLock(); err != nil || !held {
		return err == nil
	}
	lock.Unlock()
	return false
}
