package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
	"github.com/forebayhq/forebay/internal/model"
)

const (
	maxRedirects      = 3
	maxProblemBytes   = 16 << 10 // how much of an error's body is read
	maxExcerptBytes   = 200      // how much of it is shown
	maxRetryAfter     = 24 * time.Hour
	maxFunctionIdle   = 64
	functionUserAgent = "Forebay"
)

// function is a task that calls an HTTP function of the user.
type function struct {
	name      string
	url       string
	headers   http.Header
	timeout   time.Duration
	maxOutput int64
	secrets   secrets // secrets in the headers, which no answer may show
	client    *http.Client
}

func newFunction(name string, o Option, c Config) (*function, error) {
	bad := func(option, format string, args ...any) (*function, error) {
		return nil, forebay.Invalid("tasks."+name+".http."+option, format, args...)
	}
	u, err := url.Parse(o.HTTP.URL)
	switch {
	case o.HTTP.URL == "":
		return bad("url", "is missing")
	case err != nil || u.Hostname() == "":
		return bad("url", "is no URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("url", "must begin with http:// or https://")
	case u.User != nil:
		return bad("url", "must hold no user or password; use headers")
	case o.HTTP.RequestsPerMinute < 0:
		return bad("requests_per_minute", "must not be negative")
	case o.HTTP.Concurrency < 0:
		return bad("concurrency", "must not be negative")
	}
	f := &function{name: name, url: u.String(), headers: http.Header{}, timeout: o.Timeout, maxOutput: c.MaxOutputBytes}
	for key, value := range o.HTTP.Headers {
		if !headerName(key) {
			return bad("headers", "%.80q is no header name", key)
		}
		if strings.ContainsFunc(value.Reveal(), func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return bad("headers", "the value of %s has control characters", key)
		}
		f.headers.Set(key, value.Reveal())
	}
	f.secrets = headerSecrets(f.headers)
	f.client = &http.Client{Transport: c.Transport, CheckRedirect: stayHome}
	return f, nil
}

// stayHome follows a redirect only to the same host with the same scheme and method. So neither
// the input nor the headers go elsewhere.
func stayHome(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > maxRedirects || next.URL.Host != first.Host || next.URL.Scheme != first.Scheme || next.Method != http.MethodPost {
		return http.ErrUseLastResponse
	}
	return nil
}

// check accepts every input. The function decides what it accepts.
func (f *function) check(json.RawMessage) error { return nil }

func (f *function) run(ctx context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
	result := forebay.TaskResult{Deployment: "http:" + f.name}
	model.ReportSent(ctx)
	err := underTimeout(ctx, f.timeout, func(ctx context.Context) (err error) {
		result.Output, err = f.post(ctx, call)
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	})
	model.ReportOutcome(ctx, model.RateLimits{}, forebay.TokenUsage{}, 0, err)
	return result, err
}

func (f *function) post(ctx context.Context, call forebay.TaskCall) (json.RawMessage, error) {
	body, err := forebay.EncodeJSON(struct {
		JobID         string            `json:"job_id"`
		Task          string            `json:"task"`
		Tenant        string            `json:"tenant"`
		CorrelationID string            `json:"correlation_id"`
		Attempt       int               `json:"attempt"`
		Generation    int               `json:"generation"`
		Input         json.RawMessage   `json:"input"`
		Metadata      map[string]string `json:"metadata"`
		Properties    map[string]string `json:"application_properties"`
	}{call.JobID, call.Task, call.Tenant, call.CorrelationID, call.Number, call.Generation, call.Input, filled(call.Metadata), call.Properties()})
	if err != nil {
		return nil, invalidInput(fmt.Errorf("the input is no JSON"))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = f.headers.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/plain;q=0.9, */*;q=0.1")
	req.Header.Set("User-Agent", functionUserAgent)
	// With this header under its canonical name, the transport would itself repeat the request
	// after a broken connection. Only the retry lane may repeat calls.
	req.Header.Del("Idempotency-Key")
	req.Header["idempotency-key"] = []string{fmt.Sprintf("%s.%d", call.JobID, call.Generation)}
	req.Header.Set("X-Correlation-Id", call.CorrelationID)
	req.Header.Set("X-Forebay-Attempt", strconv.Itoa(call.Number))
	if call.Traceparent != "" {
		req.Header.Set("Traceparent", call.Traceparent)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, f.refusal(resp)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, f.maxOutput+1))
	if err != nil {
		return nil, &forebay.TaskError{Class: forebay.ClassTransient, Code: model.CodeConnectionLost, Message: "the connection to the function broke", Err: err}
	}
	if int64(len(answer)) > f.maxOutput {
		return nil, forebay.Permanent(model.CodeResponseTooLarge, fmt.Sprintf("the function's answer is over %d bytes", f.maxOutput))
	}
	return f.output(resp.Header.Get("Content-Type"), answer)
}

// filled turns nil into an empty map, so that functions always get an object.
func filled(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// output turns an answer into JSON. JSON stays as it is, a text becomes a string, and an empty
// answer becomes null. It masks secrets of the headers that the function echoes.
func (f *function) output(contentType string, answer []byte) (json.RawMessage, error) {
	if len(bytes.TrimSpace(answer)) == 0 {
		return json.RawMessage("null"), nil
	}
	media, _, _ := mime.ParseMediaType(contentType)
	declared := media == "application/json" || strings.HasSuffix(media, "+json")
	if (declared || media == "") && jsoncheck.Check("answer", answer) == nil {
		return f.secrets.maskJSON(bytes.TrimSpace(answer)), nil
	}
	if declared {
		return nil, malformed("the function's answer is not the JSON it says it is")
	}
	return forebay.EncodeJSON(f.secrets.mask(string(answer)))
}

// unreachable classifies the errors of http.Client. Their texts contain the URL, which callers
// must not see.
func unreachable(err error) error {
	code, message := model.CodeConnectionLost, "the connection to the function broke"
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		code, message = model.CodeConnectionFailed, "the function cannot be reached"
	}
	return &forebay.TaskError{Class: forebay.ClassTransient, Code: code, Message: message, Err: err}
}

// refusal classifies answers without success.
func (f *function) refusal(resp *http.Response) error {
	status := resp.StatusCode
	e := &forebay.TaskError{Class: forebay.ClassPermanent, Code: "http_" + strconv.Itoa(status),
		Message: fmt.Sprintf("the function answered %d%s", status, f.problem(resp))}
	switch {
	case status == http.StatusTooManyRequests:
		e.Class, e.Code = forebay.ClassThrottled, model.CodeRateLimited
		e.RetryAfter = retryAfter(resp.Header, time.Now())
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly, status >= 500:
		e.Class = forebay.ClassTransient
		e.RetryAfter = retryAfter(resp.Header, time.Now())
	case status < 400:
		e.Message = fmt.Sprintf("the function answered %d, a redirect that is not followed", status)
	}
	return e
}

// problem returns the code and title of an RFC 9457 body, or "". Other parts of a body may contain
// anything. It masks secrets before it cuts the text, because half a secret is not recognized.
func (f *function) problem(resp *http.Response) string {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != "application/json" && !strings.HasSuffix(media, "+json") {
		return ""
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
	var p struct {
		Code  any `json:"code"`
		Title any `json:"title"`
	}
	if err != nil || json.Unmarshal(body, &p) != nil {
		return ""
	}
	text := ""
	for _, part := range []any{p.Code, p.Title} {
		if s, ok := part.(string); ok && !blank(s) {
			text += ": " + excerpt(f.secrets.mask(s))
		}
	}
	return text
}

// excerpt returns the beginning of s in one line.
func excerpt(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, clip(s, maxExcerptBytes))
	return strings.Join(strings.Fields(s), " ")
}

// retryAfter reads Retry-After (RFC 9110, section 10.2.3) in seconds or as a date, or the finer
// retry-after-ms. It returns 0 if there is neither.
func retryAfter(h http.Header, now time.Time) time.Duration {
	seconds := 0.0
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil {
		seconds = ms / 1000
	} else if s, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After")), 64); err == nil {
		seconds = s
	} else if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		seconds = at.Sub(now).Seconds()
	}
	if math.IsNaN(seconds) || seconds <= 0 {
		return 0
	}
	return time.Duration(math.Min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
}

// headerName reports whether s is a token, as header names are (RFC 9110, section 5.6.2).
func headerName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}
