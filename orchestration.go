package forebay

import (
	"encoding/json"
	"time"
)

// OrchestrationStatus says where an orchestration stands, in the words of Durable Functions.
type OrchestrationStatus string

// The statuses of an orchestration. The last four are terminal.
const (
	OrchestrationPending    OrchestrationStatus = "Pending"   // no turn of it was taken yet
	OrchestrationRunning    OrchestrationStatus = "Running"   //
	OrchestrationSuspended  OrchestrationStatus = "Suspended" // what arrives waits until it is resumed
	OrchestrationCompleted  OrchestrationStatus = "Completed" //
	OrchestrationFailed     OrchestrationStatus = "Failed"    // its code returned an error, or changed under it
	OrchestrationTerminated OrchestrationStatus = "Terminated"
	OrchestrationCanceled   OrchestrationStatus = "Canceled"
)

// Terminal reports whether the orchestration is over. It never changes again then, but by a restart or
// a rewind.
func (s OrchestrationStatus) Terminal() bool {
	switch s {
	case OrchestrationCompleted, OrchestrationFailed, OrchestrationTerminated, OrchestrationCanceled:
		return true
	}
	return false
}

// Orchestration is an instance of an orchestrator.
type Orchestration struct {
	ID           string                `json:"id"`
	Name         string                `json:"name"`    // of the orchestrator
	Version      string                `json:"version"` // of its code; "": it has none
	ParentID     string                `json:"parent_id,omitempty"`
	Status       OrchestrationStatus   `json:"status"`
	Input        json.RawMessage       `json:"input"`
	Output       json.RawMessage       `json:"output"`
	CustomStatus json.RawMessage       `json:"custom_status"`
	Failure      *OrchestrationFailure `json:"failure"`
	CreatedAt    time.Time             `json:"created_at"`
	StartedAt    *time.Time            `json:"started_at"`
	UpdatedAt    time.Time             `json:"updated_at"`
	CompletedAt  *time.Time            `json:"completed_at"`
}

// OrchestrationFailure is why an orchestration or an activity failed.
type OrchestrationFailure struct {
	Type         string                `json:"type"`
	Message      string                `json:"message"`
	NonRetryable bool                  `json:"non_retryable,omitempty"`
	Inner        *OrchestrationFailure `json:"inner,omitempty"`
}

// FailureNonDeterministic is the type of the failure of an orchestration whose code, when it was
// replayed, did not do again what its history says it did.
const FailureNonDeterministic = "NonDeterministic"

// OrchestrationEvent is an event of an orchestration's history. Which fields are set depends on its
// type: "TaskScheduled", "TaskCompleted", "TimerFired", "EventRaised" and so on.
type OrchestrationEvent struct {
	Type        string                `json:"type"`
	Timestamp   time.Time             `json:"timestamp"`
	EventID     int                   `json:"event_id"` // -1: nothing refers to it
	Name        string                `json:"name,omitempty"`
	InstanceID  string                `json:"instance_id,omitempty"`  // of a sub-orchestration
	ScheduledID *int                  `json:"scheduled_id,omitempty"` // the event that this one answers
	FireAt      *time.Time            `json:"fire_at,omitempty"`
	Status      OrchestrationStatus   `json:"status,omitempty"` // how it completed
	Input       json.RawMessage       `json:"input,omitempty"`
	Result      json.RawMessage       `json:"result,omitempty"`
	Reason      string                `json:"reason,omitempty"`
	Failure     *OrchestrationFailure `json:"failure,omitempty"`
}

// ActivityAttempt is one call of an activity.
type ActivityAttempt struct {
	EventID           int       `json:"event_id"` // of the event that scheduled the activity
	Number            int       `json:"number"`
	StartedAt         time.Time `json:"started_at"`
	FinishedAt        time.Time `json:"finished_at"`
	Outcome           string    `json:"outcome"` // succeeded, retried, failed, lost
	ErrorType         string    `json:"error_type,omitempty"`
	ErrorMessage      string    `json:"error_message,omitempty"`
	RetryDelaySeconds *float64  `json:"retry_delay_seconds"`
}

// RetryPolicy says how an activity is repeated when it fails. The zero value does not repeat.
type RetryPolicy struct {
	MaxAttempts int           // in all, the first included
	First       time.Duration // before the first repeat; default 1 s
	Coefficient float64       // growth of the delay; default 2
	Max         time.Duration // longest delay; default 1 min
	Jitter      float64       // share of each delay that is drawn at random, 0 to 1
	Timeout     time.Duration // no repeat begins later than this after the activity was scheduled; 0: no limit
	// NonRetryable are types of errors that end it at once.
	NonRetryable []string
}
