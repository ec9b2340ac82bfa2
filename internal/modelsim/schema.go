package modelsim

import (
	"math"
	"strings"
)

// resolve follows references and takes the first alternative that is not null. nullable reports
// whether null is another.
func (f *filler) resolve(schema map[string]any) (resolved map[string]any, nullable bool) {
	for range maxSchemaDepth {
		next := f.referred(schema)
		for _, key := range []string{"anyOf", "oneOf", "allOf"} {
			alternatives, _ := schema[key].([]any)
			for _, a := range alternatives {
				alternative, _ := a.(map[string]any)
				if kind, _ := schemaType(alternative); kind == "null" {
					nullable = true
				} else if next == nil {
					next = alternative
				}
			}
		}
		if next == nil {
			break
		}
		schema = next
	}
	return schema, nullable
}

// referred is what a $ref such as "#/$defs/City" names, or nil.
func (f *filler) referred(schema map[string]any) map[string]any {
	ref, _ := schema["$ref"].(string)
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	at := f.schema
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if name != "" {
			at, _ = at[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)].(map[string]any)
		}
	}
	return at
}

// choose returns the value of a schema that lists those that are allowed.
func (f *filler) choose(schema map[string]any) (v any, fixed bool) {
	if v, fixed = schema["const"]; fixed {
		return v, true
	}
	if options := stringList(schema["enum"]); len(options) > 0 {
		return classify(f.document, options)[0].label, true
	}
	if options, _ := schema["enum"].([]any); len(options) > 0 {
		return options[0], true
	}
	return nil, false
}

// inRange returns the number that is nearest to n within the schema's bounds. Of those that are
// excluded it takes the next whole one.
func inRange(schema map[string]any, n float64, whole bool) float64 {
	if whole {
		n = math.Trunc(n)
	}
	for _, bound := range []struct {
		name     string
		nearest  func(x, y float64) float64
		excluded float64
	}{{"maximum", math.Min, 0}, {"exclusiveMaximum", math.Min, -1}, {"minimum", math.Max, 0}, {"exclusiveMinimum", math.Max, 1}} {
		if b, ok := schema[bound.name].(float64); ok && (bound.excluded == 0 || bound.nearest(n, b) == b) {
			n = bound.nearest(n, b+bound.excluded)
		}
	}
	return n
}

// examples are values of the formats that structured output knows.
var examples = map[string]string{
	"date-time": "2026-01-02T03:04:05Z", "date": "2026-01-02", "time": "03:04:05Z", "duration": "PT1H", "email": "clerk@example.com",
	"hostname": "example.com", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uuid": "6f1d3b52-8c1f-4d6e-9a27-0b5c4e3d2a10",
	"uri": "https://example.com/",
}
