package durabletask

import (
	"cmp"
	"container/list"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
)

// Bounds of the connections. All connections of a proxy have the proxy's address.
const (
	maxConnections        = 1024
	maxAddressConnections = 256
	// authenticateTime is how long a connection may stay open without an admitted call.
	authenticateTime = 20 * time.Second
	// maxRefused is how many calls in a row a connection may have refused before it is closed.
	// grpc-go keeps a timer for each refused call until the call's deadline.
	maxRefused = 100
	// After freeRefused refused calls each further one delays its connection by refusalPause.
	// Reading headers and refusing a call costs more processor time than making the call.
	freeRefused  = 10
	refusalPause = 25 * time.Millisecond
)

// connections accepts connections within the bounds. A connection over the bound replaces the
// oldest one without an admitted call, so that silent connections keep nobody out. If there is
// none, the new connection is closed.
type connections struct {
	net.Listener
	limit            int
	authenticateTime time.Duration

	mu        sync.Mutex
	open      map[string]*connection // by the client's address and port
	addresses map[string]int         // how many an address has
	anonymous *list.List             // of *connection that had no call let in, oldest first
	drained   bool                   // no more are taken
}

// newConnections bounds the connections of a listener. A limit of 0 is maxConnections.
func newConnections(l net.Listener, limit int) *connections {
	return &connections{Listener: l, limit: min(cmp.Or(limit, maxConnections), maxConnections), authenticateTime: authenticateTime,
		open: map[string]*connection{}, addresses: map[string]int{}, anonymous: list.New()}
}

// connection is a connection that may be closed because of its calls.
type connection struct {
	net.Conn
	from  string
	all   *connections
	timer *time.Timer
	// place is in anonymous, guarded by all.mu. Nil: a call was admitted, or it is closed.
	place   *list.Element
	refused atomic.Int64
	once    sync.Once
}

func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := c.admit(conn); admitted != nil {
			return admitted, nil
		}
		_ = conn.Close()
	}
}

func (c *connections) admit(conn net.Conn) *connection {
	remote := conn.RemoteAddr().String()
	from, _, err := net.SplitHostPort(remote)
	if err != nil {
		from = remote
	}
	c.mu.Lock()
	var victim *connection
	defer func() {
		c.mu.Unlock()
		if victim != nil {
			_ = victim.Conn.Close()
		}
	}()
	if c.drained {
		return nil
	}
	perAddress := min(maxAddressConnections, max(1, c.limit*3/4))
	if ofAddress := c.addresses[from] >= perAddress; ofAddress || len(c.open) >= c.limit {
		if victim = c.oldest(from, ofAddress); victim == nil {
			return nil
		}
		victim.once.Do(victim.forget)
	}
	admitted := &connection{Conn: conn, from: from, all: c}
	admitted.timer = time.AfterFunc(c.authenticateTime, func() { _ = admitted.Close() })
	c.open[remote] = admitted
	c.addresses[from]++
	admitted.place = c.anonymous.PushBack(admitted)
	return admitted
}

// oldest returns the oldest connection without an admitted call, of one address or of all; nil:
// there is none.
func (c *connections) oldest(from string, ofAddress bool) *connection {
	for e := c.anonymous.Front(); e != nil; e = e.Next() {
		if conn := e.Value.(*connection); !ofAddress || conn.from == from {
			return conn
		}
	}
	return nil
}

// drain accepts no more connections and closes those without an admitted call. The stop would
// wait for their handshakes.
func (c *connections) drain() {
	var unused []*connection
	c.mu.Lock()
	c.drained = true
	for e := c.anonymous.Front(); e != nil; e = e.Next() {
		unused = append(unused, e.Value.(*connection))
	}
	c.mu.Unlock()
	for _, conn := range unused {
		_ = conn.Close()
	}
}

// noteCall notes whether a call had a known key, and returns how long to delay its connection. A
// refused call with a known key delays nothing: others may share the connection.
func (c *connections) noteCall(remote string, known bool) time.Duration {
	c.mu.Lock()
	conn := c.open[remote]
	if conn != nil && known {
		conn.known()
	}
	c.mu.Unlock()
	if conn == nil {
		return 0
	}
	if known {
		conn.timer.Stop()
		conn.refused.Store(0)
		return 0
	}
	refused := conn.refused.Add(1)
	if refused == maxRefused {
		// The call's own goroutine holds the connection and has to answer first.
		time.AfterFunc(time.Second, func() { _ = conn.Close() })
	}
	if refused <= freeRefused {
		return 0
	}
	return refusalPause
}

// hangUp closes the connection of a call.
func (c *connections) hangUp(ctx context.Context) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return
	}
	c.mu.Lock()
	conn := c.open[from.Addr.String()]
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}

// trusts reports whether a key was accepted on the connection of a call.
func (c *connections) trusts(ctx context.Context) bool {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.open[from.Addr.String()]
	return conn != nil && conn.place == nil
}

// known removes the connection from those that may be replaced. all.mu must be held.
func (c *connection) known() {
	if c.place != nil {
		c.all.anonymous.Remove(c.place)
		c.place = nil
	}
}

// forget removes the connection. all.mu must be held; the timer was set under it.
func (c *connection) forget() {
	c.timer.Stop()
	c.known()
	delete(c.all.open, c.RemoteAddr().String())
	if c.all.addresses[c.from]--; c.all.addresses[c.from] == 0 {
		delete(c.all.addresses, c.from)
	}
}

func (c *connection) Close() error {
	c.all.mu.Lock()
	c.once.Do(c.forget)
	c.all.mu.Unlock()
	return c.Conn.Close()
}
