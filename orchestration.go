package forebay

import (
	"encoding/json"
	"time"
)

// OrchestrationStatus is the status of an orchestration, by Durable Functions' names.
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

// OrchestrationStatuses lists all statuses.
var OrchestrationStatuses = []OrchestrationStatus{OrchestrationPending, OrchestrationRunning, OrchestrationSuspended,
	OrchestrationCompleted, OrchestrationFailed, OrchestrationTerminated, OrchestrationCanceled}

// Terminal reports whether the orchestration is over. Afterwards only a restart or a rewind
// changes it.
func (s OrchestrationStatus) Terminal() bool {
	switch s {
	case OrchestrationCompleted, OrchestrationFailed, OrchestrationTerminated, OrchestrationCanceled:
		return true
	}
	return false
}

// Orchestration is an instance of an orchestrator. Its JSON uses Durable Functions' names.
type Orchestration struct {
	ID           string                `json:"instanceId"`
	Name         string                `json:"name"`    // of the orchestrator
	Version      string                `json:"version"` // of its code; "": it has none
	ParentID     string                `json:"parentInstanceId,omitempty"`
	Status       OrchestrationStatus   `json:"runtimeStatus"`
	Input        json.RawMessage       `json:"input"`
	Output       json.RawMessage       `json:"output"`
	CustomStatus json.RawMessage       `json:"customStatus"`
	Failure      *OrchestrationFailure `json:"failure"`
	CreatedAt    time.Time             `json:"createdTime"`
	StartedAt    *time.Time            `json:"startedTime"`
	UpdatedAt    time.Time             `json:"lastUpdatedTime"`
	CompletedAt  *time.Time            `json:"completedTime"`
}

// OrchestrationFailure is why an orchestration or an activity failed.
type OrchestrationFailure struct {
	Type         string                `json:"type"`
	Message      string                `json:"message"`
	NonRetryable bool                  `json:"nonRetryable,omitempty"`
	Inner        *OrchestrationFailure `json:"inner,omitempty"`
}

// FailureNonDeterministic is the type of failure of an orchestration whose code, when replayed,
// did not repeat what its history says.
const FailureNonDeterministic = "NonDeterministic"

// OrchestrationEvent is an event of an orchestration's history. The fields that are set depend on
// its type: "TaskScheduled", "TaskCompleted", "TimerFired", "EventRaised" and so on. Its JSON is
// that of Durable Functions too.
type OrchestrationEvent struct {
	Type        string                `json:"EventType"`
	Timestamp   time.Time             `json:"Timestamp"`
	EventID     int                   `json:"EventId"` // -1: nothing refers to it
	Name        string                `json:"Name,omitempty"`
	Function    string                `json:"FunctionName,omitempty"`    // that was called, where the history is a summary
	ScheduledAt *time.Time            `json:"ScheduledTime,omitempty"`   // of what ended, where the history is a summary
	InstanceID  string                `json:"InstanceId,omitempty"`      // of a sub-orchestration
	ScheduledID *int                  `json:"TaskScheduledId,omitempty"` // the event that this one answers
	FireAt      *time.Time            `json:"FireAt,omitempty"`
	Status      OrchestrationStatus   `json:"OrchestrationStatus,omitempty"` // how it completed
	Input       json.RawMessage       `json:"Input,omitempty"`
	Result      json.RawMessage       `json:"Result,omitempty"`
	Reason      string                `json:"Reason,omitempty"`
	Failure     *OrchestrationFailure `json:"FailureDetails,omitempty"`
}

// ActivityAttempt is one call of an activity.
type ActivityAttempt struct {
	Run               int       `json:"run"`     // from 0; another begins whenever the instance continues as new or is rewound
	EventID           int       `json:"eventId"` // of the event that scheduled the activity
	Name              string    `json:"name,omitempty"`
	Number            int       `json:"number"`
	StartedAt         time.Time `json:"startedTime"`
	FinishedAt        time.Time `json:"finishedTime"`
	Outcome           string    `json:"outcome"` // succeeded, retried, failed, lost, cut_off
	ErrorType         string    `json:"errorType,omitempty"`
	ErrorMessage      string    `json:"errorMessage,omitempty"`
	RetryDelaySeconds *float64  `json:"retryDelaySeconds"`
}

// RetryPolicy says how a failed activity is repeated. The zero value does not repeat it.
type RetryPolicy struct {
	MaxAttempts int           // in all, the first included
	First       time.Duration // before the first repeat; default 1 s
	Coefficient float64       // growth of the delay; default 2
	Max         time.Duration // longest delay; default 1 min
	Jitter      float64       // share of each delay that is drawn at random, 0 to 1
	Timeout     time.Duration // no repeat begins later than this after the activity was scheduled; 0: no limit
	// NonRetryable are types of errors after which it is not repeated.
	NonRetryable []string
}
