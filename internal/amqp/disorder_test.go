package amqp_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// TestPeersInDisorder has peers send frames of all kinds in any order, at once, while the handler
// settles, sends and detaches from many goroutines. Nothing may panic, hang, or stay behind.
func TestPeersInDisorder(t *testing.T) {
	var panics atomic.Int64
	held := &budget{}
	var settling sync.WaitGroup
	h := &handler{
		incoming: func(l *amqp.Incoming) {
			_ = l.Accept(amqp.IncomingOptions{Credit: 20, MaxMessageSize: 30_000, Receive: func(d *amqp.Delivery) {
				settling.Go(func() {
					switch d.ID % 7 {
					case 0:
						d.Settle(&wire.Rejected{Error: errNone})
					case 1:
						l.Detach(errNone)
						d.Settle(nil)
					default:
						d.Settle(&wire.Accepted{})
					}
				})
			}})
		},
		outgoing: func(l *amqp.Outgoing) {
			n := uint32(0)
			_ = l.Accept(amqp.OutgoingOptions{Settled: func(list []amqp.Settlement) {
				settling.Go(func() {
					for _, s := range list {
						l.Settle(s.ID, s.State)
					}
				})
			}})
			for {
				_, drain, err := l.WaitCredit(l.Context())
				if err != nil {
					l.Unsettled()
					return
				}
				if n++; n%5 == 0 && drain {
					l.Drained()
					continue
				}
				if _, err := l.Send(l.Context(), amqp.Transfer{Tag: []byte("t"), Payload: make([]byte, n*n%5000), Settled: n%3 == 0}); err != nil {
					return
				}
				if n%50 == 0 {
					l.Session().End(errNone)
				}
			}
		},
	}
	h.coordinator = h.incoming
	s := serve(t, amqp.Options{Handler: h, Memory: held, MaxFrameSize: 1024, MaxLinks: 16, MaxChannels: 4, MaxUnsettled: 32, MaxHeldBytes: 200_000, MaxPartialBytes: 50_000,
		Logger: slog.New(panicked{slog.NewTextHandler(t.Output(), nil), &panics})})
	var peers sync.WaitGroup
	for i := range uint64(8) {
		peers.Go(func() {
			random := rand.New(rand.NewPCG(i, 1))
			for range 12 {
				disorder(t, s, random)
			}
		})
	}
	peers.Wait()
	for range 8 * 12 {
		s.end(t)
	}
	settling.Wait()
	if n := panics.Load(); n > 0 {
		t.Errorf("%d panics", n)
	}
	if n := held.held.Load(); n != 0 {
		t.Errorf("%d bytes are held by nobody", n)
	}
}

// disorder is one connection of a peer without manners. It ends when the server has had enough.
func disorder(t *testing.T, s *served, random *rand.Rand) {
	p := connectSilent(t, s)
	p.write([]byte(wire.ProtocolAMQP))
	p.send(0, &wire.Open{ContainerID: "peer", MaxFrameSize: number(uint32(600 + random.IntN(1000)))})
	read := make(chan struct{})
	go func() { defer close(read); _, _ = io.Copy(io.Discard, p) }()
	defer func() { p.Close(); <-read }()
	channels := []uint16{0, 1, 2}
	for _, channel := range channels {
		p.writeSome(p.frames(channel, &wire.Begin{IncomingWindow: 50, OutgoingWindow: 50}, senderOf(0, "q"), receiverOf(1, "q"), credit(1, 0, 30)))
	}
	ids := [3]uint32{}
	for range 400 {
		at := random.IntN(3)
		handle, n := uint32(random.IntN(2)), uint32(random.IntN(60))
		x := transfer(0, ids[at])
		x.More, x.Settled, x.Aborted = random.IntN(5) == 0, random.IntN(5) == 0, random.IntN(30) == 0
		if !x.More {
			ids[at]++
		}
		state := []wire.DeliveryState{nil, &wire.Accepted{}, &wire.Released{}, &wire.Modified{DeliveryFailed: true}, &wire.Received{}}[random.IntN(5)]
		flow := credit(1, n, n)
		flow.Echo, flow.Drain = random.IntN(2) == 0, random.IntN(2) == 0
		var parts []any
		switch random.IntN(60) {
		case 0:
			parts = []any{&wire.Detach{Handle: handle, Closed: true}, &wire.Attach{Name: "again", Handle: handle, Role: wire.Role(handle == 1), Source: source("q"), Target: target("q"), InitialDeliveryCount: &n}}
		case 1:
			parts = []any{&wire.End{}, &wire.Begin{IncomingWindow: 50, OutgoingWindow: 50}, senderOf(0, "q"), receiverOf(1, "q"), credit(1, 0, 30)}
			ids[at] = 0
		case 2:
			parts = []any{senderOf(uint32(2+random.IntN(20)), fmt.Sprint(n))}
		case 3, 4, 5, 6, 7, 8, 9, 10, 11, 12:
			parts = []any{&wire.Disposition{Role: wire.Role(random.IntN(4) > 0), First: n, Last: number(n + uint32(random.IntN(40))), Settled: random.IntN(2) == 0, State: state}}
		case 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24:
			parts = []any{flow}
		default:
			parts = []any{x, make([]byte, random.IntN(900))}
		}
		if !p.writeSome(p.frames(channels[at], parts...)) {
			return
		}
	}
	if random.IntN(2) == 0 {
		p.writeSome(p.frames(0, &wire.Close{}))
		<-read
	}
}

// writeSome reports whether the server still takes what is written.
func (p *peer) writeSome(b []byte) bool {
	_, err := p.Write(b)
	return err == nil
}
