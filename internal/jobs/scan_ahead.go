package jobs

import (
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/queue"
)

// Where each question is a round trip, what the claims of all subqueues need is asked together,
// before the first is served.

// askAhead makes the scans that the transaction has not made as it began. Then it reads what
// serving needs to know of the jobs that all scans have found.
func (t claimTx) askAhead() error {
	if !t.w.Shared() {
		return nil
	}
	var missing []*scan
	for subqueue, claims := range t.w.Waiters {
		if t.w.scansStored(subqueue, t.Now) && t.scanOf(subqueue) == nil {
			l := t.w.newScan(subqueue, claims, t.Now)
			l.late = true
			missing = append(missing, l)
		}
	}
	err := t.Interleave(len(missing), func(i int) error { return missing[i].ask(t) })
	if err != nil {
		return err
	}
	t.scans = append(t.scans, missing...)
	return t.readOfFound()
}

// scansStored reports whether claims wait for a subqueue in which stored jobs may be ready.
func (w *participant) scansStored(subqueue queue.Subqueue, now int64) bool {
	return !w.queue.Paused[subqueue.Queue()] && w.HasWaiters(subqueue) && w.Due(subqueue, now)
}

// scanOf returns the scan of a subqueue that the transaction has made; nil: none.
func (t claimTx) scanOf(subqueue queue.Subqueue) *scan {
	for _, l := range t.scans {
		if l.subqueue == subqueue {
			return l
		}
	}
	return nil
}

// readOfFound reads the budgets of the jobs that were found. It also reads what was held for
// those whose locks were lost, and what those with limits of their own have used.
func (t claimTx) readOfFound() error {
	if len(t.scans) == 0 {
		return nil
	}
	type payer struct {
		tenant int64
		key    string
	}
	var lost []int64
	var reads []func() error
	payers := map[payer]bool{}
	for _, l := range t.scans {
		for i := range l.found {
			m := &l.found[i]
			if m.lostToken {
				lost = append(lost, m.Seq)
			}
			if l.plan == nil {
				continue
			}
			if p := (payer{m.Tenant, m.KeyID}); !payers[p] {
				payers[p] = true
				reads = append(reads, func() error { _, err := t.admission.BudgetsFor(p.tenant, p.key); return err })
			}
			if m.limited() && m.calledBefore() {
				reads = append(reads, func() error { return t.budgets().readSpent(m.Seq) })
			}
		}
	}
	reads = append(reads, func() error { return t.admission.ReadLiveHolds(lost) })
	return t.Interleave(len(reads), func(i int) error { return reads[i]() })
}

// calledBefore reports whether the job was called before.
func (m *candidate) calledBefore() bool { return m.Number > 0 || m.Generation > 1 }

// readSpent reads what a job has used, for jobLeft.
func (t budgetTx) readSpent(seq int64) error {
	spent, err := t.spentBy(seq)
	if err != nil {
		return err
	}
	if t.spent == nil {
		t.spent = map[int64]admission.Amount{}
	}
	t.spent[seq] = spent
	return nil
}

// hasEnded notes that jobs have ended that a scan may have found.
func (t *Tx) hasEnded(seqs ...int64) {
	if t.ended == nil {
		t.ended = map[int64]bool{}
	}
	for _, seq := range seqs {
		t.ended[seq] = true
	}
}
