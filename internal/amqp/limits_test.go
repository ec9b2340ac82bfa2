package amqp_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

func TestShutdownTellsOutcomesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deliveries := make(chan *amqp.Delivery, 10)
		p, s, ended := pipedServer(t.Context(), t, amqp.Options{CloseTimeout: time.Hour, Handler: &handler{incoming: func(l *amqp.Incoming) {
			_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) { deliveries <- d }})
		}}})
		p.open(nil)
		p.begin(0)
		p.attachSender(0, 0, "q")
		p.send(0, transfer(0, 0), []byte("a"), transfer(0, 1), []byte("b"))
		a, b := <-deliveries, <-deliveries
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(t.Context()) }()
		synctest.Wait()
		p.send(0, transfer(0, 2), []byte("c")) // too late: it is not taken, and not told of
		a.Settle(&wire.Accepted{})
		if d := expect[*wire.Disposition](p); d.First != 0 || *d.Last != 0 {
			t.Errorf("%+v", d)
		}
		b.Settle(&wire.Accepted{})
		if d := expect[*wire.Disposition](p); d.First != 1 || *d.Last != 1 {
			t.Errorf("%+v", d)
		}
		isError(t, expect[*wire.Close](p).Error, wire.ErrConnectionForced)
		p.send(0, &wire.Close{})
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := <-ended; condition(err) != wire.ErrConnectionForced {
			t.Error(err)
		}
		if len(deliveries) > 0 {
			t.Error("a delivery was taken after the shutdown had begun")
		}
	})
}

func TestShutdownDoesNotWaitForeverForOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deliveries := make(chan *amqp.Delivery, 10)
		p, s, ended := pipedServer(t.Context(), t, amqp.Options{CloseTimeout: 3 * time.Second, Handler: &handler{incoming: func(l *amqp.Incoming) {
			_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) { deliveries <- d }})
		}}})
		p.open(nil)
		p.begin(0)
		p.attachSender(0, 0, "q")
		p.send(0, transfer(0, 0), []byte("a"))
		<-deliveries
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(t.Context()) }()
		isError(t, expect[*wire.Close](p).Error, wire.ErrConnectionForced)
		if err := <-done; err != nil { // the peer does not answer either
			t.Error(err)
		}
		if since := time.Since(began); since != 6*time.Second {
			t.Errorf("it took %s", since)
		}
		<-ended
	})
}

// What is unsettled of a link that has ended meanwhile does not keep a shutdown waiting either.
func TestShutdownIsOverWithTheLastOutcomeOfALinkThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deliveries := make(chan *amqp.Delivery, 10)
		p, s, ended := pipedServer(t.Context(), t, amqp.Options{CloseTimeout: time.Hour, Handler: &handler{incoming: func(l *amqp.Incoming) {
			_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) { deliveries <- d }})
		}}})
		p.open(nil)
		p.begin(0)
		p.attachSender(0, 0, "q")
		p.send(0, transfer(0, 0), []byte("a"))
		d := <-deliveries
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(t.Context()) }()
		synctest.Wait()
		p.send(0, &wire.Detach{Handle: 0, Closed: true})
		expect[*wire.Detach](p)
		began := time.Now()
		d.Settle(&wire.Accepted{})
		isError(t, expect[*wire.Close](p).Error, wire.ErrConnectionForced)
		if since := time.Since(began); since > 0 {
			t.Errorf("the connection was closed %s after the last outcome", since)
		}
		p.send(0, &wire.Close{})
		if err := <-done; err != nil {
			t.Error(err)
		}
		<-ended
	})
}

func TestWhatAConnectionHoldsIsBounded(t *testing.T) {
	deliveries := make(chan *amqp.Delivery, 100)
	s := serve(t, amqp.Options{MaxHeldBytes: 100_000, Handler: &handler{incoming: func(l *amqp.Incoming) {
		_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) { deliveries <- d }})
	}}})
	p := connect(t, s)
	p.begin(0)
	p.attachSender(0, 0, "q")
	for id := range uint32(10) {
		p.send(0, transfer(0, id), make([]byte, 40_000))
	}
	for range 10 { // at most two at once
		d := receive(t, "delivery", deliveries)
		if len(deliveries) > 1 {
			t.Fatalf("%d deliveries of 40,000 bytes are held", len(deliveries)+1)
		}
		d.Settle(&wire.Accepted{})
	}
	// One that would never fit is refused alone.
	more := transfer(0, 10)
	more.More = true
	p.send(0, more, make([]byte, 60_000), transfer(0, 10), make([]byte, 60_000), transfer(0, 11), []byte("m"))
	receive(t, "delivery", deliveries).Settle(&wire.Accepted{})
	rejected := false
	for last := uint32(0); last < 11; {
		d := expectAmong[*wire.Disposition](p)
		last = *d.Last
		if r, ok := d.State.(*wire.Rejected); ok {
			isError(t, r.Error, wire.ErrResourceLimitExceeded)
			rejected = d.First == 10 && last == 10
		}
	}
	if !rejected {
		t.Error("the delivery was not rejected")
	}
	// Links count as well.
	for handle := uint32(1); ; handle++ {
		attach := senderOf(handle, "q")
		attach.Properties = wire.Map{{Key: wire.Symbol("p"), Value: strings.Repeat("x", 10_000)}}
		if handle > 5 {
			t.Fatal("five links of 10,000 bytes each are held")
		}
		p.send(0, attach)
		f, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := f.p.(*wire.Close); ok {
			isError(t, c.Error, wire.ErrResourceLimitExceeded)
			break
		}
	}
}

// expectAmong is expect that leaves out flows.
func expectAmong[T wire.Performative](p *peer) T {
	p.t.Helper()
	for {
		f, err := p.read()
		if err != nil {
			p.t.Fatal(err)
		}
		if v, ok := f.p.(T); ok {
			return v
		}
		if _, ok := f.p.(*wire.Flow); !ok {
			p.t.Fatalf("%T %+v", f.p, f.p)
		}
	}
}

func TestAnAnswerThatThePeerCannotTake(t *testing.T) {
	s := serve(t, amqp.Options{Handler: accepting()})
	p := connectSilent(t, s)
	p.write([]byte(wire.ProtocolAMQP))
	p.send(0, &wire.Open{ContainerID: "small", MaxFrameSize: number(uint32(512))}, &wire.Begin{}, senderOf(0, strings.Repeat("q", 1000)))
	p.header(wire.ProtocolAMQP)
	expect[*wire.Open](p)
	expect[*wire.Begin](p)
	isError(t, expect[*wire.Close](p).Error, wire.ErrFrameSizeTooSmall)
	p.send(0, &wire.Close{})
	if err := s.end(t); condition(err) != wire.ErrFrameSizeTooSmall {
		t.Error(err)
	}
}

func TestAHandlersAnswerThatHasNoEncoding(t *testing.T) {
	s := serve(t, amqp.Options{Handler: &handler{incoming: func(l *amqp.Incoming) {
		_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) {
			d.Settle(&wire.Rejected{Error: &wire.Error{Condition: "test:bad", Info: wire.Map{{Key: "k", Value: struct{}{}}}}})
		}})
	}}})
	p := connect(t, s)
	p.begin(0)
	p.attachSender(0, 0, "q")
	p.send(0, transfer(0, 0), []byte("m"), transfer(0, 1), []byte("m"))
	isError(t, expect[*wire.Close](p).Error, wire.ErrInternalError)
}

func TestClosedIsCalledForEachOpened(t *testing.T) {
	refuse := errors.New("no more than this")
	closed := make(chan *amqp.Conn, 10)
	opened := 0
	h := accepting()
	h.closed = func(c *amqp.Conn) { closed <- c }
	h.opened = func(c *amqp.Conn) error {
		if c.ID() == "" || c.Open().ContainerID != "peer" || c.RemoteAddr() == nil || c.Context().Err() != nil {
			t.Errorf("%+v", c.Open())
		}
		c.Data = "mine"
		if opened++; opened%2 == 0 {
			return refuse
		}
		return nil
	}
	s := serve(t, amqp.Options{Handler: h})
	for range 2 {
		p := connect(t, s)
		p.Close()
		s.end(t)
		if c := receive(t, "call", closed); c.Data != "mine" || c.Context().Err() == nil {
			t.Errorf("%v", c.Data)
		}
		p = connect(t, s) // Open comes before Close
		e := expect[*wire.Close](p).Error
		isError(t, e, wire.ErrInternalError)
		if strings.Contains(e.Description, refuse.Error()) {
			t.Errorf("the peer sees %q", e.Description)
		}
		p.Close()
		s.end(t)
	}
	if len(closed) > 0 {
		t.Error("closed without having been opened")
	}
}
