package workflow

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/forebayhq/forebay"
)

// template is a value with expressions in it: exactly one of literal, list, object and parts.
type template struct {
	at      Position
	literal any
	list    []*template
	keys    []string // of an object, in order
	values  []*template
	parts   []part // of a text; a single expression is its value, whatever that is
}

type part struct {
	text string
	*expression
}

// expressions returns all expressions in it.
func (t *template) expressions() (all []*expression) {
	if t == nil {
		return nil
	}
	for _, p := range t.parts {
		if p.expression != nil {
			all = append(all, p.expression)
		}
	}
	for _, inner := range append(t.list, t.values...) {
		all = append(all, inner.expressions()...)
	}
	return all
}

// templates reads templates of one place in a text.
type templates struct {
	*parser
	item   bool
	values int
}

func (r *templates) read(n *yaml.Node, depth int) *template {
	t := &template{at: positionOf(n)}
	if r.values++; r.values > maxValues || depth > maxDepth {
		if r.values == maxValues+1 || depth == maxDepth+1 {
			r.bad(t.at, "is too large: at most %d values, %d deep", maxValues, maxDepth)
		}
		return t
	}
	switch n.Kind {
	case yaml.SequenceNode:
		t.list = make([]*template, len(n.Content))
		for i, item := range n.Content {
			t.list[i] = r.read(item, depth+1)
		}
	case yaml.MappingNode:
		t.keys = []string{}
		for key, value := range r.entries(n) {
			t.keys, t.values = append(t.keys, key.Value), append(t.values, r.read(value, depth+1))
		}
	case yaml.ScalarNode:
		r.scalar(t, n)
	}
	return t
}

func (r *templates) scalar(t *template, n *yaml.Node) {
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		r.text(t, n)
	case "!!null":
	case "!!bool", "!!int", "!!float":
		if err := n.Decode(&t.literal); err != nil {
			r.bad(t.at, "is no value")
		} else if _, err := json.Marshal(t.literal); err != nil {
			r.bad(t.at, "%s is no number that JSON knows", n.Value)
		}
	default:
		r.bad(t.at, "%.40s is no kind of value that JSON knows", n.Tag)
	}
}

// text parses a text: ${…} is an expression, and $${ stands for ${.
func (r *templates) text(t *template, n *yaml.Node) {
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			t.parts = append(t.parts, part{text: literal.String()})
			literal.Reset()
		}
	}
	for rest := n.Value; rest != ""; {
		before, after, found := strings.Cut(rest, "${")
		if escaped, ok := strings.CutSuffix(before, "$"); found && ok {
			literal.WriteString(escaped + "${")
			rest = after
			continue
		}
		literal.WriteString(before)
		if !found {
			break
		}
		at := r.inside(n, len(n.Value)-len(after))
		end := closing(after)
		if end < 0 {
			r.bad(at, "${ without an end")
			return
		}
		flush()
		if e, ok := r.expression(after[:end], at, r.item); ok {
			t.parts = append(t.parts, part{expression: e})
		}
		rest = after[end+1:]
	}
	if flush(); len(t.parts) == 0 {
		t.literal = ""
	}
}

// closing is the index of the brace that ends an expression, -1 if there is none.
func closing(s string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0 && c == '\\' && quote != '`':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"', c == '\'', c == '`':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth == 0:
			return i
		case c == '}':
			depth--
		}
	}
	return -1
}

// render evaluates the template with the names of env. It subtracts the size of the value from
// bytes, which is what may still be used.
func (t *template) render(env map[string]any, bytes *int64) (any, error) {
	if t.keys != nil {
		object := make(map[string]any, len(t.keys))
		for i, key := range t.keys {
			v, err := t.values[i].render(env, bytes)
			if err != nil {
				return nil, err
			}
			object[key] = v
		}
		return object, nil
	}
	if t.list != nil {
		list := make([]any, len(t.list))
		for i, item := range t.list {
			v, err := item.render(env, bytes)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	}
	switch {
	case len(t.parts) == 0:
		return t.literal, nil
	case len(t.parts) == 1 && t.parts[0].expression != nil:
		return t.parts[0].value(env, bytes)
	}
	var text strings.Builder
	for _, p := range t.parts {
		s := p.text
		if p.expression != nil {
			v, err := p.evaluate(env)
			if err != nil {
				return nil, err
			}
			if v == nil {
				return nil, &evaluationError{p.at, `is null within a text; ${x ?? ""} says what stands there then`}
			}
			if s, err = textOf(v); err != nil {
				return nil, &evaluationError{p.at, "is no JSON"}
			}
		}
		if *bytes -= int64(len(s)); *bytes < 0 {
			return nil, &evaluationError{p.at, "becomes too large"}
		}
		text.WriteString(s)
	}
	return text.String(), nil
}

// value is the expression's value as JSON.
func (e *expression) value(env map[string]any, bytes *int64) (any, error) {
	v, err := e.evaluate(env)
	if err != nil {
		return nil, err
	}
	raw, err := forebay.EncodeJSON(v)
	if err != nil {
		return nil, &evaluationError{e.at, "is no JSON"}
	}
	if *bytes -= int64(len(raw)); *bytes < 0 {
		return nil, &evaluationError{e.at, "becomes too large"}
	}
	return raw, nil
}

// json returns the template's value as JSON of at most so many bytes.
func (t *template) json(env map[string]any, limit int64) (json.RawMessage, error) {
	left := limit
	v, err := t.render(env, &left)
	if err != nil {
		return nil, err
	}
	if raw, ok := v.(json.RawMessage); ok {
		return raw, nil
	}
	raw, err := forebay.EncodeJSON(v)
	if err == nil && int64(len(raw)) > limit {
		err = &evaluationError{t.at, fmt.Sprintf("becomes too large: %d bytes of %d", len(raw), limit)}
	}
	return raw, err
}
