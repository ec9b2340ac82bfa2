package jobs

import (
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// admit decides which of the jobs that a look found are called now: at most as many as the claims
// want. The others stay as they are; the look knows when it is worth asking again.
func (t *Tx) admit(l *scan, claims []*claim, slots int) error {
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
		if options, err = t.afford(l, options); err != nil {
			return err
		}
	}
	a := &admitting{t: t, l: l, options: options, fates: make([]fate, len(l.found)), slots: slots}
	for i := range l.found {
		if len(options[i]) == 0 && i < slots { // it needs nothing but a place
			a.slots--
		}
	}
	if err := a.decide(); err != nil {
		return err
	}
	if err := a.part(); err != nil {
		return err
	}
	if told := claims[0].Held; told != nil && l.heldFor != "" {
		told(l.heldFor)
	}
	return nil
}

// callable returns the deployments where those that were found could be called. The next look at the subqueue asks
// for the same as it begins.
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

// blocked is what the latest look at a subqueue has found of jobs that may not be called now.
type blocked struct {
	since int64    // the time of the look
	until int64    // new ones alone are no reason to look again before
	by    []string // deployments that hold them
}

func (t *Tx) block(l *scan) {
	t.w.blocked[l.subqueue] = blocked{since: t.Now, until: t.Now + blockedPause, by: l.heldBy}
}

// Milliseconds between looks at a subqueue in which jobs are held: for new jobs alone, and at all.
const (
	blockedPause = 100
	heldPause    = 10
)

// askAgain notes when a job that was held may be called; 0: not before somebody does something.
func (l *scan) scanAgain(at int64) {
	if at > 0 && (l.retryAt == 0 || at < l.retryAt) {
		l.retryAt = at
	}
}

// wanted is how many messages the claims that wait want together.
func wanted(claims []*claim) (n int) {
	for _, c := range claims {
		if c.Waits() {
			n += c.Max
		}
	}
	return n
}

// withdraw gives back what was reserved for candidates that no claim took.
func (t *Tx) withdraw(candidates []candidate) error {
	for i := range candidates {
		if a := candidates[i].Admission; a != nil {
			if err := t.admission.Told(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// admitting is the decision about the candidates of a look.
type admitting struct {
	t       *Tx
	l       *scan
	options [][]admission.Option
	fates   []fate
	slots   int // how many more the claims want
}

// fate is what becomes of a candidate.
type fate uint8

const (
	unasked fate = iota // the claims want no more, or its tenant has no slot for it
	refused             // no deployment takes it now
	goes
)

// decide asks in turns, for each tenant about as many candidates as it has slots: a slot that one of them
// does not need, because no deployment takes it, is for the next.
func (a *admitting) decide() error {
	for {
		turn, err := a.turn()
		if err != nil || len(turn) == 0 {
			return err
		}
		for choice := 0; ; choice++ {
			var lines map[string][]int
			var names []string
			for _, i := range turn {
				if len(a.options[i]) == 0 && a.fates[i] == unasked {
					if err := a.goes(i); err != nil {
						return err
					}
				}
				if a.fates[i] == goes || len(a.options[i]) <= choice {
					continue
				}
				name := a.options[i][choice].Deployment
				if lines == nil {
					lines = map[string][]int{}
				}
				if lines[name] == nil {
					names = append(names, name)
				}
				lines[name] = append(lines[name], i)
			}
			if len(names) == 0 {
				break
			}
			for _, name := range names {
				if err := a.ask(name, lines[name], choice); err != nil {
					return err
				}
			}
		}
		for _, i := range turn {
			if a.fates[i] == unasked { // the claims want no more
				return nil
			}
		}
	}
}

// turn returns the candidates, as indexes into the look's, that were not asked about and have a slot of
// their tenant.
func (a *admitting) turn() (turn []int, err error) {
	var picked map[int64]int64
	turn = make([]int, 0, len(a.fates))
	for i, f := range a.fates {
		if f != unasked {
			continue
		}
		tenant := a.l.found[i].Tenant
		u, err := a.t.admission.TenantConcurrency(tenant)
		if err != nil {
			return nil, err
		}
		if u != nil {
			if picked[tenant] >= u.Free() {
				continue
			}
			if picked == nil {
				picked = map[int64]int64{}
			}
			picked[tenant]++
		}
		turn = append(turn, i)
	}
	return turn, nil
}

// goes lets a candidate be called.
func (a *admitting) goes(i int) error {
	a.fates[i] = goes
	u, err := a.t.admission.TenantConcurrency(a.l.found[i].Tenant)
	if u != nil {
		u.Going++
	}
	return err
}

// ask lets candidates try one deployment.
func (a *admitting) ask(name string, line []int, choice int) error {
	d, err := a.t.admission.Deployment(name)
	if err != nil {
		return err
	}
	fitting := line[:0]
	for _, i := range line {
		large, err := a.tooLarge(i, choice, d)
		switch {
		case err != nil:
			return err
		case large:
			a.refuse(i, name, forebay.WaitQuota, 0)
		default:
			fitting = append(fitting, i)
		}
	}
	if line = fitting; len(line) == 0 {
		return nil
	}
	first := a.options[line[0]][choice]
	room, use := a.slots, &admission.ConcurrencyUse{}
	if first.Concurrency > 0 {
		if use, err = a.t.admission.ConcurrencyOf(admission.DeploymentResource(name)); err != nil {
			return err
		}
		room = int(min(int64(room), max(first.Concurrency-use.N-use.Going, 0)))
	}
	candidates := make([]quota.Candidate, len(line))
	for n, i := range line {
		candidates[n] = quota.Candidate{ID: a.l.found[i].Seq, Tenant: a.l.found[i].Tenant, Request: a.options[i][choice].Request,
			Again: a.l.subqueue.Kind() == queue.SubqueueRetry}
	}
	full := room < a.slots
	for n, decision := range d.Admit(a.t.Now, first.Limits, candidates, room) {
		i := line[n]
		switch {
		case !decision.Verdict.Admitted():
			a.refuse(i, name, decision.Verdict.Reason, decision.Verdict.RetryAt)
		case decision.Reservation.Seq != 0:
			a.l.found[i].Admission = &admission.Admission{Option: a.options[i][choice], Reservation: decision.Reservation}
			if err := a.goes(i); err != nil {
				return err
			}
			a.slots--
			use.Going++
		case full:
			a.refuse(i, name, forebay.WaitConcurrency, use.Until)
		default: // whatever others said, this one was not asked
			a.fates[i] = unasked
		}
	}
	return nil
}

// tooLarge reports whether a candidate's call is larger than the deployment's quota and another that takes calls has room
// for it.
func (a *admitting) tooLarge(i, choice int, d *admission.Deployment) (bool, error) {
	options := a.options[i]
	if len(options) < 2 || d.Holds(a.t.Now, options[choice].Limits, options[choice].Request) {
		return false, nil
	}
	for n, o := range options {
		if n == choice {
			continue
		}
		other, err := a.t.admission.Deployment(o.Deployment)
		if err != nil {
			return false, err
		}
		if other.Holds(a.t.Now, o.Limits, o.Request) && !other.Stopped() {
			return true, nil
		}
	}
	return false, nil
}

func (a *admitting) refuse(i int, by string, why forebay.WaitReason, retryAt int64) {
	if a.fates[i] = refused; !slices.Contains(a.l.heldBy, by) {
		a.l.heldBy = append(a.l.heldBy, by)
	}
	a.l.scanAgain(retryAt)
	a.l.heldFor = why
}

// part leaves to the look what goes, and puts the others where they wait.
func (a *admitting) part() error {
	if !slices.ContainsFunc(a.fates, func(f fate) bool { return f != goes }) {
		return nil
	}
	l, going := a.l, make([]candidate, 0, len(a.l.found))
	for i, m := range l.found {
		switch a.fates[i] {
		case goes:
			going = append(going, m)
			continue
		case refused:
			l.held = append(l.held, m)
			l.flows.NoteScarce(m.options[0].Deployment, a.t.Now)
			continue
		}
		l.later = append(l.later, m)
		u, err := a.t.admission.TenantConcurrency(m.Tenant)
		switch {
		case err != nil:
			return err
		case u == nil || u.Free() > 0:
			l.more, l.unasked = true, true
			continue
		}
		a.t.admission.Rest(m.Tenant, u)
		l.heldFor = forebay.WaitConcurrency
		if !m.isNew {
			l.flows.Due(m.flow)
		}
	}
	if l.found = going; len(l.held) > 0 {
		a.t.block(l)
	}
	return nil
}
