package api

import (
	"context"
	"net/http"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/turns"
)

// Surface is the HTTP interface of another product that this server answers to as well. Its
// requests pass the same chain: ids, limits, keys, connections, the access log.
type Surface interface {
	// Owns reports whether an address is the surface's. All errors there are written by Refuse.
	Owns(path string) bool
	Routes() []SurfaceRoute
	// Key returns the API key of a request, or "". An error is a *forebay.Error.
	Key(r *http.Request) (string, error)
	// Refuse writes an error in the surface's shape. The header has what the error adds to it.
	Refuse(w http.ResponseWriter, r Refusal)
}

// Refusal is an error on its way to a client of a surface.
type Refusal struct {
	Status     int
	Code       forebay.Code
	Message    string
	Field      string // the part of the request it is about; "": none
	Request    *http.Request
	RetryAfter int // seconds, as in the header of that name; 0: it has none
}

// SurfaceRoute is a pattern of [http.ServeMux] and what answers there.
type SurfaceRoute struct {
	Method, Path string
	Scope        forebay.Scope
	Or           forebay.Scope // is enough, too; "": none
	// Handle answers a request, or returns the error to answer with.
	Handle func(*SurfaceRequest) error
}

// SurfaceRequest is a request to a surface whose caller is known. Its context ends when the
// client goes or the caller's key ends.
type SurfaceRequest struct {
	*http.Request
	Writer http.ResponseWriter
	Caller forebay.Caller

	api        *API
	call       *call
	unbuffered bool
}

// Body reads a JSON body of at most limit bytes. After release it must not be used.
func (r *SurfaceRequest) Body(limit int64) (data []byte, release func(), err error) {
	return r.api.readBody(r.call, limit)
}

// Upload begins to read a body of any type, of at most limit bytes. The caller calls Close.
func (r *SurfaceRequest) Upload(limit int64) (*transfer.Body, error) {
	return r.api.openUpload(r.call, limit)
}

// Flush sends the bytes written so far.
func (r *SurfaceRequest) Flush() error {
	if r.unbuffered {
		return nil
	}
	return r.call.w.flush()
}

// Correlate names the job that the request is about, for the access log.
func (r *SurfaceRequest) Correlate(id string) { r.call.correlationID = id }

// Open is for answers with payloads, such as what a model said. It refuses a viewer from another
// tenant who may not open them. If he may, the audit log says that he has opened the target.
func (r *SurfaceRequest) Open(target string) error {
	if err := r.call.needOpen(); err != nil {
		return err
	}
	return r.call.opens(r.Context(), target)
}

// Wait counts the request as one that waits, until leave. The context that it returns also ends
// when the server stops.
func (r *SurfaceRequest) Wait() (waiting context.Context, leave func(), err error) {
	if waiting, leave, err = r.api.waiting(r.Context(), r.call); err == nil {
		r.call.w.untilDrain()
	}
	return waiting, leave, err
}

// Draining is closed once the server stops and waiting requests must end.
func (r *SurfaceRequest) Draining() <-chan struct{} { return r.api.draining.Done() }

// Gone notes that the client has left, for the access log.
func (r *SurfaceRequest) Gone() { r.call.gone = true }

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

// Refusal is an error as the client may see it. The error of a key that has ended comes first.
func (r *SurfaceRequest) Refusal(err error) Refusal {
	if ended := keyEnded(r.Context()); ended != nil {
		err = ended
	}
	return r.api.problem(r.Context(), r.call, err).refusal()
}

// mount registers the routes of a surface.
func mount(a *API, s Surface) {
	for _, route := range s.Routes() {
		pattern := route.Method + " " + route.Path
		var scopes anyOf
		if route.Scope != open {
			scopes = anyOf{route.Scope}
			if route.Or != "" {
				scopes = append(scopes, route.Or)
			}
		}
		a.mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
			c := callFrom(r.Context())
			c.r = r
			ctx, release, err := c.enter(r.Context(), pattern, "", scopes)
			if err != nil {
				a.fail(c, err)
				return
			}
			defer release()
			request := &SurfaceRequest{Request: r.WithContext(c.acting(turns.With(ctx, c.home))), Writer: c.w, Caller: c.caller, api: a, call: c}
			if err := route.Handle(request); err != nil {
				if ended := keyEnded(ctx); ended != nil {
					err = ended
				}
				if c.w.sent {
					panic(http.ErrAbortHandler) // the answer must not look complete
				}
				a.fail(c, err)
			}
		})
	}
}

// surfaceOf returns the one of the surfaces that an address belongs to, or nil.
func surfaceOf(surfaces []Surface, path string) Surface {
	for _, s := range surfaces {
		if s.Owns(path) {
			return s
		}
	}
	return nil
}

// enter lets a request to a route in if its caller has one of the scopes, for the entity that it
// is about. The context that it returns ends with the caller's key.
func (c *call) enter(ctx context.Context, route, entity string, scopes anyOf) (held context.Context, release func(), err error) {
	a := c.api
	c.route = route
	if len(scopes) == 0 {
		return ctx, func() {}, a.limits.Stranger(addressOf(c.r))
	}
	if caller, ok := actingAs(ctx); ok {
		c.caller, c.home = caller, caller.Tenant
		return c.act(turns.With(ctx, c.home), entity, scopes)
	}
	if err := c.authenticate(ctx); err != nil {
		if forebay.CodeOf(err) == forebay.CodeUnauthorized {
			if tooMany := a.limits.Stranger(addressOf(c.r)); tooMany != nil {
				err = tooMany
			}
		}
		return nil, nil, err
	}
	tenant := turns.With(ctx, c.home)
	if err := a.limits.Request(tenant, c.home, c.caller.KeyID); err != nil {
		return nil, nil, err
	}
	if err := connections.Of(c.r.Context()).BelongsTo(c.home); err != nil {
		c.w.Header().Set("Connection", "close")
		return nil, nil, err
	}
	return c.act(tenant, entity, scopes)
}

// act lets a request in whose caller is known.
func (c *call) act(ctx context.Context, entity string, scopes anyOf) (held context.Context, release func(), err error) {
	if err := c.visit(ctx); err != nil {
		return nil, nil, err
	}
	if !scopes.metBy(c.caller) {
		return nil, nil, forebay.Errorf(forebay.CodeForbidden, "this needs a key with the scope %s", scopes)
	}
	if err := c.reaches(entity); err != nil {
		return nil, nil, err
	}
	held, release = c.api.keys.Hold(ctx, c.caller)
	return held, release, nil
}
