package jobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
)

// NewJob is a job to store. It has been validated.
type NewJob struct {
	ID             string
	Tenant         int64
	Queue          int64
	Task           string
	Class          int // of what it calls, below flows.Classes
	Priority       int
	MaxAttempts    int
	MaxCost        *forebay.Money
	MaxTotalTokens *int64 // input and output of all attempts
	ScheduledAt    *time.Time
	Deadline       *time.Time
	CorrelationID  string // "": none
	Traceparent    string
	Metadata       []byte
	Input          []byte // nil when InputBlob is set
	InputBlob      string
	InputSize      int64
	// MaxOutputTokens is what an input in blob storage asks for, which a claim cannot read. 0: as
	// much as any input.
	MaxOutputTokens int64
	Estimate        []byte // JSON: what else is known of the call of such an input; nil: nothing
	SessionID       string // "": none
	KeyID           string // the API key whose budget pays as well; "": none
	Reply           []byte // where the answer to its message goes, by request.EncodeReply; nil: nowhere
	IdempotencyKey  string // "": none
	BodyHash        []byte // of the request, to compare repeats of the key
	Caller          Caller // whose activity this job is; nil: nobody's
	Volatile        bool   // what happens to it may be lost to a loss of power: nobody waits for it then
	Refusal         error  // of what is not a repeat of a key; nil: it is not refused
}

// Caller is an activity of an orchestration that waits for a job.
type Caller interface {
	// Await makes it wait until the job with that number has ended. It returns
	// forebay.ErrLockLost if the activity does not wait any more.
	Await(t *db.Tx, seq int64) error
}

// Submitted says what became of a NewJob.
type Submitted struct {
	Seq       int64 // 0: the job existed before
	ID        string
	CreatedAt time.Time
	Existing  bool // the idempotency key had made the job with this ID before
	Held      bool // another job of its session comes first
	Err       error
}

// rowBytes is about what the rows of a job take beside its payload.
const rowBytes = 512

// Submit stores the jobs, each with its message, its idempotency key and its first event. Each
// job has its own Err: a key used with another body refuses that job alone.
func (s *Store) Submit(ctx context.Context, jobs []NewJob) ([]Submitted, error) {
	size := 0
	key, asks, volatile := "", false, true
	for i := range jobs {
		size += len(jobs[i].Input) + len(jobs[i].Metadata) + len(jobs[i].IdempotencyKey) + len(jobs[i].SessionID) + rowBytes
		key = cmp.Or(key, jobs[i].IdempotencyKey)
		volatile = volatile && jobs[i].Volatile
		asks = asks || jobs[i].IdempotencyKey != "" || jobs[i].SessionID != ""
	}
	var tenant int64
	if len(jobs) > 0 {
		tenant = jobs[0].Tenant
	}
	o := db.Op{Stage: db.StageSubmit, Party: tenant, Rows: len(jobs), Numbers: len(jobs), Size: size, Key: key,
		Local: true, Interleaves: true, Volatile: volatile}
	if asks {
		o.Asks = func() []driver.Prefetch { return prefetchesOf(jobs) }
	}
	return db.TransactIn(ctx, Key, s.writerFor(jobs), o, func(t *Tx) ([]Submitted, error) {
		results := make([]Submitted, len(jobs))
		for i := range jobs {
			var err error
			if results[i], err = t.Submit(&jobs[i]); err != nil {
				return nil, err
			}
		}
		return results, nil
	})
}

// prefetchesOf is what the submission of the jobs reads.
func prefetchesOf(jobs []NewJob) (asks []driver.Prefetch) {
	for i := range jobs {
		if jobs[i].IdempotencyKey != "" {
			asks = append(asks, jobs[i].prefetchMadeBefore())
		}
		if jobs[i].SessionID != "" {
			asks = append(asks, jobs[i].session().prefetchTurn())
		}
	}
	return asks
}

// AtOnce is how many jobs one call of Submit should store. A transaction takes all jobs of a
// call, and others wait for it.
func (s *Store) AtOnce() int {
	if s.Writer.Parties.Now() {
		return db.SharedRows
	}
	return mostAtOnce
}

const mostAtOnce = 128

var sqlInsertJob = driver.Only(`
INSERT INTO jobs (seq, id, tenant, queue, task, priority, max_attempts, max_cost, max_total_tokens, created_at, scheduled_at, deadline,
  correlation_id, traceparent, metadata, input, input_blob, input_size, session_id, key_id, max_output_tokens, estimate, reply)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, driver.Rows{Table: "jobs", Of: "job id", By: 2})

const sqlInsertMessage = `
INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant, deadline, waiting) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`

func (t *Tx) Submit(j *NewJob) (Submitted, error) {
	if j.IdempotencyKey != "" {
		made, found, err := t.madeBefore(j)
		if err != nil || found {
			return made, err
		}
	}
	if j.Refusal != nil {
		return Submitted{Err: j.Refusal}, nil
	}
	// Only now, because a repeat of a key gets its job even after the deadline has passed.
	if at := driver.Millis(j.Deadline); at > 0 && at <= t.Now {
		return Submitted{Err: forebay.Invalid("deadline", "has passed already")}, nil
	}
	seq, err := t.Queue.JobSeq()
	if err != nil {
		return Submitted{}, err
	}
	if j.Caller != nil {
		if err := j.Caller.Await(t.Tx, seq); errors.Is(err, forebay.ErrLockLost) {
			return Submitted{Err: forebay.ErrLockLost}, nil
		} else if err != nil {
			return Submitted{}, err
		}
	}
	insert := t.Prep(sqlInsertJob).Int(seq).Text(j.ID).Int(j.Tenant).Int(j.Queue).Text(j.Task).
		Int(int64(j.Priority)).Int(int64(j.MaxAttempts))
	// Neither limit is 0.
	var maxCost, maxTokens int64
	if j.MaxCost != nil {
		maxCost = int64(*j.MaxCost)
	}
	if j.MaxTotalTokens != nil {
		maxTokens = *j.MaxTotalTokens
	}
	err = insert.IntOrNull(maxCost).IntOrNull(maxTokens).Int(t.Now).IntOrNull(driver.Millis(j.ScheduledAt)).IntOrNull(driver.Millis(j.Deadline)).TextOrNull(j.CorrelationID).TextOrNull(j.Traceparent).
		Blob(j.Metadata).Blob(j.Input).TextOrNull(j.InputBlob).Int(j.InputSize).TextOrNull(j.SessionID).TextOrNull(j.KeyID).IntOrNull(j.MaxOutputTokens).Blob(j.Estimate).Blob(j.Reply).Exec()
	if err != nil {
		return Submitted{}, err
	}
	visible := max(t.Now, driver.Millis(j.ScheduledAt))
	subqueue := queue.SubqueueOf(j.Queue, queue.SubqueueMain)
	made := Submitted{Seq: seq, ID: j.ID, CreatedAt: driver.FromMillis(t.Now)}
	waiting := ""
	if j.SessionID != "" {
		if visible, waiting, err = t.sessions().join(j.session(), seq, visible, 0); err != nil {
			return Submitted{}, err
		}
		made.Held = waiting != ""
	}
	// Which job of a session has the turn shows only in stored messages.
	if visible == t.Now && j.SessionID == "" && t.claims().handsOff(subqueue, j) {
		t.newJobs[subqueue] = append(t.newJobs[subqueue], newCandidate(j, seq, subqueue, t.Now))
	} else {
		err = t.Prep(sqlInsertMessage).Int(seq).Int(int64(subqueue)).Int(flows.ID(j.Tenant, j.Class, j.Priority)).Int(visible).
			Int(j.InputSize).Int(j.Tenant).IntOrNull(driver.Millis(j.Deadline)).TextOrNull(waiting).Exec()
		if err != nil {
			return Submitted{}, err
		}
		t.Due(subqueue, flows.ID(j.Tenant, j.Class, j.Priority), visible)
	}
	if j.IdempotencyKey != "" {
		err := t.Prep("INSERT INTO idempotency (tenant, key, body_hash, seq, created_at) VALUES (?, ?, ?, ?, ?)").
			Int(j.Tenant).Text(j.IdempotencyKey).Blob(j.BodyHash).Int(seq).Int(t.Now).Exec()
		if err != nil {
			return Submitted{}, err
		}
	}
	t.deadlineAt(driver.Millis(j.Deadline))
	accepted := event{seq: seq, tenant: j.Tenant, queue: j.Queue, number: 1, kind: forebay.EventAccepted, status: forebay.StatusQueued, generation: 1}
	if visible > t.Now && !made.Held {
		accepted.status = forebay.StatusScheduled
	}
	if err := t.publish(accepted); err != nil {
		return Submitted{}, err
	}
	return made, nil
}

// madeBefore is the job that an idempotency key has made.
type madeBefore struct {
	hash      []byte
	id        string // "": the job was purged
	createdAt int64
}

const sqlMadeBefore = "SELECT i.body_hash, j.id, j.created_at FROM idempotency i LEFT JOIN jobs j ON j.seq = i.seq WHERE i.tenant = ? AND i.key = ?"

// prefetchMadeBefore is what madeBefore asks.
func (j *NewJob) prefetchMadeBefore() driver.Prefetch {
	return driver.NewPrefetch(sqlMadeBefore, driver.RowName{Of: "idempotency", No: j.Tenant, ID: j.IdempotencyKey}).Int(j.Tenant).Text(j.IdempotencyKey)
}

func readMadeBefore(r driver.Row) madeBefore { return madeBefore{r.Blob(0), r.Text(1), r.Int(2)} }

// madeBefore returns the job that the idempotency key has made, or a refusal if that was another
// request.
func (t *Tx) madeBefore(j *NewJob) (made Submitted, found bool, err error) {
	var before madeBefore
	found, err = t.Prep(sqlMadeBefore).Int(j.Tenant).Text(j.IdempotencyKey).One(func(r driver.Row) { before = readMadeBefore(r) })
	switch {
	case err != nil || !found:
	case before.id == "":
		made = Submitted{Err: errJobPurged}
	case !bytes.Equal(before.hash, j.BodyHash):
		refusal := forebay.Errorf(forebay.CodeIdempotencyMismatch, "this idempotency key was used with another request")
		refusal.JobID = before.id
		made = Submitted{Err: refusal}
	default:
		made = Submitted{ID: before.id, CreatedAt: driver.FromMillis(before.createdAt), Existing: true}
	}
	return made, found, err
}

// A key outlives its job, so that it never makes a second one.
var errJobPurged = forebay.Errorf(forebay.CodeGone, "this idempotency key made a job that was purged since")

// deadlineAt records that a deadline is due at that time; 0: there is none.
func (t *Tx) deadlineAt(at int64) {
	if at > 0 && (t.wake == 0 || at < t.wake) {
		t.wake = at
	}
}
