package servicebus

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// copies attaches a link like that of a browser of JMS.
func copies(a *wire.Attach) { a.Source.DistributionMode = "copy" }

// A browser gets each message that could be received, and leaves all where they are.
func TestABrowserLeavesTheMessages(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{RequiresSession: ptr(true)})
	list := make([]forebay.NewMessage, 3)
	for i := range list {
		list[i].SessionID = "s"
	}
	if _, err := b.messages.Messages.Send(t.Context(), forebay.DefaultTenant, "orders", list); err != nil {
		t.Fatal(err)
	}
	p := b.connect("any", "any")
	p.begin(1000)
	p.receives(0, "orders", copies)
	p.credit(0, 2, 1000)
	for range 2 {
		expect[*wire.Transfer](p)
	}
	p.send(&wire.Disposition{Role: wire.RoleReceiver, First: 1, State: &wire.Accepted{}})
	if answer := expect[*wire.Disposition](p); answer.First != 1 || !answer.Settled {
		t.Errorf("%+v", answer)
	}
	p.drain(0, 2, 10, 1000)
	expect[*wire.Transfer](p)
	for {
		f, _, err := p.read()
		if flow, ok := f.(*wire.Flow); ok && flow.Drain && *flow.LinkCredit == 0 && *flow.DeliveryCount == 12 {
			break
		}
		if _, other := f.(*wire.Transfer); other || err != nil {
			t.Fatalf("%T, %v", f, err)
		}
	}
	q, err := b.messages.Queues.Get(t.Context(), forebay.DefaultTenant, "orders")
	if err != nil || q.Active != 3 || q.Locked != 0 {
		t.Errorf("%+v, %v", q, err)
	}
}

// Browsers look for more again and again, so a tenant has fewer of them than of other links. One
// that leaves makes room.
func TestBrowsersAreBounded(t *testing.T) {
	inBubble(t, forebay.DefaultMaxMessageBytes, func(b bubble) {
		b.queue("orders", forebay.MessageQueueSettings{})
		for range maxTenantBrowsers - 1 {
			_, err := b.browsers.enter(forebay.DefaultTenant)
			b.ok(err)
		}
		p, leave := b.peer()
		defer leave()
		p.begin(1000)
		opens := func(handle uint32, name string, change func(*wire.Attach)) {
			b.Helper()
			if a := p.receives(handle, "orders", func(a *wire.Attach) {
				if a.Name = name; change != nil {
					change(a)
				}
			}); a.Source == nil {
				b.Errorf("the link %s is refused: %+v", name, expect[*wire.Detach](p).Error)
			}
		}
		opens(0, "first", copies)
		if a := p.receives(1, "orders", func(a *wire.Attach) { a.Name = "another"; copies(a) }); a.Source != nil {
			b.Errorf("the link was accepted: %+v", a)
		}
		if d := expect[*wire.Detach](p); d.Error == nil || d.Error.Condition != conditionFull {
			b.Errorf("%+v", d)
		}
		b.places.mu.Lock()
		if b.places.all != 1 {
			b.Errorf("%d links have places", b.places.all)
		}
		b.places.mu.Unlock()
		p.send(&wire.Detach{Handle: 1, Closed: true})
		opens(1, "plain", nil) // what is no browser is not bounded so
		p.send(&wire.Detach{Handle: 0, Closed: true})
		expect[*wire.Detach](p)
		synctest.Wait() // its place is free after the answer
		opens(0, "last", copies)
	})
}

// A copy that was sent is not sent again because there was no memory for the next one.
func TestABrowserSendsEachMessageOnce(t *testing.T) {
	inBubble(t, forebay.DefaultMaxMessageBytes, func(b bubble) {
		b.queue("orders", forebay.MessageQueueSettings{})
		_, err := b.messages.Messages.Send(b.Context(), forebay.DefaultTenant, "orders", []forebay.NewMessage{{Subject: "small"}, {BodyBase64: make([]byte, 300_000)}})
		b.ok(err)
		others := b.written.Claim("other")
		b.ok(others.Grow(b.Context(), b.written.Capacity()))
		time.AfterFunc(11*time.Second, others.Release) // when the second was refused
		p, leave := b.peer()
		defer leave()
		p.begin(1000)
		p.receives(0, "orders", copies)
		p.credit(0, 3, 1000)
		if small := expect[*wire.Transfer](p); small.More {
			b.Errorf("%+v", small)
		}
		if large := expect[*wire.Transfer](p); !large.More {
			b.Errorf("%+v comes instead of the second message, which has several frames", large)
		}
	})
}

// A browser whose client asks for what there is now tries again while the database fails, but not
// without a pause.
func TestABrowserPausesWhileTheDatabaseFails(t *testing.T) {
	inBubble(t, forebay.DefaultMaxMessageBytes, func(b bubble) {
		b.queue("orders", forebay.MessageQueueSettings{})
		p, leave := b.peer()
		defer leave()
		p.begin(1000)
		p.receives(0, "orders", copies)
		b.ok(b.store.DB.Close())
		p.drain(0, 0, 10, 1000)
		synctest.Wait() // it never comes about while anything runs on
		const failed = "cannot send copies"
		if n := b.log.count(failed); n != 1 {
			b.Errorf("%d failures are logged, want 1", n)
		}
		<-time.After(retryReceive)
		synctest.Wait()
		if n := b.log.count(failed); n != 2 {
			b.Errorf("%d failures are logged, want 2", n)
		}
	})
}

// A link that wants only some messages must not get the others.
func TestALinkCannotSelect(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{})
	p := b.connect("any", "any")
	p.begin(1000)
	for handle, descriptor := range []any{wire.Symbol(filterSelector), descriptorSelector} {
		p.receives(uint32(handle), "orders", func(a *wire.Attach) {
			a.Source.Filter = wire.Map{{Key: wire.Symbol("jms-selector"), Value: wire.Described{Descriptor: descriptor, Value: "a = 1"}}}
		})
		if d := expect[*wire.Detach](p); d.Error == nil || d.Error.Condition != conditionNotImpl {
			t.Errorf("%v: %+v", descriptor, d.Error)
		}
	}
}

// A client of JMS settles in its transaction and for itself. It counts on getting the message
// again at once if it rolls back.
func TestARollbackGivesBackWhatItsClientHasSettled(t *testing.T) {
	b := newBench(t, nil)
	p, id := b.delivered("m")
	p.send(&wire.Attach{Name: "tx", Handle: 2, Role: wire.RoleSender, Source: &wire.Source{}, Coordinator: &wire.Coordinator{}, InitialDeliveryCount: new(uint32)})
	expect[*wire.Attach](p)
	request := func(n uint32, value any) wire.DeliveryState {
		m, err := (&wire.Message{Value: value, HasValue: true}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		p.send(transfer(2, n), m)
		return expect[*wire.Disposition](p).State
	}
	declared, ok := request(1, wire.Described{Descriptor: uint64(0x31), Value: wire.List{nil}}).(*wire.Declared)
	if !ok {
		t.Fatal("no transaction was declared")
	}
	p.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, Settled: true, State: &wire.TransactionalState{TxnID: declared.TxnID, Outcome: &wire.Accepted{}}})
	if state := request(2, wire.Described{Descriptor: uint64(0x32), Value: wire.List{declared.TxnID, true}}); state == nil {
		t.Error("the rollback was not answered")
	}
	q, err := b.messages.Queues.Get(t.Context(), forebay.DefaultTenant, "orders")
	if err != nil || q.Active != 1 || q.Locked != 0 {
		t.Errorf("%+v, %v", q, err)
	}
}

// Each link of Microsoft's older SDK for Java has a session of its own, and its delivery tags are
// longer than those of the standard.
func TestAnAnswerGoesToTheSessionThatItsRequestNames(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{})
	p := b.connect("any", "any")
	p.begin(1000)
	p.sends(0, "orders/$management")
	on := func(channel uint16, parts ...any) { p.frames(wire.FrameAMQP, channel, parts...) }
	on(1, &wire.Begin{IncomingWindow: 1000, OutgoingWindow: 1000})
	expect[*wire.Begin](p)
	on(1, &wire.Attach{Name: "answers", Role: wire.RoleReceiver, Source: &wire.Source{Address: ptr("orders/$management")}, Target: &wire.Target{Address: ptr("me")}})
	expect[*wire.Attach](p)
	on(1, &wire.Flow{NextIncomingID: new(uint32), IncomingWindow: 1000, OutgoingWindow: 1000, Handle: new(uint32), DeliveryCount: new(uint32), LinkCredit: ptr(uint32(1))})
	request := transfer(0, 0)
	request.DeliveryTag, request.Settled = []byte("264edad5-6b4d-4910-80e6-14369def0123"), true
	p.send(request, asks(t, "peek-message", wire.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(1)}}))
	if d := expect[*wire.Transfer](p); d.Handle != 0 {
		t.Errorf("%+v", d)
	}
}
