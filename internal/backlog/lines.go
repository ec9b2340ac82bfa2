package backlog

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
)

// Bounds of what Lines looks at.
const (
	maxLineFlows = 128    // flows of one subqueue that are counted
	countedLines = 10_000 // index entries that are counted in all flows of a subqueue together
	leastOfFlow  = 10
	maxForecasts = 16   // lines whose end is worked out, those with most jobs first
	maxDurations = 4    // tenants whose latest calls are read
	mostRunning  = 1000 // running jobs that are passed over for calls that have ended
)

// sqlLineFlows lists the first ?4 flows of subqueue ?1 from ?2 on and below ?3.
const sqlLineFlows = `
WITH RECURSIVE l(line) AS (SELECT min(flow) FROM messages WHERE subqueue = ?1 AND flow >= ?2 AND flow < ?3
  UNION ALL SELECT (SELECT min(m.flow) FROM messages m WHERE m.subqueue = ?1 AND m.flow > l.line AND m.flow < ?3) FROM l WHERE l.line IS NOT NULL)
SELECT line FROM l WHERE line IS NOT NULL LIMIT ?4 + 0`

// Jobs of flow x.no that wait. Of those that are ready: how many, up to ?4, since when the first
// is, and the numbers of the first and the last. Of those that are not ready: how many, and one
// that waits for a budget.
const (
	lineColumns = `
SELECT x.no, (SELECT count(*) FROM (SELECT m.visible_at FROM messages m
    WHERE m.subqueue = ?2 AND m.flow = x.no AND m.visible_at <= ?3 ORDER BY m.visible_at LIMIT ?4 + 0) y),
  (SELECT m.visible_at FROM messages m WHERE m.subqueue = ?2 AND m.flow = x.no AND m.visible_at <= ?3 ORDER BY m.visible_at LIMIT 1),
  (SELECT m.seq FROM messages m WHERE m.subqueue = ?2 AND m.flow = x.no AND m.visible_at <= ?3 ORDER BY m.visible_at LIMIT 1),
  (SELECT m.seq FROM messages m WHERE m.subqueue = ?2 AND m.flow = x.no AND m.visible_at <= ?3 ORDER BY m.visible_at DESC LIMIT 1),
  (SELECT count(*) FROM (SELECT m.visible_at FROM messages m
    WHERE m.subqueue = ?2 AND m.flow = x.no AND m.visible_at > ?3 ORDER BY m.visible_at LIMIT ?4 + 0) y),
  (SELECT min(y.seq) FROM (SELECT m.seq, m.waiting FROM messages m
    WHERE m.subqueue = ?2 AND m.flow = x.no AND m.visible_at > ?3 ORDER BY m.visible_at LIMIT 64) y WHERE y.waiting = 'budget')`
	ofLines = ""
)

// Estimates how many jobs of subqueue ?1 are ready, by flow. Of each stretch of ?3 numbers from ?2
// on one is looked up, as sqlAheadBySample does.
var sqlLinesBySample = fmt.Sprintf(`
WITH RECURSIVE s(i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM s WHERE i < %d),
found(flow) AS MATERIALIZED (SELECT (SELECT m.flow FROM messages m WHERE m.seq = ?2 + s.i * ?3 + (s.i * 2654435761) %% ?3 AND m.subqueue + 0 = ?1
    AND m.visible_at + 0 <= ?4) FROM s)
SELECT flow, count(*) FROM found WHERE flow IS NOT NULL GROUP BY flow`, samples-1)

// sqlLastJob reads what a forecast needs to know of a waiting job.
const sqlLastJob = `
SELECT m.visible_at, coalesce(m.waiting, ''), j.task, j.input_size, j.estimate, coalesce(j.max_output_tokens, 0), t.name, t.paused
FROM messages m JOIN jobs j ON j.seq = m.seq JOIN tenants t ON t.no = j.tenant WHERE m.seq = ?`

const sqlJobQueues = "SELECT no, name, paused FROM queues WHERE kind = 'jobs' ORDER BY name"

// LinesQuery is what the caller of Lines knows.
type LinesQuery struct {
	Tenant int64 // 0: all
	// Plan lists where a job's call may go. estimate is as in the job's row.
	Plan   func(task string, inputSize int64, estimate []byte, maxOutputTokens int64) []admission.Option
	Shares flows.Shares
	// Retry returns what bounds the retries of a queue, and false for a queue that this process
	// does not know.
	Retry func(queue int64) (RetryLimits, bool)
	// Workers returns how many places for calls a queue has in all processes, and how many of them
	// are taken.
	Workers func(queue string, retry bool) (places, taken int)
}

// flowCount is what waits in one flow.
type flowCount struct {
	flow                    int64
	ready, later            int64 // as far as they were counted
	readyCapped, laterMore  bool
	estimate                int64 // of those that are ready
	readySince, first, last int64 // when the first is ready, and numbers of the first and last; 0: none is
	budget                  int64 // number of one that waits for a budget; 0: none does
}

// line is a line, and the flow in it with most jobs.
type line struct {
	forebay.BacklogLine
	queue    int64
	paused   bool
	subqueue queue.Subqueue
	longest  flowCount
	budget   int64
	of       *subqueueCount
}

// subqueueCount is what waits in a subqueue.
type subqueueCount struct {
	flows   []flowCount
	sampled map[int64]int64 // by flow, the estimate; nil: all was counted
	capped  bool            // there are more flows than were counted
}

// linesReader makes the lines of one backlog.
type linesReader struct {
	driver.Conn
	*LinesQuery
	forecast
	durations map[int64]Calls // by tenant
}

// Lines returns what waits. Its cost does not depend on how many jobs do.
func (r *Reader) Lines(ctx context.Context, q *LinesQuery) (b forebay.Backlog, err error) {
	err = r.Queues.Read(ctx, func(c driver.Conn) error {
		b = forebay.Backlog{Lines: []forebay.BacklogLine{}}
		holding, err := r.Admission.ReadHolding(c)
		if err != nil {
			return err
		}
		w := linesReader{c, q, forecast{holding}, map[int64]Calls{}}
		lines, err := w.lines()
		if err != nil {
			return err
		}
		byLength := slices.Clone(lines)
		slices.SortStableFunc(byLength, func(a, b *line) int { return cmp.Compare(b.WaitingEstimate, a.WaitingEstimate) })
		for i, l := range byLength {
			if err := w.judge(l, i < maxForecasts); err != nil {
				return err
			}
		}
		end(&b, lines)
		return nil
	})
	return b, err
}

// end adds the lines, and when all of them are done.
func end(b *forebay.Backlog, lines []*line) {
	unknown := 0
	for _, l := range lines {
		b.Lines = append(b.Lines, l.BacklogLine)
		switch at := l.ExpectedEndAt; {
		case l.Waiting == 0:
		case at == nil:
			unknown++
		case b.ExpectedEndAt == nil || at.After(*b.ExpectedEndAt):
			b.ExpectedEndAt = at
		}
	}
	switch {
	case unknown > 0:
		b.ExpectedEndAt, b.Unknown = nil, fmt.Sprintf("the end of %d of the lines is not known", unknown)
	case b.ExpectedEndAt == nil:
		b.Unknown = "nothing is ready"
	}
}

// lines counts what waits.
func (w *linesReader) lines() (lines []*line, err error) {
	var queues []line
	err = w.Prep(sqlJobQueues).Each(func(r driver.Row) error {
		queues = append(queues, line{queue: r.Int(0), BacklogLine: forebay.BacklogLine{Queue: r.Text(1)}, paused: r.Int(2) != 0})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, of := range queues {
		for _, kind := range []queue.SubqueueKind{queue.SubqueueMain, queue.SubqueueRetry} {
			of.subqueue, of.Lane = queue.SubqueueOf(of.queue, kind), laneOf(kind)
			if of.of, err = w.count(of.subqueue); err != nil {
				return nil, err
			}
			byPriority := map[int]*line{}
			for i := range of.of.flows {
				f := &of.of.flows[i]
				if w.Tenant != 0 && flows.TenantOf(f.flow) != w.Tenant {
					continue
				}
				priority := forebay.MaxPriority - int(flows.RankOf(f.flow))
				l := byPriority[priority]
				if l == nil {
					l = &line{}
					*l = of
					l.Priority, byPriority[priority] = priority, l
				}
				l.add(f)
			}
			for priority := forebay.MaxPriority; priority >= forebay.MinPriority; priority-- {
				if l := byPriority[priority]; l != nil {
					l.estimate(w.Tenant)
					lines = append(lines, l)
				}
			}
		}
	}
	return lines, nil
}

func laneOf(kind queue.SubqueueKind) string {
	if kind == queue.SubqueueRetry {
		return "retry"
	}
	return "main"
}

// count counts the flows of a subqueue: those of the tenant that is asked about, and others, whose
// jobs have their turns between its own.
func (w *linesReader) count(subqueue queue.Subqueue) (*subqueueCount, error) {
	counted := &subqueueCount{}
	list := func(low, high int64) (ids []int64, err error) {
		err = w.Prep(sqlLineFlows).Int(int64(subqueue)).Int(low).Int(high).Int(maxLineFlows + 1).Each(func(r driver.Row) error {
			if len(ids) == maxLineFlows {
				counted.capped = true
				return driver.ErrStop
			}
			ids = append(ids, r.Int(0))
			return nil
		})
		return ids, driver.UnlessStopped(err)
	}
	ids, err := list(0, 1<<62)
	if err == nil && counted.capped && w.Tenant != 0 {
		var own []int64
		own, err = list(flows.ID(w.Tenant, 0, forebay.MaxPriority), flows.ID(w.Tenant+1, 0, forebay.MaxPriority))
		ids = append(ids, own...)
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	if err != nil || len(ids) == 0 {
		return counted, err
	}
	limit := max(int64(countedLines/len(ids)), leastOfFlow)
	sample := counted.capped
	var first, last int64
	err = driver.EachOf(w.Conn, lineColumns, ofLines, ids, func(r driver.Row) error {
		f := flowCount{flow: r.Int(0), ready: r.Int(1), readySince: r.Int(2), first: r.Int(3), last: r.Int(4), later: r.Int(5), budget: r.Int(6)}
		f.readyCapped, f.laterMore, f.estimate = f.ready >= limit, f.later >= limit, f.ready
		sample = sample || f.readyCapped
		if f.ready > 0 && (first == 0 || f.first < first) {
			first = f.first
		}
		last = max(last, f.last)
		counted.flows = append(counted.flows, f)
		return nil
	}, int64(subqueue), w.Holding.Now, limit)
	if err != nil || !sample || first == 0 {
		return counted, err
	}
	if counted.capped { // flows that were not counted may have newer jobs
		if _, err := w.Prep("SELECT max(seq) FROM messages").One(func(r driver.Row) { last = r.Int(0) }); err != nil {
			return nil, err
		}
	}
	every := (max(last, first)-first)/samples + 1
	counted.sampled = map[int64]int64{}
	err = w.Prep(sqlLinesBySample).Int(int64(subqueue)).Int(first).Int(every).Int(w.Holding.Now).Each(func(r driver.Row) error {
		counted.sampled[r.Int(0)] = r.Int(1) * every
		return nil
	})
	for i := range counted.flows {
		if f := &counted.flows[i]; f.readyCapped {
			f.estimate = max(f.ready, counted.sampled[f.flow])
		}
	}
	return counted, err
}

// add adds the jobs of a flow.
func (l *line) add(f *flowCount) {
	l.Waiting, l.WaitingEstimate, l.Scheduled = l.Waiting+f.ready, l.WaitingEstimate+f.estimate, l.Scheduled+f.later
	l.WaitingCapped, l.ScheduledCapped = l.WaitingCapped || f.readyCapped, l.ScheduledCapped || f.laterMore
	if at := driver.FromMillis(f.readySince); f.ready > 0 && (l.OldestReadyAt == nil || at.Before(*l.OldestReadyAt)) {
		l.OldestReadyAt = &at
	}
	if f.estimate > l.longest.estimate || l.longest.last == 0 {
		l.longest = *f
	}
	l.budget = cmp.Or(l.budget, f.budget)
}

// estimate adds the flows that were not counted, as the sample saw them.
func (l *line) estimate(tenant int64) {
	if !l.of.capped || tenant != 0 {
		return
	}
	l.WaitingCapped, l.ScheduledCapped = true, true
	var sum int64
	for flow, n := range l.of.sampled {
		if forebay.MaxPriority-int(flows.RankOf(flow)) == l.Priority {
			sum += n
		}
	}
	l.WaitingEstimate = max(l.WaitingEstimate, sum)
}

// ahead counts the jobs that go before the last one of a flow. Of its tenant these are what has
// the same class and no lower priority. Of each other tenant they are as many as have their turns
// meanwhile.
func (s *subqueueCount) ahead(f *flowCount, shares flows.Shares) (a Ahead) {
	tenant, class := flows.TenantOf(f.flow), flows.ClassOf(f.flow)
	others := map[int64]int64{}
	add := func(flow, n int64) {
		switch of := flows.TenantOf(flow); {
		case flows.ClassOf(flow) != class:
		case of != tenant:
			others[of] += n
		case flows.RankOf(flow) <= flows.RankOf(f.flow):
			a.Own += n
		}
	}
	known := map[int64]bool{}
	for i := range s.flows {
		known[s.flows[i].flow] = true
		add(s.flows[i].flow, s.flows[i].estimate)
	}
	for flow, n := range s.sampled {
		if !known[flow] {
			add(flow, n)
		}
	}
	a.Own = max(a.Own-1, 0)
	a.Jobs = a.Own
	for of, n := range others {
		turns := float64(a.Own+1) * shares.Weight(of) / shares.Weight(tenant)
		a.Jobs += int64(min(float64(n), math.Ceil(turns)))
	}
	return a
}

// judge finds out what a line waits for, and when it is done.
func (w *linesReader) judge(l *line, forecasts bool) error {
	if l.Waiting == 0 {
		return w.judgeLater(l)
	}
	job := Job{Seq: l.longest.last, Tenant: flows.TenantOf(l.longest.flow), Subqueue: l.subqueue, Flow: l.longest.flow}
	var name string
	var tenantPaused bool
	var plan []admission.Option
	found, err := w.Prep(sqlLastJob).Int(job.Seq).One(func(r driver.Row) {
		job.Visible, job.Waiting = r.Int(0), forebay.WaitReason(r.Text(1))
		plan = w.Plan(r.Text(2), r.Int(3), r.Blob(4), r.Int(5))
		name, tenantPaused = r.Text(6), r.Int(7) != 0
	})
	switch {
	case err != nil:
		return err
	case !found: // it has begun meanwhile
		l.Limit, l.Unknown = forebay.BacklogLimit{Kind: forebay.LimitNone, Detail: "its jobs start right now"}, "the last job has started meanwhile"
		return nil
	}
	options := w.options(plan)
	l.Limit = w.binds(l, job.Tenant, name, tenantPaused, options, w.Workers)
	retry, known := w.Retry(l.queue)
	switch {
	case l.paused || tenantPaused:
		l.Unknown = "nobody knows when the pause ends"
	case !forecasts:
		l.Unknown = fmt.Sprintf("it is worked out for the %d lines with most jobs only", maxForecasts)
	case !known:
		l.Unknown = "this process does not know the queue"
	default:
		return w.foresee(l, &job, retry, options)
	}
	return nil
}

// judgeLater is judge for a line of which nothing is ready.
func (w *linesReader) judgeLater(l *line) error {
	l.Limit, l.Unknown = forebay.BacklogLimit{Kind: forebay.LimitNone, Detail: "nothing is ready: all wait for their time, or run"}, "nothing is ready"
	if l.budget == 0 {
		return nil
	}
	_, err := w.Prep(sqlLastJob).Int(l.budget).One(func(r driver.Row) {
		l.Limit = forebay.BacklogLimit{Kind: forebay.LimitBudget, Object: r.Text(6), Detail: "a budget of the tenant, or of one of its keys, has no room until its period ends"}
	})
	return err
}

// calls returns what is known of the calls of a job's tenant; of so many tenants, that is.
func (w *linesReader) calls(job *Job, first, running int64) (Calls, error) {
	known, ok := w.durations[job.Tenant]
	if ok || len(w.durations) >= maxDurations {
		return known, nil
	}
	at := counter{Conn: w.Conn, job: job, now: w.Holding.Now}
	calls, err := at.calls(w.Concurrency.Most(job.Tenant), first, running)
	if err == nil {
		w.durations[job.Tenant] = calls
	}
	return calls, err
}

// foresee works out when the last job of the line starts, and when its call is over.
func (w *linesReader) foresee(l *line, job *Job, retry RetryLimits, options []option) error {
	places, taken := w.Workers(l.Queue, job.Retry())
	first := l.longest.first
	if job.Retry() { // it was called itself
		first = job.Seq + 1
	}
	calls, err := w.calls(job, first, int64(min(taken, mostRunning)))
	if err != nil {
		return err
	}
	ahead := l.of.ahead(&l.longest, w.Shares)
	start := w.expect(job, retry, options, ahead, calls, w.rate(options))
	if places > 0 && calls.Duration > 0 && (l.Limit.Kind == forebay.LimitWorkers || len(options) == 0) {
		start.atLeast(times(float64(ahead.Jobs)/float64(places), calls.Duration)) // nothing but the places holds it back
		start.known = true
	}
	switch w.holds(options) {
	case forebay.WaitPaused, forebay.WaitBreaker:
		l.Unknown = "nobody knows when its deployments take calls again"
		return nil
	}
	if !start.known {
		l.Unknown = "no limit and no calls of the last seconds tell how fast its jobs start"
		return nil
	}
	begins := time.UnixMilli(w.Holding.Now).Add(start.in).UTC()
	l.LastStartAt = &begins
	if calls.Duration == 0 {
		l.Unknown = "no call of the tenant has ended in the last ten minutes, so nobody knows how long one takes"
		return nil
	}
	ends := begins.Add(calls.Duration)
	l.ExpectedEndAt = &ends
	return nil
}
