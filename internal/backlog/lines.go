package backlog

import (
	"cmp"
	"context"
	"fmt"
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
	maxLineFlows  = 1000   // flows of all queues together
	countedLines  = 20_000 // index entries that are counted in all flows together
	mostOfFlow    = 10_000
	leastOfFlow   = 10
	maxForecasts  = 6   // lines whose end is worked out, those with most jobs first
	countedAheads = 100 // jobs ahead of the last one of a line that are counted; see Position
)

// Jobs of one flow that wait: those that are ready, up to ?5, since when the first of them is, the
// last of them, those that are not ready, and one of these that waits for a budget.
const sqlLine = `
SELECT (SELECT count(*) FROM (SELECT m.visible_at FROM messages m
    WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at <= ?3 ORDER BY m.visible_at LIMIT ?4 + 0) x),
  (SELECT m.visible_at FROM messages m WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at <= ?3 ORDER BY m.visible_at LIMIT 1),
  (SELECT m.seq FROM messages m WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at <= ?3 ORDER BY m.visible_at DESC LIMIT 1),
  (SELECT count(*) FROM (SELECT m.visible_at FROM messages m
    WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at > ?3 ORDER BY m.visible_at LIMIT ?4 + 0) x),
  (SELECT min(x.seq) FROM (SELECT m.seq, m.waiting FROM messages m
    WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at > ?3 ORDER BY m.visible_at LIMIT 256) x WHERE x.waiting = 'budget')`

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

// line is a line, and the flow in it with most jobs.
type line struct {
	forebay.BacklogLine
	queue    int64
	paused   bool
	subqueue queue.Subqueue
	flow     int64
	most     int64 // ready jobs of that flow
	last     int64 // sequence number of the last of them; 0: none is ready
	budget   int64 // of one that waits for a budget; 0: there is none
}

// Lines returns what waits. Its cost does not depend on how many jobs do.
func (r *Reader) Lines(ctx context.Context, q *LinesQuery) (b forebay.Backlog, err error) {
	err = r.Queues.Read(ctx, func(c driver.Conn) error {
		b = forebay.Backlog{Lines: []forebay.BacklogLine{}}
		holding, err := r.Admission.ReadHolding(c)
		if err != nil {
			return err
		}
		lines, capped, err := linesOf(c, q.Tenant, holding.Now)
		if err != nil {
			return err
		}
		b.Capped = capped
		byLength := slices.Clone(lines)
		slices.SortStableFunc(byLength, func(a, b *line) int { return cmp.Compare(b.Waiting, a.Waiting) })
		for i, l := range byLength {
			if err := r.judge(c, q, l, holding, i < maxForecasts); err != nil {
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
	case b.Capped:
		b.ExpectedEndAt, b.Unknown = nil, "not all lines were looked at"
	case b.ExpectedEndAt == nil:
		b.Unknown = "nothing is ready"
	}
}

// linesOf counts what waits. capped says that there were too many flows for all to be counted.
func linesOf(c driver.Conn, tenant, now int64) (lines []*line, capped bool, err error) {
	type counted struct {
		*line
		flow int64
	}
	var all []counted
	var queues []line
	err = c.Prep(sqlJobQueues).Each(func(r driver.Row) error {
		queues = append(queues, line{queue: r.Int(0), BacklogLine: forebay.BacklogLine{Queue: r.Text(1)}, paused: r.Int(2) != 0})
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	for _, of := range queues {
		for _, kind := range []queue.SubqueueKind{queue.SubqueueMain, queue.SubqueueRetry} {
			of.subqueue, of.Lane = queue.SubqueueOf(of.queue, kind), laneOf(kind)
			ids, err := lineFlows(c, of.subqueue, tenant, maxLineFlows-len(all))
			if err != nil {
				return nil, false, err
			}
			byPriority := map[int]*line{}
			for _, flow := range ids {
				if capped = len(all) == maxLineFlows; capped {
					break
				}
				priority := forebay.MaxPriority - int(flows.RankOf(flow))
				l := byPriority[priority]
				if l == nil {
					l = &line{}
					*l = of
					l.Priority, byPriority[priority] = priority, l
				}
				all = append(all, counted{l, flow})
			}
			for priority := forebay.MaxPriority; priority >= forebay.MinPriority; priority-- {
				if l := byPriority[priority]; l != nil {
					lines = append(lines, l)
				}
			}
		}
	}
	limit := min(max(int64(countedLines/max(len(all), 1)), leastOfFlow), mostOfFlow)
	for _, l := range all {
		if err := l.count(c, l.flow, now, limit); err != nil {
			return nil, false, err
		}
	}
	return lines, capped, nil
}

func laneOf(kind queue.SubqueueKind) string {
	if kind == queue.SubqueueRetry {
		return "retry"
	}
	return "main"
}

// lineFlows returns the flows of a subqueue, of one tenant or of all (0), one more than wanted if
// there are.
func lineFlows(c driver.Conn, subqueue queue.Subqueue, tenant int64, wanted int) (ids []int64, err error) {
	low, high := flows.ID(tenant, 0, forebay.MaxPriority), flows.ID(tenant+1, 0, forebay.MaxPriority)
	if tenant == 0 {
		low, high = 0, 1<<62
	}
	err = c.Prep(sqlTenantFlows).Int(int64(subqueue)).Int(low).Int(high).Each(func(r driver.Row) error {
		if ids = append(ids, r.Int(0)); len(ids) > wanted {
			return driver.ErrStop
		}
		return nil
	})
	return ids, driver.UnlessStopped(err)
}

// count adds the jobs of a flow.
func (l *line) count(c driver.Conn, flow, now, limit int64) error {
	_, err := c.Prep(sqlLine).Int(int64(l.subqueue)).Int(flow).Int(now).Int(limit).One(func(r driver.Row) {
		ready, later := r.Int(0), r.Int(3)
		l.Waiting, l.Scheduled = l.Waiting+ready, l.Scheduled+later
		l.WaitingCapped, l.ScheduledCapped = l.WaitingCapped || ready >= limit, l.ScheduledCapped || later >= limit
		if at := driver.FromMillis(r.Int(1)); ready > 0 && (l.OldestReadyAt == nil || at.Before(*l.OldestReadyAt)) {
			l.OldestReadyAt = &at
		}
		if ready > l.most {
			l.most, l.flow, l.last = ready, flow, r.Int(2)
		}
		if l.budget == 0 {
			l.budget = r.Int(4)
		}
	})
	return err
}

// judge finds out what a line waits for, and when it is done.
func (r *Reader) judge(c driver.Conn, q *LinesQuery, l *line, holding admission.Holding, forecasts bool) error {
	if l.Waiting == 0 {
		return l.judgeLater(c)
	}
	last := l.lastJob()
	var name string
	var tenantPaused bool
	var options []admission.Option
	found, err := c.Prep(sqlLastJob).Int(l.last).One(func(r driver.Row) {
		last.Visible, last.Waiting = r.Int(0), forebay.WaitReason(r.Text(1))
		options = q.Plan(r.Text(2), r.Int(3), r.Blob(4), r.Int(5))
		name, tenantPaused = r.Text(6), r.Int(7) != 0
	})
	switch {
	case err != nil:
		return err
	case !found: // it has begun meanwhile
		l.Limit, l.Unknown = forebay.BacklogLimit{Kind: forebay.LimitNone, Detail: "its jobs start right now"}, "the last job has started meanwhile"
		return nil
	}
	f := forecast{holding}
	judged := f.options(options)
	l.Limit = f.binds(l, last.Tenant, name, tenantPaused, judged, q.Workers)
	switch {
	case l.paused || tenantPaused:
		l.Unknown = "nobody knows when the pause ends"
		return nil
	case !forecasts:
		l.Unknown = fmt.Sprintf("it is worked out for the %d lines with most jobs only", maxForecasts)
		return nil
	}
	retry, known := q.Retry(l.queue)
	if !known {
		l.Unknown = "this process does not know the queue"
		return nil
	}
	at, err := r.position(c, holding, &last, q.Shares, countedAheads, true)
	if err != nil {
		return err
	}
	l.forecast(f, &last, retry, judged, at, q.Workers)
	return nil
}

// lastJob is the last job that is ready of the line's longest flow, as far as its message's place
// says.
func (l *line) lastJob() Job {
	return Job{Seq: l.last, Tenant: flows.TenantOf(l.flow), Subqueue: l.subqueue, Flow: l.flow}
}

// judgeLater is judge for a line of which nothing is ready.
func (l *line) judgeLater(c driver.Conn) error {
	l.Limit, l.Unknown = forebay.BacklogLimit{Kind: forebay.LimitNone, Detail: "nothing is ready: all wait for their time, or run"}, "nothing is ready"
	if l.budget == 0 {
		return nil
	}
	_, err := c.Prep(sqlLastJob).Int(l.budget).One(func(r driver.Row) {
		l.Limit = forebay.BacklogLimit{Kind: forebay.LimitBudget, Object: r.Text(6), Detail: "a budget of the tenant, or of one of its keys, has no room until its period ends"}
	})
	return err
}

// forecast works out when the last job of the line starts, and when its call is over.
func (l *line) forecast(f forecast, last *Job, retry RetryLimits, options []option, at Position, workers func(string, bool) (int, int)) {
	start := f.expect(last, retry, options, at.Ahead, at.Calls, f.rate(options))
	if places, _ := workers(l.Queue, last.Retry()); !start.known && len(options) == 0 && places > 0 && at.Calls.Duration > 0 {
		// Nothing but the places holds back what calls no deployment.
		start.atLeast(times(float64(at.Jobs/int64(places)), at.Calls.Duration))
		start.known = true
	}
	switch f.holds(options) {
	case forebay.WaitPaused, forebay.WaitBreaker:
		l.Unknown = "nobody knows when its deployments take calls again"
		return
	}
	if !start.known {
		l.Unknown = "no limit and no calls of the last seconds tell how fast its jobs start"
		return
	}
	begins := time.UnixMilli(f.Now).Add(start.in).UTC()
	l.LastStartAt = &begins
	if at.Calls.Duration == 0 {
		l.Unknown = "no call of the tenant has ended in the last ten minutes, so nobody knows how long one takes"
		return
	}
	ends := begins.Add(at.Calls.Duration)
	l.ExpectedEndAt = &ends
}
