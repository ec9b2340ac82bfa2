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
	// Check reports at submit why the input cannot be worked on, or nil. It gets valid JSON.
	Check func(input json.RawMessage) error
	// Run does the work once. It must honour ctx: it is cancelled when the job is cancelled, its
	// deadline passes, its lock is lost or the server stops. It does not retry by itself.
	Run func(ctx context.Context, call TaskCall) (TaskResult, error)
}

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
	// CostLeft is what the job may still spend, if it has a limit.
	CostLeft *Money
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
	Waiting  WaitReason // with ClassThrottled: why; "" is WaitQuota
	Err      error
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
		return &TaskError{Class: ClassTransient, Code: "timeout", Message: "the call took too long", Err: err}
	}
	return &TaskError{Class: ClassTransient, Code: "error", Message: err.Error(), Err: err}
}
