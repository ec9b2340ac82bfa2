// Package bridge translates between OpenAI's Responses API and what a provider speaks. It does no
// I/O.
//
// A [Request] is the body of POST /responses, checked. An [Exchange] is one call for it. It
// chooses what the provider gets: the request itself where that speaks Responses, else one for
// chat completions. It reads the provider's answer, in one piece or as a stream. It returns the
// events of the response as they become known, and the object that ends it.
//
// The facts of the API are those of OpenAI's OpenAPI file, and of the SDKs that read the answers.
package bridge

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/forebayhq/forebay"
)

// Error refuses a request. Param is the path of the part that is wrong.
type Error struct {
	Param   string // "": the whole
	Code    string // "": none
	Message string
}

func (e *Error) Error() string { return e.Message }

func invalid(param, code, format string, args ...any) *Error {
	return &Error{Param: param, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Object is a JSON object whose values are kept as they are.
type Object = map[string]json.RawMessage

var (
	null     = json.RawMessage("null")
	noList   = json.RawMessage("[]")
	noObject = json.RawMessage("{}")
	zero     = json.RawMessage("0")
	one      = json.RawMessage("1")
)

// encode is for values that can be encoded: strings, numbers and JSON that was read.
func encode(v any) json.RawMessage {
	b, err := forebay.EncodeJSON(v)
	if err != nil {
		panic(err)
	}
	return b
}

func number(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }

func boolean(b bool) json.RawMessage { return strconv.AppendBool(nil, b) }

// isNull reports whether a member is missing or null.
func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// or returns a member, or what stands for one that is missing or null.
func or(raw, otherwise json.RawMessage) json.RawMessage {
	if isNull(raw) {
		return otherwise
	}
	return raw
}

// text returns the value of a JSON string, or "".
func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

// objectOf returns a JSON object's members, or nil.
func objectOf(raw json.RawMessage) (o Object) {
	if json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return o
}

// listOf returns a JSON array's elements, or nil.
func listOf(raw json.RawMessage) (list []json.RawMessage) {
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}
