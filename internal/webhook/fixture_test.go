package webhook

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// stores are those that the tests of this package need.
type stores struct {
	DB       *db.DB
	Queues   *queue.Store
	Audit    *audit.Store
	Bus      *bus.Store
	Webhooks *Store
}

// openStores opens a database with them.
func openStores(ctx context.Context, opts db.Options) (*stores, error) { return openBeside(ctx, opts) }

// openBeside opens it with other domains before them.
func openBeside(ctx context.Context, opts db.Options, others ...db.Domain) (*stores, error) {
	queues := &queue.Store{}
	s := &stores{Queues: queues, Audit: &audit.Store{}, Bus: bus.NewStore(queues), Webhooks: &Store{Store: queues}}
	var err error
	s.DB, err = db.Open(ctx, opts, append(others, s.Queues, s.Audit, s.Bus, s.Webhooks)...)
	return s, err
}

// fixture opens them on every engine.
var fixture = dbtest.Fixture[*stores]{
	Open:   openStores,
	DB:     func(s *stores) *db.DB { return s.DB },
	Parked: func(s *stores, t *db.Tx) int { return len(bus.Key.In(s.DB.Writer).Waiters) },
}

type (
	engine  = dbtest.Engine[*stores]
	outside = dbtest.Outside[*stores]
)

var background = context.Background()

func tenantOf(t testing.TB, s *stores, name string) int64 {
	t.Helper()
	id, err := s.Queues.EnsureTenant(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
