package webhook

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// An endpoint gets nothing for a while after five failures in a row, or for as long as it asks.
func TestBreakerNotes(t *testing.T) {
	const now = 1_000_000
	failed := func(hold time.Duration) WebhookOutcome { return WebhookOutcome{Hold: hold} }
	sent := WebhookOutcome{Delivered: true}
	for name, c := range map[string]struct {
		before, want breaker // until of want: since now
		probe        bool
		o            WebhookOutcome
	}{
		"success":                        {breaker{3, 2, 0}, breaker{}, false, sent},
		"success during a hold":          {breaker{3, 0, now + 7}, breaker{0, 0, 7}, false, sent},
		"success after a hold":           {breaker{3, 0, now}, breaker{}, false, sent},
		"success of a probe":             {breaker{9, 5, now - 1}, breaker{}, true, sent},
		"success from before it opened":  {breaker{5, 1, now + 7}, breaker{5, 1, 7}, false, sent},
		"failure":                        {breaker{3, 0, 0}, breaker{4, 0, 0}, false, failed(0)},
		"fifth failure":                  {breaker{4, 0, 0}, breaker{5, 1, 15_000}, false, failed(0)},
		"failure of a probe":             {breaker{5, 1, now - 1}, breaker{6, 2, 30_000}, true, failed(0)},
		"of one after many":              {breaker{50, 40, now - 1}, breaker{51, 41, 600_000}, true, failed(0)},
		"failure from before it opened":  {breaker{5, 1, now + 7}, breaker{5, 1, 7}, false, failed(0)},
		"asked for from before":          {breaker{5, 1, now + 7}, breaker{5, 1, 60_000}, false, failed(time.Minute)},
		"asked for less than there is":   {breaker{4, 0, 0}, breaker{5, 1, 15_000}, false, failed(time.Second)},
		"asked for":                      {breaker{0, 0, 0}, breaker{1, 0, 60_000}, false, failed(time.Minute)},
		"asked for ever":                 {breaker{0, 0, 0}, breaker{1, 0, 600_000}, false, failed(24 * time.Hour)},
		"probe of before it was changed": {breaker{}, breaker{1, 0, 0}, true, failed(0)},
	} {
		b := c.before
		b.note(c.o, c.probe, now)
		jitter := b.until - now - c.want.until
		if b.until == 0 {
			jitter = -c.want.until
		}
		most := int64(0)
		if b.openings > c.before.openings {
			most = c.want.until / 10
		}
		if b.failures != c.want.failures || b.openings != c.want.openings || jitter < 0 || jitter > most {
			t.Errorf("%s: %+v, now is %d", name, b, now)
		}
	}
}

// An endpoint gets only so many deliveries at once from all processes. Each that ends lets the
// next begin, in whichever process waits. A delivery ends by a settlement or because its process
// has died.
func TestWebhookConcurrency(t *testing.T) {
	onDeliveries(t, 2, 9, func(d *deliveries) {
		first, second := d.take(0, true, "at first"), d.take(1, true, "at first")
		d.take(0, false, "with two under way")
		d.take(1, false, "with two under way")
		for _, o := range []WebhookOutcome{{Delivered: true}, {}, {Release: true}} {
			next := d.waiting(1)
			d.publish(100) // which is no reason to send more
			d.settle(0, first, o)
			m, ok := <-next
			if !ok || m.Deliveries != 1 {
				d.Fatalf("after %+v: %+v, %t", o, m, ok)
			}
			first, second = second, m
			d.take(0, false, "with two under way again")
		}
		// Neither is settled.
		d.pass(webhookLock - time.Second)
		d.take(0, false, "before the locks end")
		d.pass(2 * time.Second)
		d.take(0, true, "after the locks")
		d.take(1, true, "after the locks")
		d.take(0, false, "with two under way, after others had died")
		d.take(1, false, "with two under way, after others had died")
		if _, err := d.stores[0].Webhooks.SettleWebhook(background, d.w.Queue, second.Lock, WebhookOutcome{Delivered: true}); forebay.CodeOf(err) != forebay.CodeLockLost {
			d.Errorf("settled after its lock: %v", err)
		}
		d.take(1, false, "after a settlement that came too late")
		// A changed limit holds at once.
		w := d.w
		w.Concurrency = 3
		next := d.waiting(1)
		if _, err := d.stores[0].Webhooks.UpdateWebhook(background, w, audit.Act{Action: "update-webhook"}); err != nil {
			d.Fatal(err)
		}
		if m, ok := <-next; !ok {
			d.Errorf("with a limit of three: %+v", m)
		}
		d.take(0, false, "with three under way")
	})
}

// Failures in all processes count. The breaker holds for all, with one probe at a time until one
// succeeds.
func TestWebhookBreaker(t *testing.T) {
	onDeliveries(t, 4, 40, func(d *deliveries) {
		late := []bus.Message{d.take(0, true, "at first"), d.take(1, true, "at first")}
		for i := range breakerFailures {
			if d.paused() != 0 {
				d.Errorf("after %d failures it is open for %v", i, d.paused())
			}
			d.settle(i%2, d.take(i%2, true, "while it is closed"), WebhookOutcome{})
		}
		if p := d.paused(); p < breakerFirst || p > breakerFirst*11/10 {
			d.Errorf("open for %v", p)
		}
		nothing := func(when string) {
			d.Helper()
			for process := range d.stores {
				d.take(process, false, when)
			}
		}
		nothing("open")
		// Deliveries that began before say nothing about the endpoint, but a pause that they ask
		// for holds.
		d.settle(1, late[0], WebhookOutcome{Delivered: true})
		nothing("open, and a success from before")
		d.settle(1, late[1], WebhookOutcome{Hold: 20 * time.Second})
		if p := d.paused(); p != 20*time.Second {
			d.Errorf("open for %v", p)
		}
		d.pass(19 * time.Second)
		nothing("open until the endpoint wants more")
		d.pass(2 * time.Second)
		d.take(0, true, "half-open")
		nothing("with a probe under way")
		// The process with the probe dies. The probe is over when its lock ends.
		d.pass(webhookLock - 2*time.Second)
		nothing("before the lock of the dead prober ends")
		d.pass(3 * time.Second)
		again := d.take(1, true, "after the dead prober's lock")
		nothing("with a second probe under way")
		d.settle(1, again, WebhookOutcome{})
		if p := d.paused(); p < 2*breakerFirst || p > 2*breakerFirst*11/10 {
			d.Errorf("open for %v after a probe", p)
		}
		nothing("open again")
		d.pass(34 * time.Second)
		// A probe that was not sent makes room for another one, in whichever process waits.
		probe := d.take(0, true, "half-open again")
		next := d.waiting(1)
		d.settle(0, probe, WebhookOutcome{Release: true})
		m, ok := <-next
		if !ok || m.Seq != probe.Seq || m.Deliveries != probe.Deliveries {
			d.Fatalf("after a probe that was not sent: %+v", m)
		}
		nothing("with a third probe under way")
		// A probe that succeeds closes the breaker, and all processes are notified.
		next = d.waiting(0)
		d.settle(1, m, WebhookOutcome{Delivered: true})
		if m, ok = <-next; !ok {
			d.Fatal("nothing is received once a probe has worked")
		}
		d.settle(0, m, WebhookOutcome{})
		if p := d.paused(); p != 0 {
			d.Errorf("open for %v after one failure", p)
		}
		for i := range 4 {
			d.take(i%2, true, "closed")
		}
		nothing("with four under way")
	})
}

// While an endpoint gets nothing, other receivers still get messages of its subscription, at once
// and when one comes. They do not keep the endpoint's deliveries from it later.
func TestOthersReceiveBesideWebhook(t *testing.T) {
	onDeliveries(t, 4, breakerFailures+1, func(d *deliveries) {
		for range breakerFailures {
			d.settle(0, d.take(0, true, "while it is closed"), WebhookOutcome{})
		}
		next := d.waiting(0)
		s := d.stores[0]
		receive := func(ctx context.Context, wait bool) int {
			d.Helper()
			got, err := s.Bus.Receive(ctx, bus.ReceiveRequest{Queue: bus.MessageQueue{No: d.w.Queue, Tenant: d.w.Tenant, Lock: webhookLock, MaxDeliveries: 10}, Max: 1, MaxBytes: 1, Wait: wait, Delete: true})
			if err != nil {
				d.Fatal(err)
			}
			return len(got)
		}
		if n := receive(background, false); n != 1 {
			d.Errorf("received %d messages beside one who delivers", n)
		}
		if n := receive(background, false); n != 0 {
			d.Errorf("received %d of no messages", n)
		}
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		received := make(chan int, 1)
		go func() { received <- receive(ctx, true) }()
		d.publish(100)
		if n := <-received; n != 1 {
			d.Errorf("received %d messages that came", n)
		}
		d.publish(101)
		d.pass(2 * breakerFirst)
		if m, ok := <-next; !ok || m.MessageID != "evt_101" {
			d.Errorf("the endpoint is sent %+v", m)
		}
	})
}

// An endpoint that has failed for five days is disabled, even if there are so many events that
// none is tried ten times.
func TestWebhookFailingForDays(t *testing.T) {
	onDeliveries(t, 4, 0, func(d *deliveries) {
		for day := range 6 {
			for i := range breakerFailures {
				d.publish(10*day + i)
				if w, err := d.stores[0].Webhooks.Webhook(background, d.w.Tenant, "w"); i == 0 && (err != nil || w.DisabledReason != "") {
					d.Fatalf("on day %d: %+v (%v)", day, w, err)
				}
				if day == 0 || i == 0 {
					d.settle(0, d.take(0, true, "once it is tried"), WebhookOutcome{})
				}
			}
			d.pass(24*time.Hour + time.Minute)
		}
		if w, err := d.stores[0].Webhooks.Webhook(background, d.w.Tenant, "w"); err != nil || w.DisabledReason != forebay.WebhookFailing {
			d.Errorf("%+v (%v)", w, err)
		}
	})
}

// A process knows only how long a probe may take. It is notified when the probe has failed, and
// sends one itself when the pause is over.
func TestBreakerChangesArePublished(t *testing.T) {
	onDeliveries(t, 4, 10, func(d *deliveries) {
		for range breakerFailures {
			d.settle(0, d.take(0, true, "closed"), WebhookOutcome{})
		}
		d.pass(17 * time.Second)
		probe := d.take(0, true, "half-open")
		next := d.waiting(1)
		paused := func() (until int64) {
			d.Helper()
			until, err := db.TransactIn(background, bus.Key, d.stores[1].DB.Writer, db.Op{Stage: db.StageChange}, func(t *bus.Tx) (int64, error) {
				return t.W.Paused[queue.SubqueueOf(d.w.Queue, queue.SubqueueMain)], nil
			})
			if err != nil {
				d.Fatal(err)
			}
			return until
		}
		// It takes a while to hear, also of what was before. A transaction after that looks again.
		rests := func(want int64, until string) {
			d.Helper()
			end := time.Now().Add(time.Minute)
			for at := paused(); at != want; at = paused() {
				if !time.Now().Before(end) {
					d.Fatalf("it rests until %d, and %s until %d", at, until, want)
				}
			}
		}
		rests(probe.LockedUntil.UnixMilli(), "the probe's lock holds")
		d.settle(0, probe, WebhookOutcome{})
		rests(d.Now()+d.paused().Milliseconds(), "the pause lasts")
		if e, shared := d.engine.(*dbtest.ClockSchema[*stores]); shared {
			e.Advance(34 * time.Second)
			paused() // which learns the time
		} else {
			d.pass(34 * time.Second)
		}
		if _, ok := <-next; !ok {
			d.Error("nothing was received when the pause was over")
		}
	})
}

// A disabled webhook gets nothing from that transaction on. When it is enabled again, or has a
// new address, it begins without failures. An answer from the old address changes nothing.
func TestWebhookBreakerIsReset(t *testing.T) {
	onDeliveries(t, 4, 40, func(d *deliveries) {
		update := func(change func(*Webhook)) {
			d.Helper()
			w := d.w
			if change(&w); w.DisabledAt == nil {
				d.w.URL = w.URL
			}
			if _, err := d.stores[0].Webhooks.UpdateWebhook(background, w, audit.Act{Action: "update-webhook"}); err != nil {
				d.Fatal(err)
			}
		}
		open := func() {
			d.Helper()
			for range breakerFailures {
				d.settle(0, d.take(1, true, "while it is closed"), WebhookOutcome{})
			}
			d.take(1, false, "open")
		}
		late := d.take(0, true, "at first")
		open()
		update(func(w *Webhook) { w.EventTypes = []forebay.EventType{forebay.EventSucceeded} })
		d.take(1, false, "after a change of something else")
		old := d.w.URL
		update(func(w *Webhook) { w.URL = "https://y/" })
		if d.paused() != 0 {
			d.Errorf("at a new address it is open for %v", d.paused())
		}
		d.take(1, true, "at a new address")
		o := WebhookOutcome{Hold: time.Minute, Gone: true, URL: old, Try: forebay.WebhookTry{Outcome: forebay.WebhookRetry}}
		if disabled, err := d.stores[0].Webhooks.SettleWebhook(background, d.w.Queue, late.Lock, o); disabled || err != nil {
			d.Errorf("disabled by its old address: %t (%v)", disabled, err)
		}
		if w, err := d.stores[0].Webhooks.Webhook(background, d.w.Tenant, "w"); err != nil || w.FailingSince != nil || d.paused() != 0 {
			d.Errorf("by the old address it fails since %v, and is open for %v (%v)", w.FailingSince, d.paused(), err)
		}
		open()
		update(func(w *Webhook) { w.DisabledAt = &time.Time{} })
		d.pass(time.Hour)
		d.take(1, false, "disabled")
		next := d.waiting(1)
		update(func(*Webhook) {})
		if m, ok := <-next; !ok {
			d.Errorf("enabled again: %+v", m)
		}
	})
}

// Rows of deliveries that nobody settled do not pile up.
func TestLostWebhookDeliveriesAreForgotten(t *testing.T) {
	onDeliveries(t, 32, 3*maxStaleDeliveries, func(d *deliveries) {
		for range 3 {
			for range maxStaleDeliveries {
				got, err := d.stores[0].Bus.Receive(background, bus.ReceiveRequest{
					Queue: bus.MessageQueue{No: d.w.Queue, Tenant: d.w.Tenant, Lock: webhookLock, MaxDeliveries: 1}, Max: 1, MaxBytes: 1, Webhook: true})
				if err != nil || len(got) != 1 {
					d.Fatal(len(got), err)
				}
			}
			d.pass(webhookLock + time.Second)
		}
		rows, err := db.TransactIn(background, bus.Key, d.stores[0].DB.Writer, db.Op{Stage: db.StageChange}, func(t *bus.Tx) (n int64, err error) {
			_, err = t.Prep("SELECT count(*) FROM webhook_deliveries").One(func(r driver.Row) { n = r.Int(0) })
			return n, err
		})
		if err != nil || rows > 2*maxStaleDeliveries {
			d.Errorf("%d rows are left (%v)", rows, err)
		}
	})
}

// If one process alone has the database, the deliveries of the process before it are over.
func TestWebhookDeliveriesOfDeadProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		d := &deliveries{T: t, engine: fixture.Bubble(path)}
		s := d.Open(t)
		var err error
		d.w, err = s.Webhooks.CreateWebhook(background, Webhook{Tenant: tenantOf(t, s, "acme"), TenantName: "acme", Name: "w", URL: "https://x/", Concurrency: 1}, audit.Act{Action: "create-webhook"})
		if err != nil {
			t.Fatal(err)
		}
		d.stores = [2]*stores{s, s}
		d.publish(0)
		d.publish(1)
		lost := d.take(0, true, "at first")
		d.take(0, false, "with one under way")
		if err := s.DB.Close(); err != nil {
			t.Fatal(err)
		}
		s = d.Reopen(t)
		defer s.DB.Close()
		d.stores = [2]*stores{s, s}
		if m := d.take(0, true, "in a new process"); m.Seq == lost.Seq {
			t.Errorf("received %+v, which may be on its way", m)
		}
	})
}
