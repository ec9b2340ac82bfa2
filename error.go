package forebay

import (
	"errors"
	"fmt"
	"time"
)

// Code is a stable, machine-readable name of an error. It is part of the wire contract: a code may
// be added, never renamed.
type Code string

const (
	CodeInvalidRequest      Code = "invalid_request" // malformed or out of range; Field says what
	CodeInvalidJSON         Code = "invalid_json"    // not JSON, too deep, or not UTF-8
	CodeUnknownField        Code = "unknown_field"   //
	CodeUnknownTask         Code = "unknown_task"    //
	CodeUnknownQueue        Code = "unknown_queue"   //
	CodeUnknownOrchestrator Code = "unknown_orchestrator"
	CodeInvalidCursor       Code = "invalid_cursor"    //
	CodePayloadTooLarge     Code = "payload_too_large" //
	CodeUnsupportedMedia    Code = "unsupported_media_type"
	CodeUnauthorized        Code = "unauthorized"         // no key, or a wrong, expired or revoked one
	CodeForbidden           Code = "forbidden"            // the key lacks the scope
	CodeNotFound            Code = "not_found"            // does not exist, or is another tenant's
	CodeGone                Code = "gone"                 // was there, and is not kept any more
	CodeMethodNotAllowed    Code = "method_not_allowed"   //
	CodeConflict            Code = "conflict"             // the state does not allow it
	CodePreconditionFailed  Code = "precondition_failed"  // what If-Match or If-None-Match demands is not so
	CodeIdempotencyMismatch Code = "idempotency_mismatch" // the key was used with another body
	CodeLockLost            Code = "lock_lost"            // the lock token is stale
	CodeSessionLockLost     Code = "session_lock_lost"    // the session's lock token is stale
	CodeSessionLocked       Code = "session_locked"       // another receiver has the session
	CodeEntityDisabled      Code = "entity_disabled"      // the status of the queue, topic or subscription does not allow it
	CodeRequestTimeout      Code = "request_timeout"      // the body came too slowly
	CodeTooManyRequests     Code = "too_many_requests"    // the server itself is saturated
	CodeTenantLimit         Code = "tenant_limit_reached" // the tenant has as much as it may have
	CodeRateLimited         Code = "rate_limited"         // requests come too fast
	CodeNotSupported        Code = "not_supported"        //
	CodeStorageFull         Code = "storage_full"         // nothing was stored
	CodeUnavailable         Code = "unavailable"          // try again later
	CodeDatabaseUnusable    Code = "database_unusable"    // not a database, not ours, newer, read-only, or in use
	CodeInternal            Code = "internal"             //

	// What is wrong with a document, or with its index.
	CodeDocumentEmpty     Code = "document_empty"     // it has no text
	CodeDocumentEncrypted Code = "document_encrypted" //
	CodeDocumentBroken    Code = "document_broken"    // it is not what it says it is, or is damaged
	CodeDocumentEncoding  Code = "document_encoding"  // its bytes are no text in its charset
	CodeDocumentTooLarge  Code = "document_too_large" // pages, text or chunks
	CodeDimensionsChanged Code = "dimensions_changed" // the vectors are not of the index's dimension
)

// Error is an error that a caller may see: it holds no stack, SQL, path or secret. Every error
// that leaves Forebay by HTTP or the command line is one of these, or is replaced by
// CodeInternal.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Field   string `json:"field,omitempty"` // the part of the request it is about, such as "body.priority"
	// JobID names the job concerned, such as the one that an idempotency key created earlier.
	JobID string `json:"job_id,omitempty"`
	// RetryAfter is how long to wait before another try. 0: unknown.
	RetryAfter time.Duration `json:"-"`
	cause      error
}

func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// Unwrap returns the inner error, which is for logs only.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is an *Error with the same code, so that
// errors.Is(err, &Error{Code: CodeNotFound}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Errorf returns an Error with that code and a message in the format of fmt.Sprintf.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns a CodeInvalidRequest error about one field.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalidRequest, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Caused returns a copy of e that carries an inner error for the log.
func (e *Error) Caused(by error) *Error {
	c := *e
	c.cause = by
	return &c
}

// CodeOf returns the code of the first *Error in err's chain, or CodeInternal.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// ErrLockLost is returned when a lock token no longer holds its message. The lock expired and the
// message was delivered again, or the job was cancelled. Nothing was changed.
var ErrLockLost = &Error{Code: CodeLockLost, Message: "the lock on this message is lost; nothing was changed"}

// ErrSessionLockLost is returned when the lock on a session has ended. Nothing was changed.
var ErrSessionLockLost = &Error{Code: CodeSessionLockLost, Message: "the lock on this session is lost; nothing was changed"}

// ErrSessionLocked is returned while another receiver has the session.
var ErrSessionLocked = &Error{Code: CodeSessionLocked, Field: "session_id", Message: "another receiver has this session"}

// ErrNotFound is returned when the caller's tenant has no such thing.
var ErrNotFound = &Error{Code: CodeNotFound, Message: "not found"}
