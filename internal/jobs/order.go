package jobs

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/fairqueue"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// flowsOf returns what the writer remembers of a subqueue.
func (w *participant) flowsOf(subqueue queue.Subqueue) *flows.Set {
	l := w.flows[subqueue]
	if l == nil {
		l = flows.NewSet()
		w.flows[subqueue] = l
	}
	return l
}

// roughly estimates the tokens of a job when nothing better is known.
func (m *candidate) roughly() float64 {
	const base = 250 // tokens of the prompt around an input, and of the answer
	return base + float64(m.InputSize)/forebay.BytesPerToken
}

// expected is the tokens that will be reserved for a job if its first choice takes it. The order
// of jobs must count the same as charge does. Otherwise a tenant would be served too early, at
// the cost of another's turn.
func (t claimTx) expected(m *candidate, plan admission.Plan) float64 {
	if options := m.planned(plan); len(options) > 0 {
		if size := t.stateSoFar(options[0].Deployment).Size(options[0].Limits, options[0].Request); size > 0 {
			return float64(size)
		}
	}
	return m.roughly()
}

// stateSoFar is what is known of a deployment without a query.
func (t claimTx) stateSoFar(name string) *quota.State {
	if d := t.admission.Deployments[name]; d != nil {
		return &d.State
	}
	if d := t.admission.W.Deployments[name]; d != nil { // where one process writes, they are kept, but not at hand before the first is asked for
		return &d.State
	}
	return &unknown
}

var unknown quota.State // for reading only

// tokens is what was reserved for a job's call.
func (m *candidate) tokens() float64 {
	if m.Admission != nil {
		if size := m.Admission.Reservation.Size(); size > 0 {
			return float64(size)
		}
	}
	return m.roughly()
}

// charge records that a job was taken.
func (t claimTx) charge(l *flows.Set, m *candidate, share flows.Shares) {
	l.Shares.Charge(m.Tenant, int(flows.ClassOf(m.flow)), m.behind, share.Cost(m.Tenant, m.tokens()))
	t.chargeScarce(l, m, share)
}

// orderBy puts candidates into the order in which they are served; see flows.Order.
func orderBy(shares *fairqueue.Queue, found []candidate, cut map[int64]bool, horizon *fairqueue.Horizon, cost func(*candidate) float64, now int64) (ordered []candidate, more bool) {
	job := func(i int) flows.Job {
		return flows.Job{Flow: found[i].flow, Ready: found[i].ScheduledAt.UnixMilli(), Seq: found[i].Seq}
	}
	picks, more := flows.Order(shares, len(found), job, cut, horizon, func(i int) float64 { return cost(&found[i]) }, now)
	if picks == nil {
		return found, more
	}
	ordered = make([]candidate, len(picks))
	for i, p := range picks {
		ordered[i] = found[p.Job]
		ordered[i].behind = p.Behind
	}
	return ordered, more
}

// listFlows reads which flows a subqueue has.
func (t claimTx) listFlows(s *flows.Set, subqueue queue.Subqueue) error {
	var ids []int64
	err := t.Prep(flows.SQLList).Int(int64(subqueue)).Each(func(r driver.Row) error {
		ids = append(ids, r.Int(0))
		return nil
	})
	if err == nil {
		s.Listed(ids)
	}
	return err
}
