package orchestrate

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
)

// GRPC is the endpoint of the Durable Task protocol, by which processes in other languages start and manage instances
// and carry out their orchestrators and activities.
type GRPC struct {
	// Authenticate returns whose key it is; open: there are no keys at all, and calls from this machine need none.
	Authenticate func(ctx context.Context, key string) (caller forebay.Caller, open bool, err error)
	TLS          *tls.Config // nil: none
	Grace        time.Duration
}

// maxGRPCMessage bounds a message that comes in: an answer of an orchestrator holds the inputs of all that it calls at once. Where
// one payload may be larger than that the bound is twice as large as that.
const maxGRPCMessage = 64 << 20

// Serve answers on the listener until ctx ends.
func (s *Service) Serve(ctx context.Context, listener net.Listener, g GRPC) error {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(max(maxGRPCMessage, 2*int(s.opts.MaxBytes))), grpc.MaxSendMsgSize(1 << 30), grpc.MaxConcurrentStreams(1000),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, err := s.admit(ctx, g, info.FullMethod)
			if err != nil {
				return nil, statusOf(err)
			}
			resp, err := next(ctx, req)
			return resp, statusOf(err)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			ctx, err := s.admit(stream.Context(), g, info.FullMethod)
			if err != nil {
				return statusOf(err)
			}
			return statusOf(next(srv, admitted{stream, ctx}))
		}),
	}
	if g.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(g.TLS)))
	}
	server := grpc.NewServer(options...)
	server.RegisterService(s.perTenant(), nil)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		timer := time.AfterFunc(g.Grace, server.Stop) // the streams of workers never end by themselves
		defer timer.Stop()
		server.GracefulStop()
	}()
	err := server.Serve(listener)
	if ctx.Err() == nil {
		server.Stop()
		return err
	}
	<-stopped
	return nil
}

// admitted is a stream whose context says whose it is.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

func (a admitted) Context() context.Context { return a.ctx }

type tenantKey struct{}

// perTenant describes the engine's service with each call led to the hub of its tenant.
func (s *Service) perTenant() *grpc.ServiceDesc {
	desc := protos.TaskHubSidecarService_ServiceDesc
	desc.HandlerType = nil
	desc.Methods = append([]grpc.MethodDesc(nil), desc.Methods...)
	for i := range desc.Methods {
		handler := desc.Methods[i].Handler
		desc.Methods[i].Handler = func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			// The tenant is known once the interceptor has run, so it goes around the engine's handler, which gets none.
			return interceptor(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/" + desc.ServiceName + "/" + desc.Methods[i].MethodName},
				func(ctx context.Context, _ any) (any, error) {
					bare := new(bool)
					return handler(s.served(ctx).remote, context.WithValue(ctx, bareKey{}, bare), func(req any) error {
						err := decode(req)
						get, _ := req.(*protos.GetInstanceRequest)
						*bare = !get.GetGetInputsAndOutputs()
						return err
					}, nil)
				})
		}
	}
	desc.Streams = append([]grpc.StreamDesc(nil), desc.Streams...)
	for i := range desc.Streams {
		handler := desc.Streams[i].Handler
		desc.Streams[i].Handler = func(_ any, stream grpc.ServerStream) error {
			h := s.served(stream.Context())
			return handler(h.remote, workItems{stream, h})
		}
	}
	return &desc
}

// bareKey is for whether a call needs no payloads of the instances that it reads, which the engine does not tell its backend.
type bareKey struct{}

// fillAsked is fill, unless the call needs no payloads.
func (h *hub) fillAsked(ctx context.Context, row *store.OrchestrationRow) error {
	if bare, _ := ctx.Value(bareKey{}).(*bool); bare != nil && *bare {
		return nil
	}
	return h.fill(ctx, row)
}

func (s *Service) served(ctx context.Context) *hub { return s.hub(ctx.Value(tenantKey{}).(int64)) }

// scopes are what methods need; the others, of workers, need to operate.
var scopes = map[string]forebay.Scope{
	"Hello": forebay.ScopeRead, "GetInstance": forebay.ScopeRead, "WaitForInstanceStart": forebay.ScopeRead, "WaitForInstanceCompletion": forebay.ScopeRead,
	"ListInstanceIDs": forebay.ScopeRead, "GetInstanceHistory": forebay.ScopeRead, "StartInstance": forebay.ScopeSubmit, "RaiseEvent": forebay.ScopeSubmit,
}

// admit finds out whose call it is, by the key in "authorization: Bearer …".
func (s *Service) admit(ctx context.Context, g GRPC, method string) (context.Context, error) {
	key := ""
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		for _, v := range md.Get("authorization") {
			if scheme, rest, found := strings.Cut(v, " "); found && strings.EqualFold(scheme, "bearer") {
				key = strings.TrimSpace(rest)
			}
		}
	}
	caller, open, err := g.Authenticate(ctx, key)
	if err != nil {
		return nil, err
	}
	if open && !fromHere(ctx) {
		return nil, forebay.Errorf(forebay.CodeUnauthorized, "without API keys only this machine is answered")
	}
	scope, ok := scopes[method[strings.LastIndexByte(method, '/')+1:]]
	if !ok {
		scope = forebay.ScopeOperate
	}
	// What a worker has done is never refused; it was asked to do it.
	if scope != forebay.ScopeOperate {
		if err := s.opts.Limits.Request(ctx, caller.Tenant, caller.KeyID); err != nil {
			return nil, err
		}
	}
	if !caller.May(scope) {
		return nil, forebay.Errorf(forebay.CodeForbidden, "the API key lacks the scope %s", scope)
	}
	tenant, err := s.store.EnsureTenant(ctx, caller.Tenant)
	if caller.Budgeted {
		ctx = forebay.WithBudgetKey(ctx, caller.KeyID)
	}
	return context.WithValue(forebay.WithActor(ctx, caller.KeyID), tenantKey{}, tenant), err
}

func fromHere(ctx context.Context) bool {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	addr, err := netip.ParseAddrPort(from.Addr.String())
	return err == nil && addr.Addr().Unmap().IsLoopback()
}

var statusCodes = map[forebay.Code]codes.Code{
	forebay.CodeUnauthorized: codes.Unauthenticated, forebay.CodeForbidden: codes.PermissionDenied, forebay.CodeNotFound: codes.NotFound, forebay.CodeConflict: codes.AlreadyExists,
	forebay.CodeGone: codes.FailedPrecondition, forebay.CodeInvalidRequest: codes.InvalidArgument, forebay.CodeInvalidJSON: codes.InvalidArgument,
	forebay.CodePayloadTooLarge: codes.InvalidArgument, forebay.CodeNotSupported: codes.Unimplemented, forebay.CodeUnavailable: codes.Unavailable,
	forebay.CodeStorageFull: codes.ResourceExhausted, forebay.CodeTenantLimit: codes.ResourceExhausted, forebay.CodeRateLimited: codes.ResourceExhausted, forebay.CodeUnknownOrchestrator: codes.NotFound, forebay.CodeInvalidCursor: codes.InvalidArgument,
}

// statusOf says an error in gRPC's codes. What it does not know it does not tell.
func statusOf(err error) error {
	var known *forebay.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		code, ok := statusCodes[known.Code]
		if !ok {
			return status.Error(codes.Internal, "something went wrong here")
		}
		return status.Error(code, known.Error())
	case errors.Is(err, api.ErrInstanceNotFound):
		return status.Error(codes.NotFound, "there is no such instance")
	case errors.Is(err, api.ErrDuplicateInstance):
		return status.Error(codes.AlreadyExists, "there is an instance with that id already")
	case errors.Is(err, api.ErrNotCompleted):
		return status.Error(codes.FailedPrecondition, "the instance is not over")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the time is up")
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "cancelled")
	case api.IsUnknownInstanceIDError(err), api.IsUnknownTaskIDError(err):
		return status.Error(codes.NotFound, "nobody waits for this result any more")
	}
	if s, ok := status.FromError(err); ok && s.Code() != codes.Unknown {
		return err
	}
	return status.Error(codes.Internal, "something went wrong here")
}
