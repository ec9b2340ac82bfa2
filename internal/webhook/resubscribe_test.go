package webhook

import (
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
)

// A webhook whose subscription was deleted gets another one by an update. The records of its tries
// go on, and go with the webhook.
func TestTriesFollowANewSubscription(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s, w := webhookStore(t, e)
		publishEvents(t, s, forebay.EventSucceeded)
		m, _ := receiveFor(t, s, w, true)
		settleMessage(t, s, w, m, WebhookOutcome{Delivered: true, Try: forebay.WebhookTry{Outcome: forebay.WebhookDelivered, Status: 200}})
		sub, _, err := s.Bus.MessageQueue(t.Context(), entity.SubscriptionName("acme/"+forebay.TopicJobEvents, WebhookSubscription("w")))
		mustDo(t, err)
		if dropped, err := s.Bus.DropMessageQueue(t.Context(), sub); err != nil || !dropped {
			t.Fatal(dropped, err)
		}
		again, err := s.Webhooks.UpdateWebhook(t.Context(), w, audit.Act{Action: "update-webhook"})
		mustDo(t, err)
		if again.Queue == w.Queue {
			t.Fatal("the subscription is the same")
		}
		for queue, want := range map[int64]int{w.Queue: 0, again.Queue: 1} {
			if tries, err := s.Webhooks.WebhookTries(t.Context(), queue, 10); err != nil || len(tries) != want {
				t.Errorf("queue %d has the tries %+v (%v), want %d", queue, tries, err, want)
			}
		}
	})
}
