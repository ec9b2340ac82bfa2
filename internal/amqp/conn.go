package amqp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// Conn is a connection (§2.4). Its methods are safe for concurrent use.
type Conn struct {
	// Data is the handler's. It is to be set in Opened.
	Data any

	server   *Server
	net      net.Conn
	id       string
	ctx      context.Context
	cancel   context.CancelCauseFunc
	identity any
	open     *wire.Open // the peer's
	maxFrame int        // the size of the largest frame that the peer takes and we send
	in       *frameReader
	handlers sync.WaitGroup // goroutines of attached links

	// Times are durations since began, so that they are monotonic.
	began     time.Time
	readSince atomic.Int64 // since when the reader waits for the peer, or 0
	lastWrite atomic.Int64

	mu        sync.Mutex
	out       output
	accepted  bool          // by the handler
	opened    bool          // both Opens were sent
	last      *wire.Error   // with which to close when nothing of the peer is unsettled
	saying    bool          // the last words are encoded
	closing   bool          // a Close was sent, or nothing can be
	cause     error         // why
	deadline  time.Duration // when the connection is cut off, or 0: to authenticate, to close
	heartbeat time.Duration // how often something is to be sent, or 0
	sessions  map[uint16]*Session
	pending   []*Session // they have dispositions or flows to send
	links     int
	inbound   memory        // what the peer has sent
	outbound  memory        // what is sent to it
	partial   int           // bytes of deliveries whose last frame has not come
	incoming  int           // unsettled deliveries of the peer
	outgoing  int           // unsettled deliveries to the peer
	reported  int           // of those, how many the peer has said an outcome of
	settled   signal        // fired when one of the peer's deliveries is settled
	answered  signal        // fired when a delivery to the peer is settled
	transfer  wire.Transfer // to encode from, so that it is allocated once
}

// ID identifies the connection among all of the process.
func (c *Conn) ID() string { return c.id }

// Identity is what the SASL mechanism returned. It is nil without SASL.
func (c *Conn) Identity() any { return c.identity }

// Open is the peer's Open. It is not to be changed.
func (c *Conn) Open() *wire.Open { return c.open }

// RemoteAddr is the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.net.RemoteAddr() }

// NetConn is the connection below. Only its addresses and its TLS state may be used.
func (c *Conn) NetConn() net.Conn { return c.net }

// Context ends with the connection. Its cause wraps ErrDetached and says why.
func (c *Conn) Context() context.Context { return c.ctx }

// Close ends the connection with that error, or with none. It does not wait for the peer.
func (c *Conn) Close(err *wire.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.close(err)
}

func (c *Conn) now() time.Duration { return time.Since(c.began) + 1 }

// close sends Close, once, and lets everything of the connection end. The lock is held.
func (c *Conn) close(err *wire.Error) {
	if c.closing || c.saying {
		return
	}
	c.saying = true
	if c.opened {
		c.encodePending()
	}
	c.send(0, &wire.Close{Error: err})
	c.deadline = c.now() + c.server.options.CloseTimeout
	if err == nil {
		c.end(nil)
	} else {
		c.end(err)
	}
	c.out.kick()
}

// end lets everything of the connection end, without a word to the peer. The lock is held.
func (c *Conn) end(cause error) {
	if c.closing {
		return
	}
	c.closing = true
	c.cause = cause
	c.cancel(ended("connection", cause))
	c.pending = nil
	c.settled.fire()
}

// ended is the cause of a context that ends.
func ended(what string, cause error) error {
	if cause == nil {
		return fmt.Errorf("%w: the %s was closed", ErrDetached, what)
	}
	return fmt.Errorf("%w: the %s ended: %w", ErrDetached, what, cause)
}

// serve runs the connection from its first byte to its end.
func (c *Conn) serve(ctx context.Context) error {
	written := make(chan struct{})
	go func() {
		defer close(written)
		writer{c}.run()
	}()
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.windDown("the server ends the connection")
	})
	err := c.contain("connection", c.read)
	stop()

	c.mu.Lock()
	c.end(err)
	c.out.stopped = true
	c.out.kick()
	if c.out.broken != nil {
		err = c.out.broken
	} else if c.cause != nil {
		err = c.cause
	}
	reached := c.accepted
	c.mu.Unlock()
	<-written
	_ = c.net.Close()
	c.in.release()
	c.handlers.Wait()
	c.mu.Lock()
	received, sent := c.inbound.takeAll(), c.outbound.takeAll()
	c.mu.Unlock()
	c.inbound.giveBack(received)
	c.outbound.giveBack(sent)
	c.server.forget(c)
	if reached {
		_ = c.contain("Closed", func() error { c.server.options.Handler.Closed(c); return nil })
	}
	return err
}

// closeWith is close, or the end of a connection that is not open yet: nothing can be said to the
// peer then. The lock is held.
func (c *Conn) closeWith(err *wire.Error) {
	if c.opened {
		c.close(err)
		return
	}
	if !c.closing {
		c.deadline = c.now()
	}
	c.end(err)
	c.out.kick()
}

// windDown closes the connection when what the peer has sent is settled, so that it learns the
// outcomes, or after the time to close.
func (c *Conn) windDown(text string) {
	err := newError(wire.ErrConnectionForced, text)
	if !c.opened || c.closing || c.incoming == 0 {
		c.closeWith(err)
		return
	}
	c.last = err
	c.deadline = c.now() + c.server.options.CloseTimeout
	c.out.kick()
}

// contain runs f, and has a panic close the connection.
func (c *Conn) contain(what string, f func() error) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		text := fmt.Sprintf("a value of type %T", v)
		if known, ok := v.(runtime.Error); ok {
			text = known.Error()
		}
		c.server.options.Logger.Error("panic contained", slog.String("in", "amqp: "+what), slog.String("panic", text), slog.String("stack", string(debug.Stack())))
		told := newError(wire.ErrInternalError, "an internal error")
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closeWith(told)
		err = told
	}()
	return f()
}

// read reads the connection from its first byte to its end.
func (c *Conn) read() error {
	if err := (opening{c}).handshake(); err != nil {
		return err
	}
	for {
		f, err := c.nextFrame()
		if err != nil {
			return c.unreadable(err)
		}
		if len(f.body) == 0 && f.kind == wire.FrameAMQP {
			continue
		}
		c.waitForRoom()
		over, err := c.handle(f)
		if over || err != nil {
			return err
		}
	}
}

// nextFrame reads a frame, and notes since when the peer is waited for.
func (c *Conn) nextFrame() (frame, error) {
	f, err := c.in.next()
	c.readSince.Store(0)
	return f, err
}

// noteWait is called before the peer is waited for. Several waits for one frame count from the
// first, so that a frame that comes byte by byte does not count as many.
func (c *Conn) noteWait() {
	c.readSince.CompareAndSwap(0, int64(c.now()))
}

// unreadable ends the connection because of an error of reading. If what came is no frame, the
// peer is told, and gets some time to read it.
func (c *Conn) unreadable(err error) error {
	var malformed *frameError
	if !errors.As(err, &malformed) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closing { // the peer need not answer a Close
			return nil
		}
		return err
	}
	told := newError(wire.ErrFramingError, malformed.text)
	c.Close(told)
	c.discard()
	return told
}

// discard reads until the peer closes the stream or the writer cuts it off. A stream that is
// closed while there is something to read is reset, and the peer might never see the Close.
func (c *Conn) discard() { _, _ = io.Copy(io.Discard, c.net) }

// waitForRoom waits while too much is queued. The writer ends the wait: a peer that does not read
// is cut off.
func (c *Conn) waitForRoom() {
	for {
		c.mu.Lock()
		if c.closing || c.out.queued() < 2*queueLimit {
			c.mu.Unlock()
			return
		}
		room := c.out.room.wait()
		c.mu.Unlock()
		<-room
	}
}

// fail closes the connection with an error that the peer has caused, and keeps reading until the
// peer has answered.
func (c *Conn) fail(condition wire.Symbol, format string, args ...any) {
	c.close(newError(condition, fmt.Sprintf(format, args...)))
}
