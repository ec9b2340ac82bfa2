package modelsim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// refusal is an error answer, before it has the shape of an API.
type refusal struct {
	status    int
	kind      string // OpenAI's type
	code      string // OpenAI's and Azure's
	param     string
	message   string
	azure     string // its own words, if it has any
	anthropic string // the same
	// verdict, if set, says that the quota refused the call. Headers say how long to wait.
	verdict *Verdict
	wait    time.Duration // for Retry-After of other errors
}

var (
	unauthorized = refusal{status: http.StatusUnauthorized, kind: "invalid_request_error", code: "invalid_api_key",
		message:   "Incorrect API key provided.",
		azure:     "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key for an active subscription and use a correct regional API endpoint for your resource.",
		anthropic: "invalid x-api-key"}
	filteredRefusal = refusal{status: http.StatusBadRequest, kind: "invalid_request_error", code: "content_filter", param: "prompt",
		message: "Output blocked by content filtering policy",
		azure:   "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please modify your prompt and retry."}
)

func notFound(message string) refusal {
	return refusal{status: http.StatusNotFound, kind: "invalid_request_error", message: message}
}

func badRequest(param, message string) refusal {
	return refusal{status: http.StatusBadRequest, kind: "invalid_request_error", param: param, message: message}
}

func unknownModel(name string) refusal {
	name = clip(name, 200)
	return refusal{status: http.StatusNotFound, kind: "invalid_request_error", code: "model_not_found", param: "model",
		message:   fmt.Sprintf("The model `%s` does not exist or you do not have access to it.", name),
		azure:     "The API deployment for this resource does not exist. If you created the deployment within the last 5 minutes, please wait a moment and try again.",
		anthropic: "model: " + name}
}

// denied answers a call that the script turns away. OpenAI says with a 429 that no credit is
// left, and Anthropic with a 400 (Errors, "invalid_request_error"). Azure bills afterwards and
// documents nothing for it, so it answers as OpenAI does.
func (c *httpCall) denied() refusal {
	switch c.admission.Conditions.Denied {
	case Unauthorized:
		return unauthorized
	case NotFound:
		return unknownModel(c.name)
	}
	r := refusal{status: http.StatusTooManyRequests, kind: "insufficient_quota", code: "insufficient_quota",
		message: "You exceeded your current quota, please check your plan and billing details. " +
			"For more information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
		anthropic: "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}
	if c.api == anthropic {
		r.status = http.StatusBadRequest
	}
	return r
}

// throttled answers a call that was not admitted.
func (c *httpCall) throttled() refusal {
	v := &c.admission.Verdict
	r := refusal{status: http.StatusTooManyRequests, kind: "tokens", code: "rate_limit_exceeded", verdict: v}
	if v.Refused == Requests {
		r.kind = "requests"
	}
	if c.api == anthropic {
		r.kind = "rate_limit_error"
	}
	if v.Refused == throttledByScript {
		r.message = "The engine is currently overloaded, please try again later"
		r.azure = "The system is currently experiencing high demand and cannot process your request. Please retry your request later."
		return r
	}
	unit, short, limit := "token", "tokens per min (TPM)", c.deployment.TokensPerMinute
	switch v.Refused {
	case Requests:
		unit, short, limit = "call", "requests per min (RPM)", c.admission.State.Requests.PerMinute
	case OutputTokens:
		limit = c.admission.State.Output.PerMinute
	}
	seconds := ceilSeconds(v.RetryAfter)
	r.azure = fmt.Sprintf("Requests to the %s Operation under Azure OpenAI API version %s have exceeded %s rate limit of your current OpenAI S0 pricing tier. "+
		"Please retry after %d %s. Please go here: https://aka.ms/oai/quotaincrease if you would like to further increase the default rate limit.",
		c.operation(), c.version(), unit, seconds, plural(seconds, "second"))
	switch {
	case c.api == anthropic:
		r.message = fmt.Sprintf("This request would exceed your organization's rate limit of %d %s per minute. See the response headers for current usage.",
			limit, map[Dimension]string{Requests: "requests", Tokens: "tokens", InputTokens: "input tokens", OutputTokens: "output tokens"}[v.Refused])
	case v.Oversize:
		r.message = fmt.Sprintf("Request too large for %s in organization org-sim on %s: Limit %d, Requested %d. The input or output tokens must be reduced in order to run successfully.",
			c.deployment.Model, short, limit, v.Charged)
	default:
		r.message = fmt.Sprintf("Rate limit reached for %s in organization org-sim on %s: Limit %d. Please try again in %v.",
			c.deployment.Model, short, limit, v.RetryAfter.Round(time.Millisecond))
	}
	return r
}

func plural(n int64, unit string) string {
	if n == 1 {
		return unit
	}
	return unit + "s"
}

func (c *httpCall) operation() string {
	if c.embed {
		return "Embeddings_Create"
	}
	return "ChatCompletions_Create"
}

func (c *httpCall) version() string {
	if v := c.r.URL.Query().Get("api-version"); v != "" {
		return clip(v, 32)
	}
	return "v1"
}

// failed answers a call that the script has fail.
func (c *httpCall) failed(status int) refusal {
	r := refusal{status: status, kind: "server_error", message: "The server had an error while processing your request. Sorry about that!",
		azure: "The server had an error while processing your request.", code: "InternalServerError", wait: c.admission.Conditions.retryAfter}
	switch {
	case status == 529:
		r.message = "Overloaded"
	case status == http.StatusServiceUnavailable:
		r.kind, r.code, r.message = "service_unavailable", "ServiceUnavailable", "The engine is currently overloaded, please try again later"
		r.azure = "The service is temporarily unable to process your request. Please try again later."
	case status < 500:
		r.kind, r.code, r.message = "invalid_request_error", "BadRequest", http.StatusText(status)
		r.azure = r.message
	}
	return r
}

// anthropicType is how Anthropic names an error (API reference, "Errors").
func anthropicType(r refusal) string {
	switch r.status {
	case http.StatusBadRequest:
		return "invalid_request_error"
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case 529:
		return "overloaded_error"
	}
	return "api_error"
}

// refuse sends an error in the shape of the call's API.
func (c *httpCall) refuse(r refusal) error {
	if r.verdict != nil {
		c.quotaHeaders(r.verdict)
	} else {
		c.idHeaders()
		if r.wait > 0 {
			c.w.Header().Set("Retry-After", strconv.FormatInt(ceilSeconds(r.wait), 10))
		}
	}
	var body any
	switch c.api {
	case anthropic:
		body = map[string]any{"type": "error", "error": map[string]any{"type": anthropicType(r), "message": r.text(r.anthropic)}, "request_id": c.requestID()}
	case azure:
		body = map[string]any{"error": azureError(r)}
	default:
		body = r.openAIBody()
	}
	return c.send(r.status, encoded(body))
}

// openAIBody returns the body of the error in OpenAI's shape.
func (r refusal) openAIBody() map[string]any {
	e := map[string]any{"message": r.text(""), "type": r.kind, "param": nil, "code": nil}
	if r.param != "" {
		e["param"] = r.param
	}
	if r.code != "" && r.status < 500 {
		e["code"] = r.code
	}
	return map[string]any{"error": e}
}

func encoded(body any) []byte {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// text returns an API's own words, or else the message, as JSON that holds them byte for byte.
func (r refusal) text(own string) json.RawMessage {
	return json.RawMessage(quoted(cmp.Or(own, r.message)))
}

func azureError(r refusal) map[string]any {
	message, code := r.text(r.azure), r.code
	switch {
	case r.code == "content_filter":
		safe := map[string]any{"filtered": false, "severity": "safe"}
		return map[string]any{"message": message, "type": nil, "param": r.param, "code": code, "status": r.status,
			"innererror": map[string]any{"code": "ResponsibleAIPolicyViolation", "content_filter_result": map[string]any{
				"hate": safe, "self_harm": safe, "sexual": safe, "violence": map[string]any{"filtered": true, "severity": "medium"}}}}
	case r.status == http.StatusBadRequest:
		return map[string]any{"message": message, "type": r.kind, "param": r.param, "code": nil}
	case code == "model_not_found":
		code = "DeploymentNotFound"
	case code == "insufficient_quota":
		return map[string]any{"message": message, "type": r.kind, "param": nil, "code": code}
	case r.status < 500:
		code = strconv.Itoa(r.status) // as text
	}
	return map[string]any{"code": code, "message": message}
}
