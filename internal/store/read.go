package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/sleep"
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
	MaxOutputTokens int64 // that an input in blob storage asks for; 0: not known

	Status      forebay.Status
	Waiting     forebay.WaitReason // "": nothing, or not live
	Generation  int
	Attempt     int
	VisibleAt   *time.Time // when it may start next, if it waits for that
	Ready       bool       // its turn comes as soon as those ahead of it have gone
	Paused      bool       // its queue or its tenant is
	StartedAt   *time.Time
	CompletedAt *time.Time
	Result      []byte
	ResultBlob  string
	ResultSize  int64
	Failure     Failure
	LastError   []byte
	Usage       forebay.Usage

	subqueue, line, visible int64 // where it stands, if it is live
}

const jobColumns = `
SELECT j.seq, j.id, j.tenant, j.queue, j.task, j.priority, j.max_attempts, j.max_cost, j.created_at,
  CASE WHEN o.seq IS NULL AND m.seq IS NOT NULL THEN m.deadline ELSE j.deadline END, j.correlation_id, j.metadata, j.input_blob,
  m.lane, m.visible, m.token, m.generation, m.attempt, m.started_at, m.waiting, m.last_error, q.paused + (SELECT paused FROM tenants WHERE no = j.tenant),
  o.status, o.generation, o.attempt, o.started_at, o.completed_at, o.result, o.result_blob, o.result_size,
  o.error_class, o.error_code, o.error_message,
  (SELECT CAST(sum(input_tokens) AS BIGINT) FROM attempts a WHERE a.seq = j.seq),
  (SELECT CAST(sum(output_tokens) AS BIGINT) FROM attempts a WHERE a.seq = j.seq),
  (SELECT CAST(sum(cost) AS BIGINT) FROM attempts a WHERE a.seq = j.seq), j.session_id, m.rank, j.input_size, j.max_total_tokens, j.max_output_tokens
`

const jobTables = "FROM jobs j LEFT JOIN messages m ON m.seq = j.seq LEFT JOIN outcomes o ON o.seq = j.seq JOIN queues q ON q.no = j.queue "

// Job returns the job with that id if it is the tenant's, or forebay.ErrNotFound.
func (s *JobStore) Job(ctx context.Context, tenant int64, id string) (job JobRow, err error) {
	err = s.read(ctx, func(c conn) error {
		var at int64
		found := false
		err := c.askNow(&at, question{sqlJob, func(st statement) statement { return st.text(id).int(tenant) }, func(r row) { job, found = readJob(r, at), true }})
		if err == nil && !found {
			return forebay.ErrNotFound
		}
		return err
	})
	return job, err
}

func readJob(r row, at int64) JobRow {
	j := JobRow{
		Seq: r.int(0), ID: r.text(1), Tenant: r.int(2), Queue: r.int(3), Task: r.text(4), Priority: int(r.int(5)),
		MaxAttempts: int(r.int(6)), CreatedAt: fromMillis(r.int(8)), Deadline: fromMillisOrNil(r, 9),
		CorrelationID: r.text(10), Metadata: r.blob(11), InputBlob: r.text(12), SessionID: r.text(36), InputSize: r.int(38), MaxOutputTokens: r.int(40),
		Usage: forebay.Usage{InputTokens: r.int(33), OutputTokens: r.int(34), CostUSD: forebay.Money(r.int(35))},
	}
	if !r.isNull(7) {
		cost := forebay.Money(r.int(7))
		j.MaxCost = &cost
	}
	j.MaxTotalTokens = intOrNil(r, 39)
	if !r.isNull(22) {
		j.readOutcome(r)
	} else {
		j.readMessage(r, at)
	}
	return j
}

func (j *JobRow) readOutcome(r row) {
	j.Status = forebay.Status(r.text(22))
	j.Generation, j.Attempt = int(r.int(23)), int(r.int(24))
	j.StartedAt, j.CompletedAt = fromMillisOrNil(r, 25), fromMillisOrNil(r, 26)
	j.Result, j.ResultBlob, j.ResultSize = r.blob(27), r.text(28), r.int(29)
	j.Failure = Failure{Class: forebay.ErrorClass(r.text(30)), Code: r.text(31), Message: r.blob(32)}
}

// readMessage derives the status of a live job from its message.
func (j *JobRow) readMessage(r row, at int64) {
	subqueue, visible, locked := Subqueue(r.int(13)), r.int(14), !r.isNull(15)
	j.subqueue, j.line, j.visible = int64(subqueue), r.int(37), visible
	j.Generation, j.Attempt = int(r.int(16)), int(r.int(17))
	j.StartedAt = fromMillisOrNil(r, 18)
	j.LastError = r.blob(20)
	waiting, paused := forebay.WaitReason(r.text(19)), r.int(21) != 0
	later := visible > at
	j.Ready, j.Paused = !later, paused
	switch {
	case locked && later:
		j.Status = forebay.StatusRunning
		return
	case subqueue.Kind() == SubqueueRetry:
		j.Status = forebay.StatusRetrying
	case later && waiting == "":
		j.Status = forebay.StatusScheduled
	default:
		j.Status = forebay.StatusQueued
	}
	if later {
		if visible < heldUntil && waiting != forebay.WaitSession {
			j.VisibleAt = fromMillisOrNil(r, 14)
		}
		if j.Waiting = waiting; waiting == "" {
			j.Waiting = forebay.WaitSchedule
		}
	} else if paused {
		j.Waiting = forebay.WaitPaused
	}
}

// Retry reports whether a live job is in the retry subqueue.
func (j *JobRow) Retry() bool { return Subqueue(j.subqueue).Kind() == SubqueueRetry }

// JobQuery selects jobs of one tenant, newest first.
type JobQuery struct {
	Tenant        int64
	Statuses      []forebay.Status
	Queue         int64 // 0: all
	Task          string
	CorrelationID string
	CreatedAfter  int64 // in milliseconds; 0: since ever
	CreatedBefore int64 // in milliseconds; 0: no end
	Below         int64 // only jobs with a lower sequence number; 0: from the newest
	Limit         int
}

// sqlJob reads one job.
const sqlJob = jobColumns + jobTables + "WHERE j.id = ? AND j.tenant = ?"

// A list walks the shortest index that holds all it wants, from the newest job down. It leaves
// results out: a page of them could be large.
var (
	listColumns = strings.Replace(jobColumns, "o.result,", "NULL,", 1)
	listEnd     = " AND j.tenant = ?1 ORDER BY j.seq DESC LIMIT ?3 + 0"

	sqlJobsOfTenant      = listColumns + strings.Replace(jobTables, "jobs j", "jobs j INDEXED BY jobs_tenant", 1) + "WHERE j.seq < ?2" + listEnd
	sqlJobsByCorrelation = listColumns + strings.Replace(jobTables, "jobs j", "jobs j INDEXED BY jobs_correlation", 1) + "WHERE j.seq < ?2 AND j.correlation_id = ?4" + listEnd
	sqlJobsAlive         = listColumns + "FROM messages m CROSS JOIN jobs j ON j.seq = m.seq LEFT JOIN outcomes o ON o.seq = m.seq JOIN queues q ON q.no = j.queue " +
		"WHERE m.seq < ?2 AND m.lane % 4 < 2" + strings.Replace(listEnd, "j.seq DESC", "m.seq DESC", 1)
	sqlJobsUnhappy = listColumns + "FROM outcomes o CROSS JOIN jobs j ON j.seq = o.seq LEFT JOIN messages m ON m.seq = o.seq JOIN queues q ON q.no = j.queue " +
		"WHERE o.seq < ?2 AND o.status <> 'succeeded'" + strings.Replace(listEnd, "j.seq DESC", "o.seq DESC", 1)
)

// maxScan bounds how many of the tenant's jobs one list call looks at, so that a rare task or status
// cannot hold a read transaction open for long.
const maxScan = 5000

// Jobs returns up to q.Limit jobs and where the next page starts: the sequence number to go below, 0
// when there is no more. A page may be short of the limit, even empty, and still have a next one.
func (s *JobStore) Jobs(ctx context.Context, q JobQuery) (jobs []JobRow, next int64, err error) {
	below := q.Below
	if below == 0 {
		below = 1 << 62
	}
	err = s.read(ctx, func(c conn) error {
		at, seen, below := c.now(), 0, below
		if q.CreatedBefore > 0 && q.Below == 0 {
			var err error
			if below, err = firstSince(c, jobsInOrder, q.Tenant, q.CreatedBefore+createdSlack); err != nil {
				return err
			}
		}
		st := c.prep(q.sql()).int(q.Tenant).int(below).int(int64(q.scan()))
		if q.CorrelationID != "" {
			st = st.text(q.CorrelationID)
		}
		err := st.each(func(r row) error {
			seen++
			job := readJob(r, at)
			if job.CreatedAt.UnixMilli() < q.CreatedAfter-createdSlack {
				next = 0
				return errStop
			}
			next = job.Seq
			if q.wants(&job) {
				jobs = append(jobs, job)
			}
			if len(jobs) == q.Limit {
				return errStop
			}
			return nil
		})
		if errors.Is(err, errStop) {
			return nil
		}
		if seen < q.scan() {
			next = 0
		}
		return err
	})
	return jobs, next, err
}

// createdSlack is how far a row may have been created before one with a lower number, in milliseconds: clocks are set.
const createdSlack = 60_000

// chronology reads a table of a tenant's rows whose numbers were given in the order of time.
type chronology struct{ last, from string }

func rowsInOrder(table, number string) chronology {
	return chronology{
		last: "SELECT " + number + " FROM " + table + " WHERE tenant = ? ORDER BY " + number + " DESC LIMIT 1 + 0",
		from: "SELECT " + number + ", created_at FROM " + table + " WHERE tenant = ? AND " + number + " >= ? ORDER BY " + number + " LIMIT 1 + 0",
	}
}

var (
	jobsInOrder      = rowsInOrder("jobs", "seq")
	documentsInOrder = rowsInOrder("documents", "no")
)

// firstSince returns the number below which all rows of a tenant were created before that time. A few looks along
// an index find it among any number of rows.
func firstSince(c conn, table chronology, tenant, at int64) (int64, error) {
	low, high := int64(0), int64(0)
	if _, err := c.prep(table.last).int(tenant).one(func(r row) { high = r.int(0) + 1 }); err != nil {
		return 0, err
	}
	for low < high {
		middle := low + (high-low)/2
		var number, created int64
		found, err := c.prep(table.from).int(tenant).int(middle).one(func(r row) { number, created = r.int(0), r.int(1) })
		switch {
		case err != nil:
			return 0, err
		case !found || created >= at:
			high = middle
		default:
			low = number + 1
		}
	}
	return low, nil
}

// scan is how many jobs to look at for a page: no more than it has if every job is wanted.
func (q *JobQuery) scan() int {
	if q.Queue == 0 && q.Task == "" && len(q.Statuses) == 0 && q.CreatedAfter == 0 && q.CreatedBefore == 0 {
		return q.Limit + 1
	}
	return maxScan
}

func (q *JobQuery) wants(job *JobRow) bool {
	return (q.Queue == 0 || job.Queue == q.Queue) && (q.Task == "" || job.Task == q.Task) &&
		job.CreatedAt.UnixMilli() >= q.CreatedAfter && (q.CreatedBefore == 0 || job.CreatedAt.UnixMilli() < q.CreatedBefore) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, job.Status))
}

// sql chooses the way to walk.
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

// Attempts returns all attempts of a job, oldest first.
func (s *JobStore) Attempts(ctx context.Context, seq int64) (attempts []forebay.Attempt, err error) {
	err = s.read(ctx, func(c conn) error {
		err := c.prep(`SELECT number, generation, deployment, started_at, finished_at, outcome, error_class, error_code, error_message,
			input_tokens, output_tokens, cost, retry_delay FROM attempts WHERE seq = ? ORDER BY generation, number LIMIT 10000`).
			int(seq).each(func(r row) error {
			a := forebay.Attempt{
				Number: int(r.int(0)), Generation: int(r.int(1)), Deployment: r.text(2),
				StartedAt: fromMillis(r.int(3)), FinishedAt: fromMillis(r.int(4)), Outcome: forebay.Outcome(r.text(5)),
				Usage: forebay.TokenUsage{InputTokens: r.int(9), OutputTokens: r.int(10)}, CostUSD: forebay.Money(r.int(11)),
				RetryDelaySeconds: secondsOrNil(r, 12),
			}
			if !r.isNull(6) {
				class, code, message := forebay.ErrorClass(r.text(6)), r.text(7), string(r.blob(8))
				a.ErrorClass, a.ErrorCode, a.ErrorMessage = &class, &code, &message
			}
			attempts = append(attempts, a)
			return nil
		})
		return err
	})
	return attempts, err
}

const sqlEvents = `
SELECT number, type, at, status, generation, attempt, error_class, error_code, retry_delay FROM events WHERE seq = ?1 AND number > ?2
UNION ALL
SELECT 1, 'accepted', created_at, CASE WHEN scheduled_at > created_at THEN 'scheduled' ELSE 'queued' END, 1, 0, NULL, NULL, NULL
FROM jobs WHERE seq = ?1 AND ?2 < 1
UNION ALL
SELECT 2, 'started', at, 'running', 1, 1, NULL, NULL, NULL
FROM (SELECT coalesce((SELECT started_at FROM messages WHERE seq = ?1 AND generation = 1), (SELECT started_at FROM outcomes WHERE seq = ?1 AND generation = 1)) AS at) AS first
WHERE at IS NOT NULL AND ?2 < 2 AND NOT EXISTS (SELECT 1 FROM events WHERE seq = ?1 AND number = 2)
UNION ALL
SELECT version, 'succeeded', completed_at, status, generation,
  (SELECT max(number) FROM attempts a WHERE a.seq = o.seq AND a.generation = o.generation), NULL, NULL, NULL
FROM outcomes o WHERE seq = ?1 AND status = 'succeeded' AND version > ?2
ORDER BY 1 LIMIT ?3 + 0`

// Events returns a job's events numbered above after, oldest first, at most limit.
func (s *JobStore) Events(ctx context.Context, seq, after int64, limit int) (events []forebay.Event, err error) {
	err = s.read(ctx, func(c conn) error {
		err := c.prep(sqlEvents).int(seq).int(after).int(int64(limit)).each(func(r row) error {
			e := forebay.Event{
				Number: r.int(0), Type: forebay.EventType(r.text(1)), At: fromMillis(r.int(2)), Status: forebay.Status(r.text(3)),
				Generation: int(r.int(4)), Attempt: int(r.int(5)), ErrorCode: r.text(7), RetryDelaySeconds: secondsOrNil(r, 8),
			}
			if !r.isNull(6) {
				class := forebay.ErrorClass(r.text(6))
				e.ErrorClass = &class
			}
			events = append(events, e)
			return nil
		})
		return err
	})
	return events, err
}

func secondsOrNil(r row, i int) *float64 {
	if r.isNull(i) {
		return nil
	}
	seconds := float64(r.int(i)) / 1000
	return &seconds
}

// What a job's attempts have used. What is not known of a call counts as what was held for it.
const sqlSpent = `
SELECT coalesce(CAST(sum(input_tokens + output_tokens + coalesce(assumed_tokens, 0)) AS BIGINT), 0) AS tokens,
  coalesce(CAST(sum(cost) AS BIGINT), 0) AS cost
FROM attempts WHERE seq = ?1`

// Spent returns what a job's attempts have used so far, as its limits count it.
func (s *JobStore) Spent(ctx context.Context, seq int64) (spent Amount, err error) {
	err = s.read(ctx, func(c conn) error {
		_, err := c.prep(sqlSpent).int(seq).one(func(r row) { spent = Amount{r.int(0), r.int(1)} })
		return err
	})
	return spent, err
}

// sqlComebacks counts the attempts of a generation after which its job went back, by their class of error.
const sqlComebacks = `
SELECT count(CASE WHEN error_class = 'permanent' THEN 1 END), count(CASE WHEN error_class = 'transient' THEN 1 END)
FROM attempts WHERE seq = ? AND generation = ? AND outcome = 'retried'`

// Comebacks returns how many calls of a job's generation turned it away, for which its deployment was held to be at fault, and
// how many failed in passing. Refusals for lack of quota are neither.
func (s *JobStore) Comebacks(ctx context.Context, seq int64, generation int) (denied, failed int, err error) {
	err = s.read(ctx, func(c conn) error {
		_, err := c.prep(sqlComebacks).int(seq).int(int64(generation)).one(func(r row) { denied, failed = int(r.int(0)), int(r.int(1)) })
		return err
	})
	return denied, failed, err
}

// BlobsInUse calls used with those of the keys that the job with the id under which the key stands refers to.
func (s *JobStore) BlobsInUse(ctx context.Context, ids map[string]string, used func(key string)) error {
	return s.read(ctx, func(c conn) error {
		for key, id := range ids {
			_, err := c.prep(`SELECT 1 FROM jobs j LEFT JOIN outcomes o ON o.seq = j.seq
				WHERE j.id = ?1 AND (j.input_blob = ?2 OR o.result_blob = ?2 OR o.seq IS NULL)`).text(id).text(key).one(func(row) { used(key) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// settlePatience is how long [Store.Settled] waits for transactions that are under way.
const settlePatience = time.Second

// A transaction counts as under way, though its client has gone, as long as its commit waits for a standby. The bound of a snapshot
// is one more than the latest that is over, so what was begun before is told by a number of its own, which writes nothing.
const (
	sqlOwnTransaction    = "SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint)"
	sqlOldestTransaction = "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"
)

// Settled reports whether every transaction of the database that had written something when it was called is over: what they have
// stored can be seen then, and nothing of them is still to come. It waits for a second at most.
func (s *JobStore) Settled(ctx context.Context) (settled bool, err error) {
	if !s.writer.shared() { // there is one writer, which knows how its transactions ended
		return true, ctx.Err()
	}
	number := func(sql string) (n int64, err error) {
		err = s.read(ctx, func(c conn) error {
			_, err := c.prep(sql).one(func(r row) { n = r.int(0) })
			return err
		})
		return n, err
	}
	until, err := number(sqlOwnTransaction)
	for began := time.Now(); err == nil && !settled && time.Since(began) < settlePatience; {
		var oldest int64
		oldest, err = number(sqlOldestTransaction)
		if settled = oldest >= until; err == nil && !settled {
			err = sleep.For(ctx, settlePatience/50)
		}
	}
	return settled && err == nil, err
}

// BlobRecorded reports whether a job of that id, or its outcome, refers to the blob.
func (s *JobStore) BlobRecorded(ctx context.Context, id, key string) (recorded bool, err error) {
	err = s.read(ctx, func(c conn) error {
		recorded, err = c.prep(`SELECT 1 FROM jobs j LEFT JOIN outcomes o ON o.seq = j.seq
			WHERE j.id = ?1 AND (j.input_blob = ?2 OR o.result_blob = ?2)`).text(id).text(key).one(func(row) {})
		return err
	})
	return recorded, err
}
