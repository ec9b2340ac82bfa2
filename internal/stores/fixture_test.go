package stores_test

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/stores"
)

// fixture opens all domains.
var fixture = dbtest.Fixture[*stores.Stores]{
	Open: func(ctx context.Context, opts db.Options) (*stores.Stores, error) { return stores.Open(ctx, opts) },
	DB:   func(s *stores.Stores) *db.DB { return s.DB },
	Parked: func(s *stores.Stores, _ *db.Tx) int {
		return len(jobs.Key.In(s.DB.Writer).Waiters) + len(bus.Key.In(s.DB.Writer).Waiters)
	},
}

type outside = dbtest.Outside[*stores.Stores]

// openWith opens stores until the test ends, with a tenant and a queue.
func openWith(t testing.TB, opts db.Options) (s *stores.Stores, tenant, queue int64) {
	t.Helper()
	s = fixture.Serving(t, opts)
	tenant, err := s.Queues.EnsureTenant(t.Context(), "default")
	mustDo(t, err)
	return s, tenant, queueOf(t, s, "default")
}

func queueOf(t testing.TB, s *stores.Stores, name string) int64 {
	t.Helper()
	id, err := s.Queues.EnsureQueue(t.Context(), name)
	mustDo(t, err)
	return id
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
