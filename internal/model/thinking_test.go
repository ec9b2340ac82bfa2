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
