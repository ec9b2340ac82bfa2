package bus

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db"
)

// A tenant with many messages to judge, again and again, has one judged for each of another's.
func TestTenantsTakeTurnsInJudging(t *testing.T) {
	slow := newSlowMessages()
	for range 2 {
		for seq := range int64(2 * maxSlow) {
			slow.put(slowMessage{1, 1, seq})
		}
	}
	for seq := range int64(3) {
		slow.put(slowMessage{2, 2, seq})
	}
	order, judged := "", 0
	for {
		m, ok := slow.take()
		if !ok {
			break
		}
		if judged++; judged <= 8 {
			order += fmt.Sprint(m.tenant)
		}
		if slow.put(m); len(slow.waiting[m.tenant]) > 0 && slow.waiting[m.tenant][len(slow.waiting[m.tenant])-1] == m {
			t.Fatalf("%v is to be judged twice", m)
		}
		slow.judged(m)
	}
	if order != "12121211" || judged != maxSlow+3 {
		t.Errorf("%d were judged, first %s", judged, order)
	}
	slow.put(slowMessage{1, 1, 1})
	if m, ok := slow.next(t.Context()); !ok || m.seq != 1 {
		t.Error("a message that was judged cannot be judged again")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, ok := slow.next(ended); ok {
		t.Error("something is judged at the end")
	}
}

// Several are judged at once, but of each tenant one.
func TestATenantsMessagesAreJudgedOneByOne(t *testing.T) {
	slow := newSlowMessages()
	for seq := range int64(3) {
		slow.put(slowMessage{1, 1, seq})
	}
	first, ok := slow.take()
	if again, more := slow.take(); !ok || more {
		t.Errorf("%v is judged beside %v", again, first)
	}
	slow.put(slowMessage{2, 2, 1})
	if other, ok := slow.take(); !ok || other.tenant != 2 {
		t.Errorf("the other tenant's message waits for %v", first)
	}
	slow.put(slowMessage{1, 1, 3})
	if again, more := slow.take(); more {
		t.Errorf("%v is judged beside %v", again, first)
	}
	slow.judged(first)
	if second, ok := slow.take(); !ok || second.seq != 1 {
		t.Errorf("after the first came %v", second)
	}
}

// Scheduled messages of one tenant whose rules are costly do not delay another's that take long too.
func TestCostlyRulesDelayTheirTenantAlone(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const many = 12
		tenants := []int64{tenantOf(t, s, "costly"), tenantOf(t, s, "other")}
		var listeners []MessageQueue
		for i, tenant := range tenants {
			topic := putTopic(t, s, MessageQueue{Tenant: tenant, Name: fmt.Sprint("t", i, "/topic")})
			listeners = append(listeners, subscribe(t, s, topic, "all"))
			subscribeSlowly(t, s, topic, "slow", 2*txSteps/(1<<18))
			for j := range []int{many, 1}[i] {
				m := slow(fmt.Sprint("m", j))
				later := time.Now().Add(time.Hour)
				m.ScheduledAt = &later
				send(t, s, topic, m)
			}
		}
		if _, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) {
			t.DueBy(t.Now)
			return 0, t.Prep("UPDATE bodies SET due_at = ?1, scheduled_at = ?1 WHERE due_at > ?1").Int(t.Now).Exec()
		}); err != nil {
			t.Fatal(err)
		}
		var before int
		for start := time.Now(); ; <-time.After(time.Millisecond) {
			before = len(peekAll(t, s, listeners[0].Subqueue(false)))
			if len(peekAll(t, s, listeners[1].Subqueue(false))) == 1 {
				break
			}
			if time.Since(start) > time.Minute {
				t.Fatal("the other tenant's message did not come")
			}
		}
		if before > many/2 {
			t.Errorf("%d of %d messages of the other tenant came first", before, many)
		}
		untilEmpty(t, s, "SELECT count(*) FROM messages WHERE rank = 1")
		if got := len(peekAll(t, s, listeners[0].Subqueue(false))); got != many {
			t.Errorf("%d of %d messages came", got, many)
		}
	})
}
