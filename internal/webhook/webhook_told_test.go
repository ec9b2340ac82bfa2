package webhook

import (
	"context"
	"sync"
	"testing"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// places is a domain that keeps nothing. It counts how often other processes are told of a place
// that is free. It joins first, so that it has counted before anybody here gets an answer.
type places struct {
	db.Passive
	mu   sync.Mutex
	told map[queue.Subqueue]int
}

var placesKey = db.NewKey(func(*db.Tx, *places) *struct{} { return nil })

func (p *places) Attach(*db.DB)     {}
func (p *places) Join(w *db.Writer) { placesKey.Join(w, p) }

func (p *places) Committed(t *db.Tx) {
	q := queue.Key.Begun(t)
	if q == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for subqueue, at := range q.Earlier {
		if at == bus.RoomAgain {
			p.told[subqueue]++
		}
	}
}

func (p *places) of(w Webhook) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told[queue.SubqueueOf(w.Queue, queue.SubqueueMain)]
}

// Other processes are told of a place that is free, and not of one that is taken again at once.
func TestWebhookPlacesAreTold(t *testing.T) {
	t.Parallel()
	free, f := &places{told: map[queue.Subqueue]int{}}, fixture
	f.Open = func(ctx context.Context, opts db.Options) (*stores, error) { return openBeside(ctx, opts, free) }
	d := &deliveries{T: t, engine: f.ClockSchema(dbtest.NewClockServer(t), "told")}
	s := d.Open(t)
	defer s.DB.Close()
	d.stores = [2]*stores{s, s}
	var err error
	d.w, err = s.Webhooks.CreateWebhook(background, Webhook{Tenant: tenantOf(t, s, "acme"), TenantName: "acme", Name: "w", URL: "https://x/", Concurrency: 1}, audit.Act{Action: "create-webhook"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		d.publish(i)
	}
	first := d.take(0, true, "at first")
	next := d.waiting(0)
	d.settle(0, first, WebhookOutcome{Delivered: true})
	second := <-next
	if n := free.of(d.w); n != 0 {
		t.Errorf("a place that was taken again was told %d times", n)
	}
	d.settle(0, second, WebhookOutcome{Delivered: true})
	if n := free.of(d.w); n != 1 {
		t.Errorf("a free place was told %d times", n)
	}
}
