package messaging

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
)

func raw(id string, body ...byte) message.Content { return message.Content{MessageID: id, Body: body} }

// A name finds what has exactly that name, else the oldest that differs only in case.
func testRawNames(t *testing.T, b *Service) {
	ctx := t.Context()
	put := func(name string) {
		t.Helper()
		if _, _, err := b.Queues.Put(ctx, "acme", name, forebay.MessageQueueSettings{}); err != nil {
			t.Fatal(err)
		}
	}
	names := func(want map[string]string) {
		t.Helper()
		for path, name := range want {
			e, err := b.Raw.Entity(ctx, "acme", path)
			if err != nil || e.Path != name {
				t.Errorf("%q names %q, not %q: %v", path, e.Path, name, err)
			}
		}
	}
	for range 2 { // the second time from memory
		names(map[string]string{"ORDERS": "orders", "orders": "orders", "Orders/$DEADLETTERQUEUE": "orders/$deadletterqueue"})
	}
	put("Orders")
	put("Orders.EU/First")
	// Of several the first by name.
	names(map[string]string{"ORDERS": "Orders", "orders": "orders", "Orders": "Orders", "orders.eu/first": "Orders.EU/First"})
	if err := b.Queues.Delete(ctx, "acme", "orders"); err != nil {
		t.Fatal(err)
	}
	names(map[string]string{"ORDERS": "Orders", "orders": "Orders"})
	put("ORDERS")
	names(map[string]string{"ORDERS": "ORDERS"})

	if _, _, err := b.Topics.Put(ctx, "acme", "News", forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Subscriptions.Put(ctx, "acme", "News", "All", forebay.SubscriptionSettings{}); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]EntityKind{"NEWS": KindTopic, "news/Subscriptions/all": KindSubscription, "orders": KindQueue} {
		if e, err := b.Raw.Entity(ctx, "acme", path); err != nil || e.Kind != kind {
			t.Errorf("%s is a %s: %v", path, e.Kind, err)
		}
	}
	for _, path := range []string{"", "none", "news/$deadletterqueue", "news/subscriptions", "news/subscriptions/none", "orders/$retry", "orders/$Transfer/$DeadLetterQueue", "../ACME/orders"} {
		if e, err := b.Raw.Entity(ctx, "acme", path); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
			t.Errorf("%q is %+v: %v", path, e, err)
		}
	}
	if e, err := b.Raw.Entity(ctx, "Acme", "orders"); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("another tenant finds %+v: %v", e, err)
	}
}

// As many messages as Service Bus takes in a batch are sent at once, or none of them.
func testRawSendsManyOrNone(t *testing.T, b *Service) {
	ctx := t.Context()
	yes := true
	if _, _, err := b.Queues.Put(ctx, "acme", "sessions", forebay.MessageQueueSettings{RequiresSession: &yes}); err != nil {
		t.Fatal(err)
	}
	b = New(Options{Store: b.Raw.store, MaxMessageBytes: 1 << 20})
	many := make([]message.Content, MaxRawMessages)
	for i := range many {
		many[i] = raw(fmt.Sprint("m", i), byte(i))
		many[i].SessionID = fmt.Sprint("s", i%700)
	}
	for _, queue := range []string{"Orders", "Sessions"} {
		numbers, err := b.Raw.Send(ctx, "acme", queue, many)
		if err != nil || len(numbers) != len(many) || !slices.IsSorted(numbers) {
			t.Fatalf("%s: sent %d: %v", queue, len(numbers), err)
		}
		got, next := []bus.Message{}, int64(0)
		for more := true; more; more = next != 0 {
			var page []bus.Message
			if page, next, err = b.Raw.Peek(ctx, "acme", queue, "", next, MaxRawReceived); err != nil {
				t.Fatal(err)
			}
			got = append(got, page...)
		}
		if len(got) != len(many) || got[0].MessageID != "m0" || got[len(got)-1].MessageID != many[len(many)-1].MessageID {
			t.Errorf("%s has %d messages", queue, len(got))
		}
	}
	large := raw("large", bytes.Repeat([]byte("x"), 1<<20)...)
	bare := raw("bare")
	for what, c := range map[string]struct {
		queue string
		sent  []message.Content
		want  forebay.Code
	}{
		"nothing":                   {"orders", nil, forebay.CodeInvalidRequest},
		"one too many":              {"orders", append(slices.Clone(many), bare), forebay.CodeInvalidRequest},
		"too large":                 {"orders", []message.Content{large, large, large, large}, forebay.CodePayloadTooLarge},
		"without a session":         {"sessions", append(slices.Clone(many[:3]), bare), forebay.CodeInvalidRequest},
		"to dead letters":           {"orders/$deadletterqueue", []message.Content{bare}, forebay.CodeNotSupported},
		"to nobody":                 {"none", []message.Content{bare}, forebay.CodeUnknownQueue},
		"of what Forebay publishes": {"job-events", []message.Content{bare}, forebay.CodeUnknownQueue},
	} {
		if _, err := b.Raw.Send(ctx, "acme", c.queue, c.sent); forebay.CodeOf(err) != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	if q, err := b.Queues.Get(ctx, "acme", "orders"); err != nil || q.Active != int64(len(many)) {
		t.Errorf("there are %d messages: %v", q.Active, err)
	}
}

// Messages are received as the store has them, with the locks that settle them.
func testRawReceives(t *testing.T, b *Service) {
	ctx := t.Context()
	sent := make([]message.Content, 250)
	for i := range sent {
		sent[i] = raw(fmt.Sprint("m", i), byte(i))
		sent[i].AMQP = fmt.Append(nil, "sections ", i)
	}
	b = New(Options{Store: b.Raw.store, MaxMessageBytes: 1 << 20})
	if _, err := b.Raw.Send(ctx, "acme", "ORDERS", sent); err != nil {
		t.Fatal(err)
	}
	got, err := b.Raw.Receive(ctx, "acme", "Orders", Received{Max: MaxRawReceived, Wait: time.Minute})
	if err != nil || len(got) != len(sent) {
		t.Fatalf("received %d: %v", len(got), err)
	}
	for i, m := range got {
		if m.MessageID != sent[i].MessageID || !bytes.Equal(m.AMQP, sent[i].AMQP) || m.Token == 0 || m.LockedUntil == nil || m.Deliveries != 1 {
			t.Fatalf("message %d is %+v", i, m)
		}
	}
	token := message.NewToken(got[0].Seq, got[0].Token)
	if err := b.Messages.Defer(ctx, "acme", "orders", token, forebay.Settlement{}); err != nil {
		t.Fatal(err)
	}
	deferred, err := b.Raw.ReceiveDeferred(ctx, "acme", "ORDERS", Received{Mode: forebay.ReceiveAndDelete}, []int64{got[0].Seq, got[1].Seq, 1 << 40})
	if err != nil || len(deferred) != 1 || deferred[0].State != forebay.MessageDeferred || !bytes.Equal(deferred[0].AMQP, sent[0].AMQP) {
		t.Errorf("received %d deferred: %v", len(deferred), err)
	}
	if got, err := b.Raw.Receive(ctx, "acme", "orders", Received{Max: 1, Wait: time.Millisecond}); err != nil || len(got) != 0 {
		t.Errorf("received %d more: %v", len(got), err)
	}
	for what, c := range map[string]struct {
		path string
		r    Received
		want forebay.Code
	}{
		"none":                     {"orders", Received{}, forebay.CodeInvalidRequest},
		"too many":                 {"orders", Received{Max: MaxRawReceived + 1}, forebay.CodeInvalidRequest},
		"a mode that there is not": {"orders", Received{Max: 1, Mode: "peek"}, forebay.CodeInvalidRequest},
		"a session of none":        {"orders", Received{Max: 1, Session: token}, forebay.CodeConflict},
		"nobody's":                 {"none", Received{Max: 1}, forebay.CodeUnknownQueue},
	} {
		if _, err := b.Raw.Receive(ctx, "acme", c.path, c.r); forebay.CodeOf(err) != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A peek at a session finds what it has, whatever its state, and nothing else.
func testRawPeeksAtASession(t *testing.T, b *Service) {
	ctx := t.Context()
	yes := true
	if _, _, err := b.Queues.Put(ctx, "acme", "sessions", forebay.MessageQueueSettings{RequiresSession: &yes}); err != nil {
		t.Fatal(err)
	}
	var sent []message.Content
	for i := range 12 {
		m := raw(fmt.Sprint(i))
		m.SessionID = []string{"a", "b"}[i%2]
		sent = append(sent, m)
	}
	if _, err := b.Raw.Send(ctx, "acme", "sessions", sent); err != nil {
		t.Fatal(err)
	}
	session, _, err := b.Sessions.Accept(ctx, "acme", "sessions", forebay.AcceptSessionRequest{SessionID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Raw.Receive(ctx, "acme", "sessions", Received{Session: session.SessionToken, Max: 3})
	if err != nil || len(got) != 3 {
		t.Fatalf("received %d: %v", len(got), err)
	}
	if err := b.Messages.Defer(ctx, "acme", "sessions", message.NewToken(got[1].Seq, got[1].Token), forebay.Settlement{}); err != nil {
		t.Fatal(err)
	}
	for session, want := range map[string]string{"a": "0 2 4 6|8 10", "b": "1 3 5 7|9 11", "c": "", "": "0 1 2 3|4 5 6 7|8 9 10 11"} {
		var pages []string
		for next, more := int64(0), true; more; more = next != 0 {
			var page []bus.Message
			if page, next, err = b.Raw.Peek(ctx, "acme", "sessions", session, next, 4); err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, m := range page {
				ids = append(ids, m.MessageID)
			}
			pages = append(pages, strings.Join(ids, " "))
		}
		if got := strings.Join(pages, "|"); got != want {
			t.Errorf("session %q has %s, not %s", session, got, want)
		}
	}
	if _, err := b.Raw.Receive(ctx, "acme", "sessions", Received{Max: 1}); forebay.CodeOf(err) != forebay.CodeConflict {
		t.Errorf("received without a session: %v", err)
	}
	if _, _, err := b.Raw.Peek(ctx, "acme", "orders", "a", 0, 1); forebay.CodeOf(err) != forebay.CodeConflict {
		t.Errorf("peeked at a session where there are none: %v", err)
	}
}
