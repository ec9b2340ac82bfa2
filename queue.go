package forebay

import (
	"encoding/json"
	"time"
)

// The subqueues of a queue. Each is a queue of its own at "<queue>/<subqueue>".
const (
	SubqueueRetry      = "$retry"           // the retry lane
	SubqueueDeadLetter = "$deadletterqueue" // exhausted and permanently failed
	SubqueueQuarantine = "$quarantine"      // the same, where the configuration says so
)

// DefaultQueue is used when neither the request nor the task names a queue.
const DefaultQueue = "default"

// SetAside is a subqueue for jobs that cannot succeed: SubqueueDeadLetter or SubqueueQuarantine.
type SetAside string

const (
	DeadLetters SetAside = SubqueueDeadLetter
	Quarantine  SetAside = SubqueueQuarantine
)

// QueueInfo is a queue with the counts of the caller's tenant.
type QueueInfo struct {
	Name             string   `json:"name"`
	Paused           bool     `json:"paused"`
	Active           int64    `json:"active" doc:"ready to run, in the main and the retry lane"`
	Scheduled        int64    `json:"scheduled" doc:"waits for a time: scheduled starts and retry delays"`
	Locked           int64    `json:"locked" doc:"held by workers"`
	Retrying         int64    `json:"retrying" doc:"of all these, how many stand in the retry lane"`
	DeadLetter       int64    `json:"dead_letter"`
	Quarantine       int64    `json:"quarantine"`
	CountsCapped     bool     `json:"counts_capped,omitempty" doc:"a count stopped at its limit: there are at least so many"`
	OldestAgeSeconds *float64 `json:"oldest_age_seconds" doc:"since the oldest active message became ready; null when none is"`
	Concurrency      int      `json:"concurrency"`
	RetryConcurrency int      `json:"retry_concurrency"`
	LockSeconds      float64  `json:"lock_seconds"`
	MaxDeliveryCount int      `json:"max_delivery_count"`
}

// SetAsideJob is a job in a dead-letter or quarantine subqueue.
type SetAsideJob struct {
	JobID         string            `json:"job_id"`
	Tenant        string            `json:"tenant"`
	Task          string            `json:"task"`
	Queue         string            `json:"queue"`
	Reason        string            `json:"reason" doc:"MaxDeliveryCountExceeded, MaxAttemptsExceeded, RetryTimeout, or the error's code"`
	Description   string            `json:"description"`
	ErrorClass    ErrorClass        `json:"error_class"`
	Generation    int               `json:"generation"`
	Attempt       int               `json:"attempt"`
	DeliveryCount int               `json:"delivery_count"`
	CorrelationID string            `json:"correlation_id"`
	CreatedAt     time.Time         `json:"created_at"`
	SetAsideAt    time.Time         `json:"set_aside_at"`
	InputBytes    int64             `json:"input_bytes"`
	Metadata      map[string]string `json:"metadata"`
	Properties    map[string]string `json:"application_properties"`
	Input         json.RawMessage   `json:"input,omitempty" doc:"only when one job is peeked"`
	InputWithheld bool              `json:"input_withheld,omitempty" doc:"the key may not open the input"`
	Tagged
}

// SetAsideAcross selects set-aside jobs of several queues.
type SetAsideAcross struct {
	Queue      string // "": every queue
	AllTenants bool   // of every tenant
	Filter     SetAsideFilter
}

// SetAsideGroup counts the jobs that were set aside for one reason in one task.
type SetAsideGroup struct {
	Reason       string    `json:"reason"`
	Task         string    `json:"task"`
	Count        int       `json:"count"`
	Newest       time.Time `json:"newest" doc:"when the latest of them was set aside"`
	Oldest       time.Time `json:"oldest" doc:"when the first of them was set aside"`
	ExampleJobID string    `json:"example_job_id" doc:"the newest job of the group"`
}

// SetAsideGroups are set-aside jobs, counted by reason and task.
type SetAsideGroups struct {
	Groups     []SetAsideGroup `json:"groups" doc:"the largest first"`
	Counted    int             `json:"counted" doc:"jobs in all groups, and other"`
	Other      int             `json:"other" doc:"jobs of further groups, beyond 500"`
	Complete   bool            `json:"complete" doc:"every job was looked at; otherwise only the newest"`
	SearchedTo *time.Time      `json:"searched_to,omitempty" doc:"when the last job was made that was looked at, unless all were"`
}

// SetAsideFilter selects set-aside jobs; zero fields select everything of the queue.
type SetAsideFilter struct {
	JobIDs        []string   `json:"job_ids,omitempty"`
	Task          string     `json:"task,omitempty"`
	Reason        string     `json:"reason,omitempty"`
	CorrelationID string     `json:"correlation_id,omitempty"`
	Before        *time.Time `json:"before,omitempty" doc:"set aside before this time"`
	After         *time.Time `json:"after,omitempty" doc:"set aside at or after this time"`
	ErrorClass    ErrorClass `json:"error_class,omitempty" doc:"of the error that it failed with"`
}

// Empty reports whether the filter selects everything.
func (f SetAsideFilter) Empty() bool {
	return len(f.JobIDs) == 0 && f.Task == "" && f.Reason == "" && f.CorrelationID == "" && f.Before == nil && f.After == nil && f.ErrorClass == ""
}

// RedriveRequest sends set-aside jobs back as their next generation.
type RedriveRequest struct {
	Filter        SetAsideFilter `json:"filter,omitempty"`
	All           bool           `json:"all,omitempty" doc:"must be true for an empty filter, but in a dry run"`
	DryRun        bool           `json:"dry_run,omitempty"`
	RatePerSecond float64        `json:"rate_per_second,omitempty" minimum:"0" doc:"spreads the new starts; 0: at once"`
	Max           int            `json:"max,omitempty" minimum:"0" maximum:"100000" doc:"at most this many; 0: all"`
	Edit          *RedriveEdit   `json:"edit,omitempty" doc:"needs a filter of exactly one job id"`
}

// RedriveEdit replaces parts of a set-aside job before it runs again.
type RedriveEdit struct {
	Input       json.RawMessage `json:"input,omitempty"`
	Task        string          `json:"task,omitempty"`
	MaxAttempts *int            `json:"max_attempts,omitempty" minimum:"1" maximum:"100"`
}

// RedriveReport says what a redrive did, or would do.
type RedriveReport struct {
	DryRun   bool           `json:"dry_run"`
	Matched  int            `json:"matched"`
	Redriven int            `json:"redriven"`
	Skipped  int            `json:"skipped" doc:"gone by the time: another redrive or purge took them"`
	Reasons  map[string]int `json:"reasons" doc:"matched jobs by reason"`
	JobIDs   []string       `json:"job_ids" doc:"the first hundred"`
}

// PurgeJobsRequest selects the jobs of a tenant to delete for good, with everything known of
// them. It does not select jobs in the dead-letter and quarantine subqueues, which must be purged
// there first.
type PurgeJobsRequest struct {
	Before time.Time `json:"before" doc:"those that ended before this time"`
	Status []Status  `json:"status,omitempty" doc:"only those that ended like this; default: succeeded, failed, cancelled and expired"`
	DryRun bool      `json:"dry_run,omitempty" doc:"count them only"`
	Cursor string    `json:"cursor,omitempty" doc:"next_cursor of the answer before"`
}

// PurgeJobsReport says how many jobs one call deleted, or would have deleted. A call handles a
// part of the jobs. The next call continues at NextCursor, which is empty after the last part.
type PurgeJobsReport struct {
	DryRun     bool   `json:"dry_run"`
	Purged     int    `json:"purged"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// PurgeReport says how many set-aside jobs a purge removed for good.
type PurgeReport struct {
	Purged int `json:"purged"`
}
