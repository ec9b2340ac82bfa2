package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// The codes of errors that providers and the router return, by class.
const (
	// Throttled: over a quota, which recovers without action.
	CodeRateLimited         = "rate_limited"
	CodeRequestExceedsQuota = "request_exceeds_quota" // told to wait an hour or more, or that it is too large
	CodeDeploymentPaused    = "deployment_paused"     // not called: all deployments were throttled

	// Transient: a later call may succeed.
	CodeIdleTimeout       = "idle_timeout"
	CodeConnectionFailed  = "connection_failed"  // no connection: nothing was sent
	CodeConnectionLost    = "connection_lost"    // broke during the call
	CodeStreamCut         = "stream_cut"         // the stream ended before its answer did
	CodeMalformedResponse = "malformed_response" // not the expected JSON
	CodeRequestTimeout    = "request_timeout"    // 408
	CodeConflict          = "conflict"           // 409
	CodeServerError       = "server_error"       // 500 and other 5xx
	CodeBadGateway        = "bad_gateway"        // 502
	CodeUnavailable       = "unavailable"        // 503
	CodeGatewayTimeout    = "gateway_timeout"    // 504
	CodeOverloaded        = "overloaded"         // 529
	CodeNoCredential      = "credential_unavailable"
	// The endpoint wants a parameter under its other name. The next call uses that.
	CodeParameterLearned = "parameter_learned"

	// Permanent: the same call can never succeed.
	CodeBadRequest        = "bad_request"
	CodeContextLength     = "context_length_exceeded"
	CodeNotFound          = "not_found"
	CodeRequestTooLarge   = "request_too_large" // 413
	CodeUnprocessable     = "unprocessable"     // 422
	CodeUnauthorized      = "unauthorized"
	CodeInsufficientQuota = "insufficient_quota" // the credit or the spending limit is used up
	CodeContentFilter     = "content_filter"
	CodeRefused           = "refused" // the model declined
	CodeResponseTooLarge  = "response_too_large"
	CodeNotSupported      = "not_supported"
	CodeUnknownModel      = "unknown_model" // not called
	CodeCostLimit         = "cost_limit"    // not called
	CodeTokenLimit        = "token_limit"   // not called
	CodeClientGone        = "client_gone"   // nobody takes the answer of a forwarded call
)

const (
	maxMessageBytes  = 500
	maxProviderBytes = 200 // limit of the provider's own text
	maxRetryAfter    = 7 * 24 * time.Hour
	// Azure answers Retry-After: 86400 to a request that is larger than the whole deployment. A
	// time from oversizeRetryAfter on therefore concerns only this job and not the deployment.
	oversizeRetryAfter = time.Hour
	// tooLargeForQuota begins the message of OpenAI's 429 for such a request.
	tooLargeForQuota = "Request too large for "
)

// failure is an error that a provider reports, in a response or in the middle of a stream.
type failure struct {
	status            int // 0: unknown
	code, kind, param string
	innerCode         string
	reason            string // Google's, such as API_KEY_INVALID
	message           string
	retryAfter        time.Duration
	// elsewhere says that the deployment has answered calls of other paths and none of this one, or
	// that it may well lack the path.
	elsewhere bool
}

// parseFailure parses the body of an error response. Its forms are {"error":{…}} of OpenAI, Azure
// and Anthropic, {"error":"…"}, the bare object, and Gemini's list of one of them. Any other body,
// such as a proxy's page, is ignored.
func parseFailure(body []byte) failure {
	var outer struct {
		Error json.RawMessage `json:"error"`
	}
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	if json.Unmarshal(body, &outer) != nil {
		return failure{}
	}
	if len(outer.Error) > 0 && string(outer.Error) != "null" {
		body = outer.Error
	}
	var text string
	if json.Unmarshal(body, &text) == nil {
		return failure{message: text}
	}
	var inner struct {
		Code    any `json:"code"` // a name, or a number at some servers
		Type    any `json:"type"`
		Param   any `json:"param"`
		Message any `json:"message"`
		Inner   struct {
			Code any `json:"code"`
		} `json:"innererror"`
		Details json.RawMessage `json:"details"`
	}
	if json.Unmarshal(body, &inner) != nil {
		return failure{}
	}
	f := failure{code: scalar(inner.Code), kind: scalar(inner.Type), param: scalar(inner.Param),
		innerCode: scalar(inner.Inner.Code), message: scalar(inner.Message)}
	var details []struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(inner.Details, &details) == nil {
		for _, detail := range details {
			f.reason = cmp.Or(f.reason, detail.Reason)
		}
	}
	if status, err := strconv.Atoi(f.code); err == nil && status >= 400 && status <= 599 {
		f.status = status
	}
	return f
}

func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// statusError classifies a response that is not 2xx. elsewhere is that of [failure].
func (e *endpoint) statusError(status int, header http.Header, body []byte, elsewhere bool, texts func() []string) error {
	f := parseFailure(body)
	f.status, f.elsewhere = status, elsewhere
	f.retryAfter = readRateLimits(header, status, time.Now()).RetryAfter
	return e.taskError(f, texts)
}

// streamError classifies an error inside a 2xx answer.
func (e *endpoint) streamError(body []byte, texts func() []string) error {
	return e.taskError(parseFailure(body), texts)
}

func (e *endpoint) taskError(f failure, texts func() []string) error {
	class, code := f.classify()
	t := &forebay.TaskError{Class: class, Code: code, RetryAfter: f.retryAfter, Err: &f}
	if class == forebay.ClassPermanent {
		t.RetryAfter = 0
	}
	switch {
	case class != forebay.ClassThrottled:
	case f.retryAfter >= oversizeRetryAfter:
		t.Code = CodeRequestExceedsQuota
	case strings.HasPrefix(f.message, tooLargeForQuota):
		t.Code, t.RetryAfter = CodeRequestExceedsQuota, 0 // to wait so long would not help
	}
	t.Message = e.describe(f, texts)
	return t
}

// Error makes a failure the inner error of a TaskError. It contains only the status.
func (f *failure) Error() string { return "status " + strconv.Itoa(f.status) }

// classify uses the provider's own code where it says more than the status.
func (f failure) classify() (forebay.ErrorClass, string) {
	says := f.says
	switch {
	case (f.status == 0 || f.status == 400 || f.status == 403) &&
		(says("content_filter", "content_policy_violation", "moderation", "bio_policy") || f.innerCode == "ResponsibleAIPolicyViolation"):
		return forebay.ClassPermanent, CodeContentFilter
	case f.status == 402, (f.status == 0 || f.status == 429) && says("insufficient_quota", "billing", "spend", "credit"),
		(f.status == 400 || f.status == 403) && (says("insufficient_quota", "billing") || anthropicUnpaid.MatchString(f.message)):
		return forebay.ClassPermanent, CodeInsufficientQuota
	case f.status == 401 || f.status == 403 || f.status == 400 && (f.reason == geminiKeyReason || geminiKey.MatchString(f.message)):
		return forebay.ClassPermanent, CodeUnauthorized
	case f.status == 400 && says("context_length_exceeded"):
		return forebay.ClassPermanent, CodeContextLength
	}
	switch f.status {
	case 404:
		return forebay.ClassPermanent, CodeNotFound
	case 408:
		return forebay.ClassTransient, CodeRequestTimeout
	case 409:
		return forebay.ClassTransient, CodeConflict
	case 413:
		return forebay.ClassPermanent, CodeRequestTooLarge
	case 422:
		return forebay.ClassPermanent, CodeUnprocessable
	case 424, 425: // of servers behind the endpoint, and of its connection
		return forebay.ClassTransient, CodeServerError
	case 429:
		return forebay.ClassThrottled, CodeRateLimited
	case 502:
		return forebay.ClassTransient, CodeBadGateway
	case 503:
		return forebay.ClassTransient, CodeUnavailable
	case 504:
		return forebay.ClassTransient, CodeGatewayTimeout
	case 529:
		return forebay.ClassTransient, CodeOverloaded
	case 0: // inside a stream
		switch {
		case says("rate_limit"):
			return forebay.ClassThrottled, CodeRateLimited
		case says("overloaded"):
			return forebay.ClassTransient, CodeOverloaded
		case says("context_length_exceeded"):
			return forebay.ClassPermanent, CodeContextLength
		case says(refusedInStream...):
			return forebay.ClassPermanent, CodeBadRequest
		case says("authentication", "permission"):
			return forebay.ClassPermanent, CodeUnauthorized
		}
		return forebay.ClassTransient, CodeServerError
	}
	if f.status >= 500 {
		return forebay.ClassTransient, CodeServerError
	}
	return forebay.ClassPermanent, CodeBadRequest
}

// refusedInStream are parts of codes and types that say in a stream that the request is at fault.
// Most are codes of failed responses.
var refusedInStream = []string{"invalid_request", "invalid_prompt", "invalid_image", "invalid_base64", "image_too_", "image_parse_error", "image_file_", "empty_image_file", "unsupported_image", "data_residency_mismatch"}

// anthropicUnpaid matches the message of Anthropic's 400 invalid_request_error for an account
// without credit, and for one whose own spending limit, or that of its workspace, is reached.
var anthropicUnpaid = regexp.MustCompile(`^(?:Your credit balance is too low|You have reached your specified (?:workspace )?API usage limits)`)

// geminiKeyReason is the reason in the details of Gemini's 400 for a wrong key. geminiKey matches
// its message, for gateways that leave the details out.
const geminiKeyReason = "API_KEY_INVALID"

var geminiKey = regexp.MustCompile(`^API key (?:not valid|expired)`)

// openAIOtherPath matches the messages of OpenAI's 404 for a model that has other paths, such as a
// chat model at /v1/completions. They have no code.
var openAIOtherPath = regexp.MustCompile(`^This (?:is|model) .*\bsupported in (?:the )?v1/`)

// deepSeekNoCredit is the message of DeepSeek's 402. Its code and type are those of other errors.
const deepSeekNoCredit = "Insufficient Balance"

// says reports whether the provider's code or type contains one of the words.
func (f *failure) says(words ...string) bool {
	for _, w := range words {
		if strings.Contains(f.code, w) || strings.Contains(f.kind, w) {
			return true
		}
	}
	return false
}

// denial says why the deployment would refuse every call, whatever it asks for, if that is the
// case. The result is certain only if the provider's own code says so. A 403 may come from a
// firewall that rejects the prompt, and a 404 from a proxy. A 402 may mean that the credit does
// not cover the max_tokens of this one request. A path that the model or the server does not have
// is the request's fault: calls of other paths are answered.
func (f *failure) denial() (why quota.Denial, certain bool) {
	switch _, code := f.classify(); code {
	case CodeUnauthorized:
		why, certain = quota.Unauthorized, f.status != 403 || f.says("permission", "Permission", "auth", "Auth", "api_key", "access_denied", "AccessDenied", "account", "country")
	case CodeInsufficientQuota:
		return quota.Unpaid, f.status != 402 || f.says("insufficient", "billing", "spend", "credit", "balance") || f.message == deepSeekNoCredit
	case CodeNotFound:
		why, certain = quota.NotFound, f.says("model_not_found", "DeploymentNotFound", "not_found_error")
	}
	if !certain && (f.elsewhere || f.status == 404 && openAIOtherPath.MatchString(f.message)) {
		return quota.NotDenied, false
	}
	return why, certain
}

// describe returns the message of an error: the status, the provider's codes and its text. It
// omits a text that repeats the prompt.
func (e *endpoint) describe(f failure, texts func() []string) string {
	var b strings.Builder
	if f.status != 0 {
		fmt.Fprintf(&b, "HTTP %d", f.status)
		if name := http.StatusText(f.status); name != "" {
			b.WriteString(" " + name)
		}
	} else {
		b.WriteString("error in the answer")
	}
	said := texts()
	var names []string
	for _, name := range []string{f.kind, f.code, f.innerCode, f.param} {
		if name = e.clean(name, 64); name != "" && !repeats(name, said) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		b.WriteString(" (" + strings.Join(names, ", ") + ")")
	}
	if message := e.clean(f.message, maxProviderBytes); message != "" {
		// Check the whole message: in a shortened one, a quotation may be too short to notice.
		if repeats(f.message, said) {
			message = "(the provider's message repeats the input and is left out)"
		}
		b.WriteString(": " + message)
	}
	return truncate(b.String(), maxMessageBytes)
}

// keyLike matches a word that looks like a credential, whole or masked. OpenAI's 401 shows both
// ends of the key around asterisks.
var keyLike = regexp.MustCompile(`\S*(?:\*{3,}|\b[sp]k-|\beyJ)\S*`)

// clean makes a provider's text fit for a log: no credentials, no control characters, at most n
// bytes.
func (e *endpoint) clean(s string, n int) string {
	if key := e.key.Reveal(); key != "" {
		s = strings.ReplaceAll(s, key, "***")
		if len(key) >= 16 { // a shortened key still shows its first characters
			s = regexp.MustCompile(regexp.QuoteMeta(key[:8])+`\S*`).ReplaceAllString(s, "***")
		}
	}
	s = keyLike.ReplaceAllString(s, "***")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	return truncate(strings.TrimSpace(s), n)
}

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n -= len("…"); n > 0 && !utf8.RuneStart(s[n]); n-- {
	}
	return s[:n] + "…"
}

// repeats reports whether message quotes one of the texts: a whole short text, or any 23 bytes of
// a long one. Such a run contains one aligned window of the text, since its length is two windows
// minus one.
func repeats(message string, texts []string) bool {
	const window, shortest = 12, 4
	for _, text := range texts {
		trimmed := strings.TrimSpace(text)
		if len(trimmed) >= shortest && len(trimmed) <= len(message) && strings.Contains(message, trimmed) {
			return true
		}
		for i := 0; i+window <= len(message); i += window {
			if strings.Contains(text, message[i:i+window]) {
				return true
			}
		}
	}
	return false
}

// retryAfter returns how long to wait, from 0 to a week; 0 means not given. It reads
// retry-after-ms (OpenAI, Azure), else Retry-After in seconds or as an HTTP date (RFC 9110,
// section 10.2.3). It compares a date with the answer's own Date, because clocks may differ.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, ok := number(h.Get("retry-after-ms")); ok {
		return bounded(ms * float64(time.Millisecond))
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, ok := number(value); ok {
		return bounded(seconds * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		return bounded(float64(at.Sub(now)))
	}
	return 0
}

func number(s string) (float64, bool) {
	f, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(s), "s"), 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func bounded(d float64) time.Duration {
	return time.Duration(min(max(d, 0), float64(maxRetryAfter)))
}

// callError classifies an error of the call itself, not one in the provider's answer.
func callError(err error) error {
	var task *forebay.TaskError
	if errors.As(err, &task) {
		return err
	}
	fail := func(code, message string) error {
		return &forebay.TaskError{Class: forebay.ClassTransient, Code: code, Message: message, Err: err}
	}
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, errTooLarge):
		return &forebay.TaskError{Class: forebay.ClassPermanent, Code: CodeResponseTooLarge,
			Message: "the stream, or one event of it, is too large", Err: err}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fail(CodeConnectionLost, "the endpoint closed the connection")
	case errors.As(err, &dns):
		return fail(CodeConnectionFailed, "the endpoint's host name does not resolve")
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail(CodeConnectionFailed, "the endpoint refused the connection")
	case errors.As(err, &op) && op.Op == "dial":
		return fail(CodeConnectionFailed, "no connection to the endpoint")
	}
	return fail(CodeConnectionLost, "the connection to the endpoint broke")
}

func malformed(what string) error {
	return &forebay.TaskError{Class: forebay.ClassTransient, Code: CodeMalformedResponse, Message: what}
}

func streamCut() error { return streamCutBy(nil) }

// streamCutBy is streamCut with its cause.
func streamCutBy(err error) error {
	return &forebay.TaskError{Class: forebay.ClassTransient, Code: CodeStreamCut,
		Message: "the stream ended before the answer did", Err: err}
}
