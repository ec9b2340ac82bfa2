package amqp_test

import (
	"context"
	"errors"
	"testing"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// refusing is a memory with that much room.
type refusing struct {
	budget
	room int64
}

var errFull = errors.New("full")

func (r *refusing) Reserve(ctx context.Context, c *amqp.Conn, d amqp.Direction, n int) error {
	if r.held.Load()+int64(n) > r.room {
		return errFull
	}
	return r.budget.Reserve(ctx, c, d, n)
}

func TestMemoryIsReservedAndGivenBack(t *testing.T) {
	deliveries := make(chan *amqp.Delivery, 100)
	memory := &refusing{room: 300_000}
	s := serve(t, amqp.Options{Memory: memory, Handler: &handler{incoming: func(l *amqp.Incoming) {
		_ = l.Accept(amqp.IncomingOptions{Credit: 1000, Receive: func(d *amqp.Delivery) { deliveries <- d }})
	}}})
	p := connect(t, s)
	p.begin(0)
	p.attachSender(0, 0, "q")
	const size = 50_000
	for id := range uint32(10) {
		p.send(0, transfer(0, id), make([]byte, size))
	}
	refused := 0
	for first := true; first || refused+len(deliveries) < 10; first = false {
		d := expect[*wire.Disposition](p)
		r, ok := d.State.(*wire.Rejected)
		if !ok {
			t.Fatalf("%+v", d)
		}
		isError(t, r.Error, wire.ErrResourceLimitExceeded)
		refused += int(*d.Last-d.First) + 1
	}
	if most := memory.most.Load(); most > memory.room || most < 100_000 || len(deliveries) < 3 {
		t.Errorf("%d bytes were reserved for %d deliveries", most, len(deliveries))
	}
	for range 10 - refused {
		(<-deliveries).Settle(&wire.Accepted{})
	}
	p.send(0, transfer(0, 10), make([]byte, size)) // there is room again
	(receive(t, "delivery", deliveries)).Settle(nil)
	p.send(0, transfer(0, 11), make([]byte, size)) // and one is never settled
	receive(t, "delivery", deliveries)
	p.Close()
	s.end(t)
	if held := memory.held.Load(); held != 0 {
		t.Errorf("%d bytes are held after the end", held)
	}
}

// exhausted has no room for what goes to peers.
type exhausted struct{ budget }

func (m *exhausted) Reserve(ctx context.Context, c *amqp.Conn, d amqp.Direction, n int) error {
	if d == amqp.Outbound {
		return errFull
	}
	return m.budget.Reserve(ctx, c, d, n)
}

func (m *exhausted) Release(c *amqp.Conn, d amqp.Direction, n int) {
	if d == amqp.Outbound {
		panic("given back though never reserved")
	}
	m.budget.Release(c, d, n)
}

// Peers that do not read take no memory from those that send.
func TestWhatIsSentToPeersReservesNothingOfWhatTheySend(t *testing.T) {
	links := make(chan *amqp.Outgoing, 1)
	deliveries := make(chan *amqp.Delivery, 1)
	h := sending(links, nil)
	h.incoming = func(l *amqp.Incoming) {
		_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) { deliveries <- d }})
	}
	memory := &exhausted{}
	s := serve(t, amqp.Options{Memory: memory, MaxFrameSize: 200_000, Handler: h})
	p := connect(t, s)
	p.begin(0)
	p.attachReceiver(0, 0, "q")
	p.attachSender(0, 1, "q")
	p.send(0, credit(0, 0, 100))
	l := receive(t, "link", links)
	if _, _, err := l.WaitCredit(limited(t)); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 100_000)
	if _, err := l.Send(limited(t), amqp.Transfer{Tag: []byte("t"), Payload: large}); !errors.Is(err, errFull) {
		t.Errorf("without memory for it: %v", err)
	}
	p.send(0, transfer(1, 0), large)
	receive(t, "delivery", deliveries).Settle(&wire.Accepted{})
	if memory.most.Load() == 0 {
		t.Error("nothing was reserved for what the peer sent")
	}
	p.Close()
	s.end(t)
	if held := memory.held.Load(); held != 0 {
		t.Errorf("%d bytes are held after the end", held)
	}
}
