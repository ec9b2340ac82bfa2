package openai

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
)

// envelope is the body of each error: the schema ErrorResponse of OpenAI's OpenAPI file. All four
// keys are required.
type envelope struct {
	Error apiError `json:"error"`
}

type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// Types of errors.
const (
	typeInvalid   = "invalid_request_error"
	typeRateLimit = "rate_limit_error"
	typeServer    = "server_error"
)

// failure is an error with the status and the headers to answer with. Its code may be "".
type failure struct {
	status      int
	kind        string // its type
	code        string
	param       string
	message     string
	retryAfter  int   // seconds; 0: it does not say
	shouldRetry *bool // nil: the SDKs decide by the status
}

func (f *failure) Error() string { return f.message }

func badRequest(param, code, message string) *failure {
	return &failure{status: http.StatusBadRequest, kind: typeInvalid, code: code, param: param, message: message}
}

func unknownModel(name string) *failure {
	return &failure{status: http.StatusNotFound, kind: typeInvalid, code: "model_not_found", param: "model",
		message: "The model `" + cut(name, 100) + "` does not exist or you do not have access to it."}
}

var no = false

// write answers with the failure.
func (f *failure) write(w http.ResponseWriter) {
	f.writeHeader(w.Header())
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After-Ms", strconv.Itoa(f.retryAfter*1000))
	}
	w.WriteHeader(f.status)
	_, _ = w.Write(append(f.json(), '\n'))
}

// writeHeader sets what an answer with the failure has besides its body.
func (f *failure) writeHeader(h http.Header) {
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(f.retryAfter))
	}
	if f.shouldRetry != nil {
		h.Set("X-Should-Retry", strconv.FormatBool(*f.shouldRetry))
	}
	h.Set("Content-Type", "application/json")
}

// whole returns a provider's error with all keys of the envelope, as SDKs read it. An error that
// has them is returned as it is. What it lacks is the failure's. nil: it is no error.
func (f *failure) whole(body []byte) []byte {
	var members, said map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil
	}
	var text string
	switch raw := members["error"]; {
	case len(raw) == 0 || string(raw) == "null":
		return nil
	case json.Unmarshal(raw, &text) == nil:
		said = map[string]json.RawMessage{"message": raw}
	case json.Unmarshal(raw, &said) != nil:
		return nil
	}
	changed := false
	for name, otherwise := range map[string]any{"message": f.message, "type": f.kind, "param": nil, "code": nil} {
		raw := said[name]
		switch {
		case len(raw) > 0 && raw[0] == '"', string(raw) == "null" && otherwise == nil:
			continue
		case name == "code" && len(raw) > 0 && raw[0] >= '0' && raw[0] <= '9': // some servers send the status
			otherwise = string(raw)
		}
		value, err := json.Marshal(otherwise)
		if err != nil {
			panic(err) // a text: cannot happen
		}
		said[name], changed = value, true
	}
	if !changed {
		return body
	}
	inner, err := json.Marshal(said)
	if err == nil {
		members["error"] = inner
		body, err = json.Marshal(members)
	}
	if err != nil {
		panic(err) // JSON that was read: cannot happen
	}
	return body
}

// json is the envelope of the failure.
func (f *failure) json() []byte {
	e := apiError{Message: f.message, Type: f.kind}
	if f.param != "" {
		e.Param = &f.param
	}
	if f.code != "" {
		e.Code = &f.code
	}
	body, err := json.Marshal(envelope{e})
	if err != nil {
		panic(err) // a struct of strings: cannot happen
	}
	return body
}

// refusalOf is the failure that stands for an error of Forebay's own.
func refusalOf(r api.Refusal) *failure {
	f := &failure{status: r.Status, kind: typeInvalid, code: string(r.Code), param: strings.TrimPrefix(r.Field, "body."), message: r.Message, retryAfter: r.RetryAfter}
	switch {
	case r.Code == forebay.CodeNotFound:
		f.code = ""
	case r.Status == http.StatusUnauthorized:
		f.code = "invalid_api_key"
	case r.Status == http.StatusForbidden:
		f.code = "insufficient_permissions"
	case r.Status == http.StatusUnprocessableEntity, r.Status == http.StatusUnsupportedMediaType:
		f.status = http.StatusBadRequest
	case r.Status == http.StatusTooManyRequests:
		f.kind, f.code = typeRateLimit, "rate_limit_exceeded"
	case r.Status == http.StatusInsufficientStorage:
		f.status, f.kind = http.StatusServiceUnavailable, typeServer
	case r.Status >= http.StatusInternalServerError:
		f.kind = typeServer
	}
	return f
}

// Refuse implements [api.Surface].
func (a *API) Refuse(w http.ResponseWriter, r api.Refusal) {
	if ofAnthropic(r.Request) {
		refusalOf(r).writeMessages(w)
		return
	}
	refusalOf(r).write(w)
}

// cut shortens a text of a client that is repeated to it.
func cut(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }
