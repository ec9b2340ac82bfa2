package amqp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"sync"
	"time"
)

// Server serves AMQP connections. It is safe for concurrent use.
type Server struct {
	options Options

	mu      sync.Mutex
	conns   map[*Conn]struct{}
	closed  bool
	changed signal // fired when a connection is gone
}

// NewServer returns a server. It panics if the options have no handler.
func NewServer(o Options) *Server {
	return &Server{options: o.withDefaults(), conns: map[*Conn]struct{}{}}
}

// ServeConn serves a connection from its first byte until it is over and all goroutines of it have
// ended. It closes nc. The error is nil if the peer closed the connection without one; otherwise
// it says why the connection ended. When ctx ends, the connection is closed as by Shutdown.
//
// A nc may be TCP, TLS, or the stream of a WebSocket's binary messages. Of deadlines only
// SetWriteDeadline is used.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn) error {
	c, err := s.newConn(ctx, nc)
	if err != nil {
		return errors.Join(err, nc.Close())
	}
	return c.serve(ctx)
}

func (s *Server) newConn(ctx context.Context, nc net.Conn) (*Conn, error) {
	id := make([]byte, 8)
	_, _ = rand.Read(id)
	c := &Conn{
		server: s, net: nc, id: hex.EncodeToString(id), began: time.Now(),
		out:      output{wake: make(chan struct{}, 1)},
		sessions: map[uint16]*Session{},
	}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.inbound = memory{conn: c, shared: s.options.Memory, direction: Inbound, mu: &c.mu}
	c.outbound = memory{conn: c, shared: s.options.Memory, direction: Outbound, mu: &c.mu}
	c.deadline = c.now() + s.options.HandshakeTimeout
	c.in = newFrameReader(nc, handshakeFrameSize, c.noteWait)

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.cancel(nil)
		return nil, ErrServerClosed
	}
	s.conns[c] = struct{}{}
	return c, nil
}

// forget takes a connection that is over off the server's list.
func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.changed.fire()
}

// Connections returns how many connections are served.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Shutdown closes all connections with amqp:connection:forced, and waits until they are over. It
// takes no new deliveries, and gives the handler Options.CloseTimeout to settle those it has.
// ServeConn refuses new connections. If ctx ends first, the connections are cut off, and the error
// is that of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, c := range s.closeAll() {
		c.mu.Lock()
		c.windDown("the server is shutting down")
		c.mu.Unlock()
	}
	for {
		s.mu.Lock()
		left, changed := len(s.conns), s.changed.wait()
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			for _, c := range s.closeAll() {
				c.breakOff(nil)
			}
			return ctx.Err()
		}
	}
}

// closeAll refuses connections from now on, and returns those there are.
func (s *Server) closeAll() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}
