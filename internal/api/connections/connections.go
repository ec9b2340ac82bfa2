// Package connections bounds how many HTTP connections are open at once, so that descriptors
// remain for the database, models and files.
//
// A connection is anonymous until a caller has authenticated on it. One address may have a share
// of the anonymous ones; its next one replaces its oldest. If all connections are in use, a new
// one replaces the oldest anonymous one, or else the one that is idle for longest. So a caller who
// sends a key at once is never shut out by callers without one.
package connections

import (
	"container/list"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// Set is the connections of a listener, or of several that share the limit.
type Set struct {
	limit      int // 0: none
	perAddress int // limit of anonymous ones

	mu        sync.Mutex
	open      int
	anonymous *list.List // of *Connection, oldest first
	addresses map[netip.Addr]int
	idle      *list.List // of *Connection that belong to a tenant and have no request, longest first
	tenants   map[string]int
}

// Connection is an accepted connection.
type Connection struct {
	net.Conn
	all     *Set
	address netip.Addr

	// The following are guarded by all.mu.
	tenant string        // tenant of its latest caller; "": no caller yet
	place  *list.Element // in anonymous or idle; nil: in neither
	closed bool
	last   bool // it closes after its current request
	begun  bool // it has had a request
}

// New returns the bounds of a process. The limit 0 means no limit.
func New(limit int) *Set {
	return &Set{
		limit: limit, perAddress: max(1, limit/4),
		anonymous: list.New(), idle: list.New(), addresses: map[netip.Addr]int{}, tenants: map[string]int{},
	}
}

// errTooManyConnections is the error for a tenant whose connections would leave too few for
// others.
var errTooManyConnections = forebay.Errorf(forebay.CodeTooManyRequests, "the tenant has too many connections open; try again")

// Listen returns a listener that enforces the limit. Connections above it are closed. An
// unencrypted one gets a 503 first.
func (all *Set) Listen(l net.Listener, encrypted bool) net.Listener {
	if all.limit == 0 {
		return l
	}
	return &listener{Listener: l, all: all, encrypted: encrypted}
}

// Listen returns a listener with a limit of connections, a quarter of it for one address. A new
// connection replaces the oldest one. It is for servers without API keys.
func Listen(l net.Listener, limit int) net.Listener {
	return New(limit).Listen(l, false)
}

type listener struct {
	net.Listener
	all       *Set
	encrypted bool
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.all.admit(accepted); c != nil {
			return c, nil
		}
		if !l.encrypted {
			refuse(accepted)
		}
		_ = accepted.Close()
	}
}

// refuse answers a connection above the limit.
func refuse(c net.Conn) {
	body := fmt.Sprintf(`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the server has too many connections; try again","code":%q}`+"\n",
		forebay.CodeTooManyRequests)
	// The answer fits into the socket's buffer.
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nRetry-After: 2\r\nConnection: close\r\n\r\n%s",
		len(body), body)
}

// admit makes room for a new connection. It returns nil if every other connection is serving a
// request of an authenticated caller.
func (all *Set) admit(accepted net.Conn) *Connection {
	c := &Connection{Conn: accepted, all: all}
	if at, err := netip.ParseAddrPort(accepted.RemoteAddr().String()); err == nil {
		c.address = at.Addr().Unmap()
	}
	var victim *Connection
	all.mu.Lock()
	defer func() {
		all.mu.Unlock()
		if victim != nil {
			_ = victim.Conn.Close()
		}
	}()
	switch {
	case all.addresses[c.address] >= all.perAddress:
		victim = oldest(all.anonymous, func(other *Connection) bool { return other.address == c.address })
	case all.open >= all.limit:
		if victim = oldest(all.anonymous, nil); victim == nil {
			victim = oldest(all.idle, nil)
		}
		if victim == nil {
			return nil
		}
	}
	if victim != nil {
		all.forget(victim)
	}
	all.open++
	all.addresses[c.address]++
	c.place = all.anonymous.PushBack(c)
	return c
}

// oldest returns the first connection of a list for which fits is true.
func oldest(in *list.List, fits func(*Connection) bool) *Connection {
	for e := in.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*Connection); fits == nil || fits(c) {
			return c
		}
	}
	return nil
}

// forget removes a connection from the lists.
func (all *Set) forget(c *Connection) {
	if c.closed {
		return
	}
	c.closed = true
	all.open--
	all.unplace(c)
	if c.tenant == "" {
		all.count(c.address, -1)
	} else {
		countDown(all.tenants, c.tenant)
	}
}

func (all *Set) count(address netip.Addr, n int) {
	if all.addresses[address] += n; all.addresses[address] == 0 {
		delete(all.addresses, address)
	}
}

func countDown(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

func (all *Set) unplace(c *Connection) {
	if c.place == nil {
		return
	}
	if c.tenant == "" {
		all.anonymous.Remove(c.place)
	} else {
		all.idle.Remove(c.place)
	}
	c.place = nil
}

func (c *Connection) Close() error {
	c.all.mu.Lock()
	c.all.forget(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// BelongsTo records that a caller of the tenant uses the connection. A tenant may have three times
// as many connections as it leaves for others. Above that, one of its idle connections is ended,
// or the request is refused.
func (c *Connection) BelongsTo(tenant string) error {
	if c == nil {
		return nil
	}
	all := c.all
	var victim *Connection
	all.mu.Lock()
	defer func() {
		all.mu.Unlock()
		if victim != nil {
			_ = victim.Conn.Close()
		}
	}()
	if c.tenant == tenant || c.closed {
		return nil
	}
	known := 0 // anonymous ones can be replaced
	for _, n := range all.tenants {
		known += n
	}
	if n := all.tenants[tenant] + 1; n > 1 && n > 3*(all.limit-known-1) {
		if victim = oldest(all.idle, func(other *Connection) bool { return other.tenant == tenant }); victim == nil {
			c.last = true
			return errTooManyConnections
		}
		all.forget(victim)
	}
	all.unplace(c)
	if c.tenant == "" {
		all.count(c.address, -1)
	} else {
		countDown(all.tenants, c.tenant)
	}
	c.tenant = tenant
	all.tenants[tenant]++
	return nil
}

// CloseWhenIdle ends the connection after its current request.
func (c *Connection) CloseWhenIdle() {
	if c == nil {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.last = true
}

// changed records that a request begins or ends on a connection.
func (c *Connection) changed(state http.ConnState) {
	all := c.all
	all.mu.Lock()
	over := c.last && state == http.StateIdle
	c.begun = true
	if !c.closed && c.tenant != "" {
		all.unplace(c)
		if state == http.StateIdle {
			c.place = all.idle.PushBack(c)
		}
	}
	all.mu.Unlock()
	if over {
		_ = c.Close()
	}
}

// EndUnused ends the connections on which no request has begun. net/http would wait seconds for
// them.
func (all *Set) EndUnused() {
	var unused []*Connection
	all.mu.Lock()
	for e := all.anonymous.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*Connection); !c.begun {
			unused = append(unused, c)
		}
	}
	all.mu.Unlock()
	for _, c := range unused {
		_ = c.Close()
	}
}

type contextKey struct{}

// Of returns the connection of a request, or nil if it is not counted.
func Of(ctx context.Context) *Connection {
	c, _ := ctx.Value(contextKey{}).(*Connection)
	return c
}

// Without returns a context of no counted connection, for a request that came over none.
func Without(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, (*Connection)(nil))
}

// counted returns the accepted connection below any encryption, or nil if it is not counted.
func counted(c net.Conn) *Connection {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	known, _ := c.(*Connection)
	return known
}

// ConnContext is for http.Server.ConnContext. Of finds the connection in its context.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if known := counted(c); known != nil {
		return context.WithValue(ctx, contextKey{}, known)
	}
	return ctx
}

// ConnState is for http.Server.ConnState.
func ConnState(c net.Conn, state http.ConnState) {
	if known := counted(c); known != nil && (state == http.StateActive || state == http.StateIdle) {
		known.changed(state)
	}
}
