package feed_test

import (
	"fmt"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/feed"
)

// However much happens to one tenant's jobs in a moment, the listeners of another hear of its own,
// here and in another process.
func TestATenantWithMuchHidesNothingOfOthers(t *testing.T) {
	s := fixture.Serving(t, dbtest.Databases["sqlite"](t))
	here, there := &wire{DB: s.DB, shared: true}, &wire{DB: s.DB, shared: true}
	hub, other := feed.NewHub(here, "here"), feed.NewHub(there, "there")
	acme, zeta := must(s.Queues.EnsureTenant(t.Context(), "acme"))(t), must(s.Queues.EnsureTenant(t.Context(), "zeta"))(t)
	small := map[string]*feed.Listener{"here": listen(t, hub, feed.Filter{Tenant: zeta}), "there": listen(t, other, feed.Filter{Tenant: zeta})}
	listen(t, hub, feed.Filter{Tenant: acme})
	listen(t, other, feed.Filter{Tenant: acme})
	other.Round(t.Context()) // says what is wanted there
	there.carry(hub)
	const many = 3000
	for i := range many {
		hub.TellObject(feed.Object{Tenant: acme, Kind: forebay.FeedBatch, ID: fmt.Sprint(i), Type: "completed"})
	}
	hub.TellObject(feed.Object{Tenant: zeta, Kind: forebay.FeedBatch, ID: "its first", Type: "completed"})
	hub.TellObject(feed.Object{Tenant: zeta, Kind: forebay.FeedBatch, ID: "its second", Type: "completed"})
	for range 12 {
		hub.Round(t.Context())
		here.carry(other)
		other.Round(t.Context())
	}
	for where, l := range small {
		var ids []string
		for _, item := range l.Take() {
			if item.Kind == forebay.FeedLost {
				ids = append(ids, fmt.Sprintf("lost %d", item.Lost.Count))
			} else {
				ids = append(ids, item.Object.ID)
			}
		}
		want(t, where, ids, "its first", "its second")
	}
}
