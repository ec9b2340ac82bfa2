package store

// AuditStore keeps the audit log.
type AuditStore struct{ *DB }

func (s *AuditStore) attach(d *DB)   { s.DB = d }
func (s *AuditStore) join(w *writer) { auditKey.join(w, &auditPart{}) }

var auditKey = newPartKey(func(t *tx, _ *auditPart) *auditTx { return &auditTx{tx: t} })

type auditPart struct{ passive }

type auditTx struct {
	*tx
	end *auditEnd // nil: not read yet
}
