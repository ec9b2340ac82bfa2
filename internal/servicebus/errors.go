package servicebus

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus"
)

// The error conditions that clients know. Those of Service Bus begin with com.microsoft.
const (
	conditionNotFound      wire.Symbol = "amqp:not-found"
	conditionUnauthorized  wire.Symbol = "amqp:unauthorized-access"
	conditionNotAllowed    wire.Symbol = "amqp:not-allowed"
	conditionNotImpl       wire.Symbol = "amqp:not-implemented"
	conditionInternal      wire.Symbol = "amqp:internal-error"
	conditionFull          wire.Symbol = "amqp:resource-limit-exceeded"
	conditionTooLarge      wire.Symbol = "amqp:link:message-size-exceeded"
	conditionArgument      wire.Symbol = "com.microsoft:argument-error"
	conditionBusy          wire.Symbol = "com.microsoft:server-busy"
	conditionTimeout       wire.Symbol = "com.microsoft:timeout"
	conditionDisabled      wire.Symbol = "com.microsoft:entity-disabled"
	conditionExists        wire.Symbol = "com.microsoft:entity-already-exists"
	conditionLockLost      wire.Symbol = "com.microsoft:message-lock-lost"
	conditionSessionLost   wire.Symbol = "com.microsoft:session-lock-lost"
	conditionSessionLocked wire.Symbol = "com.microsoft:session-cannot-be-locked"
	conditionNoMessage     wire.Symbol = "com.microsoft:message-not-found"
	conditionDeadLetter    wire.Symbol = "com.microsoft:dead-letter"
)

// failure is an error as Service Bus tells it: a condition on links and dispositions, and the
// status of an answer of a management node.
type failure struct {
	condition wire.Symbol
	status    int32
	text      string
}

func (f *failure) Error() string { return f.text }

// wire returns the error for a Detach or a disposition.
func (f *failure) wire() *wire.Error {
	return &wire.Error{Condition: f.condition, Description: f.text}
}

func fail(condition wire.Symbol, status int32, format string, args ...any) *failure {
	return &failure{condition, status, fmt.Sprintf(format, args...)}
}

// Failures that do not come from the domain.
var (
	errNoMessage     = fail(conditionNoMessage, 404, "The messages could not be found: they do not exist, are not in that state, or are locked.")
	errNoSessionFree = fail(conditionTimeout, 408, "No session became available in the time that the client allows.")
	errTooManyCopies = fail(conditionFull, 403, "There are as many links that browse as there may be: %d of a tenant, and %d in all. Close one, or peek.", maxTenantBrowsers, maxBrowsers)
	errRuleExists    = fail(conditionExists, 409, "The rule already exists.")
	errTooManyLinks  = fail(conditionBusy, 503, "The tenant has as many links open as it may have; try again later.")
	errNeedsSession  = fail(conditionNotAllowed, 400, "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.")
	errNoSessions    = fail(conditionNotAllowed, 400, "A sessionful message receiver cannot be created on an entity that does not require sessions.")
	errNotToSubqueue = fail(conditionNotAllowed, 400, "Messages cannot be sent to a subqueue: only dead-lettering fills it.")
	errNeedsTopic    = fail(conditionNotAllowed, 400, "Messages cannot be sent to a subscription: send to its topic.")
	errNoAddress     = fail(conditionNotImpl, 501, "A link must name an entity. Temporary entities and links to any entity are not supported.")
	errBadEncoding   = fail(conditionArgument, 400, "The message is not well encoded.")
)

// badArgument refuses a field of a request.
func badArgument(format string, args ...any) *failure {
	return fail(conditionArgument, 400, format, args...)
}

// failureOf says an error as Service Bus does. What callers must not see becomes an internal
// error; the second result reports that and is for the log.
func failureOf(err error, path string) (f *failure, internal bool) {
	if f := transactionFailure(err); f != nil {
		return f, false
	}
	if errors.As(err, &f) {
		return f, false
	}
	var refused *wire.Error
	if errors.As(err, &refused) {
		return &failure{refused.Condition, 400, refused.Description}, false
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fail(conditionTimeout, 408, "The operation did not complete in the time allotted."), false
	}
	var e *forebay.Error
	if !errors.As(err, &e) || e.Code == forebay.CodeInternal {
		return fail(conditionInternal, 500, "The service was unable to process the request; please retry the operation."), true
	}
	if e.Message == noSessionID {
		return fail(conditionNotAllowed, 400, "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session support enabled can only receive messages that have the SessionId set to a valid value."), false
	}
	kind, known := kinds[e.Code]
	if !known {
		kind = failure{conditionArgument, 400, ""}
	}
	text := kind.text
	switch {
	case text == "":
		text = sentence(e.Error())
	case strings.Contains(text, "%s"):
		text = fmt.Sprintf(text, path)
	}
	return &failure{kind.condition, kind.status, text}, false
}

// noSessionID tells that refusal from others of its code.
var noSessionID = func() string {
	var e *forebay.Error
	_ = errors.As(bus.ErrNoSessionID, &e)
	return e.Message
}()

// kinds are the errors of the domain in Service Bus's words. Clients look for some of the texts
// (reference: §7). Without a text the error's own is told.
var kinds = map[forebay.Code]failure{
	forebay.CodeUnknownQueue:    {conditionNotFound, 404, textNoEntity},
	forebay.CodeNotFound:        {conditionNotFound, 404, textNoEntity},
	forebay.CodeGone:            {conditionNotFound, 404, textNoEntity},
	forebay.CodeLockLost:        {conditionLockLost, 410, "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."},
	forebay.CodeSessionLockLost: {conditionSessionLost, 410, "The session lock has expired on the MessageSession. Accept a new MessageSession."},
	forebay.CodeSessionLocked:   {conditionSessionLocked, 410, "The requested session cannot be accepted. It may be locked by another receiver."},
	forebay.CodePayloadTooLarge: {conditionTooLarge, 400, ""},
	forebay.CodeTenantLimit:     {conditionFull, 403, ""},
	forebay.CodeStorageFull:     {conditionFull, 403, ""},
	forebay.CodeTooManyRequests: {conditionBusy, 503, ""},
	forebay.CodeRateLimited:     {conditionBusy, 503, ""},
	forebay.CodeUnavailable:     {conditionBusy, 503, ""},
	forebay.CodeUnauthorized:    {conditionUnauthorized, 401, ""},
	forebay.CodeForbidden:       {conditionUnauthorized, 401, ""},
	forebay.CodeNotSupported:    {conditionNotAllowed, 400, ""},
	forebay.CodeConflict:        {conditionNotAllowed, 400, ""},
	forebay.CodeEntityDisabled:  {conditionDisabled, 400, "Messaging entity '%s' is currently disabled."},
}

// textNoEntity has the words by which the SDKs for JavaScript and Java know a missing entity.
const textNoEntity = "The messaging entity '%s' could not be found."

// sentence makes a sentence of an error's text.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}
