package amqp

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

const (
	// queueLimit is how many bytes may wait to be written before deliveries wait too. Twice as
	// many make the reader wait, so that answers do not pile up either.
	queueLimit = 128 << 10
	// writePiece is what a peer must take within Options.WriteTimeout.
	writePiece = 64 << 10
	// keptBuffer is the capacity of the largest buffer that goes back to the pool.
	keptBuffer = 256 << 10
)

var writeBuffers = sync.Pool{New: func() any { return new([]byte) }}

// heartbeat is the empty frame (§2.4.5).
var heartbeat = []byte{0, 0, 0, 8, 2, wire.FrameAMQP, 0, 0}

// output is what waits to be written to a peer. The connection's lock guards it.
type output struct {
	buf     *[]byte // nil when nothing waits
	counted int     // bytes of it that the connection has reserved
	room    signal  // fired when the queue has been taken
	idle    bool    // the writer sleeps
	wake    chan struct{}
	stopped bool // the writer ends when it has written all
	broken  error
}

// bytes returns the buffer to append to.
func (o *output) bytes() *[]byte {
	if o.buf == nil {
		o.buf = writeBuffers.Get().(*[]byte)
	}
	return o.buf
}

// queued is how many bytes wait.
func (o *output) queued() int {
	if o.buf == nil {
		return 0
	}
	return len(*o.buf)
}

// kick wakes the writer if it sleeps.
func (o *output) kick() {
	if o.idle {
		o.idle = false
		o.wake <- struct{}{} // it has room for one, and the writer empties it before it sleeps
	}
}

// take takes what waits.
func (o *output) take() (buf *[]byte, counted int) {
	buf, counted = o.buf, o.counted
	o.buf, o.counted = nil, 0
	o.room.fire()
	return buf, counted
}

// writer writes all that a connection has to say. What comes while it writes is written together
// afterwards. It also watches the connection's deadlines, because a read
// deadline would end a net.Conn that is a stream of WebSocket messages.
type writer struct{ *Conn }

func (c writer) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		c.mu.Lock()
		wait, cut := c.checkDeadlines(c.now())
		c.encodePending()
		buf, counted := c.out.take()
		stop := c.out.stopped
		received, sent := c.inbound.takeSpare(), c.outbound.takeSpare()
		c.out.idle = buf == nil && !stop && !cut
		c.mu.Unlock()
		c.inbound.giveBack(received)
		c.outbound.giveBack(sent)

		if cut {
			c.breakOff(nil)
			return
		}
		if buf != nil {
			if err := c.writeAll(*buf); err != nil {
				c.breakOff(err)
				return
			}
			c.written(buf, counted)
			continue
		}
		if stop {
			return
		}
		timer.Reset(wait)
		select {
		case <-c.out.wake:
		case <-timer.C:
			c.mu.Lock()
			if !c.out.idle { // it was woken at the same time
				<-c.out.wake
			}
			c.out.idle = false
			c.mu.Unlock()
		}
	}
}

// written gives back what was held for what was written.
func (c writer) written(buf *[]byte, counted int) {
	if cap(*buf) <= keptBuffer {
		*buf = (*buf)[:0]
		writeBuffers.Put(buf)
	}
	if counted > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.outbound.free(counted)
	}
}

// writeAll writes b in pieces, each within the time that a peer has for one.
func (c writer) writeAll(b []byte) error {
	timeout := c.server.options.WriteTimeout
	for len(b) > 0 {
		piece := b[:min(len(b), writePiece)]
		began := c.now()
		if err := c.net.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		if _, err := c.net.Write(piece); err != nil {
			// Not every net.Conn says of an error that it is the deadline's.
			if errors.Is(err, os.ErrDeadlineExceeded) || c.now()-began >= timeout {
				return fmt.Errorf("%w: %d bytes in %s", ErrSlowReader, len(piece), timeout)
			}
			return err
		}
		b = b[len(piece):]
		c.lastWrite.Store(int64(c.now()))
	}
	return nil
}

// breakOff ends the connection without a word to the peer. The reader notices.
func (c *Conn) breakOff(err error) {
	c.mu.Lock()
	if err != nil && c.out.broken == nil {
		c.out.broken = err
	}
	c.end(err)
	c.out.room.fire()
	c.mu.Unlock()
	_ = c.net.Close()
}

// checkDeadlines says how long the writer may sleep, and whether to cut the connection off. A
// silent peer is told so with a Close, and a heartbeat is queued when it is due.
func (c writer) checkDeadlines(now time.Duration) (wait time.Duration, cut bool) {
	wait = time.Hour
	until := func(t time.Duration) bool {
		left := t - now
		wait = min(wait, max(left, 0))
		return left <= 0
	}
	if c.deadline != 0 && until(c.deadline) {
		if c.last == nil || c.closing {
			return 0, true
		}
		c.close(c.last) // it winds down, and was not settled in time
		until(c.deadline)
	}
	if !c.opened || c.closing {
		return wait, false
	}
	if since := c.readSince.Load(); since != 0 {
		if until(time.Duration(since) + c.server.options.IdleTimeout) {
			c.close(newError(wire.ErrResourceLimitExceeded, fmt.Sprintf("the peer sent no frame for %s, the idle-time-out", c.server.options.IdleTimeout)))
			return c.server.options.CloseTimeout, false
		}
	} else {
		wait = min(wait, c.server.options.IdleTimeout)
	}
	if c.heartbeat > 0 {
		if until(time.Duration(c.lastWrite.Load()) + c.heartbeat) {
			if c.out.queued() == 0 {
				c.append(heartbeat)
			}
			wait = min(wait, c.heartbeat)
		}
	}
	return wait, false
}
