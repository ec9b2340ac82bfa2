package messaging

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// suite is what a service does whatever database its store is in. Each test gets one whose tenant
// "acme" has the queue "orders", and nothing else.
var suite = map[string]func(*testing.T, *Service){
	"Entities":                        testEntities,
	"Send all or none":                testSendAllOrNone,
	"Undeliver":                       testUndeliver,
	"Changed queue is not remembered": testChangedQueueIsNotRemembered,
	"Deleted queue":                   testDeletedQueue,
	"Subscription is a queue":         testSubscriptionIsAQueue,
	"Forwarding by name":              testForwardingByName,
	"Names with slashes":              testNamesWithSlashes,
	"Names of properties":             testNamesOfProperties,
	"Correlation ids":                 testCorrelationIDs,
	"What Forebay publishes":          testWhatForebayPublishesIsNotForged,
	"Dead letters are mended":         testDeadLettersAreMended,
	"Dead letters by reason":          testDeadLettersAreFoundByReason,
	"Dead letters of subscriptions":   testDeadLettersOfSubscriptions,
	"Dead letters at a rate":          testDeadLettersAtARate,
	"Dead letters are counted":        testDeadLettersAreCounted,
	"An edit is tried":                testAnEditIsTried,
	"An edit on a condition":          testAnEditOnACondition,
	"Event listeners are bounded":     testEventListenersAreBounded,
	"Names in any case":               testRawNames,
	"Many are sent, or none":          testRawSendsManyOrNone,
	"Messages as they are stored":     testRawReceives,
	"Peek at a session":               testRawPeeksAtASession,
	"Managed entities":                testManagedEntities,
	"Managed entities are checked":    testManagedEntitiesAreChecked,
	"Managed pages":                   testManagedPages,
	"Status and metadata":             testStatusAndMetadata,
	"Status of each kind":             testStatusOfEachKind,
}

func TestService(t *testing.T) {
	names := slices.Sorted(maps.Keys(suite))
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		for _, name := range names {
			t.Run(name, func(t *testing.T) { suite[name](t, newService(t)) })
		}
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		s, err := openStores(t.Context(), db.Options{URL: dbtest.Postgres(t), Serve: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				b := serviceOn(t, s)
				suite[name](t, b)
				deleteAll(t, b, "acme")
				deleteAll(t, b, forebay.DefaultTenant)
			})
		}
	})
}

// deleteAll deletes what a tenant has, for the next test on the same database.
func deleteAll(t *testing.T, b *Service, tenant string) {
	t.Helper()
	queues, err := b.Queues.List(t.Context(), tenant)
	for _, q := range queues {
		err = errors.Join(err, b.Queues.Delete(t.Context(), tenant, q.Name))
	}
	topics, topicsErr := b.Topics.List(t.Context(), tenant)
	err = errors.Join(err, topicsErr)
	for _, topic := range topics {
		err = errors.Join(err, b.Topics.Delete(t.Context(), tenant, topic.Name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func newService(t *testing.T) *Service {
	t.Helper()
	s, err := openStores(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "f.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return serviceOn(t, s)
}

func serviceOn(t *testing.T, s *stores) *Service {
	t.Helper()
	b := New(Options{Store: s.Bus, MaxMessageBytes: 1000})
	if _, created, err := b.Queues.Put(t.Context(), "acme", "orders", forebay.MessageQueueSettings{}); err != nil || !created {
		t.Fatal(created, err)
	}
	return b
}

func text(s string) forebay.NewMessage { return forebay.NewMessage{Body: &s} }

func testEntities(t *testing.T, b *Service) {
	ctx := t.Context()
	for path, want := range map[string]forebay.Code{
		"orders": "", "orders/$deadletterqueue": "", "orders/$DeadLetterQueue": "", "orders/": forebay.CodeUnknownQueue, "orders/$retry": forebay.CodeUnknownQueue,
		"": forebay.CodeUnknownQueue, "none": forebay.CodeUnknownQueue, "../acme/orders": forebay.CodeUnknownQueue, "orders/$deadletterqueue/": forebay.CodeUnknownQueue,
	} {
		_, _, err := b.Messages.Peek(ctx, "acme", path, PeekFilter{Limit: 1})
		if (err == nil) != (want == "") || err != nil && forebay.CodeOf(err) != want {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, err := b.Messages.Send(ctx, "acme", "orders/$deadletterqueue", []forebay.NewMessage{text("x")}); forebay.CodeOf(err) != forebay.CodeNotSupported {
		t.Errorf("sending to the dead-letter subqueue: %v", err)
	}
}

// A correlation id is any text of 128 characters, whatever bytes they take.
func testCorrelationIDs(t *testing.T, b *Service) {
	ctx := t.Context()
	for _, id := range []string{"order 17, line {3} of \"a/b\"", strings.Repeat("日", forebay.MaxIDCharacters), strings.Repeat("🙂", forebay.MaxIDCharacters)} {
		m := text("x")
		m.CorrelationID = id
		if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{m}); err != nil {
			t.Errorf("%q: %v", id, err)
			continue
		}
		got, err := b.Messages.Receive(ctx, "acme", "orders", forebay.ReceiveRequest{Mode: forebay.ReceiveAndDelete})
		if err != nil || len(got) != 1 || got[0].CorrelationID != id {
			t.Errorf("received %+v (%v)", got, err)
		}
	}
	for _, id := range []string{strings.Repeat("é", forebay.MaxIDCharacters+1), "a\nb", "\xff"} {
		m := text("x")
		m.CorrelationID = id
		var e *forebay.Error
		if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{m}); !errors.As(err, &e) || e.Field != "correlation_id" {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// Either all messages of a call are stored or none is, and the limit counts everything in a
// message.
func testSendAllOrNone(t *testing.T, b *Service) {
	ctx := t.Context()
	large := text(strings.Repeat("x", 900))
	large.Properties = forebay.Properties{"p": strings.Repeat("y", 100)}
	_, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{text("small"), large})
	var e *forebay.Error
	if !errors.As(err, &e) || e.Code != forebay.CodePayloadTooLarge || e.Field != "messages[1].body" {
		t.Errorf("got %v", err)
	}
	if q, err := b.Queues.Get(ctx, "acme", "orders"); err != nil || q.Active != 0 || q.OldestAgeSeconds != nil {
		t.Errorf("stored %+v (%v)", q, err)
	}
	invalid := text("\xff")
	if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{invalid}); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
		t.Errorf("text that is not UTF-8: %v", err)
	}
}

// Messages whose receiver left while it was served are given back as if nothing had happened.
func testUndeliver(t *testing.T, b *Service) {
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{text("1"), text("2")}); err != nil {
		t.Fatal(err)
	}
	q, err := b.Queues.queueNow(ctx, "acme", "orders")
	if err != nil {
		t.Fatal(err)
	}
	want := bus.ReceiveRequest{Queue: q, Max: 5, MaxBytes: 1 << 20}
	got, err := b.Queues.store.Receive(ctx, want)
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	cancel()
	if handed, err := b.Messages.answer(ctx, want, got); !errors.Is(err, context.Canceled) || handed != nil {
		t.Fatalf("handed %+v to a caller that left (%v)", handed, err)
	}
	again, err := b.Messages.Receive(t.Context(), "acme", "orders", forebay.ReceiveRequest{MaxMessages: 5, WaitSeconds: 10})
	if err != nil || len(again) != 2 || again[0].DeliveryCount != 1 || *again[0].Body != "1" {
		t.Errorf("received %+v (%v)", again, err)
	}
	if err := b.Messages.Complete(t.Context(), "acme", "orders", message.NewToken(got[0].Seq, got[0].Token)); !errors.Is(err, forebay.ErrLockLost) {
		t.Errorf("the lock given back settled: %v", err)
	}

	// A deferred message stays deferred.
	if err := b.Messages.Defer(t.Context(), "acme", "orders", again[0].LockToken, forebay.Settlement{}); err != nil {
		t.Fatal(err)
	}
	deferred := forebay.ReceiveRequest{DeferredSequenceNumbers: []int64{again[0].SequenceNumber}}
	if got, err = b.Queues.store.ReceiveDeferred(t.Context(), want, deferred.DeferredSequenceNumbers); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if _, err := b.Messages.answer(ctx, want, got); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if again, err = b.Messages.Receive(t.Context(), "acme", "orders", deferred); err != nil || len(again) != 1 || again[0].State != forebay.MessageDeferred || again[0].DeliveryCount != 2 {
		t.Errorf("received deferred %+v (%v)", again, err)
	}
}

func TestErrorInMessage(t *testing.T) {
	for field, want := range map[string]string{"": "messages[2]", "body": "messages[2].body"} {
		err := inMessage(&forebay.Error{Code: forebay.CodeInvalidRequest, Field: field, Message: "is wrong"}, 2, 3)
		var e *forebay.Error
		if !errors.As(err, &e) || e.Field != want {
			t.Errorf("field %q, want %q", e.Field, want)
		}
	}
}

// A queue that is created under the name of a deleted one is another queue.
func testDeletedQueue(t *testing.T, b *Service) {
	ctx := t.Context()
	if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{text("old")}); err != nil {
		t.Fatal(err)
	}
	if err := b.Queues.Delete(ctx, "acme", "orders"); err != nil {
		t.Fatal(err)
	}
	if err := b.Queues.Delete(ctx, "acme", "orders"); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("deleted twice: %v", err)
	}
	if _, created, err := b.Queues.Put(ctx, "acme", "orders", forebay.MessageQueueSettings{LockSeconds: 5}); err != nil || !created {
		t.Fatal(created, err)
	}
	if got, err := b.Messages.Receive(ctx, "acme", "orders", forebay.ReceiveRequest{}); err != nil || len(got) != 0 {
		t.Errorf("received %+v (%v)", got, err)
	}
	if list, err := b.Queues.List(ctx, "acme"); err != nil || len(list) != 1 || list[0].Name != "orders" || list[0].LockSeconds != 5 {
		t.Errorf("queues %+v (%v)", list, err)
	}
}
