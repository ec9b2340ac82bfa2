package forebay

import (
	"slices"
	"time"
)

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
	ByError      []ErrorRetries `json:"by_error" doc:"failures by error code, and how many of them were retried, most first. How many of these jobs succeeded in the end is known for all codes together: see jobs_retried_succeeded"`
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

// ErrorRetries counts failed attempts of one error code.
type ErrorRetries struct {
	Class   ErrorClass `json:"error_class"`
	Code    string     `json:"error_code"`
	Failed  int64      `json:"failed" doc:"retried, failed, throttled or lost"`
	Retried int64      `json:"retried" doc:"of these, how many were retried"`
}

// HourCount counts the attempts that finished within one hour.
type HourCount struct {
	Hour      time.Time `json:"hour"`
	Attempts  int64     `json:"attempts"`
	Failed    int64     `json:"failed"`
	Throttled int64     `json:"throttled"`
}

// UsageBy is what rows of a usage report are told apart by, besides time.
type UsageBy string

// The dimensions of usage reports.
const (
	UsageByTenant     UsageBy = "tenant"
	UsageByTask       UsageBy = "task"
	UsageByModel      UsageBy = "model"
	UsageByDeployment UsageBy = "deployment"
)

// UsageDimensions lists what usage can be told apart by.
var UsageDimensions = []UsageBy{UsageByTenant, UsageByTask, UsageByModel, UsageByDeployment}

// UsageStep is the time that one row of a usage report covers.
type UsageStep string

// The steps of usage reports. Hours and days are those of UTC.
const (
	UsageHourly UsageStep = "hour"
	UsageDaily  UsageStep = "day"
	UsageWhole  UsageStep = "all"
)

// UsageSteps lists the steps.
var UsageSteps = []UsageStep{UsageHourly, UsageDaily, UsageWhole}

// MaxUsageRows is the highest number of rows of a usage report.
const MaxUsageRows = 10_000

// UsageQuery asks for a usage report. The zero Until is now. The zero Since is a day before Until.
// The zero Step is UsageWhole.
type UsageQuery struct {
	Since, Until time.Time
	By           []UsageBy
	Step         UsageStep
	AllTenants   bool // sums of all tenants, not of the caller's alone
}

// Check reports what is wrong with the query, or nil.
func (q UsageQuery) Check() error {
	for i, by := range q.By {
		if !slices.Contains(UsageDimensions, by) {
			return Invalid("by", "takes tenant, task, model and deployment, with commas between them")
		}
		if slices.Contains(q.By[:i], by) {
			return Invalid("by", "names %s twice", by)
		}
	}
	if q.Step != "" && !slices.Contains(UsageSteps, q.Step) {
		return Invalid("step", "must be hour, day or all")
	}
	return nil
}

// UsageReport says what calls were made in a time, how they ended, and what they used and cost.
type UsageReport struct {
	Since time.Time  `json:"since" doc:"whole hours"`
	Until time.Time  `json:"until"`
	Step  UsageStep  `json:"step" enum:"hour,day,all"`
	By    []UsageBy  `json:"by"`
	Rows  []UsageRow `json:"rows" doc:"by time, then by what they are told apart by; none where nothing was called"`
	Total UsageSum   `json:"total"`
}

// UsageRow is the use of one step, and of one value of each dimension that was asked for.
type UsageRow struct {
	Time       time.Time `json:"time" doc:"when its hour or day begins; since, if the step is all. The first and the last day may be cut by since and until"`
	Tenant     *string   `json:"tenant,omitempty"`
	Task       *string   `json:"task,omitempty"`
	Model      *string   `json:"model,omitempty" doc:"names of the models that the deployment serves by today's configuration, with commas between them; empty: none is known"`
	Deployment *string   `json:"deployment,omitempty" doc:"empty: the call went to none, or nobody said to which"`
	UsageSum
}

// UsageSum adds up calls: attempts, which have ended.
type UsageSum struct {
	Attempts      int64 `json:"attempts"`
	Succeeded     int64 `json:"succeeded"`
	Failed        int64 `json:"failed" doc:"retried, failed, throttled or lost"`
	Throttled     int64 `json:"throttled" doc:"of those that failed"`
	InputTokens   int64 `json:"input_tokens"`
	OutputTokens  int64 `json:"output_tokens"`
	AssumedTokens int64 `json:"assumed_tokens" doc:"held for calls whose use nobody knows; they count in budgets"`
	CostUSD       Money `json:"cost_usd" doc:"with what was held for calls whose cost nobody knows"`
}

// Plus returns both together.
func (s UsageSum) Plus(o UsageSum) UsageSum {
	return UsageSum{
		s.Attempts + o.Attempts, s.Succeeded + o.Succeeded, s.Failed + o.Failed, s.Throttled + o.Throttled,
		s.InputTokens + o.InputTokens, s.OutputTokens + o.OutputTokens, s.AssumedTokens + o.AssumedTokens, s.CostUSD + o.CostUSD,
	}
}
