package bus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/raced"
)

// makeDue makes everything that is scheduled due now.
func makeDue(t *testing.T, s *stores) {
	t.Helper()
	_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) {
		t.DueBy(t.Now)
		return 0, t.Prep("UPDATE bodies SET due_at = ?1, scheduled_at = ?1 WHERE due_at > ?1").Int(t.Now).Exec()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// untilEmpty lets the writer make transactions until the statement counts nothing. Each
// transaction processes something that is due.
func untilEmpty(t *testing.T, s *stores, sql string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		left, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (n int64, err error) {
			_, err = t.Prep(sql).One(func(r driver.Row) { n = r.Int(0) })
			return n, err
		})
		if err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
	}
	t.Fatal("something is still to be done")
}

// wantOnce checks that each subscription has each message once, and that no transaction has made
// too many copies. One message or call makes atOnce copies.
func wantOnce(t *testing.T, s *stores, subs []MessageQueue, messages, atOnce int) {
	t.Helper()
	err := s.DB.Read(t.Context(), func(c driver.Conn) error {
		for _, sub := range subs {
			_, err := c.Prep("SELECT count(*), count(DISTINCT message_id), coalesce(max(dead_letter_reason), '') FROM bodies WHERE subqueue BETWEEN ? AND ?").
				Int(int64(sub.Subqueue(false))).Int(int64(sub.Subqueue(true))).One(func(r driver.Row) {
				if r.Int(0) != int64(messages) || r.Int(1) != int64(messages) || r.Text(2) != "" {
					t.Errorf("%s has %d copies of %d messages of %d (%s)", sub.Name, r.Int(0), r.Int(1), messages, r.Text(2))
				}
			})
			if err != nil {
				return err
			}
		}
		most := 3*rules.FullCopies + atOnce // of callers, of what was due, and of what stood in queues
		transactions := 0
		err := c.Prep("SELECT enqueued_at, count(*) FROM bodies GROUP BY enqueued_at").Each(func(r driver.Row) error {
			if transactions++; r.Int(1) > int64(most) {
				t.Errorf("one transaction has made %d copies", r.Int(1))
			}
			return nil
		})
		if transactions < 2 {
			t.Errorf("there were only %d transactions", transactions)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func manySubscriptions(t *testing.T, s *stores, topic MessageQueue, n int) (subs []MessageQueue) {
	for i := range n {
		subs = append(subs, subscribe(t, s, topic, fmt.Sprint("s", i)))
	}
	return subs
}

// scheduled returns so many messages that are due an hour later.
func scheduled(n int) (messages []MessageContent) {
	at := time.Now().Add(time.Hour)
	for i := range n {
		m := content(fmt.Sprint("m", i), int64(i))
		m.ScheduledAt = &at
		messages = append(messages, m)
	}
	return messages
}

// Messages that are due at once are activated in as many transactions as their copies need, even
// if the subscriptions are newer.
func TestMassActivation(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		const messages = 200
		send(t, s, topic, scheduled(messages)...)
		subs := manySubscriptions(t, s, topic, 50)
		makeDue(t, s)
		untilEmpty(t, s, "SELECT count(*) FROM messages WHERE flow = 1")
		wantOnce(t, s, subs, messages, len(subs))
	})
}

// A scheduled message for which newer subscriptions would make too many copies waits until they
// do not.
func TestActivationWithinTheLimit(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		messages := scheduled(2)
		messages[0].Body = make([]byte, 9<<20)
		send(t, s, topic, messages...)
		subs := manySubscriptions(t, s, topic, 30)
		makeDue(t, s)
		untilEmpty(t, s, "SELECT count(*) - 1 FROM messages WHERE flow = 1")
		for _, sub := range []MessageQueue{subs[0], subs[29]} {
			if got := subjects(t, s, sub.Subqueue(false)); got != "m1" {
				t.Errorf("%s has %q", sub.Name, got)
			}
		}
		for _, sub := range subs[1:] {
			if _, err := s.Bus.DropMessageQueue(t.Context(), sub); err != nil {
				t.Fatal(err)
			}
		}
		makeDue(t, s)
		untilEmpty(t, s, "SELECT count(*) FROM messages WHERE flow = 1")
		if got := subjects(t, s, subs[0].Subqueue(false)); got != "m1 m0" {
			t.Errorf("%s has %q", subs[0].Name, got)
		}
	})
}

// Messages of a queue that begins to forward to a topic go there in as many transactions as
// needed.
func TestBacklogToTopic(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		subs := manySubscriptions(t, s, topic, 50)
		q, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: 1, Name: "t/q", Lock: testLock, MaxDeliveries: 1}, 10)
		if err != nil {
			t.Fatal(err)
		}
		const messages = 200
		send(t, s, q, numbered(0, messages)...)
		q.ForwardTo = topic.Name
		if _, _, err := s.Bus.PutMessageQueue(t.Context(), q, 10); err != nil {
			t.Fatal(err)
		}
		untilEmpty(t, s, fmt.Sprint("SELECT count(*) FROM messages WHERE subqueue = ", int64(q.Subqueue(false))))
		wantOnce(t, s, subs, messages, len(subs))
	})
}

// numbered returns so many messages, from that number on.
func numbered(from, n int) (messages []MessageContent) {
	for i := range n {
		messages = append(messages, content(fmt.Sprint("m", from+i), int64(from+i)))
	}
	return messages
}

// A queue that forwards to a topic keeps the messages of a send that would be too much for one
// transaction.
func TestSendThroughQueue(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		subs := manySubscriptions(t, s, topic, 50)
		q, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: 1, Name: "t/q", Lock: testLock, MaxDeliveries: 1, ForwardTo: topic.Name}, 10)
		if err != nil {
			t.Fatal(err)
		}
		const messages = 200
		send(t, s, q, numbered(0, messages)...)
		untilEmpty(t, s, fmt.Sprint("SELECT count(*) FROM messages WHERE subqueue = ", int64(q.Subqueue(false))))
		wantOnce(t, s, subs, messages, len(subs))
	})
}

// Calls that come together go into as many transactions as their copies need.
func TestManyPublishTogether(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		subs := manySubscriptions(t, s, topic, 50)
		const calls, each = 8, 25
		var publish []func() error
		for i := range calls {
			publish = append(publish, func() error {
				seqs, err := s.Bus.Send(t.Context(), topic, numbered(i*each, each))
				if err == nil && (len(seqs) != each || seqs[0] == 0) {
					err = fmt.Errorf("numbers %v", seqs)
				}
				return err
			})
		}
		for _, err := range dbtest.InOneTransaction(t, s.DB, publish...) {
			if err != nil {
				t.Error(err)
			}
		}
		wantOnce(t, s, subs, calls*each, each*len(subs))
	})
}

// Judging messages by rules is limited too. A call beyond the limit is refused, and a transaction
// ends.
func TestJudgingIsBounded(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		all := subscribe(t, s, topic, "all")
		slow := make([]Rule, 100) // each takes all the steps that one may
		for i := range slow {
			slow[i] = Rule{Name: fmt.Sprint("r", i), Settings: forebay.RuleSettings{SQLFilter: "p LIKE '%" + strings.Repeat("a", 900) + "b'"}}
		}
		put := func(name string) MessageQueue {
			sub, _, err := s.Bus.PutSubscription(t.Context(), topic, MessageQueue{Tenant: 1, Name: entity.SubscriptionName(topic.Name, name), Lock: testLock, MaxDeliveries: 2}, slow, 2000)
			if err != nil {
				t.Fatal(err)
			}
			return sub
		}
		put("slow")
		messages := scheduled(4)
		for i := range messages {
			messages[i].Properties = []byte(`{"p":"` + strings.Repeat("a", 30_000) + `"}`)
		}
		at := messages[0].ScheduledAt
		messages[3].ScheduledAt = nil
		if _, err := s.Bus.Send(t.Context(), topic, messages[1:]); forebay.CodeOf(err) != forebay.CodePayloadTooLarge || !strings.Contains(err.Error(), "too long") {
			t.Errorf("sent what takes too long: %v", err)
		}
		for i := range messages {
			messages[i].ScheduledAt = at
			send(t, s, topic, messages[i])
		}
		makeDue(t, s)
		untilEmpty(t, s, "SELECT count(*) FROM messages WHERE flow = 1")
		wantOnce(t, s, []MessageQueue{all}, len(messages), 1)
		byTime := map[time.Time]int{}
		for _, m := range peekAll(t, s, all.Subqueue(false)) {
			if byTime[m.EnqueuedAt]++; byTime[m.EnqueuedAt] > 1 {
				t.Error("two messages that took long became active in one transaction")
			}
		}

		// A single message that takes too long waits.
		send(t, s, topic, messages[0])
		put("slower")
		put("slowest")
		makeDue(t, s)
		untilEmpty(t, s, "SELECT count(*) FROM bodies WHERE due_at <= scheduled_at")
		if c, err := s.Bus.Entities().TopicCounts(t.Context(), topic, entity.CountLimit); err != nil || c.Scheduled != 1 {
			t.Errorf("counts %+v (%v)", c, err)
		}
	})
}
