package forebay

import "time"

// JobSession is a session of jobs, of one tenant in one queue, that has jobs that are not over.
// They run one after the other.
type JobSession struct {
	SessionID string `json:"session_id"`
	Tenant    string `json:"tenant"`
	Queue     string `json:"queue"`
	Waiting   int    `json:"waiting" doc:"its jobs that are not over and do not run"`
	Running   int    `json:"running" doc:"0 or 1"`
	// More says that the session was not counted to its end.
	More           bool             `json:"waiting_capped" doc:"there may be more: 1,000 jobs of a session are counted"`
	SetAside       int              `json:"set_aside" doc:"of its latest 100 jobs those that stand in a dead-letter or quarantine subqueue"`
	SetAsideCapped bool             `json:"set_aside_capped" doc:"it has had 100 jobs or more: older ones may be set aside, too"`
	First          *JobSessionFirst `json:"first,omitempty" doc:"the job whose turn it is; the others wait for it. Absent: it is none of the first 100 jobs"`
	HeldUntil      *time.Time       `json:"held_until,omitempty" doc:"a job of the session was cancelled while it ran, and its call may go on until then; the first job waits for its end"`
}

// JobSessionFirst is the job of a session whose turn it is.
type JobSessionFirst struct {
	JobID       string      `json:"job_id"`
	Task        string      `json:"task"`
	Status      Status      `json:"status"`
	WaitingFor  *WaitReason `json:"waiting_for" doc:"what holds it up, and with it the session; null: nothing, or it runs"`
	Attempt     int         `json:"attempt"`
	CreatedAt   time.Time   `json:"created_at"`
	ScheduledAt *time.Time  `json:"scheduled_at,omitempty" doc:"when it may start"`
	StartedAt   *time.Time  `json:"started_at,omitempty"`
}

// JobSessionFilter selects sessions of jobs.
type JobSessionFilter struct {
	Queue      string // "": every queue
	SessionID  string // only sessions of this id; "": all
	AllTenants bool   // needs the scope view
	Limit      int    // 0: DefaultPageSize
	Cursor     string
}
