package pgtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy is a network between clients and a server that can fail.
type Proxy struct {
	target   string // host:port
	listener net.Listener
	running  sync.WaitGroup
	ctx      context.Context // until Close
	stop     context.CancelFunc

	trips atomic.Int64
	delay atomic.Int64 // of what clients send, in nanoseconds

	mu    sync.Mutex
	cut   bool
	flow  chan struct{} // closed while bytes flow
	conns map[net.Conn]bool
}

// NewProxy starts a proxy in front of the server of that URL, for one test.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal("the server's URL cannot be read")
	}
	target := u.Host
	if u.Port() == "" {
		target = net.JoinHostPort(u.Hostname(), "5432")
	}
	p := &Proxy{target: target, flow: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.flow)
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.ctx, p.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	p.running.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// URL returns the database's URL with the proxy's address in it.
func (p *Proxy) URL(database string) string {
	u, err := url.Parse(database)
	if err != nil {
		return ""
	}
	u.Host = p.listener.Addr().String()
	return u.String()
}

// Cut resets all connections and every new one, like a machine that refuses them.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.breakAll()
}

// Stall holds back all bytes in both directions, and the ends of connections too. It is like a
// network that drops everything: neither side is told.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flow:
		p.flow = make(chan struct{})
	default: // stalled already
	}
}

// Delay has what clients send arrive that much later: the server is that far away, there and back.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Heal ends a Cut or a Stall. Bytes that were held back arrive now.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	select {
	case <-p.flow:
	default:
		close(p.flow)
	}
}

// Close closes the proxy and its connections.
func (p *Proxy) Close() {
	p.stop()
	p.listener.Close()
	p.mu.Lock()
	p.breakAll()
	p.mu.Unlock()
	p.running.Wait()
}

// breakAll resets all connections. The caller holds mu.
func (p *Proxy) breakAll() {
	for conn := range p.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, not an orderly end; the connection may be gone
		}
		conn.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.add(client) {
		return
	}
	defer p.remove(client)
	if p.await() != nil { // nobody can connect through a stalled network either
		return
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(p.ctx, "tcp", p.target)
	if err != nil || !p.add(server) {
		return
	}
	defer p.remove(server)
	var both sync.WaitGroup
	var asked atomic.Bool // the client spoke last
	both.Go(func() {
		p.pump(server, client, func() time.Duration {
			if !asked.Swap(true) {
				p.trips.Add(1)
			}
			return time.Duration(p.delay.Load())
		})
	})
	both.Go(func() { p.pump(client, server, func() time.Duration { asked.Store(false); return 0 }) })
	both.Wait()
}

// RoundTrips returns how often a client has sent something after the server had, over all
// connections.
func (p *Proxy) RoundTrips() int64 { return p.trips.Load() }

// passage is what was read from one side and is under way to the other.
type passage struct {
	bytes []byte
	due   time.Time // when it arrives
	end   error     // of the reading, after the bytes; nil: it goes on
}

// mostUnderWay bounds the passages of one direction.
const mostUnderWay = 256

// pump copies one direction and passes its end on. far returns how much later arrives what was
// just read. A long message is read in pieces, which are under way at the same time.
func (p *Proxy) pump(to, from net.Conn, far func() time.Duration) {
	underWay := make(chan passage, mostUnderWay)
	gone := make(chan struct{}) // nothing is passed any more
	var reading sync.WaitGroup
	defer reading.Wait()
	defer close(gone)
	reading.Go(func() {
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			x := passage{end: err}
			if n > 0 {
				x.bytes, x.due = bytes.Clone(buffer[:n]), time.Now().Add(far())
			}
			select {
			case underWay <- x:
			case <-gone:
				return
			}
			if err != nil {
				return
			}
		}
	})
	for x := range underWay {
		if !p.arrives(x) {
			from.Close()
			return
		}
		if len(x.bytes) > 0 {
			if _, err := to.Write(x.bytes); err != nil {
				from.Close()
				return
			}
		}
		if errors.Is(x.end, io.EOF) {
			if tcp, ok := to.(*net.TCPConn); ok {
				_ = tcp.CloseWrite() // it may be gone
			}
			return
		} else if x.end != nil {
			to.Close()
			return
		}
	}
}

// arrives waits until what is under way has arrived. It reports false once the proxy is closed.
func (p *Proxy) arrives(x passage) bool {
	if far := time.Until(x.due); far > 0 {
		select {
		case <-time.After(far):
		case <-p.ctx.Done():
			return false
		}
	}
	return p.await() == nil
}

// await returns once bytes flow.
func (p *Proxy) await() error {
	p.mu.Lock()
	flow := p.flow
	p.mu.Unlock()
	select {
	case <-flow:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// add registers a connection, or resets it while the proxy is cut or closed.
func (p *Proxy) add(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.ctx.Err() != nil {
		conn.Close()
		return false
	}
	p.conns[conn] = true
	return true
}

func (p *Proxy) remove(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	conn.Close()
}
