package messaging

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
)

// A queue that was read while it changed is not remembered.
func testChangedQueueIsNotRemembered(t *testing.T, b *Service) {
	ctx := t.Context()
	const key = "acme/orders"
	cache := b.Queues.of(key)
	want := func(lock time.Duration) {
		t.Helper()
		if q, err := b.Queues.stored(ctx, key); err != nil || q.Lock != lock {
			t.Errorf("lock of %v, want %v (%v)", q.Lock, lock, err)
		}
	}
	want(time.Minute)
	want(time.Minute) // from memory
	began, changes := time.Now(), cache.changes
	if _, _, err := b.Queues.Put(ctx, "acme", "orders", forebay.MessageQueueSettings{LockSeconds: 7}); err != nil {
		t.Fatal(err)
	}
	// The stale read below began before the change and ends after it.
	cache.remember(key, remembered{bus.MessageQueue{Lock: time.Minute}, began}, changes)
	want(7 * time.Second)
	// Nor does a read take the place of one that began later, whatever has changed meanwhile.
	for _, changes := range []int{cache.changes, cache.changes - 1} {
		cache.remember(key, remembered{bus.MessageQueue{Lock: time.Minute}, began}, changes)
		if q := cache.queues[key]; q.Lock != 7*time.Second {
			t.Errorf("a lock of %v is remembered", q.Lock)
		}
	}
	// One that began later does, unless a queue has changed since. Then neither is remembered.
	cache.remember(key, remembered{bus.MessageQueue{Lock: time.Second}, time.Now()}, cache.changes)
	want(time.Second)
	cache.remember(key, remembered{bus.MessageQueue{Lock: time.Minute}, time.Now()}, cache.changes-1)
	want(7 * time.Second)
	if err := b.Queues.Delete(ctx, "acme", "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Queues.stored(ctx, key); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("a deleted queue: %v", err)
	}
	// Names that do not exist take no lock that the others need.
	cache.mu.RLock()
	defer cache.mu.RUnlock()
	if _, err := b.Queues.stored(ctx, "acme/none"); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("an unknown queue: %v", err)
	}
}

// What is remembered has a bound, and goes when it is not used any more.
func TestRememberedEntitiesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCaches().ofTenant("acme")
		fill := func(what string, most int) {
			t.Helper()
			for i := range 2*maxRemembered + 1 {
				key := fmt.Sprint("acme/", what, i)
				c.remember(key, remembered{bus.MessageQueue{Name: key}, time.Now()}, 0)
				c.rememberSpelling(key, spelling{key, time.Now()}, 0)
				if _, ok := c.queue(key); !ok {
					t.Fatal("what was read just now is not remembered")
				}
				if len(c.queues) > most || len(c.spelled) > most {
					t.Fatalf("%d queues and %d spellings are remembered", len(c.queues), len(c.spelled))
				}
			}
		}
		fill("one", maxRemembered)
		<-time.After(rememberFor)
		fill("two", maxRemembered)
		<-time.After(rememberFor)
		c.remember("acme/last", remembered{at: time.Now()}, 0)
		if len(c.queues) >= maxRemembered {
			t.Errorf("%d queues are remembered", len(c.queues))
		}
	})
}

// A tenant that keeps changing its entities makes another read its own no more often.
func TestTenantsChangesAreTheirOwn(t *testing.T) {
	t.Parallel()
	c := newCaches()
	other := 0
	for c.ofTenant(fmt.Sprint(other)) == c.ofTenant("acme") {
		other++
	}
	began, changes := time.Now(), c.of("acme/orders").changesSoFar()
	c.changed(fmt.Sprint(other, "/orders"))
	c.of("acme/orders").remember("acme/orders", remembered{at: began}, changes)
	if _, ok := c.of("acme/orders").queue("acme/orders"); !ok {
		t.Error("a queue is not remembered because another tenant's has changed")
	}
}
