package bus

import (
	"context"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// stores are those that the tests of this package need.
type stores struct {
	DB     *db.DB
	Queues *queue.Store
	Audit  *audit.Store
	Bus    *Store
	// Broker is who uses the store in the suite: its own calls, or a client of a server over it.
	Broker broker
}

// openStores opens a database with them.
func openStores(ctx context.Context, opts db.Options) (*stores, error) {
	queues := &queue.Store{}
	s := &stores{Queues: queues, Audit: &audit.Store{}, Bus: NewStore(queues)}
	s.Broker = (&storeBroker{Store: s.Bus, s: s}).broker()
	var err error
	s.DB, err = db.Open(ctx, opts, s.Queues, s.Audit, s.Bus)
	return s, err
}

// fixture opens them on every engine.
var fixture = dbtest.Fixture[*stores]{
	Open:   openStores,
	DB:     func(s *stores) *db.DB { return s.DB },
	Parked: func(s *stores, t *db.Tx) int { return len(Key.In(s.DB.Writer).Waiters) },
}

type engine = dbtest.Engine[*stores]

// What the queues of the tests have, unless a test says otherwise.
const (
	testLock          = 10 * time.Second
	testMaxDeliveries = 3
)

var background = context.Background()

func tenantOf(t testing.TB, s *stores, name string) int64 {
	t.Helper()
	id, err := s.Queues.EnsureTenant(t.Context(), name)
	mustDo(t, err)
	return id
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
