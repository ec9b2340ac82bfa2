package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/jackc/pgx/v5/pgconn"
)

// Conn is a connection to PostgreSQL. It speaks the extended protocol with prepared statements and
// binary values. An error may break the connection; the next transaction then makes a new one.
type Conn struct {
	latency
	wire
	prefetcher
	strands
	Target     *Target
	statements map[string]*statement // by their text
	pending    pending               // statements of the transaction that are not sent yet
	result     answer                // of the last statement
	clock      clock
	retry      time.Time // no new connection is tried before
	backoff    time.Duration
	open       bool   // a transaction is
	Shared     bool   // its presence is shared: see Present
	Answers    string // which requests this process answers: see Announce
	reader     bool   // for reading only
	backend    int64  // the server's process behind the connection, which must stay the same
}

// What one transaction or one read may take before its connection is given up: the server, or the
// network to it, has gone. It is longer than the server lets a transaction wait for its client.
const (
	postgresPatience = 30 * time.Second
	PostgresDial     = 10 * time.Second
	maxReconnectWait = 2 * time.Second
)

const (
	SQLNow = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
)

// Connect connects to a server.
func Connect(ctx context.Context, target *Target) (*Conn, error) {
	c := &Conn{Target: target}
	c.allowed = postgresPatience
	return c, c.connect(ctx)
}

func (c *Conn) connect(ctx context.Context) error {
	if err := sleep.For(ctx, time.Until(c.retry)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, PostgresDial)
	defer cancel()
	target := c.Target.Copy()
	target.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			c.warning = n.Code + " " + n.Message
		}
	}
	pg, err := Dial(ctx, target)
	if err != nil {
		c.backoff = min(max(2*c.backoff, 50*time.Millisecond), maxReconnectWait)
		c.retry = time.Now().Add(c.backoff)
		return fmt.Errorf("%w: %w", driver.ErrDisconnected, err)
	}
	c.Pg, c.statements, c.open, c.backoff, c.idle = pg, map[string]*statement{}, false, 0, nil
	c.pending.forget()
	if c.Shared {
		if err := c.Present(SharedPresence); err != nil {
			c.Close() // until the copy is over
			return err
		}
	}
	if err := c.Announce(); err != nil {
		return err
	}
	if c.backend, err = c.millis(sqlBackend); err != nil {
		return err
	}
	return c.measureClock()
}

// measureClock learns how far the server's clock is ahead of ours.
func (c *Conn) measureClock() error {
	before := time.Now()
	server, err := c.millis(SQLNow)
	if err == nil {
		c.clock.note(server, before)
	}
	return err
}

// sqlAssure has the commit of a transaction that only read wait as one that wrote does, until
// the standbys have what it saw. It writes a message that nobody reads.
const sqlAssure = "SELECT pg_logical_emit_message(true, 'forebay', '')"

// EnsureDurable has the commit say that what the transaction saw is as safe as what it wrote. A
// repeat of a request whose outcome was unknown finds rows that are committed here and that no
// standby has yet.
func (c *Conn) EnsureDurable() error {
	if c.wrote {
		return nil
	}
	for _, g := range c.pending.groups {
		if plainInsert.MatchString(g.s.original) { // it adds a row or fails; one that selects what it adds may add none
			return nil
		}
	}
	s, err := c.Prepare(sqlAssure)
	if err != nil {
		return err
	}
	c.pending.groups = append(c.pending.groups, &group{s: s.(*statement), rows: [][][]byte{nil}})
	c.pending.count++
	return nil
}

// Commit sends what waits with it. A failover may undo a commit that the server answers with a
// warning. Its wait for a standby ended early; the server then warns and says COMMIT all the
// same.
func (c *Conn) Commit() error {
	if err := c.unused(); err != nil {
		return err
	}
	c.forget()
	if len(c.pending.groups) == 0 {
		c.open = false
		return c.ExecSimple("COMMIT")
	}
	commit, err := c.Prepare("COMMIT")
	if err != nil {
		return err
	}
	c.warning = ""
	err = c.flush(commit.(*statement), nil)
	c.open = false
	if err != nil {
		return err
	}
	return committedBy(c.result.tag, c.result.warning)
}

func (c *Conn) Rollback() error {
	if c.Pg == nil || c.Pg.IsClosed() || c.Pg.TxStatus() == 'I' {
		return nil
	}
	c.open = false
	c.forget()
	c.pending.forget()
	return c.ExecSimple("ROLLBACK")
}

// Now asks the server on a connection for reading, which decides by it what a status is.
func (c *Conn) Now() int64 {
	if c.reader {
		if server, err := c.millis(SQLNow); err == nil {
			return server
		}
	}
	return c.clock.now()
}

func (c *Conn) Arrays() bool { return true }

func (c *Conn) Close() error {
	if c.Pg == nil || c.Pg.IsClosed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.Pg.Close(ctx)
}
