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

// Bounds of the connections to the endpoint. Those of a proxy all have its address.
const (
	maxConnections        = 1024
	maxAddressConnections = 256
	// authenticateTime is how long a connection may go without a call that was let in.
	authenticateTime = 20 * time.Second
	// maxRefused is how many calls of a connection may be refused, one after the other, before it is closed: of each that has a deadline
	// grpc-go keeps a timer until then.
	maxRefused = 100
	// After freeRefused of them each one more holds up its connection for refusalPause: to read headers and to refuse a
	// call takes the processor longer than to ask for it.
	freeRefused  = 10
	refusalPause = 25 * time.Millisecond
)

// connections accepts connections up to the bounds. One that is over them takes the place of the oldest that has had no call let in, so
// that connections which send nothing keep nobody out. If there is none it is closed at once.
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

// newConnections returns the bounds of a listener. A limit of 0 is maxConnections.
func newConnections(l net.Listener, limit int) *connections {
	return &connections{Listener: l, limit: min(cmp.Or(limit, maxConnections), maxConnections), authenticateTime: authenticateTime,
		open: map[string]*connection{}, addresses: map[string]int{}, anonymous: list.New()}
}

// connection is one that may be closed because of what its calls are.
type connection struct {
	net.Conn
	from    string
	all     *connections
	timer   *time.Timer
	place   *list.Element // in anonymous, guarded by all.mu; nil: a call was let in, or it is closed
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

// oldest returns the oldest connection that had no call let in, of an address or of all; nil: there is none.
func (c *connections) oldest(from string, ofAddress bool) *connection {
	for e := c.anonymous.Front(); e != nil; e = e.Next() {
		if conn := e.Value.(*connection); !ofAddress || conn.from == from {
			return conn
		}
	}
	return nil
}

// drain takes no more connections and ends those that had no call let in: the stop would wait for their handshakes.
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

// noteCall notes whether a call of a connection had a key that is known. It returns how long to leave the connection
// alone now. A known key's call that is refused for another reason holds up nothing: others may share the connection.
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
		// The call's own goroutine holds the connection, and is to answer first.
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

// known takes the connection out of those that make room. all.mu is held.
func (c *connection) known() {
	if c.place != nil {
		c.all.anonymous.Remove(c.place)
		c.place = nil
	}
}

// forget gives up its place. all.mu is held, under which the timer was set.
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
