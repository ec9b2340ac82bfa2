package servicebus

import (
	"context"
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/messaging"
)

// Descriptors of rules and their parts.
const (
	descriptorRule              uint64 = 0x13700000004
	descriptorNoAction          uint64 = 0x13700000005
	descriptorSQLAction         uint64 = 0x13700000006
	descriptorSQLFilter         uint64 = 0x1370000006
	descriptorTrueFilter        uint64 = 0x1370000007
	descriptorFalseFilter       uint64 = 0x1370000008
	descriptorCorrelationFilter uint64 = 0x1370000009
)

// compatibilityLevel is that of the SQL dialect.
const compatibilityLevel int32 = 20

// subscription returns the topic and the subscription whose rules a request is about.
func (m *managed) subscription() (topic, name string, err error) {
	topic, name, _ = forebay.CutEntityPath(m.entity.Path)
	if m.entity.Kind != messaging.KindSubscription || m.entity.DeadLetter {
		return "", "", fail(conditionNotAllowed, 400, "Only a subscription has rules.")
	}
	return topic, name, nil
}

func listRules(ctx context.Context, m *managed) (wire.Map, error) {
	topic, name, err := m.subscription()
	if err != nil {
		return nil, err
	}
	skip, err := m.integer("skip", 0, 1<<31-1)
	if err != nil {
		return nil, err
	}
	top, err := m.integer("top", forebay.MaxRules, 1<<31-1)
	if err != nil {
		return nil, err
	}
	rules, err := m.messages.Rules.List(ctx, m.tenant, topic, name)
	if err != nil {
		return nil, err
	}
	rules = rules[min(int(skip), len(rules)):]
	rules = rules[:min(int(top), len(rules))]
	if len(rules) == 0 {
		return nil, nil
	}
	told := make(wire.List, len(rules))
	for i := range rules {
		told[i] = wire.Map{{Key: "rule-description", Value: describedRule(&rules[i])}}
	}
	return wire.Map{{Key: "rules", Value: told}}, nil
}

// describedRule is a rule as an answer holds it. Filter and action are never null.
func describedRule(r *forebay.Rule) wire.Described {
	return wire.Described{Descriptor: descriptorRule, Value: wire.List{describedFilter(&r.RuleSettings), describedAction(r.SQLAction), r.Name, r.CreatedAt}}
}

func describedAction(sql string) wire.Described {
	if sql == "" {
		return wire.Described{Descriptor: descriptorNoAction, Value: wire.List{}}
	}
	return wire.Described{Descriptor: descriptorSQLAction, Value: wire.List{sql, compatibilityLevel}}
}

func describedFilter(r *forebay.RuleSettings) wire.Described {
	switch {
	case r.SQLFilter != "":
		return wire.Described{Descriptor: descriptorSQLFilter, Value: wire.List{r.SQLFilter, compatibilityLevel}}
	case r.CorrelationFilter != nil:
		f := r.CorrelationFilter
		properties := wire.Map{}
		for name, value := range f.Properties {
			properties = append(properties, wire.Pair{Key: name, Value: wireValue(value)})
		}
		return wire.Described{Descriptor: descriptorCorrelationFilter, Value: wire.List{
			orNull(f.CorrelationID), orNull(f.MessageID), orNull(f.To), orNull(f.ReplyTo), orNull(f.Subject),
			orNull(f.SessionID), orNull(f.ReplyToSessionID), orNull(f.ContentType), properties,
		}}
	case r.BooleanFilter != nil && !*r.BooleanFilter:
		return wire.Described{Descriptor: descriptorFalseFilter, Value: wire.List{}}
	}
	return wire.Described{Descriptor: descriptorTrueFilter, Value: wire.List{}}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// wireValue is the value of an application property as AMQP has it. An integer is an int where it
// can be one, as over HTTP.
func wireValue(v any) any {
	switch v := v.(type) {
	case forebay.UUID:
		return wire.UUID(v)
	case int64:
		if v == int64(int32(v)) {
			return int32(v)
		}
	}
	return v
}

func addRule(ctx context.Context, m *managed) (wire.Map, error) {
	topic, subscription, err := m.subscription()
	if err != nil {
		return nil, err
	}
	name := m.text("rule-name")
	settings, err := m.rule()
	if err != nil {
		return nil, err
	}
	_, err = m.messages.Management.PutRule(ctx, m.tenant, topic, subscription, forebay.NewRule{Name: name, RuleSettings: settings}, entity.PutNew)
	var e *forebay.Error
	if !errors.As(err, &e) || e.Code != forebay.CodeConflict {
		return wire.Map{}, err
	}
	if e == entity.ErrExists {
		return nil, errRuleExists
	}
	return nil, fail(conditionFull, 403, "%s", sentence(e.Error())) // as many rules as there may be
}

// rule reads the settings of a new rule.
func (m *managed) rule() (r forebay.RuleSettings, err error) {
	description, ok := m.field("rule-description").(wire.Map)
	if !ok {
		return r, badArgument("The field rule-description must be a map.")
	}
	if v, _ := description.Get("sql-filter"); v != nil {
		filter, _ := v.(wire.Map)
		if r.SQLFilter = textIn(filter, "expression"); r.SQLFilter == "" {
			return r, badArgument("A sql-filter needs an expression.")
		}
	}
	if v, _ := description.Get("correlation-filter"); v != nil {
		filter, _ := v.(wire.Map)
		if r.CorrelationFilter, err = correlationFilter(filter); err != nil {
			return r, err
		}
	}
	if v, _ := description.Get("sql-rule-action"); v != nil {
		action, _ := v.(wire.Map)
		r.SQLAction = textIn(action, "expression")
	}
	return r, nil
}

func correlationFilter(m wire.Map) (*forebay.CorrelationFilter, error) {
	v, _ := m.Get("properties")
	given, _ := v.(wire.Map)
	properties, err := propertiesOf(given)
	return &forebay.CorrelationFilter{
		CorrelationID: textIn(m, "correlation-id"), MessageID: textIn(m, "message-id"), To: textIn(m, "to"), ReplyTo: textIn(m, "reply-to"), Subject: textIn(m, "label"),
		SessionID: textIn(m, "session-id"), ReplyToSessionID: textIn(m, "reply-to-session-id"), ContentType: textIn(m, "content-type"), Properties: properties,
	}, err
}

// textIn returns a text of a map, or "".
func textIn(m wire.Map, name string) string {
	v, _ := m.Get(name)
	s, _ := textOf(v)
	return s
}

func removeRule(ctx context.Context, m *managed) (wire.Map, error) {
	topic, subscription, err := m.subscription()
	if err != nil {
		return nil, err
	}
	name := m.text("rule-name")
	err = m.messages.Rules.Delete(ctx, m.tenant, topic, subscription, name)
	if forebay.CodeOf(err) == forebay.CodeNotFound {
		return nil, fail(conditionNotFound, 404, "The messaging entity 'sb://%s/%s/rules/%s' could not be found.", m.host(), m.entity.Path, name)
	}
	return wire.Map{}, err
}
