package model

import (
	"regexp"
	"slices"

	"github.com/tidwall/gjson"
)

// littleEffort are efforts of reasoning at which a model does not think for long, or not at all.
var littleEffort = []string{"none", "minimal"}

// thinkingModel matches names of models that think in silence unless they are asked not to. Only
// models whose every answer can take longer than the idle timeout need to be known by name. Others
// show it by their usage.
var thinkingModel = regexp.MustCompile(`^(openai/|google/|models/)?(o[1-9]\d*(-|$)|gpt-[5-9][\d.]*(-(pro|mini|nano|codex|20)|$)|gemini-(2\.5|[3-9])[\d.]*-pro)`)

// knowThinking says what the configuration tells of the model's thinking.
func (p *openAI) knowThinking(c HTTPConfig) {
	p.mayLearnToWait = c.IdleTimeout <= 0
	p.thinks.Store(thinkingModel.MatchString(p.model))
}

// mayThink reports whether a stream may be silent for minutes before its first text. effort is the
// one that the request names; "" is none. Without one the model decides, unless the operator has
// set how long it may be silent.
func (p *openAI) mayThink(effort string) bool {
	return asksToThink(effort) || effort == "" && p.mayLearnToWait && p.thinks.Load()
}

func asksToThink(effort string) bool {
	return effort != "" && !slices.Contains(littleEffort, effort)
}

// hasThought learns from an answer's tokens of reasoning that the model thinks. What a request has
// asked for says nothing of requests that do not ask.
func (p *openAI) hasThought(reasoningTokens int64, effort func() string) {
	if reasoningTokens > 0 && !p.thinks.Load() && !asksToThink(effort()) {
		p.thinks.Store(true)
	}
}

// reasoningEffort returns the effort that a request for a chat completion or for a response names;
// "": none.
func reasoningEffort(body []byte) string {
	for _, effort := range gjson.GetManyBytes(body, "reasoning_effort", "reasoning.effort") {
		if effort.Str != "" {
			return effort.Str
		}
	}
	return ""
}
