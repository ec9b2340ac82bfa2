package postgres

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
)

const (
	sqlLockPostgres = "SELECT pg_advisory_xact_lock(1180844409)" // applicationID: one transaction at a time
	sqlStart        = SQLNow + ", pg_backend_pid(), " + microseconds
	sqlArrived      = "SELECT " + microseconds
	// microseconds is the server's time, whatever a test says about the database's.
	microseconds = "(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint"
)

// Begin asks everything in one round trip. A connection that was lost while nobody used it
// shows now: nothing has happened then, and another is made.
func (c *Conn) Begin(b driver.BeginOptions) (now int64, err error) {
	if c.Pg != nil && !c.Pg.IsClosed() {
		// A copy must not go on without the lock that keeps others away, which is its connection's.
		if now, err = c.beginHere(b); !errors.Is(err, driver.ErrDisconnected) || errors.Is(err, os.ErrDeadlineExceeded) || !c.Shared {
			return now, err
		}
	}
	if err := c.connect(context.Background()); err != nil {
		return now, err
	}
	return c.beginHere(b)
}

// beginHere begins on a connection that there is.
func (c *Conn) beginHere(b driver.BeginOptions) (now int64, err error) {
	c.wrote = false
	c.forget()
	var backend, arrived, answered int64
	questions := append(make([]driver.PipelineQuery, 0, len(b.Pipeline)+5), driver.PipelineQuery{SQL: "BEGIN"},
		driver.PipelineQuery{SQL: sqlArrived, OnRow: func(r driver.Row) { arrived = r.Int(0) }})
	if b.Volatile {
		questions = append(questions, driver.PipelineQuery{SQL: "SET LOCAL synchronous_commit = off"})
	}
	if !b.Concurrent {
		questions = append(questions, driver.PipelineQuery{SQL: sqlLockPostgres})
	}
	start := sqlStart
	var values []func(int64)
	for _, q := range b.Pipeline {
		if q.Value != nil {
			start, values = start+", ("+q.SQL+")", append(values, q.Value)
		} else {
			questions = append(questions, q)
		}
	}
	questions = append(questions, c.prefetch(b.Prefetch)...)
	// The time comes last, so that whatever was found ready is ready by then.
	questions = append(questions, driver.PipelineQuery{SQL: start, OnRow: func(r driver.Row) {
		now, backend, answered = r.Int(0), r.Int(1), r.Int(2)
		for i, take := range values {
			take(r.Int(3 + i))
		}
	}})
	c.patience()
	before := time.Now()
	if err := c.ask(questions); err != nil {
		return 0, err
	}
	c.note(time.Since(before) - time.Duration(answered-arrived)*time.Microsecond)
	c.open = true
	if backend != c.backend {
		return 0, errPooled
	}
	c.patience() // anew: the lock may have taken most of it
	// The wait for the lock is no part of the way: only a quick answer tells the clocks'
	// difference. A slow one bounds it.
	if time.Since(before) < 50*time.Millisecond {
		c.clock.note(now, before)
	} else {
		c.clock.bound(now, before)
	}
	return now, nil
}
