package queue

import (
	"github.com/forebayhq/forebay/internal/db"
)

// Store has the numbers of tenants and queues by name.
type Store struct {
	*db.DB
	names names
}

func (s *Store) Attach(d *db.DB) { s.DB = d }
func (s *Store) Join(w *db.Writer) {
	Key.Join(w, &Participant{Writer: w, Paused: map[int64]bool{}, PausedTenants: map[int64]bool{}})
}

var Key = db.NewKey(func(t *db.Tx, p *Participant) *Tx { return &Tx{Tx: t, w: p} })
