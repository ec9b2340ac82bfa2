package messaging

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
)

// Names have slashes, as in Service Bus, and every path still means one thing.
func testNamesWithSlashes(t *testing.T, b *Service) {
	ctx := t.Context()
	long := strings.Repeat("x/", 129) + "x2"
	for _, name := range []string{"eu/orders", "eu/orders/more", "EU/orders", long} {
		if q, created, err := b.Queues.Put(ctx, "acme", name, forebay.MessageQueueSettings{MaxDeliveryCount: 1}); err != nil || !created || q.Name != name {
			t.Fatal(q, created, err)
		}
	}
	if _, err := b.Messages.Send(ctx, "acme", "eu/orders", []forebay.NewMessage{text("1")}); err != nil {
		t.Fatal(err)
	}
	got, err := b.Messages.Receive(ctx, "acme", "eu/orders", forebay.ReceiveRequest{})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if err := b.Messages.Abandon(ctx, "acme", "eu/orders", got[0].LockToken, forebay.Settlement{}); err != nil {
		t.Fatal(err)
	}
	if dead, _, err := b.Messages.Peek(ctx, "acme", "eu/orders/$DeadLetterQueue", PeekFilter{Limit: 1}); err != nil || len(dead) != 1 {
		t.Errorf("dead-lettered %+v (%v)", dead, err)
	}
	for _, topic := range []string{"eu/news", "subscriptions"} {
		if _, _, err := b.Topics.Put(ctx, "acme", topic, forebay.TopicSettings{}); err != nil {
			t.Fatal(err)
		}
		settings := forebay.SubscriptionSettings{MessageQueueSettings: forebay.MessageQueueSettings{ForwardDeadLettersTo: "eu/orders"}}
		if sub, _, err := b.Subscriptions.Put(ctx, "acme", topic, "s", settings); err != nil || sub.Name != "s" || sub.Topic != topic || sub.ForwardDeadLettersTo != "eu/orders" {
			t.Fatal(sub, err)
		}
		if _, err := b.Messages.Publish(ctx, "acme", topic, []forebay.NewMessage{text("2")}); err != nil {
			t.Fatal(err)
		}
		got, err := b.Messages.Receive(ctx, "acme", topic+"/Subscriptions/s", forebay.ReceiveRequest{})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if err := b.Messages.DeadLetter(ctx, "acme", forebay.SubscriptionPath(topic, "s"), got[0].LockToken, forebay.Settlement{}); err != nil {
			t.Fatal(err)
		}
		subs, err := b.Subscriptions.List(ctx, "acme", topic)
		if err != nil || len(subs) != 1 || subs[0].Name != "s" {
			t.Errorf("subscriptions of %s: %+v (%v)", topic, subs, err)
		}
		if rules, err := b.Rules.List(ctx, "acme", topic, "s"); err != nil || len(rules) != 1 {
			t.Errorf("rules %+v (%v)", rules, err)
		}
	}
	if q, err := b.Queues.Get(ctx, "acme", "eu/orders"); err != nil || q.Active != 2 || q.DeadLetter != 1 {
		t.Errorf("dead-lettered %+v (%v)", q, err)
	}
	if q, err := b.Queues.Get(ctx, "acme", "EU/orders"); err != nil || q.Active != 0 {
		t.Errorf("another queue, for names are compared as they are, has %+v (%v)", q, err)
	}
	for _, name := range []string{"a/subscriptions/b", "a/Subscriptions", "a/$deadletterqueue", "a//b", "a/../b", "/a", "a/", long + "x"} {
		_, _, queue := b.Queues.Put(ctx, "acme", name, forebay.MessageQueueSettings{})
		_, _, topic := b.Topics.Put(ctx, "acme", name, forebay.TopicSettings{})
		_, _, sub := b.Subscriptions.Put(ctx, "acme", "eu/news", "a/b", forebay.SubscriptionSettings{})
		_, _, forward := b.Queues.Put(ctx, "acme", "inlet", forebay.MessageQueueSettings{ForwardTo: name})
		for _, err := range []error{queue, topic, sub, forward} {
			if forebay.CodeOf(err) != forebay.CodeInvalidRequest {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

// A subscription is found and settled by its path, and forgotten with its topic.
func testSubscriptionIsAQueue(t *testing.T, b *Service) {
	ctx := t.Context()
	if _, created, err := b.Topics.Put(ctx, "acme", "news", forebay.TopicSettings{}); err != nil || !created {
		t.Fatal(created, err)
	}
	sub, created, err := b.Subscriptions.Put(ctx, "acme", "news", "s", forebay.SubscriptionSettings{MessageQueueSettings: forebay.MessageQueueSettings{MaxDeliveryCount: 1}})
	if err != nil || !created || sub.MaxDeliveryCount != 1 || sub.Name != "s" {
		t.Fatal(sub, created, err)
	}
	path := forebay.SubscriptionPath("news", "s")
	if _, err := b.Messages.Publish(ctx, "acme", "news", []forebay.NewMessage{text("1")}); err != nil {
		t.Fatal(err)
	}
	got, err := b.Messages.Receive(ctx, "acme", path, forebay.ReceiveRequest{})
	if err != nil || len(got) != 1 || *got[0].Body != "1" {
		t.Fatal(got, err)
	}
	if err := b.Messages.Abandon(ctx, "acme", path, got[0].LockToken, forebay.Settlement{}); err != nil {
		t.Fatal(err)
	}
	dead, _, err := b.Messages.Peek(ctx, "acme", path+"/$deadletterqueue", PeekFilter{Limit: 1})
	if err != nil || len(dead) != 1 || dead[0].DeadLetterReason != forebay.ReasonMaxDeliveries {
		t.Errorf("dead-lettered %+v (%v)", dead, err)
	}
	if _, err := b.Messages.Send(ctx, "acme", path, []forebay.NewMessage{text("2")}); forebay.CodeOf(err) != forebay.CodeNotSupported {
		t.Errorf("sent to a subscription: %v", err)
	}
	if _, err := b.Messages.Send(ctx, "acme", "news", []forebay.NewMessage{text("2")}); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("sent to a topic as to a queue: %v", err)
	}
	large := text(strings.Repeat("x", 1001))
	if _, err := b.Messages.Publish(ctx, "acme", "news", []forebay.NewMessage{large}); forebay.CodeOf(err) != forebay.CodePayloadTooLarge {
		t.Errorf("published too much: %v", err)
	}
	if err := b.Topics.Delete(ctx, "acme", "news"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Messages.Receive(ctx, "acme", path, forebay.ReceiveRequest{}); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("received from a deleted topic's subscription: %v", err)
	}
	if _, err := b.Rules.List(ctx, "acme", "news", "s"); forebay.CodeOf(err) != forebay.CodeNotFound {
		t.Errorf("rules of it: %v", err)
	}
}

// Subscribers rely on the topics of job events and of operations, so nobody else can publish or
// forward to them. Their subscriptions forward like others.
func testWhatForebayPublishesIsNotForged(t *testing.T, b *Service) {
	for tenant, topic := range map[string]string{"acme": forebay.TopicJobEvents, forebay.DefaultTenant: forebay.TopicOperations} {
		testNotForged(t, b, tenant, topic)
		if _, _, err := b.Queues.Put(t.Context(), tenant, "outlet", forebay.MessageQueueSettings{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Subscriptions.Put(t.Context(), tenant, topic, "out", forebay.SubscriptionSettings{MessageQueueSettings: forebay.MessageQueueSettings{ForwardTo: "outlet"}}); err != nil {
			t.Errorf("forwarding from it: %v", err)
		}
	}
	// Another tenant's topic of that name is its own.
	if _, _, err := b.Topics.Put(t.Context(), "acme", forebay.TopicOperations, forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Messages.Publish(t.Context(), "acme", forebay.TopicOperations, []forebay.NewMessage{text("now")}); err != nil {
		t.Error(err)
	}
	if _, _, err := b.Queues.Put(t.Context(), "acme", "inlet", forebay.MessageQueueSettings{ForwardTo: forebay.TopicOperations}); err != nil {
		t.Error(err)
	}
}

func testNotForged(t *testing.T, b *Service, tenant, topic string) {
	ctx := t.Context()
	if _, _, err := b.Topics.Put(ctx, tenant, topic, forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	later := text("later")
	at := time.Now().Add(time.Hour)
	later.ScheduledTime = &at
	for _, m := range []forebay.NewMessage{text("now"), later} {
		if _, err := b.Messages.Publish(ctx, tenant, topic, []forebay.NewMessage{m}); !errors.Is(err, errOurTopic) {
			t.Errorf("published: %v", err)
		}
	}
	for field, settings := range map[string]forebay.MessageQueueSettings{
		"forward_to":                        {ForwardTo: topic},
		"forward_dead_lettered_messages_to": {ForwardDeadLettersTo: topic},
	} {
		_, _, queue := b.Queues.Put(ctx, tenant, "inlet", settings)
		_, _, sub := b.Subscriptions.Put(ctx, tenant, topic, "s", forebay.SubscriptionSettings{MessageQueueSettings: settings})
		for _, err := range []error{queue, sub, entity.CheckQueue(tenant, "inlet", settings), entity.CheckSubscription(tenant, "s", forebay.SubscriptionSettings{MessageQueueSettings: settings})} {
			if e := (*forebay.Error)(nil); !errors.As(err, &e) || e.Code != forebay.CodeInvalidRequest || e.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
}

// A queue forwards to a topic, and a subscription to a queue.
func testForwardingByName(t *testing.T, b *Service) {
	ctx := t.Context()
	if _, _, err := b.Topics.Put(ctx, "acme", "news", forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Queues.Put(ctx, "acme", "inlet", forebay.MessageQueueSettings{ForwardTo: "news"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Subscriptions.Put(ctx, "acme", "news", "s", forebay.SubscriptionSettings{MessageQueueSettings: forebay.MessageQueueSettings{ForwardTo: "orders"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Messages.Send(ctx, "acme", "inlet", []forebay.NewMessage{text("1")}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Messages.Receive(ctx, "acme", "orders", forebay.ReceiveRequest{}); err != nil || len(got) != 1 || *got[0].Body != "1" {
		t.Errorf("received %+v (%v)", got, err)
	}
}

// What Forebay publishes goes to fewer subscriptions than what others do.
func testEventListenersAreBounded(t *testing.T, b *Service) {
	ctx := t.Context()
	if _, _, err := b.Topics.Put(ctx, "acme", forebay.TopicJobEvents, forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	for i := range forebay.MaxEventListeners + 1 {
		_, _, err := b.Subscriptions.Put(ctx, "acme", forebay.TopicJobEvents, "s"+strconv.Itoa(i), forebay.SubscriptionSettings{})
		if refused := forebay.CodeOf(err) == forebay.CodeConflict; refused != (i == forebay.MaxEventListeners) {
			t.Fatalf("subscription %d: %v", i, err)
		}
	}
}
