package filter

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/panics"
)

// Filter says which messages a rule selects. The error is an *EvaluationError.
type Filter interface {
	Matches(*Message) (bool, error)
}

// Constant selects all messages, or none.
type Constant bool

// Matches returns the constant.
func (c Constant) Matches(*Message) (bool, error) { return bool(c), nil }

// Correlation selects messages whose properties equal the given ones. Strings compare
// case-sensitively, names of properties do not.
type Correlation struct {
	fields     []fieldValue
	properties []propertyValue
}

type fieldValue struct {
	name  string
	field func(*Message) string
	want  string
}

type propertyValue struct {
	name, folded string
	want         any
}

// NewCorrelation prepares a correlation filter. It refuses one without conditions.
func NewCorrelation(f forebay.CorrelationFilter) (*Correlation, error) {
	c := &Correlation{}
	for _, part := range []struct {
		name, want string
		field      func(*Message) string
	}{
		{"correlation_id", f.CorrelationID, func(m *Message) string { return m.CorrelationID }},
		{"message_id", f.MessageID, func(m *Message) string { return m.MessageID }},
		{"session_id", f.SessionID, func(m *Message) string { return m.SessionID }},
		{"subject", f.Subject, func(m *Message) string { return m.Subject }},
		{"to", f.To, func(m *Message) string { return m.To }},
		{"reply_to", f.ReplyTo, func(m *Message) string { return m.ReplyTo }},
		{"reply_to_session_id", f.ReplyToSessionID, func(m *Message) string { return m.ReplyToSessionID }},
		{"content_type", f.ContentType, func(m *Message) string { return m.ContentType }},
	} {
		if part.want == "" {
			continue
		}
		if !forebay.ValidText(part.want, forebay.MaxPropertyBytes) {
			return nil, forebay.Invalid(part.name, "may have at most %d bytes without control characters", forebay.MaxPropertyBytes)
		}
		c.fields = append(c.fields, fieldValue{part.name, part.field, part.want})
	}
	if err := f.Properties.Check(); err != nil {
		return nil, err
	}
	for name, want := range f.Properties {
		c.properties = append(c.properties, propertyValue{name, strings.ToLower(name), want})
	}
	slices.SortFunc(c.properties, func(a, b propertyValue) int { return strings.Compare(a.name, b.name) })
	if len(c.fields)+len(c.properties) == 0 {
		return nil, forebay.Invalid("", "must name at least one property")
	}
	return c, nil
}

// Matches reports whether every condition holds.
func (c *Correlation) Matches(m *Message) (bool, error) {
	for _, f := range c.fields {
		if f.field(m) != f.want {
			return false, nil
		}
	}
	for _, p := range c.properties {
		if !sameValue(m.user(p.name, p.folded), p.want) {
			return false, nil
		}
	}
	return true, nil
}

// Rule is a compiled rule.
type Rule struct {
	Name   string
	Filter Filter
	Action *Action // nil: none
}

// RuleNameProperty is the application property that names the rule whose action made a copy.
const RuleNameProperty = "RuleName"

// Compile prepares a rule. Without a filter it selects all messages.
func Compile(name string, settings forebay.RuleSettings) (*Rule, error) {
	r := &Rule{Name: name, Filter: Constant(true)}
	if err := checkParameters("sql_filter", settings.SQLFilter, settings.SQLFilterParameters); err != nil {
		return nil, err
	}
	if err := checkParameters("sql_action", settings.SQLAction, settings.SQLActionParameters); err != nil {
		return nil, err
	}
	filters := 0
	if settings.SQLFilter != "" {
		filters++
		condition, err := ParseCondition(settings.SQLFilter, settings.SQLFilterParameters)
		if err != nil {
			return nil, forebay.Invalid("sql_filter", "%s", err)
		}
		r.Filter = condition
	}
	if settings.CorrelationFilter != nil {
		filters++
		correlation, err := NewCorrelation(*settings.CorrelationFilter)
		if err != nil {
			return nil, within("correlation_filter", err)
		}
		r.Filter = correlation
	}
	if settings.BooleanFilter != nil {
		filters++
		r.Filter = Constant(*settings.BooleanFilter)
	}
	if filters > 1 {
		return nil, forebay.Invalid("", "a rule has one of sql_filter, correlation_filter and boolean_filter")
	}
	if settings.SQLAction != "" {
		action, err := ParseAction(settings.SQLAction, settings.SQLActionParameters)
		if err != nil {
			return nil, forebay.Invalid("sql_action", "%s", err)
		}
		r.Action = action
	}
	return r, nil
}

// checkParameters refuses parameters without a text that could hold them, and values that no
// property can have.
func checkParameters(field, source string, parameters forebay.Properties) error {
	if len(parameters) == 0 {
		return nil
	}
	if source == "" {
		return forebay.Invalid(field+"_parameters", "needs %s", field)
	}
	for name := range parameters {
		if len(name) < 2 || name[0] != '@' {
			return forebay.Invalid(field+"_parameters", "has names that begin with @")
		}
	}
	return within(field+"_parameters", parameters.Check())
}

// within puts the error's field below another one.
func within(field string, err error) error {
	var known *forebay.Error
	if !errors.As(err, &known) {
		return err
	}
	e := *known
	e.Field = strings.TrimSuffix(field+"."+e.Field, ".")
	return &e
}

// Copy is one message that rules make of another.
type Copy struct {
	Rule     string   // whose action made it; "": selected as it was sent
	Message  *Message // changed by the action; the message itself otherwise
	TooLarge string   // why the action could not change it: its properties would outgrow their limit
}

// ErrSteps says that judging messages has taken more steps than it may.
var ErrSteps = errors.New("judging the messages takes too long")

// ErrStopped says that nobody needs the result any more. It wraps the error of Pause.
var ErrStopped = errors.New("judging the messages was stopped")

func stopped(why error) error { return fmt.Errorf("%w: %w", ErrStopped, why) }

// Select applies the rules of one subscription to a message. All selecting rules without an
// action make one copy together. Each selecting rule with an action makes a copy of its own, even
// if the action makes it too large.
//
// A rule that cannot be evaluated selects nothing. The error is that of the first such rule, and
// the copies are valid beside it. With ErrSteps, when the message's steps are used up, and with
// ErrStopped there are no copies.
func Select(rules []*Rule, m *Message) (copies []Copy, err error) {
	plain := false
	for _, r := range rules {
		if m.spend(ruleSteps); m.Steps != nil && *m.Steps < 0 {
			return nil, ErrSteps
		}
		if m.Pause != nil {
			if err := m.Pause(); err != nil {
				return nil, stopped(err)
			}
		}
		if r.Action == nil && plain {
			continue
		}
		changed, ruleErr := r.apply(m)
		var outgrown *EvaluationError
		switch {
		case errors.Is(ruleErr, ErrStopped):
			return nil, ruleErr
		case r.Action != nil && errors.As(ruleErr, &outgrown) && outgrown.TooLarge:
			copies = append(copies, Copy{r.Name, m, outgrown.Message})
		case ruleErr != nil:
			if err == nil {
				err = ruleErr
			}
		case changed == nil:
		case r.Action == nil:
			plain = true
			copies = append(copies, Copy{Message: m})
		default:
			copies = append(copies, Copy{Rule: r.Name, Message: changed})
		}
	}
	return copies, err
}

// apply returns the message as the rule's action leaves it, or nil if the rule does not select
// it.
func (r *Rule) apply(m *Message) (changed *Message, err error) {
	defer func() {
		if v := recover(); v != nil { // it would end the writer of the store, and the process
			panics.Log(slog.Default(), "a rule of a subscription", v)
			changed, err = nil, r.failed("evaluation", panics.ErrPanicked)
		}
	}()
	matches, err := r.Filter.Matches(m)
	if errors.Is(err, ErrStopped) {
		return nil, err
	}
	if err != nil {
		return nil, r.failed("filter", err)
	}
	if !matches || r.Action == nil {
		if matches {
			return m, nil
		}
		return nil, nil
	}
	changed, err = r.Action.Apply(m)
	if err == nil {
		changed.set(RuleNameProperty, strings.ToLower(RuleNameProperty), r.Name)
		err = changed.Properties.Check()
	}
	if errors.Is(err, ErrStopped) {
		return nil, err
	}
	if err != nil {
		failed := r.failed("action", err)
		failed.TooLarge = tooLarge(err)
		return nil, failed
	}
	return changed, nil
}

func (r *Rule) failed(part string, err error) *EvaluationError {
	return &EvaluationError{Message: fmt.Sprintf("the %s of rule %s: %s", part, r.Name, err)}
}

func tooLarge(err error) bool {
	var e *EvaluationError
	return forebay.CodeOf(err) == forebay.CodePayloadTooLarge || errors.As(err, &e) && e.TooLarge
}
