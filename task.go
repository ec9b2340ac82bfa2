package forebay

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// Task is a kind of work that jobs ask for by name.
type Task struct {
	Name        string
	Description string
	Queue       string // where its jobs go unless they say otherwise; "" is DefaultQueue
	MaxAttempts int    // 0: the queue's
	// Model is the logical model that Run calls: a job of the task is claimed when a deployment of it
	// may be called. "": the task calls none.
	Model string
	// Estimate says what a call will need of the model, from a valid input (nil when it is too large to
	// be kept in the database; what such a one asks for is looked up when it is submitted, and its MaxOutputTokens kept) and its
	// size in bytes. nil: a token for four bytes, and as much output as
	// the deployment gives. It is asked while jobs are claimed, so it must be quick.
	Estimate func(input json.RawMessage, size int64) CallEstimate
	// Endpoint names what Run calls when that is no model: it gets a circuit breaker of its own, and no
	// more than RequestsPerMinute calls, and Concurrency at once, from all processes together; 0: as many as come.
	Endpoint          string
	RequestsPerMinute int
	Concurrency       int
	// Check reports at submit why the input cannot be worked on, or nil. It gets valid JSON.
	Check func(input json.RawMessage) error
	// Run does the work once. It must honour ctx: it is cancelled when the job is cancelled, its
	// deadline passes, its lock is lost or the server stops. It does not retry by itself.
	Run func(ctx context.Context, call TaskCall) (TaskResult, error)
	// InputSchema and OutputSchema tell callers what the task takes and returns, as JSON schemas (2020-12), and Example
	// is an input. nil: not described. Check decides what is let in, not they.
	InputSchema, OutputSchema, Example json.RawMessage
}

// CallEstimate is what a call is thought to need.
type CallEstimate struct {
	PromptTokens    int64
	MaxOutputTokens int64 // 0: the deployment's default; < 0: it has no output
}

// BytesPerToken is how many bytes of a prompt are taken for a token before a deployment has shown its own
// measure.
const BytesPerToken = 4

// TaskCall is one delivery of a job to the function that does its task.
type TaskCall struct {
	JobID         string
	Task          string
	Tenant        string
	Queue         string
	CorrelationID string
	Traceparent   string
	Generation    int
	Number        int // of this attempt within the generation, from 1
	Input         json.RawMessage
	Metadata      map[string]string
	EnqueuedAt    time.Time // when it was submitted
	ScheduledAt   time.Time // when this delivery became due
	LastError     string    // of the attempt before; "": none
	// CostLeft is what the job may still spend, if it has a limit, and TokensLeft what it may use.
	CostLeft   *Money
	TokensLeft *int64
}

// Properties returns the message's application properties, which carry its retry metadata: attempt,
// original_message_id, scheduled_at, original_enqueued_time, last_error.
func (c TaskCall) Properties() map[string]string {
	return RetryProperties(c.JobID, c.Number, c.ScheduledAt, c.EnqueuedAt, c.LastError)
}

// RetryProperties returns the application properties of a job's message.
func RetryProperties(id string, attempt int, scheduled, enqueued time.Time, lastError string) map[string]string {
	p := map[string]string{
		"attempt":                strconv.Itoa(attempt),
		"original_message_id":    id,
		"scheduled_at":           scheduled.UTC().Format(time.RFC3339Nano),
		"original_enqueued_time": enqueued.UTC().Format(time.RFC3339Nano),
	}
	if lastError != "" {
		p["last_error"] = lastError
	}
	return p
}

// TaskResult is what one call made and used. When Run returns an error the result still says which
// deployment was called and what it used.
type TaskResult struct {
	Output     json.RawMessage
	Deployment string
	Usage      TokenUsage
	Cost       Money
}

// TaskError is a failed call, sorted by what should happen next. An error that is none is transient.
type TaskError struct {
	Class      ErrorClass
	Code       string        // stable and short, such as "rate_limited", "content_filter"
	Message    string        // for operators; never holds the prompt or a secret
	RetryAfter time.Duration // what the provider asked for; 0: nothing. It wins over the retry policy
	// Uncalled says that nothing was sent (a paused deployment): no attempt is recorded at all.
	Uncalled bool
	// Unmeasured says that the call was cut off: the provider may bill for it, but nobody knows how much.
	Unmeasured bool
	Waiting    WaitReason // with ClassThrottled: why; "" is WaitQuota
	Err        error
}

func (e *TaskError) Error() string { return e.Code + ": " + e.Message }
func (e *TaskError) Unwrap() error { return e.Err }

// Permanent returns a TaskError that is not retried.
func Permanent(code, message string) *TaskError {
	return &TaskError{Class: ClassPermanent, Code: code, Message: message}
}

// AsTaskError returns err as a TaskError: the first in its chain, or a transient one made of it.
func AsTaskError(err error) *TaskError {
	var e *TaskError
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &TaskError{Class: ClassTransient, Code: "timeout", Message: "the call took too long", Unmeasured: true, Err: err}
	}
	return &TaskError{Class: ClassTransient, Code: "error", Message: err.Error(), Err: err}
}
