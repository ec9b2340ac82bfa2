package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/raced"
)

// taken is what a forwarded call passed on.
type taken struct {
	status int
	header http.Header
	writes []string
}

func (k *taken) all() string { return strings.Join(k.writes, "") }

func (k *taken) request(path, body string) ForwardRequest {
	return ForwardRequest{Path: path, Body: []byte(body), Stream: strings.Contains(body, `"stream":true`),
		Begin: func(status int, header http.Header) error {
			k.status, k.header = status, header.Clone()
			return nil
		},
		Write: func(b []byte) error {
			if k.status == 0 {
				return errors.New("written before it began")
			}
			k.writes = append(k.writes, string(b))
			return nil
		}}
}

func forwardTo(t *testing.T, h http.HandlerFunc, c HTTPConfig, path, body string) (*taken, ForwardResponse, error) {
	t.Helper()
	k := &taken{}
	resp, err := openAIAt(t, serve(t, h), c).(Forwarder).Forward(t.Context(), k.request(path, body))
	return k, resp, err
}

func frames(data ...string) string {
	return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n"
}

func writing(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

const (
	askStream = `{"model":"logical","stream":true,"messages":[{"role":"user","content":"Hello there"}]}`
	askPlain  = `{"model":"logical","messages":[{"role":"user","content":"Hello there"}]}`
)

// The body reaches the server with nothing changed but the model.
func TestForwardKeepsTheRequest(t *testing.T) {
	odd := "\n {\"seed\" : 12345678901234567890, \"x\":[{\"model\":\"inner\"}], \"mod\\u0065l\" :\"logical\", \"a\":1e400, \"a\":0.10,\"t\":\"\\u00e9\\/\xff\"}\n"
	var got []byte
	var header http.Header
	k, resp, err := forwardTo(t, func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		header = r.Header
		if r.URL.Path != "/v1/chat/completions" {
			t.Errorf("path %q", r.URL.Path)
		}
		w.Header().Set("X-Request-Id", "req_7")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, plainAnswer+"\n")
	}, HTTPConfig{}, pathChat, odd)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(odd, "logical", "small", 1); string(got) != want {
		t.Errorf("the server got %q, want %q", got, want)
	}
	if header.Get("Accept-Encoding") != "" || header.Get("Authorization") != "Bearer "+testKey {
		t.Errorf("headers %v", header)
	}
	if k.all() != plainAnswer+"\n" || k.status != http.StatusCreated || k.header.Get("X-Request-Id") != "req_7" {
		t.Errorf("passed on %d %v %q", k.status, k.header, k.all())
	}
	if resp.Model != "small-2" || resp.FinishReason != "stop" || resp.Usage != (forebay.TokenUsage{InputTokens: 11, OutputTokens: 3}) || resp.Status != http.StatusCreated {
		t.Errorf("%+v", resp)
	}
}

func TestForwardPaths(t *testing.T) {
	var asked []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = append(asked, r.URL.RequestURI()+" "+string(b))
		_, _ = io.WriteString(w, `{}`)
	})
	for version, want := range map[string][]string{
		"2024-10-21": {"/openai/deployments/east/chat/completions?api-version=2024-10-21", "/openai/deployments/east/completions?api-version=2024-10-21",
			"/openai/deployments/east/embeddings?api-version=2024-10-21", "/openai/moderations?api-version=2024-10-21", "/openai/responses?api-version=2024-10-21", "/openai/responses/compact?api-version=2024-10-21"},
		"v1": {"/openai/v1/chat/completions", "/openai/v1/completions", "/openai/v1/embeddings", "/openai/v1/moderations", "/openai/v1/responses", "/openai/v1/responses/compact"},
	} {
		p, err := NewAzure(AzureConfig{Endpoint: url, Deployment: "east", APIVersion: version, APIKey: testKey})
		if err != nil {
			t.Fatal(err)
		}
		asked = nil
		for i, path := range ForwardPaths {
			k := &taken{}
			if _, err := p.(Forwarder).Forward(t.Context(), k.request(path, `{}`)); err != nil {
				t.Fatal(err)
			}
			if asked[i] != want[i]+` {"model":"east"}` {
				t.Errorf("%s %s: asked %s", version, path, asked[i])
			}
		}
		_, err = p.(Forwarder).Forward(t.Context(), (&taken{}).request("../files", `{}`))
		wantTask(t, err, forebay.ClassPermanent, CodeNotSupported)
		_, err = p.(Forwarder).Forward(t.Context(), (&taken{}).request(pathChat, `[]`))
		if e := wantTask(t, err, forebay.ClassPermanent, CodeBadRequest); !e.Uncalled {
			t.Error("a body that is no object was sent")
		}
	}
}

// Each event is passed on when it arrives. The usage that was added for accounting is taken out.
func TestForwardStream(t *testing.T) {
	const usage = `{"id":"c1","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}}`
	ping := ": ping\n\n"
	odd := "event: x\r\nid: 7\r\ndata:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"é\"}}],\"z\": 1.50}\r\n\r\n"
	role := frames(chunkRole)
	for name, c := range map[string]struct{ ask, options, want string }{
		"not asked for": {askStream, `"stream_options":{"include_usage":true}`,
			ping + strings.Replace(role, `,"usage":null`, "", 1) + odd + frames(chunkStop, "[DONE]")},
		"asked for": {strings.Replace(askStream, "{", `{"stream_options":{"include_usage":true},`, 1), `"stream_options":{"include_usage":true}`,
			ping + role + odd + frames(chunkStop, usage, "[DONE]")},
		"declined": {strings.Replace(askStream, "{", `{"stream_options": { "include_usage" : false, "x":1 },`, 1), `"stream_options": { "include_usage" : true, "x":1 }`,
			ping + strings.Replace(role, `,"usage":null`, "", 1) + odd + frames(chunkStop, "[DONE]")},
	} {
		t.Run(name, func(t *testing.T) {
			next, first := make(chan struct{}), 0
			var body []byte
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ = io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				for _, part := range []string{ping, role, odd, frames(chunkStop), frames(usage), frames("[DONE]")} {
					_, _ = io.WriteString(w, part)
					w.(http.Flusher).Flush()
					if part != frames(usage) || strings.Contains(c.want, usage) {
						<-next // until the client has it
					}
				}
			})
			k := &taken{}
			req := k.request(pathChat, c.ask)
			write := req.Write
			req.Write = func(b []byte) error {
				next <- struct{}{}
				return write(b)
			}
			resp, err := openAIAt(t, url, HTTPConfig{}).(Forwarder).Forward(OnFirstToken(t.Context(), func() { first++ }), req)
			if err != nil {
				t.Fatal(err)
			}
			if k.all() != c.want {
				t.Errorf("passed on\n%q, want\n%q", k.all(), c.want)
			}
			if !strings.Contains(string(body), c.options) {
				t.Errorf("the server got %s", body)
			}
			if resp.Usage != (forebay.TokenUsage{InputTokens: 11, OutputTokens: 3}) || resp.CachedTokens != 5 || resp.FinishReason != "stop" || resp.Model != "small-2" || first != 1 {
				t.Errorf("%+v, %d first tokens", resp, first)
			}
		})
	}
}

func TestForwardUsage(t *testing.T) {
	completed := `{"type":"response.completed","response":{"object":"response","model":"r","status":"completed","usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":2}}}`
	created := `{"type":"response.created","response":{"object":"response","model":"r","status":"in_progress","error":null,"usage":null}}`
	stream := "text/event-stream"
	for name, c := range map[string]struct {
		path, ask, kind, answer string
		usage                   forebay.TokenUsage
		cached                  int64
		finish                  string
	}{
		"embeddings":         {pathEmbeddings, `{"input":"x"}`, "application/json", `{"data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}`, forebay.TokenUsage{InputTokens: 8}, 0, ""},
		"response":           {pathResponses, `{"input":"x"}`, "application/json", `{"object":"response","error":null,"status":"incomplete","usage":{"input_tokens":8,"output_tokens":3}}`, forebay.TokenUsage{InputTokens: 8, OutputTokens: 3}, 0, "length"},
		"response, streamed": {pathResponses, `{"input":"x","stream":true}`, stream, "event: a\n" + frames(created) + "event: b\n" + frames(completed), forebay.TokenUsage{InputTokens: 9, OutputTokens: 2}, 4, "stop"},
		"usage with text":    {pathChat, askStream, stream, frames(strings.Replace(chunkStop, `"id"`, `"usage":{"prompt_tokens":6,"completion_tokens":1},"id"`, 1)), forebay.TokenUsage{InputTokens: 6, OutputTokens: 1}, 0, "stop"},
		"unknown":            {pathChat, askPlain, "application/json", `{"choices":[{"message":{"content":"12345678"},"finish_reason":"stop"}]}`, forebay.TokenUsage{InputTokens: 6, OutputTokens: 2}, 0, "stop"},
		"unknown, streamed":  {pathChat, askStream, stream, frames(chunkHello, chunkStop), forebay.TokenUsage{InputTokens: 6, OutputTokens: 2}, 0, "stop"},
		"legacy":             {pathCompletions, `{"prompt":"Hello there"}`, "application/json", `{"choices":[{"text":"1234","finish_reason":"length"}]}`, forebay.TokenUsage{InputTokens: 2, OutputTokens: 1}, 0, "length"},
		"moderations":        {pathModerations, `{"input":"Hello there"}`, "application/json", `{"results":[]}`, forebay.TokenUsage{InputTokens: 2}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k, resp, err := forwardTo(t, writing(c.kind, c.answer), HTTPConfig{}, c.path, c.ask)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Usage != c.usage || resp.CachedTokens != c.cached || resp.FinishReason != c.finish {
				t.Errorf("%+v", resp)
			}
			if k.all() != c.answer {
				t.Errorf("passed on %q", k.all())
			}
		})
	}
}

// Each is an answer with status 200 that fails.
func TestForwardFailures(t *testing.T) {
	const transient, permanent = forebay.ClassTransient, forebay.ClassPermanent
	cutAfter := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, body)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	tooMany := `{"error":{"message":"slow down ` + testKey + `","type":"x","param":null,"code":"rate_limit_exceeded"}}`
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		class   forebay.ErrorClass // "": it succeeds
		code    string
		passed  string
	}{
		"ended":                 {writing("text/event-stream", frames(chunkHello)), transient, CodeStreamCut, frames(chunkHello)},
		"ended within an event": {writing("text/event-stream", frames(chunkHello)+`data: {"choi`), transient, CodeStreamCut, frames(chunkHello)},
		"cut":                   {cutAfter(frames(chunkHello)), transient, CodeStreamCut, frames(chunkHello)},
		"cut before any event":  {cutAfter(": ping\n\n"), transient, CodeConnectionLost, ": ping\n\n"},
		"empty":                 {writing("text/event-stream", ""), transient, CodeMalformedResponse, ""},
		"no JSON":               {writing("text/event-stream", "data: {no\n\n"), transient, CodeMalformedResponse, ""},
		"empty data":            {writing("text/event-stream", "data:\n\n"+frames(chunkHello)+"data: \n\n"+frames(chunkStop, "[DONE]")), "", "", "data:\n\n" + frames(chunkHello) + "data: \n\n" + frames(chunkStop, "[DONE]")},
		"one choice of two cut": {writing("text/event-stream", frames(`{"choices":[{"index":1}]}`, chunkStop)), transient, CodeStreamCut, frames(`{"choices":[{"index":1}]}`, chunkStop)},
		"cut after the finish":  {cutAfter(frames(chunkHello, chunkStop)), "", "", frames(chunkHello, chunkStop)},
		"no last blank line":    {writing("text/event-stream", frames(chunkHello)+"data: [DONE]"), "", "", frames(chunkHello, "[DONE]")},
		"stream as text":        {writing("text/plain", frames(chunkHello, chunkStop)), "", "", frames(chunkHello, chunkStop)},
		"error within":          {writing("text/event-stream", frames(chunkHello, tooMany)), forebay.ClassThrottled, CodeRateLimited, frames(chunkHello, strings.Replace(tooMany, testKey, "***", 1))},
		"object for a stream":   {writing("application/json", plainAnswer), "", "", plainAnswer},
		"error for a stream":    {writing("application/json", tooMany), forebay.ClassThrottled, CodeRateLimited, ""},
		"half an object":        {writing("application/json", plainAnswer[:40]), transient, CodeMalformedResponse, ""},
		"too large an object":   {writing("application/json", `{"a":"`+strings.Repeat("x", 1<<20)+`"}`), permanent, CodeResponseTooLarge, "{"},
		"announced too large": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "9999999")
			writing("application/json", "{")(w, r)
		}, permanent, CodeResponseTooLarge, ""},
		"blanks first": {writing("application/json", "  \n"+plainAnswer), "", "", "  \n" + plainAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			k, resp, err := forwardTo(t, c.handler, HTTPConfig{MaxOutputBytes: 1 << 20}, pathChat, askStream)
			passed := k.all()
			if len(passed) > 100_000 {
				passed = passed[:1]
			}
			if passed != c.passed {
				t.Errorf("passed on %q, want %q", passed, c.passed)
			}
			if c.class == "" && err != nil {
				t.Fatal(err)
			} else if c.class != "" {
				wantTask(t, err, c.class, c.code)
			}
			if resp.Passed != (name == "error within") {
				t.Errorf("passed %v", resp.Passed)
			}
			if hasUsage := resp.Usage != (forebay.TokenUsage{}); hasUsage != (c.passed != "") {
				t.Errorf("usage %+v", resp.Usage)
			}
		})
	}
}

// An answer that is not 2xx is classified, and returned without credentials.
func TestForwardRefusals(t *testing.T) {
	for _, c := range []struct {
		status     int
		body, want string
		class      forebay.ErrorClass
		code       string
	}{
		{429, `{"error":{"message":"slow","type":"tokens","code":"rate_limit_exceeded","extra":1.0}}`, "", forebay.ClassThrottled, CodeRateLimited},
		{401, `{"error":{"message":"Incorrect API key provided: ` + testKey + `.","code":"invalid_api_key"}}`,
			`{"error":{"message":"Incorrect API key provided: ***","code":"invalid_api_key"}}`, forebay.ClassPermanent, CodeUnauthorized},
		{401, `{"error":{"message":"key sk\u002dtest-0123456789abcdefXYZ"}}`,
			`{"error":{"message":"the provider's message is left out","type":null,"param":null,"code":null}}`, forebay.ClassPermanent, CodeUnauthorized},
		{400, `{"error":{"message":"Hello there is bad","param":"messages[0]"}}`, "", forebay.ClassPermanent, CodeBadRequest},
		{404, `{"error":{"code":"404","message":"Resource not found"}}`, "", forebay.ClassPermanent, CodeNotFound},
		{502, "<html>\n", "", forebay.ClassTransient, CodeBadGateway},
	} {
		k, resp, err := forwardTo(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}, HTTPConfig{}, pathChat, askStream)
		e := wantTask(t, err, c.class, c.code)
		if c.want == "" {
			c.want = c.body
		}
		if string(resp.Body) != c.want || resp.Status != c.status || resp.Header.Get("Retry-After") != "7" || resp.Limits.RetryAfter != 7*time.Second {
			t.Errorf("%d: %+v with %s", c.status, resp, resp.Body)
		}
		if strings.Contains(e.Message, "Hello there") || len(k.writes) > 0 || k.status != 0 {
			t.Errorf("%d: %q, began with %d", c.status, e.Message, k.status)
		}
	}
}

// A server without stream_options is asked again at once, and from then on without them.
func TestForwardLearnsStreamOptions(t *testing.T) {
	var got []bool
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = append(got, bytes.Contains(b, []byte("stream_options")))
		if got[len(got)-1] || bytes.Contains(b, []byte("refuse")) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"Unrecognized request argument supplied: stream_options"}}`)
			return
		}
		stream(w, chunkHello, chunkStop, "[DONE]")
	})
	p := openAIAt(t, url, HTTPConfig{}).(Forwarder)
	for i, c := range []struct {
		body  string
		fails bool
		want  []bool
	}{
		{strings.Replace(askStream, "Hello", "refuse", 1), true, []bool{true, false}},
		{askStream, false, []bool{true, false}},
		{askStream, false, []bool{false}},
		{strings.Replace(askStream, "{", `{"stream_options":{"include_usage":true},`, 1), true, []bool{true}},
	} {
		got = nil
		_, err := p.Forward(t.Context(), (&taken{}).request(pathChat, c.body))
		if (err != nil) != c.fails || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("call %d: %v, sent with options: %v, want %v", i, err, got, c.want)
		}
	}
}

// An event may be as large as OpenAI's clients read. It is no reason to fail that it exceeds the
// limit of texts.
func TestForwardHugeEvent(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	big := `{"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", 31<<20) + `"}}]}`
	k, _, err := forwardTo(t, writing("text/event-stream", frames(big, chunkStop, "[DONE]")), HTTPConfig{MaxOutputBytes: 1 << 20}, pathChat, askStream)
	if err != nil || k.all() != frames(big, chunkStop, "[DONE]") || len(k.writes) != 3 {
		t.Errorf("%v, %d bytes in %d writes", err, len(k.all()), len(k.writes))
	}
	_, _, err = forwardTo(t, writing("text/event-stream", "data: "+strings.Repeat("x", 33<<20)), HTTPConfig{}, pathChat, askStream)
	wantTask(t, err, forebay.ClassPermanent, CodeResponseTooLarge)
}

// When the client leaves, the provider's work ends: before the answer, within it, and when it does
// not take what is written.
func TestForwardClientLeaves(t *testing.T) {
	for _, body := range []string{askPlain, askStream, "write"} {
		asked, ended := make(chan struct{}), make(chan struct{})
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if bytes.Contains(b, []byte(`"stream":true`)) {
				stream(w, chunkHello)
			}
			close(asked)
			<-r.Context().Done()
			close(ended)
		})
		ctx, cancel := context.WithCancel(t.Context())
		k := &taken{}
		req := k.request(pathChat, body)
		if body == "write" {
			req = k.request(pathChat, askStream)
			req.Write = func([]byte) error { return io.ErrClosedPipe }
		} else {
			go func() { <-asked; cancel() }()
		}
		_, err := openAIAt(t, url, HTTPConfig{}).(Forwarder).Forward(ctx, req)
		if body == "write" {
			if e := wantTask(t, err, forebay.ClassPermanent, CodeClientGone); !errors.Is(err, io.ErrClosedPipe) || !e.Unmeasured {
				t.Errorf("%+v", e)
			}
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		<-ended
		cancel()
	}
}

// Silence within an answer ends it, but a client that reads slowly does not. An answer in one
// piece may begin late.
func TestForwardSilence(t *testing.T) {
	const idle = 100 * time.Millisecond
	release := make(chan struct{})
	defer close(release)
	_, _, err := forwardTo(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w, chunkHello)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}, HTTPConfig{IdleTimeout: idle}, pathChat, askStream)
	wantTask(t, err, forebay.ClassTransient, CodeIdleTimeout)

	k := &taken{}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { stream(w, chunkHello, chunkStop, "[DONE]") })
	req := k.request(pathChat, askStream)
	write := req.Write
	req.Write = func(b []byte) error {
		<-time.After(2 * idle)
		return write(b)
	}
	if _, err := openAIAt(t, url, HTTPConfig{IdleTimeout: idle}).(Forwarder).Forward(t.Context(), req); err != nil {
		t.Errorf("a slow client: %v", err)
	}
	large := strings.Replace(askPlain, "there", strings.Repeat("x", 2*smallBody), 1)
	if _, _, err := forwardTo(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-time.After(2 * idle)
		writing("application/json", plainAnswer)(w, r)
	}, HTTPConfig{IdleTimeout: idle}, pathChat, large); err != nil {
		t.Errorf("a late answer: %v", err)
	}
}
