package documents

import (
	"sync/atomic"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps documents.
type Store struct {
	*queue.Store
	vectors atomic.Pointer[VectorSupport] // nil: not determined yet
}

func (s *Store) Attach(*db.DB) {}

func (s *Store) Follow(list *jobs.Store) {
	list.WhenEnded(func(t *db.Tx, e jobs.Ended) error {
		if e.Status == forebay.StatusSucceeded {
			return nil
		}
		return key.Of(t).documentJobFailed(e)
	})
	list.WhenRedriven(func(t *db.Tx, seq int64) error { return key.Of(t).documentJobRedriven(seq) })
}

func (s *Store) Join(w *db.Writer) { key.Join(w, &participant{}) }
