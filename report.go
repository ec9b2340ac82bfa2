package forebay

import "time"

// RetryReport holds sums by the hour. They tell how often jobs are retried, whether retries
// succeed, when and where failures cluster, and how many calls were throttled.
type RetryReport struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`

	Attempts  int64 `json:"attempts"`
	Succeeded int64 `json:"succeeded"`
	Retried   int64 `json:"retried"`
	Failed    int64 `json:"failed"`
	Throttled int64 `json:"throttled"`
	Lost      int64 `json:"lost"`
	Cancelled int64 `json:"cancelled"`

	JobsRetried          int64 `json:"jobs_retried" doc:"jobs, by generation, with at least one retried attempt"`
	JobsRetriedSucceeded int64 `json:"jobs_retried_succeeded" doc:"of these, how many have succeeded"`
	JobsRetriedFailed    int64 `json:"jobs_retried_failed"`

	ByAttempt    []AttemptCount `json:"by_attempt" doc:"outcomes by attempt number"`
	ByDeployment []ErrorCount   `json:"by_deployment" doc:"failures by deployment and error code, most first"`
	ByTask       []ErrorCount   `json:"by_task" doc:"failures by task and error code, most first"`
	ByHour       []HourCount    `json:"by_hour" doc:"attempts and failures by hour, UTC"`
}

// AttemptCount counts outcomes of the n-th attempts.
type AttemptCount struct {
	Number    int   `json:"number"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed" doc:"retried, failed, throttled or lost"`
}

// ErrorCount counts failed attempts that share a place and an error code.
type ErrorCount struct {
	Name  string     `json:"name"`
	Class ErrorClass `json:"error_class"`
	Code  string     `json:"error_code" doc:"of each hour 200 codes are told apart; all others are counted as other"`
	Count int64      `json:"count"`
}

// HourCount counts the attempts that finished within one hour.
type HourCount struct {
	Hour      time.Time `json:"hour"`
	Attempts  int64     `json:"attempts"`
	Failed    int64     `json:"failed"`
	Throttled int64     `json:"throttled"`
}
