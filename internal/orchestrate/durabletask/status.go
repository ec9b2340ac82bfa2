package durabletask

import (
	"context"
	"errors"

	"github.com/dapr/durabletask-go/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/panics"
)

var statusCodes = map[forebay.Code]codes.Code{
	forebay.CodeUnauthorized: codes.Unauthenticated, forebay.CodeForbidden: codes.PermissionDenied, forebay.CodeNotFound: codes.NotFound, forebay.CodeConflict: codes.AlreadyExists,
	forebay.CodeGone: codes.FailedPrecondition, forebay.CodeInvalidRequest: codes.InvalidArgument, forebay.CodeInvalidJSON: codes.InvalidArgument,
	forebay.CodePayloadTooLarge: codes.InvalidArgument, forebay.CodeNotSupported: codes.Unimplemented, forebay.CodeUnavailable: codes.Unavailable,
	forebay.CodeStorageFull: codes.ResourceExhausted, forebay.CodeTooManyRequests: codes.ResourceExhausted, forebay.CodeTenantLimit: codes.ResourceExhausted, forebay.CodeRateLimited: codes.ResourceExhausted, forebay.CodeUnknownOrchestrator: codes.NotFound, forebay.CodeInvalidCursor: codes.InvalidArgument,
}

// statusOf converts an error to a gRPC status. It hides the details of unknown errors.
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
	case errors.Is(err, panics.ErrPanicked):
		return status.Error(codes.Internal, "something went wrong here")
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
