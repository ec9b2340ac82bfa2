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
	// Estimate returns what a call will need of the model, from a valid input and its size in bytes.
	// The input is nil if it is too large for the database. Such an input is estimated when it is
	// submitted, and its MaxOutputTokens is stored. A nil Estimate means a token for four bytes, and
	// as much output as the deployment gives. It must be fast, because it runs while jobs are
	// claimed.
	Estimate func(input json.RawMessage, size int64) CallEstimate
	// Endpoint names what Run calls, if that is no model. It has a circuit breaker of its own. All
	// processes together make at most RequestsPerMinute calls, and Concurrency at once. 0: no limit.
	Endpoint          string
	RequestsPerMinute int
	Concurrency       int
	// Check returns at submit why the input cannot be processed, or nil. The input is valid JSON.
	Check func(input json.RawMessage) error
	// Run does the work once and does not retry. It must honour ctx, which is cancelled when the job
	// is cancelled, its deadline passes, its lock is lost or the server stops.
	Run func(ctx context.Context, call TaskCall) (TaskResult, error)
	// InputSchema and OutputSchema are JSON schemas (2020-12) that describe what the task takes and
	// returns, and Example is an input. nil: not described. They do not decide which input is valid:
	// Check does.
	InputSchema, OutputSchema, Example json.RawMessage
}

// CallEstimate is the estimated need of a call.
type CallEstimate struct {
	PromptTokens    int64 `json:"prompt_tokens,omitempty"`
	MaxOutputTokens int64 `json:"max_output_tokens,omitempty"` // 0: the deployment's default; < 0: it has no output
	// AsOpenAI says that only a deployment may be called that takes requests of OpenAI's API as they
	// are.
	AsOpenAI bool `json:"as_openai,omitempty"`
	// AsResponses says that only a deployment may be called that speaks OpenAI's Responses API.
	AsResponses bool `json:"as_responses,omitempty"`
	// AsAnthropic says the same of Anthropic's API.
	AsAnthropic bool   `json:"as_anthropic,omitempty"`
	Model       string `json:"model,omitempty"` // the logical model that the input names; "": the task's
}

// BytesPerToken is how many bytes of a prompt count as a token before the deployment's own ratio
// is known.
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
	// CostLeft and TokensLeft are what the job may still spend and use. nil: no limit.
	CostLeft   *Money
	TokensLeft *int64
	// Written takes all that the call has written so far, for those who follow it. It may be called
	// often. nil: nobody can follow the call.
	Written func(all string)
}

// Properties returns the message's application properties with its retry metadata: attempt,
// original_message_id, scheduled_at, original_enqueued_time and last_error.
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

// TaskResult is what one call returned and used. If Run returns an error, the result still says
// which deployment was called and what it used.
type TaskResult struct {
	Output     json.RawMessage
	Deployment string
	Usage      TokenUsage
	Cost       Money
}

// TaskError is a failed call, classified by what should happen next. Any other error counts as
// transient.
type TaskError struct {
	Class      ErrorClass
	Code       string        // stable and short, such as "rate_limited", "content_filter"
	Message    string        // for operators; never holds the prompt or a secret
	RetryAfter time.Duration // what the provider asked for; 0: nothing. It wins over the retry policy
	// Uncalled says that nothing was sent, such as to a paused deployment. No attempt is recorded.
	Uncalled bool
	// Unmeasured says that the call was cut off. The provider may bill an unknown amount for it.
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

// AsTaskError returns the first TaskError in err's chain, or a transient one that wraps err.
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
