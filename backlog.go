package forebay

import "time"

// Backlog is what waits in the queues for jobs, and when it is expected to be done.
type Backlog struct {
	Lines         []BacklogLine `json:"lines" doc:"by queue, lane and priority; those in which anything waits"`
	ExpectedEndAt *time.Time    `json:"expected_end_at" doc:"when what is ready now is done; null: not known"`
	Unknown       string        `json:"unknown,omitempty" doc:"why expected_end_at is not known"`
}

// BacklogLine is the jobs of one priority that wait in one lane of a queue.
type BacklogLine struct {
	Queue           string       `json:"queue"`
	Lane            string       `json:"lane" enum:"main,retry" doc:"retry: the jobs failed before"`
	Priority        int          `json:"priority"`
	Waiting         int64        `json:"waiting" doc:"jobs that are ready"`
	WaitingCapped   bool         `json:"waiting_capped" doc:"there are more than waiting: waiting_estimate says about how many"`
	WaitingEstimate int64        `json:"waiting_estimate" doc:"the same as waiting, unless that is capped"`
	Scheduled       int64        `json:"scheduled" doc:"jobs that wait for a time: a start, a retry, a budget, their session; those that run count here too"`
	ScheduledCapped bool         `json:"scheduled_capped" doc:"there are more than scheduled"`
	OldestReadyAt   *time.Time   `json:"oldest_ready_at" doc:"since when the one that waits longest has been ready; null: none is ready"`
	LastStartAt     *time.Time   `json:"last_start_at" doc:"an estimate of when the last one that is ready now starts; null: not known"`
	ExpectedEndAt   *time.Time   `json:"expected_end_at" doc:"the same, and the mean time of its tenant's latest calls; null: not known"`
	Unknown         string       `json:"unknown,omitempty" doc:"why expected_end_at is not known"`
	Limit           BacklogLimit `json:"limit"`
}

// BacklogLimit is what a line waits for.
type BacklogLimit struct {
	Kind   LimitKind `json:"kind" enum:"quota,concurrency,workers,budget,breaker,paused,none"`
	Object string    `json:"object" doc:"name of the deployment, tenant or queue whose limit it is; empty: none"`
	Detail string    `json:"detail"`
}

// LimitKind says what holds jobs back.
type LimitKind string

const (
	LimitQuota       LimitKind = "quota"       // of a deployment
	LimitConcurrency LimitKind = "concurrency" // of a tenant or a deployment
	LimitWorkers     LimitKind = "workers"     // all places for calls of the queue are taken
	LimitBudget      LimitKind = "budget"      // of a tenant, or of one of its API keys
	LimitBreaker     LimitKind = "breaker"     // of a deployment
	LimitPaused      LimitKind = "paused"      // a queue, a tenant or a deployment
	LimitNone        LimitKind = "none"
)
