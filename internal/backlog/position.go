package backlog

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/fairqueue"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
)

// Job is a live job and its message's place in the backlog.
type Job struct {
	Seq      int64
	Tenant   int64
	Subqueue queue.Subqueue
	Flow     int64
	Visible  int64 // when it is ready
	Waiting  forebay.WaitReason
}

// Retry reports whether the job is in the retry subqueue.
func (j *Job) Retry() bool { return j.Subqueue.Kind() == queue.SubqueueRetry }

// Position is a waiting job's position in its subqueue, and what holds jobs back.
type Position struct {
	Ahead
	// With counts, for a job that becomes ready later, the jobs ahead of it that do so in the
	// last moment before. Jobs that are ready sooner may have gone by then.
	With Ahead
	// Calls is set if the job's tenant has a concurrency limit, or the job is in the retry
	// subqueue.
	Calls Calls
	// Unaffordable tells that the budget that the job waits for can never pay for it.
	Unaffordable bool
	admission.Holding
}

// Ahead counts the jobs of a subqueue and class that go before one.
type Ahead struct {
	Jobs    int64 // an estimate if Counted is set
	Own     int64 // those of them that are its tenant's
	Counted int64 // how many were counted if there are more; 0: all were
}

// Calls is what is known of calls for one tenant.
type Calls struct {
	Most     int64           // may be under way at once; 0: any number
	Running  []time.Duration // for how long its calls have run, longest first, if its tenant has a limit
	Duration time.Duration   // of the latest that have ended, on average; 0: not known
}

const (
	// maxFlowSteps is how many flows of a subqueue are visited to find those of one class.
	maxFlowSteps = 128
	// atOnce is within how many milliseconds jobs count as ready together.
	atOnce = 1000
	// samples is how many sequence numbers an estimate looks up. Its standard deviation is 4 %
	// for a flow with half of the jobs, and 30 % for one of fifty flows that share them.
	samples = 512
	// latestCalls are typical of a tenant's calls, if they ended within latestSpan milliseconds.
	latestCalls = 64
	latestSpan  = 10 * 60_000
)

// A message that becomes visible after now is ahead of a later one unless it is locked.
const sqlNotLocked = " AND (m.visible_at <= ?%d OR m.lock_token IS NULL)"

// Jobs ahead in the job's own flow. The two parts are for jobs ready earlier and in the same
// millisecond, since any number can be ready then. The last column is the largest number near the
// end.
var (
	sqlAheadInFlow      = aheadInFlow("")
	sqlAheadInFlowLater = aheadInFlow(fmt.Sprintf(sqlNotLocked, 7))
)

func aheadInFlow(and string) string {
	const line = "FROM messages m WHERE m.subqueue = ?1 AND m.flow = ?2 AND m.visible_at > ?3 AND m.visible_at "
	return `
SELECT a.n + b.n, CASE WHEN a.lowest < b.lowest OR b.lowest IS NULL THEN a.lowest ELSE b.lowest END, CASE WHEN a.n = ?6 OR b.n = ?6 THEN 1 ELSE 0 END,
  (SELECT max(seq) FROM (SELECT m.seq ` + line + "< ?4" + and + ` ORDER BY m.visible_at DESC LIMIT 16) x)
FROM (SELECT count(*) AS n, min(seq) AS lowest FROM (SELECT m.seq ` + line + "< ?4" + and + ` ORDER BY m.visible_at LIMIT ?6 + 0) x) a,
  (SELECT count(*) AS n, min(seq) AS lowest FROM (SELECT m.seq ` + line + "= ?4" + and + ` ORDER BY m.visible_at LIMIT ?6 + 0) x WHERE seq < ?5) b`
}

// sqlGoesBefore is a time. Jobs of another flow of the tenant that are ready by then go before
// a job of flow ?2 that is ready since visible. These have an earlier level, by priority and
// age.
func sqlGoesBefore(line, then, visible, step string) string {
	return fmt.Sprintf("CASE WHEN %[1]s = %[2]s THEN %[4]s WHEN %[1]s < %[2]s THEN %[5]s + (%[2]s - %[1]s) * %[6]s ELSE %[5]s - (%[1]s - %[2]s) * %[3]d END",
		flows.SQLRankOf(line), flows.SQLRankOf("?2"), fairqueue.Ageing, then, visible, step)
}

const sqlPausedTenants = "(SELECT no FROM tenants WHERE paused <> 0)"

// sqlFlowsOfClass makes l: the flows of subqueue ?1 from ?3 to before ?4 of the class of flow ?2,
// and some others. Each step skips to the class's first flow of the same tenant or the next one.
// There are ?5 steps at most.
var sqlFlowsOfClass = fmt.Sprintf(`
WITH RECURSIVE l(line, n) AS (SELECT min(flow), 1 FROM messages WHERE subqueue = ?1 AND flow >= ?3 AND flow < ?4
  UNION ALL SELECT (SELECT min(m.flow) FROM messages m WHERE m.subqueue = ?1 AND m.flow < ?4 AND m.flow >= CASE
    WHEN %[1]s < %[2]s THEN l.line - l.line %% %[3]d + %[2]s * %[4]d
    WHEN %[1]s > %[2]s THEN l.line - l.line %% %[3]d + %[3]d + %[2]s * %[4]d
    ELSE l.line + 1 END), n + 1
  FROM l WHERE l.line IS NOT NULL AND n < ?5)`, flows.SQLClassOf("l.line"), flows.SQLClassOf("?2"), flows.PerTenant, flows.PerClass)

var (
	sqlListOthers = sqlFlowsOfClass + `
SELECT line, n, CASE WHEN ` + flows.SQLTenantOf("line") + " IN " + sqlPausedTenants + " THEN 1 ELSE 0 END FROM l WHERE line IS NOT NULL"
	// Of the job's own tenant these count what goes before it, of other tenants all that is ready
	// then.
	sqlAheadOfOwn         = aheadInFlows("m.visible_at <= "+sqlGoesBefore("l.line", "?6", "?9", "?10"), "")
	sqlAheadOfOwnLater    = aheadInFlows("m.visible_at <= "+sqlGoesBefore("l.line", "?6", "?9", "?10"), fmt.Sprintf(sqlNotLocked, 11))
	sqlAheadOfOthers      = aheadInFlows("m.visible_at <= ?6", "")
	sqlAheadOfOthersLater = aheadInFlows("m.visible_at <= ?6", fmt.Sprintf(sqlNotLocked, 9))
)

// aheadInFlows counts what became ready after ?7 and until ?6, up to ?8 in each flow.
func aheadInFlows(before, and string) string {
	within := "FROM messages m WHERE m.subqueue = ?1 AND m.flow = l.line AND m.visible_at > ?7 AND m.visible_at <= ?6 AND " + before + and
	return sqlFlowsOfClass + `
SELECT line, (SELECT count(*) FROM (SELECT m.visible_at ` + within + ` ORDER BY m.visible_at LIMIT ?8 + 0) x),
  (SELECT m.seq ` + within + ` ORDER BY m.visible_at LIMIT 1)
FROM l WHERE line IS NOT NULL AND line <> ?2 AND ` + flows.SQLClassOf("line") + " = " + flows.SQLClassOf("?2")
}

// Estimates how many jobs go before one, by flow. One sequence number is looked up in each
// stretch of ?9 numbers from ?8 on. Its place in the stretch varies, because tenants may submit
// in turns.
var sqlAheadBySample = fmt.Sprintf(`
WITH RECURSIVE s(i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM s WHERE i < %d),
found(flow) AS MATERIALIZED (SELECT (SELECT m.flow FROM messages m WHERE m.seq = ?8 + s.i * ?9 + (s.i * 2654435761) %% ?9 AND m.subqueue + 0 = ?1
    AND m.visible_at + 0 > ?6 AND m.visible_at + 0 <= ?3 AND (%s <> %s OR m.visible_at <= %s) AND (m.flow <> ?2 OR m.visible_at < ?4 OR m.visible_at = ?4 AND m.seq < ?10)
    AND %s = %s`+fmt.Sprintf(sqlNotLocked, 7)+`) FROM s)
SELECT flow, count(*) FROM found WHERE flow IS NOT NULL AND %s NOT IN %s GROUP BY flow`,
	samples-1, flows.SQLTenantOf("m.flow"), flows.SQLTenantOf("?2"), sqlGoesBefore("m.flow", "?3", "?4", "?5"), flows.SQLClassOf("m.flow"), flows.SQLClassOf("?2"), flows.SQLTenantOf("flow"), sqlPausedTenants)

// Position returns how many jobs go before a waiting one: now if it is ready, else when it
// becomes ready. It counts up to limit jobs in the job's own flow, about as many in its tenant's
// other flows, and in other tenants' flows. Beyond that it estimates from some hundred sequence
// numbers. So the cost does not depend on the number of jobs and flows. Between tenants it is an
// estimate: each gets turns by its share.
func (r *Reader) Position(ctx context.Context, job *Job, shares flows.Shares, limit int64) (at Position, err error) {
	err = r.Queues.Read(ctx, func(c driver.Conn) error {
		at = Position{}
		if at.Holding, err = r.Admission.ReadHolding(c); err != nil {
			return err
		}
		w := counter{c, job, shares, limit, at.Now}
		var lowest int64
		if at.Ahead, lowest, err = w.ahead(0); err != nil {
			return err
		}
		if job.Visible > at.Now {
			if at.With, _, err = w.ahead(max(at.Now, job.Visible-atOnce)); err != nil {
				return err
			}
		}
		if job.Waiting == forebay.WaitBudget {
			if at.Unaffordable, err = w.unaffordable(); err != nil {
				return err
			}
		}
		if job.Retry() { // it was called itself
			lowest = job.Seq + 1
		} else if at.Concurrency.Most(job.Tenant) == 0 {
			return nil
		}
		at.Calls, err = w.calls(at.Concurrency.Most(job.Tenant), lowest, 0)
		return err
	})
	return at, err
}

// counter counts what is ahead of a job.
type counter struct {
	driver.Conn
	job    *Job
	shares flows.Shares
	limit  int64
	now    int64
}

// then is when the job is ready.
func (w *counter) then() int64 { return max(w.now, w.job.Visible) }

// step is how much later a job of the next higher priority can come and still go before the job.
func (w *counter) step() int64 {
	if (w.then()-w.job.Visible)/fairqueue.Ageing >= w.job.Flow%flows.PerClass { // it has reached the first level, where the oldest goes first
		return 0
	}
	return fairqueue.Ageing
}

// ahead counts what became ready after a time and goes before the job. lowest is the lowest
// sequence number among the first.
func (w *counter) ahead(from int64) (a Ahead, lowest int64, err error) {
	job, later := w.job, w.job.Visible > w.now
	lowest = job.Seq
	var highest int64
	var full bool
	text := sqlAheadInFlow
	if later {
		text = sqlAheadInFlowLater
	}
	st := w.Prep(text).Int(int64(job.Subqueue)).Int(job.Flow).Int(from).Int(job.Visible).Int(job.Seq).Int(w.limit)
	if later {
		st = st.Int(w.now)
	}
	_, err = st.One(func(r driver.Row) {
		a.Own, highest = r.Int(0), max(job.Seq, r.Int(3))
		if !r.IsNull(1) {
			lowest = min(lowest, r.Int(1))
		}
		full = r.Int(2) != 0
	})
	if err != nil {
		return a, lowest, err
	}
	counted := a.Own
	if full {
		of, err := w.bySample(from, lowest, highest)
		if err != nil {
			return a, lowest, err
		}
		a.Own = max(a.Own, of[job.Flow])
	}
	b := otherFlows{counts: map[int64]int64{}, first: job.Seq}
	if err := w.countOthers(&b, from, true, 0); err != nil {
		return a, lowest, err
	}
	if err := w.countOthers(&b, from, false, w.sum(a.Own, b.counts).Jobs+1); err != nil {
		return a, lowest, err
	}
	exact := w.sum(counted, b.counts)
	if b.more {
		var last int64
		if _, err := w.Prep("SELECT max(seq) FROM messages").One(func(r driver.Row) { last = r.Int(0) }); err != nil {
			return a, lowest, err
		}
		of, err := w.bySample(from, b.first, last)
		if err != nil {
			return a, lowest, err
		}
		delete(of, job.Flow)
		for flow, n := range of {
			b.counts[flow] = max(b.counts[flow], n)
		}
	}
	all := w.sum(a.Own, b.counts)
	if a.Jobs, a.Own = all.Jobs, all.Own; full || b.more {
		a.Counted = exact.Jobs
	}
	return a, lowest, nil
}

// sum adds up what is ahead in the job's own flow and in others. Other tenants have their turns
// meanwhile.
func (w *counter) sum(own int64, counts map[int64]int64) Ahead { // flow → how many
	tenants := map[int64]int64{}
	for flow, n := range counts {
		tenants[flows.TenantOf(flow)] += n
	}
	own += tenants[w.job.Tenant]
	a := Ahead{Jobs: own, Own: own}
	for tenant, n := range tenants {
		if tenant != w.job.Tenant {
			a.Jobs += min(n, w.turns(tenant, own+1))
		}
	}
	return a
}

// turns is how many turns another tenant has while the job's tenant has so many.
func (w *counter) turns(tenant, own int64) int64 {
	return int64(min(math.Ceil(float64(own)*w.shares.Weight(tenant)/w.shares.Weight(w.job.Tenant)), math.MaxInt32))
}

// otherFlows counts what is ahead of a job in flows beside its own.
type otherFlows struct {
	counts map[int64]int64 // flow → how many
	first  int64           // the lowest sequence number of those that are first in their flow
	more   bool            // there are more than were counted
}

// countOthers counts in the other flows of the job's tenant, or in those of other tenants while
// its tenant has so many turns.
func (w *counter) countOthers(b *otherFlows, from int64, own bool, turns int64) error {
	class := flows.ClassOf(w.job.Flow)
	low, high := class*flows.PerClass, int64(math.MaxInt64)
	if own {
		low += w.job.Flow - w.job.Flow%flows.PerTenant
		high = low + flows.PerClass
	}
	count, most := int64(0), int64(1)
	skipped := map[int64]bool{}
	err := w.Prep(sqlListOthers).Int(int64(w.job.Subqueue)).Int(w.job.Flow).Int(low).Int(high).Int(maxFlowSteps).Each(func(r driver.Row) error {
		flow, paused := r.Int(0), r.Int(2) != 0
		b.more = b.more || r.Int(1) == maxFlowSteps
		tenant := flows.TenantOf(flow)
		switch {
		case flows.ClassOf(flow) != class || flow == w.job.Flow:
		case !own && (paused || tenant == w.job.Tenant):
			skipped[flow] = true
		case own:
			count, most = count+1, w.limit
		default:
			count, most = count+1, max(most, w.turns(tenant, turns))
		}
		return nil
	})
	if err != nil || count == 0 {
		return err
	}
	most = min(most, max(w.limit/count, 1), w.limit)
	later := w.job.Visible > w.now
	text := map[bool]map[bool]string{true: {true: sqlAheadOfOwnLater, false: sqlAheadOfOwn}, false: {true: sqlAheadOfOthersLater, false: sqlAheadOfOthers}}[own][later]
	st := w.Prep(text).Int(int64(w.job.Subqueue)).Int(w.job.Flow).Int(low).Int(high).Int(maxFlowSteps).Int(w.then()).Int(from).Int(most)
	if own {
		st = st.Int(w.job.Visible).Int(w.step())
	}
	if later {
		st = st.Int(w.now)
	}
	tenants, full := map[int64]int64{}, map[int64]bool{}
	err = st.Each(func(r driver.Row) error {
		if flow, n := r.Int(0), r.Int(1); n > 0 && !skipped[flow] {
			b.counts[flow], b.first = n, min(b.first, r.Int(2))
			tenant := flows.TenantOf(flow)
			tenants[tenant], full[tenant] = tenants[tenant]+n, full[tenant] || n == most
		}
		return nil
	})
	for tenant, n := range tenants {
		b.more = b.more || full[tenant] && (own || n < w.turns(tenant, turns))
	}
	return err
}

// bySample estimates, by flow, how many jobs with numbers from first to last go before the job.
func (w *counter) bySample(from, first, last int64) (counts map[int64]int64, err error) {
	counts = map[int64]int64{}
	every := (last-first)/samples + 1
	err = w.Prep(sqlAheadBySample).Int(int64(w.job.Subqueue)).Int(w.job.Flow).Int(w.then()).Int(w.job.Visible).Int(w.step()).Int(from).Int(w.now).
		Int(first).Int(every).Int(w.job.Seq).Each(func(r driver.Row) error {
		counts[r.Int(0)] = r.Int(1) * every
		return nil
	})
	return counts, err
}

const sqlNeed = "SELECT " + admission.LimitColumns + ", w.tokens, w.cost FROM budget_waits w JOIN budgets b ON b.no = w.budget WHERE w.seq = ?"

// unaffordable reports whether the budget that the job waits for can never pay for it.
func (w *counter) unaffordable() (never bool, err error) {
	_, err = w.Prep(sqlNeed).Int(w.job.Seq).One(func(r driver.Row) {
		for _, l := range admission.ReadLimits(r, 0) {
			never = never || !l.Allows(admission.Amount{}, admission.Amount{Tokens: r.Int(4), Cost: r.Int(5)})
		}
	})
	return never, err
}

const (
	sqlRunning = `
SELECT locked_at FROM (SELECT (SELECT m.locked_at FROM messages m WHERE m.seq = s.seq AND m.lock_token = s.lock_token AND m.visible_at + 0 > ?) AS locked_at
  FROM slots s WHERE s.holder = ?) x WHERE locked_at IS NOT NULL ORDER BY locked_at`
	sqlDuration = `
SELECT count(*), coalesce(CAST(sum(a.finished_at - a.started_at) AS BIGINT), 0)
FROM (SELECT owned.seq FROM jobs owned WHERE owned.tenant = ? AND owned.seq < ? ORDER BY owned.seq DESC LIMIT ? + 0) j JOIN attempts a ON a.seq = j.seq
WHERE a.outcome IN ('succeeded', 'retried', 'failed') AND a.finished_at > ?`
)

// calls reads what is known of the tenant's calls. The latest were of jobs with numbers below
// first, the first job that waits. So many of these may be running.
func (w *counter) calls(most, first, running int64) (calls Calls, err error) {
	calls.Most = most
	err = w.Prep(sqlRunning).Int(w.now).Text(admission.TenantResource(w.job.Tenant)).Each(func(r driver.Row) error {
		calls.Running = append(calls.Running, time.Duration(w.now-r.Int(0))*time.Millisecond)
		return nil
	})
	if err != nil {
		return calls, err
	}
	_, err = w.Prep(sqlDuration).Int(w.job.Tenant).Int(first).Int(latestCalls + running).Int(w.now - latestSpan).One(func(r driver.Row) {
		if r.Int(0) > 0 {
			calls.Duration = max(time.Duration(r.Int(1))*time.Millisecond/time.Duration(r.Int(0)), time.Millisecond)
		}
	})
	return calls, err
}
