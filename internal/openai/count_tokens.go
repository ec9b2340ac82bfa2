package openai

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/turns"
)

// How many counts of tokens a process has under way. Claude Code in an editor begins with some
// fifty at once.
const (
	countPlaces         = 256
	countPlacesOfTenant = 64
	countPatience       = 2 * time.Second // how long a count waits for a place
	countRetryAfter     = 2               // seconds
)

// countTokens answers POST /v1/messages/count_tokens. A count is no job: it costs nothing, and the
// provider does not take it from the quota of messages.
func (a *Messages) countTokens(r *api.SurfaceRequest) error {
	req, release, err := a.readMessages(r)
	if err != nil {
		return err
	}
	defer release()
	leave, err := a.enterCount(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	resp, err := a.CountTokens(r.Context(), req.model, req.body, r.Header)
	if err != nil {
		return uncounted(r, resp, err)
	}
	copyHeader(r.Writer.Header(), resp.Header)
	r.Writer.WriteHeader(resp.Status)
	_, _ = r.Writer.Write(resp.Body)
	return nil
}

// enterCount waits for a place, which leave gives back.
func (a *Messages) enterCount(ctx context.Context) (leave func(), err error) {
	tenant := turns.Tenant(ctx)
	patient, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	switch err := a.counts.Enter(patient, tenant); {
	case err == nil:
		return func() { a.counts.Leave(tenant) }, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case a.counts.Full(tenant):
		return nil, &failure{status: http.StatusTooManyRequests, kind: typeRateLimit, retryAfter: countRetryAfter,
			message: "Too many counts of tokens are under way for this tenant. Try again later."}
	}
	return nil, &failure{status: statusOverloaded, kind: typeServer, retryAfter: countRetryAfter,
		message: "Too many counts of tokens are under way. Try again later."}
}

// uncounted answers a count that has failed. The client decides whether to try again: nobody has
// for it.
func uncounted(r *api.SurfaceRequest, resp model.ForwardResponse, err error) error {
	if r.Context().Err() != nil {
		return r.Context().Err()
	}
	t, ok := errors.AsType[*forebay.TaskError](err)
	if !ok {
		return err
	}
	if f := heldBack(t.Waiting); f != nil {
		f.retryAfter = retrySeconds(t.RetryAfter)
		return f
	}
	f := upstream(resp, err)
	if t.Code == model.CodeGatewayTimeout && resp.Status == 0 {
		f.status = http.StatusGatewayTimeout
	}
	if t.Class != forebay.ClassPermanent {
		f.shouldRetry, f.retryAfter = nil, retrySeconds(t.RetryAfter)
	}
	if f.status != resp.Status || !isMessagesError(resp.Body) {
		return f
	}
	h := r.Writer.Header()
	copyHeader(h, resp.Header)
	h.Set("Content-Type", "application/json")
	f.writeHeader(h)
	r.Writer.WriteHeader(resp.Status)
	_, _ = r.Writer.Write(resp.Body)
	return nil
}

// isMessagesError reports whether a body is an error that Anthropic's SDKs can read.
func isMessagesError(body []byte) bool {
	return gjson.ValidBytes(body) && gjson.GetBytes(body, "error").Exists()
}

// retrySeconds is a wait in whole seconds; 0: none is known.
func retrySeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
