package db

import (
	"context"
	"sync/atomic"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// A checkpoint copies what the WAL holds into the database file. Left to itself SQLite makes it
// within a commit, once the WAL is long enough, and everybody waits for the copying of many
// megabytes. So a goroutine with a connection of its own copies while the writer goes on. The
// writer then copies what it has added meanwhile, which is little. With the next transaction
// the WAL begins anew.

const (
	// walPages is how long the WAL becomes, about, before it is copied: 32 MB.
	walPages = 4096
	// firstCommits is after how many commits the first look at the WAL is due. How long it is then
	// tells when the next one is.
	firstCommits = 64
	// mostCommits bounds what little ones make of that, in case they are followed by large ones.
	mostCommits = 4 * firstCommits
)

// sqlAutoCheckpoint has the writer make a whole checkpoint by itself where the goroutine does
// not keep up, at 128 MB.
const sqlAutoCheckpoint = "PRAGMA wal_autocheckpoint = 16384"

// checkpoints empty the WAL of a SQLite file. The nil checkpoints do nothing, for PostgreSQL
// has its own.
type checkpoints struct {
	connect func(context.Context) (driver.Conn, error)
	pages   int64 // of the WAL, from which on it is copied
	commits int   // of the writer since the goroutine was last woken
	every   atomic.Int64
	wake    chan struct{}
	rest    atomic.Bool // the writer is to copy what is left
	before  int64       // how long the WAL was at the last look
}

func newCheckpoints(connect func(context.Context) (driver.Conn, error)) *checkpoints {
	c := &checkpoints{connect: connect, pages: walPages, wake: make(chan struct{}, 1)}
	c.every.Store(firstCommits)
	return c
}

// startCheckpoints starts the goroutine.
func (s *DB) startCheckpoints() error {
	if s.file == nil {
		return nil
	}
	if err := s.Writer.Conn.Prep(sqlAutoCheckpoint).Each(nil); err != nil {
		return s.Writer.Conn.UserError(err)
	}
	c, done := newCheckpoints(func(ctx context.Context) (driver.Conn, error) { return openCheckpointer(ctx, s) }), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	s.Writer.checkpoints = c
	go func() {
		defer close(done)
		c.run(ctx)
	}()
	s.endCheckpoints = func() {
		cancel()
		<-done
	}
	return nil
}

// openCheckpointer opens a connection whose checkpoints are durable.
func openCheckpointer(ctx context.Context, s *DB) (driver.Conn, error) {
	c, err := s.connect(ctx)
	for _, pragma := range []string{"PRAGMA synchronous = FULL", "PRAGMA checkpoint_fullfsync = ON"} {
		if err == nil {
			if err = c.Prep(pragma).Each(nil); err != nil {
				c.Close()
			}
		}
	}
	return c, err
}

// committed counts a commit of the writer.
func (c *checkpoints) committed() {
	if c == nil {
		return
	}
	if c.commits++; int64(c.commits) < c.every.Load() {
		return
	}
	select {
	case c.wake <- struct{}{}:
		c.commits = 0
	default: // it is still at work
	}
}

// run makes a checkpoint whenever it is due, until ctx ends.
func (c *checkpoints) run(ctx context.Context) {
	var own driver.Conn
	defer func() {
		if own.Driver != nil {
			own.Close()
		}
	}()
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
		var err error
		if own.Driver == nil {
			if own, err = c.connect(ctx); err != nil {
				own = driver.Conn{} // the next time, or the writer by itself
				continue
			}
		}
		if err := c.copy(own); err != nil {
			own.Close()
			own = driver.Conn{}
		}
	}
}

// copy makes one checkpoint beside the writer, and has that make the rest.
func (c *checkpoints) copy(own driver.Conn) error {
	var pages int64
	if err := own.Prep(sqlCheckpoint).Each(func(r driver.Row) error {
		pages = r.Int(1)
		return nil
	}); err != nil {
		return err
	}
	grown := pages - c.before
	if grown <= 0 { // it has begun anew
		grown = pages
	}
	every := c.every.Load()
	c.every.Store(min(max(every*c.pages/max(grown, 1), 1), 2*every, mostCommits))
	c.before = pages
	if pages >= c.pages/2 {
		c.rest.Store(true)
	}
	return nil
}

// finish has the writer copy what is left, between two of its transactions. An error means that
// the WAL goes on.
func (c *checkpoints) finish(writer driver.Conn) {
	if c != nil && c.rest.CompareAndSwap(true, false) {
		_ = writer.Prep(sqlCheckpoint).Each(nil)
	}
}
