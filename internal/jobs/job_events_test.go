package jobs

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/queue"
)

// What happens to a job is told to the subscribers of its tenant, and to nobody else, in order.
func TestJobEventsArePublished(t *testing.T) {
	fixture.Once(t, func(t *rapid.T, e engine) {
		s := e.Open(t)
		defer s.DB.Close()
		tenant, err := s.Queues.EnsureTenant(context.Background(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		other, err := s.Queues.EnsureTenant(context.Background(), "other")
		if err != nil {
			t.Fatal(err)
		}
		queueID, err := s.Queues.EnsureQueue(context.Background(), "q")
		if err != nil {
			t.Fatal(err)
		}
		settings := bus.MessageQueue{Tenant: tenant, Lock: time.Minute, MaxDeliveries: 5}
		run := func(tenant int64, id string) {
			if _, err := s.Jobs.Submit(context.Background(), []NewJob{{ID: id, Tenant: tenant, Queue: queueID, Task: "echo", MaxAttempts: 5, CorrelationID: "c"}}); err != nil {
				t.Fatal(err)
			}
			got, err := s.Jobs.Claim(context.Background(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1, Lock: time.Minute, MaxDeliveries: 3})
			if err != nil || len(got) != 1 || got[0].ID != id {
				t.Fatalf("claimed %+v (%v)", got, err)
			}
			if err := s.Jobs.Succeed(context.Background(), &got[0], AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
				t.Fatal(err)
			}
		}
		run(tenant, "job_before") // nobody follows yet
		topic := settings
		topic.Name, topic.IsTopic = "acme/"+forebay.TopicJobEvents, true
		if topic, _, err = s.Bus.PutMessageQueue(context.Background(), topic, 10); err != nil {
			t.Fatal(err)
		}
		run(tenant, "job_alone") // there is a topic, and still nobody
		sub := settings
		sub.Name = entity.SubscriptionName(topic.Name, "all")
		everything := true
		sub, _, err = s.Bus.PutSubscription(context.Background(), topic, sub, []bus.Rule{{Name: "$Default", Settings: forebay.RuleSettings{BooleanFilter: &everything}}}, 10)
		if err != nil {
			t.Fatal(err)
		}
		run(other, "job_foreign")
		run(tenant, "job_followed")
		got, err := s.Bus.Receive(context.Background(), bus.ReceiveRequest{Queue: sub, Max: 10, MaxBytes: 1 << 20, Delete: true})
		if err != nil {
			t.Fatal(err)
		}
		want := []forebay.EventType{forebay.EventAccepted, forebay.EventStarted, forebay.EventSucceeded}
		if len(got) != len(want) {
			t.Fatalf("received %d events", len(got))
		}
		job, err := s.Jobs.Job(context.Background(), tenant, "job_followed")
		if err != nil {
			t.Fatal(err)
		}
		kept, err := s.Jobs.Events(context.Background(), job.Seq, 0, 10)
		if err != nil || len(kept) != len(want) {
			t.Fatalf("%d events (%v)", len(kept), err)
		}
		for i, m := range got {
			var told forebay.Event
			if err := json.Unmarshal(m.Body, &told); err != nil {
				t.Fatal(err)
			}
			var named struct{ At, Timestamp time.Time }
			if err := json.Unmarshal(m.Body, &named); err != nil || named.At.IsZero() || !named.Timestamp.Equal(named.At) {
				t.Errorf("the event's times are %+v (%v)", named, err)
			}
			if told.Type != want[i] || told.JobID != "job_followed" || told.CorrelationID != "c" || told.Number != kept[i].Number || told.Type != kept[i].Type ||
				told.Status != kept[i].Status || !told.At.Equal(kept[i].At) || told.Attempt != kept[i].Attempt || m.Subject != string(want[i]) {
				t.Errorf("event %d was told as %+v and kept as %+v", i, told, kept[i])
			}
		}
		if err := s.Queues.SetPaused(context.Background(), queueID, false, audit.Act{}); err != nil { // something later, which tells nothing
			t.Fatal(err)
		}
	})
}
