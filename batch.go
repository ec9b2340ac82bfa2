package forebay

// Batch is a batch of OpenAI's API as its endpoint shows it. Times are in seconds since 1970; 0:
// not yet.
type Batch struct {
	ID          string            `json:"id"`
	Endpoint    string            `json:"endpoint"` // such as /v1/chat/completions
	Model       string            `json:"model,omitempty"`
	Status      BatchStatus       `json:"status"`
	InputFile   string            `json:"input_file_id"`
	OutputFile  string            `json:"output_file_id,omitempty"` // of answers
	ErrorFile   string            `json:"error_file_id,omitempty"`  // of lines without one
	Window      string            `json:"completion_window"`
	CreatedAt   int64             `json:"created_at"`
	ExpiresAt   int64             `json:"expires_at"` // when its window closes
	CompletedAt int64             `json:"completed_at,omitempty"`
	FailedAt    int64             `json:"failed_at,omitempty"`
	ExpiredAt   int64             `json:"expired_at,omitempty"`
	CancelledAt int64             `json:"cancelled_at,omitempty"`
	Counts      BatchCounts       `json:"request_counts"`
	Errors      *BatchErrors      `json:"errors,omitempty"` // why it has failed
	Usage       *BatchUsage       `json:"usage,omitempty"`
	Metadata    map[string]string `json:"metadata"`
}

// BatchStatus is where a batch is.
type BatchStatus string

// The statuses of batches.
const (
	BatchValidating BatchStatus = "validating"
	BatchInProgress BatchStatus = "in_progress"
	BatchFinalizing BatchStatus = "finalizing"
	BatchCancelling BatchStatus = "cancelling"
	BatchCompleted  BatchStatus = "completed"
	BatchFailed     BatchStatus = "failed"
	BatchExpired    BatchStatus = "expired"
	BatchCancelled  BatchStatus = "cancelled"
)

// Terminal reports whether nothing more becomes of the batch.
func (s BatchStatus) Terminal() bool {
	return s == BatchCompleted || s == BatchFailed || s == BatchExpired || s == BatchCancelled
}

// BatchCounts are the lines of a batch.
type BatchCounts struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
}

// BatchUsage is what the answers of a batch say that they used.
type BatchUsage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}

// BatchErrors are what is wrong with the input of a batch.
type BatchErrors struct {
	Data []BatchError `json:"data"`
}

// BatchError is what is wrong with one line.
type BatchError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Line    int64  `json:"line,omitempty"` // from 1; 0: the whole input
}

// NewBatch is a batch to make of the lines of a file.
type NewBatch struct {
	InputFile string            `json:"input_file_id"`
	Endpoint  string            `json:"endpoint"`
	Window    string            `json:"completion_window"` // whole hours, such as 24h
	Metadata  map[string]string `json:"metadata,omitempty"`
}
