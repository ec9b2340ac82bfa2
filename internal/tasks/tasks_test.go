package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/modelsim"
)

var (
	_ Models         = (*model.Router)(nil)
	_ model.Provider = (*modelsim.Provider)(nil)
)

// oneDeployment answers every model from one provider and keeps what it was asked.
type oneDeployment struct {
	model.Deployment
	model string
	chat  model.ChatRequest
	embed model.EmbedRequest
}

func (o *oneDeployment) Chat(ctx context.Context, name string, req model.ChatRequest) (model.ChatResponse, *model.Deployment, error) {
	o.model, o.chat = name, req
	resp, err := o.Provider.Chat(ctx, req)
	return resp, &o.Deployment, err
}

func (o *oneDeployment) Embed(ctx context.Context, name string, req model.EmbedRequest) (model.EmbedResponse, *model.Deployment, error) {
	o.model, o.embed = name, req
	resp, err := o.Provider.Embed(ctx, req)
	return resp, &o.Deployment, err
}

// canned is a provider that always says the same.
type canned struct {
	chat  model.ChatResponse
	embed model.EmbedResponse
	err   error
}

func (c canned) Chat(context.Context, model.ChatRequest) (model.ChatResponse, error) {
	return c.chat, c.err
}
func (c canned) Embed(context.Context, model.EmbedRequest) (model.EmbedResponse, error) {
	return c.embed, c.err
}

func simulated(t testing.TB, f modelsim.ProviderFaults) *oneDeployment {
	t.Helper()
	p, err := modelsim.NewProvider(modelsim.ProviderOptions{Faults: f})
	if err != nil {
		t.Fatal(err)
	}
	return &oneDeployment{Deployment: model.Deployment{Name: "east", Provider: p, Price: forebay.Price{Input: 1, Output: 2}}}
}

func build(t testing.TB, c Config) map[string]forebay.Task {
	t.Helper()
	list, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]forebay.Task{}
	for _, task := range list {
		out[task.Name] = task
	}
	return out
}

func run(t testing.TB, task forebay.Task, input string) (forebay.TaskResult, error) {
	t.Helper()
	if err := task.Check(json.RawMessage(input)); err != nil {
		t.Fatalf("check of %s: %v", input, err)
	}
	return task.Run(t.Context(), forebay.TaskCall{JobID: "job_1", Task: task.Name, Generation: 1, Number: 1, Input: json.RawMessage(input)})
}

func taskError(t *testing.T, err error) *forebay.TaskError {
	t.Helper()
	var e *forebay.TaskError
	if !errors.As(err, &e) {
		t.Fatalf("%v is no TaskError", err)
	}
	return e
}

func TestBuiltinsDoTheirWork(t *testing.T) {
	models := simulated(t, modelsim.ProviderFaults{})
	all := build(t, Config{Models: models})
	for _, tt := range []struct{ task, input, want string }{
		{"summarize", `"Gold was found in the valley. The gold rush filled the valley with miners. Birds sang."`,
			`{"summary":"Gold was found in the valley. The gold rush filled the valley with miners. Birds sang.","finish_reason":"stop","model":"sim-1"}`},
		{"summarize", `{"text":"Gold was found in the valley. The gold rush filled the valley with miners. Birds sang all day.","max_words":6,"focus":"birds"}`,
			`{"summary":"Birds sang all day.","finish_reason":"stop","model":"sim-1"}`},
		{"classify", `{"text":"My card was charged twice, please refund the payment.","labels":["technical","billing"]}`, `{"label":"billing"}`},
		{"classify", `{"text":"The team won the match; the doctor treated the player's pain at the hospital.","labels":["sports","cooking","health"],"multiple":true}`,
			`{"label":"sports","labels":["sports","health"]}`},
		{"extract", `"Ada Lovelace wrote to ada@example.org from London on 2024-05-01."`,
			`{"entities":[{"type":"person","text":"Ada Lovelace"},{"type":"email","text":"ada@example.org"},{"type":"location","text":"London"},{"type":"date","text":"2024-05-01"}]}`},
		{"extract", `{"text":"Invoice number: 4711\nTotal: $80","schema":{"type":"object","properties":{"invoice_number":{"type":"string"},"total":{"type":"number"}},"required":["total"]}}`,
			`{"invoice_number":"4711","total":80}`},
		{"sentiment", `{"text":"An excellent book, I love it."}`, `{"sentiment":"positive","score":0.86}`},
		{"chat", `"The brown dog is called Rex."`, `{"text":"You write: The brown dog is called Rex.","finish_reason":"stop","model":"sim-1"}`},
		{"chat", `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Rex <&> "},{"type":"text","text":"barks."}]}],"max_tokens":5}`,
			`{"text":"You write: Rex","finish_reason":"length","model":"sim-1"}`},
	} {
		got, err := run(t, all[tt.task], tt.input)
		if err != nil {
			t.Errorf("%s %s: %v", tt.task, tt.input, err)
			continue
		}
		if string(got.Output) != tt.want {
			t.Errorf("%s %s\ngot  %s\nwant %s", tt.task, tt.input, got.Output, tt.want)
		}
		if got.Deployment != "east" || got.Usage.InputTokens == 0 || got.Cost != models.Price.Cost(got.Usage) || got.Cost == 0 {
			t.Errorf("%s: %+v", tt.task, got)
		}
		if models.model != "chat" {
			t.Errorf("%s called model %q", tt.task, models.model)
		}
	}
	got, err := run(t, all["embed"], `{"input":["a cat","a dog"],"dimensions":8}`)
	var vectors struct {
		Embeddings [][]float32
		Dimensions int
		Model      string
	}
	if err != nil || json.Unmarshal(got.Output, &vectors) != nil || len(vectors.Embeddings) != 2 || len(vectors.Embeddings[1]) != 8 || vectors.Dimensions != 8 || models.model != "embedding" {
		t.Errorf("embed: %s, %v", got.Output, err)
	}
}

func TestChatPassesWhatWasAsked(t *testing.T) {
	models := simulated(t, modelsim.ProviderFaults{})
	all := build(t, Config{Models: models})
	left, tokensLeft := forebay.USD(1), int64(100_000)
	_, err := all["chat"].Run(t.Context(), forebay.TaskCall{CostLeft: &left, TokensLeft: &tokensLeft, Input: json.RawMessage(
		`{"messages":[{"role":"developer","content":"S"},{"role":"user","content":"Q"},{"role":"assistant","content":"A"},{"role":"user","content":"Q2"}],
		"max_completion_tokens":7,"temperature":0.5,"top_p":0.9,"stop":"END","raw":true,
		"response_format":{"type":"json_schema","json_schema":{"name":"thing","strict":true,"schema":{"type":"object","properties":{}}}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	got := models.chat
	if len(got.Messages) != 4 || got.Messages[0].Role != model.RoleSystem || got.Messages[0].Content != "S" || got.Messages[0].Object != nil || got.Messages[3].Content != "Q2" {
		t.Errorf("messages %+v", got.Messages)
	}
	if got.MaxOutputTokens != 7 || *got.Temperature != 0.5 || *got.TopP != 0.9 || !slices.Equal(got.Stop, []string{"END"}) || !got.WantRaw ||
		got.SchemaName != "thing" || string(got.JSONSchema) != `{"type":"object","properties":{}}` || got.CostLeft != &left || got.TokensLeft != &tokensLeft {
		t.Errorf("%+v", got)
	}
	result, err := run(t, all["chat"], `{"messages":[{"role":"user","content":"Hi"}],"raw":true}`)
	var out struct{ Raw struct{ Object string } }
	if err != nil || json.Unmarshal(result.Output, &out) != nil || out.Raw.Object != "chat.completion" {
		t.Errorf("%s, %v", result.Output, err)
	}
}

// A field in another case would pass the estimate, and servers written in Go would still read it.
func TestChatRefusesCountedFieldsInAnotherCase(t *testing.T) {
	all := build(t, Config{Models: simulated(t, modelsim.ProviderFaults{})})
	for _, field := range []string{`"N":9`, `"Max_Tokens":9`, `"MODEL":"large"`} {
		err := all["chat"].Check(json.RawMessage(`{"messages":[{"role":"user","content":"Q"}],` + field + `}`))
		if forebay.CodeOf(err) != forebay.CodeUnknownField {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestOverrides(t *testing.T) {
	models := simulated(t, modelsim.ProviderFaults{})
	warm := 0.7
	all := build(t, Config{Models: models, ModelNames: []string{"chat", "embedding", "large"}, Tasks: map[string]Option{
		"summarize": {Model: "large", System: "Sum up for {{.focus}}.", Prompt: "Text: {{.Input}}", MaxOutputTokens: 33, Temperature: &warm},
		"triage":    {Extends: "classify", Labels: []string{"bug", "question"}, Queue: "triage", MaxAttempts: 2},
		"translate": {System: "You translate.", Prompt: "Into {{.language}}: {{.Input}}"},
		"terse":     {System: "Be terse.", MaxOutputTokens: 20},
		"vectors":   {Extends: "embed", Model: "large"},
	}})
	if _, err := run(t, all["summarize"], `{"text":"A text.","focus":"children"}`); err != nil {
		t.Fatal(err)
	}
	if got := models.chat; models.model != "large" || got.MaxOutputTokens != 33 || *got.Temperature != 0.7 ||
		got.Messages[0].Content != "Sum up for children." || got.Messages[1].Content != "Text: A text." {
		t.Errorf("%s %+v", models.model, got)
	}
	got, err := run(t, all["triage"], `"How do I ask a question?"`)
	if err != nil || string(got.Output) != `{"label":"question"}` || all["triage"].Queue != "triage" || all["triage"].MaxAttempts != 2 {
		t.Errorf("%s, %v", got.Output, err)
	}
	if _, err := run(t, all["translate"], `{"text":"Good day.","language":"French","n":1000000}`); err != nil || models.chat.Messages[1].Content != "Into French: Good day." {
		t.Errorf("%+v, %v", models.chat.Messages, err)
	}
	if err := all["translate"].Check(json.RawMessage(`"Good day."`)); err == nil || !strings.Contains(err.Error(), `"language"`) {
		t.Errorf("an input without what the prompt needs: %v", err)
	}
	if _, err := run(t, all["terse"], `{"messages":[{"role":"user","content":"Hi"}]}`); err != nil || models.chat.Messages[0].Content != "Be terse." || models.chat.MaxOutputTokens != 20 {
		t.Errorf("%+v, %v", models.chat, err)
	}
	if err := all["terse"].Check(json.RawMessage(`{"messages":[{"role":"user","content":"Hi"}],"max_tokens":21}`)); err == nil {
		t.Error("a limit above the configured one was accepted")
	}
	if _, err := run(t, all["vectors"], `"x"`); err != nil || models.model != "large" {
		t.Errorf("%s, %v", models.model, err)
	}
}

func TestBuiltinsWithoutTheirModelAreLeftOut(t *testing.T) {
	all := build(t, Config{Models: simulated(t, modelsim.ProviderFaults{}), ModelNames: []string{"chat"}})
	if _, ok := all["embed"]; ok || len(all) != 5 {
		t.Errorf("%d tasks, embed: %v", len(all), ok)
	}
}

func TestConfigurationErrorsNameTheOption(t *testing.T) {
	hot := 2.5
	for field, tasks := range map[string]map[string]Option{
		"tasks.x.prompt":            {"x": {Prompt: "{{.Input"}},
		"tasks.summarize.prompt":    {"summarize": {Prompt: "{{.Inptu}}"}},
		"tasks.x.system":            {"x": {System: "{{nosuch}}"}},
		"tasks.x.model":             {"x": {Model: "gone"}},
		"tasks.x.extends":           {"x": {Extends: "nothing"}},
		"tasks.x.temperature":       {"x": {Temperature: &hot}},
		"tasks.x.max_output_tokens": {"x": {MaxOutputTokens: -1}},
		"tasks.x.labels":            {"x": {Labels: []string{"a"}}},
		"tasks.classify.labels":     {"classify": {Labels: []string{"a", "A"}}},
		"tasks.embed.extends":       {"embed": {Prompt: "x"}},
		"tasks.x.queue":             {"x": {Queue: "a b"}},
		"tasks.x.max_attempts":      {"x": {MaxAttempts: 101}},
		"tasks.x.timeout":           {"x": {Timeout: -1}},
		"tasks.f.http.url":          {"f": {HTTP: &HTTPFunction{URL: "ftp://h/"}}},
		"tasks.g.http.url":          {"g": {HTTP: &HTTPFunction{URL: "http://u:p@h/"}}},
		"tasks.h.http.url":          {"h": {HTTP: &HTTPFunction{}}},
		"tasks.i.http.headers":      {"i": {HTTP: &HTTPFunction{URL: "http://h/", Headers: map[string]forebay.Secret{"a b": "x"}}}},
		"tasks.j.http.headers":      {"j": {HTTP: &HTTPFunction{URL: "http://h/", Headers: map[string]forebay.Secret{"a": "x\n"}}}},
		"tasks.l.http.concurrency":  {"l": {HTTP: &HTTPFunction{URL: "http://h/", Concurrency: -1}}},
		"tasks.k.prompt":            {"k": {Prompt: "x", HTTP: &HTTPFunction{URL: "http://h/"}}},
		"tasks":                     {"a b": {}},
	} {
		_, err := New(Config{Models: simulated(t, modelsim.ProviderFaults{}), ModelNames: []string{"chat", "embedding"}, Tasks: tasks})
		var e *forebay.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
		if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("tasks without models were accepted")
	}
}

func TestCheckNamesTheField(t *testing.T) {
	all := build(t, Config{Models: simulated(t, modelsim.ProviderFaults{})})
	for _, tt := range []struct{ task, input, field string }{
		{"summarize", `""`, "input"}, {"summarize", `" \n"`, "input"}, {"summarize", `7`, "input"}, {"summarize", `null`, "input"},
		{"summarize", `["a"]`, "input"}, {"summarize", `{}`, "input.text"}, {"summarize", `{"text":7}`, "input.text"},
		{"summarize", `{"text":"x","max_words":0}`, "input.max_words"}, {"summarize", `{"text":"x","max_words":1.5}`, "input.max_words"},
		{"summarize", `{"text":"x","focus":"a\nb"}`, "input.focus"}, {"summarize", `{"text":"x","lang":"en"}`, "input.lang"},
		{"classify", `"x"`, "input.labels"}, {"classify", `{"text":"x","labels":[]}`, "input.labels"}, {"classify", `{"text":"x","labels":["a",7]}`, "input.labels[1]"},
		{"classify", `{"text":"x","labels":["a","a "]}`, "input.labels"}, {"classify", `{"text":"x","labels":["a\u0000"]}`, "input.labels"},
		{"classify", `{"text":"x","labels":"a"}`, "input.labels"}, {"classify", `{"text":"x","labels":["a"],"multiple":1}`, "input.multiple"},
		{"extract", `{"text":"x","schema":[]}`, "input.schema"}, {"extract", `{"text":"x","schema":{"type":"array"}}`, "input.schema"},
		{"extract", `{"text":"x","schema":{"type":"object","properties":1}}`, "input.schema"},
		{"extract", `{"text":"x","schema":{"type":"object","description":"` + strings.Repeat("d", maxSchemaBytes) + `"}}`, "input.schema"},
		{"sentiment", `{"text":"x","labels":["a"]}`, "input.labels"}, {"sentiment", `{"text":null}`, "input.text"},
		{"chat", `{}`, "input.messages"}, {"chat", `{"messages":[]}`, "input.messages"}, {"chat", `{"messages":"x"}`, "input.messages"},
		{"chat", `{"messages":[{"role":"tool","content":"x"}]}`, "input.messages[0].tool_call_id"}, {"chat", `{"messages":[{"role":"bot","content":"x"}]}`, "input.messages[0].role"},
		{"chat", `{"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":{}}}]}]}`, "input.messages[0].tool_calls[0].function.arguments"},
		{"chat", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":7}}]}]}`, "input.messages[0].content[0].image_url.url"},
		{"chat", `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]}`, "input.tools[0].function.parameters"},
		{"chat", `{"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"function","function":{"name":""}}}`, "input.tool_choice.function.name"},
		{"chat", `{"messages":[{"role":"user","content":"x"}],"tool_choice":"maybe"}`, "input.tool_choice"}, {"chat", `{"messages":[{"role":"user","content":"x"}],"n":1.5}`, "input.n"},
		{"chat", `{"messages":[{"role":"user","content":"x"}],"logit_bias":{"50256":101}}`, "input.logit_bias.50256"}, {"chat", `{"messages":[{"role":"user","content":"x"}],"seed":1.5}`, "input.seed"},
		{"chat", `{"messages":[{"role":"user","content":"x"}],"top_logprobs":2}`, "input.top_logprobs"}, {"chat", `{"messages":[{"role":"user","content":"x"}],"stream":true}`, "input.stream"},
		{"chat", `{"messages":[{"role":"user","content":"x"}],"Max_Tokens":5}`, "input.Max_Tokens"}, {"chat", `{"messages":[{"role":"user","content":"x"}],"stream_options":{}}`, "input.stream_options"}, {"chat", `{"messages":[{"role":"user","content":""}]}`, "input.messages[0].content"},
		{"chat", `{"messages":[{"role":"user","content":"x","name":7}]}`, "input.messages[0].name"}, {"chat", `{"messages":[7]}`, "input.messages[0]"},
		{"chat", `{"messages":[{"role":"user","content":[{"type":"image_url","text":"x"}]}]}`, "input.messages[0].content[0].image_url"},
		{"chat", `{"messages":[{"role":"system","content":"x"}]}`, "input.messages"}, {"chat", `{"messages":[{"role":"user","content":"x"}],"model":"m"}`, "input.model"},
		{"chat", `{"messages":[{"role":"user","content":"x"}],"temperature":3}`, "input.temperature"}, {"chat", `{"messages":[{"role":"user","content":"x"}],"stop":[""]}`, "input.stop"},
		{"chat", `{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"xml"}}`, "input.response_format.type"},
		{"chat", `{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"a b","schema":{"type":"object"}}}}`, "input.response_format.json_schema.name"},
		{"chat", `{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{}}}`, "input.response_format.json_schema.schema"},
		{"embed", `""`, "input"}, {"embed", `[]`, "input"}, {"embed", `["a",""]`, "input[1]"}, {"embed", `["a",1]`, "input[1]"}, {"embed", `7`, "input"},
		{"embed", `{"input":"a","dimensions":0}`, "input.dimensions"}, {"embed", `{"dimensions":1}`, "input.input"}, {"embed", `{"input":["a"," "]}`, "input.input[1]"},
		{"embed", `[` + strings.Repeat(`"a",`, maxEmbedInputs) + `"a"]`, "input"}, {"embed", `{"input":"a","user":"u"}`, "input.user"},
	} {
		err := all[tt.task].Check(json.RawMessage(tt.input))
		var e *forebay.Error
		if !errors.As(err, &e) || e.Field != tt.field {
			t.Errorf("%s %.80s: got %v, want an error about %s", tt.task, tt.input, err, tt.field)
			continue
		}
		if e.Code == forebay.CodeInternal || e.Message == "" || len(e.Message) > 400 {
			t.Errorf("%s %.80s: %s %q", tt.task, tt.input, e.Code, e.Message)
		}
		_, err = all[tt.task].Run(t.Context(), forebay.TaskCall{Input: json.RawMessage(tt.input)})
		if got := taskError(t, err); got.Class != forebay.ClassPermanent || got.Code != "invalid_input" {
			t.Errorf("run of %s %.80s: %+v", tt.task, tt.input, got)
		}
	}
	if err := all["summarize"].Check(json.RawMessage(`{"text":"x","lang":1}`)); forebay.CodeOf(err) != forebay.CodeUnknownField {
		t.Errorf("unknown field: %v", err)
	}
}

func TestTimeoutAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		models := simulated(t, modelsim.ProviderFaults{Latency: time.Minute})
		all := build(t, Config{Models: models, Tasks: map[string]Option{"chat": {Timeout: time.Second}, "embed": {Timeout: 2 * time.Second}}})
		for task, limit := range map[string]time.Duration{"chat": time.Second, "embed": 2 * time.Second} {
			start := time.Now()
			got, err := run(t, all[task], `"x"`)
			if e := taskError(t, err); e.Class != forebay.ClassTransient || e.Code != "timeout" || !e.Unmeasured || got.Deployment != "east" || time.Since(start) != limit {
				t.Errorf("%s: %+v, %+v after %s", task, e, got, time.Since(start))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := all["chat"].Run(ctx, forebay.TaskCall{Input: json.RawMessage(`"x"`)})
		if !errors.Is(err, context.DeadlineExceeded) || forebay.AsTaskError(err).Err != context.DeadlineExceeded {
			t.Errorf("the caller's own deadline: %v", err)
		}
	})
}

// An input that Check accepts must run; one that it refuses must say which field is wrong.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`"x"`, `{"text":"x","max_words":3,"focus":"y"}`, `{"text":"x","labels":["a","b"],"multiple":true}`,
		`{"text":"a: 1","schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"stop":["a"],"max_tokens":5,"response_format":{"type":"json_object"}}`,
		`{"input":["a","b"],"dimensions":3}`, `null`, `[]`, `{"text":"\u0000\ud800"}`} {
		f.Add(seed)
	}
	all := build(f, Config{Models: simulated(f, modelsim.ProviderFaults{}), Tasks: map[string]Option{"free": {Prompt: "{{.Input}} {{with index . \"a\"}}{{.}}{{end}}"}}})
	f.Fuzz(func(t *testing.T, input string) {
		if len(input) > 32<<10 || jsoncheck.Check("input", []byte(input)) != nil {
			t.Skip("refused before a task sees it")
		}
		for name, task := range all {
			if err := task.Check(json.RawMessage(input)); err != nil {
				var e *forebay.Error
				if !errors.As(err, &e) || !strings.HasPrefix(e.Field, "input") || !utf8.ValidString(e.Error()) {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			got, err := task.Run(t.Context(), forebay.TaskCall{Input: json.RawMessage(input)})
			var e *forebay.TaskError
			if err != nil && !errors.As(err, &e) || e != nil && e.Code == "invalid_input" {
				t.Errorf("%s was accepted and then failed: %v", name, err)
			}
			if err == nil && (!json.Valid(got.Output) || !utf8.Valid(got.Output)) {
				t.Errorf("%s: output %q", name, got.Output)
			}
		}
	})
}
