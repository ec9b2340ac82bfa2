package interop_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/toolchain"
	"github.com/forebayhq/forebay/server"
)

// Jobs of the task chat call tools, get their results, see pictures and answer in JSON. The
// upstream is one that nobody here wrote, and is called by OpenAI's API and by Anthropic's.
func TestChatJobs(t *testing.T) {
	t.Parallel()
	mock := startMock(t, toolchain.NodeModules(t, filepath.Join("testdata", "openai")))
	base, key := startOpenAI(t, mock, func(o *server.Options) {
		o.Deployments = []server.Deployment{
			{Name: "openai", Provider: server.ProviderOpenAI, Endpoint: mock + "/v1", Model: "gpt-4o-mini"},
			{Name: "anthropic", Provider: server.ProviderAnthropic, Endpoint: mock, Model: "claude-sonnet-4-5"},
		}
		o.Models = map[string]server.Model{"chat": server.InOrder("openai"), "claude": server.InOrder("anthropic")}
		o.Tasks = map[string]server.TaskOption{"chat": {Models: []string{"claude"}}}
	})
	c, err := client.New(client.Options{BaseURL: base, Key: forebay.Secret(key)})
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		Text         string `json:"text"`
		FinishReason string `json:"finish_reason"`
		ToolCalls    []struct {
			ID       string `json:"id"`
			Type     string `json:"type"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
		Raw json.RawMessage `json:"raw"`
	}
	ask := func(t *testing.T, model, fields string) (r result) {
		t.Helper()
		input := fmt.Sprintf(`{"model":%q,"raw":true,%s}`, model, fields)
		job, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: "chat", Input: json.RawMessage(input)})
		if err == nil {
			job, err = c.Poll(t.Context(), job.ID, time.Minute)
		}
		if err != nil || job.Status != forebay.StatusSucceeded {
			t.Fatalf("%s: %s %+v, %v", input, job.Status, job.Error, err)
		}
		if err := json.Unmarshal(job.Result, &r); err != nil || len(r.Raw) == 0 {
			t.Fatalf("result %s: %v", job.Result, err)
		}
		return r
	}
	const tools = `"tools":[{"type":"function","function":{"name":"get_weather","description":"The weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`
	for _, model := range []string{"chat", "claude"} {
		t.Run(model, func(t *testing.T) {
			if r := ask(t, model, `"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"hello"}],"reasoning_effort":"low"`); r.Text != "Hi there, what can I do for you today?" || r.FinishReason != "stop" {
				t.Errorf("%+v", r)
			}
			r := ask(t, model, tools+`,"tool_choice":"auto","messages":[{"role":"user","content":"What is the weather in Oslo?"}]`)
			if len(r.ToolCalls) != 1 || r.FinishReason != "tool_calls" || r.ToolCalls[0].ID == "" || r.ToolCalls[0].Type != "function" || r.ToolCalls[0].Function.Name != "get_weather" ||
				r.ToolCalls[0].Function.Arguments != `{"city":"Oslo"}` {
				t.Fatalf("%+v", r)
			}
			call, err := json.Marshal(r.ToolCalls)
			if err != nil {
				t.Fatal(err)
			}
			answered := ask(t, model, tools+`,"messages":[{"role":"user","content":"What is the weather in Oslo?"},{"role":"assistant","content":null,"tool_calls":`+string(call)+`},`+
				fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"rain"},{"role":"user","content":"hello"}]`, r.ToolCalls[0].ID))
			if answered.Text != "Hi there, what can I do for you today?" {
				t.Errorf("%+v", answered)
			}
			if r := ask(t, model, `"messages":[{"role":"user","content":[{"type":"text","text":"image"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]`); r.Text != "A red square." {
				t.Errorf("%+v", r)
			}
			if r := ask(t, model, `"messages":[{"role":"user","content":"person"}],"response_format":{"type":"json_schema","json_schema":{"name":"person","schema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}}}`); r.Text != `{"name":"Ada","age":36}` {
				t.Errorf("%+v", r)
			}
		})
	}
}
