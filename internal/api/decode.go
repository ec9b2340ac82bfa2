package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

// decodeSubmit reads one submit request. Its Input shares memory with data. Some fields are
// allowed only in a line of a bulk submit: POST /v1/jobs has headers for them.
func decodeSubmit(data []byte, line bool) (forebay.SubmitRequest, error) {
	var req forebay.SubmitRequest
	if err := checkBody(data); err != nil {
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
		return decodeField(name, value, &req.ScheduledAt, wantTime)
	case "deadline":
		return decodeField(name, value, &req.Deadline, wantTime)
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
			return unknownField(name, "; send it as a header")
		}
		if name == "traceparent" {
			return decodeField(name, value, &req.Traceparent, "a string")
		}
		return decodeField(name, value, &req.IdempotencyKey, "a string")
	}
	return unknownField(name, "")
}

const wantTime = "an RFC 3339 time such as 2030-01-02T15:04:05Z"

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

var errNotObject = forebay.Invalid("body", "must be a JSON object")

// checkBody reports why data is not one JSON value within the limits.
func checkBody(data []byte) error {
	if skipSpace(data, 0) == len(data) {
		return &forebay.Error{Code: forebay.CodeInvalidJSON, Field: "body", Message: "is empty; a JSON object is needed"}
	}
	return jsoncheck.Check("body", data)
}

// bodyField names a member of the body in the way the service does. The whole body is "body".
func bodyField(name string) string {
	if name == "" {
		return "body"
	}
	return shorten(name)
}

func unknownField(name, hint string) error {
	return &forebay.Error{Code: forebay.CodeUnknownField, Field: bodyField(name), Message: fmt.Sprintf("is not a known field%s", hint)}
}

// shorten makes a foreign name fit for a message.
func shorten(name string) string {
	if len(name) <= forebay.MaxNameBytes && cleanText(name) {
		return name
	}
	return strings.Trim(strconv.QuoteToASCII(name[:min(len(name), forebay.MaxNameBytes)]), `"`)
}

// members visits the members of the object in data without copying values. data must be valid
// JSON.
func members(data []byte, visit func(name string, value []byte) error) error {
	i := skipSpace(data, 0)
	if data[i] != '{' {
		return errNotObject
	}
	i = skipSpace(data, i+1)
	for data[i] != '}' {
		end := stringEnd(data, i)
		name, err := unquote(data[i:end])
		if err != nil {
			return forebay.Invalid("body", "has a name that is not a string")
		}
		i = skipSpace(data, skipSpace(data, end)+1) // past the colon
		end = valueEnd(data, i)
		if err := visit(name, data[i:end:end]); err != nil {
			return err
		}
		i = skipSpace(data, end)
		if data[i] == ',' {
			i = skipSpace(data, i+1)
		}
	}
	return nil
}

func unquote(quoted []byte) (string, error) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	return s, err
}

// skipSpace returns the index of the first byte from i on that is not JSON white space.
func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t') {
		i++
	}
	return i
}

// stringEnd returns the index after the string that starts at i.
func stringEnd(data []byte, i int) int {
	for i++; data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd returns the index after the value that starts at i.
func valueEnd(data []byte, i int) int {
	depth := 0
	for ; i < len(data); i++ {
		switch data[i] {
		case '"':
			if i = stringEnd(data, i); depth == 0 {
				return i
			}
			i--
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // the end of a scalar; the brace belongs to its object
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}
