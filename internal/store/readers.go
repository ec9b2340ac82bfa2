package store

import (
	"context"
	"errors"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/turns"
)

// maxReaders bounds the read connections; on SQLite each holds its own page cache.
const maxReaders = 4

// readers are connections for reading. Tenants use them in rotation, and one of them is left to the others: else
// somebody who reads much, or slowly, would have everybody wait.
type readers struct {
	connect func(context.Context) (conn, error)
	line    *turns.Line
	idle    chan conn // those without a driver are opened on demand
}

func newReaders(connect func(context.Context) (conn, error)) *readers {
	r := &readers{connect: connect, line: turns.NewLine(maxReaders, maxReaders-1), idle: make(chan conn, maxReaders)}
	for range maxReaders {
		r.idle <- conn{}
	}
	return r
}

// close waits for the reads under way. Nil readers are closed.
func (r *readers) close() (err error) {
	if r == nil {
		return nil
	}
	for range maxReaders {
		if c := <-r.idle; c.driver != nil {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// read runs f on a read connection. f must be short, for on SQLite an open read keeps the WAL from
// shrinking. It runs again on a new connection if the one that it got turns out to be lost before a row came.
func (s *DB) read(ctx context.Context, f func(conn) error) error {
	return s.readBy(ctx, s.readers, f)
}

// search is read for what is no look along an index.
func (s *DB) search(ctx context.Context, f func(conn) error) error {
	if s.searchers == nil {
		return s.read(ctx, f)
	}
	return s.readBy(ctx, s.searchers, f)
}

func (s *DB) readBy(ctx context.Context, r *readers, f func(conn) error) error {
	tenant := turns.Tenant(ctx)
	if err := r.line.Enter(ctx, tenant); err != nil {
		return err
	}
	defer r.line.Leave(tenant)
	var c conn
	select {
	case c = <-r.idle:
	case <-s.writer.stopped:
		return errClosed
	}
	defer func() { r.idle <- c }()
	for {
		used := c.driver != nil
		if !used {
			opened, err := r.connect(ctx)
			if err != nil {
				return err
			}
			c = opened
		}
		gotRow := false
		err := readFor(c, ctx, &gotRow, f)
		if !errors.Is(err, errDisconnected) {
			return c.domainError(err)
		}
		why := c.domainError(err)
		c.Close() // it is of no use any more
		c = conn{}
		if !used || gotRow { // f may have kept what it got
			return why
		}
	}
}

// maxReadTime bounds a read: while it lasts the WAL cannot be reset.
const maxReadTime = 10 * time.Second

func readFor(c conn, ctx context.Context, gotRow *bool, f func(conn) error) error {
	c.gotRow = gotRow
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
	return f(c)
}
