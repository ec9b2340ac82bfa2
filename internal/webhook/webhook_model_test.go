package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/raced"
	"pgregory.net/rapid"
)

// modelEvent is an event on its way, as the plain model of a webhook knows it.
type modelEvent struct {
	tries int
	at    int64 // not received before
}

// modelDelivery is a delivery that was not settled yet, by any process.
type modelDelivery struct {
	id    string
	lock  queue.Lock
	until int64
	url   string
	probe bool
}

// hookModel is the plain model of an endpoint: what may be sent to it, whichever process asks.
type hookModel struct {
	engine
	stores  []*stores // processes
	latest  *stores   // the process that did something last
	w       Webhook
	topic   bus.MessageQueue
	serial  int
	events  map[string]*modelEvent
	started []*modelDelivery // also those whose locks have ended

	failures, openings int
	paused             int64 // until then
}

func (m *hookModel) store(t *rapid.T) *stores {
	s := rapid.SampledFrom(m.stores).Draw(t, "process")
	if m.latest != nil && s != m.latest { // what the other one has done may not have been heard of yet
		s.DB.Notified(&db.Notification{Lost: true})
	}
	m.latest = s
	return s
}

// underWay returns the deliveries whose locks hold.
func (m *hookModel) underWay() (n int, probes int) {
	for _, d := range m.started {
		if d.until > m.Now() {
			if n++; d.probe {
				probes++
			}
		}
	}
	return n, probes
}

func (m *hookModel) publish(t *rapid.T) {
	s := m.store(t)
	for range rapid.IntRange(1, 8).Draw(t, "events") {
		m.serial++
		id := fmt.Sprint("evt_", m.serial)
		if m.w.DisabledAt == nil {
			m.events[id] = &modelEvent{at: m.Now()}
		}
		if _, err := s.Bus.Send(context.Background(), m.topic, []bus.MessageContent{{MessageID: id, Subject: "succeeded", Body: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *hookModel) receive(t *rapid.T) {
	s := m.store(t)
	got, err := s.Bus.Receive(context.Background(), bus.ReceiveRequest{Queue: bus.MessageQueue{No: m.w.Queue, Tenant: m.w.Tenant, Lock: webhookLock, MaxDeliveries: 1 << 20},
		Max: 1, MaxBytes: 1, Webhook: true})
	if err != nil {
		t.Fatal(err)
	}
	n, probes := m.underWay()
	may := m.w.DisabledAt == nil && m.paused <= m.Now() && n < m.w.Concurrency && (m.failures < 5 || probes == 0)
	ready := 0
	for _, e := range m.events {
		if e.at <= m.Now() {
			ready++
		}
	}
	if want := may && ready > 0; (len(got) == 1) != want {
		t.Fatalf("received %d; %d are ready, %d of %d under way, %d of them probe, after %d failures it is paused until %d, now is %d, disabled %t",
			len(got), ready, n, m.w.Concurrency, probes, m.failures, m.paused, m.Now(), m.w.DisabledAt != nil)
	}
	if len(got) == 0 {
		return
	}
	e := m.events[got[0].MessageID]
	if e == nil || e.at > m.Now() || got[0].Deliveries != e.tries+1 {
		t.Fatalf("received %+v, and it is %+v", got[0], e)
	}
	e.tries++
	e.at = got[0].LockedUntil.UnixMilli()
	m.started = append(m.started, &modelDelivery{got[0].MessageID, got[0].Lock, e.at, m.w.URL, m.failures >= 5})
}

func (m *hookModel) settle(t *rapid.T) {
	if len(m.started) == 0 {
		t.Skip("nothing was begun")
	}
	var o WebhookOutcome
	switch rapid.SampledFrom([]string{"fail", "fail too", "delivered", "release", "give up"}).Draw(t, "how") {
	case "delivered":
		o.Delivered = true
	case "release":
		o.Release = true
	case "give up":
		o.DeadLetter = bus.DeadLettering{Reason: "r"}
	default:
		o.Delay = time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second
	}
	if !o.Delivered && !o.Release {
		o.Hold = time.Duration(rapid.SampledFrom([]int{0, 0, 0, 20, 10_000}).Draw(t, "hold")) * time.Second
	}
	m.end(t, rapid.IntRange(0, len(m.started)-1).Draw(t, "delivery"), o)
}

// outage lets as many deliveries fail as open the breaker, or as there are.
func (m *hookModel) outage(t *rapid.T) {
	for range breakerFailures {
		began := len(m.started)
		if m.receive(t); len(m.started) == began {
			return
		}
		m.end(t, began, WebhookOutcome{})
	}
}

// end settles a delivery.
func (m *hookModel) end(t *rapid.T, i int, o WebhookOutcome) {
	s, d := m.store(t), m.started[i]
	m.started = slices.Delete(m.started, i, i+1)
	o.URL, o.Try.Outcome = d.url, forebay.WebhookRetry
	_, err := s.Webhooks.SettleWebhook(context.Background(), m.w.Queue, d.lock, o)
	if lost := d.until <= m.Now(); lost != errors.Is(err, forebay.ErrLockLost) || err != nil && !lost {
		t.Fatalf("settled when its lock ends at %d, now is %d: %v", d.until, m.Now(), err)
	}
	if err != nil {
		return
	}
	switch e := m.events[d.id]; {
	case o.Release:
		e.tries, e.at = e.tries-1, m.Now()
	case o.Delivered || o.DeadLetter.Reason != "":
		delete(m.events, d.id)
	default:
		e.at = m.Now() + o.Delay.Milliseconds()
	}
	if !o.Release && d.url == m.w.URL {
		m.learn(t, d, o)
	}
}

// learn does to the model what the guide says of failures, pauses and Retry-After.
func (m *hookModel) learn(t *rapid.T, d *modelDelivery, o WebhookOutcome) {
	w, err := m.latest.Webhooks.Webhook(context.Background(), m.w.Tenant, "w")
	if err != nil {
		t.Fatal(err)
	}
	least, most := max(m.paused, m.Now()), max(m.paused, m.Now())
	if counts := m.failures < 5 || d.probe; counts && o.Delivered {
		m.failures, m.openings = 0, 0
	} else if counts {
		if m.failures++; m.failures >= 5 {
			m.openings++
			pause := min(15_000<<min(m.openings-1, 10), 600_000)
			least, most = max(least, m.Now()+int64(pause)), max(most, m.Now()+int64(pause+pause/10))
		}
	}
	hold := m.Now() + min(o.Hold, 10*time.Minute).Milliseconds()
	least, most = max(least, hold), max(most, hold)
	if m.paused = m.Now(); w.PausedUntil != nil {
		m.paused = max(m.paused, w.PausedUntil.UnixMilli())
	}
	if m.paused < least || m.paused > most {
		t.Fatalf("paused until %d instead of %d to %d, after %+v", m.paused, least, most, o)
	}
}

func (m *hookModel) update(t *rapid.T) {
	s, w := m.store(t), m.w
	switch rapid.SampledFrom([]string{"concurrency", "url", "disabled"}).Draw(t, "what") {
	case "concurrency":
		w.Concurrency = rapid.IntRange(1, 6).Draw(t, "concurrency")
	case "url":
		w.URL = fmt.Sprintf("https://x/%d", rapid.IntRange(0, 2).Draw(t, "url"))
	case "disabled":
		if w.DisabledAt == nil {
			w.DisabledAt = &time.Time{}
		} else {
			w.DisabledAt = nil
		}
	}
	var err error
	if w, err = s.Webhooks.UpdateWebhook(context.Background(), w, audit.Act{Action: "update-webhook"}); err != nil {
		t.Fatal(err)
	}
	if w.URL != m.w.URL || m.w.DisabledAt != nil {
		m.failures, m.openings, m.paused = 0, 0, 0
	}
	m.w = w
}

func (m *hookModel) wait(t *rapid.T) {
	d := time.Duration(rapid.SampledFrom([]int{1, 5, 16, 20, 61, 700}).Draw(t, "seconds")) * time.Second
	for i, s := range m.stores {
		if i == 0 {
			m.Pass(s, d)
		} else {
			m.Pass(s, 0)
		}
	}
}

// Whatever processes do, an endpoint gets no more deliveries at once than it may, none while it
// is paused, and one probe after that. No event is lost, and no try is counted that was not
// begun.
func TestWebhookAgainstModel(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.OnEveryEngine(t, func(t *rapid.T, e engine) {
		m := &hookModel{engine: e, stores: []*stores{e.Open(t)}, events: map[string]*modelEvent{}}
		if _, shared := e.(*dbtest.ClockSchema[*stores]); shared {
			m.stores = append(m.stores, e.Reopen(t))
		}
		defer func() {
			for _, s := range m.stores {
				s.DB.Close()
			}
		}()
		s := m.stores[0]
		tenant, err := s.Queues.EnsureTenant(context.Background(), "acme")
		if err == nil {
			m.w, err = s.Webhooks.CreateWebhook(context.Background(), Webhook{Tenant: tenant, TenantName: "acme", Name: "w", URL: "https://x/0", Concurrency: 3}, audit.Act{Action: "create-webhook"})
		}
		if err == nil {
			m.topic, _, err = s.Bus.MessageQueue(context.Background(), "acme/"+forebay.TopicJobEvents)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": m.publish, "receive": m.receive, "receive more": m.receive, "receive again": m.receive, "receive still": m.receive,
			"settle": m.settle, "settle more": m.settle, "settle again": m.settle, "outage": m.outage, "outage again": m.outage, "update": m.update, "wait": m.wait, "wait more": m.wait,
		})
	})
}
