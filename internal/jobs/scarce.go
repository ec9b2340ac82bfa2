package jobs

import (
	"slices"

	"github.com/forebayhq/forebay/internal/flows"
)

// Tenants share what a subqueue delivers, counted in tokens. That alone would leave a tenant
// little of a scarce deployment if its other jobs call one that is not scarce. It would also
// count tokens where requests are scarce. So each deployment that lately held jobs of the
// subqueue has shares of its own. They order the jobs that are to call it, in the places that
// these have in the order of the subqueue.

// scarceOf returns the deployment that a candidate's call is tried at first, if it is scarce.
func scarceOf(s *flows.Set, m *candidate) (string, *flows.Scarce) {
	if len(m.options) == 0 {
		return "", nil
	}
	name := m.options[0].Deployment
	return name, s.ScarceOf(name)
}

// chargeScarce records that a job has taken a part of what is scarce.
func (t claimTx) chargeScarce(l *flows.Set, m *candidate, share flows.Shares) {
	if m.Admission == nil {
		return
	}
	if name, s := scarceOf(l, m); s != nil {
		portion := t.stateSoFar(name).PortionOf(&m.Admission.Reservation)
		s.Shares.Charge(m.Tenant, int(flows.ClassOf(m.flow)), m.behind, share.Cost(m.Tenant, portion))
	}
}

// scarceGroup are the jobs that a scan found for one scarce deployment.
type scarceGroup struct {
	*flows.Scarce
	name string
	jobs []candidate // each flow's in their order
	next int         // the next of the jobs, once they are in order
}

// shareScarce puts the jobs that are to call scarce deployments into the order of those. found is
// in the order of flows, ordered in that of the subqueue. If some flows were not asked, only jobs
// in ordered take part.
func (l *scan) shareScarce(t claimTx, found, ordered []candidate) []candidate {
	scarce := l.flows.Scarce(t.Now)
	if len(scarce) == 0 {
		return ordered
	}
	known := found
	if l.horizon != nil {
		known = slices.Clone(ordered)
		slices.SortFunc(known, byFlow)
	}
	var groups []*scarceGroup
	of := map[string]*scarceGroup{}
	for i := range known {
		known[i].planned(l.plan)
		name, s := scarceOf(l.flows, &known[i])
		if s == nil {
			continue
		}
		if of[name] == nil {
			of[name] = &scarceGroup{Scarce: s, name: name}
			groups = append(groups, of[name])
		}
		of[name].jobs = append(of[name].jobs, known[i])
	}
	for name, s := range scarce {
		if of[name] == nil {
			s.Shares.Wait(nil)
		}
	}
	for _, g := range groups {
		l.more = g.order(t, l) || l.more
	}
	result := make([]candidate, 0, len(found))
	for i := range ordered {
		name, s := scarceOf(l.flows, &ordered[i])
		switch g := of[name]; {
		case s == nil:
			result = append(result, ordered[i])
		case g.next < len(g.jobs):
			result = append(result, g.jobs[g.next])
			g.next++
		}
	}
	for _, g := range groups {
		result = append(result, g.jobs[g.next:]...)
	}
	return result
}

// order puts the jobs in order, and reports whether there are more.
func (g *scarceGroup) order(t claimTx, l *scan) (more bool) {
	waits := map[int64]bool{}
	for i := range g.jobs {
		waits[g.jobs[i].Tenant] = true
	}
	g.Shares.Wait(waits)
	state := t.stateSoFar(g.name)
	g.jobs, more = orderBy(&g.Shares, g.jobs, l.cut, nil, func(m *candidate) float64 {
		return l.share.Cost(m.Tenant, state.Portion(m.options[0].Limits, m.options[0].Request))
	}, t.Now)
	return more
}
