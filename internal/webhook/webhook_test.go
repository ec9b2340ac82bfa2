package webhook

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/raced"
)

// webhookStore is a store with a webhook of the types succeeded and failed.
func webhookStore(t *testing.T, e outside) (*stores, Webhook) {
	t.Helper()
	s := e.Open()
	tenant, err := s.Queues.EnsureTenant(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Webhooks.CreateWebhook(t.Context(), Webhook{Tenant: tenant, TenantName: "acme", Name: "w", URL: "https://x/", Concurrency: 4,
		EventTypes: []forebay.EventType{forebay.EventSucceeded, forebay.EventFailed}, Secrets: []WebhookSecret{{Secret: "s1"}}}, audit.Act{Action: "create-webhook"})
	if err != nil {
		t.Fatal(err)
	}
	return s, w
}

func publishEvents(t *testing.T, s *stores, types ...forebay.EventType) {
	t.Helper()
	topic, found, err := s.Bus.MessageQueue(t.Context(), "acme/"+forebay.TopicJobEvents)
	if err != nil || !found || !topic.IsTopic {
		t.Fatalf("topic %+v, %t (%v)", topic, found, err)
	}
	for i, name := range types {
		if _, err := s.Bus.Send(t.Context(), topic, []bus.MessageContent{{MessageID: fmt.Sprint("evt_", i), Subject: string(name), Body: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
	}
}

// receiveFor receives one message of a webhook, or none.
func receiveFor(t *testing.T, s *stores, w Webhook, wait bool) (m bus.Message, found bool) {
	t.Helper()
	got, err := s.Bus.Receive(t.Context(), bus.ReceiveRequest{Queue: bus.MessageQueue{No: w.Queue, Tenant: w.Tenant, Lock: time.Minute, MaxDeliveries: 10}, Max: 1, MaxBytes: 1, Wait: wait, Webhook: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 {
		return m, false
	}
	return got[0], true
}

func settleMessage(t *testing.T, s *stores, w Webhook, m bus.Message, o WebhookOutcome) (disabled bool) {
	t.Helper()
	o.URL, o.Try.MessageID, o.Try.EventType, o.Try.At, o.Try.Number = w.URL, m.MessageID, m.Subject, time.Now(), m.Deliveries
	disabled, err := s.Webhooks.SettleWebhook(t.Context(), w.Queue, m.Lock, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Webhooks.SettleWebhook(t.Context(), w.Queue, m.Lock, o); !errors.Is(err, forebay.ErrLockLost) {
		t.Errorf("settled twice: %v", err)
	}
	return disabled
}

func TestWebhookDeliveries(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s, w := webhookStore(t, e)
		publishEvents(t, s, forebay.EventStarted, forebay.EventSucceeded)
		if again, found := receiveFor(t, s, w, true); !found || again.MessageID != "evt_1" || again.Deliveries != 1 {
			t.Fatalf("received %+v", again)
		} else if settleMessage(t, s, w, again, WebhookOutcome{Release: true}) {
			t.Error("disabled")
		}
		m, _ := receiveFor(t, s, w, true)
		if m.Deliveries != 1 {
			t.Errorf("released, and then delivery %d", m.Deliveries)
		}
		const delay = 300 * time.Millisecond
		begun := time.Now()
		settleMessage(t, s, w, m, WebhookOutcome{Delay: delay, Try: forebay.WebhookTry{Outcome: forebay.WebhookRetry, Status: 503, Failure: "status"}})
		m, found := receiveFor(t, s, w, false)
		if found && time.Since(begun) < delay {
			t.Error("received before its delay")
		}
		if !found {
			m, _ = receiveFor(t, s, w, true)
		}
		if m.Deliveries != 2 || m.MessageID != "evt_1" {
			t.Errorf("after its delay %+v", m)
		}
		settleMessage(t, s, w, m, WebhookOutcome{DeadLetter: bus.DeadLettering{Reason: "r", Description: "d"}, Try: forebay.WebhookTry{Outcome: forebay.WebhookDeadLettered}})
		dead, _, _, err := s.Bus.Peek(t.Context(), bus.PeekQuery{Subqueue: queue.SubqueueOf(w.Queue, queue.SubqueueDeadLetter), Limit: 10, MaxBytes: 1 << 20, AtLeast: 1})
		if err != nil || len(dead) != 1 || dead[0].DeadLetterReason != "r" {
			t.Fatalf("dead letters %+v (%v)", dead, err)
		}
		for _, c := range []struct {
			seqs []int64
			want int
		}{{[]int64{dead[0].Seq + 1}, 0}, {[]int64{dead[0].Seq, dead[0].Seq}, 1}, {nil, 0}} {
			if moved, err := s.Webhooks.Redeliver(t.Context(), w.Queue, c.seqs, 10, audit.Act{Action: "redeliver"}); err != nil || moved != c.want {
				t.Errorf("redelivered %v: %d (%v)", c.seqs, moved, err)
			}
		}
		m, _ = receiveFor(t, s, w, true)
		if m.Deliveries != 1 || m.Seq != dead[0].Seq || m.DeadLetterReason != "" || m.ExpiresAt == nil {
			t.Errorf("redelivered %+v", m)
		}
		settleMessage(t, s, w, m, WebhookOutcome{Delivered: true, Try: forebay.WebhookTry{Outcome: forebay.WebhookDelivered, Status: 200, DurationSeconds: 0.25}})
		tries, err := s.Webhooks.WebhookTries(t.Context(), w.Queue, 10)
		if err != nil || len(tries) != 3 || tries[0].Status != 200 || tries[0].DurationSeconds != 0.25 || tries[2].NextTryAt == nil || tries[2].Failure != "status" {
			t.Errorf("tries %+v (%v)", tries, err)
		}
		if w, err = s.Webhooks.Webhook(t.Context(), w.Tenant, "w"); err != nil || w.DeliveredAt == nil || w.FailingSince != nil {
			t.Errorf("webhook %+v (%v)", w, err)
		}
		if v, err := s.Audit.Verify(t.Context(), forebay.AuditHead{}, 10); err != nil || !v.Intact || !v.Done || v.Checked != 2 {
			t.Errorf("audit %+v (%v)", v, err)
		}
	})
}

func TestWebhookTriesAreBounded(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s, w := webhookStore(t, e)
		publishEvents(t, s, forebay.EventSucceeded)
		for range maxWebhookTries + 5 {
			m, found := receiveForever(t, s, w)
			if !found {
				t.Fatal("nothing there")
			}
			if _, err := s.Webhooks.SettleWebhook(t.Context(), w.Queue, m.Lock, WebhookOutcome{Try: forebay.WebhookTry{Outcome: forebay.WebhookRetry, At: time.Now(), Number: m.Deliveries}}); err != nil {
				t.Fatal(err)
			}
		}
		tries, err := s.Webhooks.WebhookTries(t.Context(), w.Queue, 1000)
		if err != nil || len(tries) != maxWebhookTries || tries[0].Number != maxWebhookTries+5 {
			t.Errorf("%d tries (%v)", len(tries), err)
		}
	})
}

// receiveForever is receiveFor without a limit on deliveries.
func receiveForever(t *testing.T, s *stores, w Webhook) (m bus.Message, found bool) {
	t.Helper()
	got, err := s.Bus.Receive(t.Context(), bus.ReceiveRequest{Queue: bus.MessageQueue{No: w.Queue, Tenant: w.Tenant, Lock: time.Minute, MaxDeliveries: 1 << 30}, Max: 1, MaxBytes: 1, Wait: true})
	if err != nil || len(got) == 0 {
		t.Fatal(err)
	}
	return got[0], true
}

func TestWebhookChanges(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s, w := webhookStore(t, e)
		ctx := t.Context()
		if _, err := s.Webhooks.CreateWebhook(ctx, w, audit.Act{}); forebay.CodeOf(err) != forebay.CodeConflict {
			t.Errorf("made twice: %v", err)
		}
		// A subscription of the name that one would need is in its way, and nothing is left
		// behind.
		topic, _, err := s.Bus.MessageQueue(ctx, "acme/"+forebay.TopicJobEvents)
		if err != nil {
			t.Fatal(err)
		}
		taken := bus.MessageQueue{Tenant: w.Tenant, Name: entity.SubscriptionName(topic.Name, WebhookSubscription("taken")), Lock: time.Minute, MaxDeliveries: 1}
		if _, _, err := s.Bus.PutSubscription(ctx, topic, taken, nil, 10); err != nil {
			t.Fatal(err)
		}
		other := w
		other.Name = "taken"
		if _, err := s.Webhooks.CreateWebhook(ctx, other, audit.Act{}); forebay.CodeOf(err) != forebay.CodeConflict {
			t.Errorf("in the way: %v", err)
		}
		// Disabled, nothing gathers; enabled for all types, everything does.
		w.DisabledAt, w.EventTypes = &time.Time{}, nil
		if w, err = s.Webhooks.UpdateWebhook(ctx, w, audit.Act{Action: "update-webhook"}); err != nil || w.DisabledReason != forebay.WebhookDisabled || w.DisabledAt.IsZero() {
			t.Fatalf("disabled %+v (%v)", w, err)
		}
		publishEvents(t, s, forebay.EventSucceeded)
		if active, err := s.Webhooks.ActiveWebhooks(ctx); err != nil || len(active) != 0 {
			t.Errorf("active %+v (%v)", active, err)
		}
		w.DisabledAt = nil
		if w, err = s.Webhooks.UpdateWebhook(ctx, w, audit.Act{Action: "update-webhook"}); err != nil || w.DisabledAt != nil {
			t.Fatalf("enabled %+v (%v)", w, err)
		}
		publishEvents(t, s, forebay.EventRedriven)
		m, found := receiveFor(t, s, w, true)
		if !found || m.Subject != string(forebay.EventRedriven) {
			t.Errorf("received %+v", m)
		}
		if !settleMessage(t, s, w, m, WebhookOutcome{Gone: true, DeadLetter: bus.DeadLettering{Reason: "r"}, Try: forebay.WebhookTry{Outcome: forebay.WebhookDeadLettered}}) {
			t.Error("not disabled")
		}
		if w, err = s.Webhooks.Webhook(ctx, w.Tenant, "w"); err != nil || w.DisabledReason != forebay.WebhookGone {
			t.Errorf("gone %+v (%v)", w, err)
		}
		for i, want := range []int{2, 3, 4} {
			if w, err = s.Webhooks.RotateWebhookSecret(ctx, w.Tenant, "w", fmt.Sprint("n", i), time.Hour, audit.Act{Action: "rotate"}); err != nil || len(w.Secrets) != want || w.Secrets[0].Until != nil || w.Secrets[1].Until == nil {
				t.Errorf("rotated %+v (%v)", w.Secrets, err)
			}
		}
		if err := s.Webhooks.DeleteWebhook(ctx, w.Tenant, "w", audit.Act{Action: "delete-webhook"}); err != nil {
			t.Fatal(err)
		}
		if err := s.Webhooks.DeleteWebhook(ctx, w.Tenant, "w", audit.Act{Action: "delete-webhook"}); !errors.Is(err, forebay.ErrNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
		if tries, err := s.Webhooks.WebhookTries(ctx, w.Queue, 10); err != nil || len(tries) != 0 {
			t.Errorf("tries %+v (%v)", tries, err)
		}
	})
}
