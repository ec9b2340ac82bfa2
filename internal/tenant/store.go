package tenant

import (
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps the settings of tenants, and counts what they have.
type Store struct{ *queue.Store }

func (s *Store) Attach(*db.DB)   {}
func (s *Store) Join(*db.Writer) {}
