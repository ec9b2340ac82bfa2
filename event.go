package forebay

import (
	"encoding/json"
	"time"
)

// EventType names a change in a job's life.
type EventType string

const (
	EventAccepted       EventType = "accepted"
	EventStarted        EventType = "started"
	EventAttemptFailed  EventType = "attempt_failed"
	EventThrottled      EventType = "throttled"
	EventRetryScheduled EventType = "retry_scheduled"
	EventSucceeded      EventType = "succeeded"
	EventFailed         EventType = "failed"
	EventDeadLettered   EventType = "dead_lettered"
	EventQuarantined    EventType = "quarantined"
	EventCancelled      EventType = "cancelled"
	EventExpired        EventType = "expired"
	EventRedriven       EventType = "redriven"
	EventReplyFailed    EventType = "reply_failed" // the answer to the job's message could not be sent

	// Events of a tenant's budget are no job's, but have the same subscribers.
	EventBudgetWarning   EventType = "budget_warning"   // 80 % of it are used
	EventBudgetExhausted EventType = "budget_exhausted" // a job does not fit into what is left
)

// JobEventTypes lists every type of event of a job.
var JobEventTypes = []EventType{
	EventAccepted, EventStarted, EventAttemptFailed, EventThrottled, EventRetryScheduled, EventSucceeded, EventFailed,
	EventDeadLettered, EventQuarantined, EventCancelled, EventExpired, EventRedriven, EventReplyFailed,
}

// ObjectEventTypes are the types of events of OpenAI's batches and responses.
var ObjectEventTypes = []EventType{
	EventBatchCompleted, EventBatchFailed, EventBatchExpired, EventBatchCancelled,
	EventResponseCompleted, EventResponseFailed, EventResponseCancelled, EventResponseIncomplete,
}

// The ends of batches, and of responses in the background, as OpenAI names them.
const (
	EventBatchCompleted     EventType = "batch.completed"
	EventBatchFailed        EventType = "batch.failed"
	EventBatchExpired       EventType = "batch.expired"
	EventBatchCancelled     EventType = "batch.cancelled"
	EventResponseCompleted  EventType = "response.completed"
	EventResponseFailed     EventType = "response.failed"
	EventResponseCancelled  EventType = "response.cancelled"
	EventResponseIncomplete EventType = "response.incomplete"
)

// ObjectEvent is an event in the shape of OpenAI's webhooks: it names the object, and its receiver
// fetches the rest.
type ObjectEvent struct {
	ID        string          `json:"id" doc:"evt_…, the same on every delivery"`
	Object    string          `json:"object" doc:"event"`
	CreatedAt int64           `json:"created_at" doc:"seconds since 1970"`
	Type      EventType       `json:"type"`
	Data      ObjectEventData `json:"data"`
}

// ObjectEventData names the object that an event is about.
type ObjectEventData struct {
	ID string `json:"id" doc:"batch_… or resp_…"`
}

// TopicJobEvents is a topic of each tenant. The events of its jobs are published to it: the body
// is the event in JSON, the subject its type. Nobody else can publish or forward to it.
const TopicJobEvents = "job-events"

// Event is one change in a job's life, written in the transaction that made the change.
type Event struct {
	Number            int64       `json:"number" doc:"1-based within the job, without gaps; the SSE event id"`
	Type              EventType   `json:"type"`
	JobID             string      `json:"job_id"`
	CorrelationID     string      `json:"correlation_id"`
	At                time.Time   `json:"at"`
	Status            Status      `json:"status" doc:"the job's status after the change"`
	Generation        int         `json:"generation"`
	Attempt           int         `json:"attempt" doc:"the number of the attempt it concerns; 0: none"`
	ErrorClass        *ErrorClass `json:"error_class,omitempty"`
	ErrorCode         string      `json:"error_code,omitempty"`
	RetryDelaySeconds *float64    `json:"retry_delay_seconds,omitempty"`

	Task     string            `json:"task"`
	Queue    string            `json:"queue"`
	Metadata map[string]string `json:"metadata" doc:"as given at submit"`
	Links    EventLinks        `json:"links"`
	Result   json.RawMessage   `json:"result,omitempty" doc:"of a job that has succeeded, if it has at most 4 KiB; else read links.result"`
}

// EventLinks are addresses of the event's job, relative to the server.
type EventLinks struct {
	Job    string `json:"job"`
	Result string `json:"result" doc:"there once the job has succeeded"`
}

// MaxEventResultBytes bounds a result that an event carries.
const MaxEventResultBytes = 4 << 10

// Describe adds to an event what it says of its job.
func (e *Event) Describe(task, queue string, metadata map[string]string) {
	links := NewLinks(e.JobID)
	e.Task, e.Queue, e.Metadata, e.Links = task, queue, metadata, EventLinks{Job: links.Self, Result: links.Result}
}
