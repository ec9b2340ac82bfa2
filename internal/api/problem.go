package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/decode"
)

const problemType = "application/problem+json"

// statusCancelled is logged and never sent: the client has disconnected.
const statusCancelled = 499

// statuses maps codes to HTTP statuses. A request that cannot be read is 400. One that can be read
// but is wrong is 422.
var statuses = map[forebay.Code]int{
	forebay.CodeInvalidJSON:         http.StatusBadRequest,
	forebay.CodeInvalidRequest:      http.StatusUnprocessableEntity,
	forebay.CodeUnknownField:        http.StatusUnprocessableEntity,
	forebay.CodeUnknownTask:         http.StatusUnprocessableEntity,
	forebay.CodeUnknownOrchestrator: http.StatusNotFound,
	forebay.CodeUnknownQueue:        http.StatusUnprocessableEntity,
	forebay.CodeInvalidCursor:       http.StatusUnprocessableEntity,
	forebay.CodeIdempotencyMismatch: http.StatusUnprocessableEntity,
	forebay.CodeNotSupported:        http.StatusUnprocessableEntity,
	forebay.CodeDocumentEmpty:       http.StatusUnprocessableEntity,
	forebay.CodeDocumentEncrypted:   http.StatusUnprocessableEntity,
	forebay.CodeDocumentBroken:      http.StatusUnprocessableEntity,
	forebay.CodeDocumentEncoding:    http.StatusUnprocessableEntity,
	forebay.CodeDocumentTooLarge:    http.StatusUnprocessableEntity,
	forebay.CodeDimensionsChanged:   http.StatusConflict,
	forebay.CodePayloadTooLarge:     http.StatusRequestEntityTooLarge,
	forebay.CodeUnsupportedMedia:    http.StatusUnsupportedMediaType,
	forebay.CodeUnauthorized:        http.StatusUnauthorized,
	forebay.CodeForbidden:           http.StatusForbidden,
	forebay.CodeNotFound:            http.StatusNotFound,
	forebay.CodeGone:                http.StatusGone,
	forebay.CodeMethodNotAllowed:    http.StatusMethodNotAllowed,
	forebay.CodeConflict:            http.StatusConflict,
	forebay.CodePreconditionFailed:  http.StatusPreconditionFailed,
	forebay.CodeLockLost:            http.StatusConflict,
	forebay.CodeSessionLockLost:     http.StatusConflict,
	forebay.CodeSessionLocked:       http.StatusConflict,
	forebay.CodeEntityDisabled:      http.StatusConflict,
	forebay.CodeRequestTimeout:      http.StatusRequestTimeout,
	forebay.CodeTooManyRequests:     http.StatusServiceUnavailable,
	forebay.CodeTenantLimit:         http.StatusTooManyRequests,
	forebay.CodeRateLimited:         http.StatusTooManyRequests,
	forebay.CodeUnavailable:         http.StatusServiceUnavailable,
	forebay.CodeDatabaseUnusable:    http.StatusServiceUnavailable,
	forebay.CodeStorageFull:         http.StatusInsufficientStorage,
	forebay.CodeInternal:            http.StatusInternalServerError,
}

// StatusOf returns the HTTP status of an error's code.
func StatusOf(code forebay.Code) int {
	if status := statuses[code]; status != 0 {
		return status
	}
	return http.StatusInternalServerError
}

// retryAfterSeconds is the Retry-After of a request that was refused for lack of capacity.
const retryAfterSeconds = "2"

// problem is an RFC 9457 problem detail, the body of every error. Its type is about:blank, so its
// title is the phrase of the status. The code tells problems apart.
type problem struct {
	Type      string          `json:"type" doc:"always about:blank; code tells errors apart"`
	Title     string          `json:"title"`
	Status    int             `json:"status"`
	Detail    string          `json:"detail"`
	Code      forebay.Code    `json:"code" doc:"stable name of the error"`
	Field     string          `json:"field,omitempty" doc:"the part of the request it is about"`
	Errors    []problemDetail `json:"errors,omitempty" doc:"when several parts of the request are wrong"`
	JobID     string          `json:"job_id,omitempty"`
	Parts     []part          `json:"parts,omitempty" doc:"of a server that is not ready: what of it works"`
	RequestID string          `json:"request_id"`

	header  http.Header
	surface Surface // that writes it in its own shape; nil: none
	request *http.Request
}

type problemDetail struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// With these methods, huma writes a problem as it is.
func (p *problem) Error() string           { return p.Detail }
func (p *problem) GetStatus() int          { return p.Status }
func (p *problem) GetHeaders() http.Header { return p.header }
func (*problem) ContentType(string) string { return problemType }

// status adapts the status of a refusal to the route. Below durablePath every wrong request is
// 400.
func (c *call) status(status int) int {
	if (status == http.StatusUnprocessableEntity || status == http.StatusUnsupportedMediaType) && strings.Contains(c.route, durablePath) {
		return http.StatusBadRequest
	}
	return status
}

func newProblem(c *call, code forebay.Code, detail string) *problem {
	status := c.status(statuses[code])
	p := &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Code: code, RequestID: c.id, surface: c.surface, request: c.r}
	switch status {
	case http.StatusUnauthorized:
		p.header = http.Header{"Www-Authenticate": {c.challenge()}}
	case http.StatusServiceUnavailable:
		p.header = http.Header{"Retry-After": {retryAfterSeconds}}
	}
	return p
}

// problem turns any error into one that the caller may see. It logs what the caller may not see.
func (a *API) problem(ctx context.Context, c *call, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	e, ok := errors.AsType[*forebay.Error](err)
	switch {
	case ok && e.Code != forebay.CodeInternal && statuses[e.Code] != 0:
		if statuses[e.Code] >= http.StatusInternalServerError {
			a.logFailure(ctx, c, err, e.Unwrap())
		}
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		c.gone = true
		e = forebay.Errorf(forebay.CodeUnavailable, "the request was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		a.logFailure(ctx, c, err, nil)
		e = forebay.Errorf(forebay.CodeUnavailable, "the server did not answer in time; try again")
	default:
		a.logFailure(ctx, c, err, errors.Unwrap(err))
		e = errInternal(c)
	}
	p := newProblem(c, e.Code, e.Error())
	p.Field, p.JobID = e.Field, e.JobID
	if e.RetryAfter > 0 { // in whole seconds (RFC 9110, section 10.2.3)
		p.header = http.Header{"Retry-After": {strconv.FormatInt(int64(math.Ceil(e.RetryAfter.Seconds())), 10)}}
	}
	if e.Code == forebay.CodeUnknownQueue && c.r.PathValue("queue") != "" {
		// Here the queue is the resource itself and not part of the body.
		p.Status, p.Title = http.StatusNotFound, http.StatusText(http.StatusNotFound)
	}
	return p
}

// errInternal only says where to look.
func errInternal(c *call) *forebay.Error {
	return forebay.Errorf(forebay.CodeInternal, "an internal error; the server's log has it under request id %s", c.id)
}

// logFailure logs an internal error once, with details that its message omits.
func (a *API) logFailure(ctx context.Context, c *call, err, cause error) {
	attrs := append(c.attrs(), slog.Any("error", err))
	if cause != nil && !strings.Contains(err.Error(), cause.Error()) {
		attrs = append(attrs, slog.Any("cause", cause))
	}
	a.log.LogAttrs(ctx, slog.LevelError, "request failed", attrs...)
}

// fail answers with the problem of an error. It is for errors outside a huma handler.
func (a *API) fail(c *call, err error) {
	a.problem(c.r.Context(), c, err).write(c.w)
}

func (p *problem) write(w http.ResponseWriter) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	if own, ok := w.(*responseWriter); ok {
		own.refused = true
	}
	if p.surface != nil {
		p.surface.Refuse(w, p.refusal())
		return
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Errorf("marshal problem: %w", err)) // a struct of strings: cannot happen
	}
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	w.Write(append(body, '\n'))
}

// refusal is the problem for a surface.
func (p *problem) refusal() Refusal {
	seconds, _ := strconv.Atoi(p.header.Get("Retry-After")) // none is 0
	return Refusal{p.Status, p.Code, p.Detail, p.Field, p.request, seconds}
}

// transform replaces huma's own errors, which are all about parameters.
func transform(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	c := callFrom(ctx.Context())
	if m.Status >= http.StatusInternalServerError {
		return newProblem(c, forebay.CodeInternal, errInternal(c).Message), nil
	}
	p := newProblem(c, forebay.CodeInvalidRequest, m.Detail)
	for _, e := range m.Errors {
		if e == nil {
			continue
		}
		p.Errors = append(p.Errors, problemDetail{Location: e.Location, Message: decode.ParameterMessage(e.Message)})
	}
	if len(p.Errors) > 0 {
		first := p.Errors[0]
		_, p.Field, _ = strings.Cut(first.Location, ".")
		p.Detail = p.Field + ": " + first.Message
		if first.Message == "unknown query parameter" {
			p.Code = forebay.CodeUnknownField
		}
	}
	return p, nil
}
