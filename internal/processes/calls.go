package processes

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/listing"
)

const (
	// longestLock bounds how far ahead a lock can end.
	longestLock = 5 * time.Minute
	// maxFlows bounds the flows that are looked through, and lookedAt the rows of all together, in
	// each of two passes. flowsAtOnce are read in one round trip.
	maxFlows    = 2000
	lookedAt    = 20_000
	flowsAtOnce = 100
)

// Flows of the queues for jobs, main and retry subqueues, with a message whose lock has not ended.
// Each takes a step in the index, and so does each flow without one. Of one tenant, ?1, these are
// its flows alone; 0: of all.
const sqlFlows = `
WITH RECURSIVE q(subqueue) AS (SELECT no * 4 FROM queues WHERE kind = 'jobs' UNION ALL SELECT no * 4 + 1 FROM queues WHERE kind = 'jobs'),
l(subqueue, line, n) AS (
  SELECT q.subqueue, (SELECT min(m.flow) FROM messages m WHERE m.subqueue = q.subqueue AND m.flow >= ?1 AND m.flow < ?2), 1 FROM q
  UNION ALL SELECT l.subqueue, (SELECT min(m.flow) FROM messages m WHERE m.subqueue = l.subqueue AND m.flow > l.line AND m.flow < ?2), n + 1
  FROM l WHERE l.line IS NOT NULL AND l.n < ?3)
SELECT subqueue, line FROM l WHERE line IS NOT NULL LIMIT ?3 + 1`

// Locked messages of a flow: those whose lock has not ended.
const sqlLockedOfFlow = `
SELECT m.seq, m.lock_token, m.tenant, coalesce(m.deployment, ''), m.locked_at, m.visible_at, m.generation, m.number, m.reserved, m.process
FROM messages m WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at > ?3 AND m.visible_at <= ?4 ORDER BY m.visible_at LIMIT ?5 + 0`

// What else is told of a call.
const (
	callColumns = "SELECT x.no, j.id, t.name, j.task, q.name"
	ofCalls     = " JOIN jobs j ON j.seq = x.no JOIN queues q ON q.no = j.queue JOIN tenants t ON t.no = j.tenant"
)

// call is a call under way, with the numbers of its job and process.
type call struct {
	forebay.RunningCall
	seq, process int64
}

// Calls returns calls under way, of one tenant or of all (0). synchronous tells which queues have
// calls whose clients wait.
func (s *Service) Calls(ctx context.Context, tenant int64, f forebay.CallFilter, synchronous func(queue string) bool) (page forebay.RunningCalls, err error) {
	limit, err := listing.PageSize(f.Limit)
	if err != nil {
		return page, err
	}
	err = s.DB.Read(ctx, func(c driver.Conn) error {
		page = forebay.RunningCalls{Items: []forebay.RunningCall{}}
		calls, capped, err := locked(c, tenant)
		if err != nil {
			return err
		}
		calls = slices.DeleteFunc(calls, func(c call) bool { return f.Deployment != "" && c.Deployment != f.Deployment })
		slices.SortFunc(calls, func(a, b call) int { return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.seq, b.seq)) })
		shown := calls
		if f.Task == "" {
			shown = calls[:min(len(calls), limit)]
		}
		if shown, err = s.describe(c, shown); err != nil {
			return err
		}
		if page.Total = int64(len(calls)); f.Task != "" {
			shown = slices.DeleteFunc(shown, func(c call) bool { return c.Task != f.Task })
			page.Total = int64(len(shown))
		}
		page.TotalCapped = capped
		for _, c := range shown[:min(len(shown), limit)] {
			c.Synchronous = synchronous(c.Queue)
			page.Items = append(page.Items, c.RunningCall)
		}
		return nil
	})
	return page, err
}

// locked returns the messages of jobs that are locked. capped says that not all were looked at.
func locked(c driver.Conn, tenant int64) (calls []call, capped bool, err error) {
	var all []flow
	low, high := tenant*flows.PerTenant, (tenant+1)*flows.PerTenant
	if tenant == 0 {
		high = 1 << 62
	}
	err = c.Prep(sqlFlows).Int(low).Int(high).Int(maxFlows).Each(func(r driver.Row) error {
		if capped = len(all) == maxFlows; capped {
			return driver.ErrStop
		}
		all = append(all, flow{r.Int(0), r.Int(1)})
		return nil
	})
	if err := driver.UnlessStopped(err); err != nil {
		return nil, false, err
	}
	calls, full, err := lockedOf(c, all, lookedAt/max(len(all), 1))
	if err != nil || len(full) == 0 {
		return calls, capped, err
	}
	// Those with more share as much again.
	again := make([]flow, len(full))
	for i := range full {
		again[i] = full[i].flow
	}
	more, full, err := lockedOf(c, again, lookedAt/len(again))
	calls = append(calls, more...)
	for _, f := range full {
		calls = append(calls, f.calls...)
	}
	return calls, capped || len(full) > 0, err
}

// part is a flow with more rows than were looked at, and the calls among these.
type part struct {
	flow
	calls []call
}

// flow is a part of a queue for jobs that is looked at.
type flow struct{ subqueue, line int64 }

// lockedOf returns the locked messages of flows with fewer than so many rows, and apart from them
// the flows that may have more.
func lockedOf(c driver.Conn, all []flow, rows int) (calls []call, full []part, err error) {
	now := c.Now()
	for some := range slices.Chunk(all, flowsAtOnce) {
		found, seen := make([][]call, len(some)), make([]int, len(some))
		questions := make([]driver.PipelineQuery, len(some))
		for i, l := range some {
			questions[i] = driver.PipelineQuery{SQL: sqlLockedOfFlow, Bind: func(st driver.Statement) driver.Statement {
				return st.Int(l.subqueue).Int(l.line).Int(now).Int(now + longestLock.Milliseconds()).Int(int64(rows))
			}, OnRow: func(r driver.Row) {
				if seen[i]++; !r.IsNull(1) {
					found[i] = append(found[i], readCall(r))
				}
			}}
		}
		if err := c.RunPipeline(questions); err != nil {
			return nil, nil, err
		}
		for i, l := range some {
			if seen[i] == rows {
				full = append(full, part{l, found[i]})
			} else {
				calls = append(calls, found[i]...)
			}
		}
	}
	return calls, full, nil
}

func readCall(r driver.Row) call {
	return call{RunningCall: forebay.RunningCall{Deployment: r.Text(3), StartedAt: driver.FromMillis(r.Int(4)), LockedUntil: driver.FromMillis(r.Int(5)),
		Generation: int(r.Int(6)), Attempt: int(r.Int(7)), ReservedTokens: driver.IntOrNil(r, 8)}, seq: r.Int(0), process: r.Int(9)}
}

// describe adds what the messages of calls do not say. It leaves out those whose jobs are gone.
func (s *Service) describe(c driver.Conn, calls []call) ([]call, error) {
	if len(calls) == 0 {
		return calls, nil
	}
	processes := map[int64]string{}
	if s.no != 0 {
		err := c.Prep(sqlList).Int(0).Int(maxProcesses).Each(func(r driver.Row) error { processes[r.Int(0)] = r.Text(1); return nil })
		if err != nil {
			return nil, err
		}
	}
	seqs, of := make([]int64, len(calls)), make(map[int64]*call, len(calls))
	for i := range calls {
		seqs[i], of[calls[i].seq] = calls[i].seq, &calls[i]
	}
	err := driver.EachOf(c, callColumns, ofCalls, seqs, func(r driver.Row) error {
		made := of[r.Int(0)]
		made.JobID, made.Tenant, made.Task, made.Queue = r.Text(1), r.Text(2), r.Text(3), r.Text(4)
		if made.Process = processes[made.process]; s.no == 0 {
			made.Process = s.self.ID
		}
		return nil
	})
	return slices.DeleteFunc(calls, func(c call) bool { return c.JobID == "" }), err
}
