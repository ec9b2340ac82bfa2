package bus

import (
	"errors"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
)

func TestRulesAreOnlyCreatedOrOnlyChanged(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Tenant: tenantOf(t, s, "acme"), Name: "acme/t"})
		sub := subscribe(t, s, topic, "s")
		put := func(mode entity.PutMode, name, filter string) (created bool, err error) {
			t.Helper()
			_, created, err = s.Bus.Rules().Put(t.Context(), sub, Rule{Name: name, Settings: forebay.RuleSettings{SQLFilter: filter}}, testRuleLimits, mode)
			return created, err
		}
		want := func(rule, filter string) {
			t.Helper()
			rules, err := s.Bus.Rules().ListRules(t.Context(), sub)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rules {
				if r.Name == rule && r.Settings.SQLFilter == filter {
					return
				}
			}
			t.Errorf("the rules are %+v, without %s: %s", rules, rule, filter)
		}
		if _, err := put(entity.PutExisting, "r", "a = 0"); !errors.Is(err, entity.ErrNoRule) {
			t.Errorf("a change of nothing: %v", err)
		}
		if created, err := put(entity.PutNew, "r", "a = 1"); err != nil || !created {
			t.Errorf("a new rule: %t, %v", created, err)
		}
		if _, err := put(entity.PutNew, "r", "a = 2"); !errors.Is(err, entity.ErrExists) {
			t.Errorf("a rule made twice: %v", err)
		}
		want("r", "a = 1")
		if created, err := put(entity.PutExisting, "r", "a = 3"); err != nil || created {
			t.Errorf("a changed rule: %t, %v", created, err)
		}
		want("r", "a = 3")
		parameters := forebay.RuleSettings{SQLFilter: "a = @a", SQLFilterParameters: forebay.Properties{"@a": "x"}, SQLAction: "SET b = @b", SQLActionParameters: forebay.Properties{"@b": int64(7)}}
		if _, _, err := s.Bus.Rules().Put(t.Context(), sub, Rule{Name: "p", Settings: parameters}, testRuleLimits, entity.PutAny); err != nil {
			t.Fatal(err)
		}
		want("p", "a = @a")
	})
}
