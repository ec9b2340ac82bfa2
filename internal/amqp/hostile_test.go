package amqp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

func TestWrongFramesCloseTheConnection(t *testing.T) {
	s := serve(t, amqp.Options{Handler: accepting(), MaxFrameSize: 4096, MaxChannels: 10, MaxLinks: 20})
	frame := func(kind byte, body ...byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
		return append(append(b, 2, kind, 0, 0), body...)
	}
	p := &peer{t: t}
	for name, test := range map[string]struct {
		bytes []byte
		want  wire.Symbol
	}{
		"size 0":                 {make([]byte, 8), wire.ErrFramingError},
		"larger than allowed":    {[]byte{0, 0, 16, 1, 2, 0, 0, 0}, wire.ErrFramingError},
		"largest size":           {[]byte{255, 255, 255, 255, 2, 0, 0, 0}, wire.ErrFramingError},
		"data offset 1":          {[]byte{0, 0, 0, 8, 1, 0, 0, 0}, wire.ErrFramingError},
		"unknown frame type":     {frame(7, 0, 0x53, 0x10), wire.ErrFramingError},
		"SASL after open":        {frame(1, 0, 0x53, 0x41, 0xc0, 1, 0), wire.ErrFramingError},
		"no described type":      {frame(0, 0x40), wire.ErrDecodeError},
		"unknown performative":   {frame(0, 0, 0x53, 0x7f, 0x45), wire.ErrDecodeError},
		"cut in a list":          {frame(0, 0, 0x53, 0x11, 0xc0, 200, 4), wire.ErrDecodeError},
		"list of huge count":     {frame(0, 0, 0x53, 0x11, 0xd0, 0, 0, 0, 4, 255, 255, 255, 255), wire.ErrDecodeError},
		"begin without fields":   {frame(0, 0, 0x53, 0x11, 0x45), wire.ErrDecodeError},
		"a string for a number":  {frame(0, 0, 0x53, 0x16, 0xc0, 5, 1, 0xa1, 2, 'h', 'i'), wire.ErrDecodeError},
		"nested without end":     {frame(0, append([]byte{0, 0x53, 0x10}, bytes.Repeat([]byte{0xc0, 0xf0, 1}, 300)...)...), wire.ErrDecodeError},
		"a second open":          {p.frames(0, &wire.Open{ContainerID: "again"}), wire.ErrIllegalState},
		"a SASL performative":    {frame(0, 0, 0x53, 0x41, 0xc0, 7, 1, 0xa3, 4, 'E', 'V', 'I', 'L'), wire.ErrIllegalState},
		"flow, no session":       {p.frames(3, &wire.Flow{}), wire.ErrIllegalState},
		"transfer, no session":   {p.frames(3, transfer(0, 0), []byte("m")), wire.ErrIllegalState},
		"attach, no session":     {p.frames(0, senderOf(0, "q")), wire.ErrIllegalState},
		"channel beyond":         {p.frames(10, &wire.Begin{}), wire.ErrFramingError},
		"begun twice":            {p.frames(1, &wire.Begin{}, &wire.Begin{}), wire.ErrIllegalState},
		"answer without request": {p.frames(1, &wire.Begin{RemoteChannel: number(uint16(0))}), wire.ErrIllegalState},
		"handle beyond":          {p.frames(1, &wire.Begin{}, senderOf(20, "q")), wire.ErrFramingError},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, s)
			p.write(test.bytes)
			for {
				f, err := p.read()
				if err != nil {
					t.Fatalf("%v instead of a close", err)
				}
				if c, ok := f.p.(*wire.Close); ok {
					isError(t, c.Error, test.want)
					break
				}
			}
			p.Close()
			if err := s.end(t); condition(err) != test.want {
				t.Errorf("ServeConn returned %v", err)
			}
		})
	}
	healthy(t, s)
}

func TestWrongUseOfASessionEndsIt(t *testing.T) {
	s := serve(t, amqp.Options{Handler: accepting()})
	p := connect(t, s)
	p.begin(1) // a session beside, which nothing is to touch
	p.attachSender(1, 0, "q")
	for name, test := range map[string]struct {
		send []any
		want wire.Symbol
	}{
		"flow for no link":         {[]any{credit(7, 0, 1)}, wire.ErrUnattachedHandle},
		"transfer on no link":      {[]any{transfer(7, 0), []byte("m")}, wire.ErrUnattachedHandle},
		"handle in use":            {[]any{senderOf(0, "q"), senderOf(0, "q")}, wire.ErrHandleInUse},
		"transfer to a receiver":   {[]any{receiverOf(0, "q"), transfer(0, 0), []byte("m")}, wire.ErrIllegalState},
		"backwards in disposition": {[]any{&wire.Disposition{Role: wire.RoleReceiver, First: 5, Last: number(uint32(2)), Settled: true}}, wire.ErrInvalidField},
	} {
		p.begin(0)
		// What follows the wrong frame is to be ignored until our End.
		p.send(0, append(test.send, senderOf(3, "q"), transfer(3, 9), []byte("lost"), credit(99, 0, 1), &wire.Detach{Handle: 98}, &wire.End{})...)
		for {
			f, err := p.read()
			if err != nil {
				t.Fatalf("%s: %v instead of an end", name, err)
			}
			if e, ok := f.p.(*wire.End); ok {
				isError(t, e.Error, test.want)
				break
			}
			if _, ok := f.p.(*wire.Close); ok {
				t.Fatalf("%s: %+v", name, f.p)
			}
		}
	}
	p.send(1, transfer(0, 0), []byte("m"))
	if d := expect[*wire.Disposition](p); d.First != 0 {
		t.Errorf("the other session got %+v", d)
	}
}

func TestWrongDeliveriesDetachTheLink(t *testing.T) {
	s := serve(t, amqp.Options{Handler: &handler{incoming: func(l *amqp.Incoming) {
		_ = l.Accept(amqp.IncomingOptions{MaxMessageSize: 100, Receive: func(d *amqp.Delivery) { d.Settle(&wire.Accepted{}) }})
	}}})
	p := connect(t, s)
	p.begin(0)
	p.attachSender(0, 1, "q") // a link beside
	more := func(handle, id uint32) *wire.Transfer {
		x := transfer(handle, id)
		x.More = true
		return x
	}
	settled := transfer(0, 1)
	settled.Settled = true
	for name, test := range map[string]struct {
		send []any
		want wire.Symbol
	}{
		"without delivery-id":  {[]any{&wire.Transfer{DeliveryTag: []byte("t")}, []byte("m")}, wire.ErrInvalidField},
		"without tag":          {[]any{&wire.Transfer{DeliveryID: number(uint32(1))}, []byte("m")}, wire.ErrInvalidField},
		"mixed":                {[]any{more(0, 1), []byte("m"), transfer(0, 2), []byte("m")}, wire.ErrInvalidField},
		"settled and large":    {[]any{settled, make([]byte, 101)}, wire.ErrMessageSizeExceeded},
		"without end of bytes": {[]any{more(0, 1), make([]byte, 500), more(0, 1), make([]byte, 500)}, wire.ErrMessageSizeExceeded},
	} {
		p.attachSender(0, 0, "q")
		p.send(0, append(test.send, transfer(0, 3), []byte("ignored"), &wire.Detach{Handle: 0, Closed: true})...)
		d := expect[*wire.Detach](p)
		if !d.Closed {
			t.Errorf("%s: the detach does not close", name)
		}
		isError(t, d.Error, test.want)
	}
	p.send(0, transfer(1, 4), []byte("m"))
	if d := expect[*wire.Disposition](p); d.First != 4 {
		t.Errorf("the other link got %+v", d)
	}
}

func TestTooLargeMessagesAreRejectedAlone(t *testing.T) {
	s := serve(t, amqp.Options{Handler: &handler{incoming: func(l *amqp.Incoming) {
		_ = l.Accept(amqp.IncomingOptions{MaxMessageSize: 1000, Receive: func(d *amqp.Delivery) { d.Settle(&wire.Accepted{}) }})
	}}})
	p := connect(t, s)
	p.begin(0)
	p.attachSender(0, 0, "q")
	x := transfer(0, 0)
	x.More = true
	p.send(0, x, make([]byte, 700), transfer(0, 0), make([]byte, 301), transfer(0, 1), make([]byte, 1000))
	d := expect[*wire.Disposition](p)
	if r, ok := d.State.(*wire.Rejected); !ok || d.First != 0 {
		t.Fatalf("%+v", d)
	} else {
		isError(t, r.Error, wire.ErrMessageSizeExceeded)
	}
	if d := expect[*wire.Disposition](p); d.First != 1 {
		t.Fatalf("%+v", d)
	} else if _, ok := d.State.(*wire.Accepted); !ok {
		t.Fatalf("%+v", d)
	}
}

func TestHandshakesThatGoWrong(t *testing.T) {
	s := serve(t, amqp.Options{Handler: accepting(), CloseTimeout: time.Second})
	p := &peer{t: t}
	sasl := func(p wire.Performative) []byte {
		b, err := wire.AppendFrame([]byte(wire.ProtocolSASL), wire.FrameSASL, 0, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, test := range map[string]struct {
		send, want string // what is to be read, or its beginning
		close      wire.Symbol
	}{
		"HTTP":            {"GET / HTTP/1.1\r\n\r\n", wire.ProtocolAMQP, ""},
		"AMQP 0-9-1":      {"AMQP\x00\x00\x09\x01", wire.ProtocolAMQP, ""},
		"TLS by AMQP":     {wire.ProtocolTLS, wire.ProtocolAMQP, ""},
		"a cut header":    {"AMQ", "", ""},
		"nothing":         {"", "", ""},
		"no mechanism":    {string(sasl(&wire.SASLInit{Mechanism: "MAGIC"})), wire.ProtocolSASL, ""},
		"wrong SASL":      {string(sasl(&wire.SASLOutcome{})), wire.ProtocolSASL, ""},
		"AMQP for SASL":   {wire.ProtocolSASL + string(p.frames(0, &wire.Open{ContainerID: "p"})), wire.ProtocolSASL, ""},
		"SASL cut":        {wire.ProtocolSASL + "\x00\x00\x00\xff\x02\x01\x00\x00", wire.ProtocolSASL, ""},
		"SASL too large":  {wire.ProtocolSASL + "\x00\x01\x00\x00\x02\x01\x00\x00", wire.ProtocolSASL, ""},
		"begin for open":  {wire.ProtocolAMQP + string(p.frames(0, &wire.Begin{})), wire.ProtocolAMQP, wire.ErrIllegalState},
		"large open":      {wire.ProtocolAMQP + string(p.frames(0, &wire.Open{ContainerID: strings.Repeat("x", 9000)})), wire.ProtocolAMQP, wire.ErrFramingError},
		"no open":         {wire.ProtocolAMQP + "\x00\x00\x00\x0c\x02\x00\x00\x00rubb", wire.ProtocolAMQP, wire.ErrDecodeError},
		"tiny frames":     {wire.ProtocolAMQP + string(p.frames(0, &wire.Open{ContainerID: "p", MaxFrameSize: number(uint32(511))})), wire.ProtocolAMQP, wire.ErrInvalidField},
		"many heartbeats": {wire.ProtocolAMQP + string(p.frames(0, &wire.Open{ContainerID: "p", IdleTimeout: number(uint32(1))})), wire.ProtocolAMQP, wire.ErrNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			p := connectSilent(t, s)
			p.write([]byte(test.send))
			if test.close == "" {
				if err := p.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Fatal(err)
				}
				answer, _ := io.ReadAll(p)
				if !strings.HasPrefix(string(answer), test.want) {
					t.Errorf("answer %q", answer)
				}
			} else {
				p.header(test.want)
				expect[*wire.Open](p) // §2.4.3
				isError(t, expect[*wire.Close](p).Error, test.close)
				p.Close()
			}
			if err := s.end(t); err == nil {
				t.Error("ServeConn returned no error")
			}
		})
	}
	healthy(t, s)
}

func TestPipelinedClient(t *testing.T) {
	s := serve(t, amqp.Options{Handler: accepting()})
	p := connectSilent(t, s)
	b, err := wire.AppendFrame([]byte(wire.ProtocolSASL), wire.FrameSASL, 0, &wire.SASLInit{Mechanism: "ANONYMOUS"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Everything at once, up to the close, without waiting for an answer.
	b = append(b, wire.ProtocolAMQP...)
	b = append(b, p.frames(0, &wire.Open{ContainerID: "p"})...)
	b = append(b, p.frames(0, &wire.Begin{IncomingWindow: 100, OutgoingWindow: 100}, senderOf(0, "q"))...)
	b = append(b, p.frames(0, transfer(0, 0), []byte("a"), transfer(0, 1), []byte("b"), &wire.Detach{Handle: 0, Closed: true}, &wire.End{}, &wire.Close{})...)
	p.write(b)
	p.header(wire.ProtocolSASL)
	expect[*wire.SASLMechanisms](p)
	if o := expect[*wire.SASLOutcome](p); o.OutcomeCode != wire.SASLOK {
		t.Fatalf("%+v", o)
	}
	p.header(wire.ProtocolAMQP)
	expect[*wire.Open](p)
	expect[*wire.Begin](p)
	expect[*wire.Attach](p)
	accepted := uint32(0)
	for done := false; !done; {
		f, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.p.(type) {
		case *wire.Disposition:
			accepted += *f.Last - f.First + 1
		case *wire.Detach:
			if f.Error != nil || accepted != 2 {
				t.Fatalf("%d accepted before %+v", accepted, f)
			}
			done = true
		}
	}
	expect[*wire.End](p)
	expect[*wire.Close](p)
	if err := s.end(t); err != nil {
		t.Error(err)
	}
}

func TestLimitsOfLinks(t *testing.T) {
	s := serve(t, amqp.Options{Handler: accepting(), MaxLinks: 3})
	p := connect(t, s)
	p.begin(0)
	p.begin(1)
	for handle := range uint32(3) {
		p.attachReceiver(0, handle, "q")
	}
	for handle := range uint32(3) { // refused, and not detached by the peer
		p.send(1, receiverOf(handle, "q"))
		if a := expect[*wire.Attach](p); a.Source != nil {
			t.Fatal("a link too many was accepted")
		}
		isError(t, expect[*wire.Detach](p).Error, wire.ErrResourceLimitExceeded)
	}
	// One that is given back can be had again.
	p.send(0, &wire.Detach{Handle: 0, Closed: true})
	expect[*wire.Detach](p)
	for handle := range uint32(3) {
		p.send(1, &wire.Detach{Handle: handle, Closed: true})
	}
	p.attachReceiver(0, 0, "q")
	for handle := range uint32(4) {
		p.send(1, receiverOf(handle%3, fmt.Sprint(handle)))
		if handle < 3 {
			expect[*wire.Attach](p)
			expect[*wire.Detach](p)
		}
	}
	// A storm ends the connection.
	for {
		f, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := f.p.(*wire.Close); ok {
			if c.Error == nil {
				t.Fatal("closed without an error")
			}
			break
		}
		if e, ok := f.p.(*wire.End); ok {
			isError(t, e.Error, wire.ErrHandleInUse)
			break
		}
	}
	healthy(t, s)
}

func TestAPanicClosesOneConnection(t *testing.T) {
	h := accepting()
	accept := h.incoming
	h.incoming = func(l *amqp.Incoming) {
		switch address(l.Attach().Target.Address) {
		case "attach":
			panic("attach")
		case "receive":
			_ = l.Accept(amqp.IncomingOptions{Receive: func(*amqp.Delivery) { panic("receive") }})
		default:
			accept(l)
		}
	}
	s := serve(t, amqp.Options{Handler: h})
	for _, name := range []string{"attach", "receive"} {
		p := connect(t, s)
		p.begin(0)
		p.send(0, senderOf(0, name), transfer(0, 0), []byte("m"))
		for {
			f, err := p.read()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if c, ok := f.p.(*wire.Close); ok {
				isError(t, c.Error, wire.ErrInternalError)
				if strings.Contains(c.Error.Description, name) {
					t.Errorf("the peer sees %q", c.Error.Description)
				}
				break
			}
		}
		p.Close()
		if err := s.end(t); condition(err) != wire.ErrInternalError {
			t.Errorf("%s: %v", name, err)
		}
	}
	healthy(t, s)
}

func TestAPeerThatSendsWithoutEndIsHeldByTheNetwork(t *testing.T) {
	deliveries := make(chan *amqp.Delivery, 100)
	s := serve(t, amqp.Options{MaxUnsettled: 10, Handler: &handler{incoming: func(l *amqp.Incoming) {
		_ = l.Accept(amqp.IncomingOptions{Credit: 5, Receive: func(d *amqp.Delivery) { deliveries <- d }})
	}}})
	p := connect(t, s)
	p.begin(0)
	if f := p.attachSender(0, 0, "q"); *f.LinkCredit != 5 {
		t.Fatalf("%+v", f)
	}
	var b []byte
	for id := range uint32(50) {
		b = append(b, p.frames(0, transfer(0, id), []byte("m"))...)
	}
	p.write(b)
	for id := range uint32(50) {
		d := receive(t, "delivery", deliveries)
		if d.ID != id {
			t.Fatalf("delivery %d instead of %d", d.ID, id)
		}
		if id >= 9 {
			// Ten are unsettled now, so nothing more is read until one is settled.
			if len(deliveries) > 0 {
				t.Fatalf("%d more came", len(deliveries))
			}
			d.Settle(&wire.Accepted{})
		}
	}
}
