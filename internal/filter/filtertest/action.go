package filtertest

import (
	"maps"
	"strings"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
)

// Action is what a rule does to the copies that it makes, one statement after the other.
type Action []assignment

// assignment is SET, or REMOVE where there is no value.
type assignment struct {
	target *Expr // a property
	value  *Expr
}

// String is the action as SQL.
func (a Action) String() string {
	var statements []string
	for _, s := range a {
		if s.value == nil {
			statements = append(statements, "REMOVE "+s.target.spelled)
		} else {
			statements = append(statements, "SET "+s.target.spelled+" = "+s.value.within(levelSum))
		}
	}
	return strings.Join(statements, "; ")
}

// Apply returns the message as the action leaves it; the error is ErrEvaluation.
func (a Action) Apply(m *Message) (*Message, error) {
	changed := &Message{System: maps.Clone(m.System), User: maps.Clone(m.User)}
	for _, s := range a {
		var v any
		if s.value != nil {
			var err error
			if v, err = s.value.Value(changed); err != nil {
				return nil, err
			}
		}
		if s.target.op == "user" {
			changed.set(s.target.name, v)
			continue
		}
		switch v := v.(type) {
		case nil:
			changed.System[s.target.name] = ""
		case string:
			changed.System[s.target.name] = v
		case forebay.UUID:
			changed.System[s.target.name] = v.String()
		default:
			return nil, ErrEvaluation
		}
	}
	return changed, nil
}

// set keeps a float one where an integer replaces it; what is unknown removes the property.
func (m *Message) set(name string, v any) {
	_, float := m.User[name].(float64)
	switch i, whole := v.(int64); {
	case v == nil:
		delete(m.User, name)
	case float && whole:
		m.User[name] = float64(i)
	default:
		m.User[name] = v
	}
}

// DrawAction draws an action of up to three statements.
func DrawAction(t *rapid.T) Action {
	var a Action
	for range rapid.IntRange(1, 3).Draw(t, "statements") {
		s := assignment{target: drawProperty(t, rapid.SampledFrom([]string{"number", "text", "flag", "other"}).Draw(t, "target"))}
		if s.target.op == "system" { // a message keeps its id
			s.target = &Expr{op: "system", name: "Label", spelled: "sys.Label"}
		}
		if !oneIn(t, 4) {
			s.value = drawValue(t, 1, "")
		}
		a = append(a, s)
	}
	return a
}
