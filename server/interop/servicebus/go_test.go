package servicebus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

// goBus is a server with a client of Azure's SDK for Go, and helpers that fail the test.
type goBus struct {
	serviceBus
	*azservicebus.Client
	t *testing.T
}

func startGoBus(t *testing.T, change func(*server.Options)) goBus {
	t.Helper()
	b := startServiceBus(t, change)
	return goBus{serviceBus: b, Client: b.goClient(t), t: t}
}

// goSuite is what Azure's SDK for Go does with a server of its own.
var goSuite = map[string]func(*testing.T, goBus){
	"One message":           testServiceBusGoOneMessage,
	"Batch":                 testServiceBusGoBatch,
	"Settlements":           testServiceBusGoSettlements,
	"Lost lock":             testServiceBusGoLostLock,
	"Too many deliveries":   testServiceBusGoTooManyDeliveries,
	"Scheduled":             testServiceBusGoScheduled,
	"Waiting receiver":      testServiceBusGoWaitingReceiver,
	"Sessions":              testServiceBusGoSessions,
	"Topics":                testServiceBusGoTopics,
	"Errors":                testServiceBusGoErrors,
	"Many links":            testServiceBusGoManyLinks,
	"Lost session":          testServiceBusGoLostSession,
	"Refused alone":         testServiceBusGoRefusedAlone,
	"Transfer dead letters": testServiceBusGoTransferDeadLetters,
}

func TestServiceBusGo(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		for name, test := range goSuite {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, startGoBus(t, on(newDatabase(t, database))))
			})
		}
	})
}

func (b serviceBus) goClient(t *testing.T) *azservicebus.Client {
	t.Helper()
	c, err := azservicebus.NewClientFromConnectionString(b.connection, &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// within is a context for what must come to an end, on a machine that is busy.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (b goBus) sender(entity string) *azservicebus.Sender {
	b.t.Helper()
	s, err := b.NewSender(entity, nil)
	return must(b.t, s, err)
}

func (b goBus) send(entity string, messages ...*azservicebus.Message) {
	b.t.Helper()
	s := b.sender(entity)
	for _, m := range messages {
		if err := s.SendMessage(within(b.t), m, nil); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := s.Close(within(b.t)); err != nil {
		b.t.Fatal(err)
	}
}

func (b goBus) receiver(queue string, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	b.t.Helper()
	r, err := b.NewReceiverForQueue(queue, o)
	return must(b.t, r, err)
}

// receive receives that many messages.
func (b goBus) receive(r interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}, n int) []*azservicebus.ReceivedMessage {
	b.t.Helper()
	var got []*azservicebus.ReceivedMessage
	for len(got) < n {
		more, err := r.ReceiveMessages(within(b.t), n-len(got), nil)
		if err != nil {
			b.t.Fatalf("after %d of %d: %v", len(got), n, err)
		}
		got = append(got, more...)
	}
	return got
}

func bodies(messages []*azservicebus.ReceivedMessage) (all []string) {
	for _, m := range messages {
		all = append(all, string(m.Body))
	}
	return all
}

func text(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }

func ptr[T any](v T) *T { return &v }

func code(err error) azservicebus.Code {
	var e *azservicebus.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// One message goes to a queue and comes back with all that was said of it.
func testServiceBusGoOneMessage(t *testing.T, b goBus) {
	b.queue(t, "orders", forebay.MessageQueueSettings{})
	before := time.Now().Add(-time.Minute)
	b.send("orders", &azservicebus.Message{
		Body: []byte("hello"), MessageID: ptr("m1"), CorrelationID: ptr("c1"), Subject: ptr("s"), To: ptr("there"), ReplyTo: ptr("here"), ReplyToSessionID: ptr("rs"),
		ContentType: ptr("text/plain"), TimeToLive: ptr(time.Hour),
		ApplicationProperties: map[string]any{"s": "x", "i": int64(7), "f": 1.5, "b": true},
	})
	r := b.receiver("orders", nil)
	m := b.receive(r, 1)[0]
	if string(m.Body) != "hello" || m.MessageID != "m1" || *m.CorrelationID != "c1" || *m.Subject != "s" || *m.To != "there" || *m.ReplyTo != "here" ||
		*m.ReplyToSessionID != "rs" || *m.ContentType != "text/plain" || *m.TimeToLive != time.Hour {
		t.Errorf("%+v", m)
	}
	if m.ApplicationProperties["s"] != "x" || m.ApplicationProperties["i"] != int64(7) || m.ApplicationProperties["f"] != 1.5 || m.ApplicationProperties["b"] != true {
		t.Errorf("properties %v", m.ApplicationProperties)
	}
	if m.DeliveryCount != 1 || *m.SequenceNumber != 1 || m.EnqueuedTime.Before(before) || m.LockedUntil.Before(time.Now()) || m.State != azservicebus.MessageStateActive {
		t.Errorf("delivery %d, number %d, enqueued %s, locked until %s", m.DeliveryCount, *m.SequenceNumber, m.EnqueuedTime, m.LockedUntil)
	}
	if err := r.CompleteMessage(within(t), m, nil); err != nil {
		t.Fatal(err)
	}
	b.isEmpty("orders")
}

// isEmpty checks that a queue holds nothing.
func (b goBus) isEmpty(queue string) {
	b.t.Helper()
	_, q, err := b.FindQueue(b.t.Context(), queue)
	if err != nil || q.Active+q.Locked+q.Deferred+q.Scheduled != 0 {
		b.t.Errorf("%s holds %+v (%v)", queue, q, err)
	}
}

// Batches are stored whole, in order.
func testServiceBusGoBatch(t *testing.T, b goBus) {
	b.queue(t, "orders", forebay.MessageQueueSettings{})
	s := b.sender("orders")
	batch, err := s.NewMessageBatch(within(t), nil)
	must(t, batch, err)
	const n = 250
	for i := range n {
		if err := batch.AddMessage(text(fmt.Sprint(i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SendMessageBatch(within(t), batch, nil); err != nil {
		t.Fatal(err)
	}
	r := b.receiver("orders", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	for i, got := range bodies(b.receive(r, n)) {
		if got != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, got)
		}
	}
	b.isEmpty("orders")
}
