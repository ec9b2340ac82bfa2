package jobs

import (
	"slices"

	"github.com/forebayhq/forebay/internal/fairqueue"
)

// What a deployment gives is shared among those that wait for it. Within a subqueue, tenants share what is delivered. That alone
// would leave a tenant little of a scarce deployment whose other jobs call one that has much to give, and it counts
// tokens where requests may be what is scarce. So each deployment that lately held jobs of the subqueue has shares of its own.
// They order the jobs that are to call it, in the places that these have in the order of the subqueue.

// scarceFor is how long a deployment counts as scarce, in milliseconds, after jobs were held for it.
const scarceFor = 60_000

// scarce is a deployment that does not take all that wait for it.
type scarce struct {
	shares fairqueue.Queue // virtual time is in minutes of what it gives
	until  int64
}

// lacks notes that jobs are held whose calls are tried at the deployment first.
func (l *lines) lacks(name string, now int64) {
	s := l.scarce[name]
	if s == nil {
		if l.scarce == nil {
			l.scarce = map[string]*scarce{}
		}
		s = &scarce{}
		l.scarce[name] = s
	}
	s.until = now + scarceFor
}

// forgetScarce drops the deployments for which nothing was held for long.
func (l *lines) forgetScarce(now int64) {
	for name, s := range l.scarce {
		if now >= s.until || now < s.until-2*scarceFor {
			delete(l.scarce, name)
		}
	}
}

// scarceOf returns the deployment that a candidate's call is tried at first, if it is scarce.
func (l *lines) scarceOf(m *candidate) (string, *scarce) {
	if len(l.scarce) == 0 || len(m.options) == 0 {
		return "", nil
	}
	name := m.options[0].Deployment
	return name, l.scarce[name]
}

// chargeScarce notes that a job has taken a part of what is scarce.
func (t *Tx) chargeScarce(l *lines, m *candidate, share Share) {
	if m.Admission == nil {
		return
	}
	if name, s := l.scarceOf(m); s != nil {
		portion := t.stateSoFar(name).PortionOf(&m.Admission.Reservation)
		s.shares.Charge(m.Tenant, int(classOf(m.rank)), m.behind, share.cost(m.Tenant, portion))
	}
}

// contenders are the jobs that a look found for one scarce deployment.
type contenders struct {
	*scarce
	name string
	jobs []candidate // each line's in their order
	next int         // of the jobs, once they are in order
}

// shareScarce puts the jobs that are to call scarce deployments into the order of those. ordered is in the order of the
// subqueue, found by lines. Where some lines were not asked, only those take part that are in ordered.
func (l *look) shareScarce(t *Tx, found, ordered []candidate) []candidate {
	if l.lines.forgetScarce(t.Now); len(l.lines.scarce) == 0 {
		return ordered
	}
	known := found
	if l.horizon != nil {
		known = slices.Clone(ordered)
		slices.SortFunc(known, inLine)
	}
	var groups []*contenders
	of := map[string]*contenders{}
	for i := range known {
		known[i].planned(l.plan)
		name, s := l.lines.scarceOf(&known[i])
		if s == nil {
			continue
		}
		if of[name] == nil {
			of[name] = &contenders{scarce: s, name: name}
			groups = append(groups, of[name])
		}
		of[name].jobs = append(of[name].jobs, known[i])
	}
	for name, s := range l.lines.scarce {
		if of[name] == nil {
			s.shares.Wait(nil)
		}
	}
	for _, g := range groups {
		l.more = g.order(t, l) || l.more
	}
	result := make([]candidate, 0, len(found))
	for i := range ordered {
		name, s := l.lines.scarceOf(&ordered[i])
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

// order puts the jobs into their order, and reports whether there are more.
func (g *contenders) order(t *Tx, l *look) (more bool) {
	waits := map[int64]bool{}
	for i := range g.jobs {
		waits[g.jobs[i].Tenant] = true
	}
	g.shares.Wait(waits)
	state := t.stateSoFar(g.name)
	g.jobs, more = orderBy(&g.shares, g.jobs, l.cut, nil, func(m *candidate) float64 {
		return l.share.cost(m.Tenant, state.Portion(m.options[0].Limits, m.options[0].Request))
	}, t.Now)
	return more
}
