package amqp_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to happen.
const patience = time.Minute

// handler is a handler of functions. Those that are nil refuse.
type handler struct {
	opened      func(*amqp.Conn) error
	incoming    func(*amqp.Incoming)
	outgoing    func(*amqp.Outgoing)
	coordinator func(*amqp.Incoming)
	closed      func(*amqp.Conn)
}

var errNone = &wire.Error{Condition: wire.ErrNotFound, Description: "there is no such node"}

func (h *handler) Opened(c *amqp.Conn) error {
	if h.opened != nil {
		return h.opened(c)
	}
	return nil
}

func (h *handler) AttachIncoming(l *amqp.Incoming) {
	if h.incoming == nil {
		l.Refuse(errNone)
		return
	}
	h.incoming(l)
}

func (h *handler) AttachOutgoing(l *amqp.Outgoing) {
	if h.outgoing == nil {
		l.Refuse(errNone)
		return
	}
	h.outgoing(l)
}

func (h *handler) AttachCoordinator(l *amqp.Incoming) {
	if h.coordinator == nil {
		l.Refuse(&wire.Error{Condition: wire.ErrNotImplemented})
		return
	}
	h.coordinator(l)
}

func (h *handler) Closed(c *amqp.Conn) {
	if h.closed != nil {
		h.closed(c)
	}
}

// served is a server and the connections that it serves.
type served struct {
	*amqp.Server
	address string
	ended   chan error // what ServeConn returned, of each connection
}

// serve serves TCP on loopback until the test ends. Then all connections have to end.
func serve(t testing.TB, o amqp.Options) *served {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s := &served{amqp.NewServer(o), listener.Addr().String(), make(chan error, 10_000)}
	var serving sync.WaitGroup
	serving.Add(1)
	go func() {
		defer serving.Done()
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Add(1)
			go func() {
				defer serving.Done()
				s.ended <- s.ServeConn(context.Background(), nc)
			}()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		serving.Wait()
		if n := s.Connections(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
	return s
}

// end waits for the end of a connection, and returns what ServeConn returned.
func (s *served) end(t testing.TB) error {
	t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(patience):
		t.Fatal("the connection has not ended")
		return nil
	}
}

// receive waits for a value.
func receive[T any](t testing.TB, what string, values <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-values:
	case <-time.After(patience):
		t.Fatalf("no %s came", what)
	}
	return v
}

// condition is that of the *wire.Error in an error, or "".
func condition(err error) wire.Symbol {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Condition
	}
	return ""
}

// address is that of a source or target.
func address(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// node is a queue in memory: what is sent to it is received from it. It is for tests only: it
// keeps everything and settles when the receiver does.
type node struct {
	messages chan message
	mu       sync.Mutex
	settled  []amqp.Settlement
	changed  chan struct{}
}

type message struct {
	payload []byte
	format  uint32
}

func newNode() *node {
	return &node{messages: make(chan message, 100_000), changed: make(chan struct{}, 1)}
}

func (n *node) receive(d *amqp.Delivery) {
	n.messages <- message{d.Payload, d.Format}
	d.Settle(&wire.Accepted{})
}

// send sends what comes while the link lives.
func (n *node) send(out *amqp.Outgoing, o amqp.OutgoingOptions) {
	o.Settled = func(list []amqp.Settlement) {
		n.mu.Lock()
		n.settled = append(n.settled, list...)
		n.mu.Unlock()
		for _, s := range list {
			if !s.Settled {
				out.Settle(s.ID, s.State)
			}
		}
		select {
		case n.changed <- struct{}{}:
		default:
		}
	}
	if out.Accept(o) != nil {
		return
	}
	ctx := out.Context()
	mode := out.Attach().SenderSettleMode
	settled := mode != nil && *mode == wire.SenderSettled
	for i := uint32(0); ; {
		credit, drain, changed := out.Credit()
		if credit == 0 {
			if _, _, err := out.WaitCredit(ctx); err != nil {
				return
			}
			continue
		}
		var m message
		select {
		case m = <-n.messages:
		default:
			if drain {
				out.Drained()
				continue
			}
			select {
			case m = <-n.messages:
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		i++
		if _, err := out.Send(ctx, amqp.Transfer{Tag: []byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}, Payload: m.payload, Format: m.format, Settled: settled}); err != nil {
			return
		}
	}
}

// settlements waits until the node was told of n, and returns them.
func (n *node) settlements(t testing.TB, count int) []amqp.Settlement {
	t.Helper()
	deadline := time.After(patience)
	for {
		n.mu.Lock()
		if len(n.settled) >= count {
			defer n.mu.Unlock()
			return append([]amqp.Settlement{}, n.settled...)
		}
		have := len(n.settled)
		n.mu.Unlock()
		select {
		case <-n.changed:
		case <-deadline:
			t.Fatalf("%d of %d settlements came", have, count)
		}
	}
}

// nodeHandler serves nodes by name.
func nodeHandler(nodes map[string]*node) *handler {
	return &handler{
		incoming: func(l *amqp.Incoming) {
			if n := nodes[address(l.Attach().Target.Address)]; n == nil {
				l.Refuse(errNone)
			} else {
				_ = l.Accept(amqp.IncomingOptions{Receive: n.receive})
			}
		},
		outgoing: func(l *amqp.Outgoing) {
			if n := nodes[address(l.Attach().Source.Address)]; n == nil {
				l.Refuse(errNone)
			} else {
				n.send(l, amqp.OutgoingOptions{})
			}
		},
	}
}
