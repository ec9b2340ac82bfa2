package orchestrate

import (
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store stores orchestrations.
type Store struct {
	*queue.Store
	onLost db.Listener[int]
}

func (s *Store) Attach(*db.DB) {}

func (s *Store) Follow(list *jobs.Store) {
	list.WhenEnded(func(t *db.Tx, e jobs.Ended) error {
		if e.Uncalled {
			return nil
		}
		return key.Of(t).answerCaller(e)
	})
}

func (s *Store) Join(w *db.Writer) {
	key.Join(w, &participant{Writer: w, onLost: &s.onLost})
}

// OnActivitiesLost calls f with the number of lost attempts that a transaction of this process
// found. A lost attempt is one whose lock ended without an outcome. f must be quick.
func (s *Store) OnActivitiesLost(f func(n int)) { s.onLost.Set(f) }

var key = db.NewKey(func(t *db.Tx, p *participant) *tx {
	return &tx{Tx: t, w: p, queue: queue.Key.Of(t)}
})
