package store

// The participants, and what each keeps of a transaction.

var (
	queueKey       = newPartKey(func(t *tx, p *queuePart) *queueTx { return &queueTx{tx: t, w: p} })
	auditKey       = newPartKey(func(t *tx, _ *auditPart) *auditTx { return &auditTx{tx: t} })
	busKey         = newPartKey(newBusTx)
	webhookKey     = newPartKey(func(t *tx, _ *webhookPart) *webhookTx { return &webhookTx{busTx: busKey.of(t)} })
	admissionKey   = newPartKey(newAdmissionTx)
	jobsKey        = newPartKey(newJobsTx)
	orchestrateKey = newPartKey(func(t *tx, p *orchestratePart) *orchestrateTx {
		return &orchestrateTx{tx: t, w: p, queue: queueKey.of(t)}
	})
	documentsKey = newPartKey(func(t *tx, _ *documentsPart) *documentsTx { return &documentsTx{tx: t, jobs: jobsKey.of(t)} })
)

// passive is a participant that keeps nothing in memory and has nothing to do by itself.
type passive struct{}

func (passive) load() error            { return nil }
func (passive) notified(*notification) {}
func (passive) lookAgain(bool)         {}
func (passive) nextDue(int64) int64    { return never }
func (passive) serve(*tx) error        { return nil }
func (passive) committed(*tx)          {}
func (passive) rolledBack(*tx, int64)  {}
func (passive) refuse(error)           {}

type auditPart struct{ passive }

type auditTx struct {
	*tx
	end *auditEnd // nil: not read yet
}

type documentsPart struct{ passive }

type documentsTx struct {
	*tx
	jobs *jobsTx
}
