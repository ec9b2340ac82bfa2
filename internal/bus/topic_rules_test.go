package bus

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/turns"
)

// subscribeSlowly makes a subscription with so many rules each of which takes all the steps that
// one may, for the messages of slow.
func subscribeSlowly(t *testing.T, s *stores, topic MessageQueue, name string, rules int) MessageQueue {
	t.Helper()
	sub := MessageQueue{Tenant: 1, Name: entity.SubscriptionName(topic.Name, name), Lock: testLock, MaxDeliveries: 2}
	sub.DeadLetterFilterErrors = true
	var all []Rule
	for i := range rules {
		all = append(all, Rule{Name: fmt.Sprint("r", i), Settings: forebay.RuleSettings{SQLFilter: "p LIKE '%" + strings.Repeat("a", 900) + "b'"}})
	}
	stored, _, err := s.Bus.PutSubscription(t.Context(), topic, sub, all, 2000)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func slow(subject string) MessageContent {
	m := content(subject, 0)
	m.Properties = []byte(`{"p":"` + strings.Repeat("a", 30_000) + `"}`)
	return m
}

// Senders judge messages before their transaction. A refused message never gets there, and an
// accepted one may take longer than a transaction may.
func TestSendersJudgeBeforeTheirTransaction(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		all := subscribe(t, s, topic, "all")
		subscribeSlowly(t, s, topic, "slow", 2*rules.TxSteps/(1<<18))
		send(t, s, topic, slow("one"))
		if got := subjects(t, s, all.Subqueue(false)); got != "one" {
			t.Errorf("the subscription has %q", got)
		}
		for i := range 3 {
			subscribeSlowly(t, s, topic, fmt.Sprint("slower", i), 100)
		}
		var operations atomic.Int64
		s.DB.OnCommit(func(c db.Commit) { operations.Add(int64(c.Operations)) })
		if _, err := s.Bus.Send(t.Context(), topic, []MessageContent{slow("two")}); forebay.CodeOf(err) != forebay.CodePayloadTooLarge {
			t.Errorf("sent what takes too long: %v", err)
		}
		if n := operations.Load(); n != 0 {
			t.Errorf("a send that was refused went into %d transactions", n)
		}
	})
}

// A message that was judged by former rules is judged again.
func TestSentByTheRulesThatStand(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		first := subscribe(t, s, topic, "first")
		messages := []MessageContent{content("one", 1)}
		judged, err := s.Bus.judge(t.Context(), topic.No, messages, false)
		if err != nil {
			t.Fatal(err)
		}
		second := subscribe(t, s, topic, "second")
		if _, err := sendJudged(t.Context(), s.Bus, topic, messages, 0, judged); !errors.Is(err, errTopicChanged) {
			t.Errorf("what older rules have judged was sent: %v", err)
		}
		if got := subjects(t, s, first.Subqueue(false)); got != "" {
			t.Errorf("the subscription has %q", got)
		}
		send(t, s, topic, messages...)
		for _, sub := range []MessageQueue{first, second} {
			if got := subjects(t, s, sub.Subqueue(false)); got != "one" {
				t.Errorf("%s has %q", sub.Name, got)
			}
		}
		if _, err := sendJudged(t.Context(), s.Bus, topic, messages, 0, nil); err != nil { // as when the topic changes each time
			t.Error(err)
		}
		if got := subjects(t, s, second.Subqueue(false)); got != "one one" {
			t.Errorf("%s has %q", second.Name, got)
		}
	})
}

// Events of jobs are stored with the change, so they are judged in its transaction. Slow rules do
// not delay it.
func TestJudgingEventsIsBounded(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		all := subscribe(t, s, topic, "all")
		costly := subscribeSlowly(t, s, topic, "slow", 100)
		if _, _, err := s.Bus.topicFor(t.Context(), topic.No, true); err != nil { // so that the rules are ready
			t.Fatal(err)
		}
		const events = 20
		steps, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) {
			for i := range events {
				if err := t.Topics.Publish(topic.Name, func() (MessageContent, error) { return slow(fmt.Sprint("m", i)), nil }); err != nil {
					return 0, err
				}
			}
			return t.copied.Steps, nil
		})
		if most := rules.TxSteps + events*(rules.EventSteps+1<<19); err != nil || steps > most {
			t.Errorf("judging took %d steps, not %d (%v)", steps, most, err)
		}
		for subqueue, sub := range map[queue.Subqueue]string{all.Subqueue(false): "all", costly.Subqueue(true): "slow"} {
			if got := len(peekAll(t, s, subqueue)); got != events {
				t.Errorf("%s has %d of %d events", sub, got, events)
			}
		}
	})
}

// Messages to a topic with many rules that are not compiled wait for them outside of the
// transaction, in order.
func TestTransactionsCompileFewRules(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		all, other := subscribe(t, s, topic, "all"), putTopic(t, s, MessageQueue{Name: "t/other"})
		of := subscribeSlowly(t, s, topic, "slow", txRules)
		forwards := putQueue(t, s, MessageQueue{Name: "t/forwards", ForwardTo: "t/topic"})
		few := subscribe(t, s, other, "few")
		type compiled struct{ topics, of int }
		got, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (c compiled, err error) {
			for i := range 3 {
				for _, name := range []string{topic.Name, other.Name} {
					if err := t.Topics.Publish(name, func() (MessageContent, error) { return content(fmt.Sprint("m", i), 0), nil }); err != nil {
						return c, err
					}
				}
			}
			forwarded := content("m3", 0)
			if _, err := t.arrivals.add(forwards, arrival{MessageContent: &forwarded}); err != nil {
				return c, err
			}
			if c.topics = len(t.Topics.compiled); t.Topics.compiled[topic.No] != nil {
				c.of++
			}
			return c, nil
		})
		if err != nil || got != (compiled{1, 0}) {
			t.Errorf("the transaction compiled %+v (%v)", got, err)
		}
		untilEmpty(t, s, "SELECT count(*) FROM messages WHERE flow = 2")
		for sub, want := range map[queue.Subqueue]string{all.Subqueue(false): "m0 m1 m2 m3", of.Subqueue(false): "", few.Subqueue(false): "m0 m1 m2"} {
			if got := subjects(t, s, sub); got != want {
				t.Errorf("a subscription has %q, not %q", got, want)
			}
		}
	})
}

// A scheduled message whose topic's rules are not compiled is soon tried again, even if no more
// messages may wait to be judged.
func TestWhatFindsNoRulesReadyWaitsShortly(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		all := subscribe(t, s, topic, "all")
		subscribeSlowly(t, s, topic, "slow", txRules)
		later := time.Now().Add(time.Hour)
		m := content("one", 0)
		m.ScheduledAt = &later
		seq := send(t, s, topic, m)[0]
		if _, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) {
			t.W.slow = rules.NewSlow() // of which nobody takes any
			return 0, nil
		}); err != nil {
			t.Fatal(err)
		}
		s.Bus.topics.Forget(topic.No)
		makeDue(t, s)
		var due, now int64
		if err := s.DB.Read(t.Context(), func(c driver.Conn) error {
			now = c.Now()
			_, err := c.Prep("SELECT due_at FROM bodies WHERE seq = ?").Int(seq).One(func(r driver.Row) { due = r.Int(0) })
			return err
		}); err != nil || due == 0 || due > now+slowPause {
			t.Errorf("it is due in %d ms (%v)", due-now, err)
		}
		if _, _, err := s.Bus.topicFor(t.Context(), topic.No, true); err != nil {
			t.Fatal(err)
		}
		makeDue(t, s)
		untilEmpty(t, s, "SELECT count(*) FROM messages WHERE flow = 1")
		if got := subjects(t, s, all.Subqueue(false)); got != "one" {
			t.Errorf("the subscription has %q", got)
		}
	})
}

// Slow rules are judged only in a turn, and for no caller that has gone.
func TestJudgingTakesTurns(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		subscribeSlowly(t, s, topic, "slow", 100)
		var holders sync.WaitGroup
		over := make(chan struct{})
		defer holders.Wait()
		defer close(over)
		for range max(1, runtime.GOMAXPROCS(0)/2) {
			held := make(chan struct{})
			holders.Go(func() { _ = turns.Run(t.Context(), func() { close(held); <-over }) })
			<-held
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := s.Bus.judge(ctx, topic.No, []MessageContent{slow("one")}, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it was judged while others had all the turns: %v", err)
		}
	})
}

// One tenant's scheduled messages with slow rules do not delay another's slow ones.
func TestCostlyRulesDelayTheirTenantAlone(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const many = 12
		tenants := []int64{tenantOf(t, s, "costly"), tenantOf(t, s, "other")}
		var listeners []MessageQueue
		for i, tenant := range tenants {
			topic := putTopic(t, s, MessageQueue{Tenant: tenant, Name: fmt.Sprint("t", i, "/topic")})
			listeners = append(listeners, subscribe(t, s, topic, "all"))
			subscribeSlowly(t, s, topic, "slow", 2*rules.TxSteps/(1<<18))
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
		untilEmpty(t, s, "SELECT count(*) FROM messages WHERE flow = 1")
		came, other := peekAll(t, s, listeners[0].Subqueue(false)), peekAll(t, s, listeners[1].Subqueue(false))
		if len(came) != many || len(other) != 1 {
			t.Fatalf("%d of %d messages came, and %d of the other tenant", len(came), many, len(other))
		}
		before := 0 // by their numbers, which tell the order of the transactions
		for _, m := range came {
			if m.Seq < other[0].Seq {
				before++
			}
		}
		if before > many/2 {
			t.Errorf("%d of %d messages of the other tenant came first", before, many)
		}
	})
}

// Callers that find nothing known of a topic wait for the one that reads it, and do not read it
// again one after the other.
func TestTopicIsReadOnceForAll(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		for _, c := range []struct{ fresh, read bool }{{false, true}, {false, false}, {true, true}} {
			known, read, err := s.Bus.topicFor(t.Context(), topic.No, c.fresh)
			if err != nil || known == nil || read != c.read {
				t.Errorf("fresh: %v, read: %v (%v)", c.fresh, read, err)
			}
		}
	})
}
