package orchestrate

import (
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
)

// connections accepts connections up to the bounds; what is over them is closed at once.
type connections struct {
	net.Listener
	authenticateTime time.Duration

	mu        sync.Mutex
	open      map[string]*connection // by the client's address and port
	addresses map[string]int         // how many an address has
}

func newConnections(l net.Listener) *connections {
	return &connections{Listener: l, authenticateTime: authenticateTime, open: map[string]*connection{}, addresses: map[string]int{}}
}

// connection is one that may be closed because of what its calls are.
type connection struct {
	net.Conn
	from    string
	all     *connections
	timer   *time.Timer
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
	defer c.mu.Unlock()
	if len(c.open) >= maxConnections || c.addresses[from] >= maxAddressConnections {
		return nil
	}
	admitted := &connection{Conn: conn, from: from, all: c}
	admitted.timer = time.AfterFunc(c.authenticateTime, func() { _ = admitted.Close() })
	c.open[remote] = admitted
	c.addresses[from]++
	return admitted
}

// noteCall notes whether a call of a connection was let in.
func (c *connections) noteCall(remote string, letIn bool) {
	c.mu.Lock()
	conn := c.open[remote]
	c.mu.Unlock()
	switch {
	case conn == nil:
	case letIn:
		conn.timer.Stop()
		conn.refused.Store(0)
	case conn.refused.Add(1) == maxRefused:
		// The call's own goroutine holds the connection, and is to answer first.
		time.AfterFunc(time.Second, func() { _ = conn.Close() })
	}
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

func (c *connection) Close() error {
	c.once.Do(func() {
		c.all.mu.Lock() // under which the timer was set
		defer c.all.mu.Unlock()
		c.timer.Stop()
		delete(c.all.open, c.RemoteAddr().String())
		if c.all.addresses[c.from]--; c.all.addresses[c.from] == 0 {
			delete(c.all.addresses, c.from)
		}
	})
	return c.Conn.Close()
}
