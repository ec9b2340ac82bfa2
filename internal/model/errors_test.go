package model

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

func TestStatusErrors(t *testing.T) {
	const transient, permanent, throttled = forebay.ClassTransient, forebay.ClassPermanent, forebay.ClassThrottled
	body := func(code, kind, message string) string {
		return fmt.Sprintf(`{"error":{"message":%q,"type":%q,"param":null,"code":%q}}`, message, kind, code)
	}
	tests := []struct {
		name   string
		status int
		header map[string]string
		body   string
		class  forebay.ErrorClass
		code   string
		after  time.Duration
	}{
		{"429 in ms", 429, map[string]string{"retry-after-ms": "1500", "Retry-After": "9"}, body("rate_limit_exceeded", "tokens", "Rate limit reached"), throttled, CodeRateLimited, 1500 * time.Millisecond},
		{"429 in seconds", 429, map[string]string{"Retry-After": "7"}, "", throttled, CodeRateLimited, 7 * time.Second},
		{"429 by date", 429, map[string]string{"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, "", throttled, CodeRateLimited, 30 * time.Second},
		{"429 silent", 429, nil, "slow down", throttled, CodeRateLimited, 0},
		{"429 Azure code", 429, nil, body("429", "", "Requests have exceeded call rate limit"), throttled, CodeRateLimited, 0},
		{"429 for a day", 429, map[string]string{"Retry-After": "86400"}, body("429", "", "Please retry after 86400 seconds"), throttled, CodeRequestExceedsQuota, 24 * time.Hour},
		{"429 too large", 429, map[string]string{"Retry-After": "2"}, body("rate_limit_exceeded", "tokens", "Request too large for small in organization org-x on tokens per min (TPM): Limit 30000, Requested 36278."), throttled, CodeRequestExceedsQuota, 0},
		{"429 no money", 429, map[string]string{"Retry-After": "7"}, body("insufficient_quota", "insufficient_quota", "You exceeded your current quota"), permanent, CodeInsufficientQuota, 0},
		{"429 billing", 429, nil, body("billing_hard_limit_reached", "", ""), permanent, CodeInsufficientQuota, 0},
		{"402", 402, nil, "", permanent, CodeInsufficientQuota, 0},
		{"400", 400, nil, body("", "invalid_request_error", "bad"), permanent, CodeBadRequest, 0},
		{"400 context", 400, nil, body("context_length_exceeded", "invalid_request_error", "too long"), permanent, CodeContextLength, 0},
		{"400 filter", 400, nil, body("content_filter", "", "filtered"), permanent, CodeContentFilter, 0},
		{"400 filter of Azure", 400, nil, `{"error":{"message":"The response was filtered","code":"other","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{}}}}`, permanent, CodeContentFilter, 0},
		{"401", 401, nil, body("invalid_api_key", "invalid_request_error", "Incorrect API key provided: "+testKey), permanent, CodeUnauthorized, 0},
		{"403", 403, nil, "", permanent, CodeUnauthorized, 0},
		{"404", 404, nil, body("DeploymentNotFound", "", "no such deployment"), permanent, CodeNotFound, 0},
		{"408", 408, nil, "", transient, CodeRequestTimeout, 0},
		{"409", 409, nil, "", transient, CodeConflict, 0},
		{"413", 413, nil, "", permanent, CodeRequestTooLarge, 0},
		{"418", 418, nil, "", permanent, CodeBadRequest, 0},
		{"422", 422, nil, `{"detail":[{"loc":["body"]}]}`, permanent, CodeUnprocessable, 0},
		{"424", 424, nil, `{"error":"Request failed during generation","error_type":"generation"}`, transient, CodeServerError, 0},
		{"425", 425, map[string]string{"Retry-After": "3"}, "", transient, CodeServerError, 3 * time.Second},
		{"500", 500, nil, "<html>", transient, CodeServerError, 0},
		{"502", 502, nil, "", transient, CodeBadGateway, 0},
		{"503", 503, map[string]string{"Retry-After": "3"}, `{"error":"model is loading"}`, transient, CodeUnavailable, 3 * time.Second},
		{"504", 504, nil, "", transient, CodeGatewayTimeout, 0},
		{"520", 520, nil, "", transient, CodeServerError, 0},
		{"529", 529, nil, "", transient, CodeOverloaded, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				for k, v := range tt.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			p := openAIAt(t, url, HTTPConfig{})
			_, err := p.Chat(t.Context(), say("hi"))
			if e := wantTask(t, err, tt.class, tt.code); e.RetryAfter != tt.after {
				t.Errorf("retry after %v, want %v", e.RetryAfter, tt.after)
			}
			_, err = p.Embed(t.Context(), EmbedRequest{Inputs: []string{"hi"}})
			wantTask(t, err, tt.class, tt.code)
		})
	}
}

func TestErrorMessages(t *testing.T) {
	prompt := "My secret diary begins on a rainy day in March."
	long := strings.Repeat("é", 5000)
	for _, tt := range []struct{ message, want, not string }{
		{"the model is busy", "the model is busy", ""},
		{"Incorrect API key provided: " + testKey + ". Find yours online.", "Find yours online", "sk-"},
		{"Incorrect API key provided: sk-test-****************fXYZ. Find yours online.", "Find yours online", "XYZ"},
		{"key " + testKey[:14] + "… is wrong", "is wrong", testKey[:8]},
		{"token eyJhbGciOi.abc.def is stale", "is stale", "eyJ"},
		{"cannot parse 'diary begins on a rainy day in' here", "left out", "rainy"},
		{"line\none\x00two", "line one two", "\n"},
		{long, "éé", strings.Repeat("é", 150)},
	} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(400)
			b, _ := forebay.EncodeJSON(map[string]any{"error": map[string]any{"message": tt.message, "type": "some_error"}})
			_, _ = w.Write(b)
		})
		_, err := openAIAt(t, url, HTTPConfig{}).Chat(t.Context(), say(prompt))
		e := wantTask(t, err, forebay.ClassPermanent, CodeBadRequest)
		if !strings.Contains(e.Message, tt.want) || tt.not != "" && strings.Contains(e.Message, tt.not) {
			t.Errorf("%.60q became %q", tt.message, e.Message)
		}
		if !strings.Contains(e.Message, "HTTP 400 Bad Request (some_error)") {
			t.Errorf("status or type is missing in %q", e.Message)
		}
		if !utf8.ValidString(e.Message) {
			t.Errorf("invalid UTF-8 in %q", e.Message)
		}
	}
}

func TestRepeats(t *testing.T) {
	for _, tt := range []struct {
		message, text string
		want          bool
	}{
		{"input too long", "a story about input", false},
		{"invalid value: hunter2", "hunter2", true},
		{"invalid value: hi", "hi", false},
		{"x", "", false},
		{"got: abcdefghijklmnopqrstuvwxyz", "0123 abcdefghijklmnopqrstuvwxyz 4567", true},
	} {
		if got := repeats(tt.message, []string{"unrelated", tt.text}); got != tt.want {
			t.Errorf("repeats(%q, %q) = %v", tt.message, tt.text, got)
		}
	}
}

var retryAfterSeeds = []string{"", "0", "1", "1.5", "7.66s", "-3", "86400", "999999999999999999999", "NaN", "+Inf", "1e400", "0x1p4",
	"Wed, 21 Oct 2015 07:28:00 GMT", "Wednesday, 21-Oct-15 07:28:00 GMT", "Wed, 32 Oct 2015 07:28:00 GMT", "soon"}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2015, 10, 21, 7, 27, 0, 0, time.UTC)
	want := []time.Duration{0, 0, time.Second, 1500 * time.Millisecond, 7660 * time.Millisecond, 0, 24 * time.Hour, maxRetryAfter, 0, 0, 0, 16 * time.Second,
		time.Minute, time.Minute, 0, 0}
	var got []time.Duration
	for _, s := range retryAfterSeeds {
		got = append(got, retryAfter(http.Header{"Retry-After": {s}}, now))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range retryAfterSeeds {
		f.Add(s, "", "")
		f.Add("", s, "Wed, 21 Oct 2015 07:28:00 GMT")
		f.Add("9", s, s)
	}
	now := time.Date(2015, 10, 21, 7, 27, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, seconds, ms, date string) {
		d := retryAfter(http.Header{"Retry-After": {seconds}, "Retry-After-Ms": {ms}, "Date": {date}}, now)
		if d < 0 || d > maxRetryAfter {
			t.Errorf("%v", d)
		}
	})
}

func FuzzErrorBody(f *testing.F) {
	for _, s := range []string{`{"error":{"message":"m","type":"t","code":"c","innererror":{"code":"i"}}}`, `{"error":"text"}`, `{"error":{"code":429}}`,
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, `{"message":"m"}`, `null`, `[]`, `"x"`, `{"error":null}`, "<html>"} {
		f.Add(400, []byte(s))
		f.Add(0, []byte(s))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		e := endpoint{key: testKey}
		var err error
		if status == 0 {
			err = e.streamError(body, func() []string { return nil })
		} else {
			err = e.statusError(status, http.Header{}, body, false, func() []string { return nil })
		}
		task := forebay.AsTaskError(err)
		if task.Code == "" || task.Class == "" || len(task.Message) > maxMessageBytes || !utf8.ValidString(task.Message) || strings.Contains(task.Message, testKey) {
			t.Errorf("%+v", task)
		}
	})
}
