package rules

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/filter"
)

// Rule is a rule of a subscription as stored.
type Rule struct {
	Name      string
	Settings  forebay.RuleSettings
	CreatedAt time.Time
}

// ETag returns the entity tag of a rule of the subscription with that number.
func (r Rule) ETag(subscription int64) string {
	return forebay.ETagOf(subscription, r.Name, r.Settings, r.CreatedAt.UnixMilli())
}

// First returns the rules of a new subscription: those wanted or, if that is nil, the default
// rule.
func First(wanted []forebay.NewRule) ([]Rule, error) {
	if wanted == nil {
		return []Rule{{Name: forebay.DefaultRule}}, nil
	}
	if len(wanted) > forebay.MaxRules {
		return nil, forebay.Invalid("rules", "may be at most %d", forebay.MaxRules)
	}
	rules := make([]Rule, len(wanted))
	seen := map[string]bool{}
	for i, r := range wanted {
		err := Check(r.Name, r.RuleSettings)
		if err == nil && seen[r.Name] {
			err = forebay.Invalid("name", "is another rule's already")
		}
		if err != nil {
			return nil, InField(fmt.Sprintf("rules[%d]", i), err)
		}
		seen[r.Name] = true
		rules[i] = Rule{Name: r.Name, Settings: r.RuleSettings}
	}
	return rules, nil
}

// Check reports what is wrong with the declaration of a rule.
func Check(name string, settings forebay.RuleSettings) error {
	if name != forebay.DefaultRule {
		if err := CheckName("name", name); err != nil {
			return err
		}
	}
	_, err := filter.Compile(name, settings)
	return err
}

// CheckName reports what is wrong with the name of a rule or a subscription, which came in that
// field.
func CheckName(field, name string) error {
	if forebay.ValidName(name) && len(name) <= forebay.MaxSubscriptionBytes {
		return nil
	}
	return forebay.Invalid(field, "must be 1 to %d letters, digits, dots, underscores and hyphens, beginning with a letter or digit", forebay.MaxSubscriptionBytes)
}

// InField puts the field that an error is about below another field.
func InField(field string, err error) error {
	var e *forebay.Error
	if !errors.As(err, &e) {
		return err
	}
	in := *e
	in.Field = strings.TrimSuffix(field+"."+e.Field, ".")
	return &in
}

// Limits is how many rules there may be.
type Limits struct {
	PerSubscription int
	SQLPerTopic     int // rules with a SQL filter: they take the time when a message is sent
}

// ErrRules says that a subscription would have too many rules.
func (l Limits) ErrRules() error {
	return forebay.Errorf(forebay.CodeConflict, "a subscription may have at most %d rules", l.PerSubscription)
}

// ErrSQL says that a topic would have too many rules with SQL filters.
func (l Limits) ErrSQL() error {
	return forebay.Errorf(forebay.CodeConflict, "the subscriptions of a topic may have at most %d rules with SQL filters", l.SQLPerTopic)
}
