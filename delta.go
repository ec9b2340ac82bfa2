package forebay

// Delta is a part of the answer that a running call has written. Deltas are not stored, and some
// may be missing: the result of the job decides.
type Delta struct {
	JobID      string `json:"job_id"`
	Generation int    `json:"generation"`
	Attempt    int    `json:"attempt" doc:"the attempt that wrote it; another attempt begins anew"`
	Offset     int    `json:"offset" doc:"where the text is in the answer, in bytes of UTF-8; if that is not where the one before ended, something is missing"`
	Text       string `json:"text"`
}
