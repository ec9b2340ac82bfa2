package stores_test

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/batches"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/files"
	"github.com/forebayhq/forebay/internal/stores"
)

// Subscribers hear that a batch has ended, as OpenAI's webhooks say it.
func TestEndsOfBatchesAreTold(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		tenant, err := s.Queues.EnsureTenant(t.Context(), "acme")
		mustDo(t, err)
		topic, sub := bus.MessageQueue{Tenant: tenant, Lock: time.Minute, MaxDeliveries: 5}, bus.MessageQueue{Tenant: tenant, Lock: time.Minute, MaxDeliveries: 5}
		topic.Name, topic.IsTopic = "acme/"+forebay.TopicJobEvents, true
		topic, _, err = s.Bus.PutMessageQueue(t.Context(), topic, 10)
		mustDo(t, err)
		sub.Name = entity.SubscriptionName(topic.Name, "all")
		sub, _, err = s.Bus.PutSubscription(t.Context(), topic, sub, []bus.Rule{{Name: "$Default", Settings: forebay.RuleSettings{SQLFilter: "1 = 1"}}}, 10)
		mustDo(t, err)
		f, _, err := s.Files.Add(t.Context(), files.File{ID: files.NewID(), Tenant: tenant, Purpose: files.PurposeBatch, Name: "f", Blob: "t/1/f/content"}, 0, files.Origin{Hash: "h"})
		mustDo(t, err)
		b, _, err := s.Batches.Create(t.Context(), batches.Batch{ID: "batch_1", Tenant: tenant, Endpoint: "e", InputFile: f.ID, Window: "24h"}, time.Hour, files.Origin{Hash: "h"})
		mustDo(t, err)
		due, _, err := s.Batches.Due(t.Context())
		if err != nil || len(due) != 1 {
			t.Fatal(due, err)
		}
		leased, ok, err := s.Batches.Lease(t.Context(), due[0].No)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		mustDo(t, s.Batches.Fail(t.Context(), &leased, []byte("[]")))
		got, err := s.Bus.Receive(t.Context(), bus.ReceiveRequest{Queue: sub, Max: 10, MaxBytes: 1 << 20})
		if err != nil || len(got) != 1 || got[0].Subject != string(forebay.EventBatchFailed) || got[0].CorrelationID != b.ID {
			t.Errorf("told: %+v (%v)", got, err)
		}
	})
}
