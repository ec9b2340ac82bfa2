package jobs

import (
	"cmp"
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// ClaimRequest asks for messages of one subqueue.
type ClaimRequest struct {
	Subqueue queue.Subqueue
	Max      int           // messages, at least 1
	MaxBytes int64         // of input together; the first job is delivered whatever its size
	Lock     time.Duration //
	// A job that was delivered this often goes to FailureSubqueue instead.
	MaxDeliveries   int
	FailureSubqueue queue.SubqueueKind
	NoDeadLetters   bool           // it is over instead
	Volatile        bool           // its jobs are: see NewJob
	Spare           bool           // jobs below the default priority wait for others that want the same deployment
	Share           flows.Shares   // nil: all tenants are equal
	Plan            admission.Plan // nil: nothing holds calls back
	// Held, if set, is called with why jobs could not be called, once for each scan. It must be
	// quick.
	Held func(why forebay.WaitReason)
}

// LockedJob is a job handed to a worker under a lock.
type LockedJob struct {
	queue.Lock
	LockedUntil        time.Time
	LockedAt           time.Time
	ID                 string
	Tenant             int64
	Subqueue           queue.Subqueue
	Task               string
	Generation         int
	Number             int // of this attempt
	Attempt            int // how many were charged before this one, in this generation
	Deliveries         int // this one included
	Version            int64
	MaxAttempts        int
	MaxCost            *forebay.Money
	MaxTotalTokens     *int64
	CreatedAt          time.Time
	ScheduledAt        time.Time // when it became ready
	StartedAt          time.Time // of its generation
	Deadline           *time.Time
	CorrelationID      string
	SessionID          string
	KeyID              string // the API key whose budget pays too; "": only the tenant's does
	Traceparent        string
	Metadata           []byte
	Input              []byte // nil when InputBlob is set
	InputBlob          string
	InputSize          int64
	LastError          []byte
	Reply              []byte               // where the answer to its message goes; nil: nowhere
	Admission          *admission.Admission // nil: nothing was reserved for it
	Held               bool                 // a budget holds what it may use
	Volatile           bool                 // see NewJob
	ConcurrencyLimited bool                 // it counts in a concurrency limit
}

// Claim waits until at least one job of the subqueue is ready and returns up to Max under new
// locks. Each delivery counts. A job whose lock had expired gets an attempt with outcome "lost".
func (s *Store) Claim(ctx context.Context, req ClaimRequest) ([]LockedJob, error) {
	c := &claim{ClaimRequest: req, part: Key.In(s.Writer), Waiter: queue.NewWaiter()}
	if err := queue.Await(ctx, s.Writer, c, &c.Waiter); err != nil {
		return nil, err
	}
	return c.deliveries, nil
}

type claim struct {
	ClaimRequest
	queue.Waiter
	part       *participant
	deliveries []LockedJob
}

func (c *claim) Visit() { c.part.Add(c.Subqueue, c, nil) }

// unserve makes a claim wait again that found nothing, or whose transaction failed.
func (c *claim) unserve() {
	c.deliveries = nil
	c.State.Store(queue.ClaimWaiting)
}

// claimTx serves claims: it scans subqueues, admits jobs and locks their messages.
type claimTx struct{ *Tx }

func (t *Tx) claims() claimTx { return claimTx{t} }

// serveClaims gives ready jobs to the claims that wait, oldest first.
func (w *participant) serveClaims(t claimTx) error {
	if err := t.askAhead(); err != nil {
		return err
	}
	for subqueue, waiting := range w.Waiters {
		// A scan for nobody would delay the next one.
		if w.queue.Paused[subqueue.Queue()] || !w.HasWaiters(subqueue) || t.Volatile && !waiting[0].Volatile {
			continue
		}
		due, ok := w.DueAt[subqueue]
		stored := ok && due <= t.Now
		found, err := w.scanSubqueue(t, subqueue, stored)
		switch {
		case err != nil:
			return err
		case found == nil:
			continue
		}
		rest := waiting
		for len(rest) > 0 {
			c := rest[0]
			if !c.Begin() {
				rest = rest[1:] // its caller has gone
				continue
			}
			t.served = append(t.served, c) // before anything can fail or panic
			if err := w.serveFrom(t, found, c); err != nil {
				return err
			}
			if len(c.deliveries) == 0 {
				t.served = t.served[:len(t.served)-1]
				c.unserve()
				break
			}
			rest = rest[1:]
			t.Served++
		}
		if stored || found.retryAt > 0 {
			found.noteDue(w, t.Now)
			if ok && !stored {
				w.ScanAt(subqueue, due)
			}
		}
		if err := t.leave(found); err != nil {
			return err
		}
		found.keepFloors(found.found, found.later, found.held)
		t.After = append(t.After, func() { w.RemoveFirst(subqueue, len(waiting)-len(rest)) })
	}
	for subqueue, fresh := range t.newJobs { // their queue was paused, or nobody waits for it any more
		if err := t.storeNew(subqueue, fresh); err != nil {
			return err
		}
	}
	return nil
}

const readyColumns = `m.seq, m.lock_token, m.locked_at, m.deliveries, m.generation, m.attempt, m.number, m.version, m.deadline,
  m.started_at, m.visible_at, m.last_error, m.size,
  j.id, j.tenant, j.task, j.max_attempts, j.max_cost, j.created_at, j.correlation_id, j.traceparent,
  j.metadata, j.input, j.input_blob, m.announced, j.session_id, j.key_id, j.max_total_tokens, j.max_output_tokens, j.estimate, j.reply`

// flowColumn is the place after readyColumns, where a scan of several flows has the flow.
const flowColumn = 31

const sqlReady = "SELECT " + readyColumns + `
FROM messages m JOIN jobs j ON j.seq = m.seq
WHERE m.subqueue = ? AND m.flow = ? AND m.visible_at <= ? ORDER BY m.visible_at, m.seq LIMIT ? + 0`

// candidate is a ready job before anything was decided about it.
type candidate struct {
	LockedJob
	lostToken bool  // its lock has expired
	lostAt    int64 // when the lost delivery was locked
	deadline  int64
	flow      int64 // the id of its flow
	isNew     bool  // its message is not stored yet
	behind    bool  // it goes in the reserved share, before a job of its tenant's first level
	announced int   // the latest attempt number with a "started" event
	budgets   []*admission.Budget
	options   []admission.Option // where it could be called, once that was asked
	asked     bool
	maxOutput int64  // that an input in blob storage asks for; 0: not known
	estimate  []byte // as in NewJob
}

// planned returns where a candidate could be called. It asks once, because that may read the
// input.
func (m *candidate) planned(plan admission.Plan) []admission.Option {
	if !m.asked && plan != nil {
		m.options, m.asked = admission.Asking(plan(m.Task, m.Input, m.InputSize, request.Kept(m.estimate)), m.maxOutput), true
		source := quota.SourceOf(m.Tenant, m.Task)
		for i := range m.options {
			r := &m.options[i].Request
			r.Source = source
			if r.MaxOutputTokens == 0 && m.limited() { // the router sets a limit, so that the job's own limits hold
				r.MaxOutputTokens = cmp.Or(max(m.options[i].Limits.DefaultMaxOutputTokens, 0), quota.AssumedOutputTokens)
			}
		}
	}
	return m.options
}

func readCandidate(r driver.Row, subqueue queue.Subqueue) candidate {
	c := candidate{
		LockedJob: LockedJob{
			Lock: queue.Lock{Seq: r.Int(0)}, Subqueue: subqueue,
			Deliveries: int(r.Int(3)), Generation: int(r.Int(4)), Attempt: int(r.Int(5)), Number: int(r.Int(6)), Version: r.Int(7),
			Deadline: driver.FromMillisOrNil(r, 8), ScheduledAt: driver.FromMillis(r.Int(10)), LastError: r.Blob(11), InputSize: r.Int(12),
			ID: r.Text(13), Tenant: r.Int(14), Task: r.Text(15), MaxAttempts: int(r.Int(16)),
			CreatedAt: driver.FromMillis(r.Int(18)), CorrelationID: r.Text(19), Traceparent: r.Text(20),
			Metadata: r.Blob(21), Input: r.Blob(22), InputBlob: r.Text(23), SessionID: r.Text(25), KeyID: r.Text(26), Reply: r.Blob(30),
		},
		lostToken: !r.IsNull(1), lostAt: r.Int(2), deadline: r.Int(8), announced: int(r.Int(24)), maxOutput: r.Int(28), estimate: r.Blob(29),
	}
	if !r.IsNull(9) {
		c.StartedAt = driver.FromMillis(r.Int(9))
	}
	if !r.IsNull(17) {
		cost := forebay.Money(r.Int(17))
		c.MaxCost = &cost
	}
	c.MaxTotalTokens = driver.IntOrNil(r, 27)
	return c
}

var sqlLock = driver.BatchForm(`
UPDATE messages SET visible_at = ?, lock_token = ?, locked_at = ?, deliveries = deliveries + 1, number = ?, version = ?,
  started_at = coalesce(started_at, ?), announced = ?, waiting = NULL, deployment = ?, reserved = ?, process = ? WHERE seq = ?`,
	`UPDATE messages m SET visible_at = p1, lock_token = p2, locked_at = p3, deliveries = deliveries + 1, number = p4, version = p5,
  started_at = coalesce(started_at, p6), announced = p7, waiting = NULL, deployment = p8, reserved = p9, process = p10
FROM %s WHERE m.seq = ANY (ARRAY[p11])`)

// take locks a candidate for the claim, unless it has expired or had too many deliveries.
func (t claimTx) take(m *candidate, c *claim) error {
	if m.lostToken {
		if err := t.recordLost(m); err != nil {
			return err
		}
	}
	if m.deadline > 0 && m.deadline <= t.Now {
		return t.expire(ending{seq: m.Seq, task: m.Task, generation: m.Generation, attempt: m.Attempt, version: m.Version + 1, started: m.started(),
			session: m.session(), correlation: m.CorrelationID, asker: m.asker()})
	}
	if c.MaxDeliveries > 0 && m.Deliveries >= c.MaxDeliveries {
		return t.exceedDeliveries(m, c)
	}
	m.Token, m.Volatile = queue.NewToken(), c.Volatile
	m.LockedAt = driver.FromMillis(t.Now)
	m.LockedUntil = m.LockedAt.Add(c.Lock)
	m.Deliveries++
	m.Number++
	// A delivery that was released without a call gave its number back. Its start has an event
	// already.
	first := m.Number > m.announced
	if first {
		m.announced = m.Number
		m.Version++
	}
	if m.StartedAt.IsZero() {
		m.StartedAt = m.LockedAt
	}
	if err := t.lock(m); err != nil {
		return err
	}
	if err := t.budgets().hold(m); err != nil {
		return err
	}
	if err := t.concurrency().take(m); err != nil {
		return err
	}
	c.deliveries = append(c.deliveries, m.LockedJob)
	if !first {
		t.Changed(m.Seq)
		return nil
	}
	started := event{seq: m.Seq, tenant: m.Tenant, queue: m.Subqueue.Queue(), number: m.Version, kind: forebay.EventStarted, status: forebay.StatusRunning, generation: m.Generation, attempt: m.Number}
	if m.Version == firstStart {
		t.Changed(m.Seq)
		return t.publish(started)
	}
	return t.event(started)
}

// lock writes a candidate's new lock.
func (t claimTx) lock(m *candidate) error {
	until := m.LockedUntil.UnixMilli()
	if m.isNew {
		return t.storeLocked(m, until)
	}
	st := t.Prep(sqlLock).Int(until).Int(m.Token).Int(t.Now).Int(int64(m.Number)).Int(m.Version).Int(t.Now).Int(int64(m.announced))
	return t.bindCall(st, m).Int(m.Seq).Exec()
}

// bindCall binds where the call of a candidate goes, what is reserved for it, and who makes it.
func (t claimTx) bindCall(st driver.Statement, m *candidate) driver.Statement {
	var deployment string
	var reserved int64
	if m.Admission != nil {
		amount := m.Admission.Reservation.Amount
		deployment, reserved = m.Admission.Deployment, amount[quota.Tokens]+amount[quota.OutputTokens]
	}
	return st.TextOrNull(deployment).IntOrNull(reserved).IntOrNull(t.w.store.Process.Load())
}

// started is when the generation began, in milliseconds; 0: never.
func (m *candidate) started() int64 {
	if m.StartedAt.IsZero() {
		return 0
	}
	return m.StartedAt.UnixMilli()
}

func (t claimTx) exceedDeliveries(m *candidate, c *claim) error {
	why := Failure{Class: forebay.ClassTransient, Code: "MaxDeliveryCountExceeded", Message: []byte("delivered as often as the queue allows without an outcome: its worker may be dying of it")}
	if !c.NoDeadLetters {
		return t.deadLetter(deadLetter{seq: m.Seq, task: m.Task, to: queue.SubqueueOf(m.Subqueue.Queue(), c.FailureSubqueue), generation: m.Generation, attempt: m.Attempt, number: m.Number,
			version: m.Version, started: m.started(), failure: why, reason: why.Code, session: m.session(), correlation: m.CorrelationID,
			asker: m.asker()})
	}
	if err := t.Prep(queue.SQLDeleteMessage).Int(m.Seq).Exec(); err != nil {
		return err
	}
	return t.end(ending{seq: m.Seq, task: m.Task, status: forebay.StatusFailed, generation: m.Generation, attempt: m.Attempt, number: m.Number, version: m.Version + 1,
		started: m.started(), failure: why, session: m.session(), correlation: m.CorrelationID, asker: m.asker()}, forebay.EventFailed)
}

// releaseOrphans makes every locked job ready at once: the process that held the locks is dead.
// The next claim records the lost attempts. Locks of plain messages stay, because their receivers
// are other processes.
func (t claimTx) releaseOrphans() error {
	return t.Prep("UPDATE messages SET visible_at = ? WHERE lock_token IS NOT NULL AND visible_at > ? AND subqueue / 4 NOT IN (SELECT no FROM queues WHERE kind = 'messages')").
		Int(t.Now).Int(t.Now).Exec()
}
