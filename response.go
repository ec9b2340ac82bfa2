package forebay

// Response is a kept response of OpenAI's API as Forebay's list of responses shows it, without
// what was asked and answered. Times are in seconds since 1970; 0: not yet.
type Response struct {
	ID          string `json:"id"`
	Object      string `json:"object"` // "response"
	Status      string `json:"status"` // queued, in_progress, completed, incomplete, failed, cancelled
	Background  bool   `json:"background"`
	Model       string `json:"model"`
	CreatedAt   int64  `json:"created_at"`
	CompletedAt int64  `json:"completed_at,omitempty"` // when it ended, however it did
	Previous    string `json:"previous_response_id,omitempty"`
	JobID       string `json:"job_id,omitempty"` // that makes or made it; "": it has none, or that was purged
}

// ResponseStatuses lists the statuses of responses.
var ResponseStatuses = []string{"queued", "in_progress", "completed", "incomplete", "failed", "cancelled"}

// ResponsePage is a part of the list of responses, newest first.
type ResponsePage struct {
	Data []Response `json:"data"`
	// HasMore says that the next part begins after LastID. LastID is the last response that the
	// server looked at, which the filter may have left out.
	HasMore bool   `json:"has_more"`
	LastID  string `json:"last_id"`
	// SearchedTo is when that response was created, if the server stopped looking before the page
	// was full. 0: it did not.
	SearchedTo int64 `json:"searched_to,omitempty"`
}
