package api

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

// connections bounds how many connections are open at once, so that descriptors are left for the
// database, models and files. Connections that no caller has authenticated on yet are anonymous: one
// address has a share of them, and whoever comes when it is used up takes the place of the one that
// is anonymous for longest. A caller who sends a key at once is so never shut out by others who do not.
type connections struct {
	limit      int // 0: none
	perAddress int // anonymous ones

	mu        sync.Mutex
	open      int
	anonymous *list.List // of *connection, oldest first
	addresses map[netip.Addr]int
	idle      *list.List // of *connection that belong to a tenant and have no request, longest first
	tenants   map[string]int
}

// connection is one that was accepted.
type connection struct {
	net.Conn
	all     *connections
	address netip.Addr

	// Guarded by all.mu.
	tenant string        // of its latest caller; "": none yet
	place  *list.Element // in anonymous or idle; nil: in neither
	closed bool
	last   bool // it ends with its request
	begun  bool // it has had a request
}

// newConnections returns the bounds for a process. A limit of 0 is none.
func newConnections(limit int) *connections {
	return &connections{
		limit: limit, perAddress: max(1, limit/4),
		anonymous: list.New(), idle: list.New(), addresses: map[netip.Addr]int{}, tenants: map[string]int{},
	}
}

// errTooManyConnections is what a tenant is told whose connections would leave too few for others.
var errTooManyConnections = forebay.Errorf(forebay.CodeTooManyRequests, "the tenant has too many connections open; try again")

// Listener returns a listener that keeps to the limit of connections. Those above it are answered with
// 503, if they are not encrypted, and closed.
func (a *API) Listener(l net.Listener, encrypted bool) net.Listener {
	if a.connections.limit == 0 {
		return l
	}
	return &boundedListener{Listener: l, all: a.connections, encrypted: encrypted}
}

// BoundedListener returns a listener with so many connections at once, a quarter of them for one address.
// The oldest makes room for a new one. It is for what has no keys.
func BoundedListener(l net.Listener, limit int) net.Listener {
	return &boundedListener{Listener: l, all: newConnections(limit)}
}

type boundedListener struct {
	net.Listener
	all       *connections
	encrypted bool
}

func (l *boundedListener) Accept() (net.Conn, error) {
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

// refuse answers a connection that there is no place for.
func refuse(c net.Conn) {
	body := fmt.Sprintf(`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the server has too many connections; try again","code":%q}`+"\n",
		forebay.CodeTooManyRequests)
	// It fits into the socket's buffer.
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: %s\r\nContent-Length: %d\r\nRetry-After: %s\r\nConnection: close\r\n\r\n%s",
		problemType, len(body), retryAfterSeconds, body)
}

// admit makes a place for a new connection. It returns nil when there is none: all have requests of
// callers who are known.
func (all *connections) admit(accepted net.Conn) *connection {
	c := &connection{Conn: accepted, all: all}
	if at, err := netip.ParseAddrPort(accepted.RemoteAddr().String()); err == nil {
		c.address = at.Addr().Unmap()
	}
	var victim *connection
	all.mu.Lock()
	defer func() {
		all.mu.Unlock()
		if victim != nil {
			_ = victim.Conn.Close()
		}
	}()
	switch {
	case all.addresses[c.address] >= all.perAddress:
		victim = oldest(all.anonymous, func(other *connection) bool { return other.address == c.address })
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

// oldest returns the first connection of a list that fits.
func oldest(in *list.List, fits func(*connection) bool) *connection {
	for e := in.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*connection); fits == nil || fits(c) {
			return c
		}
	}
	return nil
}

// forget gives up a connection's place.
func (all *connections) forget(c *connection) {
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

func (all *connections) count(address netip.Addr, n int) {
	if all.addresses[address] += n; all.addresses[address] == 0 {
		delete(all.addresses, address)
	}
}

func countDown(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

func (all *connections) unplace(c *connection) {
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

func (c *connection) Close() error {
	c.all.mu.Lock()
	c.all.forget(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// belongsTo says that a caller of the tenant uses the connection. A tenant may have three times as many
// as it leaves free for others; what goes beyond ends one of its idle ones, or is refused.
func (c *connection) belongsTo(tenant string) error {
	if c == nil {
		return nil
	}
	all := c.all
	var victim *connection
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
	known := 0 // anonymous ones make room
	for _, n := range all.tenants {
		known += n
	}
	if n := all.tenants[tenant] + 1; n > 1 && n > 3*(all.limit-known-1) {
		if victim = oldest(all.idle, func(other *connection) bool { return other.tenant == tenant }); victim == nil {
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

// closeWhenIdle ends the connection after the request that it has.
func (c *connection) closeWhenIdle() {
	if c == nil {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.last = true
}

// changed notes that a connection has a request, or has none any more.
func (c *connection) changed(state http.ConnState) {
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

// endUnused ends the connections on which no request has begun: for seconds net/http would wait for one.
func (all *connections) endUnused() {
	var unused []*connection
	all.mu.Lock()
	for e := all.anonymous.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*connection); !c.begun {
			unused = append(unused, c)
		}
	}
	all.mu.Unlock()
	for _, c := range unused {
		_ = c.Close()
	}
}

type connectionKey struct{}

// connectionOf returns the connection of a request, nil if it is not counted.
func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

// counted returns the connection that was accepted, below its encryption; nil if it is not counted.
func counted(c net.Conn) *connection {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	known, _ := c.(*connection)
	return known
}

func connContext(ctx context.Context, c net.Conn) context.Context {
	if known := counted(c); known != nil {
		return context.WithValue(ctx, connectionKey{}, known)
	}
	return ctx
}

func connState(c net.Conn, state http.ConnState) {
	if known := counted(c); known != nil && (state == http.StateActive || state == http.StateIdle) {
		known.changed(state)
	}
}
