package modelsim

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/forebayhq/forebay/internal/model"
)

// fits checks an answer against its schema, formats included.
func fits(t *testing.T, schema, answer string) {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", parsed); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
	if err != nil {
		t.Errorf("%s: %v", answer, err)
	} else if err := s.Validate(v); err != nil {
		t.Errorf("%s: %v", answer, err)
	}
}

// TestStructuredFits: answers fit schemas as libraries make them of classes, with references,
// alternatives, formats and bounds.
func TestStructuredFits(t *testing.T) {
	p := newProvider(t, ProviderOptions{})
	for name, schema := range map[string]string{
		"a class in a class":  `{"type":"object","required":["home","all"],"properties":{"home":{"$ref":"#/$defs/City"},"all":{"type":"array","items":{"$ref":"#/$defs/City"},"minItems":2}},"$defs":{"City":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}}}`,
		"all of a reference":  `{"$ref":"#/definitions/a~1b","definitions":{"a/b":{"type":"object","required":["e"],"properties":{"e":{"allOf":[{"$ref":"#/definitions/E"}]}}},"E":{"enum":["u","v"]}}}`,
		"optional":            `{"type":"object","required":["a","b"],"properties":{"a":{"anyOf":[{"type":"null"},{"type":"integer"}]},"b":{"oneOf":[{"type":"object","required":["c"],"properties":{"c":{"type":"boolean"}}},{"type":"null"}]}}}`,
		"fixed values":        `{"type":"object","required":["kind","level","none"],"properties":{"kind":{"const":"x"},"level":{"enum":[3,4]},"none":{"const":null}}}`,
		"formats":             `{"type":"object","required":["a","b","c","d","e"],"properties":{"a":{"type":"string","format":"date-time"},"b":{"type":"string","format":"uuid"},"c":{"type":"string","format":"email"},"d":{"type":"string","format":"date"},"e":{"type":"string","format":"time"}}}`,
		"bounds":              `{"type":"object","required":["a","b","c","d"],"properties":{"a":{"type":"integer","minimum":3},"b":{"type":"number","exclusiveMinimum":0},"c":{"type":"integer","maximum":-2},"d":{"type":"number","exclusiveMaximum":0}}}`,
		"a tree":              `{"type":"object","required":["left","right"],"properties":{"left":{"anyOf":[{"$ref":"#"},{"type":"null"}]},"right":{"anyOf":[{"$ref":"#"},{"type":"null"}]}}}`,
		"a reference in vain": `{"type":"object","properties":{"a":{"$ref":"other.json"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			req := chat("", "hi")
			req.JSONSchema = json.RawMessage(schema)
			got, err := p.Chat(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(name, "in vain") {
				return // it ends
			}
			fits(t, schema, got.Text)
		})
	}
}

// References that name each other do not make an answer grow without bound.
func TestStructuredIsBounded(t *testing.T) {
	var properties []string
	for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		properties = append(properties, `"`+name+`":{"$ref":"#"}`)
	}
	p := newProvider(t, ProviderOptions{})
	got, err := p.Chat(t.Context(), model.ChatRequest{Messages: chat("", "hi").Messages,
		JSONSchema: json.RawMessage(`{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`)})
	if err != nil || len(got.Text) > 20*maxValues {
		t.Errorf("%d bytes, %v", len(got.Text), err)
	}
	large := `{"$defs":{"c":{"const":"` + strings.Repeat("x", 4096) + `"}},"type":"object","properties":{` + strings.ReplaceAll(strings.Join(properties, ","), `"#"`, `"#/$defs/c"`) + `}}`
	got, err = p.Chat(t.Context(), model.ChatRequest{Messages: chat("", "hi").Messages, MaxOutputTokens: 1 << 20, JSONSchema: json.RawMessage(large)})
	if err != nil || len(got.Text) > 20*maxValues {
		t.Errorf("%d bytes of constants, %v", len(got.Text), err)
	}
	for _, loop := range []string{`{"$ref":"#"}`, `{"anyOf":[{"$ref":"#"}]}`} {
		if _, err := p.Chat(t.Context(), model.ChatRequest{Messages: chat("", "hi").Messages, JSONSchema: json.RawMessage(loop)}); err != nil {
			t.Error(err)
		}
	}
}
