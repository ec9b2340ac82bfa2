package forebay

import (
	"encoding/json"
	"slices"
	"time"
)

// Status is where a job stands in its life. The last four are terminal: a terminal status never
// changes again, except by a redrive, which starts the next generation.
type Status string

const (
	StatusScheduled Status = "scheduled" // waits for its scheduled time
	StatusQueued    Status = "queued"    // may run as soon as a worker is free
	StatusRunning   Status = "running"   // locked by a worker
	StatusRetrying  Status = "retrying"  // an attempt failed; waits in the retry lane
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed" // set aside: dead-lettered or quarantined
	StatusCancelled Status = "cancelled"
	StatusExpired   Status = "expired" // its deadline passed first
)

// Statuses lists every status in the order of a job's life.
var Statuses = []Status{
	StatusScheduled, StatusQueued, StatusRunning, StatusRetrying,
	StatusSucceeded, StatusFailed, StatusCancelled, StatusExpired,
}

// Terminal reports whether the status is final for its generation.
func (s Status) Terminal() bool {
	switch s {
	case StatusSucceeded, StatusFailed, StatusCancelled, StatusExpired:
		return true
	}
	return false
}

// Valid reports whether s is a status Forebay knows.
func (s Status) Valid() bool {
	for _, known := range Statuses {
		if s == known {
			return true
		}
	}
	return false
}

// WaitReason says why a queued or retrying job does not run right now.
type WaitReason string

const (
	WaitQuota   WaitReason = "quota"   // the provider throttled; waits for its quota
	WaitBreaker WaitReason = "breaker" // the deployment's circuit breaker is open
	WaitBudget  WaitReason = "budget"  // the budget of its tenant or API key has no room for it
	WaitPaused  WaitReason = "paused"  // the queue is paused
	// WaitConcurrency: its tenant or the deployment has as many calls under way as it may have at
	// once.
	WaitConcurrency WaitReason = "concurrency"
	WaitSession     WaitReason = "session"  // another job of its session runs
	WaitSchedule    WaitReason = "schedule" // its time has not come: scheduled start or retry delay
	WaitWorker      WaitReason = "worker"   // no running worker knows its task
)

// WaitReasons lists all of them.
var WaitReasons = []WaitReason{WaitQuota, WaitBreaker, WaitBudget, WaitPaused, WaitConcurrency, WaitSession, WaitSchedule, WaitWorker}

// Valid reports whether r is one that Forebay knows.
func (r WaitReason) Valid() bool { return slices.Contains(WaitReasons, r) }

// Job is a unit of AI work as clients see it.
type Job struct {
	ID         string      `json:"id"`
	Status     Status      `json:"status"`
	WaitingFor *WaitReason `json:"waiting_for"`
	WaitingOn  []WaitCause `json:"waiting_on,omitempty" doc:"what that is, by name; deployments only in the answer about one job"`
	// QueuePosition and the expected start are set while the job is ready and waits. They are only
	// in the answer about one job, and null if unknown.
	QueuePosition        *int64            `json:"queue_position" doc:"1 is next, in its lane of the queue; an estimate with several tenants, and where queue_position_at_least is given; only in the answer about one job that is ready"`
	QueuePositionAtLeast *int64            `json:"queue_position_at_least,omitempty" doc:"where more are ahead than are counted: queue_position is an estimate then, and this what was counted"`
	ExpectedStartAt      *time.Time        `json:"expected_start_at" doc:"an estimate for a job that waits, where there is something to tell it by; only in the answer about one job"`
	Task                 string            `json:"task"`
	Queue                string            `json:"queue"`
	Tenant               string            `json:"tenant"`
	Priority             int               `json:"priority" doc:"0 (last) to 9 (first)"`
	SessionID            *string           `json:"session_id"`
	CorrelationID        string            `json:"correlation_id" doc:"as given at submit, else the job's id"`
	Generation           int               `json:"generation" doc:"starts at 1; each redrive adds one"`
	Attempt              int               `json:"attempt" doc:"attempts charged in this generation; throttled and interrupted calls are not charged"`
	MaxAttempts          int               `json:"max_attempts"`
	CreatedAt            time.Time         `json:"created_at"`
	ScheduledAt          *time.Time        `json:"scheduled_at" doc:"when it may start next, if that is not now"`
	Deadline             *time.Time        `json:"deadline"`
	StartedAt            *time.Time        `json:"started_at"`
	RunningAttempt       *RunningAttempt   `json:"running_attempt,omitempty" doc:"the call that is under way, while the status is running"`
	CompletedAt          *time.Time        `json:"completed_at"`
	MaxCostUSD           *Money            `json:"max_cost_usd"`
	MaxTotalTokens       *int64            `json:"max_total_tokens"`
	Result               json.RawMessage   `json:"result" doc:"null until succeeded, and when over the inline limit: then read links.result"`
	ResultWithheld       bool              `json:"result_withheld,omitempty" doc:"there is a result, and the key may not open it: result is null"`
	Error                *JobError         `json:"error"`
	Usage                Usage             `json:"usage" doc:"summed over all attempts"`
	Metadata             map[string]string `json:"metadata"`
	Links                Links             `json:"links"`
	ReplyTo              *ReplyTo          `json:"reply_to,omitempty" doc:"where a message says how the job has ended, if it was made of a message that asked for that"`
}

// WaitCause is something that a job waits for.
type WaitCause struct {
	Kind   CauseKind  `json:"kind" enum:"deployment,tenant,key,queue,session"`
	Name   string     `json:"name" doc:"of the deployment, the tenant, the queue or the session; the id of a key"`
	Reason WaitReason `json:"reason" doc:"as waiting_for: of a deployment its breaker, its quota, a pause or its concurrency, of a tenant or key the budget, a pause or the concurrency"`
	Until  *time.Time `json:"until,omitempty" doc:"when an open breaker lets a call try, or a pause ends that the provider asked for"`
}

// CauseKind says what a job waits for.
type CauseKind string

// What a job can wait for.
const (
	CauseDeployment CauseKind = "deployment"
	CauseTenant     CauseKind = "tenant" // its budget, a pause, or its concurrency
	CauseKey        CauseKind = "key"    // the budget of the API key that submitted it
	CauseQueue      CauseKind = "queue"  // it is paused
	CauseSession    CauseKind = "session"
)

// ReplyTo is where a message goes that says how a job has ended. The fields are those of that
// message.
type ReplyTo struct {
	Entity        string `json:"entity" doc:"the queue or topic of messages, as the request named it; a long name is cut"`
	SessionID     string `json:"session_id,omitempty"`
	CorrelationID string `json:"correlation_id" doc:"the message id of the request"`
}

// ReplyReference is the body of a reply about a result that does not fit into a message. The
// application property "claim_check" is then true.
type ReplyReference struct {
	JobID       string     `json:"job_id"`
	ResultBytes int64      `json:"result_bytes"`
	Links       EventLinks `json:"links"`
}

// ReplyError is the body of a reply about a job without a result.
type ReplyError struct {
	Error *JobError `json:"error" doc:"null if the job was cancelled"`
}

// MaxReplyBytes is the most bytes of a reply, whatever [DefaultMaxMessageBytes] was changed to.
const MaxReplyBytes = DefaultMaxMessageBytes

// JobError says why a job ended without a result, or why its last attempt failed.
type JobError struct {
	Class   ErrorClass `json:"class"`
	Code    string     `json:"code"`
	Message string     `json:"message"`
}

// Links are the job's addresses, relative to the server.
type Links struct {
	Self     string `json:"self"`
	Events   string `json:"events"`
	Attempts string `json:"attempts"`
	Cancel   string `json:"cancel"`
	Result   string `json:"result"`
}

// NewLinks returns the addresses of the job with that id.
func NewLinks(id string) Links {
	// One string holds them all, for this runs for each submit.
	const base = "/v1/jobs/"
	all := base + id + base + id + "/events" + base + id + "/attempts" + base + id + "/cancel" + base + id + "/result"
	self := len(base) + len(id)
	cut := func(suffix int) (link string) {
		link, all = all[:self+suffix], all[self+suffix:]
		return link
	}
	return Links{Self: cut(0), Events: cut(len("/events")), Attempts: cut(len("/attempts")), Cancel: cut(len("/cancel")), Result: cut(len("/result"))}
}

// SubmitRequest is a job to submit. Only Task and Input are required.
type SubmitRequest struct {
	Task           string            `json:"task" doc:"a built-in or configured task"`
	Input          json.RawMessage   `json:"input" doc:"text, or any JSON the task defines"`
	Queue          string            `json:"queue,omitempty" doc:"default: the task's queue, else \"default\""`
	Priority       *int              `json:"priority,omitempty" minimum:"0" maximum:"9" doc:"0 (last) to 9 (first); default 5"`
	SessionID      *string           `json:"session_id,omitempty" doc:"jobs of one session, in one queue, run one after the other, in the order they were submitted"`
	CorrelationID  *string           `json:"correlation_id,omitempty"`
	ScheduledAt    *time.Time        `json:"scheduled_at,omitempty" doc:"do not start before this time"`
	Deadline       *time.Time        `json:"deadline,omitempty" doc:"if it has not ended by then it expires"`
	MaxAttempts    *int              `json:"max_attempts,omitempty" minimum:"1" maximum:"100"`
	MaxCostUSD     *Money            `json:"max_cost_usd,omitempty" doc:"what it may cost, in US dollars, over all attempts"`
	MaxTotalTokens *int64            `json:"max_total_tokens,omitempty" minimum:"1" maximum:"1000000000000" doc:"tokens it may use, input and output together, over all attempts"`
	Metadata       map[string]string `json:"metadata,omitempty"`

	// IdempotencyKey and Traceparent travel as the headers Idempotency-Key and traceparent of
	// POST /v1/jobs, and as fields of a line of POST /v1/jobs/bulk.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	Traceparent    string `json:"traceparent,omitempty"`

	ReplyTo *ReplyTo `json:"-"` // only of jobs that are made of messages
}

// SubmitResult is one line of a bulk submit's answer: either a job or an error.
type SubmitResult struct {
	Line     int    `json:"line" doc:"1-based line of the request; blank lines count"`
	Job      *Job   `json:"job,omitempty"`
	Existing bool   `json:"existing,omitempty" doc:"the idempotency key had already made this job"`
	Error    *Error `json:"error,omitempty"`
}

// JobFilter selects jobs; zero fields select everything.
type JobFilter struct {
	ID            string // one job
	Status        []Status
	Queue         string
	Task          string
	CorrelationID string
	SessionID     string
	Priority      *int
	Metadata      map[string]string // all of these
	WaitingFor    WaitReason
	AllTenants    bool       // jobs of every tenant
	CreatedAfter  *time.Time // that time included
	CreatedBefore *time.Time
	Limit         int // 1 to MaxPageSize; 0 is DefaultPageSize
	Cursor        string
}

// Page is one page of a list, newest first. NextCursor is empty on the last page; a page may hold
// fewer items than asked and still have a successor.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor"`
	// SearchedTo is set by lists that look at so many jobs and no more.
	SearchedTo *time.Time `json:"searched_to,omitempty" doc:"of jobs, if there is a next page: when the last job was made that was looked at"`
	// More is set by lists that have at most so many items and no next page.
	More bool `json:"more,omitempty" doc:"of sign-ins: there are more than the list has"`
}
