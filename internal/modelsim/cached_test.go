package modelsim

import (
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/quota"
)

// Some kinds do not count cached tokens. Once a usage reports them, our quota does not count them
// either: in each shape, over HTTP.
func TestCachedPrompts(t *testing.T) {
	config := model.HTTPConfig{}
	shapes := map[string]func(url string) (model.Provider, error){
		"openai": func(url string) (model.Provider, error) {
			return model.NewOpenAI(model.OpenAIConfig{Endpoint: url + "/v1", Model: "sim", APIKey: key, HTTPConfig: config})
		},
		"azure-openai": func(url string) (model.Provider, error) {
			return model.NewAzure(model.AzureConfig{Endpoint: url, Deployment: "sim", APIKey: key, HTTPConfig: config})
		},
		"anthropic": func(url string) (model.Provider, error) {
			return model.NewAnthropic(model.AnthropicConfig{Endpoint: url, Model: "sim", APIKey: key, HTTPConfig: config})
		},
	}
	for name, test := range map[string]struct {
		shape      string
		kind       Kind
		accounting quota.Accounting
		share      float64
	}{
		"OpenAI":                    {"openai", KindOpenAI, quota.AccountOpenAI, 0.8},
		"Azure":                     {"azure-openai", KindAzure, quota.AccountAzureOpenAI, 0.8},
		"Azure PTU":                 {"azure-openai", KindPTU, quota.AccountAzurePTU, 0.8},
		"Azure PTU, nothing cached": {"azure-openai", KindPTU, quota.AccountAzurePTU, 0},
		"Anthropic":                 {"anthropic", KindAnthropic, quota.AccountAnthropic, 0.8},
		"Anthropic, all cached":     {"anthropic", KindAnthropic, quota.AccountAnthropic, 1},
	} {
		t.Run(name, func(t *testing.T) {
			const words, output, perMinute = 8000, 40, 6000
			s, url := start(t, fast(func(d *Deployment) {
				d.Kind, d.CachedShare, d.TokensPerMinute = test.kind, test.share, perMinute
				d.OutputTokens, d.OutputSpread = output, 0
			}))
			changed := make(chan struct{}, 2)
			s.changed = func() { changed <- struct{}{} }
			provider, err := shapes[test.shape](url)
			if err != nil {
				t.Fatal(err)
			}
			router, err := model.NewRouter(map[string]model.Model{"m": {Deployments: []*model.Deployment{{Name: "d", Provider: provider}}}})
			if err != nil {
				t.Fatal(err)
			}
			var state quota.State
			limits := quota.Limits{Accounting: test.accounting, TokensPerMinute: perMinute, OutputTokensPerMinute: perMinute / 5}
			began := time.Now()
			now := began.UnixMilli()
			reservation, verdict := state.Reserve(now, limits, quota.Request{PromptTokens: words / 4, MaxOutputTokens: 500})
			if !verdict.Admitted() {
				t.Fatal(verdict)
			}
			call := &quota.Call{Deployment: "d"}
			resp, _, err := router.Chat(quota.WithCall(t.Context(), call), "m", model.ChatRequest{MaxOutputTokens: 500,
				Messages: []model.Message{{Role: model.RoleUser, Content: strings.Repeat("x", words)}}})
			if err != nil {
				t.Fatal(err)
			}
			prompt := int64(words/4 + tokensPerMessage)
			cached := int64(test.share * float64(prompt))
			if want := (quota.Usage{PromptTokens: prompt, CachedTokens: cached, OutputTokens: resp.Usage.OutputTokens}); call.Outcome.Usage != want || resp.Usage.InputTokens != prompt {
				t.Errorf("told %+v, want %+v; input of %d tokens", call.Outcome.Usage, want, resp.Usage.InputTokens)
			}
			state.Feedback(now, limits, reservation, *call.Outcome, func() float64 { return 0 })
			used, ours := int64(0), state.Status(now, limits).Used
			switch test.accounting {
			case quota.AccountAzurePTU:
				used = prompt - cached + resp.Usage.OutputTokens
			case quota.AccountAnthropic:
				used = prompt - cached
			default: // these settle nothing
				used = reservation.Amount[quota.Tokens]
			}
			if ours[quota.Tokens] != used {
				t.Errorf("%d tokens are counted, want %d", ours[quota.Tokens], used)
			}
			if test.accounting == quota.AccountAzurePTU || test.accounting == quota.AccountAnthropic {
				<-changed
				<-changed // the service has counted the end of the call
				d := s.deployments[0]
				d.mu.Lock()
				defer d.mu.Unlock()
				ended := time.Now()
				leaked := ended.Sub(began).Seconds() * perMinute / 60 // at most
				if theirs := d.meter.tokens.used(ended); theirs < float64(used)-leaked-1 || theirs > float64(used) {
					t.Errorf("the service counts %g tokens, we %d, of which %g may have leaked since", theirs, used, leaked)
				}
			}
		})
	}
}
