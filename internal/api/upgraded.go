package api

import (
	"context"
	"net/http"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/memory"
)

// Upgrade hands the connection over to a protocol that accept answers for, unless it returns an
// error. Until leave, the request counts as one that waits, and the server waits for it when it
// stops.
func (r *SurfaceRequest) Upgrade(accept func(http.ResponseWriter) error) (leave func(), err error) {
	if leave, err = r.api.waiters.EnterUpgraded(r.call.home); err != nil {
		return nil, err
	}
	if err := accept(r.call.w.ResponseWriter); err != nil {
		leave()
		return nil, err
	}
	r.call.w.status, r.call.w.sent, r.call.waited = http.StatusSwitchingProtocols, true, true
	return leave, nil
}

// Message returns a request that came over the connection of an upgraded one. Its answer goes to
// w, and what memory it claims is its own, until release.
func (r *SurfaceRequest) Message(ctx context.Context, w http.ResponseWriter) (m *SurfaceRequest, release func()) {
	c := *r.call
	c.claim = nil
	claim := c.memory()
	return &SurfaceRequest{Request: r.WithContext(memory.With(ctx, claim)), Writer: w, Caller: r.Caller, api: r.api, call: &c, unbuffered: true}, claim.Release
}

// Renew looks the caller up again before a message is acted on: its key may have got a budget
// since the handshake.
func (r *SurfaceRequest) Renew() error {
	now := *r.call
	if err := now.authenticate(r.Context()); err != nil {
		return err
	}
	if now.caller.Budgeted {
		r.Request = r.WithContext(forebay.WithBudgetKey(r.Context(), now.caller.KeyID))
	}
	return nil
}

// Count counts a message as a request, which may be one too many.
func (r *SurfaceRequest) Count() error {
	return r.api.limits.Request(r.Context(), r.call.home, r.Caller.KeyID)
}

// KeyEnded returns the error of a request whose key was revoked or has expired, or nil.
func (r *SurfaceRequest) KeyEnded() error { return keyEnded(r.Context()) }

// WhenDraining calls f in a goroutine of its own once the server stops, unless stop was called.
func (r *SurfaceRequest) WhenDraining(f func()) (stop func() bool) {
	return context.AfterFunc(r.api.draining, f)
}

// Refusal is an error as the client may see it. The error of a key that has ended comes first.
func (r *SurfaceRequest) Refusal(err error) Refusal {
	if ended := keyEnded(r.Context()); ended != nil {
		err = ended
	}
	return r.api.problem(r.Context(), r.call, err).refusal()
}
