package messaging

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/bus/rules"
)

// Put adds a rule to a subscription, or replaces the one of that name. It applies to messages
// sent from then on.
func (s Rules) Put(ctx context.Context, tenant, topic, subscription, name string, settings forebay.RuleSettings) (rule forebay.Rule, created bool, err error) {
	return s.put(ctx, tenant, topic, subscription, forebay.NewRule{Name: name, RuleSettings: settings}, entity.PutAny)
}

func (s Rules) put(ctx context.Context, tenant, topic, subscription string, r forebay.NewRule, mode entity.PutMode) (rule forebay.Rule, created bool, err error) {
	q, err := s.subscription(ctx, tenant, topic, subscription)
	if err != nil {
		return rule, false, err
	}
	name := r.Name
	if err := rules.Check(name, r.RuleSettings); err != nil {
		return rule, false, err
	}
	done, err := s.takeRule(ctx, tenant, q, name)
	if err != nil {
		return rule, false, err
	}
	defer done()
	stored, created, err := s.store.Rules().Put(ctx, q, bus.Rule{Name: name, Settings: r.RuleSettings},
		bus.RuleLimits{PerSubscription: forebay.MaxRules, SQLPerTopic: forebay.MaxSQLFilters}, mode)
	return ruleOf(q, stored), created, err
}

func ruleOf(sub bus.MessageQueue, r bus.Rule) forebay.Rule {
	return forebay.Rule{Name: r.Name, RuleSettings: r.Settings, CreatedAt: r.CreatedAt, Tagged: forebay.Tagged{ETag: r.ETag(sub.No)}}
}

// List returns a subscription's rules by name.
func (s Rules) List(ctx context.Context, tenant, topic, subscription string) ([]forebay.Rule, error) {
	q, err := s.subscription(ctx, tenant, topic, subscription)
	if err != nil {
		return nil, err
	}
	stored, err := s.store.Rules().ListRules(ctx, q)
	if err != nil {
		return nil, err
	}
	rules := make([]forebay.Rule, len(stored))
	for i, r := range stored {
		rules[i] = ruleOf(q, r)
	}
	return rules, nil
}

// Get returns one rule.
func (s Rules) Get(ctx context.Context, tenant, topic, subscription, name string) (forebay.Rule, error) {
	rules, err := s.List(ctx, tenant, topic, subscription)
	if err != nil {
		return forebay.Rule{}, err
	}
	for _, r := range rules {
		if r.Name == name {
			return r, nil
		}
	}
	return forebay.Rule{}, entity.ErrNoRule
}

// Test says which rules of a topic select a message. Nothing is sent.
func (s Rules) Test(ctx context.Context, tenant, topic string, req forebay.RuleTestRequest) (forebay.RuleTest, error) {
	q, err := s.topicNow(ctx, tenant, topic)
	if err != nil {
		return forebay.RuleTest{}, err
	}
	if req.Subscription != "" {
		if _, err := s.subscription(ctx, tenant, topic, req.Subscription); err != nil {
			return forebay.RuleTest{}, err
		}
	}
	content, err := message.New(&req.Message, s.maxBytes)
	if err != nil {
		return forebay.RuleTest{}, rules.InField("message", err)
	}
	return bus.Explain(ctx, s.store, q, &content, req.Rule, req.Subscription)
}

// Delete removes a rule. A subscription without rules selects nothing.
func (s Rules) Delete(ctx context.Context, tenant, topic, subscription, name string) error {
	q, err := s.subscription(ctx, tenant, topic, subscription)
	if err != nil {
		return err
	}
	deleted, err := s.store.Rules().Delete(ctx, q, name)
	if err == nil && !deleted {
		return entity.ErrNoRule
	}
	return err
}
