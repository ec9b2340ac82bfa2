package amqp_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// peer is a client that sends and reads single frames, so that it can do what no client does.
type peer struct {
	t testing.TB
	net.Conn
	buf []byte
}

// got is a frame that a peer has read.
type got struct {
	channel uint16
	p       wire.Performative // nil for a heartbeat
	payload []byte
}

// connect connects a peer, and opens the connection unless it is to begin otherwise.
func connect(t testing.TB, s *served) *peer {
	t.Helper()
	p := connectSilent(t, s)
	p.write([]byte(wire.ProtocolAMQP))
	p.send(0, &wire.Open{ContainerID: "peer"})
	p.header(wire.ProtocolAMQP)
	expect[*wire.Open](p)
	return p
}

func connectSilent(t testing.TB, s *served) *peer {
	t.Helper()
	nc, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, Conn: nc}
	if err := nc.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return p
}

func (p *peer) write(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Fatalf("write: %v", err)
	}
}

// frames encodes frames on a channel. A []byte is the payload of the one before.
func (p *peer) frames(channel uint16, parts ...any) (b []byte) {
	p.t.Helper()
	for i, part := range parts {
		performative, ok := part.(wire.Performative)
		if !ok {
			continue
		}
		var payload []byte
		if i+1 < len(parts) {
			payload, _ = parts[i+1].([]byte)
		}
		var err error
		if b, err = wire.AppendFrame(b, wire.FrameAMQP, channel, performative, payload); err != nil {
			p.t.Fatal(err)
		}
	}
	return b
}

func (p *peer) send(channel uint16, parts ...any) {
	p.t.Helper()
	p.write(p.frames(channel, parts...))
}

func (p *peer) header(want string) {
	p.t.Helper()
	var h [8]byte
	if _, err := io.ReadFull(p, h[:]); err != nil || string(h[:]) != want {
		p.t.Fatalf("header %q, %v instead of %q", h, err, want)
	}
}

func (p *peer) read() (got, error) {
	f, buf, err := wire.ReadFrame(p, 1<<20, p.buf)
	p.buf = buf
	if err != nil || len(f.Body) == 0 {
		return got{channel: f.Channel}, err
	}
	performative, payload, err := wire.DecodePerformative(bytes.Clone(f.Body))
	return got{f.Channel, performative, payload}, err
}

// expect reads a frame, which has to be of that type. Heartbeats are left out.
func expect[T wire.Performative](p *peer) (v T) {
	p.t.Helper()
	for {
		f, err := p.read()
		if err != nil {
			p.t.Fatalf("%v instead of %T", err, v)
		}
		if f.p == nil {
			continue
		}
		v, ok := f.p.(T)
		if !ok {
			p.t.Fatalf("%T %+v instead of %T", f.p, f.p, v)
		}
		return v
	}
}

func isError(t testing.TB, err *wire.Error, want wire.Symbol) {
	t.Helper()
	if err == nil || err.Condition != want {
		t.Fatalf("error %v instead of %s", err, want)
	}
}

// begin begins a session on a channel.
func (p *peer) begin(channel uint16) {
	p.t.Helper()
	p.send(channel, &wire.Begin{IncomingWindow: 1000, OutgoingWindow: 1000})
	if b := expect[*wire.Begin](p); b.RemoteChannel == nil || *b.RemoteChannel != channel || b.HandleMax == nil {
		p.t.Fatalf("begin was answered with %+v", b)
	}
}

func source(address string) *wire.Source { return &wire.Source{Address: &address} }
func target(address string) *wire.Target { return &wire.Target{Address: &address} }
func number[T any](n T) *T               { return &n }

func senderOf(handle uint32, to string) *wire.Attach {
	return &wire.Attach{Name: "s", Handle: handle, Role: wire.RoleSender, Source: source("me"), Target: target(to), InitialDeliveryCount: number(uint32(0))}
}

func receiverOf(handle uint32, from string) *wire.Attach {
	return &wire.Attach{Name: "r", Handle: handle, Role: wire.RoleReceiver, Source: source(from), Target: target("me")}
}

// attachSender attaches a link on which the peer sends.
func (p *peer) attachSender(channel uint16, handle uint32, to string) *wire.Flow {
	p.t.Helper()
	p.send(channel, senderOf(handle, to))
	if a := expect[*wire.Attach](p); a.Target == nil || a.Source == nil || a.Role != wire.RoleReceiver || a.MaxMessageSize == nil {
		p.t.Fatalf("attach was answered with %+v", a)
	}
	return expect[*wire.Flow](p)
}

// attachReceiver attaches a link on which the peer receives.
func (p *peer) attachReceiver(channel uint16, handle uint32, from string) {
	p.t.Helper()
	p.send(channel, receiverOf(handle, from))
	if a := expect[*wire.Attach](p); a.Target == nil || a.Source == nil || a.Role != wire.RoleSender || a.InitialDeliveryCount == nil {
		p.t.Fatalf("attach was answered with %+v", a)
	}
}

func credit(handle, count, n uint32) *wire.Flow {
	return &wire.Flow{NextIncomingID: number(uint32(0)), IncomingWindow: 1000, OutgoingWindow: 1000, Handle: &handle, DeliveryCount: &count, LinkCredit: &n}
}

func transfer(handle, id uint32) *wire.Transfer {
	return &wire.Transfer{Handle: handle, DeliveryID: &id, DeliveryTag: []byte{byte(id >> 8), byte(id)}, MessageFormat: number(uint32(0))}
}

// healthy checks that another connection is served, whatever was done to the first.
func healthy(t testing.TB, s *served) {
	t.Helper()
	p := connect(t, s)
	p.begin(0)
	p.attachSender(0, 0, "q")
	p.send(0, transfer(0, 0), []byte("m"))
	d := expect[*wire.Disposition](p)
	if _, ok := d.State.(*wire.Accepted); !ok || !d.Settled || d.First != 0 {
		t.Fatalf("the message was answered with %+v", d)
	}
	p.send(0, &wire.Close{})
	if c := expect[*wire.Close](p); c.Error != nil {
		t.Fatalf("close was answered with %v", c.Error)
	}
}

// accepting accepts all that is sent to it.
func accepting() *handler {
	return &handler{
		incoming: func(l *amqp.Incoming) {
			_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) { d.Settle(&wire.Accepted{}) }})
		},
		outgoing: func(l *amqp.Outgoing) { _ = l.Accept(amqp.OutgoingOptions{}) },
	}
}
