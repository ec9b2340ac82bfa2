package store

import (
	"context"
	"errors"
	"os"
	"time"
)

const (
	sqlLockPostgres = "SELECT pg_advisory_xact_lock(1180844409)" // applicationID: one transaction at a time
	sqlStart        = sqlNow + ", pg_backend_pid()"
)

// begin asks everything in one round trip. A connection that was lost while nobody used it shows now: nothing
// has happened then, and another is made.
func (c *postgresConn) begin(b beginning) (now int64, err error) {
	if c.pg != nil && !c.pg.IsClosed() {
		// A copy must not go on without the lock that keeps others away, which is its connection's.
		if now, err = c.beginHere(b); !errors.Is(err, errDisconnected) || errors.Is(err, os.ErrDeadlineExceeded) || !c.shared {
			return now, err
		}
	}
	if err := c.connect(context.Background()); err != nil {
		return now, err
	}
	return c.beginHere(b)
}

// beginHere begins on a connection that there is.
func (c *postgresConn) beginHere(b beginning) (now int64, err error) {
	c.wrote = false
	var backend int64
	questions := append(make([]question, 0, len(b.questions)+3), question{sql: "BEGIN"})
	if !b.apart {
		questions = append(questions, question{sql: sqlLockPostgres})
	}
	questions = append(questions, b.questions...)
	questions = append(questions, c.askAhead(b.ahead)...)
	// The time comes last, so that whatever was found ready is ready by then.
	questions = append(questions, question{sql: sqlStart, answer: func(r row) { now, backend = r.int(0), r.int(1) }})
	c.patience()
	before := time.Now()
	if err := c.ask(questions); err != nil {
		return 0, err
	}
	c.open = true
	if backend != c.backend {
		return 0, errPooled
	}
	c.patience() // anew: the lock may have taken most of it
	// The wait for the lock is no part of the way: only a quick answer tells the clocks' difference. A
	// slow one bounds it.
	if time.Since(before) < 50*time.Millisecond {
		c.noteClock(now, before)
	} else {
		c.ahead.Store(min(max(c.ahead.Load(), now-time.Now().UnixMilli()), now-before.UnixMilli()))
	}
	return now, nil
}
