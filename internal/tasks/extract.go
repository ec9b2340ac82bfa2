package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/forebayhq/forebay/internal/jsoncheck"
	"github.com/forebayhq/forebay/internal/model"
)

var entityTypes = []string{"person", "organization", "location", "date", "money", "percent", "email", "url", "phone", "other"}

var entitiesSchema = objectSchema(map[string]any{"entities": map[string]any{
	"type": "array",
	"items": objectSchema(map[string]any{
		"type": map[string]any{"type": "string", "enum": entityTypes},
		"text": map[string]any{"type": "string"},
	}),
}})

func parseExtract(_ Option, input json.RawMessage) (request, error) {
	text, in := textOr(input, "schema")
	schema := readSchema(in, "schema")
	req := request{data: map[string]any{"Input": text, "schema": string(schema)}}
	req.chat.JSONSchema, req.chat.SchemaName, req.result = entitiesSchema, "entities", named
	if schema != nil {
		req.chat.JSONSchema, req.chat.SchemaName = schema, "extraction"
		req.result = func(resp model.ChatResponse) (any, error) { return matching(resp.Text, schema) }
	}
	return req, in.err
}

// readSchema reads a JSON schema of an object. It returns nil if the field is absent.
func readSchema(in *object, name string) json.RawMessage {
	raw, ok := in.has(name)
	if !ok || in.err != nil {
		return nil
	}
	var schema struct {
		Type       any            `json:"type"`
		Properties map[string]any `json:"properties"`
	}
	var compact bytes.Buffer
	switch {
	case kindOf(raw) != "an object":
		in.fail(name, "must be a JSON schema, an object, not %s", kindOf(raw))
	case json.Unmarshal(raw, &schema) != nil:
		in.fail(name, "is no JSON schema: its properties must be an object")
	case schema.Type != "object":
		in.fail(name, "must be a JSON schema with the type object")
	case json.Compact(&compact, raw) != nil:
		in.fail(name, "is not valid JSON")
	case compact.Len() > maxSchemaBytes:
		in.fail(name, "must be at most %d bytes", maxSchemaBytes)
	}
	if in.err != nil {
		return nil
	}
	return compact.Bytes()
}

type entity struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func named(resp model.ChatResponse) (any, error) {
	var answer struct {
		Entities *[]entity `json:"entities"`
	}
	if json.Unmarshal(jsonPart(resp.Text), &answer) != nil || answer.Entities == nil {
		return nil, malformed("the answer is no JSON object with entities")
	}
	if slices.ContainsFunc(*answer.Entities, func(e entity) bool { return blank(e.Type) || blank(e.Text) }) {
		return nil, malformed("the answer has an entity without type or text")
	}
	return answer, nil
}

// matching returns the JSON object of an answer, if it matches the schema.
func matching(text string, schema json.RawMessage) (any, error) {
	raw := jsonPart(text)
	if kindOf(raw) != "an object" || jsoncheck.Check("answer", raw) != nil {
		return nil, malformed("the answer is no JSON object")
	}
	var value any
	var shape map[string]any
	if err := errors.Join(json.Unmarshal(raw, &value), json.Unmarshal(schema, &shape)); err != nil {
		return nil, malformed("the answer is no JSON object")
	}
	if err := conforms(value, shape, "answer"); err != nil {
		return nil, malformed("the answer does not match the schema: " + err.Error())
	}
	return json.RawMessage(raw), nil
}

// conforms checks the keywords type, enum, properties, required and items of JSON Schema. It
// ignores others, such as references and combinations, which models enforce where they can.
func conforms(value any, schema map[string]any, path string) error {
	if options, ok := schema["enum"].([]any); ok && !slices.ContainsFunc(options, func(o any) bool { return same(o, value) }) {
		return fmt.Errorf("%s is none of the values allowed", path)
	}
	if !isType(value, schema["type"]) {
		return fmt.Errorf("%s has the wrong type", path)
	}
	switch v := value.(type) {
	case map[string]any:
		required, _ := schema["required"].([]any)
		for _, r := range required {
			if name, ok := r.(string); ok {
				if _, ok := v[name]; !ok {
					return fmt.Errorf("%s.%.80s is missing", path, name)
				}
			}
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, p := range properties {
			if property, ok := p.(map[string]any); ok {
				if inner, ok := v[name]; ok {
					if err := conforms(inner, property, path+"."+clip(name, 80)); err != nil {
						return err
					}
				}
			}
		}
	case []any:
		if items, ok := schema["items"].(map[string]any); ok {
			for i, inner := range v {
				if err := conforms(inner, items, fmt.Sprintf("%s[%d]", path, i)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// same compares JSON scalars. Lists and objects never match an option of an enum.
func same(a, b any) bool {
	switch a.(type) {
	case nil, string, float64, bool:
		return a == b
	}
	return false
}

func isType(value any, want any) bool {
	switch want := want.(type) {
	case string:
		switch v := value.(type) {
		case nil:
			return want == "null"
		case string:
			return want == "string"
		case bool:
			return want == "boolean"
		case float64:
			return want == "number" || want == "integer" && v == math.Trunc(v)
		case map[string]any:
			return want == "object"
		case []any:
			return want == "array"
		}
	case []any:
		return slices.ContainsFunc(want, func(w any) bool { return isType(value, w) })
	}
	return true
}

// clip returns at most max bytes of s as valid UTF-8.
func clip(s string, max int) string {
	if len(s) > max {
		s = s[:max]
	}
	return strings.ToValidUTF8(s, "")
}
