package audit

import (
	"github.com/forebayhq/forebay/internal/db"
)

// Store keeps the audit log.
type Store struct{ *db.DB }

func (s *Store) Attach(d *db.DB)   { s.DB = d }
func (s *Store) Join(w *db.Writer) { key.Join(w, &participant{}) }

var key = db.NewKey(func(t *db.Tx, _ *participant) *tx { return &tx{Tx: t} })

type participant struct{ db.Passive }

type tx struct {
	*db.Tx
	end *auditEnd // nil: not read yet
}
