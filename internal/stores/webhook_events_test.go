package stores_test

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/stores"
	"github.com/forebayhq/forebay/internal/webhook"
)

// A webhook that is disabled in the transaction of an event gets no copy of it.
func TestDisabledWebhookGetsNoEvent(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		ctx := t.Context()
		tenant, err := s.Queues.EnsureTenant(ctx, "acme")
		mustDo(t, err)
		q := queueOf(t, s, "q")
		w, err := s.Webhooks.CreateWebhook(ctx, webhook.Webhook{Tenant: tenant, TenantName: "acme", Name: "w", URL: "https://x/", Concurrency: 4,
			EventTypes: []forebay.EventType{forebay.EventSucceeded}, Secrets: []webhook.WebhookSecret{{Secret: "s1"}}}, audit.Act{Action: "create-webhook"})
		mustDo(t, err)
		claim := func(id string) *jobs.LockedJob {
			_, err := s.Jobs.Submit(ctx, []jobs.NewJob{{ID: id, Tenant: tenant, Queue: q, Task: "echo", MaxAttempts: 5, CorrelationID: "c"}})
			mustDo(t, err)
			got, err := s.Jobs.Claim(ctx, jobs.ClaimRequest{Subqueue: queue.SubqueueOf(q, queue.SubqueueMain), Max: 1, MaxBytes: 1, Lock: time.Minute, MaxDeliveries: 3})
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			return &got[0]
		}
		succeed := func(d *jobs.LockedJob) error {
			return s.Jobs.Succeed(ctx, d, jobs.AttemptRecord{Outcome: forebay.OutcomeSucceeded}, jobs.Output{Inline: []byte("1"), Size: 1})
		}
		mustDo(t, succeed(claim("job_1")))
		hooked := bus.MessageQueue{No: w.Queue, Tenant: tenant, Lock: time.Minute, MaxDeliveries: 10}
		got, err := s.Bus.Receive(ctx, bus.ReceiveRequest{Queue: hooked, Max: 1, MaxBytes: 1, Wait: true, Webhook: true})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		m, second := got[0], claim("job_2")
		var disabled bool
		for _, err := range dbtest.InOneTransaction(t, s.DB, func() error { return succeed(second) }, func() (err error) {
			o := webhook.WebhookOutcome{Gone: true, DeadLetter: bus.DeadLettering{Reason: "r"}, URL: w.URL, Try: forebay.WebhookTry{Outcome: forebay.WebhookDeadLettered, MessageID: m.MessageID, At: time.Now(), Number: 1}}
			disabled, err = s.Webhooks.SettleWebhook(ctx, w.Queue, m.Lock, o)
			return err
		}) {
			mustDo(t, err)
		}
		got, err = s.Bus.Receive(ctx, bus.ReceiveRequest{Queue: hooked, Max: 5, MaxBytes: 1 << 20})
		if err != nil || !disabled || len(got) != 0 {
			t.Errorf("disabled: %v, and %d messages for it, %v", disabled, len(got), err)
		}
	})
}
