package store

import (
	"sync"
	"testing"
)

// Other processes are told of a place that is free, and not of one that is taken again at once.
func TestWebhookPlacesAreTold(t *testing.T) {
	t.Parallel()
	d := &deliveries{T: t, engine: &clockSchema{server: newClockServer(t), name: "told"}}
	s := d.open(t)
	defer s.DB.Close()
	d.stores = [2]*Store{s, s}
	var err error
	d.w, err = s.Webhooks.CreateWebhook(background, Webhook{Tenant: tenantOf(t, s, "acme"), TenantName: "acme", Name: "w", URL: "https://x/", Concurrency: 1}, Audit{Action: "create-webhook"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		d.publish(i)
	}
	var mu sync.Mutex
	places := 0
	_, err = transact(background, s.DB.writer, op{stage: stageChange}, func(tx *tx) (int, error) {
		publish := tx.w.publish
		tx.w.publish = func(n *notification) {
			mu.Lock()
			if at, told := n.words[word{wordReady, int64(SubqueueOf(d.w.Queue, SubqueueMain)), 0}]; told && at == roomAgain {
				places++
			}
			mu.Unlock()
			publish(n)
		}
		return 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	told := func() int {
		mu.Lock()
		defer mu.Unlock()
		return places
	}
	first := d.take(0, true, "at first")
	next := d.waiting(0)
	d.settle(0, first, WebhookOutcome{Delivered: true})
	second := <-next
	if n := told(); n != 0 {
		t.Errorf("a place that was taken again was told %d times", n)
	}
	d.settle(0, second, WebhookOutcome{Delivered: true})
	if n := told(); n != 1 {
		t.Errorf("a free place was told %d times", n)
	}
}
