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

// publishedSlots is a domain that stores nothing. It counts how often other processes are
// notified of a free slot. It joins first, so that it has counted before anybody here gets an
// answer.
type publishedSlots struct {
	db.Passive
	mu     sync.Mutex
	counts map[queue.Subqueue]int
}

var publishedSlotsKey = db.NewKey(func(*db.Tx, *publishedSlots) *struct{} { return nil })

func (p *publishedSlots) Attach(*db.DB)     {}
func (p *publishedSlots) Join(w *db.Writer) { publishedSlotsKey.Join(w, p) }

func (p *publishedSlots) Committed(t *db.Tx) {
	q := queue.Key.Begun(t)
	if q == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for subqueue, at := range q.Earlier {
		if at == bus.ReadyDespitePause {
			p.counts[subqueue]++
		}
	}
}

func (p *publishedSlots) of(w Webhook) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[queue.SubqueueOf(w.Queue, queue.SubqueueMain)]
}

// Other processes are notified of a free slot, and not of one that is taken again at once.
func TestFreeSlotsArePublished(t *testing.T) {
	t.Parallel()
	free, f := &publishedSlots{counts: map[queue.Subqueue]int{}}, fixture
	f.Open = func(ctx context.Context, opts db.Options) (*stores, error) { return openBeside(ctx, opts, free) }
	d := &deliveries{T: t, engine: f.ClockSchema(dbtest.NewClockServer(t))}
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
		t.Errorf("a slot that was taken again was published %d times", n)
	}
	d.settle(0, second, WebhookOutcome{Delivered: true})
	if n := free.of(d.w); n != 1 {
		t.Errorf("a free slot was published %d times", n)
	}
}
