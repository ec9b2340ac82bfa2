package content_test

import (
	"bytes"
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/servicebus/content"
	"pgregory.net/rapid"
)

// onBothEngines runs a test with a service for messages on a database of each kind.
func onBothEngines(t *testing.T, test func(*testing.T, *messaging.Service)) {
	t.Parallel()
	for kind, database := range dbtest.Databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, serve(t, database(t)))
		})
	}
}

func serve(t *testing.T, where db.Options) *messaging.Service {
	t.Helper()
	s, end := open(t, where)
	t.Cleanup(func() { must(t, end()) })
	return s
}

func open(t *testing.T, where db.Options) (s *messaging.Service, end func() error) {
	t.Helper()
	where.Serve = true
	queues := &queue.Store{}
	store := bus.NewStore(queues)
	d, err := db.Open(context.WithoutCancel(t.Context()), where, queues, &audit.Store{}, store)
	must(t, err)
	return messaging.New(messaging.Options{Store: store}), d.Close
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const tenant = "acme"

func putQueue(t *testing.T, s *messaging.Service, name string, settings forebay.MessageQueueSettings) {
	t.Helper()
	_, _, err := s.Queues.Put(t.Context(), tenant, name, settings)
	must(t, err)
}

// take receives one message of an entity.
func take(t *testing.T, s *messaging.Service, path string) *bus.Message {
	t.Helper()
	got, err := s.Raw.Receive(t.Context(), tenant, path, messaging.Received{Max: 1, Wait: time.Minute})
	if err != nil || len(got) != 1 {
		t.Fatalf("%s: received %d: %v", path, len(got), err)
	}
	return &got[0]
}

func tokenOf(m *bus.Message) string { return message.NewToken(m.Seq, m.Token) }

// sent is a message as Microsoft's client for Go encodes it.
func sent(t *testing.T, m *amqp.Message) []byte {
	t.Helper()
	b, err := m.MarshalBinary()
	must(t, err)
	return b
}

// received is a message as that client decodes it.
func received(t *testing.T, m *bus.Message, o content.Options) *amqp.Message {
	t.Helper()
	b, err := content.ToAMQP(m, o)
	must(t, err)
	var got amqp.Message
	must(t, got.UnmarshalBinary(b))
	return &got
}

func ptr[T any](v T) *T { return &v }

// rich has every part of a message, and properties of each type that the client has.
func rich() *amqp.Message {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	return &amqp.Message{
		Header:      &amqp.MessageHeader{Durable: true, Priority: 7},
		Annotations: amqp.Annotations{"x-opt-partition-key": "p", "mine": int16(3), "x-opt-sequence-number": int64(99)},
		Properties: &amqp.MessageProperties{MessageID: amqp.UUID{1, 2, 3}, UserID: []byte("me"), To: ptr("to"), Subject: ptr("subject"), ReplyTo: ptr("reply"),
			CorrelationID: uint64(5), ContentType: ptr("application/json"), ContentEncoding: ptr("gzip"), GroupSequence: ptr(uint32(4)), ReplyToGroupID: ptr("answers")},
		ApplicationProperties: map[string]any{"bool": true, "ubyte": uint8(1), "ushort": uint16(2), "uint": uint32(3), "ulong": uint64(4), "byte": int8(-1), "short": int16(-2),
			"int": int32(-3), "long": int64(-4), "float": float32(1.5), "double": 2.5, "string": "ä", "binary": []byte{0, 1}, "time": at, "uuid": amqp.UUID{9}, "null": nil},
		Data:   [][]byte{[]byte(`{"a":1}`)},
		Footer: amqp.Annotations{"hash": []byte{1, 2}},
	}
}

// checkRich checks that a receiver gets all of it, but for what change does.
func checkRich(t *testing.T, what string, m *bus.Message, o content.Options, change func(want *amqp.Message)) {
	t.Helper()
	got, want, plain := received(t, m, o), &amqp.Message{}, rich()
	if change != nil {
		change(plain)
	}
	must(t, want.UnmarshalBinary(sent(t, plain))) // as the client decodes it
	if !reflect.DeepEqual(got.ApplicationProperties, want.ApplicationProperties) {
		t.Errorf("%s: application properties are\n%v, not\n%v", what, got.ApplicationProperties, want.ApplicationProperties)
	}
	if !reflect.DeepEqual(got.Properties, want.Properties) {
		t.Errorf("%s: properties are\n%+v, not\n%+v", what, got.Properties, want.Properties)
	}
	if !reflect.DeepEqual(got.Data, want.Data) || !reflect.DeepEqual(got.Footer, want.Footer) || got.Value != nil {
		t.Errorf("%s: the body is %q %v, the footer %v", what, got.Data, got.Value, got.Footer)
	}
	if !got.Header.Durable || got.Header.Priority != 7 || got.Annotations["mine"] != int16(3) || got.Annotations["x-opt-partition-key"] != "p" ||
		got.Annotations["x-opt-sequence-number"] != m.Seq || m.Seq == 99 {
		t.Errorf("%s: the header is %+v, the annotations %v", what, got.Header, got.Annotations)
	}
}

// A message leaves as it came, wherever it has been.
func TestMessagesAreKeptWhole(t *testing.T) {
	onBothEngines(t, func(t *testing.T, s *messaging.Service) {
		ctx := t.Context()
		putQueue(t, s, "end", forebay.MessageQueueSettings{})
		putQueue(t, s, "start", forebay.MessageQueueSettings{ForwardTo: "end"})
		_, _, err := s.Topics.Put(ctx, tenant, "topic", forebay.TopicSettings{})
		must(t, err)
		for _, name := range []string{"one", "two"} {
			_, _, err = s.Subscriptions.Put(ctx, tenant, "topic", name, forebay.SubscriptionSettings{})
			must(t, err)
		}
		_, _, err = s.Subscriptions.Put(ctx, tenant, "topic", "acting", forebay.SubscriptionSettings{Rules: []forebay.NewRule{{Name: "r",
			RuleSettings: forebay.RuleSettings{SQLFilter: "int = -3 AND uint = 3 AND sys.ReplyTo = 'reply'", SQLAction: "SET sys.Label = 'changed'; SET ushort = 5; REMOVE byte"}}}})
		must(t, err)
		large := func(m *amqp.Message) { m.Data = [][]byte{bytes.Repeat([]byte("x"), 100_000)} }
		send := func(path string, change func(*amqp.Message)) {
			t.Helper()
			m := rich()
			if change != nil {
				change(m)
			}
			contents, err := content.FromAMQP(content.FormatMessage, sent(t, m))
			must(t, err)
			_, err = s.Raw.Send(ctx, tenant, path, contents)
			must(t, err)
		}

		send("end", nil)
		m := take(t, s, "end")
		checkRich(t, "sent", m, content.Options{}, nil)
		must(t, s.Messages.Defer(ctx, tenant, "end", tokenOf(m), forebay.Settlement{}))
		deferred, err := s.Raw.ReceiveDeferred(ctx, tenant, "end", messaging.Received{}, []int64{m.Seq})
		if err != nil || len(deferred) != 1 {
			t.Fatalf("received %d deferred: %v", len(deferred), err)
		}
		checkRich(t, "deferred", &deferred[0], content.Options{LockToken: true}, nil)
		if got := received(t, &deferred[0], content.Options{LockToken: true}); got.DeliveryAnnotations["x-opt-lock-token"] != amqp.UUID(content.LockToken(deferred[0].Lock)) || got.Header.DeliveryCount != 1 {
			t.Errorf("deferred: %v, %+v", got.DeliveryAnnotations, got.Header)
		}
		must(t, s.Messages.DeadLetter(ctx, tenant, "end", tokenOf(&deferred[0]), forebay.Settlement{Reason: "why", Description: "because", Properties: forebay.Properties{"long": "text", "added": int64(1)}}))
		changed := func(want *amqp.Message) {
			want.ApplicationProperties["long"], want.ApplicationProperties["added"] = "text", int64(1)
		}
		dead := take(t, s, "end/$deadletterqueue")
		checkRich(t, "dead", dead, content.Options{DeadLetter: true}, func(want *amqp.Message) {
			changed(want)
			want.ApplicationProperties["DeadLetterReason"], want.ApplicationProperties["DeadLetterErrorDescription"] = "why", "because"
		})
		must(t, s.Messages.Abandon(ctx, tenant, "end/$deadletterqueue", tokenOf(dead), forebay.Settlement{}))
		for _, edit := range []*forebay.MessageEdit{nil, {Body: ptr("mended")}} {
			done, err := s.DeadLetters.Redrive(ctx, tenant, "end", forebay.RedriveMessagesRequest{DeadMessageFilter: forebay.DeadMessageFilter{SequenceNumbers: []int64{dead.Seq}}, Edit: edit})
			if err != nil || done.Redriven != 1 {
				t.Fatalf("redriven %d: %v", done.Redriven, err)
			}
			m := take(t, s, "end")
			checkRich(t, "redriven", m, content.Options{}, func(want *amqp.Message) {
				changed(want)
				if edit != nil {
					want.Data = [][]byte{[]byte("mended")}
				}
			})
			must(t, s.Messages.DeadLetter(ctx, tenant, "end", tokenOf(m), forebay.Settlement{}))
			dead = take(t, s, "end/$deadletterqueue")
			must(t, s.Messages.Abandon(ctx, tenant, "end/$deadletterqueue", tokenOf(dead), forebay.Settlement{}))
		}

		soon := time.Now().Add(300 * time.Millisecond).UTC().Truncate(time.Millisecond)
		send("start", func(m *amqp.Message) { m.Annotations["x-opt-scheduled-enqueue-time"] = soon })
		m = take(t, s, "end")
		checkRich(t, "scheduled and forwarded", m, content.Options{}, nil)
		if got := received(t, m, content.Options{}); !soon.Equal(got.Annotations["x-opt-scheduled-enqueue-time"].(time.Time)) {
			t.Errorf("it was scheduled for %v, not %v", got.Annotations["x-opt-scheduled-enqueue-time"], soon)
		}

		for what, change := range map[string]func(*amqp.Message){"a small copy": nil, "a large copy": large} {
			send("topic", change)
			for _, sub := range []string{"one", "two"} {
				m := take(t, s, "topic/subscriptions/"+sub)
				checkRich(t, what, m, content.Options{}, change)
				must(t, s.Messages.Complete(ctx, tenant, "topic/subscriptions/"+sub, tokenOf(m)))
			}
			m := take(t, s, "topic/subscriptions/acting")
			checkRich(t, what+" that a rule changed", m, content.Options{}, func(want *amqp.Message) {
				if change != nil {
					change(want)
				}
				want.Properties.Subject = ptr("changed")
				want.ApplicationProperties["ushort"] = int64(5)
				want.ApplicationProperties["RuleName"] = "r"
				delete(want.ApplicationProperties, "byte")
			})
		}
	})
}

// Bodies of each kind come back of the same kind.
func TestBodiesOfEachKind(t *testing.T) {
	onBothEngines(t, func(t *testing.T, s *messaging.Service) {
		putQueue(t, s, "orders", forebay.MessageQueueSettings{})
		for what, m := range map[string]*amqp.Message{
			"several data": {Data: [][]byte{[]byte("a"), {}, []byte("b")}},
			"a string":     {Value: "text"},
			"a map":        {Value: map[string]any{"a": int32(1)}},
			"a list":       {Value: []any{int64(1), "x"}},
			"sequences":    {Sequence: [][]any{{int8(1)}, {"x", uint64(2)}}},
			"one data":     {Data: [][]byte{{1, 2}}},
		} {
			contents, err := content.FromAMQP(content.FormatMessage, sent(t, m))
			must(t, err)
			_, err = s.Raw.Send(t.Context(), tenant, "orders", contents)
			must(t, err)
			stored := take(t, s, "orders")
			got := received(t, stored, content.Options{})
			if !reflect.DeepEqual(got.Data, m.Data) || !reflect.DeepEqual(got.Value, m.Value) || !reflect.DeepEqual(got.Sequence, m.Sequence) || got.Properties.MessageID != stored.MessageID {
				t.Errorf("%s: %q %v %v, of %v", what, got.Data, got.Value, got.Sequence, got.Properties)
			}
			shown, err := s.Messages.Get(t.Context(), tenant, "orders", stored.Seq)
			if err != nil || shown.MessageID == "" || shown.Body == nil && shown.BodyBase64 == nil {
				t.Errorf("%s: the HTTP API shows %+v: %v", what, shown, err)
			}
			must(t, s.Messages.Complete(t.Context(), tenant, "orders", tokenOf(stored)))
		}
	})
}

// Random messages are equal to the byte after they were stored, and after a copy of the database
// to the other engine.
func TestRandomMessagesAreStored(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]string{"sqlite": "postgresql", "postgresql": "sqlite"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			first, second := dbtest.Databases[from](t), dbtest.Databases[to](t)
			type known struct {
				message *wire.Message
				raw     []byte
			}
			var all []known
			var batch [][]byte
			for seed := range 300 {
				m := rapid.Custom(drawMessage).Example(seed)
				raw := encode(t, m)
				all, batch = append(all, known{m, raw}), append(batch, raw)
			}
			contents, err := content.FromAMQP(content.FormatBatch, encode(t, &wire.Message{Data: batch}))
			must(t, err)
			check := func(s *messaging.Service) {
				t.Helper()
				got, _, err := s.Raw.Peek(t.Context(), tenant, "ORDERS", "", 0, messaging.MaxRawReceived)
				if err != nil || len(got) != len(all) {
					t.Fatalf("there are %d messages: %v", len(got), err)
				}
				for i := range got {
					got[i].Deliveries = 0
					m, out := written(t, &got[i], content.Options{Peek: true})
					checkSame(t, all[i].message, all[i].raw, m, out)
				}
			}
			s, end := open(t, first)
			putQueue(t, s, "orders", forebay.MessageQueueSettings{})
			_, err = s.Raw.Send(t.Context(), tenant, "Orders", contents)
			must(t, err)
			check(s)
			must(t, end())
			_, err = db.Copy(t.Context(), first, second, func(db.CopyProgress) {})
			must(t, err)
			check(serve(t, second))
		})
	}
}
