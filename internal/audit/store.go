package audit

import (
	"encoding/hex"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Store keeps the audit log.
type Store struct{ *db.DB }

func (s *Store) Attach(d *db.DB)   { s.DB = d }
func (s *Store) Join(w *db.Writer) { key.Join(w, &participant{}) }

var key = db.NewKey(func(t *db.Tx, _ *participant) *tx { return &tx{Tx: t} })

type participant struct{ db.Passive }

// Appends is the hint of an operation that appends to the log: the end of the log is read as its
// transaction begins.
type Appends struct{}

func (*participant) Opens(t *db.Tx, batch []db.Operation, _ bool) []driver.PipelineQuery {
	appends := func(op db.Operation) bool {
		_, is := op.What().Hints.(Appends)
		return is
	}
	if t.Concurrent || !slices.ContainsFunc(batch, appends) {
		return nil
	}
	end := newAuditEnd()
	key.Of(t).end = end
	return []driver.PipelineQuery{{SQL: sqlAuditEnd, OnRow: end.read}}
}

type tx struct {
	*db.Tx
	end *auditEnd // nil: not read yet
}

// auditEnd is the last row of the log.
type auditEnd struct {
	number int64
	hash   string
}

func newAuditEnd() *auditEnd { return &auditEnd{hash: forebay.NoAuditHash} }

const sqlAuditEnd = "SELECT no, hash FROM audit ORDER BY no DESC LIMIT 1"

func (e *auditEnd) read(r driver.Row) { e.number, e.hash = r.Int(0), hex.EncodeToString(r.Blob(1)) }
