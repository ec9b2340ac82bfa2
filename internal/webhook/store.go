package webhook

import (
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps webhooks and the records of their deliveries.
type Store struct {
	*queue.Store
	changes db.Listener[struct{}] // changes made by other processes
}

func (s *Store) Attach(*db.DB) {}

func (s *Store) Join(w *db.Writer) {
	bus := bus.Key.In(w)
	p := &participant{bus: bus}
	bus.Webhooks = p
	key.Join(w, p)
}

func (s *Store) Received(n *db.Notification) {
	if n.Lost || n.Has(wordWebhooks) {
		s.changes.Notify(struct{}{})
	}
}

// OnWebhooksChanged sets the function that is called when another process has changed the
// webhooks, or may have.
func (s *Store) OnWebhooksChanged(f func()) { s.changes.Set(func(struct{}) { f() }) }

var key = db.NewKey(func(t *db.Tx, _ *participant) *tx { return &tx{Tx: bus.Key.Of(t)} })
