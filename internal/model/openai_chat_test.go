package model

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

// The members that a caller adds reach the server as they are, and its messages too.
func TestExtraMembersAreSentAsTheyAre(t *testing.T) {
	var got string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		stream(w, chunkRole, chunkHello, chunkStop, chunkUsage, "[DONE]")
	})
	message := `{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","x":12345678901234567890}}], "z":1,"a":2}`
	tools := `[{"type":"function","function":{"name":"f","parameters":{"z":{"b":1.50,"a":"<&>"}}}}]`
	_, err := openAIAt(t, url, HTTPConfig{}).Chat(t.Context(), ChatRequest{
		Messages: []Message{{Role: RoleSystem, Content: "S"}, {Role: RoleUser, Object: json.RawMessage(message)}},
		Extra:    []Member{{"seed", json.RawMessage(`123456789012345678901`)}, {"tools", json.RawMessage(tools)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"seed":123456789012345678901`, `"tools":` + tools, `{"role":"system","content":"S"}`, `"model":"small"`, `"stream":true`,
		strings.ReplaceAll(message, `, "z"`, `,"z"`),
	} {
		if !strings.Contains(got, part) {
			t.Errorf("the request lacks %s:\n%s", part, got)
		}
	}
	if !json.Valid([]byte(got)) {
		t.Errorf("the request is %s", got)
	}
}

// delta is a chunk with choices.
func delta(choices string) string {
	return `{"id":"c1","object":"chat.completion.chunk","created":7,"model":"small-2","choices":[` + choices + `]}`
}

// The chunks of a stream become what the same server answers in one piece.
func TestStreamedChoices(t *testing.T) {
	for name, test := range map[string]struct {
		n      int
		chunks []string
		plain  string // the message, or the choices, of the same answer in one piece
		text   string
		finish string
		check  func(*testing.T, []Choice)
	}{
		"tool calls": {
			chunks: []string{
				delta(`{"index":0,"delta":{"role":"assistant","content":null,"refusal":null},"logprobs":null,"finish_reason":null}`),
				delta(`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":""}}]},"finish_reason":null}`),
				delta(`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]},"finish_reason":null}`),
				delta(`{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"time","arguments":"{}"}}]},"finish_reason":null}`),
				delta(`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"Zürich\"}"}}]},"finish_reason":null}`),
				delta(`{"index":0,"delta":{},"finish_reason":"tool_calls"}`),
			},
			plain: `{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Zürich\"}"}},` +
				`{"id":"call_2","type":"function","function":{"name":"time","arguments":"{}"}}]},"finish_reason":"tool_calls"}`,
			finish: "tool_calls",
			check: func(t *testing.T, choices []Choice) {
				want := `[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Zürich\"}"}},{"id":"call_2","type":"function","function":{"name":"time","arguments":"{}"}}]`
				if got := string(choices[0].Member("tool_calls")); got != want {
					t.Errorf("tool calls %s", got)
				}
			},
		},
		"an id in each chunk": { // as some compatible servers send it
			chunks: []string{
				delta(`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{"}}]},"finish_reason":null}`),
				delta(`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"}"}}]},"finish_reason":"tool_calls"}`),
			},
			plain:  `{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}`,
			finish: "tool_calls",
		},
		"calls with the same index": { // as Gemini sends them
			chunks: []string{
				delta(`{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":null}`),
				delta(`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c2","type":"function","function":{"name":"g","arguments":"{\"b\":"}}]},"finish_reason":null}`),
				delta(`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c2","type":"function","function":{"name":"g","arguments":"2}"}}]},"finish_reason":"tool_calls"}`),
			},
			plain: `{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},` +
				`{"id":"c2","type":"function","function":{"name":"g","arguments":"{\"b\":2}"}}]},"finish_reason":"tool_calls"}`,
			finish: "tool_calls",
		},
		"another id in each chunk": { // as some compatible servers send it
			chunks: []string{
				delta(`{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"x1","type":"function","function":{"name":"f","arguments":"{"}}]},"finish_reason":null}`),
				delta(`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"x2","type":"function","function":{"arguments":"}"}}]},"finish_reason":null}`),
				delta(`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"arguments":""}}]},"finish_reason":"tool_calls"}`),
			},
			plain:  `{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}`,
			finish: "tool_calls",
		},
		"several choices": {
			n: 2,
			chunks: []string{
				delta(`{"index":1,"delta":{"role":"assistant","content":"Lin"},"finish_reason":null}`), delta(`{"index":0,"delta":{"role":"assistant","content":"Rh"},"finish_reason":null}`),
				delta(`{"index":0,"delta":{"content":"ine"},"finish_reason":null}`), delta(`{"index":0,"delta":{},"finish_reason":"stop"}`),
				delta(`{"index":1,"delta":{"content":"th"},"finish_reason":null}`), delta(`{"index":1,"delta":{},"finish_reason":"length"}`),
			},
			plain:  `{"index":0,"message":{"role":"assistant","content":"Rhine"},"finish_reason":"stop"},{"index":1,"message":{"role":"assistant","content":"Linth"},"finish_reason":"length"}`,
			text:   "Rhine",
			finish: "stop",
			check: func(t *testing.T, choices []Choice) {
				if len(choices) != 2 || choices[1].Text != "Linth" || choices[1].Index != 1 || choices[1].FinishReason != "length" {
					t.Errorf("%+v", choices)
				}
			},
		},
		"log probabilities": {
			chunks: []string{
				delta(`{"index":0,"delta":{"role":"assistant","content":"Aa"},"logprobs":{"content":[{"token":"Aa","logprob":-0.10,"bytes":[65,97],"top_logprobs":[]}],"refusal":null},"finish_reason":null}`),
				delta(`{"index":0,"delta":{"content":"re"},"logprobs":{"content":[{"token":"re","logprob":-1e-7,"bytes":null,"top_logprobs":[]}],"refusal":null},"finish_reason":"stop"}`),
			},
			plain: `{"index":0,"message":{"role":"assistant","content":"Aare"},"logprobs":{"content":[{"token":"Aa","logprob":-0.10,"bytes":[65,97],"top_logprobs":[]},{"token":"re","logprob":-1e-7,"bytes":null,"top_logprobs":[]}],"refusal":null},"finish_reason":"stop"}`,
			text:  "Aare", finish: "stop",
		},
		"what nobody knows": {
			chunks: []string{
				delta(`{"index":0,"delta":{"role":"assistant","reasoning_content":"I th"},"finish_reason":null}`), delta(`{"index":0,"delta":{"reasoning_content":"ink"},"finish_reason":null}`),
				delta(`{"index":0,"delta":{"content":"Reuss"},"finish_reason":"stop"}`),
			},
			plain: `{"index":0,"message":{"role":"assistant","content":"Reuss","reasoning_content":"I think"},"finish_reason":"stop"}`,
			text:  "Reuss", finish: "stop",
		},
		"a text and a refusal": {
			chunks: []string{delta(`{"index":0,"delta":{"content":"No. ","refusal":"I will not."},"finish_reason":"stop"}`)},
			plain:  `{"index":0,"message":{"role":"assistant","content":"No. ","refusal":"I will not."},"finish_reason":"stop"}`,
			text:   "No. ", finish: "stop",
			check: func(t *testing.T, choices []Choice) {
				if choices[0].Refusal != "I will not." {
					t.Errorf("%+v", choices)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[bool]ChatResponse{}
			for _, streamed := range []bool{true, false} {
				url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					if streamed {
						stream(w, append(test.chunks, chunkUsage, "[DONE]")...)
						return
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"id":"c1","object":"chat.completion","created":7,"model":"small-2","choices":[`+test.plain+`],"usage":{"prompt_tokens":11,"completion_tokens":3,"total_tokens":14}}`)
				})
				req := say("hi")
				req.WantRaw, req.Answers = true, test.n
				resp, err := openAIAt(t, url, HTTPConfig{}).Chat(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if resp.Text != test.text || resp.FinishReason != test.finish || resp.Usage != (forebay.TokenUsage{InputTokens: 11, OutputTokens: 3}) {
					t.Errorf("streamed %t: %+v", streamed, resp)
				}
				if test.check != nil {
					test.check(t, resp.Choices)
				}
				answers[streamed] = resp
			}
			if a, b := marshal(t, answers[true].Choices), marshal(t, answers[false].Choices); a != b {
				t.Errorf("streamed %s\nplain    %s", a, b)
			}
			var a, b any
			if json.Unmarshal(answers[true].Raw, &a) != nil || json.Unmarshal(answers[false].Raw, &b) != nil || marshal(t, a) != marshal(t, b) {
				t.Errorf("raw: streamed %s\nplain    %s", answers[true].Raw, answers[false].Raw)
			}
		})
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A stream that ends while an answer is missing was cut; one that all answers refuse has failed.
func TestSeveralChoicesThatFail(t *testing.T) {
	first, second := delta(`{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}`), delta(`{"index":1,"delta":{"content":"b"},"finish_reason":null}`)
	filtered := delta(`{"index":0,"delta":{},"finish_reason":"content_filter"}`)
	for name, test := range map[string]struct {
		chunks []string
		class  forebay.ErrorClass
		code   string // "": it succeeds
	}{
		"one has not ended":    {[]string{first, second}, forebay.ClassTransient, CodeStreamCut},
		"one has not begun":    {[]string{first}, forebay.ClassTransient, CodeStreamCut},
		"fewer than asked for": {[]string{first, "[DONE]"}, "", ""},
		"one is filtered":      {[]string{filtered, delta(`{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}`), "[DONE]"}, "", ""},
		"all are filtered":     {[]string{filtered, delta(`{"index":1,"delta":{},"finish_reason":"content_filter"}`), "[DONE]"}, forebay.ClassPermanent, CodeContentFilter},
		"an index far off":     {[]string{delta(`{"index":123456789,"delta":{"content":"b"},"finish_reason":"stop"}`)}, forebay.ClassTransient, CodeMalformedResponse},
		"a call far off":       {[]string{delta(`{"index":0,"delta":{"tool_calls":[{"index":99999999}]},"finish_reason":null}`)}, forebay.ClassTransient, CodeMalformedResponse},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) { stream(w, test.chunks...) })
			req := say("hi")
			req.Answers = 2
			_, err := openAIAt(t, url, HTTPConfig{}).Chat(t.Context(), req)
			if test.code == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantTask(t, err, test.class, test.code)
		})
	}
}

// A server cannot make an answer take far more memory than its bytes.
func TestAnswersOfManyValues(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"index":0,"delta":{"x":{"a":0`)
	for i := range maxMerged {
		b.WriteString(`,"k` + marshal(t, i) + `":0`)
	}
	b.WriteString(`}},"finish_reason":"stop"}`)
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { stream(w, delta(b.String()), "[DONE]") })
	_, err := openAIAt(t, url, HTTPConfig{}).Chat(t.Context(), say("hi"))
	wantTask(t, err, forebay.ClassTransient, CodeMalformedResponse)
}

// What only OpenAI's API takes is known by its field.
func TestChatShape(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"a"}]`
	for body, want := range map[string]string{
		`{` + messages + `}`: "", `{` + messages + `,"seed":1}`: "seed", `{` + messages + `,"n":2}`: "n", `{` + messages + `,"n":1,"logprobs":false,"logit_bias":{}}`: "",
		`{` + messages + `,"logit_bias":{"1":1}}`: "logit_bias", `{` + messages + `,"temperature":1.5}`: "temperature", `{` + messages + `,"stop":["a"," "]}`: "stop",
		`{` + messages + `,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required","parallel_tool_calls":false,"reasoning_effort":"low","user":"u"}`: "",
		`{` + messages + `,"tools":[{"type":"custom","custom":{"name":"f"}}]}`:                                                                                              "tools", `{` + messages + `,"nobody":1}`: "nobody", `{` + messages + `,"nobody":null}`: "",
		`{` + messages + `,"tool_choice":{"type":"allowed_tools"}}`:                                                                                     "tool_choice",
		`{"messages":[{"role":"user","content":"a","name":"n"}]}`:                                                                                       "messages[0].name",
		`{"messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_audio","input_audio":{}}]}]}`: "messages[1].content[1]",
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a/b.png"}}]}]}`:                                         "",
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://a/b.png"}}]}]}`:                                          "messages[0].content[0]",
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/bmp;base64,AA"}}]}]}`:                                "messages[0].content[0]",
		`{"messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"no"}}]}]}`:                      "messages[0].tool_calls",
		`{"messages":[{"role":"assistant","refusal":null,"annotations":[],"content":"a"}]}`:                                                             "",
	} {
		if got := ReadChatShape([]byte(body)).OnlyOpenAI; got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	picture := `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 100_000) + `"}}]}],"n":3,"model":"m"}`
	if s := ReadChatShape([]byte(picture)); s.MediaTokens != mediaTokens || s.MediaBytes < 100_000 || s.Answers != 3 || s.Model != "m" || s.MaxOutput(10) != 30 {
		t.Errorf("%+v", s)
	}
}
