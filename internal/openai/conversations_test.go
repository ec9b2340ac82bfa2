package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func sayings(size int) []json.RawMessage {
	return []json.RawMessage{json.RawMessage(strings.Repeat("x", size-itemOverhead))}
}

// Conversations take no more than their bounds. Those that are idle for longest are forgotten, of
// the tenant that needs the room first.
func TestConversationsAreBounded(t *testing.T) {
	c := newConversations(16000) // 8,000 in all, 4,000 for a tenant
	kept := map[string]*conversation{}
	keep := func(tenant, name string, size int) {
		t.Helper()
		if kept[name] = c.keep(tenant, name, sayings(size)); kept[name] == nil {
			t.Fatalf("%s is not kept", name)
		}
	}
	has := func(want string) {
		t.Helper()
		var left []string
		for _, name := range []string{"a1", "a2", "a3", "b1", "b2", "c1"} {
			if v := kept[name]; v != nil && v.place != nil {
				left = append(left, name)
			}
		}
		if got := strings.Join(left, " "); got != want {
			t.Errorf("%s are kept instead of %s", got, want)
		}
	}
	keep("b", "b1", 1000)
	keep("a", "a1", 2000)
	keep("a", "a2", 2000)
	has("a1 a2 b1")
	keep("a", "a3", 2000) // the tenant has no more
	has("a2 a3 b1")
	keep("b", "b2", 3000)
	has("a2 a3 b1 b2")
	keep("c", "c1", 1000) // the process has no more
	has("a2 a3 b2 c1")
	if c.keep("d", "d1", sayings(4001)) != nil {
		t.Error("one is kept that is too large for its tenant")
	}
	if items, ok := c.take(kept["a2"]); !ok || len(items) != 1 {
		t.Error("one that was kept cannot be taken")
	}
	for name, v := range kept {
		if _, ok := c.take(v); ok == (name == "a1" || name == "a2" || name == "b1") {
			t.Errorf("%s: %v", name, ok)
		}
	}
	if held := c.held(); held != 0 || len(c.tenants) != 0 || c.idle.Len() != 0 {
		t.Errorf("%d bytes, %v and %d are left", held, c.tenants, c.idle.Len())
	}
	many := make([]json.RawMessage, 4000/itemOverhead)
	for i := range many {
		many[i] = json.RawMessage(fmt.Sprint(i))
	}
	if c.keep("a", "many", many) != nil {
		t.Error("small items count for nothing but their bytes")
	}
}
