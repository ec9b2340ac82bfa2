package webhook

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
)

// On PostgreSQL, the round trips of a transaction do not grow with the deliveries that end in it,
// whether of one webhook or of many. Changes of a webhook's settings are left out on purpose: they
// are rare, and each takes trips of its own.
func TestRoundTripsOfDeliveries(t *testing.T) {
	const n = 16
	trips := fixture.Trips(t)
	s := trips.Stores
	tenant, err := s.Queues.EnsureTenant(t.Context(), "acme")
	mustDo(t, err)
	outcomes := map[string]WebhookOutcome{
		"delivered": {Delivered: true, Try: forebay.WebhookTry{Outcome: forebay.WebhookDelivered, Status: 200}},
		"later":     {Delay: time.Minute, Try: forebay.WebhookTry{Outcome: forebay.WebhookRetry, Status: 503, Failure: "status"}},
		"given up":  {DeadLetter: bus.DeadLettering{Reason: "r"}, Try: forebay.WebhookTry{Outcome: forebay.WebhookDeadLettered}},
		"not sent":  {Release: true},
	}
	serial := 0
	var latest Webhook
	ended := func(webhooks, deliveries int, o WebhookOutcome) func() []func() error {
		return func() (calls []func() error) {
			var hooks []Webhook
			for range webhooks {
				serial++
				w, err := s.Webhooks.CreateWebhook(t.Context(), Webhook{Tenant: tenant, TenantName: "acme", Name: fmt.Sprint("w", serial), URL: "https://x/",
					Concurrency: deliveries, EventTypes: []forebay.EventType{forebay.EventSucceeded}, Secrets: []WebhookSecret{{Secret: "s1"}}}, audit.Act{Action: "create-webhook"})
				mustDo(t, err)
				hooks = append(hooks, w)
				latest = w
			}
			for range deliveries {
				publishEvents(t, s, forebay.EventSucceeded)
			}
			for _, w := range hooks {
				for range deliveries {
					m, found := receiveFor(t, s, w, true)
					if !found {
						t.Fatal("nothing to deliver")
					}
					o := o
					o.URL, o.Try.MessageID, o.Try.At, o.Try.Number = w.URL, m.MessageID, time.Now(), m.Deliveries
					calls = append(calls, func() error {
						_, err := s.Webhooks.SettleWebhook(t.Context(), w.Queue, m.Lock, o)
						return err
					})
				}
			}
			return calls
		}
	}
	for name, o := range outcomes {
		trips.Together(t, name+", of one webhook", ended(1, n, o))
		trips.Together(t, name+", of many", ended(4, 4, o))
	}
	trips.Together(t, "redeliver many at once", func() []func() error {
		for _, call := range ended(1, n, outcomes["given up"])() {
			mustDo(t, call())
		}
		return []func() error{func() error {
			moved, err := s.Webhooks.Redeliver(t.Context(), latest.Queue, nil, n, audit.Act{Action: "redeliver"})
			if err == nil && moved != n {
				err = fmt.Errorf("moved %d", moved)
			}
			return err
		}}
	})
	trips.Together(t, "all", func() (calls []func() error) {
		for _, o := range outcomes {
			calls = append(calls, ended(2, 4, o)()...)
		}
		return calls
	})
	trips.Plans(t)
}
