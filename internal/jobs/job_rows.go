package jobs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/history"
	"github.com/forebayhq/forebay/internal/listing"
	"github.com/forebayhq/forebay/internal/queue"
)

// JobRow is a job with all that is known of it, read in one snapshot.
type JobRow struct {
	Seq             int64
	ID              string
	Tenant          int64
	Queue           int64
	Task            string
	Priority        int
	MaxAttempts     int
	MaxCost         *forebay.Money
	MaxTotalTokens  *int64
	CreatedAt       time.Time
	Deadline        *time.Time
	CorrelationID   string
	SessionID       string
	Metadata        []byte
	InputBlob       string
	InputSize       int64
	MaxOutputTokens int64  // that an input in blob storage asks for; 0: not known
	Estimate        []byte // as in NewJob

	Status      forebay.Status
	Waiting     forebay.WaitReason // "": nothing, or not live
	Generation  int
	Attempt     int
	VisibleAt   *time.Time // when it may start next, if it waits for that
	Ready       bool       // it starts as soon as those ahead of it have
	Paused      bool       // its queue or its tenant is
	StartedAt   *time.Time
	CompletedAt *time.Time
	Result      []byte
	ResultBlob  string
	ResultSize  int64
	Failure     Failure
	LastError   []byte
	Usage       forebay.Usage
	Running     *forebay.RunningAttempt // nil: none is

	subqueue, flow, visible int64 // its place in the queue, if it is live
}

const jobColumns = `
SELECT j.seq, j.id, j.tenant, j.queue, j.task, j.priority, j.max_attempts, j.max_cost, j.created_at,
  CASE WHEN o.seq IS NULL AND m.seq IS NOT NULL THEN m.deadline ELSE j.deadline END, j.correlation_id, j.metadata, j.input_blob,
  m.subqueue, m.visible_at, m.lock_token, m.generation, m.attempt, m.started_at, m.waiting, m.last_error, q.paused + (SELECT paused FROM tenants WHERE no = j.tenant),
  o.status, o.generation, o.attempt, o.started_at, o.completed_at, o.result, o.result_blob, o.result_size,
  o.error_class, o.error_code, o.error_message,
  (SELECT CAST(sum(input_tokens) AS BIGINT) FROM attempts a WHERE a.seq = j.seq),
  (SELECT CAST(sum(output_tokens) AS BIGINT) FROM attempts a WHERE a.seq = j.seq),
  (SELECT CAST(sum(cost) AS BIGINT) FROM attempts a WHERE a.seq = j.seq), j.session_id, m.flow, j.input_size, j.max_total_tokens, j.max_output_tokens, j.estimate,
  m.deployment, m.locked_at, m.number
`

const jobTables = "FROM jobs j LEFT JOIN messages m ON m.seq = j.seq LEFT JOIN outcomes o ON o.seq = j.seq JOIN queues q ON q.no = j.queue "

// Job returns the job with that id if it is the tenant's, or forebay.ErrNotFound.
func (s *Store) Job(ctx context.Context, tenant int64, id string) (job JobRow, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		var at int64
		found := false
		err := c.QueryWithNow(&at, driver.PipelineQuery{SQL: sqlJob, Bind: func(st driver.Statement) driver.Statement { return st.Text(id).Int(tenant) }, OnRow: func(r driver.Row) { job, found = readJob(r, at), true }})
		if err == nil && !found {
			return forebay.ErrNotFound
		}
		return err
	})
	return job, err
}

func readJob(r driver.Row, at int64) JobRow {
	j := JobRow{
		Seq: r.Int(0), ID: r.Text(1), Tenant: r.Int(2), Queue: r.Int(3), Task: r.Text(4), Priority: int(r.Int(5)),
		MaxAttempts: int(r.Int(6)), CreatedAt: driver.FromMillis(r.Int(8)), Deadline: driver.FromMillisOrNil(r, 9),
		CorrelationID: r.Text(10), Metadata: r.Blob(11), InputBlob: r.Text(12), SessionID: r.Text(36), InputSize: r.Int(38), MaxOutputTokens: r.Int(40), Estimate: r.Blob(41),
		Usage: forebay.Usage{InputTokens: r.Int(33), OutputTokens: r.Int(34), CostUSD: forebay.Money(r.Int(35))},
	}
	if !r.IsNull(7) {
		cost := forebay.Money(r.Int(7))
		j.MaxCost = &cost
	}
	j.MaxTotalTokens = driver.IntOrNil(r, 39)
	if !r.IsNull(22) {
		j.readOutcome(r)
	} else {
		j.readMessage(r, at)
	}
	return j
}

func (j *JobRow) readOutcome(r driver.Row) {
	j.Status = forebay.Status(r.Text(22))
	j.Generation, j.Attempt = int(r.Int(23)), int(r.Int(24))
	j.StartedAt, j.CompletedAt = driver.FromMillisOrNil(r, 25), driver.FromMillisOrNil(r, 26)
	j.Result, j.ResultBlob, j.ResultSize = r.Blob(27), r.Text(28), r.Int(29)
	j.Failure = Failure{Class: forebay.ErrorClass(r.Text(30)), Code: r.Text(31), Message: r.Blob(32)}
}

// readMessage derives the status of a live job from its message.
func (j *JobRow) readMessage(r driver.Row, at int64) {
	subqueue, visible, locked := queue.Subqueue(r.Int(13)), r.Int(14), !r.IsNull(15)
	j.subqueue, j.flow, j.visible = int64(subqueue), r.Int(37), visible
	j.Generation, j.Attempt = int(r.Int(16)), int(r.Int(17))
	j.StartedAt = driver.FromMillisOrNil(r, 18)
	j.LastError = r.Blob(20)
	waiting, paused := forebay.WaitReason(r.Text(19)), r.Int(21) != 0
	later := visible > at
	j.Ready, j.Paused = !later, paused
	switch {
	case locked && later:
		j.Status = forebay.StatusRunning
		j.Running = &forebay.RunningAttempt{Number: int(r.Int(44)), Deployment: r.Text(42), StartedAt: driver.FromMillis(r.Int(43))}
		return
	case subqueue.Kind() == queue.SubqueueRetry:
		j.Status = forebay.StatusRetrying
	case later && waiting == "":
		j.Status = forebay.StatusScheduled
	default:
		j.Status = forebay.StatusQueued
	}
	if later {
		if visible < heldUntil && waiting != forebay.WaitSession {
			j.VisibleAt = driver.FromMillisOrNil(r, 14)
		}
		if j.Waiting = waiting; waiting == "" {
			j.Waiting = forebay.WaitSchedule
		}
	} else if paused {
		j.Waiting = forebay.WaitPaused
	}
}

// JobQuery selects jobs of one tenant, newest first.
type JobQuery struct {
	Tenant        int64
	Statuses      []forebay.Status
	Queue         int64 // 0: all
	Task          string
	CorrelationID string
	CreatedAfter  int64 // in milliseconds; 0: unbounded
	CreatedBefore int64 // in milliseconds; 0: unbounded
	Below         int64 // only jobs with a lower sequence number; 0: from the newest
	Limit         int
}

// sqlJob reads one job.
const sqlJob = jobColumns + jobTables + "WHERE j.id = ? AND j.tenant = ?"

// A list reads along the shortest index that holds all it wants, from the newest job down. It
// leaves out results, because a page of them could be large.
var (
	listColumns = strings.Replace(jobColumns, "o.result,", "NULL,", 1)
	listEnd     = " AND j.tenant = ?1 ORDER BY j.seq DESC LIMIT ?3 + 0"

	sqlJobsOfTenant      = listColumns + strings.Replace(jobTables, "jobs j", "jobs j INDEXED BY jobs_tenant", 1) + "WHERE j.seq < ?2" + listEnd
	sqlJobsByCorrelation = listColumns + strings.Replace(jobTables, "jobs j", "jobs j INDEXED BY jobs_correlation", 1) + "WHERE j.seq < ?2 AND j.correlation_id = ?4" + listEnd
	sqlJobsAlive         = listColumns + "FROM messages m CROSS JOIN jobs j ON j.seq = m.seq LEFT JOIN outcomes o ON o.seq = m.seq JOIN queues q ON q.no = j.queue " +
		"WHERE m.seq < ?2 AND m.subqueue % 4 < 2" + strings.Replace(listEnd, "j.seq DESC", "m.seq DESC", 1)
	sqlJobsUnhappy = listColumns + "FROM outcomes o CROSS JOIN jobs j ON j.seq = o.seq LEFT JOIN messages m ON m.seq = o.seq JOIN queues q ON q.no = j.queue " +
		"WHERE o.seq < ?2 AND o.status <> 'succeeded'" + strings.Replace(listEnd, "j.seq DESC", "o.seq DESC", 1)
)

// maxListScan bounds how many of the tenant's jobs one list call reads, so that a rare task or
// status cannot hold a read transaction open for long.
const maxListScan = 5000

// Jobs returns up to q.Limit jobs, and the sequence number that the next page is below; 0: there
// is no next page. A page may be short of the limit, even empty, and still have a next one.
func (s *Store) Jobs(ctx context.Context, q JobQuery) (jobs []JobRow, next int64, err error) {
	below := q.Below
	if below == 0 {
		below = 1 << 62
	}
	err = s.Read(ctx, func(c driver.Conn) error {
		at, seen, below := c.Now(), 0, below
		if q.CreatedBefore > 0 && q.Below == 0 {
			var err error
			if below, err = jobsInOrder.FirstSince(c, q.Tenant, q.CreatedBefore+listing.CreatedSlack); err != nil {
				return err
			}
		}
		st := c.Prep(q.sql()).Int(q.Tenant).Int(below).Int(int64(q.scan()))
		if q.CorrelationID != "" {
			st = st.Text(q.CorrelationID)
		}
		err := st.Each(func(r driver.Row) error {
			seen++
			job := readJob(r, at)
			if job.CreatedAt.UnixMilli() < q.CreatedAfter-listing.CreatedSlack {
				next = 0
				return driver.ErrStop
			}
			next = job.Seq
			if q.wants(&job) {
				jobs = append(jobs, job)
			}
			if len(jobs) == q.Limit {
				return driver.ErrStop
			}
			return nil
		})
		if errors.Is(err, driver.ErrStop) {
			return nil
		}
		if seen < q.scan() {
			next = 0
		}
		return err
	})
	return jobs, next, err
}

// jobsInOrder: jobs are numbered in the order of their creation.
var jobsInOrder = listing.NewChronology("jobs", "seq")

// scan is how many jobs to read for a page: only as many as it has, if every job is wanted.
func (q *JobQuery) scan() int {
	if q.Queue == 0 && q.Task == "" && len(q.Statuses) == 0 && q.CreatedAfter == 0 && q.CreatedBefore == 0 {
		return q.Limit + 1
	}
	return maxListScan
}

func (q *JobQuery) wants(job *JobRow) bool {
	return (q.Queue == 0 || job.Queue == q.Queue) && (q.Task == "" || job.Task == q.Task) &&
		job.CreatedAt.UnixMilli() >= q.CreatedAfter && (q.CreatedBefore == 0 || job.CreatedAt.UnixMilli() < q.CreatedBefore) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, job.Status))
}

// sql chooses the index.
func (q *JobQuery) sql() string {
	alive, unhappy := len(q.Statuses) > 0, len(q.Statuses) > 0
	for _, status := range q.Statuses {
		alive = alive && !status.Terminal()
		unhappy = unhappy && status.Terminal() && status != forebay.StatusSucceeded
	}
	switch {
	case q.CorrelationID != "":
		return sqlJobsByCorrelation
	case alive:
		return sqlJobsAlive
	case unhappy:
		return sqlJobsUnhappy
	}
	return sqlJobsOfTenant
}

// Attempts returns all attempts of a job, oldest first. The last one may be running.
func (s *Store) Attempts(ctx context.Context, seq int64) (attempts []forebay.Attempt, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		attempts, err = history.Attempts(c, seq)
		return err
	})
	return attempts, err
}

// Events returns a job's events numbered above after, oldest first, at most limit.
func (s *Store) Events(ctx context.Context, seq, after int64, limit int) (events []forebay.Event, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		events, err = history.Events(c, seq, after, limit)
		return err
	})
	return events, err
}

// What a job's attempts have used. A call whose use is unknown counts as what was held for it.
const sqlSpent = `
SELECT coalesce(CAST(sum(input_tokens + output_tokens + coalesce(assumed_tokens, 0)) AS BIGINT), 0) AS tokens,
  coalesce(CAST(sum(cost) AS BIGINT), 0) AS cost
FROM attempts WHERE seq = ?1`

// Spent returns what a job's attempts have used so far, as its limits count it.
func (s *Store) Spent(ctx context.Context, seq int64) (spent admission.Amount, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		_, err := c.Prep(sqlSpent).Int(seq).One(func(r driver.Row) { spent = admission.Amount{Tokens: r.Int(0), Cost: r.Int(1)} })
		return err
	})
	return spent, err
}

// sqlComebacks counts the attempts of a generation after which its job went back, by class of
// error.
const sqlComebacks = `
SELECT count(CASE WHEN error_class = 'permanent' THEN 1 END), count(CASE WHEN error_class = 'transient' THEN 1 END)
FROM attempts WHERE seq = ? AND generation = ? AND outcome = 'retried'`

// Comebacks returns how many calls of a job's generation its deployment denied, and how many
// failed in passing. Refusals for lack of quota are neither.
func (s *Store) Comebacks(ctx context.Context, seq int64, generation int) (denied, failed int, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		_, err := c.Prep(sqlComebacks).Int(seq).Int(int64(generation)).One(func(r driver.Row) { denied, failed = int(r.Int(0)), int(r.Int(1)) })
		return err
	})
	return denied, failed, err
}

// BlobsInUse calls used with each key that the key's job refers to. ids maps keys to the ids of
// their jobs.
func (s *Store) BlobsInUse(ctx context.Context, ids map[string]string, used func(key string)) error {
	return s.Read(ctx, func(c driver.Conn) error {
		for key, id := range ids {
			_, err := c.Prep(`SELECT 1 FROM jobs j LEFT JOIN outcomes o ON o.seq = j.seq
				WHERE j.id = ?1 AND (j.input_blob = ?2 OR o.result_blob = ?2 OR o.seq IS NULL)`).Text(id).Text(key).One(func(driver.Row) { used(key) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// BlobRecorded reports whether a job of that id, or its outcome, refers to the blob.
func (s *Store) BlobRecorded(ctx context.Context, id, key string) (recorded bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		recorded, err = c.Prep(`SELECT 1 FROM jobs j LEFT JOIN outcomes o ON o.seq = j.seq
			WHERE j.id = ?1 AND (j.input_blob = ?2 OR o.result_blob = ?2)`).Text(id).Text(key).One(func(driver.Row) {})
		return err
	})
	return recorded, err
}
