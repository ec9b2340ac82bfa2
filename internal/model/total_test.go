package model

import (
	"io"
	"net/http"
	"testing"

	"github.com/forebayhq/forebay"
)

// Some servers leave reasoning out of completion_tokens and charge for it as output. It is in
// their total.
func TestReasoningBesideTheCompletion(t *testing.T) {
	for name, test := range map[string]struct {
		usage string
		want  forebay.TokenUsage
	}{
		"beside":       {`{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}}`, forebay.TokenUsage{InputTokens: 32, OutputTokens: 103}},
		"not named":    {`{"prompt_tokens":20,"completion_tokens":198,"total_tokens":623}`, forebay.TokenUsage{InputTokens: 20, OutputTokens: 603}},
		"alone":        {`{"prompt_tokens":21,"completion_tokens":0,"total_tokens":81}`, forebay.TokenUsage{InputTokens: 21, OutputTokens: 60}},
		"within":       {`{"prompt_tokens":20,"completion_tokens":50,"total_tokens":70,"completion_tokens_details":{"reasoning_tokens":40}}`, forebay.TokenUsage{InputTokens: 20, OutputTokens: 50}},
		"no total":     {`{"prompt_tokens":20,"completion_tokens":50}`, forebay.TokenUsage{InputTokens: 20, OutputTokens: 50}},
		"no prompt":    {`{"completion_tokens":50,"total_tokens":70}`, forebay.TokenUsage{OutputTokens: 50}},
		"a wrong one":  {`{"prompt_tokens":20,"completion_tokens":50,"total_tokens":-9223372036854775808}`, forebay.TokenUsage{InputTokens: 20, OutputTokens: 50}},
		"total is low": {`{"prompt_tokens":20,"completion_tokens":50,"total_tokens":1}`, forebay.TokenUsage{InputTokens: 20, OutputTokens: 50}},
	} {
		t.Run(name, func(t *testing.T) {
			answer := `{"model":"m","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":` + test.usage + `}`
			handler := writing("application/json", answer)
			resp, err := openAIAt(t, serve(t, handler), HTTPConfig{}).Chat(t.Context(), say("hi"))
			if err != nil || resp.Usage != test.want {
				t.Errorf("a call used %+v, %v", resp.Usage, err)
			}
			k, forwarded, err := forwardTo(t, handler, HTTPConfig{}, pathChat, askPlain)
			if err != nil || forwarded.Usage != test.want {
				t.Errorf("a forwarded call used %+v, %v", forwarded.Usage, err)
			}
			if k.all() != answer {
				t.Errorf("passed on %s", k.all())
			}
		})
	}
}

// Some servers say only how many tokens embeddings took in all.
func TestEmbeddingsThatSayATotal(t *testing.T) {
	const answer = `{"model":"m","data":[{"index":0,"embedding":[1,2]}],"usage":{"total_tokens":7}}`
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	})
	want := forebay.TokenUsage{InputTokens: 7}
	resp, err := openAIAt(t, url, HTTPConfig{}).Embed(t.Context(), EmbedRequest{Inputs: []string{"hi"}})
	if err != nil || resp.Usage != want {
		t.Errorf("a call used %+v, %v", resp.Usage, err)
	}
	_, forwarded, err := forwardTo(t, writing("application/json", answer), HTTPConfig{}, pathEmbeddings, `{"input":"x"}`)
	if err != nil || forwarded.Usage != want {
		t.Errorf("a forwarded call used %+v, %v", forwarded.Usage, err)
	}
}
