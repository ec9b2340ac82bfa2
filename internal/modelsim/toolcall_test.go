package modelsim

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/model"
)

const (
	toolSchema   = `{"type":"object","required":["city","days"],"properties":{"city":{"type":"string"},"days":{"type":"integer"}}}`
	openAITools  = `"tools":[{"type":"function","function":{"name":"now"}},{"type":"function","function":{"name":"weather","parameters":` + toolSchema + `}}],`
	claudeTools  = `"tools":[{"name":"now","input_schema":{"type":"object","properties":{}}},{"name":"weather","input_schema":` + toolSchema + `}],`
	namedWeather = `"tool_choice":{"type":"function","function":{"name":"weather"}},`
)

// posted is the simulator's answer, with its status.
func posted(t *testing.T, path, body string) (int, string) {
	t.Helper()
	s, err := NewServer(ServerOptions{AnyModel: true, Deployments: []Deployment{fast(nil)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("anthropic-version", "2023-06-01")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	answer, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(answer)
}

// streamed passes on the data of a stream's events.
func streamed(t *testing.T, body string, each func(data []byte)) {
	t.Helper()
	for line := range strings.SplitSeq(body, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" {
			each([]byte(data))
		}
	}
}

func into(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

type openAICall struct {
	ID, Type string
	Function struct{ Name, Arguments string }
}

// TestDemandedToolOfOpenAI: a tool that must be called is called, with arguments that fit.
func TestDemandedToolOfOpenAI(t *testing.T) {
	for choice, want := range map[string]struct{ name, finish, schema string }{
		namedWeather:                {"weather", "stop", toolSchema},
		`"tool_choice":"required",`: {"now", "tool_calls", `{"maxProperties":0}`},
		`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"weather"}}]}},`: {"weather", "tool_calls", toolSchema},
	} {
		_, whole := posted(t, "/v1/chat/completions", chatOf(openAITools+choice, 100))
		var answer struct {
			Choices []struct {
				Message struct {
					Content   *string
					ToolCalls []openAICall `json:"tool_calls"`
				}
				Finish string `json:"finish_reason"`
			}
		}
		into(t, []byte(whole), &answer)
		c := answer.Choices[0]
		if c.Message.Content != nil || len(c.Message.ToolCalls) != 1 || c.Finish != want.finish {
			t.Fatalf("%s: %s", choice, whole)
		}
		call := c.Message.ToolCalls[0]
		if call.Function.Name != want.name || call.Type != "function" || call.ID == "" {
			t.Errorf("%s: %+v", choice, call)
		}
		fits(t, want.schema, call.Function.Arguments)

		_, stream := posted(t, "/v1/chat/completions", chatOf(`"stream":true,`+openAITools+choice, 100))
		var name, arguments, finish string
		streamed(t, stream, func(data []byte) {
			var chunk struct {
				Choices []struct {
					Delta struct {
						Content   string
						ToolCalls []openAICall `json:"tool_calls"`
					}
					Finish string `json:"finish_reason"`
				}
			}
			into(t, data, &chunk)
			for _, c := range chunk.Choices {
				finish += c.Finish
				for _, call := range c.Delta.ToolCalls {
					name += call.Function.Name
					arguments += call.Function.Arguments
				}
				if c.Delta.Content != "" {
					t.Errorf("a text: %s", data)
				}
			}
		})
		if name != want.name || arguments != call.Function.Arguments || finish != want.finish {
			t.Errorf("%s: streamed %q %q %q", choice, name, arguments, finish)
		}
	}
}

func TestDemandedToolOfAnthropic(t *testing.T) {
	for choice, want := range map[string]struct{ name, schema string }{
		`"tool_choice":{"type":"tool","name":"weather"},`: {"weather", toolSchema},
		`"tool_choice":{"type":"any"},`:                   {"now", `{"maxProperties":0}`},
	} {
		_, whole := posted(t, "/v1/messages", chatOf(claudeTools+choice, 100))
		var answer struct {
			Content []struct {
				Type, ID, Name string
				Input          json.RawMessage
			}
			Stop string `json:"stop_reason"`
		}
		into(t, []byte(whole), &answer)
		if len(answer.Content) != 1 || answer.Content[0].Type != "tool_use" || answer.Content[0].Name != want.name || answer.Content[0].ID == "" || answer.Stop != "tool_use" {
			t.Fatalf("%s: %s", choice, whole)
		}
		fits(t, want.schema, string(answer.Content[0].Input))

		_, stream := posted(t, "/v1/messages", chatOf(`"stream":true,`+claudeTools+choice, 100))
		var name, input string
		streamed(t, stream, func(data []byte) {
			var e struct {
				Block struct{ Name string } `json:"content_block"`
				Delta struct {
					PartialJSON string `json:"partial_json"`
				}
			}
			into(t, data, &e)
			name += e.Block.Name
			input += e.Delta.PartialJSON
		})
		if name != want.name || input != string(answer.Content[0].Input) {
			t.Errorf("%s: streamed %q %q", choice, name, input)
		}
	}
}

// A tool that may be called is not, and one that is not there cannot be.
func TestToolsThatAreNotDemanded(t *testing.T) {
	for _, choice := range []string{"", `"tool_choice":"auto",`, `"tool_choice":"none",`,
		`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}},`} {
		if status, answer := posted(t, "/v1/chat/completions", chatOf(openAITools+choice, 20)); status != 200 || strings.Contains(answer, "tool_calls") {
			t.Errorf("%s: %d %s", choice, status, answer)
		}
	}
	if status, answer := posted(t, "/v1/chat/completions", chatOf(namedWeather, 20)); status != 400 || !strings.Contains(answer, "tool_choice") {
		t.Errorf("no such tool: %d %s", status, answer)
	}
}

// The simulated model of a server without providers calls demanded tools too.
func TestForwardedToolCall(t *testing.T) {
	var body strings.Builder
	p := newProvider(t, ProviderOptions{})
	resp, err := p.Forward(t.Context(), model.ForwardRequest{Path: "chat/completions", Body: []byte(chatOf(openAITools+`"tool_choice":"required",`, 100)),
		Begin: func(int, http.Header) error { return nil }, Write: func(b []byte) error { body.Write(b); return nil }})
	if err != nil || resp.FinishReason != "tool_calls" || !strings.Contains(body.String(), `"function":{"name":"now","arguments":"{}"}`) {
		t.Errorf("%+v, %v: %s", resp, err, body.String())
	}
}
