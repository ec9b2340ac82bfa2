package durabletask

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/internal/turns"
)

type callerKey struct{}

// admit decides by the headers alone whether a call is admitted, before its message is received.
func (e *endpoint) admit(ctx context.Context, info *tap.Info) (_ context.Context, err error) {
	defer panics.Contain(&err, e.log, "admitting a call")
	caller, who, err := e.caller(ctx, info)
	if from, ok := peer.FromContext(ctx); ok && who != unchecked {
		_ = sleep.For(ctx, e.connections.noteCall(from.Addr.String(), who == known))
	}
	if err != nil {
		if who == unchecked && ctx.Err() == nil && answers(info.FullMethodName) && e.connections.trusts(ctx) {
			// SDKs drop an answer that is refused. Without its worker the work item is given back.
			e.connections.hangUp(ctx)
		}
		return ctx, statusOf(err)
	}
	return context.WithValue(ctx, callerKey{}, caller), nil
}

// answers reports whether a worker's call ends or gives back a work item.
func answers(method string) bool {
	const service = "/TaskHubSidecarService/"
	return strings.HasPrefix(method, service+"Complete") || strings.HasPrefix(method, service+"AbandonTask")
}

// standing is what is known about the caller.
type standing int

const (
	unchecked standing = iota // the key could not be looked up
	stranger                  // no key, or an unknown one
	known
)

// daprToken is the header in which Dapr's SDKs send DAPR_API_TOKEN.
const daprToken = "dapr-api-token"

// caller returns the caller by the key in "authorization: Bearer …" or "dapr-api-token: …", and
// an error if the call is not allowed.
func (e *endpoint) caller(ctx context.Context, info *tap.Info) (forebay.Caller, standing, error) {
	key := ""
	for _, v := range info.Header.Get(daprToken) {
		key = strings.TrimSpace(v)
	}
	for _, v := range info.Header.Get("authorization") {
		if scheme, rest, found := strings.Cut(v, " "); found && strings.EqualFold(scheme, "bearer") {
			key = strings.TrimSpace(rest)
		}
	}
	limited, cancel := context.WithTimeout(ctx, authenticationTime)
	defer cancel()
	caller, open, err := e.Authenticate(limited, key)
	if err == nil && open && !fromHere(ctx) {
		err = forebay.Errorf(forebay.CodeUnauthorized, "without API keys only this machine is answered")
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return caller, unchecked, forebay.Errorf(forebay.CodeUnavailable, "the API key cannot be checked now; try again")
	case forebay.CodeOf(err) == forebay.CodeUnauthorized:
		return caller, stranger, cmp.Or(e.opts.Limits.Stranger(addressOf(ctx)), err)
	case err != nil:
		return caller, unchecked, err
	}
	scope, ok := scopes[info.FullMethodName[strings.LastIndexByte(info.FullMethodName, '/')+1:]]
	if !ok {
		scope = forebay.ScopeOperate
	}
	if !caller.May(scope) {
		return caller, known, forebay.Errorf(forebay.CodeForbidden, "the API key lacks the scope %s", scope)
	}
	if scope == forebay.ScopeOperate {
		return caller, known, nil // results of workers are never refused
	}
	return caller, known, e.opts.Limits.Request(turns.With(limited, caller.Tenant), caller.Tenant, caller.KeyID)
}

// enter counts an open call, until leave.
func (e *endpoint) enter(tenant string) (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls >= maxCalls || e.tenants[tenant] >= maxTenantCalls {
		return nil, status.Error(codes.ResourceExhausted, "too many calls are open already; try again")
	}
	e.calls++
	e.tenants[tenant]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.calls--
		if e.tenants[tenant]--; e.tenants[tenant] == 0 {
			delete(e.tenants, tenant)
		}
	}, nil
}

// call is a stream whose context names the caller and whose messages are bounded.
type call struct {
	grpc.ServerStream
	ctx      context.Context
	receiver receiver
	sender   sender
}

func (c *call) Context() context.Context { return c.ctx }
func (c *call) RecvMsg(m any) error      { return c.receiver.receive(c.ctx, m) }

// SendMsg sends nothing once the caller's key has ended.
func (c *call) SendMsg(m any) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	return c.sender.send(c.ctx, m)
}

type taskHubKey struct{}

// taskHubOf returns the task hub that a call is for.
func taskHubOf(ctx context.Context) *taskHub { return ctx.Value(taskHubKey{}).(*taskHub) }

// serveCall serves a call that was admitted.
func (e *endpoint) serveCall(stream grpc.ServerStream, method string, serve func(*call) error) error {
	err := panics.Run(e.log, "the call "+method, func() error {
		caller, ok := stream.Context().Value(callerKey{}).(forebay.Caller)
		if !ok {
			return forebay.Errorf(forebay.CodeUnauthorized, "the call was not let in")
		}
		leave, err := e.enter(caller.Tenant)
		if err != nil {
			return err
		}
		defer leave()
		ctx, release := e.Hold(turns.With(stream.Context(), caller.Tenant), caller)
		defer release()
		tenant, err := e.service.EnsureTenant(ctx, caller.Tenant)
		if err != nil {
			return err
		}
		reserved := &reservation{}
		defer reserved.release()
		if caller.Budgeted {
			ctx = forebay.WithBudgetKey(ctx, caller.KeyID)
		}
		ctx = context.WithValue(forebay.WithActor(ctx, caller.KeyID), taskHubKey{}, e.taskHub(tenant, caller.Tenant))
		ctx = context.WithValue(ctx, reservationKey{}, reserved)
		claim := e.sent.Claim(caller.Tenant)
		defer claim.Release()
		err = serve(&call{
			stream, memory.With(ctx, claim),
			receiver{e.log, stream, e.received, caller.Tenant, e.maxMessage, reserved},
			sender{stream, e.sent, caller.Tenant, claim, func() { e.connections.hangUp(stream.Context()) }, e.answerTime},
		})
		if cause := context.Cause(ctx); forebay.CodeOf(cause) == forebay.CodeUnauthorized {
			return cause
		}
		return err
	})
	return statusOf(err)
}

// perTenant describes the engine's service, with each call routed to the task hub of its tenant.
// All methods are streams here: grpc-go calls those before it receives the message.
func (e *endpoint) perTenant() *grpc.ServiceDesc {
	desc := protos.TaskHubSidecarService_ServiceDesc
	desc.HandlerType = nil
	methods, streams := desc.Methods, desc.Streams
	desc.Methods, desc.Streams = nil, nil
	for _, m := range methods {
		desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: func(_ any, stream grpc.ServerStream) error {
			return e.serveCall(stream, m.MethodName, func(c *call) error { return e.unary(c, m.Handler) })
		}})
	}
	for _, m := range streams {
		handler := m.Handler
		m.Handler = func(_ any, stream grpc.ServerStream) error {
			return e.serveCall(stream, m.StreamName, func(c *call) error {
				h := taskHubOf(c.ctx)
				return handler(h.current(), workItems{c, h})
			})
		}
		desc.Streams = append(desc.Streams, m)
	}
	desc.Streams = append(desc.Streams, e.microsoftStreams()...)
	return &desc
}

// unary serves a call with one message and one answer.
func (e *endpoint) unary(c *call, handler grpc.MethodHandler) error {
	h, bare := taskHubOf(c.ctx), new(bool)
	answer, err := handler(h.current(), context.WithValue(c.ctx, bareKey{}, bare), func(m any) error {
		if err := c.RecvMsg(m); err != nil {
			return err
		}
		if err := checkCall(m); err != nil {
			return err
		}
		get, _ := m.(*protos.GetInstanceRequest)
		*bare = !get.GetGetInputsAndOutputs()
		return nil
	}, h.beforeEngine)
	if err != nil {
		return err
	}
	return c.SendMsg(answer)
}

// scopes are the scopes that methods need. Methods of workers, which are not listed, need
// forebay.ScopeOperate.
var scopes = map[string]forebay.Scope{
	"Hello": forebay.ScopeRead, "GetInstance": forebay.ScopeRead, "WaitForInstanceStart": forebay.ScopeRead, "WaitForInstanceCompletion": forebay.ScopeRead,
	"ListInstanceIDs": forebay.ScopeRead, "GetInstanceHistory": forebay.ScopeRead, "StartInstance": forebay.ScopeSubmit, "RaiseEvent": forebay.ScopeSubmit,
	"QueryInstances": forebay.ScopeRead, "ListInstanceIds": forebay.ScopeRead, "StreamInstanceHistory": forebay.ScopeRead,
}

func fromHere(ctx context.Context) bool {
	addr, err := netip.ParseAddr(addressOf(ctx))
	return err == nil && addr.IsLoopback()
}

// addressOf returns the client's address without the port; "": it is not known.
func addressOf(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	addr, err := netip.ParseAddrPort(from.Addr.String())
	if err != nil {
		return from.Addr.String()
	}
	return addr.Addr().Unmap().String()
}
