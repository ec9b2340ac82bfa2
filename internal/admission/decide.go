package admission

import (
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// Candidate is a ready job whose call may go now.
type Candidate struct {
	Seq     int64
	Tenant  int64
	Again   bool     // its call failed before
	Spare   bool     // it goes only while no other waits for its deployment
	Options []Option // where the call may go; none: it needs no deployment
}

// Fate is what becomes of a candidate.
type Fate uint8

const (
	Unasked Fate = iota // the claims want no more jobs, or its tenant is at its concurrency limit
	Refused             // no deployment takes the call now
	Goes
)

// Decision is what becomes of some candidates.
type Decision struct {
	Fates      []Fate
	Admissions []*Admission       // what is reserved for each; nil: nothing
	HeldBy     []string           // deployments that refused some
	RetryAt    int64              // when one of the refused may go; 0: nobody knows
	Why        forebay.WaitReason // the last of them was refused
}

// decider makes a Decision.
type decider struct {
	*Tx
	Decision
	candidates []Candidate
	slots      int // how many more the claims want
}

// Decide decides which of the candidates go now, at most as many as the claims want.
func (t *Tx) Decide(candidates []Candidate, wanted int) (*Decision, error) {
	d := &decider{Tx: t, Decision: Decision{Fates: make([]Fate, len(candidates)), Admissions: make([]*Admission, len(candidates))}, candidates: candidates, slots: wanted}
	for i := range candidates {
		if len(candidates[i].Options) == 0 && i < wanted { // it needs no deployment
			d.slots--
		}
	}
	return &d.Decision, d.decide()
}

// decide asks in turns, for each tenant about as many candidates as it has free calls. If no
// deployment takes one of them, its turn goes to the tenant's next.
func (a *decider) decide() error {
	for {
		turn, err := a.turn()
		if err != nil || len(turn) == 0 {
			return err
		}
		for choice := 0; ; choice++ {
			var groups map[string][]int
			var names []string
			for _, i := range turn {
				if len(a.candidates[i].Options) == 0 && a.Fates[i] == Unasked {
					if err := a.goes(i); err != nil {
						return err
					}
				}
				if a.Fates[i] == Goes || len(a.candidates[i].Options) <= choice {
					continue
				}
				name := a.candidates[i].Options[choice].Deployment
				if groups == nil {
					groups = map[string][]int{}
				}
				if groups[name] == nil {
					names = append(names, name)
				}
				groups[name] = append(groups[name], i)
			}
			if len(names) == 0 {
				break
			}
			for _, name := range names {
				if err := a.ask(name, groups[name], choice); err != nil {
					return err
				}
			}
		}
		for _, i := range turn {
			if a.Fates[i] == Unasked { // the claims want no more
				return nil
			}
		}
	}
}

// turn returns the indexes of candidates that were not asked about and whose tenants have free
// calls.
func (a *decider) turn() (turn []int, err error) {
	var picked map[int64]int64
	turn = make([]int, 0, len(a.Fates))
	for i, f := range a.Fates {
		if f != Unasked {
			continue
		}
		tenant := a.candidates[i].Tenant
		u, err := a.TenantConcurrency(tenant)
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
func (a *decider) goes(i int) error {
	a.Fates[i] = Goes
	u, err := a.TenantConcurrency(a.candidates[i].Tenant)
	if u != nil {
		u.Going++
	}
	return err
}

// ask lets candidates try one deployment.
func (a *decider) ask(name string, group []int, choice int) error {
	d, err := a.Deployment(name)
	if err != nil {
		return err
	}
	fitting := group[:0]
	for _, i := range group {
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
	if group = a.yield(name, fitting); len(group) == 0 {
		return nil
	}
	first := a.candidates[group[0]].Options[choice]
	room, use := a.slots, &ConcurrencyUse{}
	if first.Concurrency > 0 {
		if use, err = a.ConcurrencyOf(DeploymentResource(name)); err != nil {
			return err
		}
		room = int(min(int64(room), max(first.Concurrency-use.N-use.Going, 0)))
	}
	batch := make([]quota.Candidate, len(group))
	for n, i := range group {
		batch[n] = quota.Candidate{ID: a.candidates[i].Seq, Tenant: a.candidates[i].Tenant, Request: a.candidates[i].Options[choice].Request,
			Again: a.candidates[i].Again}
	}
	full := room < a.slots
	for n, decision := range d.Admit(a.Now, first.Limits, batch, room) {
		i := group[n]
		switch {
		case !decision.Verdict.Admitted():
			a.want(i, name, decision.Verdict)
			a.refuse(i, name, decision.Verdict.Reason, decision.Verdict.RetryAt)
		case decision.Reservation.Seq != 0:
			admission := &Admission{Option: a.candidates[i].Options[choice], Reservation: decision.Reservation}
			if admission.Reservation.Probe {
				if admission.Elsewhere, err = a.elsewhere(i, choice); err != nil {
					return err
				}
			}
			a.Admissions[i] = admission
			if err := a.goes(i); err != nil {
				return err
			}
			if a.slots--; !a.candidates[i].Spare {
				delete(a.W.wanted, name) // whoever waits still is refused again
			}
			use.Going++
		case full:
			a.want(i, name, quota.Verdict{Reason: forebay.WaitConcurrency, RetryAt: use.Until})
			a.refuse(i, name, forebay.WaitConcurrency, use.Until)
		default: // whatever others refused, this one was not asked
			a.Fates[i] = Unasked
		}
	}
	return nil
}

// spareQuiet is for how long after a refusal, in milliseconds, spare candidates leave a deployment
// to others.
const spareQuiet = 3000

// want notes that a candidate waits for what a deployment has. Each process knows of those that it
// refused itself.
func (a *decider) want(i int, name string, v quota.Verdict) {
	if a.candidates[i].Spare || v.Reason != forebay.WaitQuota && v.Reason != forebay.WaitConcurrency {
		return
	}
	if a.W.wanted == nil {
		a.W.wanted = map[string]int64{}
	}
	a.W.wanted[name] = max(a.Now, min(v.RetryAt, a.Now+longestWant)) + spareQuiet
}

// longestWant bounds how long spare candidates yield to one that was refused once.
const longestWant = 30_000

// yield refuses the spare candidates of a group while others wait for the deployment. It returns
// the rest.
func (a *decider) yield(name string, group []int) []int {
	until := a.W.wanted[name]
	if until <= a.Now {
		return group
	}
	rest := group[:0]
	for _, i := range group {
		if a.candidates[i].Spare {
			a.refuse(i, name, forebay.WaitQuota, until)
			continue
		}
		rest = append(rest, i)
	}
	return rest
}

// tooLarge reports whether a candidate's call is larger than the deployment's quota, and another
// that takes calls has room for it.
func (a *decider) tooLarge(i, choice int, d *Deployment) (bool, error) {
	options := a.candidates[i].Options
	if len(options) < 2 || d.Holds(a.Now, options[choice].Limits, options[choice].Request) {
		return false, nil
	}
	return a.elsewhere(i, choice)
}

// elsewhere reports whether another deployment than the chosen one takes calls and has room for a
// candidate's.
func (a *decider) elsewhere(i, choice int) (bool, error) {
	for n, o := range a.candidates[i].Options {
		if n == choice {
			continue
		}
		other, err := a.Deployment(o.Deployment)
		if err != nil {
			return false, err
		}
		if other.Holds(a.Now, o.Limits, o.Request) && !other.Stopped() {
			return true, nil
		}
	}
	return false, nil
}

func (a *decider) refuse(i int, by string, why forebay.WaitReason, retryAt int64) {
	if a.Fates[i] = Refused; !slices.Contains(a.HeldBy, by) {
		a.HeldBy = append(a.HeldBy, by)
	}
	if retryAt > 0 && (a.RetryAt == 0 || retryAt < a.RetryAt) {
		a.RetryAt = retryAt
	}
	a.Why = why
}
