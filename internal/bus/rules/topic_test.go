package rules

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/filter"
)

// withRules returns a subscription with a SQL filter for each name.
func withRules(t *testing.T, no int64, filters map[string]string) Subscription[string] {
	t.Helper()
	s := Subscription[string]{No: no}
	for name, sql := range filters {
		settings, err := json.Marshal(forebay.RuleSettings{SQLFilter: sql})
		if err != nil {
			t.Fatal(err)
		}
		s.AddRule(name, settings)
	}
	return s
}

func compiled(t *testing.T, former *Topic[string], subscriptions ...Subscription[string]) *Topic[string] {
	t.Helper()
	topic := &Topic[string]{No: 1, Subscriptions: subscriptions}
	if err := topic.Compile(former, nil); err != nil {
		t.Fatal(err)
	}
	return topic
}

// A topic that changes compiles the rules that are new and takes over the others.
func TestRulesAreCompiledOnce(t *testing.T) {
	first := map[string]string{"a": "n = 1", "b": "n = 2", "c": "n = 3"}
	before := compiled(t, nil, withRules(t, 1, first), withRules(t, 2, map[string]string{"r0": "p = 'x'", "r1": "p = 'old'"}))
	after := compiled(t, before, withRules(t, 3, first), withRules(t, 2, map[string]string{"r0": "p = 'x'", "r1": "p = 'new'"}), withRules(t, 1, first))
	if was, is := before.Subscriptions[0].compiled, after.Subscriptions[2].compiled; len(is) != 3 || !slices.Equal(was, is) {
		t.Errorf("rules that have not changed were compiled again: %v, %v", was, is)
	}
	if was, is := before.Subscriptions[0].compiled, after.Subscriptions[0].compiled; len(is) != 3 || slices.Equal(was, is) {
		t.Errorf("a new subscription took over another's rules: %v, %v", was, is)
	}
	was, is := before.Subscriptions[1].compiled, after.Subscriptions[1].compiled
	if len(is) != 2 || was[0] != is[0] || was[1] == is[1] {
		t.Fatalf("of rules r0 and r1, r1 has changed: %v, %v", was, is)
	}
	m := &filter.Message{Properties: forebay.Properties{"p": "new"}}
	if selects, err := is[1].Filter.Matches(m); err != nil || !selects {
		t.Errorf("the rule that has changed selects as before: %t, %v", selects, err)
	}
}

// A full cache starts anew, an older version replaces no later one, and what was forgotten can
// still be taken over.
func TestCacheKeepsTheLatestVersion(t *testing.T) {
	var c Cache[string]
	c.Put(&Topic[string]{No: 1, Version: 2})
	c.Put(&Topic[string]{No: 1, Version: 1})
	if got := c.Get(1); got == nil || got.Version != 2 {
		t.Errorf("the cache has %v, want version 2", got)
	}
	c.Forget(1)
	if c.Get(1) != nil || c.Former(1) == nil {
		t.Errorf("after Forget the cache has %v and formerly %v", c.Get(1), c.Former(1))
	}
	for no := range int64(maxCached) {
		c.Put(&Topic[string]{No: no + 2, Version: 1})
	}
	if n := len(c.topics) + len(c.former); n > maxCached || c.Former(1) != nil {
		t.Errorf("the cache has %d topics, at most %d", n, maxCached)
	}
}

// What a cache keeps is bounded by its size too: a rule can take much memory, and topics that were
// deleted stay until there is no room.
func TestCacheIsBoundedByTheSizeOfRules(t *testing.T) {
	var cache Cache[string]
	of := func(no, version int64, rules int) *Topic[string] {
		topic := &Topic[string]{No: no, Version: version, Subscriptions: []Subscription[string]{{No: 1}}}
		for range rules {
			topic.Subscriptions[0].AddRule("r", make([]byte, 64<<10))
		}
		return topic
	}
	kept := func() (n int) {
		for no := range int64(1000) {
			if topic := cache.Former(no); topic != nil {
				n += topic.bytes()
			}
		}
		return n
	}
	for no := range int64(1000) {
		cache.Put(of(no, 1, 1))
		cache.Put(of(no, 2, 1)) // which replaces the other
		if no%2 == 0 {
			cache.Forget(no)
		}
		if cache.Former(no) == nil {
			t.Fatalf("topic %d was not kept", no)
		}
	}
	if n := kept(); n > maxCachedBytes || n != cache.bytes || n < maxCachedBytes/8 {
		t.Errorf("%d bytes are kept, counted as %d", n, cache.bytes)
	}
	cache.Put(of(1, 3, 200))
	if cache.Get(1) == nil || kept() <= maxCachedBytes {
		t.Error("a large topic was not kept")
	}
	cache.Put(of(2, 3, 1))
	if n := kept(); cache.Get(2) == nil || n != cache.Get(2).bytes() || n != cache.bytes {
		t.Errorf("beside the latest topic %d bytes are kept", n)
	}
}
