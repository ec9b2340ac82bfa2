package model

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// thinking is an endpoint that is silent for longer than its idle timeout, and then writes a part
// of its answer at once. It is silent for ever after that.
type thinking struct {
	idle   time.Duration
	answer string
}

func (e thinking) RoundTrip(r *http.Request) (*http.Response, error) {
	body := &thinkingBody{ctx: r.Context(), silence: 3 * e.idle, rest: e.answer}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
}

type thinkingBody struct {
	ctx     context.Context
	silence time.Duration
	rest    string
}

func (b *thinkingBody) Read(p []byte) (int, error) {
	silence := time.After(b.silence)
	if b.rest == "" {
		silence = nil
	}
	select {
	case <-silence:
		n := copy(p, b.rest)
		b.silence, b.rest = 0, b.rest[n:]
		return n, nil
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (b *thinkingBody) Close() error { return nil }

// A model that is asked to think may be silent for long before its first text, and no longer.
func TestSilenceOfAModelThatThinks(t *testing.T) {
	const idle = 20 * time.Millisecond
	whole, begun := frames(chunkRole, chunkHello, chunkStop, "[DONE]"), frames(chunkRole, chunkHello)
	for name, test := range map[string]struct {
		effort, answer string
		fails          bool
	}{
		"asked to":                {"high", whole, false},
		"asked not to":            {"minimal", "", true},
		"not asked":               {"", "", true},
		"silent after it's begun": {"high", begun, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := openAIAt(t, "http://127.0.0.1:1/v1", HTTPConfig{IdleTimeout: idle, Transport: thinking{idle, test.answer}})
			req, body := say("hi"), askStream
			if test.effort != "" {
				req.Extra = []Member{{"reasoning_effort", json.RawMessage(`"` + test.effort + `"`)}}
				body = strings.Replace(askStream, "{", `{"reasoning_effort":"`+test.effort+`",`, 1)
			}
			_, err := p.Chat(t.Context(), req)
			_, forwardErr := p.(Forwarder).Forward(t.Context(), (&taken{}).request(pathChat, body))
			_, responseErr := p.(Forwarder).Forward(t.Context(), (&taken{}).request(pathChat, strings.Replace(body, `"reasoning_effort":"`+test.effort+`"`, `"reasoning":{"effort":"`+test.effort+`"}`, 1)))
			for _, err := range []error{err, forwardErr, responseErr} {
				if test.fails {
					wantTask(t, err, forebay.ClassTransient, CodeIdleTimeout)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A model that has thought, or is known to, may be silent without being asked to think. Only an
// operator who sets an idle timeout ends that.
func TestSilenceOfAModelKnownToThink(t *testing.T) {
	answer := func(usage string) string {
		return frames(chunkRole, chunkHello, chunkStop, `{"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9,`+usage+`}}`, "[DONE]")
	}
	thought, not := answer(`"completion_tokens_details":{"reasoning_tokens":8}`), answer(`"total_tokens":12,"completion_tokens_details":{"reasoning_tokens":0}`)
	for name, test := range map[string]struct {
		model, first string
		effort       string // that the first request names
		config       HTTPConfig
		thinks       bool
	}{
		"by its name":              {model: "gpt-5-pro", first: "", thinks: true},
		"by its usage":             {model: "m", first: thought, thinks: true},
		"by its total":             {model: "m", first: answer(`"total_tokens":300`), thinks: true},
		"it thinks if it's asked":  {model: "m", first: thought, effort: "high"},
		"it thinks all the same":   {model: "m", first: thought, effort: "none", thinks: true},
		"it did not think":         {model: "m", first: not},
		"the operator knows":       {model: "gpt-5-pro", first: thought, config: HTTPConfig{IdleTimeout: time.Minute}},
		"a chat model by its name": {model: "gpt-5-chat-latest", first: ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, forward := range []bool{false, true} {
				test.config.Transport = thinking{0, test.first}
				made, err := NewOpenAI(OpenAIConfig{Endpoint: "http://127.0.0.1:1/v1", Model: test.model, HTTPConfig: test.config})
				if err != nil {
					t.Fatal(err)
				}
				req, body := say("hi"), askStream
				if test.effort != "" {
					req.Extra = []Member{{"reasoning_effort", json.RawMessage(`"` + test.effort + `"`)}}
					body = strings.Replace(askStream, "{", `{"reasoning_effort":"`+test.effort+`",`, 1)
				}
				if p := made.(*openAI); test.first != "" && !forward {
					_, err = p.Chat(t.Context(), req)
				} else if test.first != "" {
					_, err = p.Forward(t.Context(), (&taken{}).request(pathChat, body))
				}
				if err != nil {
					t.Fatal(err)
				}
				if p := made.(*openAI); p.mayThink("") != test.thinks || p.mayThink("none") || !p.mayThink("low") {
					t.Errorf("forwarded %v: may think unasked: %v, asked not to: %v, asked: %v", forward, p.mayThink(""), p.mayThink("none"), p.mayThink("low"))
				}
			}
		})
	}
}

// The names of models that think in silence, as their providers write them.
func TestNamesOfModelsThatThink(t *testing.T) {
	for name, thinks := range map[string]bool{
		"o1": true, "o3-mini": true, "o4-mini-2025-04-16": true, "gpt-5": true, "gpt-5.2": true, "gpt-5-mini": true,
		"gpt-5-2025-08-07": true, "gpt-5.1-codex-max": true, "openai/gpt-5-pro": true, "gemini-2.5-pro": true, "models/gemini-3-pro-preview": true,
		"gpt-4o": false, "gpt-4.1-mini": false, "gpt-5-chat-latest": false, "gpt-5.2-chat-latest": false, "gpt-3.5-turbo": false,
		"gemini-2.0-flash": false, "omni": false, "o": false, "llama3.1": false, "chat": false, "gpt-50x": false,
	} {
		if thinkingModel.MatchString(name) != thinks {
			t.Errorf("%s: want %v", name, thinks)
		}
	}
}
