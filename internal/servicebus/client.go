package servicebus

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
	"github.com/forebayhq/forebay/internal/servicebus/transactions"
)

// client is the state of one connection.
type client struct {
	*Endpoint
	conn *amqp.Conn
	log  *slog.Logger
	peer auth.Peer // checks what the client shows

	reserved reservations

	mu       sync.Mutex
	grants   map[string]*grant // by the path of their audience, in lower case
	granted  chan struct{}     // closed when the next one comes
	replies  []*replies        // links on which answers go
	sessions map[sessionKey]*heldSession
	running  sync.WaitGroup // what must be over before the connection is

	transactions *transactions.Connection
	transacting  *workers // one at a time keeps the order
	requesting   *workers // carry out requests to nodes
}

func newClient(e *Endpoint, conn *amqp.Conn) *client {
	c := &client{Endpoint: e, conn: conn, log: e.log, peer: e.verifier.From(addressOf(conn.RemoteAddr())), reserved: e.reserve(),
		grants: map[string]*grant{}, granted: make(chan struct{}), sessions: map[sessionKey]*heldSession{}, transactions: e.steps.Connect()}
	c.transacting, c.requesting = c.workers(1, &c.running), c.workers(maxRequests, &c.running)
	return c
}

func clientOf(conn *amqp.Conn) *client { return conn.Data.(*client) }

// closed waits for what the connection has begun.
func (c *client) closed() {
	c.running.Wait()
	c.reserved.release()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.grants {
		g.release()
	}
	c.grants = nil
}

// ctx ends with the connection.
func (c *client) ctx() context.Context { return c.conn.Context() }

// host is what the client calls the server, for texts of errors.
func (c *client) host() string {
	if open := c.conn.Open(); open != nil && open.Hostname != "" {
		return open.Hostname
	}
	return "localhost"
}

// failure says an error about a path as the client knows it.
func (c *client) failure(err error, path string) *failure {
	f, internal := failureOf(err, "sb://"+c.host()+"/"+path)
	if internal && c.ctx().Err() == nil {
		c.log.Error("a Service Bus operation failed", slog.String("entity", path), slog.Any("error", err))
	}
	return f
}

// maxGrants bounds the audiences of a connection. Clients put one for each entity that they use,
// and one for its management node.
const maxGrants = 10_000

// allow records what a token allows. A newer token for the same audience replaces the older.
func (c *client) allow(audience string, given auth.Grant) error {
	if err := countedIn(c.ctx()).BelongsTo(given.Caller.Tenant); err != nil {
		return err
	}
	g := &grant{Grant: given}
	g.held, g.release = c.verifier.Hold(c.ctx(), given)
	key := strings.ToLower(parseAddress(audience).path)
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.grants[key]
	if c.grants == nil || old == nil && len(c.grants) >= maxGrants {
		g.release()
		return fail(conditionFull, 403, "The connection has tokens for too many audiences.")
	}
	if len(c.grants) == 0 {
		c.reserved.move(g.tenant())
	}
	c.grants[key] = g
	close(c.granted)
	c.granted = make(chan struct{})
	if old != nil {
		old.release()
	}
	return nil
}

// grantFor returns a grant of the connection that allows an act on an entity. A token counts for
// everything below its audience.
func (c *client) grantFor(right forebay.Scope, path string) (*grant, error) {
	c.mu.Lock()
	g, _ := c.findGrant(right, path)
	c.mu.Unlock()
	if g == nil {
		return nil, c.unauthorized(right, path)
	}
	return g, nil
}

// findGrant returns a grant that allows an act on an entity, and whether there is any in force for
// the entity. The lock is held.
func (c *client) findGrant(right forebay.Scope, path string) (g *grant, covered bool) {
	for key := strings.ToLower(path); ; {
		if g := c.grants[key]; g != nil {
			if g.may(right, path) {
				return g, true
			}
			covered = covered || g.held.Err() == nil
		}
		if key == "" {
			return nil, covered
		}
		key = key[:max(0, strings.LastIndexByte(key, '/'))]
	}
}

// tokenTime is how long a link waits for its token.
const tokenTime = 20 * time.Second

// awaitGrant is grantFor for links that clients may attach before they put the token. Microsoft's
// SDK for Java does so up to 7.15 with links to management nodes.
func (c *client) awaitGrant(ctx context.Context, right forebay.Scope, path string) (*grant, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTime)
	defer cancel()
	for {
		c.mu.Lock()
		g, covered := c.findGrant(right, path)
		granted := c.granted
		c.mu.Unlock()
		switch {
		case g != nil:
			return g, nil
		case covered:
			return nil, c.unauthorized(right, path)
		}
		select {
		case <-granted:
		case <-ctx.Done():
			return nil, c.unauthorized(right, path)
		}
	}
}

// workers returns workers whose tasks belong to the connection. A task that panics ends it.
func (c *client) workers(most int, group *sync.WaitGroup) *workers {
	return &workers{most: most, group: group, log: c.log, failed: func() {
		c.conn.Close(&wire.Error{Condition: conditionInternal, Description: "internal error"})
	}}
}
