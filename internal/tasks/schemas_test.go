package tasks

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
)

var update = flag.Bool("update", false, "write docs/tasks.md anew")

// described are the tasks of a server that has one with a prompt of its own too.
func described(t *testing.T) []forebay.Task {
	t.Helper()
	c := Config{Models: simulated(t, modelsim.ProviderFaults{}), MaxOutputBytes: 1 << 20, Tasks: map[string]Option{"own-prompt": {Prompt: "{{.Input}}"}}}
	tasks, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

func compiled(t *testing.T, schema json.RawMessage) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What a schema lets in the task takes, and what it refuses the task refuses.
func TestSchemasSayWhatTheTasksTake(t *testing.T) {
	inputs := map[string][]string{
		"chat": {
			`"hello"`, `""`, `" "`, `7`, `[]`, `{}`, `{"messages": []}`, `{"messages": [{"role": "user", "content": "a"}]}`,
			`{"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}]}`,
			`{"messages": [{"role": "tool", "content": "a"}]}`, `{"messages": [{"role": "user", "content": ""}]}`,
			`{"messages": [{"role": "user", "content": [{"type": "image_url", "text": "a"}]}]}`,
			`{"messages": [{"role": "user", "content": "a", "name": "b"}]}`, `{"messages": [{"role": "user"}]}`,
			`{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}`, `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}`,
			`{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1000001}`, `{"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 1.5}`,
			`{"messages": [{"role": "user", "content": "a"}], "temperature": 2}`, `{"messages": [{"role": "user", "content": "a"}], "temperature": 2.1}`,
			`{"messages": [{"role": "user", "content": "a"}], "top_p": 1}`, `{"messages": [{"role": "user", "content": "a"}], "top_p": -1}`,
			`{"messages": [{"role": "user", "content": "a"}], "stop": "x"}`, `{"messages": [{"role": "user", "content": "a"}], "stop": ["a", "b", "c", "d"]}`,
			`{"messages": [{"role": "user", "content": "a"}], "stop": ["a", "b", "c", "d", "e"]}`, `{"messages": [{"role": "user", "content": "a"}], "stop": ""}`,
			`{"messages": [{"role": "user", "content": "a"}], "tools": []}`, `{"messages": [{"role": "user", "content": "a"}], "seed": 1}`,
			`{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}], "tool_choice": "auto"}`,
			`{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": "a b"}}]}`, `{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]}`,
			`{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "later", "x": 1}], "tool_choice": {"type": "later"}}`, `{"messages": [{"role": "user", "content": "a"}], "tools": [1]}`,
			`{"messages": [{"role": "user", "content": "a"}], "tool_choice": "some"}`, `{"messages": [{"role": "user", "content": "a"}], "tool_choice": 1}`,
			`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": ""}]}`,
			`{"messages": [{"role": "assistant"}]}`, `{"messages": [{"role": "assistant", "tool_calls": []}]}`, `{"messages": [{"role": "assistant", "tool_calls": [{"type": "function"}]}]}`,
			`{"messages": [{"role": "tool", "tool_call_id": "c"}]}`, `{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]}`,
			`{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}`, `{"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}`,
			`{"messages": [{"role": "user", "content": [{"text": "a"}]}]}`, `{"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}]}]}`,
			`{"messages": [{"role": "user", "content": "a"}], "n": 2}`, `{"messages": [{"role": "user", "content": "a"}], "n": 0}`, `{"messages": [{"role": "user", "content": "a"}], "n": 129}`,
			`{"messages": [{"role": "user", "content": "a"}], "seed": 9223372036854775808}`, `{"messages": [{"role": "user", "content": "a"}], "seed": "x"}`,
			`{"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": 3}`, `{"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": 21}`,
			`{"messages": [{"role": "user", "content": "a"}], "presence_penalty": -2, "frequency_penalty": 2.5}`, `{"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "high"}`,
			`{"messages": [{"role": "user", "content": "a"}], "reasoning_effort": 1}`, `{"messages": [{"role": "user", "content": "a"}], "logit_bias": []}`,
			`{"messages": [{"role": "user", "content": "a"}], "stream": false}`, `{"messages": [{"role": "user", "content": "a"}], "stream": true}`,
			`{"messages": [{"role": "user", "content": "a"}], "nobody": {"knows": [1]}}`, `{"messages": [{"role": "user", "content": "a"}], "model": 7}`,
			`{"messages": [{"role": "user", "content": "a"}], "raw": true}`, `{"messages": [{"role": "user", "content": "a"}], "raw": "yes"}`,
			`{"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}}`,
			`{"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "xml"}}`,
			`{"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}, "strict": true}}}`,
			`{"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {"type": "object"}}}}`,
			`{"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}`,
		},
		"summarize": {
			`"a"`, `{"text": "a"}`, `{"text": ""}`, `{}`, `{"text": "a", "max_words": 5000}`, `{"text": "a", "max_words": 5001}`,
			`{"text": "a", "max_words": 0}`, `{"text": "a", "focus": "b"}`, `{"text": "a", "focus": 1}`, `{"text": "a", "other": 1}`, `[]`,
		},
		"classify": {
			`{"text": "a", "labels": ["b"]}`, `{"text": "a", "labels": []}`, `{"text": "a", "labels": [""]}`, `{"text": "a", "labels": ["b", "c"], "multiple": true}`,
			`{"text": "a", "labels": ["b"], "multiple": 1}`, `{"labels": ["b"]}`, `{"text": "a", "labels": "b"}`, `{"text": "a", "labels": ["b"], "x": 1}`,
		},
		"extract":   {`"a"`, `{"text": "a"}`, `{"text": "a", "schema": {"type": "object"}}`, `{"text": "a", "schema": "x"}`, `{"schema": {"type": "object"}}`, `{"text": "a", "labels": []}`},
		"sentiment": {`"a"`, `{"text": "a"}`, `{"text": " "}`, `{"text": "a", "x": 1}`, `true`},
		"embed": {
			`"a"`, `["a", "b"]`, `[]`, `[""]`, `{"input": "a"}`, `{"input": ["a"], "dimensions": 256}`, `{"input": ["a"], "dimensions": 8193}`,
			`{"input": []}`, `{"dimensions": 1}`, `{"input": "a", "model": "x"}`, `{"input": ""}`,
		},
		"own-prompt": {`"a"`, `{"name": "a"}`, `{}`, `[]`, `1`},
	}
	for _, task := range described(t) {
		schema := compiled(t, task.InputSchema)
		compiled(t, task.OutputSchema)
		taken := 0
		for _, input := range append(inputs[task.Name], string(task.Example)) {
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(input))
			if err != nil {
				t.Fatal(input, err)
			}
			fits, refused := schema.Validate(value) == nil, task.Check([]byte(input))
			if fits != (refused == nil) {
				t.Errorf("%s %s: the schema lets it in: %t; the task: %v", task.Name, input, fits, refused)
			}
			if fits {
				taken++
			}
		}
		if taken < 2 {
			t.Errorf("%s: %d inputs are let in", task.Name, taken)
		}
	}
}

const tasksPage = "../../docs/tasks.md"

// The reference page is made of the schemas.
func TestTasksPage(t *testing.T) {
	var page strings.Builder
	page.WriteString(`# Tasks

A job names a task and has an input. Here is what the built-in tasks take and return.

- ` + "`GET /v1/tasks/{task}`" + ` and ` + "`forebay tasks show TASK`" + ` tell the same as JSON schemas, for the tasks of a server's configuration too.
- A field that is not listed is refused at submit, with its name, except in chat. Null is taken for absent.
- chat takes all of OpenAI's chat completions but ` + "`stream`" + `. What no deployment of the model can do is refused at submit, with
  the field: Anthropic's take no ` + "`seed`" + `, no ` + "`n`" + ` above 1, no log probabilities, no penalties, no audio and no fields that
  are not known. Where deployments of a model differ, those are called that can.
- A task of the configuration that extends a built-in one takes and returns the same. See [configuration](configuration.md).
`)
	for _, task := range described(t) {
		title, description := task.Name, task.Description
		if task.Name == "own-prompt" {
			title, description = "A task with a prompt of its own", "Asks a model by the prompt of the configuration."
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s\n", title, description)
		for _, part := range []struct {
			name   string
			schema json.RawMessage
		}{{"Input", task.InputSchema}, {"Result", task.OutputSchema}} {
			var s shape
			if err := json.Unmarshal(part.schema, &s); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&page, "\n%s: %s\n", part.name, strings.TrimSpace(s.kind()+". "+s.Description))
			if rows := s.rows(""); len(rows) > 0 {
				fmt.Fprintf(&page, "\n| field | type | |\n|---|---|---|\n%s", strings.Join(rows, ""))
			}
		}
		name := task.Name
		if name == "own-prompt" {
			name = "TASK"
		}
		fmt.Fprintf(&page, "\n```sh\ncurl localhost:8080/v1/jobs -H 'Content-Type: application/json' -d '{\"task\": %q, \"input\": %s}'\n```\n", name, task.Example)
	}
	if *update {
		if err := os.WriteFile(tasksPage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := os.ReadFile(tasksPage); err != nil || string(was) != page.String() {
		t.Fatalf("docs/tasks.md is not what the schemas say; go test ./internal/tasks -run TestTasksPage -update writes it (%v)", err)
	}
}

// shape is what the page needs of a JSON schema.
type shape struct {
	Type        string           `json:"type"`
	Description string           `json:"description"`
	Enum        []string         `json:"enum"`
	Const       any              `json:"const"`
	Default     any              `json:"default"`
	Minimum     *float64         `json:"minimum"`
	Maximum     *float64         `json:"maximum"`
	MaxItems    int              `json:"maxItems"`
	Required    []string         `json:"required"`
	Properties  map[string]shape `json:"properties"`
	Items       *shape           `json:"items"`
	OneOf       []shape          `json:"oneOf"`
}

func (s shape) kind() string {
	switch {
	case len(s.OneOf) > 0:
		var kinds []string
		for _, one := range s.OneOf {
			kinds = append(kinds, one.kind())
		}
		return strings.Join(kinds, ", or ")
	case len(s.Enum) > 0:
		return "`" + strings.Join(s.Enum, "`, `") + "`"
	case s.Const != nil:
		return fmt.Sprintf("`%v`", s.Const)
	case s.Type == "array" && s.MaxItems > 0:
		return fmt.Sprintf("list of %s, at most %d", s.Items.kind(), s.MaxItems)
	case s.Type == "array":
		return "list of " + s.Items.kind()
	case s.Type == "string":
		return "text"
	case s.Type == "":
		return "any JSON"
	}
	text := s.Type
	if s.Minimum != nil {
		text += fmt.Sprintf(", %g to %s", *s.Minimum, strings.TrimSuffix(fmt.Sprintf("%.1f", *s.Maximum), ".0"))
	}
	return text
}

// rows are the fields of a shape, and below each those that it is made of.
func (s shape) rows(path string) (rows []string) {
	for _, one := range s.OneOf {
		rows = append(rows, one.rows(path)...)
	}
	if s.Items != nil {
		rows = append(rows, s.Items.rows(path+"[]")...)
	}
	names := []string{}
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		need := func(name string) int {
			if i := slices.Index(s.Required, name); i >= 0 {
				return i
			}
			return len(s.Required)
		}
		if d := need(a) - need(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		p := s.Properties[name]
		var notes []string
		if slices.Contains(s.Required, name) {
			notes = append(notes, "required")
		}
		if p.Default != nil {
			notes = append(notes, fmt.Sprintf("default `%v`", p.Default))
		}
		note := strings.Join(notes, ", ")
		if p.Description != "" {
			note = strings.TrimPrefix(note+". "+p.Description, ". ")
		}
		full := strings.TrimPrefix(path+"."+name, ".")
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", full, p.kind(), note))
		rows = append(rows, p.rows(full)...)
	}
	return rows
}
