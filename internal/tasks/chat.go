package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

const (
	maxMessages      = 2048
	maxStops         = 4
	maxStopBytes     = 200
	maxSchemaBytes   = 64 << 10
	maxTopP          = 1
	defaultSchemaTag = "response"
)

// parseChat reads one user message, or a conversation in OpenAI's shape.
func parseChat(o Option, input json.RawMessage) (request, error) {
	if kindOf(input) == "a string" {
		text, in := textOr(input)
		return request{data: map[string]any{"Input": text}, result: reply(false, false)}, in.err
	}
	if kindOf(input) != "an object" {
		return request{}, forebay.Invalid("input", "must be a string or an object, not %s", kindOf(input))
	}
	in := readObject("input", input)
	if in.err != nil {
		return request{}, in.err
	}
	var req request
	last, asked := "", false
	if _, ok := in.has("messages"); !ok {
		in.fail("messages", "is missing")
	}
	for i, raw := range in.list("messages", 1, maxMessages) {
		m, err := parseMessage(fmt.Sprintf("input.messages[%d]", i), raw)
		if err != nil && in.err == nil {
			in.err = err
		}
		if m.Role != model.RoleSystem {
			last, asked = m.Content, true
		}
		req.chat.Messages = append(req.chat.Messages, m)
	}
	if !asked {
		in.fail("messages", "has no message of the user's")
	}
	req.data = map[string]any{"Input": last}

	limit := maxTokens
	if o.MaxOutputTokens > 0 {
		limit = o.MaxOutputTokens
	}
	req.chat.MaxOutputTokens = in.integer("max_completion_tokens", limit)
	if n := in.integer("max_tokens", limit); req.chat.MaxOutputTokens == 0 {
		req.chat.MaxOutputTokens = n
	}
	req.chat.Temperature = in.number("temperature", 0, maxTemperature)
	req.chat.TopP = in.number("top_p", 0, maxTopP)
	if raw, ok := in.has("stop"); ok && kindOf(raw) == "a string" {
		req.chat.Stop = []string{in.text("stop")}
	} else {
		req.chat.Stop = in.texts("stop", 0, maxStops)
	}
	for _, s := range req.chat.Stop {
		if s == "" || len(s) > maxStopBytes {
			in.fail("stop", "each must be 1 to %d bytes", maxStopBytes)
		}
	}
	req.chat.WantRaw = in.boolean("raw")
	structured := parseFormat(in, &req.chat)
	parseStream(in)
	req.model = parseModel(o, in)
	parseExtra(in, &req.chat)
	req.result = reply(structured, req.chat.WantRaw)
	if in.err == nil {
		req.onlyOpenAI = model.ReadChatShape(input).OnlyOpenAI
		req.chat.AsOpenAI = req.onlyOpenAI != ""
	}
	return req, in.err
}

// parseFormat reads response_format and reports whether the answer is to be JSON.
func parseFormat(in *object, chat *model.ChatRequest) bool {
	raw, ok := in.has("response_format")
	if !ok || in.err != nil {
		return false
	}
	format := readObject("input.response_format", raw, "type", "json_schema")
	defer func() { in.err = format.err }()
	switch format.text("type") {
	case "text":
		return false
	case "json_object":
		chat.JSONObject = true
		return true
	case "json_schema":
		nested, ok := format.has("json_schema")
		if !ok {
			format.fail("json_schema", "is missing")
			return false
		}
		schema := readObject("input.response_format.json_schema", nested, "name", "description", "schema", "strict")
		schema.boolean("strict") // ignored: the schema itself shows whether strict mode is possible
		chat.SchemaDescription = schema.text("description")
		chat.SchemaName = schema.text("name")
		if chat.SchemaName == "" {
			chat.SchemaName = defaultSchemaTag
		}
		if !schemaName(chat.SchemaName) {
			schema.fail("name", "must be 1 to 64 of a-z A-Z 0-9 _ -")
		}
		chat.JSONSchema = readSchema(schema, "schema")
		if chat.JSONSchema == nil {
			schema.fail("schema", "is missing")
		}
		if format.err == nil {
			format.err = schema.err
		}
		return true
	}
	format.fail("type", "must be text, json_object or json_schema")
	return false
}

func schemaName(s string) bool {
	return len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// parseFree reads the input of a task made from a prompt: a text, or an object whose fields the
// prompt may use. For an object, .Input is the field text or else the whole object.
func parseFree(_ Option, input json.RawMessage) (request, error) {
	if kindOf(input) == "a string" {
		text, in := textOr(input)
		return request{data: map[string]any{"Input": text}, result: reply(false, false)}, in.err
	}
	if kindOf(input) != "an object" {
		return request{}, forebay.Invalid("input", "must be a string or an object, not %s", kindOf(input))
	}
	data := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(input))
	decoder.UseNumber() // keeps the spelling: 1000000, not 1e+06
	if err := decoder.Decode(&data); err != nil {
		return request{}, &forebay.Error{Code: forebay.CodeInvalidJSON, Field: "input", Message: "is not valid JSON"}
	}
	text, ok := data["text"].(string)
	if !ok {
		text = string(input)
	}
	if blank(text) || len(data) == 0 {
		return request{}, forebay.Invalid("input", "must not be empty")
	}
	data["Input"] = text
	return request{data: data, result: reply(false, false)}, nil
}
