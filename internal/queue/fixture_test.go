package queue

import (
	"context"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// stores are those that the tests of this package need.
type stores struct {
	DB     *db.DB
	Queues *Store
}

// openStores opens a database with them.
func openStores(ctx context.Context, opts db.Options) (*stores, error) {
	queues := &Store{}
	s := &stores{Queues: queues}
	var err error
	s.DB, err = db.Open(ctx, opts, s.Queues)
	return s, err
}

// fixture opens them on every engine.
var fixture = dbtest.Fixture[*stores]{
	Open:   openStores,
	DB:     func(s *stores) *db.DB { return s.DB },
	Parked: func(s *stores, t *db.Tx) int { return 0 },
}
