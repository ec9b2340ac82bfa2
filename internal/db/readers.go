package db

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/turns"
)

// maxReaders bounds the read connections; on SQLite each holds its own page cache.
const maxReaders = 4

// readers are connections for reading. Tenants use them in rotation, and one of them is left to
// the others: else somebody who reads much, or slowly, would have everybody wait.
type readers struct {
	connect func(context.Context) (driver.Conn, error)
	line    *turns.Line
	places  chan struct{} // one for each connection that is not in use, opened or not
	mu      sync.Mutex
	idle    []driver.Conn // opened ones; the last one was used last
}

func newReaders(connect func(context.Context) (driver.Conn, error)) *readers {
	r := &readers{connect: connect, line: turns.NewLine(maxReaders, maxReaders-1), places: make(chan struct{}, maxReaders)}
	for range maxReaders {
		r.places <- struct{}{}
	}
	return r
}

// take returns the connection that was used last, for it has most in its caches. It has no driver
// where all that are open are in use.
func (r *readers) take() (c driver.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.idle) - 1; last >= 0 {
		c, r.idle = r.idle[last], r.idle[:last]
	}
	return c
}

// put gives back what take returned, or what was opened in its place.
func (r *readers) put(c driver.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Driver != nil {
		r.idle = append(r.idle, c)
	}
	r.places <- struct{}{}
}

// close waits for the reads under way. Nil readers are closed.
func (r *readers) close() (err error) {
	if r == nil {
		return nil
	}
	for range maxReaders {
		<-r.places
	}
	for _, c := range r.idle {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Read runs f on a read connection. f must be short, for on SQLite an open read keeps the WAL
// from shrinking. It runs again on a new connection if the one that it got turns out to be lost
// before a row came.
func (s *DB) Read(ctx context.Context, f func(driver.Conn) error) error {
	return s.readBy(ctx, s.readers, f)
}

// Search is read for what is no look along an index.
func (s *DB) Search(ctx context.Context, f func(driver.Conn) error) error {
	if s.Searchers == nil {
		return s.Read(ctx, f)
	}
	return s.readBy(ctx, s.Searchers, f)
}

func (s *DB) readBy(ctx context.Context, r *readers, f func(driver.Conn) error) error {
	tenant := turns.Tenant(ctx)
	if err := r.line.Enter(ctx, tenant); err != nil {
		return err
	}
	defer r.line.Leave(tenant)
	select {
	case <-r.places:
	case <-s.Writer.Stopped:
		return ErrClosed
	}
	c := r.take()
	defer func() { r.put(c) }()
	for {
		used := c.Driver != nil
		if !used {
			opened, err := r.connect(ctx)
			if err != nil {
				return err
			}
			c = opened
		}
		gotRow := false
		err := readFor(ctx, c, &gotRow, f)
		if !errors.Is(err, driver.ErrDisconnected) {
			return c.UserError(err)
		}
		why := c.UserError(err)
		c.Close() // it is of no use any more
		c = driver.Conn{}
		if !used || gotRow { // f may have kept what it got
			return why
		}
	}
}

// maxReadTime bounds a read: while it lasts the WAL cannot be reset.
const maxReadTime = 10 * time.Second

func readFor(ctx context.Context, c driver.Conn, gotRow *bool, f func(driver.Conn) error) error {
	c.GotRow = gotRow
	start := time.Now()
	c.Limit = func() error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(start) > maxReadTime {
			return forebay.Errorf(forebay.CodeUnavailable, "reading took too long; narrow the question")
		}
		return nil
	}
	return f(c)
}
