package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

func functionTask(t *testing.T, o Option) forebay.Task {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	list, err := New(Config{Models: &oneDeployment{}, ModelNames: []string{}, Tasks: map[string]Option{"score": o}, MaxOutputBytes: 1000, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 {
		t.Fatalf("%d tasks", len(list))
	}
	return list[0]
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

var delivery = forebay.TaskCall{
	JobID: "job_7", Task: "score", Tenant: "acme", CorrelationID: "corr", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	Generation: 2, Number: 3, Input: json.RawMessage(`{"a":"<\u0000"}`), Metadata: map[string]string{"k": "v"},
	LastError: "server_error: boom",
}

func TestFunctionRequest(t *testing.T) {
	var got struct {
		header http.Header
		method string
		body   map[string]any
	}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got.header, got.method = r.Header, r.Method
		if err := json.NewDecoder(r.Body).Decode(&got.body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		io.WriteString(w, " {\"score\": 12345678901234567890}\n")
	})
	task := functionTask(t, Option{Queue: "scores", HTTP: &HTTPFunction{URL: url + "/f", Headers: map[string]forebay.Secret{"Authorization": "Bearer s", "Idempotency-Key": "mine"}}})
	result, err := task.Run(t.Context(), delivery)
	if err != nil {
		t.Fatal(err)
	}
	if string(result.Output) != `{"score": 12345678901234567890}` || result.Deployment != "http:score" || task.Queue != "scores" {
		t.Errorf("%+v %s", result, result.Output)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer s", "Idempotency-Key": "job_7.2", "Traceparent": delivery.Traceparent, "X-Correlation-Id": "corr",
		"X-Forebay-Attempt": "3", "Content-Type": "application/json",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s: %q", name, got.header.Get(name))
		}
	}
	want := map[string]any{"job_id": "job_7", "task": "score", "tenant": "acme", "correlation_id": "corr", "attempt": 3.0, "generation": 2.0}
	for name, v := range want {
		if got.body[name] != v {
			t.Errorf("%s: %v", name, got.body[name])
		}
	}
	if got.method != "POST" || got.body["input"].(map[string]any)["a"] != "<\x00" || got.body["metadata"].(map[string]any)["k"] != "v" ||
		got.body["application_properties"].(map[string]any)["attempt"] != "3" || got.body["application_properties"].(map[string]any)["last_error"] != "server_error: boom" {
		t.Errorf("%s %v", got.method, got.body)
	}
}

func TestFunctionAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		status     int
		header     map[string]string
		body       string
		output     string // "": an error
		class      forebay.ErrorClass
		code       string
		retryAfter time.Duration
		message    string
	}{
		"text":             {status: 200, header: map[string]string{"Content-Type": "text/plain"}, body: "12", output: `"12"`},
		"undeclared JSON":  {status: 200, header: map[string]string{"Content-Type": ""}, body: "[1]", output: `[1]`},
		"any bytes":        {status: 201, header: map[string]string{"Content-Type": "application/octet-stream"}, body: "a\xff\x00", output: `"a\ufffd\u0000"`},
		"empty":            {status: 204, output: `null`},
		"broken JSON":      {status: 200, header: map[string]string{"Content-Type": "application/json"}, body: `{"a":`, class: forebay.ClassTransient, code: "malformed_response"},
		"JSON not UTF-8":   {status: 200, header: map[string]string{"Content-Type": "application/x+json"}, body: "\"\xff\"", class: forebay.ClassTransient, code: "malformed_response"},
		"too large":        {status: 200, body: strings.Repeat("x", 1001), class: forebay.ClassPermanent, code: "response_too_large"},
		"throttled":        {status: 429, header: map[string]string{"Retry-After": "7"}, class: forebay.ClassThrottled, code: "rate_limited", retryAfter: 7 * time.Second},
		"throttled, finer": {status: 429, header: map[string]string{"Retry-After": "7", "Retry-After-Ms": "250"}, class: forebay.ClassThrottled, code: "rate_limited", retryAfter: 250 * time.Millisecond},
		"timeout":          {status: 408, class: forebay.ClassTransient, code: "http_408"},
		"conflict":         {status: 409, class: forebay.ClassTransient, code: "http_409"},
		"too early":        {status: 425, class: forebay.ClassTransient, code: "http_425"},
		"down":             {status: 503, header: map[string]string{"Retry-After": "1e99"}, class: forebay.ClassTransient, code: "http_503", retryAfter: maxRetryAfter},
		"bad request": {status: 422, header: map[string]string{"Content-Type": "application/problem+json"},
			body:  `{"code":"too_long","title":"Too\nlong ` + strings.Repeat("x", 500) + `","detail":"the secret input"}`,
			class: forebay.ClassPermanent, code: "http_422", message: "the function answered 422: too_long: Too long xxx"},
		"no problem body": {status: 400, header: map[string]string{"Content-Type": "text/html"}, body: "<h1>stack trace</h1>", class: forebay.ClassPermanent, code: "http_400", message: "the function answered 400"},
		"odd problem":     {status: 400, header: map[string]string{"Content-Type": "application/json"}, body: `{"code":[1],"title":{}}`, class: forebay.ClassPermanent, code: "http_400", message: "the function answered 400"},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				for k, v := range tt.header {
					if w.Header().Set(k, v); v == "" {
						w.Header()[k] = nil
					}
				}
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			})
			result, err := functionTask(t, Option{HTTP: &HTTPFunction{URL: url}}).Run(t.Context(), delivery)
			if tt.output != "" {
				if err != nil || string(result.Output) != tt.output {
					t.Errorf("%s, %v", result.Output, err)
				}
				return
			}
			e := taskError(t, err)
			if e.Class != tt.class || e.Code != tt.code || e.RetryAfter != tt.retryAfter || !strings.HasPrefix(e.Message, tt.message) || result.Deployment != "http:score" {
				t.Errorf("%+v", e)
			}
			if len(e.Message) > 300 || strings.Contains(e.Message, "secret") || strings.Contains(e.Message, "stack") || strings.Contains(e.Message, "\n") {
				t.Errorf("message %q", e.Message)
			}
		})
	}
}

func TestFunctionRetryAfterDate(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:04:00 GMT": 0, "soon": 0, "-3": 0, "NaN": 0, "+Inf": maxRetryAfter, "": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}

func TestFunctionRedirects(t *testing.T) {
	elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("another host was called with %v", r.Header)
	})
	home := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		case "/near":
			http.Redirect(w, r, "/done", http.StatusPermanentRedirect)
		case "/get":
			http.Redirect(w, r, "/done", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		default:
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(r.Method == "POST" && len(body) > 0)
		}
	})
	result, err := functionTask(t, Option{HTTP: &HTTPFunction{URL: home + "/near"}}).Run(t.Context(), delivery)
	if err != nil || string(result.Output) != "true" {
		t.Errorf("to the same host: %s, %v", result.Output, err)
	}
	for _, path := range []string{"/away", "/get", "/loop"} {
		_, err := functionTask(t, Option{HTTP: &HTTPFunction{URL: home + path}}).Run(t.Context(), delivery)
		if e := taskError(t, err); e.Class != forebay.ClassPermanent || !strings.HasPrefix(e.Code, "http_30") {
			t.Errorf("%s: %+v", path, e)
		}
	}
}

func TestFunctionUnreachable(t *testing.T) {
	_, err := functionTask(t, Option{HTTP: &HTTPFunction{URL: "http://127.0.0.1:1"}}).Run(t.Context(), delivery)
	if e := taskError(t, err); e.Class != forebay.ClassTransient || e.Code != "connection_failed" || strings.Contains(e.Message, "127.0.0.1") {
		t.Errorf("%+v", e)
	}
	url := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err = functionTask(t, Option{HTTP: &HTTPFunction{URL: url}}).Run(t.Context(), delivery)
	if e := taskError(t, err); e.Class != forebay.ClassTransient || e.Code != "connection_lost" {
		t.Errorf("%+v", e)
	}
}

// hanging serves a function that never answers, and tells when it was called and when its caller
// left.
func hanging(t *testing.T) (url string, arrived, gone chan struct{}) {
	arrived, gone = make(chan struct{}, 1), make(chan struct{}, 1)
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // only then does the server watch the connection
		arrived <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}), arrived, gone
}

func TestFunctionTimeout(t *testing.T) {
	url, _, _ := hanging(t)
	_, err := functionTask(t, Option{Timeout: 50 * time.Millisecond, HTTP: &HTTPFunction{URL: url}}).Run(t.Context(), delivery)
	if e := taskError(t, err); e.Class != forebay.ClassTransient || e.Code != "timeout" {
		t.Errorf("%+v", e)
	}
}

func TestFunctionCancel(t *testing.T) {
	url, arrived, gone := hanging(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err := functionTask(t, Option{HTTP: &HTTPFunction{URL: url}}).Run(ctx, delivery)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-gone // the call itself is aborted, not only no longer waited for
}

// A connection that breaks is one failed attempt: nothing below the retry lane sends the request
// again.
func TestFunctionIsCalledOnceWhenItsConnectionBreaks(t *testing.T) {
	var calls atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			return // keeps the connection for the next call
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	})
	task := functionTask(t, Option{HTTP: &HTTPFunction{URL: url}})
	if _, err := task.Run(t.Context(), delivery); err != nil {
		t.Fatal(err)
	}
	if _, err := task.Run(t.Context(), delivery); err == nil {
		t.Error("a broken connection is no failure")
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("two attempts made %d calls", n)
	}
}

func TestFunctionThatEchoesItsHeaders(t *testing.T) {
	headers := map[string]forebay.Secret{
		"Authorization": "Bearer tok/en+99", "X-Api-Key": "k3y-\"q", "Cookie": "session=abcdef12", "X-Team": "recommendations",
		"Proxy-Authorization": "Basic dXNlcjpwYXNzd29yZDE=",
	}
	secrets := []string{"tok/en+99", `k3y-"q`, "abcdef12", "dXNlcjpwYXNzd29yZDE", "password1"}
	said := strings.Repeat("x", maxExcerptBytes-4) + "tok/en+99" // cut in its middle
	for name, c := range map[string]struct {
		status            int
		contentType, body string
		want              string // of the output or the error's message
	}{
		"JSON":            {200, "application/json", `{"n": 12345678901234567890, "seen":"Bearer tok/en+99","tok/en+99":["k3y-\"q","abcdef12"]}`, `{"n": 12345678901234567890, "seen":"***","***":["***","***"]}`},
		"escaped JSON":    {200, "application/json", `{"seen":"tok\/en\u002b99, \u006b3y-\u0022q"}`, `{"seen":"***, ***"}`},
		"text":            {200, "text/plain", `saw Basic dXNlcjpwYXNzd29yZDE= of user:password1`, `"saw *** of ***"`},
		"error":           {400, "application/json", `{"code":"tok/en+99","title":"session=abcdef12"}`, "the function answered 400: ***: ***"},
		"error cut short": {400, "application/json", `{"title":"` + said + `"}`, strings.Repeat("x", maxExcerptBytes-4) + "***"},
		"nothing secret":  {200, "application/json", `{"team":"recommendations",  "session":"Bearer"}`, `{"team":"recommendations",  "session":"Bearer"}`},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.contentType)
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			result, err := functionTask(t, Option{HTTP: &HTTPFunction{URL: url, Headers: headers}}).Run(t.Context(), delivery)
			said := string(result.Output)
			if refused := (*forebay.TaskError)(nil); errors.As(err, &refused) {
				said = refused.Message
			} else if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(said, c.want) {
				t.Errorf("got %s, want %s", said, c.want)
			}
			for _, secret := range secrets {
				if strings.Contains(said, secret) {
					t.Errorf("%s shows %q", said, secret)
				}
			}
		})
	}
}
