package forebay

import (
	"slices"
	"time"
)

// EventTypes lists every type of event: of a job, a budget, a document, a batch and a response.
var EventTypes = slices.Concat(JobEventTypes, []EventType{EventBudgetWarning, EventBudgetExhausted, EventDocumentReady, EventDocumentFailed}, ObjectEventTypes)

// EventWebhookTest is the type of the event that a webhook's test sends.
const EventWebhookTest = "webhook.test"

// Limits on webhooks.
const (
	MaxWebhooks               = 50 // of one tenant
	MaxWebhookNameBytes       = 40
	MaxWebhookURLBytes        = 2048
	MaxWebhookConcurrency     = 32
	DefaultWebhookConcurrency = 4
	MaxWebhookSecrets         = 4 // valid at the same time, during rotations
	DefaultSecretOverlap      = 24 * time.Hour
	MaxSecretOverlap          = 7 * 24 * time.Hour
	MaxRedeliveriesPerCall    = 1000 // named ones
)

// WebhookSettings say where a webhook's events go, and which events.
type WebhookSettings struct {
	URL         string      `json:"url" doc:"https, at a public address"`
	EventTypes  []EventType `json:"event_types,omitempty" doc:"default: all"`
	Concurrency int         `json:"concurrency,omitempty" doc:"deliveries at once, from all processes together: 1 to 32; default 4"`
	Disabled    bool        `json:"disabled,omitempty" doc:"gets no events; what it has waits, for up to four days"`
}

// NewWebhook is a webhook to create.
type NewWebhook struct {
	Name string `json:"name" doc:"1 to 40 letters, digits, dots, underscores and hyphens"`
	WebhookSettings
	Secret string `json:"secret,omitempty" doc:"whsec_ and 24 to 64 bytes in base64; default: a new one"`
}

// Webhook is an endpoint that the events of a tenant's jobs are delivered to.
type Webhook struct {
	Name           string      `json:"name"`
	URL            string      `json:"url"`
	EventTypes     []EventType `json:"event_types" doc:"empty: all"`
	Concurrency    int         `json:"concurrency"`
	Secret         string      `json:"secret,omitempty" doc:"only in the answer that makes it"`
	Secrets        int         `json:"secrets" doc:"how many sign: more than one during a rotation"`
	CreatedAt      time.Time   `json:"created_at"`
	UpdatedAt      time.Time   `json:"updated_at"`
	DisabledAt     *time.Time  `json:"disabled_at"`
	DisabledReason string      `json:"disabled_reason,omitempty" doc:"disabled: on request; gone: it answered 410; failing: nothing was delivered for five days; subscription_deleted"`
	Pending        int64       `json:"pending" doc:"events that wait, or are being delivered"`
	DeadLetters    int64       `json:"dead_letters" doc:"events that were given up"`
	DeliveredAt    *time.Time  `json:"delivered_at" doc:"the latest success"`
	FailingSince   *time.Time  `json:"failing_since" doc:"the first failure after it"`
	PausedUntil    *time.Time  `json:"paused_until" doc:"nothing is sent before: the endpoint asked for it, or has failed five times in a row"`
	LastTry        *WebhookTry `json:"last_try"`
	Tagged
}

// Why a webhook is disabled.
const (
	WebhookDisabled            = "disabled"
	WebhookGone                = "gone"
	WebhookFailing             = "failing"
	WebhookSubscriptionDeleted = "subscription_deleted"
)

// WebhookTry is one attempt to deliver an event.
type WebhookTry struct {
	MessageID       string     `json:"message_id" doc:"the header webhook-id, the same on every try"`
	EventType       string     `json:"event_type"`
	At              time.Time  `json:"at"`
	Number          int        `json:"number" doc:"of the event's tries, from 1"`
	Outcome         string     `json:"outcome" doc:"delivered, retry, dead_lettered"`
	Status          int        `json:"status,omitempty" doc:"of the answer"`
	Failure         string     `json:"failure,omitempty" doc:"status, timeout, resolve, address, tls, connection, config"`
	Detail          string     `json:"detail,omitempty"`
	DurationSeconds float64    `json:"duration_seconds"`
	NextTryAt       *time.Time `json:"next_try_at,omitempty"`
}

// The outcomes of attempts to deliver.
const (
	WebhookDelivered    = "delivered"
	WebhookRetry        = "retry"
	WebhookDeadLettered = "dead_lettered"
)

// WebhookDeadLetter is an event whose delivery was given up.
type WebhookDeadLetter struct {
	SequenceNumber int64     `json:"sequence_number"`
	MessageID      string    `json:"message_id"`
	EventType      string    `json:"event_type"`
	CorrelationID  string    `json:"correlation_id"`
	EnqueuedAt     time.Time `json:"enqueued_at"`
	Tries          int       `json:"tries"`
	Reason         string    `json:"reason"`
	Description    string    `json:"description"`
}

// RotateSecretRequest asks for a new secret.
type RotateSecretRequest struct {
	Secret       string   `json:"secret,omitempty" doc:"whsec_ and 24 to 64 bytes in base64; default: a new one"`
	OverlapHours *float64 `json:"overlap_hours,omitempty" doc:"how long the old ones go on signing too: 0 to 168; default 24"`
}

// RedeliverRequest names dead letters of a webhook.
type RedeliverRequest struct {
	SequenceNumbers []int64 `json:"sequence_numbers,omitempty" maxItems:"1000"`
	All             bool    `json:"all,omitempty" doc:"all dead letters, instead of numbers"`
}

// RedeliverReport says how many events will be delivered again.
type RedeliverReport struct {
	Redelivered int `json:"redelivered"`
}
