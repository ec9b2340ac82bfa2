package webhook

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
)

// An event that a former address answers with 410 goes to the present one with its next try. The
// last try gives it up all the same.
func TestGoneAtAFormerAddress(t *testing.T) {
	onDeliveries(t, 2, 2, func(d *deliveries) {
		first, last := d.take(0, true, "at first"), d.take(0, true, "beside it")
		old := d.w.URL
		w := d.w
		w.URL = "https://y/"
		w, err := d.stores[0].Webhooks.UpdateWebhook(background, w, audit.Act{Action: "update-webhook"})
		if err != nil {
			d.Fatal(err)
		}
		for number, m := range map[int]bus.Message{1: first, MaxTries: last} {
			o := WebhookOutcome{URL: old, Gone: true, DeadLetter: bus.DeadLettering{Reason: ReasonEndpointGone},
				Try: forebay.WebhookTry{MessageID: m.MessageID, Number: number, Outcome: forebay.WebhookDeadLettered}}
			if disabled, err := d.stores[0].Webhooks.SettleWebhook(background, w.Queue, m.Lock, o); disabled || err != nil {
				d.Errorf("try %d disables the webhook: %t, %v", number, disabled, err)
			}
		}
		counts, err := d.stores[0].Bus.MessageCounts(background, bus.MessageQueue{No: w.Queue}, 10)
		if err != nil || counts.DeadLetter != 1 {
			d.Errorf("dead letters: %+v, %v", counts, err)
		}
		d.pass(10 * time.Second)
		if m := d.take(0, true, "after the delay"); m.MessageID != first.MessageID || m.Deliveries != 2 {
			d.Errorf("the next try is %d of %s", m.Deliveries, m.MessageID)
		}
		tries, err := d.stores[0].Webhooks.WebhookTries(background, w.Queue, 10)
		if err != nil {
			d.Fatal(err)
		}
		for _, try := range tries {
			if retried := try.MessageID == first.MessageID; retried != (try.Outcome == forebay.WebhookRetry) || retried != (try.NextTryAt != nil) {
				d.Errorf("a try is %+v", try)
			}
		}
	})
}
