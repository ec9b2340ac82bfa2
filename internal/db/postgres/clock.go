package postgres

import (
	"sync/atomic"
	"time"
)

// clock estimates the server's time from this process's clock. Other goroutines may read it.
type clock struct {
	ahead atomic.Int64 // milliseconds by which the server's clock is ahead of ours
}

// now is the server's time, about.
func (c *clock) now() int64 { return time.Now().UnixMilli() + c.ahead.Load() }

// note takes in the server's answer to a question that was sent at before.
func (c *clock) note(server int64, before time.Time) {
	middle := before.Add(time.Since(before) / 2)
	c.ahead.Store(server - middle.UnixMilli())
}

// bound takes in an answer that came late. It does not tell the difference, but limits it.
func (c *clock) bound(server int64, before time.Time) {
	c.ahead.Store(min(max(c.ahead.Load(), server-time.Now().UnixMilli()), server-before.UnixMilli()))
}
