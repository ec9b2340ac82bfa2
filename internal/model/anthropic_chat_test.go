package model

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

// translated is what Anthropic gets of a request whose messages have the shape of OpenAI's API.
func translatedTo(t *testing.T, req ChatRequest) string {
	t.Helper()
	var got string
	p := anthropicAt(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		anthropicStream(w, anthropicStart, anthropicDelta, anthropicEnd, `{"type":"message_stop"}`)
	})
	if _, err := p.Chat(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	return got
}

func objects(messages ...string) []Message {
	var list []Message
	for _, m := range messages {
		list = append(list, Message{Role: Role(gjson.Get(m, "role").Str), Object: json.RawMessage(m)})
	}
	return list
}

func TestAnthropicTranslation(t *testing.T) {
	for name, test := range map[string]struct {
		req  ChatRequest
		path string
		want string
	}{
		"results of tools join the next message of the user": {
			ChatRequest{Messages: append(objects(
				`{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBO"}},{"type":"image_url","image_url":{"url":"https://a/b.png"}}]}`,
				`{"role":"assistant","content":"I look.","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"z\":1,\"a\":12345678901234567890}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":""}}]}`,
				`{"role":"tool","tool_call_id":"c1","content":"sunny"}`,
				`{"role":"tool","tool_call_id":"c2","content":""}`,
			), Message{Role: RoleUser, Content: "Go on."})},
			"messages",
			`[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBO"}},{"type":"image","source":{"type":"url","url":"https://a/b.png"}}]},` +
				`{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"c1","name":"f","input":{"z":1,"a":12345678901234567890}},{"type":"tool_use","id":"c2","name":"g","input":{}}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"sunny"}]},{"type":"tool_result","tool_use_id":"c2"},{"type":"text","text":"Go on."}]}]`,
		},
		"documents": {
			ChatRequest{Messages: objects(`{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBE"}}]}`)},
			"messages.0.content",
			`[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"},"title":"a.pdf"}]`,
		},
		"tools": {
			ChatRequest{Extra: []Member{
				{"tools", json.RawMessage(`[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"b":{},"a":{}}}}},{"type":"function","function":{"name":"g"}}]`)},
				{"tool_choice", json.RawMessage(`{"type":"function","function":{"name":"f"}}`)}, {"parallel_tool_calls", json.RawMessage(`false`)},
			}},
			"{tools,tool_choice}",
			`{"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"b":{},"a":{}}}},{"name":"g","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true}}`,
		},
		"any tool": {
			ChatRequest{Extra: []Member{{"tools", json.RawMessage(`[{"type":"function","function":{"name":"f"}}]`)}, {"tool_choice", json.RawMessage(`"required"`)}}},
			"tool_choice", `{"type":"any"}`,
		},
		"no tool": {
			ChatRequest{Extra: []Member{{"tools", json.RawMessage(`[{"type":"function","function":{"name":"f"}}]`)}, {"tool_choice", json.RawMessage(`"none"`)}, {"parallel_tool_calls", json.RawMessage(`false`)}}},
			"tool_choice", `{"type":"none"}`,
		},
		"effort and user": {
			ChatRequest{Extra: []Member{{"reasoning_effort", json.RawMessage(`"minimal"`)}, {"user", json.RawMessage(`"u1"`)}, {"prompt_cache_key", json.RawMessage(`"k"`)}}},
			"{output_config,metadata,tool_choice}", `{"output_config":{"effort":"low"},"metadata":{"user_id":"u1"}}`,
		},
		"no effort": {
			ChatRequest{Extra: []Member{{"reasoning_effort", json.RawMessage(`"none"`)}}}, "{output_config}", `{}`,
		},
		"an open schema is a tool that must be called": {
			ChatRequest{JSONSchema: json.RawMessage(`{"type":"object"}`), SchemaName: "thing", SchemaDescription: "a thing"},
			"{tools,tool_choice,output_config}", `{"tools":[{"name":"thing","description":"a thing","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"thing"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.req.Messages == nil {
				test.req.Messages = say("hi").Messages
			}
			if got := gjson.Get(translatedTo(t, test.req), test.path).Raw; got != test.want {
				t.Errorf("sent %s\nwant %s", got, test.want)
			}
		})
	}
}

// toolStream is a stream of the API (documentation, "Streaming Messages"), with a thought first.
// a thought in front.
var toolStream = []string{
	`{"type":"message_start","message":{"id":"msg_2","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":472,"output_tokens":2}}}`,
	`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Weather…"}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB"}}`,
	`{"type":"content_block_stop","index":0}`,
	`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
	`{"type":"ping"}`,
	`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Okay, "}}`,
	`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"let's check"}}`,
	`{"type":"content_block_stop","index":1}`,
	`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"get_weather","input":{}}}`,
	`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}`,
	`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"location\":"}}`,
	`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":" \"Bern\"}"}}`,
	`{"type":"content_block_stop","index":2}`,
	`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89}}`,
	`{"type":"message_stop"}`,
}

const toolPlain = `{"id":"msg_2","type":"message","role":"assistant","model":"claude-x","content":[{"type":"thinking","thinking":"Weather…","signature":"EqQB"},` +
	`{"type":"text","text":"Okay, let's check"},{"type":"tool_use","id":"toolu_1","name":"get_weather","input":{"location": "Bern"}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":472,"output_tokens":89}}`

func TestAnthropicToolCalls(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"streamed": func(w http.ResponseWriter, _ *http.Request) { anthropicStream(w, toolStream...) },
		"plain": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, toolPlain)
		},
	} {
		t.Run(name, func(t *testing.T) {
			req := say("hi")
			req.WantRaw = true
			resp, err := anthropicAt(t, answer).Chat(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Text != "Okay, let's check" || resp.FinishReason != "tool_calls" || resp.Usage != (forebay.TokenUsage{InputTokens: 472, OutputTokens: 89}) || len(resp.Choices) != 1 {
				t.Fatalf("%+v", resp)
			}
			want := `[{"function":{"arguments":"{\"location\": \"Bern\"}","name":"get_weather"},"id":"toolu_1","type":"function"}]`
			if got := string(resp.Choices[0].Member("tool_calls")); got != want {
				t.Errorf("tool calls %s", got)
			}
			if got, want := gjson.GetBytes(resp.Raw, "content"), gjson.Get(toolPlain, "content"); marshal(t, got.Value()) != marshal(t, want.Value()) {
				t.Errorf("raw %s", got.Raw)
			}
		})
	}
}

// The input of the tool that stands for the format is the answer.
func TestAnthropicForcedAnswer(t *testing.T) {
	events := strings.NewReplacer("get_weather", "place", "thinking_delta", "text_delta").Replace(strings.Join(append(toolStream[:1:1], toolStream[5:]...), "\n"))
	events = strings.NewReplacer(`"index":1`, `"index":0`, `"index":2`, `"index":1`).Replace(events)
	p := anthropicAt(t, func(w http.ResponseWriter, _ *http.Request) { anthropicStream(w, strings.Split(events, "\n")...) })
	req := say("hi")
	req.JSONSchema, req.SchemaName = json.RawMessage(`{"type":"object"}`), "place"
	resp, err := p.Chat(t.Context(), req)
	if err != nil || resp.Text != `{"location": "Bern"}` || resp.FinishReason != "stop" || resp.Choices != nil {
		t.Errorf("%+v, %v", resp, err)
	}
}

// A delta of a block that never began is no part of an answer, and nothing is called for what
// Anthropic cannot do.
func TestAnthropicRefusals(t *testing.T) {
	p := anthropicAt(t, func(w http.ResponseWriter, _ *http.Request) {
		anthropicStream(w, anthropicStart, `{"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"a"}}`)
	})
	_, err := p.Chat(t.Context(), say("hi"))
	wantTask(t, err, forebay.ClassTransient, CodeMalformedResponse)
	req := say("hi")
	req.AsOpenAI = true
	_, err = p.Chat(t.Context(), req)
	if e := wantTask(t, err, forebay.ClassPermanent, CodeNotSupported); !e.Uncalled {
		t.Error("it counts as a call")
	}
}
