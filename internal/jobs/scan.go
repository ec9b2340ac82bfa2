package jobs

import (
	"cmp"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/fairqueue"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// One scan of a subqueue's flows serves all claims that wait for it. Where processes share a
// database, the scan is part of the transaction's first round trip where possible.

// flowsFrom is what a scan asks of each flow, as arrays in PostgreSQL's notation.
const flowsFrom = "unnest(CAST(? AS bigint[]), CAST(? AS bigint[]), CAST(? AS bigint[])) AS r"

var sqlReadyShared = `
SELECT ` + readyColumns + `, m.flow
FROM (SELECT first.* FROM ` + flowsFrom + `(line, floor, most),
    LATERAL (SELECT * FROM messages WHERE subqueue = ? AND flow = r.line AND visible_at >= r.floor AND visible_at <= (` + postgres.SQLNow + `)
      ORDER BY visible_at, seq LIMIT r.most) AS first
    WHERE NOT EXISTS (SELECT 1 FROM queues WHERE no = ? AND paused <> 0)
      AND NOT EXISTS (SELECT 1 FROM tenants WHERE no = ` + flows.SQLTenantOf("r.line") + ` AND paused <> 0)) AS m
  JOIN jobs j ON j.seq = m.seq`

// The earliest message of each flow that is not ready yet. The search starts at SeenNext once
// NewDue has passed; see flows.Flow.
const sqlNextShared = `
SELECT r.line, first.visible_at FROM ` + flowsFrom + `(line, waits, near),
  LATERAL (SELECT visible_at FROM messages WHERE subqueue = ? AND flow = r.line AND visible_at > (` + postgres.SQLNow + `)
      AND visible_at >= CASE WHEN r.near <= (` + postgres.SQLNow + `) THEN r.waits ELSE 0 END
    ORDER BY visible_at LIMIT 1) AS first`

// maxScan bounds how many jobs one scan reads, with their inputs.
const maxScan = 256

// scan is a search for the ready jobs of a subqueue, and what is left of them.
type scan struct {
	subqueue    queue.Subqueue
	flows       *flows.Set
	flowQueries []flows.Query
	horizon     *fairqueue.Horizon // see flows.Set.Choose
	fromStart   bool               // it is a full scan, or it lists the flows
	readyOnly   bool               // it does not ask what is not ready yet, because it expects to find enough
	limit       int
	share       flows.Shares
	plan        admission.Plan
	found       []candidate
	going       []candidate        // that are called besides those found, and hold nothing yet
	more        bool               // more jobs may be ready than were found
	cut         map[int64]bool     // flows of which only the beginning was found
	taken       map[int64]int64    // flow → "visible" of the latest job that was taken
	later       []candidate        // jobs whose turn is after those that were found
	held        []candidate        // ready jobs that may not be called now
	retryAt     int64              // when a held job may be called; 0: nobody knows
	heldFor     forebay.WaitReason // why the last of them is held
	called      []string           // deployments that the found jobs could call
	heldBy      []string           // deployments that refused some of them
	unasked     bool               // some may go as soon as another claim wants them
	backfills   bool               // it searches behind held jobs for some that may go
	late        bool               // it was made after the operations
}

// newScan prepares a scan for as many jobs as the claims want together. It starts where the
// latest scan of the subqueue ended.
func (w *participant) newScan(subqueue queue.Subqueue, claims []*claim, now int64) *scan {
	l := &scan{subqueue: subqueue, flows: w.flowsOf(subqueue), share: claims[0].Share, plan: claims[0].Plan, taken: map[int64]int64{}}
	l.limit = wanted(claims)
	if _, l.backfills = w.blocked[subqueue]; l.backfills { // a smaller job may fit
		l.limit += quota.Backfill
	}
	l.limit = min(max(l.limit, 1), maxScan)
	l.fromStart = l.flows.Sweep(now, w.pace.Every(flows.SweepPause).Milliseconds())
	l.flowQueries, l.horizon = l.flows.Choose(l.limit, now, l.share, w.restsUntil)
	l.readyOnly = l.flows.Full
	return l
}

// queries returns the scan's SQL queries.
func (l *scan) queries() []driver.PipelineQuery {
	l.found = slices.Grow(l.found[:0], min(l.limit, l.flows.Found))
	at := map[int64]int{}
	for i := range l.flowQueries {
		l.flowQueries[i].Got, l.flowQueries[i].NextReady = 0, db.Never
		at[l.flowQueries[i].Flow] = i
	}
	ready := driver.PipelineQuery{SQL: sqlReadyShared, Bind: func(st driver.Statement) driver.Statement {
		return l.bindFlows(st, func(a *flows.Query) (int64, int64) { return a.Floor, a.Limit }).Int(int64(l.subqueue)).Int(l.subqueue.Queue())
	}, OnRow: func(r driver.Row) {
		c := readCandidate(r, l.subqueue)
		c.flow = r.Int(flowColumn)
		l.found = append(l.found, c)
		l.flowQueries[at[c.flow]].Got++
	}}
	if l.readyOnly {
		return []driver.PipelineQuery{ready}
	}
	// Jobs that are not ready are asked for first. A job that becomes ready between the two
	// queries is then in both answers, not in neither.
	return []driver.PipelineQuery{
		{SQL: sqlNextShared, Bind: func(st driver.Statement) driver.Statement {
			return l.bindFlows(st, func(a *flows.Query) (int64, int64) { return a.SeenNext, a.NewDue }).Int(int64(l.subqueue))
		}, OnRow: func(r driver.Row) { l.flowQueries[at[r.Int(0)]].NextReady = r.Int(1) }},
		ready,
	}
}

// bindFlows binds the ids of the flows and two values of each.
func (l *scan) bindFlows(st driver.Statement, of func(*flows.Query) (int64, int64)) driver.Statement {
	var numbers, firsts, seconds []int64
	for i := range l.flowQueries {
		first, second := of(&l.flowQueries[i])
		numbers, firsts, seconds = append(numbers, l.flowQueries[i].Flow), append(firsts, first), append(seconds, second)
	}
	return st.Text(driver.ArrayOf(numbers)).Text(driver.ArrayOf(firsts)).Text(driver.ArrayOf(seconds))
}

// run runs the scan in the middle of a transaction.
func (l *scan) run(t claimTx, fresh []candidate) error {
	if err := l.ask(t); err != nil {
		return err
	}
	l.arrange(fresh, t)
	return nil
}

// ask asks what is ready.
func (l *scan) ask(t claimTx) error {
	if !l.flows.Known {
		l.fromStart = true
		if err := t.listFlows(l.flows, l.subqueue); err != nil {
			return err
		}
	}
	l.keepFloors(l.later)
	l.readyOnly = false
	l.forgetLater()
	l.flowQueries, l.horizon = l.flows.Choose(l.limit, t.Now, l.share, t.w.restsUntil)
	if !t.w.Shared() {
		return l.runByFlow(t)
	}
	err := t.RunPipeline(append(l.queries(), t.admission.StatesOf(l.flows.Called)...))
	l.leaveEarly(t.Now)
	return err
}

// leaveEarly leaves the jobs that became ready after the transaction's time, which the
// database's clock has passed meanwhile. Else they would begin, by that time, before they may.
func (l *scan) leaveEarly(now int64) {
	l.found = slices.DeleteFunc(l.found, func(c candidate) bool {
		ready := c.ScheduledAt.UnixMilli()
		if ready <= now {
			return false
		}
		q := &l.flowQueries[slices.IndexFunc(l.flowQueries, func(q flows.Query) bool { return q.Flow == c.flow })]
		q.Got, q.NextReady = q.Got-1, min(q.NextReady, ready)
		return true
	})
}

// keepFloors records up to where each flow was served, once the scan is over. left are jobs
// that stay.
func (l *scan) keepFloors(left ...[]candidate) {
	for flow, ready := range l.taken {
		l.flows.Served(flow, ready)
	}
	for _, list := range left {
		for i := range list {
			if !list[i].isNew {
				l.flows.Left(list[i].flow, list[i].ScheduledAt.UnixMilli())
			}
		}
	}
}

// forgetLater drops what the latest run left for later, except new jobs: they have no row yet.
func (l *scan) forgetLater() {
	l.later = slices.DeleteFunc(l.later, func(c candidate) bool { return !c.isNew })
}

// runByFlow asks flow by flow, where a statement costs little.
func (l *scan) runByFlow(t claimTx) error {
	l.found = slices.Grow(l.found[:0], min(l.limit, l.flows.Found))
	for i := range l.flowQueries {
		a := &l.flowQueries[i]
		a.NextReady = db.Never
		err := t.Prep(sqlReady).Int(int64(l.subqueue)).Int(a.Flow).Int(t.Now).Int(a.Limit).Each(func(r driver.Row) error {
			c := readCandidate(r, l.subqueue)
			c.flow = a.Flow
			l.found = append(l.found, c)
			a.Got++
			return nil
		})
		if err != nil {
			return err
		}
		if a.Got == a.Limit {
			continue
		}
		next, err := t.Prep("SELECT visible_at FROM messages WHERE subqueue = ? AND flow = ? AND visible_at > ? ORDER BY visible_at LIMIT 1").
			Int(int64(l.subqueue)).Int(a.Flow).Int(t.Now).One(func(r driver.Row) { a.NextReady = r.Int(0) })
		if err != nil {
			return err
		}
		if !next && a.Got == 0 {
			delete(l.flows.Flows, a.Flow)
		}
	}
	return nil
}

// byFlow compares by flow, and within a flow by the order of service.
func byFlow(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.flow, b.flow), a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.Seq, b.Seq))
}

// arrange puts what was found, and new jobs, in order.
func (l *scan) arrange(fresh []candidate, t claimTx) {
	if !slices.IsSortedFunc(l.found, byFlow) {
		slices.SortFunc(l.found, byFlow)
	}
	asked, informs := map[int64]bool{}, map[int64]bool{}
	l.cut = map[int64]bool{}
	l.flows.Full, l.flows.Found = len(l.flowQueries) > 0, len(l.found)
	for _, a := range l.flowQueries {
		if asked[a.Flow] = true; a.Got == a.Limit {
			l.cut[a.Flow] = true
		} else {
			l.flows.Full = false
		}
		informs[a.Flow] = a.Informs
		if one := l.flows.Flows[a.Flow]; one != nil {
			if !l.readyOnly {
				one.SeenNext = a.NextReady
			}
			if one.NextReady = min(a.NextReady, one.NewReady); l.cut[a.Flow] || l.readyOnly {
				one.NextReady = 0
			}
		}
	}
	unasked := len(l.flowQueries) == flows.MaxFlows && l.flows.NextReady(t.w.restsUntil, func(no int64) bool { return asked[no] }) <= t.Now
	for i := range fresh {
		no := fresh[i].flow
		if one := l.flows.Flows[no]; l.cut[no] || !asked[no] && one != nil && one.NextReady <= t.Now { // others of its flow come before it
			l.later = append(l.later, fresh[i])
		} else {
			l.found = append(l.found, fresh[i])
		}
	}
	for i := len(l.found) - 1; i >= 0; i-- { // the first of each flow comes last
		if one := l.flows.Flows[l.found[i].flow]; one != nil {
			one.Oldest = l.found[i].ScheduledAt.UnixMilli()
		}
	}
	l.found = slices.DeleteFunc(l.found, func(m candidate) bool {
		if informs[m.flow] {
			l.later, unasked = append(l.later, m), true
		}
		return informs[m.flow]
	})
	all := l.found
	l.found, l.more = orderBy(&l.flows.Shares, all, l.cut, l.horizon, func(m *candidate) float64 { return l.share.Cost(m.Tenant, t.expected(m, l.plan)) }, t.Now)
	l.found = l.shareScarce(t, all, l.found)
	l.more = l.more || unasked
	if len(l.found) < len(all) {
		kept := map[int64]bool{}
		for i := range l.found {
			kept[l.found[i].Seq] = true
		}
		for i := range all {
			if !kept[all[i].Seq] {
				l.later = append(l.later, all[i])
			}
		}
	}
}

// scanSubqueue returns what is ready for the claims that wait for a subqueue and may be called.
// It includes new jobs that are not stored yet. It returns nil if there is nothing. scans tells
// that stored jobs may be ready.
func (w *participant) scanSubqueue(t claimTx, subqueue queue.Subqueue, stored bool) (*scan, error) {
	var l *scan
	fresh, claims := t.newJobs[subqueue], w.Waiters[subqueue]
	switch {
	case stored:
		if l = t.preparedScan(subqueue); l == nil {
			l = w.newScan(subqueue, claims, t.Now)
			if err := l.run(t, fresh); err != nil {
				return nil, err
			}
		} else {
			l.arrange(fresh, t)
		}
		delete(w.blocked, subqueue)
	case len(fresh) == 0:
		return nil, nil
	default: // nothing else is ready
		l = &scan{subqueue: subqueue, flows: w.flowsOf(subqueue), share: claims[0].Share, plan: claims[0].Plan, taken: map[int64]int64{}}
		l.arrange(fresh, t)
	}
	if l.fromStart {
		t.fullScans++
	}
	delete(t.newJobs, subqueue)
	for _, u := range t.admission.Concurrency { // what the scans before let go is locked by now, or stays
		u.Going = 0
	}
	if err := t.admit(l, claims, wanted(claims)); err != nil || !l.backfills {
		return l, err
	}
	return l, t.backfill(l, claims)
}

// preparedScan returns the scan that the transaction has made ahead, without what has changed
// since; nil: there is none.
func (t claimTx) preparedScan(subqueue queue.Subqueue) *scan {
	l := t.scanOf(subqueue)
	if l == nil || l.late {
		return l
	}
	l.found = slices.DeleteFunc(l.found, func(c candidate) bool {
		settled := t.Touches(queue.MessageRow(c.Seq))
		if settled { // or not: its lock may have been lost
			l.later = append(l.later, c)
			l.flows.Note(c.flow, t.Now, t.Now)
		}
		return settled || t.ended[c.Seq]
	})
	return l
}

// noteDue records when the subqueue is worth another scan.
func (l *scan) noteDue(w *participant, now int64) {
	held := map[int64]bool{}
	clear(l.flows.HeldClasses[:])
	for i := range l.held {
		held[l.held[i].flow], l.flows.HeldClasses[flows.ClassOf(l.held[i].flow)] = true, true
	}
	next := l.flows.NextReady(w.restsUntil, func(no int64) bool { return held[no] && l.flows.Flows[no].NextReady <= now })
	switch {
	case len(l.found) > 0, l.unasked, l.more && (len(l.held) == 0 || !l.backfills), l.moreOfFreeClasses():
		next = now
	case len(l.held) == 0:
	case next <= now: // in flows that were not asked
		next = now + blockedPause
	}
	if len(l.held) > 0 && l.retryAt > 0 {
		next = min(next, max(l.retryAt, now+heldPause))
	}
	if w.DueAt[l.subqueue] = next; next == db.Never {
		delete(w.DueAt, l.subqueue)
	}
	for _, left := range [][]candidate{l.found, l.later, l.held} {
		for i := range left {
			if !left[i].isNew {
				l.flows.Due(left[i].flow)
			}
		}
	}
}

// moreOfFreeClasses reports whether there are more jobs of a class of which none is held.
func (l *scan) moreOfFreeClasses() bool {
	held := map[int64]bool{}
	for i := range l.held {
		held[flows.ClassOf(l.held[i].flow)] = true
	}
	for no := range l.cut {
		if !held[flows.ClassOf(no)] {
			return true
		}
	}
	return false
}

// serveFrom takes ready jobs for one claim.
func (w *participant) serveFrom(t claimTx, l *scan, c *claim) error {
	var bytes int64
	c.deliveries = slices.Grow(c.deliveries, min(c.Max, len(l.found)))
	for len(c.deliveries) < c.Max {
		if len(l.found) == 0 {
			if !l.more || len(l.held) > 0 {
				return nil
			}
			if err := l.run(t, nil); err != nil {
				return err
			}
			if err := t.admit(l, []*claim{c}, c.Max-len(c.deliveries)+wanted(w.Waiters[l.subqueue])); err != nil {
				return err
			}
			continue
		}
		m := &l.found[0]
		if bytes+m.InputSize > c.MaxBytes && bytes > 0 {
			return nil
		}
		bytes += m.InputSize
		if !m.isNew {
			l.taken[m.flow] = m.ScheduledAt.UnixMilli()
		}
		l.flows.Note(m.flow, t.Now+c.Lock.Milliseconds(), t.Now)
		before := len(c.deliveries)
		if err := t.take(m, c); err != nil {
			return err
		}
		if len(c.deliveries) == before { // it had expired, or had too many deliveries
			if err := t.withdraw(l.found[:1]); err != nil {
				return err
			}
			m.Admission = nil // its tenant is not charged for it
		}
		t.charge(l.flows, m, l.share)
		l.found = l.found[1:]
	}
	return nil
}
