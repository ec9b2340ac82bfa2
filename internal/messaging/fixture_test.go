package messaging

import (
	"context"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// stores are those that the tests need.
type stores struct {
	*db.DB
	Queues *queue.Store
	Audit  *audit.Store
	Bus    *bus.Store
}

func openStores(ctx context.Context, opts db.Options) (*stores, error) {
	queues := &queue.Store{}
	s := &stores{Queues: queues, Audit: &audit.Store{}, Bus: bus.NewStore(queues)}
	var err error
	s.DB, err = db.Open(ctx, opts, s.Queues, s.Audit, s.Bus)
	return s, err
}
