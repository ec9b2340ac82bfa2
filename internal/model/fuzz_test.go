package model

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/forebayhq/forebay"
)

// canned answers every request with the same.
type canned struct {
	status int
	header http.Header
	body   func() io.Reader
}

func (c canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: c.status, Header: c.header.Clone(), Body: io.NopCloser(c.body()), ContentLength: -1, ProtoMajor: 1, ProtoMinor: 1}, nil
}

// fuzzedOutput bounds the text of an answer.
const fuzzedOutput = 32 << 10

// fuzzedProviders are one of each kind.
func fuzzedProviders(t *testing.T, transport http.RoundTripper) []Provider {
	t.Helper()
	c := HTTPConfig{Transport: transport, MaxOutputBytes: fuzzedOutput}
	openAI, err := NewOpenAI(OpenAIConfig{Endpoint: "http://openai.invalid/v1", Model: "m", APIKey: testKey, HTTPConfig: c})
	azure, azureErr := NewAzure(AzureConfig{Endpoint: "http://azure.invalid", Deployment: "d", APIKey: testKey, HTTPConfig: c})
	anthropic, anthropicErr := NewAnthropic(AnthropicConfig{Model: "m", APIKey: testKey, HTTPConfig: c})
	if err := errors.Join(err, azureErr, anthropicErr); err != nil {
		t.Fatal(err)
	}
	return []Provider{openAI, azure, anthropic}
}

// parseHeader reads lines of header fields, as an endpoint might send them.
func parseHeader(lines string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(lines, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Add(textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value))
		}
	}
	return h
}

// FuzzProviderAnswer has each provider read an answer that may be anything: headers, an error, an
// answer in one piece or a stream. None panics or hangs, what is returned is bounded, and errors
// are of the kinds that retries know and do not show the key.
func FuzzProviderAnswer(f *testing.F) {
	events := "content-type: text/event-stream"
	frames := func(data ...string) []byte {
		return []byte("data: " + strings.Join(data, "\n\ndata: ") + "\n\n")
	}
	named := func(data ...string) []byte {
		var b strings.Builder
		for i := 0; i < len(data); i += 2 {
			b.WriteString("event: " + data[i] + "\ndata: " + data[i+1] + "\n\n")
		}
		return []byte(b.String())
	}
	claude := named("message_start", `{"type":"message_start","message":{"id":"m","model":"claude","usage":{"input_tokens":9,"output_tokens":1,"cache_read_input_tokens":2}}}`,
		"content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`,
		"message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`,
		"message_stop", `{"type":"message_stop"}`)
	for provider := range byte(3) {
		for _, pieces := range []byte{0, 8} {
			how := provider | pieces
			f.Add(how, uint16(200), events, frames(chunkRole, chunkHello, chunkWorld, chunkStop, chunkUsage, "[DONE]"))
			f.Add(how, uint16(200), events, claude)
		}
		f.Add(provider, uint16(200), events, frames(chunkFilter, "[DONE]"))
		f.Add(provider, uint16(200), "content-type: application/json", []byte(plainAnswer))
		f.Add(provider|4, uint16(200), "content-type: application/json", []byte(`{"data":[{"index":0,"embedding":[0.5,-1e30]}],"model":"e","usage":{"prompt_tokens":3}}`))
		f.Add(provider|4, uint16(200), "content-type: application/json", []byte(`{"data":[{"index":-1,"embedding":"AACAPw=="},{"index":9223372036854775807}]}`))
		f.Add(provider, uint16(429), "retry-after: 99999999999999999999\nretry-after-ms: -1\nx-ratelimit-remaining-tokens: 9223372036854775808\nx-ratelimit-reset-tokens: 6m0.2s\nx-ratelimit-limit-requests: 60,60;w=60",
			[]byte(`{"error":{"message":"slow down `+testKey+`","type":"tokens","code":"rate_limit_exceeded"}}`))
		f.Add(provider, uint16(529), "retry-after: Thu, 01 Jan 1970 00:00:00 GMT\nanthropic-ratelimit-tokens-reset: 0000-00-00T00:00:00Z\nanthropic-ratelimit-input-tokens-remaining: 1e9",
			[]byte(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`))
		f.Add(provider, uint16(400), "", []byte(`{"error":{"message":"Unsupported parameter: 'max_tokens'","param":"max_tokens","code":"unsupported_parameter"}}`))
	}
	f.Fuzz(func(t *testing.T, how byte, status uint16, header string, body []byte) {
		transport := canned{status: int(status), header: parseHeader(header), body: func() io.Reader {
			if how&8 != 0 && len(body) < 4<<10 {
				return iotest.OneByteReader(bytes.NewReader(body))
			}
			return bytes.NewReader(body)
		}}
		if status < 100 || status > 599 { // no status: one that endpoints use
			transport.status = []int{200, 200, 200, 400, 401, 404, 408, 413, 429, 429, 500, 503, 529}[int(status)%13]
		}
		p := fuzzedProviders(t, transport)[int(how&3)%3]
		var err error
		var limits RateLimits
		if how&4 != 0 {
			var resp EmbedResponse
			resp, err = p.Embed(context.Background(), EmbedRequest{Inputs: []string{"a", "b"}, OnLimits: func(RateLimits) {}})
			limits = resp.Limits
			if err == nil && len(resp.Vectors) != 2 {
				t.Errorf("%d vectors for 2 inputs", len(resp.Vectors))
			}
			for _, v := range resp.Vectors {
				for _, x := range v {
					if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
						t.Errorf("a vector holds %v", x)
					}
				}
			}
		} else {
			req := say("Hello")
			req.WantRaw, req.OnLimits = how&16 != 0, func(RateLimits) {}
			if how&32 != 0 {
				req.JSONSchema = []byte(`{"type":"object"}`)
			}
			var resp ChatResponse
			resp, err = p.Chat(context.Background(), req)
			limits = resp.Limits
			if len(resp.Text) > fuzzedOutput {
				t.Errorf("a text of %d bytes; the limit is %d", len(resp.Text), fuzzedOutput)
			}
			if u := resp.Usage; u.InputTokens < 0 || u.OutputTokens < 0 || resp.CachedTokens < 0 {
				t.Errorf("usage %+v, %d cached", u, resp.CachedTokens)
			}
		}
		if limits.RetryAfter < 0 {
			t.Errorf("retry after %v", limits.RetryAfter)
		}
		if err == nil {
			return
		}
		task, ok := errors.AsType[*forebay.TaskError](err)
		switch {
		case !ok:
			t.Errorf("an error of type %T: %v", err, err)
		case len(task.Message) > maxMessageBytes || strings.Contains(err.Error(), testKey):
			t.Errorf("a message of %d bytes, or with the key in it: %q", len(task.Message), err)
		case task.RetryAfter < 0:
			t.Errorf("retry after %v", task.RetryAfter)
		}
	})
}
