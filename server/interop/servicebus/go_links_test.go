package servicebus_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay"
)

// Each way to settle a message leads where it does at Service Bus.
func testServiceBusGoSettlements(t *testing.T, b goBus) {
	b.queue(t, "orders", forebay.MessageQueueSettings{})
	b.send("orders", text("complete"), text("abandon"), text("defer"), text("dead-letter"))
	r := b.receiver("orders", nil)
	got := b.receive(r, 4)
	ctx := within(t)
	if err := r.CompleteMessage(ctx, got[0], nil); err != nil {
		t.Fatal(err)
	}
	if err := r.AbandonMessage(ctx, got[1], &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tried": int64(1)}}); err != nil {
		t.Fatal(err)
	}
	if err := r.DeferMessage(ctx, got[2], &azservicebus.DeferMessageOptions{PropertiesToModify: map[string]any{"later": true}}); err != nil {
		t.Fatal(err)
	}
	if err := r.DeadLetterMessage(ctx, got[3], &azservicebus.DeadLetterOptions{Reason: ptr("broken"), ErrorDescription: ptr("no use"), PropertiesToModify: map[string]any{"code": "x"}}); err != nil {
		t.Fatal(err)
	}

	again := b.receive(r, 1)[0]
	if string(again.Body) != "abandon" || again.DeliveryCount != 2 || again.ApplicationProperties["tried"] != int64(1) {
		t.Errorf("abandoned: %q, delivery %d, %v", again.Body, again.DeliveryCount, again.ApplicationProperties)
	}
	if err := r.RenewMessageLock(ctx, again, nil); err != nil || again.LockedUntil.Before(time.Now()) {
		t.Errorf("renewed until %s: %v", again.LockedUntil, err)
	}

	deferred, err := r.ReceiveDeferredMessages(ctx, []int64{*got[2].SequenceNumber}, nil)
	if err != nil || len(deferred) != 1 || string(deferred[0].Body) != "defer" || deferred[0].State != azservicebus.MessageStateDeferred || deferred[0].ApplicationProperties["later"] != true {
		t.Fatalf("deferred %+v (%v)", deferred, err)
	}
	if err := r.CompleteMessage(ctx, deferred[0], nil); err != nil {
		t.Error(err)
	}
	if _, err := r.ReceiveDeferredMessages(ctx, []int64{*got[2].SequenceNumber}, nil); code(err) != azservicebus.CodeNotFound {
		t.Errorf("deferred that is gone: %v", err)
	}

	dead := b.receiver("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	d := b.receive(dead, 1)[0]
	if string(d.Body) != "dead-letter" || *d.DeadLetterReason != "broken" || *d.DeadLetterErrorDescription != "no use" || d.ApplicationProperties["code"] != "x" {
		t.Errorf("dead letter %q: %v %v %v", d.Body, *d.DeadLetterReason, *d.DeadLetterErrorDescription, d.ApplicationProperties)
	}
	if err := dead.CompleteMessage(ctx, d, nil); err != nil {
		t.Error(err)
	}
}

// A lock that has ended settles nothing.
func testServiceBusGoLostLock(t *testing.T, b goBus) {
	b.queue(t, "orders", forebay.MessageQueueSettings{LockSeconds: 1})
	b.send("orders", text("x"))
	first := b.receiver("orders", nil)
	lost := b.receive(first, 1)[0]
	second := b.receiver("orders", nil)
	again := b.receive(second, 1)[0] // once the lock has ended
	if again.DeliveryCount != 2 {
		t.Errorf("delivery %d", again.DeliveryCount)
	}
	if err := first.CompleteMessage(within(t), lost, nil); code(err) != azservicebus.CodeLockLost {
		t.Errorf("settled without the lock: %v", err)
	}
	if err := first.RenewMessageLock(within(t), lost, nil); code(err) != azservicebus.CodeLockLost {
		t.Errorf("renewed without the lock: %v", err)
	}
}

// A message that comes back too often becomes a dead letter.
func testServiceBusGoTooManyDeliveries(t *testing.T, b goBus) {
	b.queue(t, "orders", forebay.MessageQueueSettings{MaxDeliveryCount: 2})
	b.send("orders", text("x"))
	r := b.receiver("orders", nil)
	for range 2 {
		if err := r.AbandonMessage(within(t), b.receive(r, 1)[0], nil); err != nil {
			t.Fatal(err)
		}
	}
	dead := b.receiver("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if d := b.receive(dead, 1)[0]; *d.DeadLetterReason != forebay.ReasonMaxDeliveries {
		t.Errorf("reason %s", *d.DeadLetterReason)
	}
}

// Scheduled messages have numbers by which they are cancelled; peeks see them.
func testServiceBusGoScheduled(t *testing.T, b goBus) {
	b.queue(t, "orders", forebay.MessageQueueSettings{})
	ctx := within(t)
	s := b.sender("orders")
	later := time.Now().Add(time.Hour)
	numbers, err := s.ScheduleMessages(ctx, []*azservicebus.Message{text("1"), text("2")}, later, nil)
	if err != nil || len(numbers) != 2 {
		t.Fatal(numbers, err)
	}
	if err := s.SendMessage(ctx, &azservicebus.Message{Body: []byte("3"), ScheduledEnqueueTime: &later}, nil); err != nil {
		t.Fatal(err)
	}
	r := b.receiver("orders", nil)
	peeked, err := r.PeekMessages(ctx, 10, nil)
	if err != nil || len(peeked) != 3 || peeked[0].State != azservicebus.MessageStateScheduled || peeked[2].ScheduledEnqueueTime.Sub(later).Abs() > time.Second {
		t.Fatalf("peeked %+v (%v)", peeked, err)
	}
	if err := s.CancelScheduledMessages(ctx, numbers, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.CancelScheduledMessages(ctx, numbers, nil); code(err) != azservicebus.CodeNotFound {
		t.Errorf("cancelled twice: %v", err)
	}
	many := make([]*azservicebus.Message, 1500)
	for i := range many {
		many[i] = text("many")
	}
	if numbers, err = s.ScheduleMessages(ctx, many, later, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.CancelScheduledMessages(ctx, numbers, nil); err != nil {
		t.Errorf("cancelled %d at once: %v", len(numbers), err)
	}
	soon, err := s.ScheduleMessages(ctx, []*azservicebus.Message{text("soon")}, time.Now().Add(time.Second), nil)
	if err != nil || len(soon) != 1 {
		t.Fatal(soon, err)
	}
	if m := b.receive(r, 1)[0]; string(m.Body) != "soon" || *m.SequenceNumber == soon[0] {
		t.Errorf("%q has number %d", m.Body, *m.SequenceNumber)
	}
	if m, err := r.PeekMessages(ctx, 10, &azservicebus.PeekMessagesOptions{FromSequenceNumber: ptr(int64(0))}); err != nil || len(m) != 2 {
		t.Errorf("left %v (%v)", m, err)
	}
}

// A receiver that waits gets what is sent later, and one that leaves gives back what it has not
// seen.
func testServiceBusGoWaitingReceiver(t *testing.T, b goBus) {
	b.queue(t, "orders", forebay.MessageQueueSettings{})
	r := b.receiver("orders", nil)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if got, err := r.ReceiveMessages(short, 5, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(got, err)
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() { b.send("orders", text("1"), text("2")) })
	if got := bodies(b.receive(r, 2)); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("received %v", got)
	}
	waiting.Wait()
	if err := r.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	b.send("orders", text("3"))
	other := b.receiver("orders", nil)
	if m := b.receive(other, 1)[0]; string(m.Body) != "3" || m.DeliveryCount != 1 {
		t.Errorf("%q, delivery %d: a link that is closed took it", m.Body, m.DeliveryCount)
	}
}

// A session has one receiver at a time, a state, and a lock that is renewed.
func testServiceBusGoSessions(t *testing.T, b goBus) {
	yes := true
	b.queue(t, "orders", forebay.MessageQueueSettings{RequiresSession: &yes})
	in := func(session, body string) *azservicebus.Message {
		return &azservicebus.Message{Body: []byte(body), SessionID: &session}
	}
	b.send("orders", in("a", "a1"), in("b", "b1"), in("a", "a2"))
	ctx := within(t)
	if err := b.sender("orders").SendMessage(ctx, text("x"), nil); err == nil {
		t.Error("a message without a session was taken")
	}
	if _, err := b.receiver("orders", nil).ReceiveMessages(ctx, 1, nil); err == nil {
		t.Error("received without a session")
	}
	s, err := b.AcceptSessionForQueue(ctx, "orders", "a", nil)
	must(t, s, err)
	if s.SessionID() != "a" || s.LockedUntil().Before(time.Now()) {
		t.Errorf("session %q until %s", s.SessionID(), s.LockedUntil())
	}
	if _, err := b.AcceptSessionForQueue(ctx, "orders", "a", nil); condition(err) != "com.microsoft:session-cannot-be-locked" {
		t.Errorf("accepted a held session: %v", err)
	}
	got := b.receive(s, 2)
	if !slices.Equal(bodies(got), []string{"a1", "a2"}) || *got[0].SessionID != "a" {
		t.Errorf("received %v", bodies(got))
	}
	if err := s.SetSessionState(ctx, []byte("half"), nil); err != nil {
		t.Fatal(err)
	}
	until := s.LockedUntil()
	if err := s.RenewSessionLock(ctx, nil); err != nil || s.LockedUntil().Before(until) {
		t.Errorf("renewed until %s, not %s (%v)", s.LockedUntil(), until, err)
	}
	if m, err := s.PeekMessages(ctx, 10, &azservicebus.PeekMessagesOptions{FromSequenceNumber: ptr(int64(0))}); err != nil || len(m) != 2 {
		t.Errorf("peeked %v (%v)", m, err)
	}
	if err := s.DeferMessage(ctx, got[0], nil); err != nil {
		t.Fatal(err)
	}
	deferred, err := s.ReceiveDeferredMessages(ctx, []int64{*got[0].SequenceNumber}, nil)
	if err != nil || len(deferred) != 1 {
		t.Fatal(deferred, err)
	}
	if err := s.CompleteMessage(ctx, deferred[0], nil); err != nil {
		t.Fatal(err)
	}
	next, err := b.AcceptNextSessionForQueue(ctx, "orders", nil)
	must(t, next, err)
	if next.SessionID() != "b" {
		t.Errorf("next is %q", next.SessionID())
	}
	if none, err := b.AcceptNextSessionForQueue(impatient{ctx}, "orders", nil); code(err) != azservicebus.CodeTimeout {
		t.Errorf("no session is free, got %v (%v)", none, err)
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	s, err = b.AcceptSessionForQueue(ctx, "orders", "a", nil)
	must(t, s, err)
	if state, err := s.GetSessionState(ctx, nil); err != nil || string(state) != "half" {
		t.Errorf("state %q (%v)", state, err)
	}
	if err := s.SetSessionState(ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	if state, err := s.GetSessionState(ctx, nil); err != nil || state != nil {
		t.Errorf("the state that was taken back is %q (%v)", state, err)
	}
	if m := b.receive(s, 1)[0]; string(m.Body) != "a2" || m.DeliveryCount != 1 {
		t.Errorf("%q, delivery %d", m.Body, m.DeliveryCount)
	}
}

// Subscriptions get what their rules select.
func testServiceBusGoTopics(t *testing.T, b goBus) {
	b.subscription(t, "events", "all", forebay.SubscriptionSettings{})
	if _, err := b.PutSubscription(t.Context(), "events", "red", forebay.SubscriptionSettings{Rules: []forebay.NewRule{{Name: "red", RuleSettings: forebay.RuleSettings{SQLFilter: "color = 'red'"}}}}); err != nil {
		t.Fatal(err)
	}
	colored := func(c string) *azservicebus.Message {
		return &azservicebus.Message{Body: []byte(c), ApplicationProperties: map[string]any{"color": c}}
	}
	b.send("EVENTS", colored("red"), colored("blue"))
	for name, want := range map[string][]string{"all": {"red", "blue"}, "Red": {"red"}} {
		r, err := b.NewReceiverForSubscription("events", name, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		must(t, r, err)
		if got := bodies(b.receive(r, len(want))); !slices.Equal(got, want) {
			t.Errorf("%s got %v", name, got)
		}
	}
}

// Errors have the codes that the SDK knows.
func testServiceBusGoErrors(t *testing.T, b goBus) {
	b.queue(t, "orders", forebay.MessageQueueSettings{})
	b.queue(t, "closed", forebay.MessageQueueSettings{EntityChange: forebay.EntityChange{Status: forebay.EntityDisabled}})
	ctx := within(t)
	if err := b.sender("none").SendMessage(ctx, text("x"), nil); condition(err) != amqp.ErrCondNotFound {
		t.Errorf("no such queue: %v", err)
	}
	if _, err := b.receiver("none", nil).ReceiveMessages(ctx, 1, nil); condition(err) != amqp.ErrCondNotFound {
		t.Errorf("no such queue to receive from: %v", err)
	}
	if err := b.sender("closed").SendMessage(ctx, text("x"), nil); condition(err) != "com.microsoft:entity-disabled" {
		t.Errorf("a disabled queue: %v", err)
	}
	if err := b.sender("orders").SendMessage(ctx, &azservicebus.Message{Body: make([]byte, 2<<20)}, nil); !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

// Many senders and receivers at once lose and repeat nothing, and one sender's messages stay in
// order.
func testServiceBusGoManyLinks(t *testing.T, b goBus) {
	b.queue(t, "orders", forebay.MessageQueueSettings{})
	const senders, each = 8, 100
	ctx := within(t)
	var sending sync.WaitGroup
	for s := range senders {
		sending.Go(func() {
			sender, err := b.NewSender("orders", nil)
			for i := 0; i < each && err == nil; i++ {
				err = sender.SendMessage(ctx, text(fmt.Sprintf("%d/%03d", s, i)), nil)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	numbers := make([]map[string]int64, senders) // by body
	for s := range numbers {
		numbers[s] = map[string]int64{}
	}
	r := b.receiver("orders", nil)
	seen := map[string]bool{}
	for len(seen) < senders*each {
		got, err := r.ReceiveMessages(ctx, 50, nil)
		if err != nil {
			t.Fatalf("after %d: %v", len(seen), err)
		}
		for _, m := range got {
			body := string(m.Body)
			if seen[body] {
				t.Errorf("%s came twice", body)
			}
			seen[body] = true
			numbers[body[0]-'0'][body] = *m.SequenceNumber
			if err := r.CompleteMessage(ctx, m, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	sending.Wait()
	for _, of := range numbers {
		before := int64(0)
		for _, body := range slices.Sorted(maps.Keys(of)) {
			if of[body] <= before {
				t.Errorf("%s has number %d after %d", body, of[body], before)
			}
			before = of[body]
		}
	}
	b.isEmpty("orders")
}

// condition is that of the error of a link.
func condition(err error) amqp.ErrCond {
	var e *amqp.Error
	if errors.As(err, &e) {
		return e.Condition
	}
	return ""
}

// A session whose lock ends is lost to its link, and free for another.
func testServiceBusGoLostSession(t *testing.T, b goBus) {
	yes := true
	b.queue(t, "orders", forebay.MessageQueueSettings{RequiresSession: &yes, LockSeconds: 3})
	session := "a"
	b.send("orders", &azservicebus.Message{Body: []byte("x"), SessionID: &session})
	ctx := within(t)
	lost, err := b.AcceptSessionForQueue(ctx, "orders", session, nil)
	must(t, lost, err)
	m := b.receive(lost, 1)[0]
	next, err := b.goClient(t).AcceptNextSessionForQueue(ctx, "orders", nil) // once the lock has ended
	must(t, next, err)
	if next.SessionID() != session {
		t.Errorf("next is %q", next.SessionID())
	}
	if again := b.receive(next, 1)[0]; again.DeliveryCount != 2 {
		t.Errorf("delivery %d", again.DeliveryCount)
	}
	short, stop := context.WithTimeout(ctx, 2*time.Second) // the SDK tries again and again
	defer stop()
	if err := lost.CompleteMessage(short, m, nil); err == nil {
		t.Error("a message was settled without the lock of its session")
	}
}

// Deliveries of one link that are stored together are refused one by one.
func testServiceBusGoRefusedAlone(t *testing.T, b goBus) {
	yes := true
	b.queue(t, "orders", forebay.MessageQueueSettings{RequiresSession: &yes})
	s := b.sender("orders")
	ctx := within(t)
	const n = 200
	errs := make([]error, n)
	var sending sync.WaitGroup
	for i := range n {
		sending.Go(func() {
			m := text(fmt.Sprint(i))
			if i%10 != 0 {
				m.SessionID = ptr("a")
			}
			errs[i] = s.SendMessage(ctx, m, nil)
		})
	}
	sending.Wait()
	for i, err := range errs {
		if (err != nil) != (i%10 == 0) || err != nil && condition(err) != amqp.ErrCondNotAllowed {
			t.Errorf("message %d: %v", i, err)
		}
	}
	_, q, err := b.FindQueue(ctx, "orders")
	if err != nil || q.Active != n-n/10 {
		t.Errorf("%d messages are stored (%v)", q.Active, err)
	}
}

// Nothing is ever in the transfer dead-letter subqueue: what cannot be forwarded is a dead letter.
func testServiceBusGoTransferDeadLetters(t *testing.T, b goBus) {
	b.queue(t, "gone", forebay.MessageQueueSettings{})
	b.queue(t, "orders", forebay.MessageQueueSettings{ForwardTo: "gone"})
	if err := b.DeleteMessageQueue(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	b.send("orders", text("lost"))
	transfer := b.receiver("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueTransfer})
	if peeked, err := transfer.PeekMessages(t.Context(), 10, nil); err != nil || len(peeked) > 0 {
		t.Errorf("peeked %d messages: %v", len(peeked), err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if got, err := transfer.ReceiveMessages(short, 10, nil); !errors.Is(err, context.DeadlineExceeded) || len(got) > 0 {
		t.Errorf("received %d messages: %v", len(got), err)
	}
	dead := b.receive(b.receiver("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}), 1)[0]
	if *dead.DeadLetterReason != forebay.ReasonNoTarget {
		t.Errorf("dead-lettered as %s", *dead.DeadLetterReason)
	}
}
