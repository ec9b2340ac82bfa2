package decode

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/forebayhq/forebay"
)

// Submit reads one submit request. Its Input shares memory with data. Some fields are allowed
// only in a line of a bulk submit: POST /v1/jobs has headers for them.
func Submit(data []byte, line bool) (forebay.SubmitRequest, error) {
	var req forebay.SubmitRequest
	if err := checkJSON(data); err != nil {
		return req, err
	}
	var seen []string
	err := members(data, func(name string, value []byte) error {
		for _, s := range seen {
			if s == name {
				return errTwice(bodyField(name))
			}
		}
		seen = append(seen, name)
		return setSubmitField(&req, name, value, line)
	})
	return req, err
}

func setSubmitField(req *forebay.SubmitRequest, name string, value []byte, line bool) error {
	switch name {
	case "input":
		req.Input = value
		return nil
	case "task":
		return decodeField(name, value, &req.Task, "a string")
	case "queue":
		return decodeField(name, value, &req.Queue, "a string")
	case "priority":
		return decodeField(name, value, &req.Priority, "an integer")
	case "session_id":
		return decodeField(name, value, &req.SessionID, "a string")
	case "correlation_id":
		return decodeField(name, value, &req.CorrelationID, "a string")
	case "scheduled_at":
		return decodeField(name, value, &req.ScheduledAt, WantTime)
	case "deadline":
		return decodeField(name, value, &req.Deadline, WantTime)
	case "max_attempts":
		return decodeField(name, value, &req.MaxAttempts, "an integer")
	case "max_cost_usd":
		return decodeField(name, value, &req.MaxCostUSD, "a number of US dollars, up to a billion")
	case "max_total_tokens":
		return decodeField(name, value, &req.MaxTotalTokens, "an integer")
	case "metadata":
		if value[0] == 'n' {
			return nil
		}
		return decodeMap(reflect.ValueOf(&req.Metadata).Elem(), name, value)
	case "idempotency_key", "traceparent":
		if !line {
			return unknownField(name, "is not a known field; send it as a header")
		}
		if name == "traceparent" {
			return decodeField(name, value, &req.Traceparent, "a string")
		}
		return decodeField(name, value, &req.IdempotencyKey, "a string")
	}
	var headers []string
	if !line {
		headers = []string{"idempotency_key", "traceparent"}
	}
	return unknownField(name, notKnown(fieldsOf(reflect.TypeFor[forebay.SubmitRequest]()), headers...))
}

const WantTime = "an RFC 3339 time such as 2030-01-02T15:04:05Z"

// decodeField decodes a value, which must be valid JSON. null leaves the field unset.
func decodeField(name string, value []byte, into any, want string) error {
	if text, ok := into.(*string); ok && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		*text = string(value[1 : len(value)-1])
		return nil
	}
	if unpairedSurrogate(value) {
		return errSurrogate(name)
	}
	if err := json.Unmarshal(value, into); err != nil {
		return forebay.Invalid(bodyField(name), "must be %s", want)
	}
	return nil
}
