package modelsim

import (
	"strings"
	"testing"
	"time"
)

func TestReadOptions(t *testing.T) {
	o, err := ReadServerOptions([]byte(`
listen: 127.0.0.1:9000
api_key: sk-1
seed: 7
deployments:
  - name: east
    model: gpt-4o
    kind: azure-openai
    request_slice: 1s
    first_token: 0
    faults: reference
    faults_scale: 0.05
  - {name: claude, kind: anthropic, tokens_per_minute: 80000, requests_per_minute: 0, headers: none, phase: 17s,
     faults: [{from: 1m, to: 90s, errors: {529: 0.5}, retry_after: 3s}]}
`))
	if err != nil || o.Validate() != nil {
		t.Fatal(err, o.Validate())
	}
	east, claude := o.Deployments[0], o.Deployments[1]
	if o.Listen != "127.0.0.1:9000" || o.APIKey.Reveal() != "sk-1" || o.Seed != 7 || o.AnyModel ||
		east.TokensPerMinute != 240_000 || east.FirstToken != 0 || len(east.Faults) != 6 || east.FaultsScale != 0.05 || east.Headers != HeadersFull ||
		claude.Faults[0].Errors[529] != 0.5 || claude.FirstToken != Duration(300*time.Millisecond) {
		t.Errorf("%+v", o)
	}
	if q := east.quota(0.5); q != (Quota{Kind: KindAzure, TokensPerMinute: 240_000, OutputPerMinute: 48_000, RequestsPerMinute: 1440, RequestSlice: time.Second, Phase: 30 * time.Second}) {
		t.Errorf("quota %+v", q)
	}
	if q := claude.quota(0.5); q.OutputPerMinute != 16_000 || q.RequestsPerMinute != 0 || q.Phase != 17*time.Second || q.RequestSlice > 0 {
		t.Errorf("quota %+v", q)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for file, want := range map[string]string{
		"":                                  "is empty",
		"a: 1\n---\nb: 2":                   "holds more than one YAML document",
		"listen: [":                         "line ",
		"[1]":                               "line 1: must be a section of keys and values, not a list",
		"seed: 1\nlisten: x\nlisten: y":     `line 3: mapping key "listen" already defined at line 2`,
		"seed: 1\nlisen: x":                 `line 2: unknown key "lisen"; the keys here are any_model, api_key, deployments, listen, log, seed`,
		"seed: many":                        "line 1: must be a whole number, not text",
		"any_model: 3":                      "line 1: must be true or false, not a whole number",
		"api_key: {a: sk-secret}":           "line 1: must be text, not a section",
		"deployments: 3":                    "line 1: must be a list, not a whole number",
		"deployments:\n- name: a\n  kid: b": `line 3: unknown key "kid"`,
		"deployments:\n- name: a\n  first_token: soon":                     "line 3: must be a duration with a unit",
		"deployments:\n- name: a\n  faults: nope":                          "line 3: there is no script \"nope\"; there are [none reference]",
		"deployments:\n- name: a\n  faults:\n  - {from: 1s, eror: 3}":      `line 4: unknown key "eror"`,
		"deployments:\n- name: a\n  faults:\n  - errors: {often: 3}":       `line 4: "often" is no status`,
		"deployments:\n- name: a\n  faults:\n  - errors: {500: 1, 500: 1}": "line 4: 500 is given twice",
		"deployments:\n- name: a\n  faults:\n  - errors: [500]":            "line 4: must be rates by status",
		"deployments:\n- name: a\n  faults:\n  - errors: {500: often}":     "line 4: must be a number, not text",
		"deployments: []":                                   "deployments: there must be one at least",
		"deployments: [{name: a}, {name: a}]":               `deployments[1].name: "a" is given twice`,
		"deployments: [{}]":                                 "deployments[0].name: names must be 1 to 128 bytes",
		"deployments: [{name: a, kind: b}]":                 "deployments[0].kind: must be one of [azure-openai rolling rolling-rejected bucket openai azure-ptu anthropic], not \"b\"",
		"deployments: [{name: a, headers: b}]":              "deployments[0].headers: must be one of",
		"deployments: [{name: a, content: b}]":              "deployments[0].content: must be one of [text work]",
		"deployments: [{name: a, burst: 2m}]":               "deployments[0].burst: must be 0 to 1m0s",
		"deployments: [{name: a, burst: 2ms}]":              "must be 1s at least",
		"deployments: [{name: a, phase: 61s}]":              "deployments[0].phase: must be 0 to 1m0s",
		"deployments: [{name: a, output_tokens: 0}]":        "deployments[0].output_tokens: must be 1 to 1e+06",
		"deployments: [{name: a, tokens_per_second: .nan}]": "deployments[0].tokens_per_second: must be",
		"deployments: [{name: a, faults: [{cut: 2}]}]":      "deployments[0].faults[0].cut: must be a rate of 0 to 1",
		"api_key: a b\ndeployments: [{name: a}]":            "api_key: holds a space",
		strings.Repeat(" ", maxFileBytes+1):                 "is larger than",
	} {
		o, err := ReadServerOptions([]byte(file))
		if err == nil {
			err = o.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%.80q: %v; want %q", file, err, want)
		}
	}
}
