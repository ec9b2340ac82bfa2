package amqp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// piped serves one connection in memory, inside of a bubble of synctest: its clock moves only when
// nothing else can.
func piped(t *testing.T, o amqp.Options) (p *peer, ended <-chan error) {
	return pipedIn(context.Background(), t, o)
}

func pipedIn(ctx context.Context, t *testing.T, o amqp.Options) (p *peer, ended <-chan error) {
	p, _, ended = pipedServer(ctx, t, o)
	return p, ended
}

func pipedServer(ctx context.Context, t *testing.T, o amqp.Options) (p *peer, s *amqp.Server, ended <-chan error) {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	ours, theirs := net.Pipe()
	s = amqp.NewServer(o)
	done := make(chan error, 1)
	go func() { done <- s.ServeConn(ctx, theirs) }()
	t.Cleanup(func() { ours.Close() })
	return &peer{t: t, Conn: ours}, s, done
}

func (p *peer) open(idle *uint32) *wire.Open {
	p.t.Helper()
	p.write([]byte(wire.ProtocolAMQP))
	p.header(wire.ProtocolAMQP)
	p.send(0, &wire.Open{ContainerID: "peer", IdleTimeout: idle})
	return expect[*wire.Open](p)
}

func TestHeartbeatsAreSentInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, ended := piped(t, amqp.Options{Handler: accepting(), IdleTimeout: time.Hour})
		if o := p.open(number(uint32(30_000))); *o.IdleTimeout != 3_600_000 || o.MaxFrameSize == nil || o.ChannelMax == nil || o.ContainerID == "" {
			t.Errorf("%+v", o)
		}
		last := time.Now()
		for range 20 {
			f, err := p.read()
			if err != nil || f.p != nil {
				t.Fatalf("%+v, %v", f, err)
			}
			if since := time.Since(last); since > 15*time.Second || since < 10*time.Second {
				t.Errorf("a heartbeat after %s", since)
			}
			last = time.Now()
		}
		p.Close()
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}

func TestNoHeartbeatsForAPeerThatWantsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, ended := piped(t, amqp.Options{Handler: accepting(), IdleTimeout: time.Hour})
		p.open(nil)
		began := time.Now()
		f, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		c, ok := f.p.(*wire.Close)
		if !ok {
			t.Fatalf("%+v", f)
		}
		isError(t, c.Error, wire.ErrResourceLimitExceeded)
		if since := time.Since(began); since != time.Hour {
			t.Errorf("closed after %s", since)
		}
		p.Close()
		if err := <-ended; condition(err) != wire.ErrResourceLimitExceeded {
			t.Error(err)
		}
	})
}

func TestASilentPeerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, ended := piped(t, amqp.Options{Handler: accepting(), IdleTimeout: time.Minute, CloseTimeout: 3 * time.Second})
		p.open(nil)
		for range 5 {
			<-time.After(50 * time.Second)
			p.write([]byte{0, 0, 0, 8, 2, 0, 0, 0}) // keeps it alive
		}
		began := time.Now()
		isError(t, expect[*wire.Close](p).Error, wire.ErrResourceLimitExceeded)
		if since := time.Since(began); since < time.Minute || since > 2*time.Minute {
			t.Errorf("closed after %s", since)
		}
		// It does not answer the close either.
		if _, err := p.read(); !errors.Is(err, io.EOF) {
			t.Errorf("%v instead of the end", err)
		}
		if err := <-ended; condition(err) != wire.ErrResourceLimitExceeded {
			t.Error(err)
		}
	})
}

func TestAFrameThatComesByteByByteIsNotEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, ended := piped(t, amqp.Options{Handler: accepting(), IdleTimeout: time.Minute})
		p.open(nil)
		written := make(chan struct{})
		go func() {
			defer close(written)
			frame := p.frames(0, &wire.Begin{Properties: wire.Map{{Key: wire.Symbol("p"), Value: make([]byte, 200)}}})
			for _, b := range frame {
				if _, err := p.Write([]byte{b}); err != nil {
					return
				}
				<-time.After(time.Second)
			}
		}()
		began := time.Now()
		isError(t, expect[*wire.Close](p).Error, wire.ErrResourceLimitExceeded)
		if since := time.Since(began); since > 2*time.Minute {
			t.Errorf("closed after %s", since)
		}
		defer func() { <-written }()
		if err := <-ended; condition(err) != wire.ErrResourceLimitExceeded {
			t.Error(err)
		}
	})
}

func TestHalfAHandshakeIsCutOff(t *testing.T) {
	for name, sent := range map[string]string{
		"nothing":   "",
		"header":    wire.ProtocolAMQP,
		"SASL":      wire.ProtocolSASL,
		"half open": wire.ProtocolAMQP + "\x00\x00\x00\x20\x02\x00",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, ended := piped(t, amqp.Options{Handler: accepting(), HandshakeTimeout: 7 * time.Second})
				go func() { _, _ = io.Copy(io.Discard, p) }()
				p.write([]byte(sent))
				began := time.Now()
				if err := <-ended; err == nil {
					t.Error("no error")
				}
				if since := time.Since(began); since != 7*time.Second {
					t.Errorf("cut off after %s", since)
				}
			})
		})
	}
}

func TestAuthenticationEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, ended := piped(t, amqp.Options{Handler: accepting(), HandshakeTimeout: 7 * time.Second, Mechanisms: []amqp.Mechanism{{
			Name:         "SLOW",
			Authenticate: func(ctx context.Context, _ []byte) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
		}}})
		go func() { _, _ = io.Copy(io.Discard, p) }()
		b, err := wire.AppendFrame([]byte(wire.ProtocolSASL), wire.FrameSASL, 0, &wire.SASLInit{Mechanism: "SLOW"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.write(b)
		began := time.Now()
		if err := <-ended; err == nil {
			t.Error("no error")
		}
		if since := time.Since(began); since > 14*time.Second {
			t.Errorf("cut off after %s", since)
		}
	})
}

func TestAPeerThatDoesNotReadIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		closed := make(chan struct{})
		p, ended := piped(t, amqp.Options{WriteTimeout: 10 * time.Second, Handler: &handler{
			outgoing: func(l *amqp.Outgoing) {
				_ = l.Accept(amqp.OutgoingOptions{})
				for {
					if _, _, err := l.WaitCredit(l.Context()); err != nil {
						return
					}
					if _, err := l.Send(l.Context(), amqp.Transfer{Tag: []byte{1}, Payload: make([]byte, 1000)}); err != nil {
						return
					}
					sent++
				}
			},
			closed: func(*amqp.Conn) { close(closed) },
		}})
		p.open(nil)
		p.begin(0)
		p.attachReceiver(0, 0, "q")
		flow := credit(0, 0, 1_000_000)
		flow.IncomingWindow = 1_000_000
		p.send(0, flow)
		began := time.Now()
		// It reads nothing, and asks for more and more answers.
		go func() {
			echo := p.frames(0, &wire.Flow{NextIncomingID: number(uint32(0)), IncomingWindow: 1_000_000, Echo: true})
			for range 10_000 {
				if _, err := p.Write(echo); err != nil {
					return
				}
			}
		}()
		if err := <-ended; !errors.Is(err, amqp.ErrSlowReader) {
			t.Error(err)
		}
		if since := time.Since(began); since > 11*time.Second {
			t.Errorf("cut off after %s", since)
		}
		<-closed
		if sent > 400 { // one buffer on its way, one in wait, of 128 KiB each
			t.Errorf("%d messages of 1,000 bytes were held for the peer", sent)
		}
	})
}

func TestAFloodOfRequestsIsNotAnsweredWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, ended := piped(t, amqp.Options{WriteTimeout: 10 * time.Second, Handler: &handler{}})
		p.open(nil)
		p.begin(0)
		wrote := 0
		go func() {
			attach := p.frames(0, receiverOf(0, "none"), &wire.Detach{Handle: 0})
			for {
				n, err := p.Write(attach)
				if wrote += n; err != nil {
					return
				}
			}
		}()
		if err := <-ended; !errors.Is(err, amqp.ErrSlowReader) {
			t.Error(err)
		}
		synctest.Wait()
		if wrote > 4<<20 {
			t.Errorf("%d bytes of requests were read from a peer that reads no answer", wrote)
		}
	})
}
