// Package record reads jobs from their tables: one, lists of them, and those that were set aside.
//
// A list finds numbers of jobs along an index, newest first. It reads the jobs of these numbers
// in steps and keeps those that its filter selects. It looks at so many and no more, whatever the
// filter says, and then tells how far it looked.
package record

import (
	"cmp"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/listing"
	"github.com/forebayhq/forebay/internal/queue"
)

// Query selects jobs, newest first. Zero fields select everything.
type Query struct {
	Tenant        int64 // 0: all tenants
	ID            string
	Statuses      []forebay.Status
	Queue         int64
	Task          string
	Priority      *int
	SessionID     string
	CorrelationID string
	Metadata      map[string]string // all of these
	WaitingFor    forebay.WaitReason
	CreatedAfter  int64 // in milliseconds
	CreatedBefore int64 // in milliseconds
	Below         int64 // only jobs with a lower sequence number; 0: from the newest
	Limit         int

	// Holds returns what a job that is ready waits for. Without it such a job waits for nothing.
	Holds func(*Job) forebay.WaitReason
}

// Page is what a list found. There may be more jobs below Next, even if there are fewer than the
// limit. A Next of 0 is the end.
type Page struct {
	Jobs       []Job
	Next       int64
	SearchedTo time.Time // when the last job of the tenant was made that was looked at; zero: none was
}

const (
	// maxScan bounds how many jobs one list reads, so that a rare task or status cannot hold a
	// read transaction open for long.
	maxScan = 5000
	// maxWindow bounds how many entries of an index of all tenants one list reads.
	maxWindow = 20_000
	// firstWindow is how many of them it reads first, where only the status is asked for. Each
	// further step is four times the one before.
	firstWindow = 500
	// scanStep is how many jobs are read at once. Where few are wanted, each step is twice the one
	// before.
	scanStep = 250
)

// What finds the numbers of jobs, newest first.
const (
	SQLOfTenant      = "SELECT owned.seq FROM jobs owned INDEXED BY jobs_tenant WHERE owned.tenant = ?1 AND owned.seq < ?2 AND owned.seq >= ?3 ORDER BY owned.seq DESC LIMIT ?4 + 0"
	SQLOfCorrelation = "SELECT owned.seq FROM jobs owned INDEXED BY jobs_correlation WHERE owned.tenant = ?1 AND owned.seq < ?2 AND owned.seq >= ?3 AND owned.correlation_id = ?5 ORDER BY owned.seq DESC LIMIT ?4 + 0"
	SQLOfSession     = "SELECT owned.seq FROM jobs owned INDEXED BY jobs_session WHERE owned.tenant = ?1 AND owned.seq < ?2 AND owned.seq >= ?3 AND owned.session_id = ?5 ORDER BY owned.seq DESC LIMIT ?4 + 0"
	SQLOfID          = "SELECT j.seq FROM jobs j WHERE j.id = ?1 AND (?2 = 0 OR j.tenant = ?2)"
	SQLOfAll         = "SELECT j.seq FROM jobs j WHERE j.seq < ?1 AND j.seq >= ?2 ORDER BY j.seq DESC LIMIT ?3 + 0"
	SQLAlive         = "SELECT m.seq, m.tenant, m.subqueue, m.visible_at, m.lock_token, m.waiting FROM messages m WHERE m.seq < ?1 AND m.seq >= ?2 ORDER BY m.seq DESC LIMIT ?3 + 0"
	// The tenant is looked up where the status is the fourth value, or that is ''.
	SQLUnhappy = "SELECT o.seq, o.status, CASE WHEN o.status = ?4 OR ?4 = '' THEN (SELECT j.tenant FROM jobs j WHERE j.seq = o.seq) END FROM outcomes o " +
		"WHERE o.seq < ?1 AND o.seq >= ?2 AND o.status <> 'succeeded' ORDER BY o.seq DESC LIMIT ?3 + 0"
)

// SQLQueues finds which of some queues are for jobs.
const (
	SQLQueues   = "SELECT x.no"
	SQLOfQueues = " JOIN queues q ON q.no = x.no WHERE q.tenant IS NULL"
)

// SQLListed reads jobs of a list. It leaves out results, because a page of them could be large,
// and the use of attempts.
var (
	SQLListed   = "SELECT " + listColumns
	SQLOfListed = " JOIN jobs j ON j.seq = x.no LEFT JOIN messages m ON m.seq = j.seq LEFT JOIN outcomes o ON o.seq = j.seq JOIN queues q ON q.no = j.queue"
)

// SQLNarrow reads what most filters are about, which takes a fraction of reading jobs.
const (
	SQLNarrow   = "SELECT j.seq, j.queue, j.task, j.priority, j.created_at"
	SQLOfNarrow = " JOIN jobs j ON j.seq = x.no"
)

// SQLUsage sums up the use of attempts.
const (
	SQLUsage   = "SELECT x.no, CAST(sum(a.input_tokens) AS BIGINT), CAST(sum(a.output_tokens) AS BIGINT), CAST(sum(a.cost) AS BIGINT)"
	SQLOfUsage = " JOIN attempts a ON a.seq = x.no GROUP BY x.no"
)

// jobs are numbered in the order of their creation.
var (
	tenantOrder = listing.NewChronology("jobs", "seq")
	wholeOrder  = listing.NewChronologyOfAll("jobs", "seq", "created_at")
)

// chronology returns the order of the jobs that the query is about.
func (q *Query) chronology() listing.Chronology {
	if q.Tenant == 0 {
		return wholeOrder
	}
	return tenantOrder
}

// List returns the page that the query selects.
func List(c driver.Conn, q Query) (page Page, err error) {
	below, from := q.Below, int64(0)
	if below == 0 {
		below = 1 << 62
	}
	if q.CreatedBefore > 0 && q.Below == 0 {
		if below, err = q.chronology().FirstSince(c, q.Tenant, q.CreatedBefore+listing.CreatedSlack); err != nil {
			return page, err
		}
	}
	if q.CreatedAfter > 0 {
		if from, err = q.chronology().FirstSince(c, q.Tenant, q.CreatedAfter-listing.CreatedSlack); err != nil {
			return page, err
		}
	}
	found, err := q.candidates(c, below, from)
	if err != nil {
		return page, err
	}
	at := c.Now()
	for left, size := found.numbers, max(scanStep, q.Limit); len(left) > 0 && len(page.Jobs) < q.Limit; {
		if !q.selective() {
			size = q.Limit
		}
		step := left[:min(len(left), size)]
		numbers := step
		if q.narrows() {
			size *= 2
			if numbers, err = q.narrow(c, step); err != nil {
				return page, err
			}
		}
		jobs, err := readListed(c, numbers, at)
		if err != nil {
			return page, err
		}
		for i := range jobs {
			if !q.wants(&jobs[i]) {
				continue
			}
			page.Jobs = append(page.Jobs, jobs[i])
			if len(page.Jobs) == q.Limit {
				if seq := jobs[i].Seq; !found.ended || seq != found.numbers[len(found.numbers)-1] {
					page.Next, page.SearchedTo = seq, jobs[i].CreatedAt
				}
				return page, addUsage(c, page.Jobs)
			}
		}
		left = left[len(step):]
	}
	if !found.ended {
		page.Next = found.lowest
		if page.SearchedTo, err = q.chronology().CreatedFrom(c, q.Tenant, found.lowest); err != nil {
			return page, err
		}
	}
	return page, addUsage(c, page.Jobs)
}

// candidates are numbers of jobs that may be wanted.
type candidates struct {
	numbers []int64 // newest first
	lowest  int64   // that was looked at
	ended   bool    // there are none below
}

// selective reports whether the query selects by what only the jobs themselves tell.
func (q *Query) selective() bool {
	return q.Queue != 0 || q.Task != "" || len(q.Statuses) > 0 || q.Priority != nil || len(q.Metadata) > 0 || q.WaitingFor != "" ||
		q.CreatedAfter > 0 || q.CreatedBefore > 0 || q.SessionID != "" || q.CorrelationID != ""
}

// narrows reports whether the query selects by columns of jobs that are read ahead of the others.
func (q *Query) narrows() bool {
	return q.Queue != 0 || q.Task != "" || q.Priority != nil || q.CreatedAfter > 0 || q.CreatedBefore > 0
}

// narrow returns the jobs among these that have what is wanted in the columns that are read first.
func (q *Query) narrow(c driver.Conn, numbers []int64) (wanted []int64, err error) {
	err = driver.EachOf(c, SQLNarrow, SQLOfNarrow, numbers, func(r driver.Row) error {
		if q.wantsColumns(r.Int(1), r.Text(2), int(r.Int(3)), r.Int(4)) {
			wanted = append(wanted, r.Int(0))
		}
		return nil
	})
	return wanted, err
}

// candidates finds numbers along the shortest index that has all that is wanted.
func (q *Query) candidates(c driver.Conn, below, from int64) (candidates, error) {
	limit := maxScan
	if !q.selective() {
		limit = q.Limit + 1
	}
	alive, unhappy := len(q.Statuses) > 0, len(q.Statuses) > 0
	for _, status := range q.Statuses {
		alive = alive && !status.Terminal()
		unhappy = unhappy && status.Terminal() && status != forebay.StatusSucceeded
	}
	var st driver.Statement
	switch {
	case q.ID != "":
		st = c.Prep(SQLOfID).Text(q.ID).Int(q.Tenant)
	case q.Tenant != 0 && q.CorrelationID != "":
		st = c.Prep(SQLOfCorrelation).Int(q.Tenant).Int(below).Int(from).Int(int64(limit)).Text(q.CorrelationID)
	case q.Tenant != 0 && q.SessionID != "":
		st = c.Prep(SQLOfSession).Int(q.Tenant).Int(below).Int(from).Int(int64(limit)).Text(q.SessionID)
	case alive || q.WaitingFor != "":
		return q.windows(c, below, from, q.alive)
	case unhappy:
		return q.windows(c, below, from, q.unhappy)
	case q.Tenant != 0:
		st = c.Prep(SQLOfTenant).Int(q.Tenant).Int(below).Int(from).Int(int64(limit))
	default:
		st = c.Prep(SQLOfAll).Int(below).Int(from).Int(int64(limit))
	}
	found := candidates{}
	err := st.Each(func(r driver.Row) error {
		found.numbers = append(found.numbers, r.Int(0))
		return nil
	})
	if found.ended = len(found.numbers) < limit; !found.ended {
		found.lowest = found.numbers[limit-1]
	}
	return found, err
}

// windows reads an index of all tenants in steps, until it has enough for a page or has read
// maxWindow entries.
func (q *Query) windows(c driver.Conn, below, from int64, read func(c driver.Conn, below, from int64, limit int) (candidates, error)) (all candidates, err error) {
	size := maxWindow // for a page may need them all
	if q.onlyStatus() {
		size = max(firstWindow, 2*q.Limit)
	}
	for left := maxWindow; left > 0; size *= 4 {
		size = min(size, left)
		found, err := read(c, below, from, size)
		if err != nil {
			return candidates{}, err
		}
		all.numbers = append(all.numbers, found.numbers...)
		all.lowest, all.ended = found.lowest, found.ended
		if found.ended || len(all.numbers) > q.Limit {
			break
		}
		below, left = found.lowest, left-size
	}
	return all.cut(), nil
}

// onlyStatus reports whether all that windows find is wanted.
func (q *Query) onlyStatus() bool {
	return !q.narrows() && q.WaitingFor == "" && q.SessionID == "" && q.CorrelationID == "" && len(q.Metadata) == 0
}

// alive finds jobs that are not over by their messages. Plain messages lie between these.
func (q *Query) alive(c driver.Conn, below, from int64, limit int) (found candidates, err error) {
	type message struct{ seq, queue int64 }
	var mine []message
	seen, ofJobs := 0, map[int64]bool{}
	at := c.Now()
	err = c.Prep(SQLAlive).Int(below).Int(from).Int(int64(limit)).Each(func(r driver.Row) error {
		seen++
		found.lowest = r.Int(0)
		subqueue := queue.Subqueue(r.Int(2))
		status := liveStatus(subqueue, r.Int(3) > at, !r.IsNull(4), forebay.WaitReason(r.Text(5)))
		if subqueue.Kind() < queue.SubqueueDeadLetter && (len(q.Statuses) == 0 || slices.Contains(q.Statuses, status)) && (q.Tenant == 0 || q.Tenant == r.Int(1)) && (q.Queue == 0 || q.Queue == subqueue.Queue()) {
			mine = append(mine, message{found.lowest, subqueue.Queue()})
			ofJobs[subqueue.Queue()] = false
		}
		return nil
	})
	if err != nil {
		return found, err
	}
	queues := make([]int64, 0, len(ofJobs))
	for no := range ofJobs {
		queues = append(queues, no)
	}
	slices.Sort(queues)
	err = driver.EachOf(c, SQLQueues, SQLOfQueues, queues, func(r driver.Row) error {
		ofJobs[r.Int(0)] = true
		return nil
	})
	for _, m := range mine {
		if ofJobs[m.queue] {
			found.numbers = append(found.numbers, m.seq)
		}
	}
	found.ended = seen < limit
	return found, err
}

// unhappy finds jobs that are over and have not succeeded.
func (q *Query) unhappy(c driver.Conn, below, from int64, limit int) (found candidates, err error) {
	seen, only := 0, ""
	if len(q.Statuses) == 1 {
		only = string(q.Statuses[0])
	}
	err = c.Prep(SQLUnhappy).Int(below).Int(from).Int(int64(limit)).Text(only).Each(func(r driver.Row) error {
		seen++
		found.lowest = r.Int(0)
		if slices.Contains(q.Statuses, forebay.Status(r.Text(1))) && (q.Tenant == 0 || q.Tenant == r.Int(2)) {
			found.numbers = append(found.numbers, found.lowest)
		}
		return nil
	})
	found.ended = seen < limit
	return found, err
}

// cut leaves as many candidates as one list reads.
func (f candidates) cut() candidates {
	if len(f.numbers) > maxScan {
		f.numbers, f.ended = f.numbers[:maxScan], false
		f.lowest = f.numbers[maxScan-1]
	}
	return f
}

// readListed reads the jobs of these numbers, newest first.
func readListed(c driver.Conn, numbers []int64, at int64) ([]Job, error) {
	if len(numbers) == 0 {
		return nil, nil
	}
	jobs := make([]Job, 0, len(numbers))
	err := driver.EachOf(c, SQLListed, SQLOfListed, numbers, func(r driver.Row) error {
		jobs = append(jobs, readJob(r, at))
		return nil
	})
	slices.SortFunc(jobs, func(a, b Job) int { return cmp.Compare(b.Seq, a.Seq) })
	return jobs, err
}

// addUsage adds what the attempts of jobs have used.
func addUsage(c driver.Conn, jobs []Job) error {
	if len(jobs) == 0 {
		return nil
	}
	numbers, at := make([]int64, len(jobs)), make(map[int64]int, len(jobs))
	for i := range jobs {
		numbers[i], at[jobs[i].Seq] = jobs[i].Seq, i
	}
	return driver.EachOf(c, SQLUsage, SQLOfUsage, numbers, func(r driver.Row) error {
		jobs[at[r.Int(0)]].Usage = forebay.Usage{InputTokens: r.Int(1), OutputTokens: r.Int(2), CostUSD: forebay.Money(r.Int(3))}
		return nil
	})
}

func (q *Query) wantsColumns(queue int64, task string, priority int, created int64) bool {
	return (q.Queue == 0 || queue == q.Queue) && (q.Task == "" || task == q.Task) && (q.Priority == nil || priority == *q.Priority) &&
		created >= q.CreatedAfter && (q.CreatedBefore == 0 || created < q.CreatedBefore)
}

func (q *Query) wants(job *Job) bool {
	return q.wantsColumns(job.Queue, job.Task, job.Priority, job.CreatedAt.UnixMilli()) &&
		(q.SessionID == "" || job.SessionID == q.SessionID) &&
		(q.CorrelationID == "" || job.CorrelationID == q.CorrelationID) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, job.Status)) &&
		(q.WaitingFor == "" || q.waits(job)) && q.describes(job)
}

// waits reports whether a job waits for what is wanted.
func (q *Query) waits(job *Job) bool {
	waiting := job.Waiting
	if job.Ready && waiting == "" && q.Holds != nil {
		waiting = q.Holds(job)
	}
	return waiting == q.WaitingFor
}

// describes reports whether a job has the metadata that is wanted.
func (q *Query) describes(job *Job) bool {
	if len(q.Metadata) == 0 {
		return true
	}
	if len(job.Metadata) == 0 {
		return false
	}
	metadata := request.DecodeMetadata(job.Metadata)
	for key, value := range q.Metadata {
		if has, ok := metadata[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// Statements returns what lists read with, for tests of plans. With arrays, as PostgreSQL gets it.
func Statements(arrays bool) []string {
	of, together := " FROM (SELECT ?1 AS no) x", []string(nil)
	if arrays {
		of, together = driver.OfNumbersShared, []string{sqlJobs}
	}
	return slices.Concat([]string{SQLOfTenant, SQLOfCorrelation, SQLOfSession, SQLOfAll, SQLAlive, SQLUnhappy, SQLSetAside, SQLJob, SQLDeadLetters,
		SQLQueues + of + SQLOfQueues, SQLListed + of + SQLOfListed, SQLNarrow + of + SQLOfNarrow, SQLUsage + of + SQLOfUsage, SQLSetAsideJobs + of + SQLOfSetAsideJobs, SQLSetAsideOne + of + SQLOfSetAsideOne,
		SQLNextSessionQueue, SQLSessionIDs, SQLSessionExists, SQLSessionLive, SQLSessionFirst, SQLSessionSetAside, SQLSessionHold},
		together, tenantOrder.Statements(), wholeOrder.Statements())
}
