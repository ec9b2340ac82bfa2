package forebay

import "time"

// Process is a process that shares the database, as it said itself when it was last seen.
type Process struct {
	ID        string         `json:"id"`
	Host      string         `json:"host" doc:"name of its machine"`
	PID       int            `json:"pid" doc:"its number on that machine"`
	Version   string         `json:"version"`
	Role      string         `json:"role" enum:"all,api,worker,retry-worker" doc:"what it does, as configured"`
	StartedAt time.Time      `json:"started_at"`
	SeenAt    time.Time      `json:"seen_at" doc:"when it was heard of last; it is heard of every ten seconds"`
	State     ProcessState   `json:"state" enum:"running,draining,gone"`
	Queues    []ProcessQueue `json:"queues" doc:"the queues whose jobs it carries out"`
}

// ProcessState says whether a process takes jobs.
type ProcessState string

const (
	ProcessRunning  ProcessState = "running"
	ProcessDraining ProcessState = "draining" // it stops: its calls may finish
	ProcessGone     ProcessState = "gone"     // it was not heard of for half a minute
)

// ProcessQueue is what a process has for the jobs of one queue.
type ProcessQueue struct {
	Queue            string `json:"queue"`
	Concurrency      int    `json:"concurrency" doc:"calls that it makes at once, of jobs that were not retried"`
	Calls            int    `json:"calls" doc:"of these, those under way"`
	RetryConcurrency int    `json:"retry_concurrency" doc:"calls that it makes at once, of jobs that failed before"`
	RetryCalls       int    `json:"retry_calls" doc:"of these, those under way"`
}

// RunningCall is a call that is under way for a job.
type RunningCall struct {
	JobID          string    `json:"job_id"`
	Tenant         string    `json:"tenant"`
	Task           string    `json:"task"`
	Queue          string    `json:"queue"`
	Deployment     string    `json:"deployment" doc:"empty: the task calls no deployment"`
	Generation     int       `json:"generation"`
	Attempt        int       `json:"attempt" doc:"number of the attempt in its generation"`
	StartedAt      time.Time `json:"started_at" doc:"when the job was handed to a worker"`
	LockedUntil    time.Time `json:"locked_until" doc:"when the job is given to another worker, if its own is not heard of by then"`
	Process        string    `json:"process" doc:"id of the process that makes it; empty: not known"`
	ReservedTokens *int64    `json:"reserved_tokens" doc:"what the quota of the deployment holds for it; null: nothing"`
	Synchronous    bool      `json:"synchronous" doc:"its client waits for the answer"`
}

// RunningCalls are calls under way, the longest first.
type RunningCalls struct {
	Items []RunningCall `json:"items"`
	Total int64         `json:"total" doc:"how many there are, of those that the filters let pass"`
	// TotalCapped says that some were not looked at.
	TotalCapped bool `json:"total_capped" doc:"there may be more than total: not everything was looked at"`
}

// CallFilter selects calls; zero fields select everything.
type CallFilter struct {
	AllTenants bool
	Deployment string
	Task       string
	Limit      int // 1 to MaxPageSize; 0 is DefaultPageSize
}
