package tenant_test

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/stores"
)

// fixture opens all stores on every engine.
var fixture = dbtest.Fixture[*stores.Stores]{
	Open: func(ctx context.Context, opts db.Options) (*stores.Stores, error) { return stores.Open(ctx, opts) },
	DB:   func(s *stores.Stores) *db.DB { return s.DB },
	Parked: func(s *stores.Stores, _ *db.Tx) int {
		return len(jobs.Key.In(s.DB.Writer).Waiters) + len(bus.Key.In(s.DB.Writer).Waiters)
	},
}

func tenantOf(t testing.TB, s *stores.Stores, name string) int64 {
	t.Helper()
	id, err := s.Queues.EnsureTenant(t.Context(), name)
	mustDo(t, err)
	return id
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
