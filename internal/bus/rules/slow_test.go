package rules

import (
	"context"
	"fmt"
	"testing"
)

// A tenant with many messages to judge, again and again, has one judged for each message of
// another tenant.
func TestTenantsTakeTurnsInJudging(t *testing.T) {
	slow := NewSlow()
	for range 2 {
		for seq := range int64(2 * maxSlow) {
			slow.Put(SlowMessage{1, 1, seq})
		}
	}
	for seq := range int64(3) {
		slow.Put(SlowMessage{2, 2, seq})
	}
	order, judged := "", 0
	for {
		m, ok := slow.take()
		if !ok {
			break
		}
		if judged++; judged <= 8 {
			order += fmt.Sprint(m.Tenant)
		}
		if slow.Put(m); len(slow.waiting[m.Tenant]) > 0 && slow.waiting[m.Tenant][len(slow.waiting[m.Tenant])-1] == m {
			t.Fatalf("%v is to be judged twice", m)
		}
		slow.judged(m)
	}
	if order != "12121211" || judged != maxSlow+3 {
		t.Errorf("%d were judged, first %s", judged, order)
	}
	slow.Put(SlowMessage{1, 1, 1})
	if m, ok := slow.next(t.Context()); !ok || m.Seq != 1 {
		t.Error("a message that was judged cannot be judged again")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, ok := slow.next(ended); ok {
		t.Error("something is judged at the end")
	}
}

// Several messages are judged at once, but only one of each tenant.
func TestATenantsMessagesAreJudgedOneByOne(t *testing.T) {
	slow := NewSlow()
	for seq := range int64(3) {
		slow.Put(SlowMessage{1, 1, seq})
	}
	first, ok := slow.take()
	if again, more := slow.take(); !ok || more {
		t.Errorf("%v is judged beside %v", again, first)
	}
	slow.Put(SlowMessage{2, 2, 1})
	if other, ok := slow.take(); !ok || other.Tenant != 2 {
		t.Errorf("the other tenant's message waits for %v", first)
	}
	slow.Put(SlowMessage{1, 1, 3})
	if again, more := slow.take(); more {
		t.Errorf("%v is judged beside %v", again, first)
	}
	slow.judged(first)
	if second, ok := slow.take(); !ok || second.Seq != 1 {
		t.Errorf("after the first came %v", second)
	}
}
