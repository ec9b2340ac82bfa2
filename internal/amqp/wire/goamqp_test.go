package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

// The tests of this file compare this package with github.com/Azure/go-amqp, a client.

var sampleTime = time.UnixMilli(1311704463521).UTC()

// goValues has pairs of a value as go-amqp has it and as this package has it.
var goValues = []struct{ theirs, ours any }{
	{true, true},
	{uint8(200), uint8(200)},
	{uint16(60000), uint16(60000)},
	{uint32(0), uint32(0)},
	{uint32(255), uint32(255)},
	{uint32(4000000000), uint32(4000000000)},
	{uint64(0), uint64(0)},
	{uint64(255), uint64(255)},
	{uint64(1 << 63), uint64(1 << 63)},
	{int8(-3), int8(-3)},
	{int16(-300), int16(-300)},
	{int32(-3), int32(-3)},
	{int32(-70000), int32(-70000)},
	{int64(127), int64(127)},
	{int64(-1 << 40), int64(-1 << 40)},
	{float32(0.25), float32(0.25)},
	{1e300, 1e300},
	{"", ""},
	{"text €", "text €"},
	{strings.Repeat("s", 300), strings.Repeat("s", 300)},
	{[]byte{0, 255}, []byte{0, 255}},
	{amqp.Symbol("sym"), Symbol("sym")},
	{amqp.UUID(sampleUUID), sampleUUID},
	{sampleTime, sampleTime},
	{[]any{"a", int64(1), true}, List{"a", int64(1), true}},
	{map[string]any{"k": int32(7)}, Map{{"k", int32(7)}}},
	{map[any]any{uint64(9): "v"}, Map{{uint64(9), "v"}}},
	{[]string{"a", strings.Repeat("b", 300)}, Array{"a", strings.Repeat("b", 300)}},
	{[]amqp.Symbol{"a", "b"}, Array{Symbol("a"), Symbol("b")}},
	{[]int64{1, -1}, Array{int64(1), int64(-1)}},
	{[]int64{1 << 40, -1}, Array{int64(1 << 40), int64(-1)}},
	{[]int32{1, -1}, Array{int32(1), int32(-1)}},
	{[]uint64{1, 2}, Array{uint64(1), uint64(2)}},
	{[]uint32{1, 1 << 20}, Array{uint32(1), uint32(1 << 20)}},
	{[]uint16{1}, Array{uint16(1)}},
	{[]int16{-1}, Array{int16(-1)}},
	{[]int8{-1, 1}, Array{int8(-1), int8(1)}},
	{[]bool{true, false}, Array{true, false}},
	{[]float32{1.5}, Array{float32(1.5)}},
	{[]float64{1.5}, Array{1.5}},
	{[][]byte{{1}, {2, 3}}, Array{[]byte{1}, []byte{2, 3}}},
	{[]time.Time{sampleTime}, Array{sampleTime}},
	{[]amqp.UUID{amqp.UUID(sampleUUID)}, Array{sampleUUID}},
}

func TestValuesOfGoAMQP(t *testing.T) {
	for _, c := range goValues {
		t.Run(fmt.Sprintf("%T", c.theirs), func(t *testing.T) {
			encoded, err := (&amqp.Message{Value: c.theirs}).MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			m, err := DecodeMessage(encoded)
			if err != nil || !m.HasValue || !reflect.DeepEqual(m.Value, c.ours) {
				t.Errorf("%x is decoded as %#v, %v, want %#v", encoded, m, err, c.ours)
			}
			if encoded, err = (&Message{Value: c.ours, HasValue: true}).Append(nil); err != nil {
				t.Fatal(err)
			}
			var theirs amqp.Message
			if err := theirs.UnmarshalBinary(encoded); err != nil {
				t.Fatalf("go-amqp refuses %x: %v", encoded, err)
			}
			want := c.theirs
			if m, ok := want.(map[any]any); ok && m["k"] != nil {
				want = map[string]any{"k": m["k"]}
			}
			got := theirs.Value
			if symbol, ok := want.(amqp.Symbol); ok {
				want = string(symbol)
			}
			if u, ok := got.(time.Time); ok {
				got = u.UTC()
			}
			if u, ok := got.([]time.Time); ok {
				got = []time.Time{u[0].UTC()}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("go-amqp decodes %x as %#v, want %#v", encoded, got, want)
			}
		})
	}
}

// samples returns a message with everything that go-amqp can express, as each package has it.
func samples() (ours *Message, theirs *amqp.Message) {
	ours = &Message{
		Header:                &Header{Durable: true, Priority: new(uint8(7)), TTL: new(uint32(60000)), FirstAcquirer: true, DeliveryCount: 3},
		DeliveryAnnotations:   Map{{Symbol("x-opt-lock-token"), sampleUUID}},
		MessageAnnotations:    Map{{Symbol("x-opt-sequence-number"), int64(1 << 40)}},
		ApplicationProperties: Map{{"span", float32(1.5)}},
		Properties: &Properties{
			MessageID: "id", UserID: []byte("user"), To: new("to"), Subject: new(""), ReplyTo: new("reply"), CorrelationID: uint64(9),
			ContentType: new(Symbol("text/plain")), ContentEncoding: new(Symbol("gzip")), AbsoluteExpiryTime: sampleTime,
			CreationTime: sampleTime.Add(time.Second), GroupID: new("group"), GroupSequence: new(uint32(4)), ReplyToGroupID: new("other"),
		},
		Data:   [][]byte{[]byte("first"), []byte(strings.Repeat("second", 100))},
		Footer: Map{{Symbol("hash"), []byte{1}}},
	}
	expiry, created := sampleTime, sampleTime.Add(time.Second)
	theirs = &amqp.Message{
		Header:                &amqp.MessageHeader{Durable: true, Priority: 7, TTL: time.Minute, FirstAcquirer: true, DeliveryCount: 3},
		DeliveryAnnotations:   amqp.Annotations{"x-opt-lock-token": amqp.UUID(sampleUUID)},
		Annotations:           amqp.Annotations{"x-opt-sequence-number": int64(1 << 40)},
		ApplicationProperties: map[string]any{"span": float32(1.5)},
		Properties: &amqp.MessageProperties{
			MessageID: "id", UserID: []byte("user"), To: new("to"), Subject: new(""), ReplyTo: new("reply"), CorrelationID: uint64(9),
			ContentType: new("text/plain"), ContentEncoding: new("gzip"), AbsoluteExpiryTime: &expiry, CreationTime: &created,
			GroupID: new("group"), GroupSequence: new(uint32(4)), ReplyToGroupID: new("other"),
		},
		Data:   ours.Data,
		Footer: amqp.Annotations{"hash": []byte{1}},
	}
	return ours, theirs
}

func TestMessagesOfGoAMQP(t *testing.T) {
	ours, theirs := samples()
	encoded, err := theirs.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if m, err := DecodeMessage(encoded); err != nil || !reflect.DeepEqual(m, ours) {
		t.Errorf("go-amqp's message is decoded as %+v, %v, want %+v", m, err, ours)
	}
	if encoded, err = ours.Append(nil); err != nil {
		t.Fatal(err)
	}
	var got amqp.Message
	if err := got.UnmarshalBinary(encoded); err != nil {
		t.Fatal(err)
	}
	*got.Properties.AbsoluteExpiryTime = got.Properties.AbsoluteExpiryTime.UTC()
	*got.Properties.CreationTime = got.Properties.CreationTime.UTC()
	if !reflect.DeepEqual(&got, theirs) {
		t.Errorf("go-amqp decodes our message as %+v, want %+v", &got, theirs)
	}
	for _, sequence := range []bool{true, false} {
		ours, theirs := &Message{Sequences: []List{{"a"}, {int64(300)}}}, &amqp.Message{Sequence: [][]any{{"a"}, {int64(300)}}}
		if !sequence {
			ours, theirs = &Message{HasValue: true}, &amqp.Message{Value: amqp.Null{}}
		}
		encoded, err := theirs.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if m, err := DecodeMessage(encoded); err != nil || !reflect.DeepEqual(m, ours) {
			t.Errorf("%x is decoded as %+v, %v, want %+v", encoded, m, err, ours)
		}
	}
}

// script answers a client by a table, and keeps what the client sent.
type script struct {
	t    *testing.T
	conn net.Conn
	buf  []byte
}

func (s *script) header(want string) {
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s.conn, got); err != nil || string(got) != want {
		s.t.Errorf("the client sends the protocol header %x, %v", got, err)
	}
	if _, err := s.conn.Write([]byte(want)); err != nil {
		s.t.Error(err)
	}
}

func (s *script) send(kind uint8, p Performative, payload []byte) {
	frame, err := AppendFrame(nil, kind, 0, p, payload)
	if err == nil {
		_, err = s.conn.Write(frame)
	}
	if err != nil {
		s.stop("send %T: %v", p, err)
	}
}

// stop ends the script, and the client by the end of its connection.
func (s *script) stop(format string, args ...any) {
	s.t.Errorf(format, args...)
	s.conn.Close()
	runtime.Goexit()
}

// expect reads frames until one has a performative of the type, and checks that its encoding by
// this package is decoded as the same.
func expect[P Performative](s *script) (p P, payload []byte) {
	for {
		f, buf, err := ReadFrame(s.conn, 1<<20, s.buf)
		if err != nil {
			s.stop("waiting for %T: %v", p, err)
		}
		if s.buf = buf; len(f.Body) == 0 {
			continue
		}
		got, payload, err := DecodePerformative(f.Body)
		if err != nil {
			s.stop("waiting for %T: %v", p, err)
		}
		again, err := AppendPerformative(nil, got)
		if err != nil {
			s.t.Errorf("%T of the client is not encoded: %v", got, err)
		}
		if second, _, err := DecodePerformative(again); err != nil || !reflect.DeepEqual(second, got) {
			s.t.Errorf("%+v becomes %+v, %v", got, second, err)
		}
		if p, ok := got.(P); ok {
			return p, payload
		}
	}
}

// connected returns both ends of a TCP connection. A net.Pipe would not do: go-amqp does not know
// its errors.
func connected(t *testing.T) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

// TestPerformativesOfGoAMQP has go-amqp's client talk to a script that is written with this
// package.
func TestPerformativesOfGoAMQP(t *testing.T) {
	client, server := connected(t)
	ours, theirs := samples()
	done := make(chan struct{})
	defer func() {
		client.Close()
		<-done
	}()
	go func() {
		defer close(done)
		s := &script{t: t, conn: server}
		s.header(ProtocolSASL)
		s.send(FrameSASL, &SASLMechanisms{Mechanisms: []Symbol{"MSSBCBS", "PLAIN"}}, nil)
		if init, _ := expect[*SASLInit](s); string(init.InitialResponse) != "\x00user\x00secret" || init.Mechanism != "PLAIN" {
			t.Errorf("sasl-init is %+v", init)
		}
		s.send(FrameSASL, &SASLOutcome{AdditionalData: []byte("Welcome!")}, nil)
		s.header(ProtocolAMQP)
		if open, _ := expect[*Open](s); open.ContainerID != "client" || open.Hostname != "host" || *open.MaxFrameSize < MinMaxFrameSize || *open.IdleTimeout > 120000 {
			t.Errorf("open is %+v", open)
		}
		s.send(FrameAMQP, &Open{ContainerID: "server", MaxFrameSize: new(uint32(65536)), ChannelMax: new(uint16(4999)), IdleTimeout: new(uint32(240000)), Properties: Map{{Symbol("product"), "script"}}}, nil)
		begin, _ := expect[*Begin](s)
		s.send(FrameAMQP, &Begin{RemoteChannel: new(uint16(0)), NextOutgoingID: 1, IncomingWindow: 5000, OutgoingWindow: 5000, HandleMax: new(uint32(255))}, nil)

		attach, _ := expect[*Attach](s)
		if attach.Role != RoleSender || *attach.Target.Address != "queue" || *attach.SenderSettleMode != SenderMixed {
			t.Errorf("attach is %+v", attach)
		}
		answer := *attach
		answer.Role, answer.MaxMessageSize, answer.InitialDeliveryCount = RoleReceiver, new(uint64(1<<20)), nil
		s.send(FrameAMQP, &answer, nil)
		flow := &Flow{NextIncomingID: &begin.NextOutgoingID, IncomingWindow: 5000, NextOutgoingID: 1, OutgoingWindow: 5000, Handle: &attach.Handle, DeliveryCount: new(uint32(0)), LinkCredit: new(uint32(100))}
		s.send(FrameAMQP, flow, nil)
		transfer, payload := expect[*Transfer](s)
		if m, err := DecodeMessage(payload); err != nil || !reflect.DeepEqual(m, ours) || *transfer.MessageFormat != 0 {
			t.Errorf("the message received is %+v, %v", m, err)
		}
		s.send(FrameAMQP, &Disposition{Role: RoleReceiver, First: *transfer.DeliveryID, Settled: true, State: &Rejected{Error: &Error{ErrNotFound, "why", Map{{Symbol("k"), "v"}}}}}, nil)

		attach, _ = expect[*Attach](s)
		if v, ok := attach.Source.Filter.Get("com.example:filter"); !ok || !reflect.DeepEqual(v, Described{uint64(0x137000000C), "sess"}) {
			t.Errorf("the filter of %+v is %#v", attach.Source, v)
		}
		answer = *attach
		answer.Role, answer.InitialDeliveryCount = RoleSender, new(uint32(0))
		answer.Properties = Map{{Symbol("until"), int64(7)}}
		s.send(FrameAMQP, &answer, nil)
		if flow, _ := expect[*Flow](s); *flow.LinkCredit != 1 || *flow.Handle != attach.Handle {
			t.Errorf("flow is %+v", flow)
		}
		encoded, err := ours.Append(nil)
		if err != nil {
			t.Error(err)
		}
		s.send(FrameAMQP, &Transfer{Handle: attach.Handle, DeliveryID: new(uint32(0)), DeliveryTag: sampleUUID[:], MessageFormat: new(uint32(0)), More: true}, encoded[:9])
		s.send(FrameAMQP, &Transfer{Handle: attach.Handle}, encoded[9:])
		disposition, _ := expect[*Disposition](s)
		want := &Modified{UndeliverableHere: true, MessageAnnotations: Map{{Symbol("a"), "b"}}}
		if disposition.Role != RoleReceiver || !reflect.DeepEqual(disposition.State, want) {
			t.Errorf("disposition is %+v", disposition)
		}
		s.send(FrameAMQP, &Disposition{Role: RoleSender, First: 0, Last: new(uint32(0)), Settled: true, State: want}, nil)
		detach, _ := expect[*Detach](s)
		s.send(FrameAMQP, &Detach{Handle: detach.Handle, Closed: true}, nil)
		expect[*End](s)
		s.send(FrameAMQP, &End{}, nil)
		expect[*Close](s) // the client does not wait for an answer
	}()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	conn, err := amqp.NewConn(ctx, client, &amqp.ConnOptions{ContainerID: "client", HostName: "host", IdleTimeout: 2 * time.Minute, SASLType: amqp.SASLTypePlain("user", "secret")})
	must("connect", err)
	session, err := conn.NewSession(ctx, nil)
	must("begin", err)
	sender, err := session.NewSender(ctx, "queue", &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeMixed.Ptr()})
	must("attach a sender", err)
	if sender.MaxMessageSize() != 1<<20 {
		t.Errorf("max-message-size is %d", sender.MaxMessageSize())
	}
	err = sender.Send(ctx, theirs, nil)
	var refused *amqp.Error
	if !errors.As(err, &refused) || refused.Condition != amqp.ErrCondNotFound || refused.Description != "why" || refused.Info["k"] != "v" {
		t.Errorf("the send ends with %#v", err)
	}
	receiver, err := session.NewReceiver(ctx, "queue", &amqp.ReceiverOptions{
		Credit: 1, SettlementMode: amqp.ReceiverSettleModeSecond.Ptr(),
		Filters: []amqp.LinkFilter{amqp.NewLinkFilter("com.example:filter", 0x137000000C, "sess")},
	})
	must("attach a receiver", err)
	if got := receiver.Properties()["until"]; got != int64(7) {
		t.Errorf("the link's property is %#v", got)
	}
	m, err := receiver.Receive(ctx, nil)
	must("receive", err)
	if m.Properties.MessageID != "id" || string(m.Data[0]) != "first" || !reflect.DeepEqual(m.DeliveryTag, sampleUUID[:]) {
		t.Errorf("the message received is %+v", m)
	}
	must("modify", receiver.ModifyMessage(ctx, m, &amqp.ModifyMessageOptions{UndeliverableHere: true, Annotations: amqp.Annotations{"a": "b"}}))
	must("detach", receiver.Close(ctx))
	must("end", session.Close(ctx))
	must("close", conn.Close())
}
