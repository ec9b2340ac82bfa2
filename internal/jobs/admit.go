package jobs

import (
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
)

// admit decides which of the jobs that a scan found are called now, at most as many as the claims
// want. The others stay where they are, and the scan knows when to ask again.
func (t claimTx) admit(l *scan, claims []*claim, slots int) error {
	plan := claims[0].Plan
	if len(l.found) == 0 || plan == nil && !t.admission.AnyCapped() {
		return nil
	}
	options := make([][]admission.Option, len(l.found))
	if plan != nil {
		for i := range l.found {
			options[i] = l.found[i].planned(plan)
		}
		if err := t.admission.Learn(l.callable(options)); err != nil {
			return err
		}
		var err error
		if options, err = t.budgets().afford(l, options); err != nil {
			return err
		}
	}
	candidates := make([]admission.Candidate, len(l.found))
	for i, m := range l.found {
		candidates[i] = admission.Candidate{Seq: m.Seq, Tenant: m.Tenant, Again: l.subqueue.Kind() == queue.SubqueueRetry, Options: options[i], Spare: claims[0].Spare && flows.RankOf(m.flow) > forebay.MaxPriority-forebay.DefaultPriority}
	}
	decision, err := t.admission.Decide(candidates, slots)
	if err != nil {
		return err
	}
	for i, a := range decision.Admissions {
		if a != nil {
			l.found[i].Admission = a
		}
	}
	for _, name := range decision.HeldBy {
		if !slices.Contains(l.heldBy, name) {
			l.heldBy = append(l.heldBy, name)
		}
	}
	if l.scanAgain(decision.RetryAt); decision.Why != "" {
		l.heldFor = decision.Why
	}
	if err := t.divide(l, decision.Fates); err != nil {
		return err
	}
	if notify := claims[0].Held; notify != nil && l.heldFor != "" {
		notify(l.heldFor)
	}
	return nil
}

// callable returns the deployments that the found jobs could call. The subqueue's next scan reads
// their states in its first round trip.
func (l *scan) callable(options [][]admission.Option) []string {
	seen := map[string]bool{}
	for _, name := range l.called {
		seen[name] = true
	}
	for _, list := range options {
		for i := range list {
			if name := list[i].Deployment; !seen[name] {
				seen[name] = true
				l.called = append(l.called, name)
			}
		}
	}
	l.flows.Called = l.called
	return l.called
}

// blocked is what the latest scan of a subqueue found of jobs that may not be called now.
type blocked struct {
	since int64    // the time of the scan
	until int64    // new jobs alone are no reason for a scan before
	by    []string // deployments that hold them
}

func (t claimTx) block(l *scan) {
	t.w.blocked[l.subqueue] = blocked{since: t.Now, until: t.Now + blockedPause, by: l.heldBy}
}

// Milliseconds between scans of a subqueue with held jobs: for new jobs alone, and at all.
const (
	blockedPause = 100
	heldPause    = 10
)

// scanAgain records when a held job may be called; 0: not before something else happens.
func (l *scan) scanAgain(at int64) {
	if at > 0 && (l.retryAt == 0 || at < l.retryAt) {
		l.retryAt = at
	}
}

// wanted is how many jobs the waiting claims want together.
func wanted(claims []*claim) (n int) {
	for _, c := range claims {
		if c.Waits() {
			n += c.Max
		}
	}
	return n
}

// withdraw gives back what was reserved for candidates that no claim took.
func (t claimTx) withdraw(candidates []candidate) error {
	for i := range candidates {
		if a := candidates[i].Admission; a != nil {
			if err := t.admission.NoteOutcome(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// divide leaves in the scan the candidates that go, and puts the others where they wait.
func (t claimTx) divide(l *scan, fates []admission.Fate) error {
	if !slices.ContainsFunc(fates, func(f admission.Fate) bool { return f != admission.Goes }) {
		return nil
	}
	going := make([]candidate, 0, len(l.found))
	for i, m := range l.found {
		switch fates[i] {
		case admission.Goes:
			going = append(going, m)
			continue
		case admission.Refused:
			l.held = append(l.held, m)
			l.flows.NoteScarce(m.options[0].Deployment, t.Now)
			continue
		}
		l.later = append(l.later, m)
		u, err := t.admission.TenantConcurrency(m.Tenant)
		switch {
		case err != nil:
			return err
		case u == nil || u.Free() > 0:
			l.more, l.unasked = true, true
			continue
		}
		t.admission.Rest(m.Tenant, u)
		l.heldFor = forebay.WaitConcurrency
		if !m.isNew {
			l.flows.Due(m.flow)
		}
	}
	if l.found = going; len(l.held) > 0 {
		t.block(l)
	}
	return nil
}
