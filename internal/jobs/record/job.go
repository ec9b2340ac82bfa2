package record

import (
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// HeldUntil is the "visible_at" of a job that waits for its session's turn.
const HeldUntil = 1 << 62

// Failure is why a job was dead-lettered or expired.
type Failure struct {
	Class   forebay.ErrorClass
	Code    string
	Message []byte
}

// Job is a job with all that is known of it, read in one snapshot.
type Job struct {
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
	Reply           []byte // as the job's row keeps it; nil: nobody waits for an answer
	Estimate        []byte // what else its call needs, if the input is in blob storage

	Status      forebay.Status
	Waiting     forebay.WaitReason // "": nothing, or not live
	Generation  int
	Attempt     int
	VisibleAt   *time.Time // when it may start next, if it waits for that
	Ready       bool       // it starts as soon as those ahead of it have
	Paused      bool       // its queue or its tenant is
	PausedBy    int64      // a sum: 1 is its queue, 2 its tenant
	StartedAt   *time.Time
	CompletedAt *time.Time
	Result      []byte
	ResultBlob  string
	ResultSize  int64
	Failure     Failure
	LastError   []byte
	Usage       forebay.Usage
	Running     *forebay.RunningAttempt // nil: none is
	KeyID       string                  // the API key that submitted it, if that had a budget

	Subqueue, Flow, Visible int64 // its place in the queue, if it is live
}

// What is read of a job. A list leaves out its result, and its use, which is read afterwards.
const (
	jobColumns  = "SELECT " + ownColumns + "o.result, " + endColumns + usageColumns + moreColumns
	listColumns = ownColumns + "NULL, " + endColumns + "NULL, NULL, NULL, " + moreColumns

	ownColumns = `j.seq, j.id, j.tenant, j.queue, j.task, j.priority, j.max_attempts, j.max_cost, j.created_at,
  CASE WHEN o.seq IS NULL AND m.seq IS NOT NULL THEN m.deadline ELSE j.deadline END, j.correlation_id, j.metadata, j.input_blob,
  m.subqueue, m.visible_at, m.lock_token, m.generation, m.attempt, m.started_at, m.waiting, m.last_error, q.paused + 2 * (SELECT paused FROM tenants WHERE no = j.tenant),
  o.status, o.generation, o.attempt, o.started_at, o.completed_at, `
	endColumns   = "o.result_blob, o.result_size, o.error_class, o.error_code, o.error_message, "
	usageColumns = `
  (SELECT CAST(sum(input_tokens) AS BIGINT) FROM attempts a WHERE a.seq = j.seq),
  (SELECT CAST(sum(output_tokens) AS BIGINT) FROM attempts a WHERE a.seq = j.seq),
  (SELECT CAST(sum(cost) AS BIGINT) FROM attempts a WHERE a.seq = j.seq), `
	moreColumns = "j.session_id, m.flow, j.input_size, j.max_total_tokens, j.max_output_tokens, j.estimate, m.deployment, m.locked_at, m.number, j.reply, j.key_id "
)

const jobTables = "FROM jobs j LEFT JOIN messages m ON m.seq = j.seq LEFT JOIN outcomes o ON o.seq = j.seq JOIN queues q ON q.no = j.queue "

// SQLJob reads one job of a tenant.
const SQLJob = jobColumns + jobTables + "WHERE j.id = ? AND j.tenant = ?"

// One returns the job with that id if it is the tenant's, or forebay.ErrNotFound.
func One(c driver.Conn, tenant int64, id string) (job Job, err error) {
	var at int64
	found := false
	err = c.QueryWithNow(&at, driver.PipelineQuery{SQL: SQLJob, Bind: func(st driver.Statement) driver.Statement { return st.Text(id).Int(tenant) }, OnRow: func(r driver.Row) { job, found = readJob(r, at), true }})
	if err == nil && !found {
		err = forebay.ErrNotFound
	}
	return job, err
}

func readJob(r driver.Row, at int64) Job {
	j := Job{
		Seq: r.Int(0), ID: r.Text(1), Tenant: r.Int(2), Queue: r.Int(3), Task: r.Text(4), Priority: int(r.Int(5)),
		MaxAttempts: int(r.Int(6)), CreatedAt: driver.FromMillis(r.Int(8)), Deadline: driver.FromMillisOrNil(r, 9),
		CorrelationID: r.Text(10), Metadata: r.Blob(11), InputBlob: r.Text(12), SessionID: r.Text(36), InputSize: r.Int(38), MaxOutputTokens: r.Int(40), Estimate: r.Blob(41), Reply: r.Blob(45), KeyID: r.Text(46),
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

func (j *Job) readOutcome(r driver.Row) {
	j.Status = forebay.Status(r.Text(22))
	j.Generation, j.Attempt = int(r.Int(23)), int(r.Int(24))
	j.StartedAt, j.CompletedAt = driver.FromMillisOrNil(r, 25), driver.FromMillisOrNil(r, 26)
	j.Result, j.ResultBlob, j.ResultSize = r.Blob(27), r.Text(28), r.Int(29)
	j.Failure = Failure{Class: forebay.ErrorClass(r.Text(30)), Code: r.Text(31), Message: r.Blob(32)}
}

// liveStatus is the status of a job that is not over, by its message.
func liveStatus(subqueue queue.Subqueue, later, locked bool, waiting forebay.WaitReason) forebay.Status {
	switch {
	case locked && later:
		return forebay.StatusRunning
	case subqueue.Kind() == queue.SubqueueRetry:
		return forebay.StatusRetrying
	case later && waiting == "":
		return forebay.StatusScheduled
	}
	return forebay.StatusQueued
}

// readMessage derives the status of a live job from its message.
func (j *Job) readMessage(r driver.Row, at int64) {
	subqueue, visible, locked := queue.Subqueue(r.Int(13)), r.Int(14), !r.IsNull(15)
	j.Subqueue, j.Flow, j.Visible = int64(subqueue), r.Int(37), visible
	j.Generation, j.Attempt = int(r.Int(16)), int(r.Int(17))
	j.StartedAt = driver.FromMillisOrNil(r, 18)
	j.LastError = r.Blob(20)
	waiting, paused := forebay.WaitReason(r.Text(19)), r.Int(21) != 0
	later := visible > at
	j.Ready, j.Paused, j.PausedBy = !later, paused, r.Int(21)
	if j.Status = liveStatus(subqueue, later, locked, waiting); j.Status == forebay.StatusRunning {
		j.Running = &forebay.RunningAttempt{Number: int(r.Int(44)), Deployment: r.Text(42), StartedAt: driver.FromMillis(r.Int(43))}
		return
	}
	if later {
		if visible < HeldUntil && waiting != forebay.WaitSession {
			j.VisibleAt = driver.FromMillisOrNil(r, 14)
		}
		if j.Waiting = waiting; waiting == "" {
			j.Waiting = forebay.WaitSchedule
		}
	} else if paused {
		j.Waiting = forebay.WaitPaused
	}
}
