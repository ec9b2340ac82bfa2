package keys

import (
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps API keys.
type Store struct {
	*queue.Store
	changes db.Listener[struct{}] // in other processes
}

func (s *Store) Attach(*db.DB)   {}
func (s *Store) Join(*db.Writer) {}

func (s *Store) Received(n *db.Notification) {
	if n.Has(wordKeys) { // a missed notification is made up for by polling
		s.changes.Notify(struct{}{})
	}
}

// OnChange sets the function that is called when another process has made or revoked an API key.
// It must be quick.
func (s *Store) OnChange(f func()) { s.changes.Set(func(struct{}) { f() }) }
