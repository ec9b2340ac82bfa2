package amqp_test

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// budget is a memory that counts what is reserved.
type budget struct{ held, most atomic.Int64 }

func (b *budget) Reserve(_ context.Context, _ *amqp.Conn, _ amqp.Direction, n int) error {
	if held := b.held.Add(int64(n)); held > b.most.Load() {
		b.most.Store(held)
	}
	return nil
}

func (b *budget) Release(_ *amqp.Conn, _ amqp.Direction, n int) { b.held.Add(-int64(n)) }

// panicked counts the panics that were contained.
type panicked struct {
	slog.Handler
	n *atomic.Int64
}

func (p panicked) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "panic contained" {
		p.n.Add(1)
	}
	return p.Handler.Handle(ctx, r)
}

// FuzzConn has a peer send anything, after the handshake or instead of it. The connection has to
// end when the peer is gone, without a panic, and with all memory given back.
func FuzzConn(f *testing.F) {
	p := &peer{t: f}
	x := transfer(0, 0)
	x.More = true
	whole := append([]byte(wire.ProtocolAMQP), p.frames(0, &wire.Open{ContainerID: "p"})...)
	for _, seed := range [][]byte{
		p.frames(0, &wire.Begin{IncomingWindow: 10}, senderOf(0, "q"), x, []byte("a"), transfer(0, 0), []byte("b"), &wire.Detach{Handle: 0, Closed: true}, &wire.End{}, &wire.Close{}),
		p.frames(0, &wire.Begin{IncomingWindow: 10}, receiverOf(1, "q"), credit(1, 0, 5), &wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: number(uint32(9)), State: &wire.Modified{MessageAnnotations: wire.Map{{Key: wire.Symbol("a"), Value: []byte("b")}}}}),
		p.frames(3, &wire.Begin{}, receiverOf(0, "q"), &wire.Flow{Handle: number(uint32(0)), LinkCredit: number(uint32(7)), DeliveryCount: number(uint32(0)), IncomingWindow: 9, Drain: true, Echo: true}, &wire.End{}, &wire.Begin{}),
		p.frames(0, &wire.Begin{}, &wire.Attach{Name: "c", Coordinator: &wire.Coordinator{}, InitialDeliveryCount: number(uint32(0))}, &wire.Transfer{DeliveryID: number(uint32(0)), DeliveryTag: []byte("t"), State: &wire.TransactionalState{TxnID: []byte("x")}}, []byte("m"), &wire.Transfer{Aborted: true}),
		make([]byte, 8),
	} {
		f.Add(true, seed)
		f.Add(false, append(whole[:len(whole):len(whole)], seed...))
	}
	f.Add(false, []byte(wire.ProtocolSASL+"\x00\x00\x00\x0c\x02\x01\x00\x00\x00\x53\x41\x45"))
	f.Fuzz(func(t *testing.T, opened bool, b []byte) {
		if opened {
			b = append(whole[:len(whole):len(whole)], b...)
		}
		survives(t, b)
	})
}

// FuzzFrames is FuzzConn with frames of the right size, so that their bodies are reached. Each is
// a channel, the length of a body, and the body.
func FuzzFrames(f *testing.F) {
	p := &peer{t: f}
	whole := append([]byte(wire.ProtocolAMQP), p.frames(0, &wire.Open{ContainerID: "p"})...)
	whole = append(whole, p.frames(0, &wire.Begin{IncomingWindow: 10}, senderOf(0, "q"), receiverOf(1, "q"), credit(1, 0, 5))...)
	x := transfer(0, 0)
	x.More = true
	var all []byte
	for _, performative := range []wire.Performative{
		&wire.Begin{IncomingWindow: 10}, senderOf(2, "q"), receiverOf(3, "q"), x, transfer(0, 0), transfer(0, 1), credit(1, 1, 7),
		&wire.Flow{Handle: number(uint32(1)), LinkCredit: number(uint32(7)), DeliveryCount: number(uint32(0)), IncomingWindow: 9, Drain: true, Echo: true},
		&wire.Disposition{Role: wire.RoleReceiver, Last: number(uint32(9)), State: &wire.Modified{MessageAnnotations: wire.Map{{Key: wire.Symbol("a"), Value: []byte("b")}}}},
		&wire.Disposition{Role: wire.RoleReceiver, Settled: true}, &wire.Detach{Handle: 0, Closed: true}, &wire.End{}, &wire.Close{},
		&wire.Attach{Name: "c", Handle: 4, Coordinator: &wire.Coordinator{}, InitialDeliveryCount: number(uint32(0))},
		&wire.Transfer{Handle: 4, DeliveryID: number(uint32(2)), DeliveryTag: []byte("t"), State: &wire.TransactionalState{TxnID: []byte("x")}}, &wire.Transfer{Aborted: true},
	} {
		body, err := wire.AppendPerformative(nil, performative)
		if err != nil {
			f.Fatal(err)
		}
		one := append([]byte{0, byte(len(body))}, body...)
		f.Add(one)
		all = append(all, one...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		sent := whole[:len(whole):len(whole)]
		for len(b) >= 2 {
			channel, n := uint16(b[0])%10, min(int(b[1]), len(b)-2)
			sent = append(sent, rawFrame(channel, b[2:2+n])...)
			b = b[2+n:]
		}
		survives(t, sent)
	})
}

// survives has a peer send those bytes, and checks that the connection ends in order.
func survives(t *testing.T, b []byte) {
	var panics atomic.Int64
	held := &budget{}
	ours, theirs := net.Pipe()
	h := accepting()
	h.coordinator = h.incoming
	h.outgoing = func(l *amqp.Outgoing) {
		_ = l.Accept(amqp.OutgoingOptions{Settled: func(list []amqp.Settlement) {
			for _, s := range list {
				l.Settle(s.ID, s.State)
			}
		}})
		for {
			_, drain, err := l.WaitCredit(l.Context())
			if err != nil {
				return
			}
			if _, err := l.Send(l.Context(), amqp.Transfer{Tag: []byte("t"), Payload: make([]byte, 700)}); err != nil {
				return
			}
			if drain {
				l.Drained()
			}
		}
	}
	s := amqp.NewServer(amqp.Options{Handler: h, Memory: held, MaxFrameSize: 1024, MaxLinks: 8, MaxChannels: 8, MaxUnsettled: 16, CloseTimeout: time.Millisecond,
		Logger: slog.New(panicked{slog.NewTextHandler(t.Output(), nil), &panics})})
	ended, read := make(chan error, 1), make(chan struct{})
	go func() { ended <- s.ServeConn(context.Background(), theirs) }()
	go func() { defer close(read); _, _ = io.Copy(io.Discard, ours) }()
	_, _ = ours.Write(b)
	ours.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the connection has not ended")
	}
	<-read
	if n := panics.Load(); n > 0 {
		t.Fatalf("%d panics", n)
	}
	if n := held.held.Load(); n != 0 {
		t.Fatalf("%d bytes are held by nobody", n)
	}
}

func rawFrame(channel uint16, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	b = append(b, 2, wire.FrameAMQP)
	return append(binary.BigEndian.AppendUint16(b, channel), body...)
}
