package servicebus

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
	"github.com/forebayhq/forebay/internal/stores"
)

// patience is how long a test waits for what has to happen.
const patience = time.Minute

// bench is an endpoint over a database of its own, on loopback. It has no keys at first.
type bench struct {
	*testing.T
	*Endpoint
	store   *stores.Stores
	keys    *keys.Service
	address string
	// stop ends Serve. ended is closed when it has returned.
	stop  context.CancelFunc
	ended chan struct{}
}

func newBench(t *testing.T, change func(*Options)) *bench {
	t.Helper()
	return newGuardedBench(t, change, nil)
}

func newGuardedBench(t *testing.T, change func(*Options), guard func(*http.Request) error) *bench {
	t.Helper()
	s, err := stores.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, store: s, keys: keys.NewService(s.Keys, nil), ended: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	o := Options{Messages: messaging.New(messaging.Options{Store: s.Bus}), Verifier: auth.New(auth.Options{Keys: b.keys, Logger: log}), Logger: log}
	if change != nil {
		change(&o)
	}
	b.Endpoint = New(o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.address = l.Addr().String()
	var ctx context.Context
	ctx, b.stop = context.WithCancel(context.Background())
	go func() {
		defer close(b.ended)
		web := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: patience}
		if err := b.Serve(ctx, l, ServeOptions{HTTP: web, Guard: guard, Connections: connections.New(1000)}); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() {
		b.stop()
		<-b.ended
		for what, pool := range map[string]interface{ Held() int64 }{"received": b.received, "sent": b.sent, "written": b.written} {
			if held := pool.Held(); held != 0 {
				t.Errorf("%d bytes of what is %s are held at the end", held, what)
			}
		}
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// queue makes a queue of a tenant.
func (b *bench) queue(tenant, name string, settings forebay.MessageQueueSettings) {
	b.Helper()
	if _, _, err := b.messages.Queues.Put(b.Context(), tenant, name, settings); err != nil {
		b.Fatal(err)
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came about: %s", what)
		}
	}
}

// peer is a client that sends and reads single frames, so that it can do what no SDK does.
type peer struct {
	testing.TB
	net.Conn
	buf []byte
}

// connect opens a connection with the id and the text of a key, by SASL.
func (b *bench) connect(id, key string) *peer {
	b.Helper()
	nc, err := net.Dial("tcp", b.address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { nc.Close() })
	return open(b, nc, id, key)
}

// open opens a connection on a stream. Without an id it is anonymous.
func open(t testing.TB, nc net.Conn, id, key string) *peer {
	t.Helper()
	p := &peer{TB: t, Conn: nc}
	if err := nc.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	init := &wire.SASLInit{Mechanism: "ANONYMOUS"}
	if id != "" {
		init = &wire.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00" + id + "\x00" + key)}
	}
	p.header(wire.ProtocolSASL)
	expect[*wire.SASLMechanisms](p)
	p.frames(wire.FrameSASL, 0, init)
	if o := expect[*wire.SASLOutcome](p); o.OutcomeCode != wire.SASLOK {
		t.Fatalf("SASL ended with code %d", o.OutcomeCode)
	}
	p.header(wire.ProtocolAMQP)
	p.send(&wire.Open{ContainerID: "peer"})
	expect[*wire.Open](p)
	return p
}

func (p *peer) header(protocol string) {
	p.Helper()
	var h [8]byte
	if _, err := p.Write([]byte(protocol)); err != nil {
		p.Fatal(err)
	}
	if _, err := io.ReadFull(p.Conn, h[:]); err != nil || string(h[:]) != protocol {
		p.Fatalf("header %q, %v", h, err)
	}
}

// send sends frames on channel 0. A []byte is the payload of the one before.
func (p *peer) send(parts ...any) {
	p.Helper()
	p.frames(wire.FrameAMQP, 0, parts...)
}

func (p *peer) frames(kind uint8, channel uint16, parts ...any) {
	p.Helper()
	var b []byte
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
		if b, err = wire.AppendFrame(b, kind, channel, performative, payload); err != nil {
			p.Fatal(err)
		}
	}
	if _, err := p.Write(b); err != nil {
		p.Fatal(err)
	}
}

// read reads the next frame that is no heartbeat.
func (p *peer) read() (wire.Performative, []byte, error) {
	for {
		f, buf, err := wire.ReadFrame(p.Conn, 1<<20, p.buf)
		p.buf = buf
		if err != nil {
			return nil, nil, err
		}
		if len(f.Body) > 0 {
			return wire.DecodePerformative(bytes.Clone(f.Body))
		}
	}
}

// expect reads up to a frame of that type. Flows before it are left out, and others fail the test.
func expect[T wire.Performative](p *peer) (v T) {
	p.Helper()
	for {
		f, _, err := p.read()
		if err != nil {
			p.Fatalf("%v instead of %T", err, v)
		}
		if v, ok := f.(T); ok {
			return v
		}
		if _, ok := f.(*wire.Flow); !ok {
			p.Fatalf("%T %+v instead of %T", f, f, v)
		}
	}
}

func (p *peer) begin(window uint32) {
	p.Helper()
	p.send(&wire.Begin{IncomingWindow: window, OutgoingWindow: 1000})
	expect[*wire.Begin](p)
}

// sends attaches a link on which the peer sends.
func (p *peer) sends(handle uint32, to string) {
	p.Helper()
	p.send(&wire.Attach{Name: "to " + to, Handle: handle, Role: wire.RoleSender, Source: &wire.Source{Address: ptr("me")}, Target: &wire.Target{Address: &to}, InitialDeliveryCount: new(uint32)})
	expect[*wire.Attach](p)
}

// receives attaches a link on which the peer receives, and lets change its attach.
func (p *peer) receives(handle uint32, from string, change func(*wire.Attach)) *wire.Attach {
	p.Helper()
	a := &wire.Attach{Name: "from " + from, Handle: handle, Role: wire.RoleReceiver, Source: &wire.Source{Address: &from}, Target: &wire.Target{Address: ptr("me")}}
	if change != nil {
		change(a)
	}
	p.send(a)
	return expect[*wire.Attach](p)
}

// credit gives a link credit. The session takes that many frames.
func (p *peer) credit(handle, n, window uint32) {
	p.Helper()
	p.send(&wire.Flow{NextIncomingID: new(uint32), IncomingWindow: window, OutgoingWindow: 1000, Handle: &handle, DeliveryCount: new(uint32), LinkCredit: &n})
}

// drain has a link send what there is now, and take back the rest of its credit.
func (p *peer) drain(handle, delivered, n, window uint32) {
	p.Helper()
	p.send(&wire.Flow{NextIncomingID: &delivered, IncomingWindow: window, OutgoingWindow: 1000, Handle: &handle, DeliveryCount: &delivered, LinkCredit: &n, Drain: true})
}

func transfer(handle, id uint32) *wire.Transfer {
	return &wire.Transfer{Handle: handle, DeliveryID: &id, DeliveryTag: []byte{byte(id >> 8), byte(id)}, MessageFormat: new(uint32)}
}

func ptr[T any](v T) *T { return &v }

// encoded is a message of that body.
func encoded(t testing.TB, body []byte) []byte {
	t.Helper()
	b, err := (&wire.Message{Data: [][]byte{body}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
