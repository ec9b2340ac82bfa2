package forebay

import "time"

// FeedKind is what an item of the feed of changes is about.
type FeedKind string

const (
	FeedJob           FeedKind = "job"           // an event of a job
	FeedDeployment    FeedKind = "deployment"    // what happened to a deployment
	FeedBatch         FeedKind = "batch"         // the end of a batch
	FeedResponse      FeedKind = "response"      // the end of a background response
	FeedOrchestration FeedKind = "orchestration" // an instance that began, went on or ended
	FeedSums          FeedKind = "sums"          // how many events of jobs there were in an interval
	FeedLost          FeedKind = "lost"          // some items were dropped: read the lists again
)

// FeedItem is one item of the feed. The field of its kind is set; an object of no job is in
// Object.
type FeedItem struct {
	Kind   FeedKind
	Job    *FeedJobEvent
	Object *FeedObject
	Sums   *FeedCounts
	Lost   *FeedLoss
}

// FeedJobEvent is an event of a job, without what its client said of it.
type FeedJobEvent struct {
	JobID             string     `json:"job_id"`
	Number            int64      `json:"number" doc:"1-based within the job"`
	Type              EventType  `json:"type"`
	At                time.Time  `json:"at"`
	Status            Status     `json:"status" doc:"the job's status after the change"`
	Tenant            string     `json:"tenant"`
	Queue             string     `json:"queue"`
	Task              string     `json:"task"`
	CorrelationID     string     `json:"correlation_id"`
	Generation        int        `json:"generation"`
	Attempt           int        `json:"attempt" doc:"the number of the attempt it concerns; 0: none"`
	ErrorClass        ErrorClass `json:"error_class,omitempty"`
	ErrorCode         string     `json:"error_code,omitempty"`
	RetryDelaySeconds float64    `json:"retry_delay_seconds,omitempty"`
}

// FeedObject is a change of something that is no job.
type FeedObject struct {
	Kind   FeedKind   `json:"kind" enum:"deployment,batch,response,orchestration"`
	ID     string     `json:"id" doc:"of the batch, response or instance; the name of the deployment"`
	Tenant string     `json:"tenant,omitempty" doc:"absent for a deployment"`
	Type   string     `json:"type" doc:"what happened to a deployment; else the new status"`
	At     time.Time  `json:"at"`
	Until  *time.Time `json:"until,omitempty" doc:"of a deployment: when that ends, if it does by itself"`
	Reason string     `json:"reason,omitempty" doc:"of a deployment: the code of the error that opened its breaker"`
}

// FeedCounts are how many events of jobs there were in an interval. What is not there did not
// happen.
type FeedCounts struct {
	At      time.Time   `json:"at" doc:"the end of the interval"`
	Seconds float64     `json:"seconds" doc:"the length of the interval"`
	Counts  []FeedCount `json:"counts"`
}

// FeedCount is how many events of one type a queue had.
type FeedCount struct {
	Queue string    `json:"queue"`
	Type  EventType `json:"type"`
	Count int64     `json:"count"`
}

// FeedLoss says that items were dropped.
type FeedLoss struct {
	Count int64 `json:"count" doc:"how many, at least"`
}

// MaxFeedJobs bounds the ids of jobs that one feed is limited to.
const MaxFeedJobs = 100

// FeedFilter selects items of the feed; zero fields select everything. A filter of jobs leaves
// out all that is no job, unless Kinds says otherwise.
type FeedFilter struct {
	AllTenants    bool
	Sums          bool // only FeedSums, twice a second
	Kinds         []FeedKind
	Queue         string
	Task          string
	Types         []EventType
	Statuses      []Status
	CorrelationID string
	Jobs          []string // ids, at most MaxFeedJobs
}
