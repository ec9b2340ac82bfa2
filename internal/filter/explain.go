package filter

import (
	"errors"
	"strings"
)

// Explanation says what one rule does with a message, and why.
type Explanation struct {
	Selected bool
	Why      string   // why the filter does not select the message; "": it does
	Changed  *Message // as the action leaves the copy; nil: the rule has no action
	Err      error    // why the rule cannot be evaluated, or its copy not be made
	TooLarge bool     // with Err: the action would make the message too large
}

// Explain applies the rule to a message. The error is ErrSteps if the message's steps are used
// up, or ErrStopped.
func (r *Rule) Explain(m *Message) (e Explanation, err error) {
	if m.spend(ruleSteps); m.Steps != nil && *m.Steps < 0 {
		return e, ErrSteps
	}
	if m.Pause != nil {
		if err := m.Pause(); err != nil {
			return e, stopped(err)
		}
	}
	changed, ruleErr := r.apply(m)
	switch {
	case errors.Is(ruleErr, ErrStopped):
		return e, ruleErr
	case ruleErr != nil:
		e.Err, e.TooLarge = ruleErr, r.Action != nil && tooLarge(ruleErr)
	case changed == nil:
		e.Why = r.why(m)
	default:
		e.Selected = true
		if r.Action != nil {
			e.Changed = changed
		}
	}
	if m.Steps != nil && *m.Steps < 0 {
		return Explanation{}, ErrSteps
	}
	return e, nil
}

// why says why the filter does not select a message.
func (r *Rule) why(m *Message) string {
	switch f := r.Filter.(type) {
	case Constant:
		return "the filter selects no message"
	case *Correlation:
		return f.why(m)
	case *Condition:
		if truth, err := f.Evaluate(m); err == nil && truth == Unknown {
			return "the condition is unknown: the message lacks a property that it depends on"
		}
		return "the condition is false"
	}
	return "the filter does not select it"
}

// why names the properties that the message lacks, or has with other values.
func (c *Correlation) why(m *Message) string {
	var differ []string
	for _, f := range c.fields {
		if f.field(m) != f.want {
			differ = append(differ, f.name)
		}
	}
	for _, p := range c.properties {
		if !sameValue(m.user(p.name, p.folded), p.want) {
			differ = append(differ, "application_properties."+p.name)
		}
	}
	return "other or missing: " + strings.Join(differ, ", ")
}
