package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/forebayhq/forebay"
)

// AcceptSession accepts a session of a queue that requires sessions. found is false if no session
// has messages.
func (m Messages) AcceptSession(ctx context.Context, req forebay.AcceptSessionRequest) (session forebay.Session, found bool, err error) {
	resp, err := m.server.send(ctx, request{method: http.MethodPost, path: m.path("sessions", "accept"), body: req, once: true})
	if err != nil {
		return session, false, err
	}
	if resp.StatusCode == http.StatusNoContent {
		return session, false, resp.Body.Close()
	}
	err = m.server.decode(ctx, resp, &session)
	return session, err == nil, err
}

// Sessions yields the sessions of a queue that requires sessions, by id.
func (m Messages) Sessions(ctx context.Context) iter.Seq2[forebay.SessionInfo, error] {
	return pages[forebay.SessionInfo](ctx, m.server, m.path("sessions"), url.Values{})
}

// ReceiveSession receives the next messages of an accepted session.
func (m Messages) ReceiveSession(ctx context.Context, sessionToken string, req forebay.ReceiveRequest) ([]forebay.Message, error) {
	var got messageList
	err := m.call(ctx, http.MethodPost, req, &got, "sessions", sessionToken, "receive")
	return got.Messages, err
}

// RenewSession extends the lock of a session by another lock duration and returns its new end.
func (m Messages) RenewSession(ctx context.Context, sessionToken string) (time.Time, error) {
	return m.renew(ctx, "sessions", sessionToken, "renew")
}

// CloseSession releases a session.
func (m Messages) CloseSession(ctx context.Context, sessionToken string) error {
	return m.call(ctx, http.MethodPost, nil, nil, "sessions", sessionToken, "close")
}

// ReleaseSession takes a session, by its id, from the receiver that has it.
func (m Messages) ReleaseSession(ctx context.Context, id string) error {
	return m.call(ctx, http.MethodPost, forebay.ReleaseSessionRequest{SessionID: id}, nil, "sessions", "release")
}

// SessionState returns the state that receivers of the session have set, or nil.
func (m Messages) SessionState(ctx context.Context, sessionToken string) ([]byte, error) {
	var state forebay.SessionState
	err := m.call(ctx, http.MethodGet, nil, &state, "sessions", sessionToken, "state")
	return state.State, err
}

// SetSessionState stores a state for receivers of the session. nil clears it.
func (m Messages) SetSessionState(ctx context.Context, sessionToken string, state []byte) error {
	return m.call(ctx, http.MethodPut, forebay.SessionState{State: state}, nil, "sessions", sessionToken, "state")
}
