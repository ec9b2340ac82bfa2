package webhook

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// deliveries are those of one webhook, by two processes where the engine has more than one.
type deliveries struct {
	*testing.T
	engine
	stores [2]*stores
	w      Webhook
}

func onDeliveries(t *testing.T, concurrency int, events int, test func(*deliveries)) {
	begin := func(t *testing.T, e engine, beside func() *stores) {
		d := &deliveries{T: t, engine: e}
		d.stores[0] = e.Open(t)
		defer d.stores[0].DB.Close()
		d.stores[1] = d.stores[0]
		if beside != nil {
			d.stores[1] = beside()
			defer d.stores[1].DB.Close()
		}
		tenant := tenantOf(t, d.stores[0], "acme")
		var err error
		d.w, err = d.stores[0].Webhooks.CreateWebhook(background, Webhook{Tenant: tenant, TenantName: "acme", Name: "w", URL: "https://x/", Concurrency: concurrency,
			Secrets: []WebhookSecret{{Secret: "s1"}}}, audit.Act{Action: "create-webhook"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			d.publish(i)
		}
		test(d)
	}
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "f.db")
		synctest.Test(t, func(t *testing.T) { begin(t, fixture.Bubble(path), nil) })
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		e := fixture.ClockSchema(dbtest.NewClockServer(t))
		begin(t, e, func() *stores { return e.Reopen(t) })
	})
}

func (d *deliveries) publish(i int) {
	d.Helper()
	topic, _, err := d.stores[0].Bus.MessageQueue(background, "acme/"+forebay.TopicJobEvents)
	if err != nil {
		d.Fatal(err)
	}
	if _, err := d.stores[0].Bus.Send(background, topic, []bus.MessageContent{{MessageID: fmt.Sprint("evt_", i), Subject: "succeeded", Body: []byte("{}")}}); err != nil {
		d.Fatal(err)
	}
}

const webhookLock = time.Minute

func (d *deliveries) request(wait bool) bus.ReceiveRequest {
	return bus.ReceiveRequest{Queue: bus.MessageQueue{No: d.w.Queue, Tenant: d.w.Tenant, Lock: webhookLock, MaxDeliveries: 10}, Max: 1, MaxBytes: 1, Wait: wait, Webhook: true}
}

// take has a process receive a message, which it must if found, and must not else.
func (d *deliveries) take(process int, found bool, when string) (m bus.Message) {
	d.Helper()
	s := d.stores[process]
	s.DB.Notified(&db.Notification{Lost: true}) // it may not have heard yet what the other one did
	got, err := s.Bus.Receive(background, d.request(false))
	if err != nil {
		d.Fatal(err)
	}
	if (len(got) > 0) != found {
		d.Fatalf("%s process %d received %d messages", when, process, len(got))
	}
	if found {
		m = got[0]
	}
	return m
}

// waiting lets a process receive as soon as it may, by notifications alone: it does not scan by
// itself.
func (d *deliveries) waiting(process int) <-chan bus.Message {
	d.Helper()
	s := d.stores[process]
	if _, err := db.TransactIn(background, bus.Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *bus.Tx) (int, error) { t.W.Polling = 24 * time.Hour; return 0, nil }); err != nil {
		d.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(background, time.Minute)
	d.Cleanup(cancel)
	received := make(chan bus.Message, 1)
	go func() {
		defer close(received)
		if got, err := s.Bus.Receive(ctx, d.request(true)); err != nil {
			d.Error(err)
		} else {
			received <- got[0]
		}
	}()
	if _, sqlite := d.engine.(dbtest.Bubble[*stores]); sqlite {
		synctest.Wait()
		return received
	}
	for { // until its claim has been looked at
		n, err := db.TransactIn(background, bus.Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *bus.Tx) (int, error) {
			return len(t.W.Waiters[queue.SubqueueOf(d.w.Queue, queue.SubqueueMain)]), nil
		})
		if err != nil {
			d.Fatal(err)
		}
		if n > 0 {
			return received
		}
	}
}

func (d *deliveries) settle(process int, m bus.Message, o WebhookOutcome) {
	d.Helper()
	o.URL, o.Try.Outcome = d.w.URL, forebay.WebhookRetry
	if !o.Delivered && !o.Release {
		o.Delay = 100 * 24 * time.Hour
	}
	if _, err := d.stores[process].Webhooks.SettleWebhook(background, d.w.Queue, m.Lock, o); err != nil {
		d.Fatal(err)
	}
}

func (d *deliveries) pass(t time.Duration) {
	d.Pass(d.stores[0], t)
	d.stores[1].DB.Notified(&db.Notification{Lost: true})
}

// paused returns for how long the webhook says that nothing is sent.
func (d *deliveries) paused() time.Duration {
	d.Helper()
	w, err := d.stores[1].Webhooks.Webhook(background, d.w.Tenant, "w")
	if err != nil {
		d.Fatal(err)
	}
	if w.PausedUntil == nil {
		return 0
	}
	return time.Duration(w.PausedUntil.UnixMilli()-d.Now()) * time.Millisecond
}
