package amqp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	goamqp "github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// dial connects Microsoft's client.
func dial(t testing.TB, s *served, o *goamqp.ConnOptions) *goamqp.Conn {
	t.Helper()
	conn, err := goamqp.Dial(limited(t), "amqp://"+s.address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// limited is a context for what has to happen.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func session(t testing.TB, conn *goamqp.Conn) *goamqp.Session {
	t.Helper()
	s, err := conn.NewSession(limited(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sender(t testing.TB, s *goamqp.Session, target string, o *goamqp.SenderOptions) *goamqp.Sender {
	t.Helper()
	l, err := s.NewSender(limited(t), target, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func receiver(t testing.TB, s *goamqp.Session, source string, o *goamqp.ReceiverOptions) *goamqp.Receiver {
	t.Helper()
	l, err := s.NewReceiver(limited(t), source, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestClientSendsAndReceives(t *testing.T) {
	s := serve(t, amqp.Options{Handler: nodeHandler(map[string]*node{"q": newNode()}), Mechanisms: []amqp.Mechanism{amqp.Anonymous("MSSBCBS"), amqp.Anonymous("ANONYMOUS")}})
	conn := dial(t, s, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
	ss := session(t, conn)
	out := sender(t, ss, "q", nil)
	in := receiver(t, ss, "q", &goamqp.ReceiverOptions{Credit: 10})
	for i := range 500 {
		sent := fmt.Appendf(nil, "message %d", i)
		if err := out.Send(limited(t), goamqp.NewMessage(sent), nil); err != nil {
			t.Fatal(err)
		}
		m, err := in.Receive(limited(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m.GetData(), sent) {
			t.Fatalf("%q instead of %q", m.GetData(), sent)
		}
		if err := in.AcceptMessage(limited(t), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(limited(t)); err != nil {
		t.Error(err)
	}
	if err := in.Close(limited(t)); err != nil {
		t.Error(err)
	}
	if err := ss.Close(limited(t)); err != nil {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := s.end(t); err != nil {
		t.Errorf("a connection that was closed in order ended with %v", err)
	}
}

func TestManyLinksOfOneConnection(t *testing.T) {
	const links, each = 32, 100
	nodes := map[string]*node{}
	for i := range links {
		nodes[fmt.Sprint("q", i)] = newNode()
	}
	s := serve(t, amqp.Options{Handler: nodeHandler(nodes)})
	conn := dial(t, s, nil)
	shared := session(t, conn)
	var done sync.WaitGroup
	for i := range links {
		name := fmt.Sprint("q", i)
		ss := shared // half of them share a session
		if i%2 == 0 {
			ss = session(t, conn)
		}
		out, in := sender(t, ss, name, nil), receiver(t, ss, name, &goamqp.ReceiverOptions{Credit: 7})
		done.Add(2)
		go func() {
			defer done.Done()
			for j := range each {
				if err := out.Send(limited(t), goamqp.NewMessage(fmt.Appendf(nil, "%s %d", name, j)), nil); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		go func() {
			defer done.Done()
			for j := range each {
				m, err := in.Receive(limited(t), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if want := fmt.Sprintf("%s %d", name, j); string(m.GetData()) != want {
					t.Errorf("%q instead of %q", m.GetData(), want)
				}
				if err := in.AcceptMessage(limited(t), m); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	done.Wait()
}

func TestLargeMessagesInManyFrames(t *testing.T) {
	for _, size := range []uint32{512, 4096, 1 << 20} {
		s := serve(t, amqp.Options{Handler: nodeHandler(map[string]*node{"q": newNode()}), MaxFrameSize: 2048})
		conn := dial(t, s, &goamqp.ConnOptions{MaxFrameSize: size})
		ss := session(t, conn)
		out := sender(t, ss, "q", nil)
		in := receiver(t, ss, "q", &goamqp.ReceiverOptions{Credit: 10})
		for _, n := range []int{0, 1, 400, 512, 2000, 2048, 100_000, 1_000_000} {
			sent := bytes.Repeat([]byte{byte(n), 1, 2, 3}, n/4)
			if err := out.Send(limited(t), goamqp.NewMessage(sent), nil); err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			m, err := in.Receive(limited(t), nil)
			if err != nil {
				t.Fatalf("%d bytes in frames of %d: %v", n, size, err)
			}
			if !bytes.Equal(m.GetData(), sent) {
				t.Errorf("%d bytes in frames of %d differ", n, size)
			}
			if err := in.AcceptMessage(limited(t), m); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestEveryWayToSettle(t *testing.T) {
	q := newNode()
	s := serve(t, amqp.Options{Handler: nodeHandler(map[string]*node{"q": q})})
	ss := session(t, dial(t, s, nil))
	out := sender(t, ss, "q", nil)
	in := receiver(t, ss, "q", &goamqp.ReceiverOptions{Credit: 100, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr()})
	ways := []struct {
		settle func(*goamqp.Message) error
		check  func(wire.DeliveryState) bool
	}{
		{func(m *goamqp.Message) error { return in.AcceptMessage(limited(t), m) }, func(s wire.DeliveryState) bool { _, ok := s.(*wire.Accepted); return ok }},
		{func(m *goamqp.Message) error { return in.ReleaseMessage(limited(t), m) }, func(s wire.DeliveryState) bool { _, ok := s.(*wire.Released); return ok }},
		{func(m *goamqp.Message) error {
			return in.RejectMessage(limited(t), m, &goamqp.Error{Condition: "test:bad", Info: map[string]any{"reason": []byte("binary")}})
		}, func(s wire.DeliveryState) bool {
			r, ok := s.(*wire.Rejected)
			if !ok || r.Error == nil || r.Error.Condition != "test:bad" {
				return false
			}
			reason, _ := r.Error.Info.Get("reason")
			b, ok := reason.([]byte)
			return ok && string(b) == "binary"
		}},
		{func(m *goamqp.Message) error {
			return in.ModifyMessage(limited(t), m, &goamqp.ModifyMessageOptions{DeliveryFailed: true, UndeliverableHere: true, Annotations: goamqp.Annotations{"a": int64(5)}})
		}, func(s wire.DeliveryState) bool {
			m, ok := s.(*wire.Modified)
			if !ok || !m.DeliveryFailed || !m.UndeliverableHere {
				return false
			}
			a, _ := m.MessageAnnotations.Get("a")
			return a == int64(5)
		}},
	}
	for i, way := range ways {
		if err := out.Send(limited(t), goamqp.NewMessage([]byte("m")), nil); err != nil {
			t.Fatal(err)
		}
		m, err := in.Receive(limited(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = way.settle(m)
		if i == 2 { // the node answers a rejection as it came, which this client reports
			var e *goamqp.Error
			if !errors.As(err, &e) || e.Condition != "test:bad" {
				t.Errorf("the rejection was answered with %v", err)
			}
		} else if err != nil {
			t.Errorf("way %d: %v", i, err)
		}
		if got := q.settlements(t, i+1)[i]; !way.check(got.State) || len(got.Tag) != 4 {
			t.Errorf("way %d: the server was told %T %+v of tag %x", i, got.State, got.State, got.Tag)
		}
	}
}

func TestSettledSendsAndReceives(t *testing.T) {
	s := serve(t, amqp.Options{Handler: nodeHandler(map[string]*node{"q": newNode()})})
	ss := session(t, dial(t, s, nil))
	out := sender(t, ss, "q", &goamqp.SenderOptions{SettlementMode: goamqp.SenderSettleModeSettled.Ptr()})
	in := receiver(t, ss, "q", &goamqp.ReceiverOptions{Credit: 5, RequestedSenderSettleMode: goamqp.SenderSettleModeSettled.Ptr()})
	for i := range 300 {
		if err := out.Send(limited(t), goamqp.NewMessage([]byte{byte(i)}), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		m, err := in.Receive(limited(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.GetData()[0] != byte(i) {
			t.Fatalf("message %d is %d", i, m.GetData()[0])
		}
	}
}

// A client that gives up before its begin or its attach is written ends that session, or that
// link, when it makes the next. Nothing else on the connection is touched by that.
func TestClientThatGaveUpEndsWhatNeverBegan(t *testing.T) {
	s := serve(t, amqp.Options{Handler: accepting()})
	conn := dial(t, s, nil)
	first := session(t, conn)
	beside := sender(t, first, "q", nil)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := conn.NewSession(late, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("a session that was given up: %v", err)
	}
	if _, err := first.NewSender(late, "q", nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("a link that was given up: %v", err)
	}
	for _, l := range []*goamqp.Sender{sender(t, session(t, conn), "q", nil), sender(t, first, "q", nil), beside} {
		if err := l.Send(limited(t), goamqp.NewMessage([]byte("m")), nil); err != nil {
			t.Error(err)
		}
	}
}

func TestBatchesKeepTheirFormatAndSections(t *testing.T) {
	s := serve(t, amqp.Options{Handler: nodeHandler(map[string]*node{"q": newNode()})})
	ss := session(t, dial(t, s, nil))
	out, in := sender(t, ss, "q", nil), receiver(t, ss, "q", nil)
	batch := &goamqp.Message{Format: 0x80013700, Data: [][]byte{[]byte("one"), bytes.Repeat([]byte("two"), 50_000), []byte("three")}}
	if err := out.Send(limited(t), batch, nil); err != nil {
		t.Fatal(err)
	}
	m, err := in.Receive(limited(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Format != batch.Format || len(m.Data) != 3 || !bytes.Equal(m.Data[1], batch.Data[1]) {
		t.Errorf("format %x, %d sections", m.Format, len(m.Data))
	}
}

func TestDrainIsAnswered(t *testing.T) {
	q := newNode()
	s := serve(t, amqp.Options{Handler: nodeHandler(map[string]*node{"q": q})})
	ss := session(t, dial(t, s, nil))
	out := sender(t, ss, "q", nil)
	in := receiver(t, ss, "q", &goamqp.ReceiverOptions{Credit: -1})
	for round := range 5 {
		for i := range round {
			if err := out.Send(limited(t), goamqp.NewMessage([]byte{byte(i)}), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := in.IssueCredit(uint32(10)); err != nil {
			t.Fatal(err)
		}
		for range round {
			m, err := in.Receive(limited(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := in.AcceptMessage(limited(t), m); err != nil {
				t.Fatal(err)
			}
		}
		if err := in.DrainCredit(limited(t), nil); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

func TestRefusedAndDetachedLinks(t *testing.T) {
	detach := make(chan func(*wire.Error), 2)
	s := serve(t, amqp.Options{Handler: &handler{
		incoming: func(l *amqp.Incoming) {
			switch address(l.Attach().Target.Address) {
			case "q":
				_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) { d.Settle(&wire.Accepted{}) }})
				detach <- l.Detach
			case "forgotten": // neither accepted nor refused
			default:
				l.Refuse(errNone)
			}
		},
		outgoing: func(l *amqp.Outgoing) {
			if address(l.Attach().Source.Address) != "q" {
				l.Refuse(errNone)
				return
			}
			_ = l.Accept(amqp.OutgoingOptions{})
			detach <- l.Detach
		},
	}})
	ss := session(t, dial(t, s, nil))
	wants := func(err error, want goamqp.ErrCond) {
		t.Helper()
		var e *goamqp.Error
		if !errors.As(err, &e) || e.Condition != want {
			t.Errorf("%v instead of %s", err, want)
		}
	}
	_, err := ss.NewSender(limited(t), "none", nil)
	wants(err, goamqp.ErrCondNotFound)
	_, err = ss.NewReceiver(limited(t), "none", nil)
	wants(err, goamqp.ErrCondNotFound)
	_, err = ss.NewSender(limited(t), "forgotten", nil)
	wants(err, goamqp.ErrCondInternalError)

	out := sender(t, ss, "q", nil)
	receive(t, "link", detach)(&wire.Error{Condition: wire.ErrDetachForced, Description: "go"})
	for err = nil; err == nil; { // until the client has seen it
		err = out.Send(limited(t), goamqp.NewMessage(nil), nil)
	}
	wants(err, goamqp.ErrCondDetachForced)

	in := receiver(t, ss, "q", nil)
	receive(t, "link", detach)(&wire.Error{Condition: wire.ErrResourceDeleted})
	_, err = in.Receive(limited(t), nil)
	wants(err, goamqp.ErrCondResourceDeleted)

	// The session goes on.
	if err := sender(t, ss, "q", nil).Send(limited(t), goamqp.NewMessage([]byte("m")), nil); err != nil {
		t.Error(err)
	}
}

func TestRejectedMessagesSayWhy(t *testing.T) {
	s := serve(t, amqp.Options{Handler: &handler{incoming: func(l *amqp.Incoming) {
		_ = l.Accept(amqp.IncomingOptions{MaxMessageSize: 1 << 40, Receive: func(d *amqp.Delivery) {
			d.Settle(&wire.Rejected{Error: &wire.Error{Condition: "test:full", Description: "no room"}})
		}})
	}}, MaxPartialBytes: 100_000})
	out := sender(t, session(t, dial(t, s, nil)), "q", nil)
	for size, want := range map[int]goamqp.ErrCond{10: "test:full", 1_000_000: goamqp.ErrCondResourceLimitExceeded} {
		var e *goamqp.Error
		if err := out.Send(limited(t), goamqp.NewMessage(make([]byte, size)), nil); !errors.As(err, &e) || e.Condition != want {
			t.Errorf("%d bytes: %v instead of %s", size, err, want)
		}
	}
}

func TestPlainAuthentication(t *testing.T) {
	identity := make(chan any, 1)
	s := serve(t, amqp.Options{
		Mechanisms: []amqp.Mechanism{amqp.Plain(func(_ context.Context, user, password string) (any, error) {
			switch {
			case user == "busy":
				return nil, fmt.Errorf("database: %w", amqp.ErrUnavailable)
			case user != "me" || password != "secret":
				return nil, errors.New("no")
			}
			return "it is " + user, nil
		})},
		Handler: &handler{opened: func(c *amqp.Conn) error { identity <- c.Identity(); return nil }},
	})
	dial(t, s, &goamqp.ConnOptions{SASLType: goamqp.SASLTypePlain("me", "secret")})
	if got := receive(t, "identity", identity); got != "it is me" {
		t.Errorf("identity %v", got)
	}
	for user, code := range map[string]string{"me": "code 1", "busy": "code 4"} {
		_, err := goamqp.Dial(limited(t), "amqp://"+s.address, &goamqp.ConnOptions{SASLType: goamqp.SASLTypePlain(user, "wrong")})
		if err == nil || !strings.Contains(fmt.Sprintf("%#v %v", err, err), code) && !strings.Contains(err.Error(), "SASL") {
			t.Errorf("%s: %v", user, err)
		}
	}
	if _, err := goamqp.Dial(limited(t), "amqp://"+s.address, nil); err == nil {
		t.Error("SASL could be left out")
	}
}

func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // it has a certificate
	defer web.Close()
	s := amqp.NewServer(amqp.Options{Handler: nodeHandler(map[string]*node{"q": newNode()})})
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ended := make(chan error, 1)
	go func() {
		nc, err := listener.Accept()
		if err == nil {
			err = s.ServeConn(context.Background(), nc)
		}
		ended <- err
	}()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	conn, err := goamqp.Dial(limited(t), "amqps://"+listener.Addr().String(), &goamqp.ConnOptions{TLSConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := sender(t, session(t, conn), "q", nil).Send(limited(t), goamqp.NewMessage(make([]byte, 200_000)), nil); err != nil {
		t.Error(err)
	}
	conn.Close()
	if err := receive(t, "end", ended); err != nil {
		t.Error(err)
	}
}

func TestShutdownClosesConnections(t *testing.T) {
	q := newNode()
	ended := make(chan error, 1)
	s := serve(t, amqp.Options{Handler: &handler{outgoing: func(l *amqp.Outgoing) {
		q.send(l, amqp.OutgoingOptions{})
		ended <- context.Cause(l.Context())
	}}})
	conn := dial(t, s, nil)
	in := receiver(t, session(t, conn), "q", nil)
	if err := s.Shutdown(limited(t)); err != nil {
		t.Fatal(err)
	}
	var e *goamqp.Error
	if _, err := in.Receive(limited(t), nil); !errors.As(err, &e) || e.Condition != goamqp.ErrCondConnectionForced {
		t.Errorf("the client was told %v", err)
	}
	if err := receive(t, "end of the link", ended); !errors.Is(err, amqp.ErrDetached) || condition(err) != wire.ErrConnectionForced {
		t.Errorf("the link ended with %v", err)
	}
	if err := s.end(t); condition(err) != wire.ErrConnectionForced {
		t.Errorf("ServeConn returned %v", err)
	}
	if _, err := goamqp.Dial(limited(t), "amqp://"+s.address, nil); err == nil {
		t.Error("a connection was served after Shutdown")
	}
	if err := s.end(t); !errors.Is(err, amqp.ErrServerClosed) {
		t.Errorf("ServeConn returned %v after Shutdown", err)
	}
}
