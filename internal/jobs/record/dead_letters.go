package record

import (
	"cmp"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
)

// DeadLetter is a job in a dead-letter or quarantine subqueue.
type DeadLetter struct {
	Seq           int64
	ID            string
	Task          string
	Reason        string
	Failure       Failure
	Generation    int
	Attempt       int
	Deliveries    int
	CorrelationID string
	CreatedAt     time.Time
	SetAsideAt    time.Time
	Input         []byte // only if the query reads it
	InputBlob     string
	InputSize     int64
	Metadata      []byte
	LastError     []byte
	Tenant        int64
	Subqueue      queue.Subqueue
}

// ETag returns the entity tag of the job. Nothing of it changes within a generation.
func (d DeadLetter) ETag() string { return forebay.ETagOf(d.Seq, d.Generation) }

// DeadLetterQuery selects dead-lettered or quarantined jobs of one tenant, newest first.
type DeadLetterQuery struct {
	Subqueue queue.Subqueue
	Tenant   int64
	Filter   forebay.SetAsideFilter
	Below    int64 // only jobs with a lower sequence number; 0: from the newest
	Limit    int
	ReadBody bool
	// Condition is about the one job that the filter names.
	Condition forebay.Condition
}

// What is read of a dead letter, but for its number before and its input in the middle.
const (
	setAsideColumns = `j.id, j.task, m.reason, o.error_class, o.error_code, o.error_message, m.generation, m.attempt, m.deliveries,
  j.correlation_id, j.created_at, m.visible_at, `
	setAsideMore = ", j.input_blob, j.input_size, j.metadata, m.last_error"
)

// SQLDeadLetters reads a subqueue along its index, which has few rows beside the live ones.
const SQLDeadLetters = "SELECT m.seq, " + setAsideColumns + "CASE WHEN ?8 <> 0 THEN j.input END" + setAsideMore + `, j.tenant, m.subqueue
FROM messages m JOIN jobs j ON j.seq = m.seq LEFT JOIN outcomes o ON o.seq = m.seq
WHERE m.subqueue = ?1 AND m.subqueue % 4 >= 2 AND j.tenant = ?2 AND m.seq < ?3
  AND (?4 = '' OR j.task = ?4) AND (?5 = '' OR m.reason = ?5) AND (?6 = '' OR j.correlation_id = ?6)
  AND m.visible_at >= ?9 AND m.visible_at < ?10
  AND (?7 = '' OR j.id = ?7) AND (?12 = '' OR o.error_class = ?12)
ORDER BY m.seq DESC LIMIT ?11 + 0`

// DeadLetters returns the jobs that the query selects.
func DeadLetters(c driver.Conn, q DeadLetterQuery) (rows []DeadLetter, err error) {
	const endOfTime = 1 << 62
	below, before, after := int64(endOfTime), int64(endOfTime), int64(0)
	if q.Below > 0 {
		below = q.Below
	}
	if q.Filter.Before != nil {
		before = q.Filter.Before.UnixMilli()
	}
	if q.Filter.After != nil {
		after = q.Filter.After.UnixMilli()
	}
	body := int64(0)
	if q.ReadBody {
		body = 1
	}
	ids := q.Filter.JobIDs
	if len(ids) == 0 {
		ids = []string{""} // any
	}
	for _, id := range ids {
		err = c.Prep(SQLDeadLetters).Int(int64(q.Subqueue)).Int(q.Tenant).Int(below).
			Text(q.Filter.Task).Text(q.Filter.Reason).Text(q.Filter.CorrelationID).Text(id).Int(body).Int(after).Int(before).Int(int64(q.Limit)).
			Text(string(q.Filter.ErrorClass)).
			Each(func(r driver.Row) error {
				rows = append(rows, readDeadLetter(r))
				return nil
			})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rows, func(a, b DeadLetter) int { return cmp.Compare(b.Seq, a.Seq) })
	return rows[:min(len(rows), q.Limit)], q.checkCondition(rows)
}

// checkCondition compares the condition with the one job that the query names.
func (q DeadLetterQuery) checkCondition(rows []DeadLetter) error {
	switch {
	case q.Condition.Empty():
		return nil
	case len(q.Filter.JobIDs) != 1:
		return forebay.Invalid("If-Match", "needs filter.job_ids with exactly one id")
	case len(rows) == 0:
		return q.Condition.Check("")
	}
	return q.Condition.Check(rows[0].ETag())
}

func readDeadLetter(r driver.Row) DeadLetter {
	return DeadLetter{
		Seq: r.Int(0), ID: r.Text(1), Task: r.Text(2), Reason: r.Text(3),
		Failure:    Failure{Class: forebay.ErrorClass(r.Text(4)), Code: r.Text(5), Message: r.Blob(6)},
		Generation: int(r.Int(7)), Attempt: int(r.Int(8)), Deliveries: int(r.Int(9)),
		CorrelationID: r.Text(10), CreatedAt: driver.FromMillis(r.Int(11)), SetAsideAt: driver.FromMillis(r.Int(12)),
		Input: r.Blob(13), InputBlob: r.Text(14), InputSize: r.Int(15), Metadata: r.Blob(16), LastError: r.Blob(17),
		Tenant: r.Int(18), Subqueue: queue.Subqueue(r.Int(19)),
	}
}

// View is the dead letter as clients see it, of a tenant and a queue by these names.
func (d DeadLetter) View(tenant, queue string) forebay.SetAsideJob {
	return forebay.SetAsideJob{
		JobID: d.ID, Tenant: tenant, Task: d.Task, Queue: queue, Reason: d.Reason,
		Description: request.Text(d.Failure.Message), ErrorClass: d.Failure.Class, Generation: d.Generation, Attempt: d.Attempt,
		DeliveryCount: d.Deliveries, CorrelationID: request.Correlation(d.CorrelationID, d.ID),
		Tagged: forebay.Tagged{ETag: d.ETag()}, CreatedAt: d.CreatedAt, SetAsideAt: d.SetAsideAt, InputBytes: d.InputSize, Metadata: request.DecodeMetadata(d.Metadata),
		Properties: forebay.RetryProperties(d.ID, d.Attempt, d.SetAsideAt, d.CreatedAt, request.Text(d.LastError)),
	}
}
