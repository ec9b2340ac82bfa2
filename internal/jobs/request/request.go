// Package request checks what clients ask for when they submit jobs. It knows neither the queues
// nor the store.
package request

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
	"github.com/forebayhq/forebay/internal/turns"
)

// Times that a client gives may be so far ahead.
const maxAhead = 10 * 366 * 24 * time.Hour

// Check checks the fields of a request, except its task, queue, input and metadata.
func Check(req *forebay.SubmitRequest, now time.Time) error {
	if err := checkFields(req); err != nil {
		return err
	}
	return checkTimes(req, now)
}

// CheckInput checks an input by the rules for all, then by those of its task. Large inputs wait
// for a turn.
func CheckInput(ctx context.Context, task *forebay.Task, input json.RawMessage, maxBytes int64) (err error) {
	if stopped := turns.Parse(ctx, len(input), func() { err = checkNow(task, input, maxBytes) }); stopped != nil {
		return stopped
	}
	return err
}

func checkNow(task *forebay.Task, input json.RawMessage, maxBytes int64) error {
	if len(input) == 0 {
		return forebay.Invalid("input", "is required")
	}
	if int64(len(input)) > maxBytes {
		return &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: "input",
			Message: fmt.Sprintf("is %d bytes; the limit is %d", len(input), maxBytes)}
	}
	if err := jsoncheck.Check("input", input); err != nil {
		return err
	}
	if task.Check == nil {
		return nil
	}
	if err := task.Check(input); err != nil {
		var known *forebay.Error
		if errors.As(err, &known) {
			return err
		}
		return forebay.Invalid("input", "%s", err.Error())
	}
	return nil
}

func checkFields(req *forebay.SubmitRequest) error {
	switch {
	case req.SessionID != nil && !validSessionID(*req.SessionID):
		return forebay.Invalid("session_id", "must be 1 to %d characters of text without control characters", forebay.MaxIDCharacters)
	case req.Priority != nil && (*req.Priority < forebay.MinPriority || *req.Priority > forebay.MaxPriority):
		return forebay.Invalid("priority", "is %d; it goes from 0 (last) to 9 (first)", *req.Priority)
	case req.MaxAttempts != nil && (*req.MaxAttempts < 1 || *req.MaxAttempts > forebay.MaxAttemptsLimit):
		return forebay.Invalid("max_attempts", "is %d; it goes from 1 to %d", *req.MaxAttempts, forebay.MaxAttemptsLimit)
	case req.MaxCostUSD != nil && *req.MaxCostUSD <= 0:
		return forebay.Invalid("max_cost_usd", "must be more than 0")
	case req.MaxTotalTokens != nil && (*req.MaxTotalTokens < 1 || *req.MaxTotalTokens > forebay.MaxTotalTokens):
		return forebay.Invalid("max_total_tokens", "is %d; it goes from 1 to %d", *req.MaxTotalTokens, int64(forebay.MaxTotalTokens))
	case req.CorrelationID != nil && !forebay.ValidText(*req.CorrelationID, forebay.MaxCorrelationBytes):
		return forebay.Invalid("correlation_id", "must be 1 to %d bytes of text without control characters", forebay.MaxCorrelationBytes)
	case req.IdempotencyKey != "" && !forebay.ValidText(req.IdempotencyKey, forebay.MaxIdempotencyKeyBytes):
		return forebay.Invalid("Idempotency-Key", "must be 1 to %d bytes of text without control characters", forebay.MaxIdempotencyKeyBytes)
	}
	return nil
}

func validSessionID(id string) bool {
	return forebay.ValidText(id, utf8.UTFMax*forebay.MaxIDCharacters) && utf8.RuneCountInString(id) <= forebay.MaxIDCharacters
}

func checkTimes(req *forebay.SubmitRequest, now time.Time) error {
	if at := req.ScheduledAt; at != nil && at.After(now.Add(maxAhead)) {
		return forebay.Invalid("scheduled_at", "is more than ten years ahead")
	}
	at := req.Deadline
	switch {
	case at == nil:
		return nil
	case !at.After(now) && req.IdempotencyKey == "": // with a key it may be a repeat, so the store checks it
		return forebay.Invalid("deadline", "has passed already")
	case at.After(now.Add(maxAhead)):
		return forebay.Invalid("deadline", "is more than ten years ahead")
	case req.ScheduledAt != nil && !at.After(*req.ScheduledAt):
		return forebay.Invalid("deadline", "is not after scheduled_at")
	}
	return nil
}

// Hash is equal for requests that mean the same. White space and the idempotency key do not
// count.
func Hash(req *forebay.SubmitRequest) ([]byte, error) {
	bare := *req
	bare.IdempotencyKey, bare.Traceparent = "", ""
	var input bytes.Buffer
	if err := json.Compact(&input, req.Input); err != nil {
		return nil, err
	}
	bare.Input = input.Bytes()
	b, err := json.Marshal(bare)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	return sum[:], nil
}

// ValidTraceparent reports whether s is a version-00 traceparent (W3C Trace Context, section
// 3.2). That specification asks to ignore any other.
func ValidTraceparent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	for i := 3; i < len(s); i++ {
		c := s[i]
		if i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// UnknownTask refuses a request for a task that the server does not have.
func UnknownTask(name string) error {
	if !forebay.ValidName(name) {
		return forebay.Invalid("task", "is required: the name of a task")
	}
	return &forebay.Error{Code: forebay.CodeUnknownTask, Field: "task", Message: "there is no task " + name + "; GET /v1/tasks lists those that there are"}
}

// Time returns a time as the database keeps it: UTC, in milliseconds. nil stays nil.
func Time(at *time.Time) *time.Time {
	if at == nil {
		return nil
	}
	t := at.UTC().Truncate(time.Millisecond)
	return &t
}
