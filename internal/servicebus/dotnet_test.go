package servicebus

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// dotnet is a client that writes what Microsoft's SDK for .NET writes, by the sources of
// Azure.Messaging.ServiceBus and Microsoft.Azure.Amqp. Handle 0 is the coordinator's, 1 and 2
// are those of the management node.
type dotnet struct {
	*peer
	requests uint32
}

// replyTo is where the SDK has answers sent: a GUID without dashes.
const replyTo = "0f8fad5bd9cb469fa16570867728950e"

func (b *bench) dotnet(entity string) *dotnet {
	b.Helper()
	d := &dotnet{peer: b.connect("any", "any")}
	d.begin(1000)
	d.coordinates()
	node, here := entity+"/$management", ptr(replyTo)
	for _, a := range []*wire.Attach{
		{Name: "duplex:in", Handle: 1, Role: wire.RoleReceiver, Source: &wire.Source{Address: &node}, Target: &wire.Target{Address: here}},
		{Name: "duplex:out", Handle: 2, Role: wire.RoleSender, Source: &wire.Source{Address: here}, Target: &wire.Target{Address: &node}, InitialDeliveryCount: new(uint32)},
	} {
		a.SenderSettleMode = ptr(wire.SenderSettled)
		a.Properties = wire.Map{{Key: wire.Symbol(linkTimeout), Value: uint32(59_000)}}
		d.send(a)
		expect[*wire.Attach](d.peer)
	}
	d.credit(1, 50, 1000)
	return d
}

// coordinates attaches the link of the transaction controller.
func (d *dotnet) coordinates() {
	d.Helper()
	d.send(&wire.Attach{Name: "controller", Handle: 0, Role: wire.RoleSender, InitialDeliveryCount: new(uint32),
		Source: &wire.Source{Address: ptr("controller"), DistributionMode: "move"}, Coordinator: &wire.Coordinator{}})
	expect[*wire.Attach](d.peer)
}

// coordinate sends a command to the coordinator and returns its outcome.
func (d *dotnet) coordinate(command wire.Composite) wire.DeliveryState {
	d.Helper()
	payload, err := (&wire.Message{Value: command, HasValue: true}).Append(nil)
	if err != nil {
		d.Fatal(err)
	}
	d.requests++
	d.send(transfer(0, d.requests-1), payload)
	return expect[*wire.Disposition](d.peer).State
}

func (d *dotnet) declare() []byte {
	d.Helper()
	declared, ok := d.coordinate(&wire.Declare{}).(*wire.Declared)
	if !ok || len(declared.TxnID) == 0 {
		d.Fatalf("declared: %+v", declared)
	}
	return declared.TxnID
}

// discharge ends a transaction and reports whether the coordinator did as it was told.
func (d *dotnet) discharge(txn []byte, fail bool) bool {
	d.Helper()
	_, done := d.coordinate(&wire.Discharge{TxnID: txn, Fail: fail}).(*wire.Accepted)
	return done
}

// asks sends a request and returns the status and the body of the answer. The SDK settles its
// requests, gives them an empty tag, and names the transaction of its scope. It casts the status
// to an int and the text to a string.
func (d *dotnet) asks(operation string, txn []byte, body wire.Map) (status int32, answer wire.Map) {
	d.Helper()
	d.requests++
	id := fmt.Sprint("request", d.requests)
	payload, err := (&wire.Message{Properties: &wire.Properties{MessageID: id, ReplyTo: ptr(replyTo)}, Value: body, HasValue: true, ApplicationProperties: wire.Map{
		{Key: "operation", Value: operationPrefix + operation}, {Key: "com.microsoft:tracking-id", Value: id}, {Key: "com.microsoft:server-timeout", Value: uint32(59_000)},
	}}).Append(nil)
	if err != nil {
		d.Fatal(err)
	}
	request := &wire.Transfer{Handle: 2, DeliveryID: ptr(d.requests - 1), DeliveryTag: []byte{}, Settled: true, Batchable: true}
	if txn != nil {
		request.State = &wire.TransactionalState{TxnID: txn}
	}
	d.send(request, payload)
	m := d.told()
	code, isInt := property[int32](m, "statusCode")
	if _, isText := property[string](m, "statusDescription"); !isInt || !isText || m.Properties.CorrelationID != any(id) {
		d.Fatalf("%s is answered with %v %+v", operation, m.ApplicationProperties, m.Properties)
	}
	answer, _ = m.Value.(wire.Map)
	return code, answer
}

// told reads up to a transfer.
func (d *dotnet) told() *wire.Message {
	d.Helper()
	for {
		f, payload, err := d.read()
		if _, is := f.(*wire.Transfer); err == nil && !is {
			continue
		}
		var m *wire.Message
		if err == nil {
			m, err = wire.DecodeMessage(payload)
		}
		if err != nil {
			d.Fatal(err)
		}
		return m
	}
}

func property[T any](m *wire.Message, name string) (v T, is bool) {
	p, _ := m.ApplicationProperties.Get(name)
	v, is = p.(T)
	return v, is
}

// field is a field of an answer in the type to which the SDK casts it.
func field[T any](t testing.TB, answer wire.Map, name string) T {
	t.Helper()
	v, _ := answer.Get(name)
	is, ok := v.(T)
	if !ok {
		t.Fatalf("%s is %T %v, not %T", name, v, v, is)
	}
	return is
}

// Scheduled messages are cancelled by the end of a transaction.
func TestDotNetCancelsInTransactions(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{})
	d := b.dotnet("orders")
	scheduled, err := (&wire.Message{Data: [][]byte{[]byte("m")},
		MessageAnnotations: wire.Map{{Key: wire.Symbol("x-opt-scheduled-enqueue-time"), Value: time.Now().Add(time.Hour)}}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	entry := wire.Map{{Key: "message-id", Value: "m"}, {Key: "message", Value: scheduled}}
	status, answer := d.asks("schedule-message", nil, wire.Map{{Key: "messages", Value: wire.List{entry}}})
	numbers := field[wire.Array](t, answer, "sequence-numbers")
	if status != 200 || len(numbers) != 1 {
		t.Fatalf("scheduled: %d %v", status, answer)
	}
	cancels := wire.Map{{Key: "sequence-numbers", Value: wire.ArrayOf(wire.ConstructorLong, numbers...)}}
	waits := func(want bool) {
		t.Helper()
		status, _ := d.asks("peek-message", nil, wire.Map{{Key: "from-sequence-number", Value: int64(1)}, {Key: "message-count", Value: int32(1)}})
		if (status == 200) != want {
			t.Errorf("a peek is answered with %d", status)
		}
	}
	for _, rollBack := range []bool{true, false} {
		txn := d.declare()
		if status, answer := d.asks("cancel-scheduled-message", txn, cancels); status != 200 {
			t.Fatalf("cancelled: %d %v", status, answer)
		}
		waits(true)
		if !d.discharge(txn, rollBack) {
			t.Error("the transaction was not ended")
		}
		waits(rollBack)
	}
	txn := d.declare() // a message that is gone breaks its transaction
	if status, _ := d.asks("cancel-scheduled-message", txn, cancels); status != 200 || d.discharge(txn, false) {
		t.Errorf("cancelled twice: %d", status)
	}
}

// The state of a session is set by the end of a transaction. Renewing its lock is no step.
func TestDotNetUsesSessionsInTransactions(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{RequiresSession: ptr(true)})
	if _, err := b.messages.Messages.Send(t.Context(), forebay.DefaultTenant, "orders", []forebay.NewMessage{{SessionID: "s", Body: ptr("m")}}); err != nil {
		t.Fatal(err)
	}
	d := b.dotnet("orders")
	d.receives(3, "orders", func(a *wire.Attach) {
		a.SenderSettleMode, a.ReceiverSettleMode = ptr(wire.SenderUnsettled), ptr(wire.ReceiverSecond)
		a.Source.Filter = wire.Map{{Key: wire.Symbol(filterSession), Value: nil}}
		a.Properties = wire.Map{{Key: wire.Symbol("entity-type"), Value: int32(0)}, {Key: wire.Symbol(linkTimeout), Value: uint32(59_000)}}
	})
	session := wire.Map{{Key: "session-id", Value: "s"}}
	state := func() any {
		t.Helper()
		_, answer := d.asks("get-session-state", nil, session)
		v, _ := answer.Get("session-state")
		return v
	}
	for _, rollBack := range []bool{true, false} {
		txn := d.declare()
		if status, answer := d.asks("set-session-state", txn, append(session[:1:1], wire.Pair{Key: "session-state", Value: []byte("new")})); status != 200 {
			t.Fatalf("set: %d %v", status, answer)
		}
		status, answer := d.asks("renew-session-lock", txn, session)
		if _ = field[time.Time](t, answer, "expiration"); status != 200 {
			t.Errorf("renewed: %d", status)
		}
		if s := state(); s != nil || !d.discharge(txn, rollBack) {
			t.Errorf("the state was %v before the end", s)
		}
	}
	if s, _ := state().([]byte); !bytes.Equal(s, []byte("new")) {
		t.Errorf("the state is %q", s)
	}
}

// A message that was settled in a transaction can be settled again on its link after a rollback.
// After a commit the link has it settled. The SDK knows of a session's messages only so.
func TestDotNetSettlesAgainAfterARollback(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{RequiresSession: ptr(true)})
	if _, err := b.messages.Messages.Send(t.Context(), forebay.DefaultTenant, "orders", []forebay.NewMessage{{SessionID: "s", Body: ptr("m")}}); err != nil {
		t.Fatal(err)
	}
	d := b.dotnet("orders")
	d.receives(3, "orders", func(a *wire.Attach) {
		a.Source.Filter = wire.Map{{Key: wire.Symbol(filterSession), Value: nil}}
	})
	d.credit(3, 1, 1000)
	id := *expect[*wire.Transfer](d.peer).DeliveryID
	for _, rollBack := range []bool{true, false} {
		txn := d.declare()
		d.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, State: &wire.TransactionalState{TxnID: txn, Outcome: &wire.Accepted{}}})
		within := expect[*wire.Disposition](d.peer)
		if state, is := within.State.(*wire.TransactionalState); within.Settled || !is || !bytes.Equal(state.TxnID, txn) {
			t.Fatalf("within the transaction it is %+v", within)
		}
		d.requests++
		discharge, err := (&wire.Message{Value: &wire.Discharge{TxnID: txn, Fail: rollBack}, HasValue: true}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		d.send(transfer(0, d.requests-1), discharge)
		var settled, ended *wire.Disposition // of the message, and of the discharge
		for ended == nil || !rollBack && settled == nil {
			if told := expect[*wire.Disposition](d.peer); told.Role == wire.RoleSender {
				settled = told
			} else {
				ended = told
			}
		}
		if _, done := ended.State.(*wire.Accepted); !done {
			t.Fatalf("the end is answered with %+v", ended.State)
		}
		if settled != nil && (rollBack || settled.First != id || !settled.Settled) {
			t.Errorf("after the end it is %+v", settled)
		}
	}
	d.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, State: &wire.Accepted{}}) // changes nothing
	if status, _ := d.asks("peek-message", nil, wire.Map{{Key: "from-sequence-number", Value: int64(1)}, {Key: "message-count", Value: int32(1)}, {Key: "session-id", Value: "s"}}); status != 204 {
		t.Errorf("a peek is answered with %d", status)
	}
}

// A link to an entity that is disabled for receivers is refused. The SDK would take one that ends
// after its Attach for an empty queue.
func TestDotNetReceivesFromDisabled(t *testing.T) {
	b := newBench(t, nil)
	for _, status := range []forebay.EntityStatus{forebay.EntityDisabled, forebay.EntityReceiveDisabled} {
		b.queue(forebay.DefaultTenant, string(status), forebay.MessageQueueSettings{EntityChange: forebay.EntityChange{Status: status}})
		d := b.dotnet(string(status))
		for handle, from := range []string{string(status), string(status) + "/$deadletterqueue"} {
			if attach := d.receives(uint32(3+handle), from, nil); attach.Source != nil {
				t.Errorf("%s is attached", from)
			}
			if e := expect[*wire.Detach](d.peer).Error; e == nil || e.Condition != conditionDisabled {
				t.Errorf("%s is refused with %+v", from, e)
			}
		}
	}
}

// lockOf is the lock token of a delivery, as the SDK reads it from the tag.
func lockOf(t testing.TB, tag []byte) wire.UUID {
	t.Helper()
	if len(tag) != 16 {
		t.Fatalf("the tag is %x", tag)
	}
	return wire.UUID{tag[3], tag[2], tag[1], tag[0], tag[5], tag[4], tag[7], tag[6], tag[8], tag[9], tag[10], tag[11], tag[12], tag[13], tag[14], tag[15]}
}

// What cannot wait for the end of a transaction is refused in it, and breaks it.
func TestDotNetIsRefusedInTransactions(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{})
	d := b.dotnet("orders")
	for operation, body := range map[string]wire.Map{
		"receive-by-sequence-number": {{Key: "sequence-numbers", Value: wire.ArrayOf(wire.ConstructorLong, int64(1))}, {Key: "receiver-settle-mode", Value: uint32(0)}},
		"batch-delete-messages":      {{Key: "message-count", Value: int32(1)}, {Key: "enqueued-time-utc", Value: time.Now()}},
	} {
		txn := d.declare()
		if status, _ := d.asks(operation, txn, body); status != 400 || d.discharge(txn, false) {
			t.Errorf("%s is answered with %d", operation, status)
		}
	}
	if _, err := b.messages.Messages.Send(t.Context(), forebay.DefaultTenant, "orders", []forebay.NewMessage{{Body: ptr("m")}}); err != nil {
		t.Fatal(err)
	}
	d.receives(3, "orders", nil)
	d.credit(3, 1, 1000)
	lock := lockOf(t, expect[*wire.Transfer](d.peer).DeliveryTag)
	txn := d.declare() // locks are none of its steps
	for _, lock := range []wire.UUID{lock, {1}} {
		status, answer := d.asks("renew-lock", txn, wire.Map{{Key: "lock-tokens", Value: wire.ArrayOf(wire.ConstructorUUID, lock)}})
		switch {
		case status == 200:
			_ = field[wire.Array](t, answer, "expirations")[0].(time.Time)
		case lock != wire.UUID{1}:
			t.Errorf("a lock is not renewed: %d", status)
		}
	}
	status, _ := d.asks("receive-by-sequence-number", txn, wire.Map{
		{Key: "sequence-numbers", Value: wire.ArrayOf(wire.ConstructorLong, int64(1))}, {Key: "receiver-settle-mode", Value: uint32(1)}})
	if status != 404 || !d.discharge(txn, false) {
		t.Errorf("a message that is not there is answered with %d", status)
	}
}

// The SDK documents NotSupportedException where a lock of a session cannot be shared.
func TestDotNetAsksToShareASession(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{RequiresSession: ptr(true)})
	d := b.dotnet("orders")
	for handle, pair := range []wire.Pair{
		{Key: wire.Symbol(filterShared), Value: wire.Described{Descriptor: descriptorShared, Value: wire.List{"s", nil}}},
		{Key: wire.Symbol("another"), Value: wire.Described{Descriptor: descriptorShared, Value: wire.List{"s", wire.UUID{1}}}},
	} {
		d.receives(uint32(3+handle), "orders", func(a *wire.Attach) { a.Source.Filter = wire.Map{pair} })
		if e := expect[*wire.Detach](d.peer).Error; e == nil || e.Condition != "amqp:not-implemented" {
			t.Errorf("refused with %+v", e)
		}
	}
}

// The SDK asks for sessions with messages by the last moment of its calendar in its own zone.
func TestDotNetListsSessions(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{RequiresSession: ptr(true)})
	if _, err := b.messages.Messages.Send(t.Context(), forebay.DefaultTenant, "orders", []forebay.NewMessage{{SessionID: "s", Body: ptr("m")}}); err != nil {
		t.Fatal(err)
	}
	d := b.dotnet("orders")
	last := time.UnixMilli(253402300800000).UTC()
	for since, want := range map[time.Time]int32{last: 200, last.Add(-time.Millisecond): 200, last.Add(-14 * time.Hour): 200, time.Now(): 204} {
		status, answer := d.asks("get-message-sessions", nil, wire.Map{
			{Key: "last-updated-time", Value: since}, {Key: "skip", Value: int32(0)}, {Key: "top", Value: int32(100)}})
		if status != want {
			t.Errorf("%v is answered with %d", since, status)
		}
		if status == 200 && (field[int32](t, answer, "skip") != 1 || field[wire.Array](t, answer, "sessions-ids")[0] != any("s")) {
			t.Errorf("%v is answered with %v", since, answer)
		}
	}
}

// A filter's properties come back in the types that C# has for them.
func TestDotNetReadsRules(t *testing.T) {
	b := newBench(t, nil)
	if _, _, err := b.messages.Topics.Put(t.Context(), forebay.DefaultTenant, "events", forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.messages.Subscriptions.Put(t.Context(), forebay.DefaultTenant, "events", "all", forebay.SubscriptionSettings{}); err != nil {
		t.Fatal(err)
	}
	d := b.dotnet("events/Subscriptions/all")
	properties := wire.Map{{Key: "int", Value: int32(-5)}, {Key: "long", Value: int64(1) << 40}, {Key: "text", Value: "x"}, {Key: "guid", Value: wire.UUID{1}}}
	status, _ := d.asks("add-rule", nil, wire.Map{{Key: "rule-name", Value: "r"}, {Key: "rule-description", Value: wire.Map{
		{Key: "correlation-filter", Value: wire.Map{{Key: "label", Value: "l"}, {Key: "properties", Value: properties}}}}}})
	if status != 200 {
		t.Fatalf("added: %d", status)
	}
	_, answer := d.asks("enumerate-rules", nil, wire.Map{{Key: "top", Value: int32(100)}, {Key: "skip", Value: int32(0)}})
	for _, r := range field[wire.List](t, answer, "rules") {
		rule := field[wire.Described](t, r.(wire.Map), "rule-description").Value.(wire.List)
		if rule[2] != any("r") {
			continue
		}
		got, _ := rule[0].(wire.Described).Value.(wire.List)[8].(wire.Map)
		for _, p := range properties {
			if v, _ := got.Get(p.Key); v != p.Value {
				t.Errorf("%s is %T %v", p.Key, v, v)
			}
		}
		return
	}
	t.Errorf("there is no rule in %v", answer)
}
