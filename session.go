package forebay

import "time"

// AcceptSessionRequest asks for a session of a queue that requires them.
type AcceptSessionRequest struct {
	SessionID   string  `json:"session_id,omitempty" doc:"this session, whether it has messages or not; default: the one that has waited longest for a receiver"`
	Wait        string  `json:"wait,omitempty" doc:"how long to wait for a session with messages: up to 60s; default 0s; not with session_id" example:"30s"`
	WaitSeconds float64 `json:"wait_seconds,omitempty" doc:"the same as a number of seconds; not with wait"`
}

// WaitTime returns how long to wait for a session. Its error is CodeInvalidRequest.
func (r AcceptSessionRequest) WaitTime() (time.Duration, error) {
	return waitTime(r.Wait, r.WaitSeconds)
}

// ReleaseSessionRequest names a session to take from its receiver.
type ReleaseSessionRequest struct {
	SessionID string `json:"session_id"`
}

// Session is an accepted session. Until its lock ends, only this receiver gets the session's
// messages, later ones too.
type Session struct {
	SessionID    string    `json:"session_id"`
	SessionToken string    `json:"session_token" doc:"proves the lock; part of the paths for receiving, renewing and closing"`
	LockedUntil  time.Time `json:"locked_until"`
	State        []byte    `json:"state_base64,omitzero" doc:"what its receivers last set"`
}

// SessionState is data that a session's receivers store for each other.
type SessionState struct {
	State []byte `json:"state_base64" doc:"up to 256 KiB; null: none"`
}

// SessionInfo is a session as a list shows it: one that has messages, a state or a receiver.
type SessionInfo struct {
	SessionID   string     `json:"session_id"`
	HasMessages bool       `json:"has_messages" doc:"to receive, or held by its receiver; deferred ones do not count"`
	LockedUntil *time.Time `json:"locked_until" doc:"null: no receiver has it"`
	StateBytes  int        `json:"state_bytes" doc:"0: it has no state"`
}
