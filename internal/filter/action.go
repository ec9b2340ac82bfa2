package filter

import (
	"fmt"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

// Action is a SQL rule action: statements that change a copy of a message, in their order. It may
// be used concurrently.
type Action struct{ statements []statement }

// statement is SET target = value, or REMOVE target where value is nil.
type statement struct {
	target *property
	value  expr
}

// ParseAction reads a SQL action as ParseCondition reads a filter; the error is a *SyntaxError.
func ParseAction(source string, parameters forebay.Properties) (*Action, error) {
	if err := checkSource(source); err != nil {
		return nil, err
	}
	return parseAction(source, parameters)
}

func parseAction(source string, parameters forebay.Properties) (*Action, error) {
	p, err := newParser(source, parameters)
	if err != nil {
		return nil, err
	}
	a := &Action{}
	for {
		verb := p.peek()
		if !verb.is("SET") && !verb.is("REMOVE") {
			return nil, p.unexpected("SET or REMOVE")
		}
		p.pos++
		for {
			s, err := p.statement(verb)
			if err != nil {
				return nil, err
			}
			a.statements = append(a.statements, s)
			if !p.accept(",") || p.peek().is("SET") || p.peek().is("REMOVE") {
				break
			}
		}
		p.accept(";")
		if p.peek().kind == tokenEnd {
			return a, nil
		}
	}
}

func (p *parser) statement(verb token) (s statement, err error) {
	at := p.peek().at
	if s.target, err = p.property(); err != nil {
		return s, err
	}
	if system := s.target.system; system != nil && system.field == nil {
		return s, &SyntaxError{at, fmt.Sprintf("sys.%s cannot be changed; what can: %s", system.name, settableNames)}
	}
	if verb.is("REMOVE") {
		if s.target.system != nil && s.target.system.need {
			return s, &SyntaxError{at, fmt.Sprintf("sys.%s cannot be removed", s.target.system.name)}
		}
		return s, nil
	}
	if err := p.expect("="); err != nil {
		return s, err
	}
	s.value, err = p.value()
	return s, err
}

// Apply returns the message as the action leaves it; m itself stays as it is. The error is an
// *EvaluationError.
func (a *Action) Apply(m *Message) (*Message, error) {
	changed := m.clone()
	e := newEvaluation(changed)
	defer e.spent()
	for _, s := range a.statements {
		if err := s.apply(e); err != nil {
			return nil, err
		}
	}
	if err := changed.Properties.Check(); err != nil {
		return nil, &EvaluationError{fmt.Sprintf("the action leaves properties that are not allowed: %v", err), forebay.CodeOf(err) == forebay.CodePayloadTooLarge}
	}
	return changed, nil
}

func (s *statement) apply(e *evaluation) error {
	var v any
	if s.value != nil {
		var err error
		if v, err = s.value.eval(e); err != nil {
			return err
		}
	}
	if s.target.system != nil {
		return s.target.system.set(e.message, v)
	}
	e.message.set(s.target.name, s.target.folded, v)
	return nil
}

// set gives a user property a value; nil removes it. An integer that replaces a float becomes one.
func (m *Message) set(name, folded string, v any) {
	key, exists := m.find(name, folded)
	switch {
	case v == nil && exists:
		delete(m.Properties, key)
		m.names = nil
	case v == nil:
	case exists:
		if _, float := m.Properties[key].(float64); float {
			if i, ok := v.(int64); ok {
				v = float64(i)
			}
		}
		m.Properties[key] = v
	default:
		m.Properties[name] = v
		m.names = nil
	}
}

// set gives a settable system property a text; nil removes it.
func (p *systemProperty) set(m *Message, v any) error {
	var text string
	switch v := v.(type) {
	case nil:
	case string:
		text = v
	case forebay.UUID:
		text = v.String()
	default:
		return evaluationErrorf("sys.%s takes a string, not %s", p.name, typeName(v))
	}
	if text == "" && p.need {
		return evaluationErrorf("sys.%s cannot be empty", p.name)
	}
	switch {
	case p.isID && utf8.RuneCountInString(text) > forebay.MaxIDCharacters:
		return evaluationErrorf("sys.%s takes at most %d characters", p.name, forebay.MaxIDCharacters)
	case text != "" && !forebay.ValidText(text, forebay.MaxPropertyBytes):
		return evaluationErrorf("sys.%s takes at most %d bytes without control characters", p.name, forebay.MaxPropertyBytes)
	}
	*p.field(m) = text
	return nil
}

// String returns the action in its canonical form.
func (a *Action) String() string {
	var f formatter
	for i, s := range a.statements {
		if i > 0 {
			f.words("; ")
		}
		if s.value == nil {
			f.words("REMOVE ")
			f.property(s.target)
			continue
		}
		f.words("SET ")
		f.property(s.target)
		f.words(" = ")
		f.operand(s.value, levelSum)
	}
	return f.String()
}
