package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/raced"
)

func testTopicFanOut(t *testing.T, s *stores, _ *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	if seqs := send(t, s, topic, content("lost", 1)); seqs != nil && seqs[0] == 0 {
		t.Error("a message that nobody subscribes to has no number")
	}
	all, some := subscribe(t, s, topic, "all"), subscribe(t, s, topic, "some")
	deleteRule(t, s, some, "$Default")
	putRule(t, s, some, "large", forebay.RuleSettings{SQLFilter: "n > 5"})
	putRule(t, s, some, "marked", forebay.RuleSettings{SQLFilter: "n > 8", SQLAction: "SET sys.Label = 'very ' + sys.Label; SET n = n * 2"})
	seqs := send(t, s, topic, content("a", 1), content("b", 6), content("c", 9))

	if got := subjects(t, s, all.Subqueue(false)); got != "a b c" {
		t.Errorf("all has %q", got)
	}
	got := peekAll(t, s, some.Subqueue(false))
	if subjects := subjects(t, s, some.Subqueue(false)); subjects != "b c very c" {
		t.Fatalf("some has %q", subjects)
	}
	var properties forebay.Properties
	if err := json.Unmarshal(got[2].Properties, &properties); err != nil || properties["RuleName"] != "marked" || properties["n"] != int64(18) || len(properties) != 2 {
		t.Errorf("the action left %v (%v)", properties, err)
	}
	if string(got[1].Properties) != `{"n":9}` || string(got[2].Body) != "c" {
		t.Errorf("the copy as sent: %+v", got[1])
	}
	for i, m := range got {
		if seqs != nil && m.EnqueuedSeq != seqs[min(i+1, 2)] || m.Seq <= m.EnqueuedSeq {
			t.Errorf("copy %d of one of %v has the first number %d", m.Seq, seqs, m.EnqueuedSeq)
		}
	}
	if got := receiveOne(t, s, some); got.Subject != "b" {
		t.Errorf("received %+v", got)
	}
	if counts, err := s.Bus.Entities().TopicCounts(t.Context(), topic, entity.CountLimit); err != nil || counts.Subscriptions != 2 {
		t.Errorf("counts %+v (%v)", counts, err)
	}
	putRule(t, s, all, "one", forebay.RuleSettings{CorrelationFilter: &forebay.CorrelationFilter{Subject: "b"}, SQLAction: "SET n = 1"})
	if sql, correlation, err := s.Bus.Entities().TopicFilters(t.Context(), topic, entity.CountLimit); err != nil || sql != 3 || correlation != 1 {
		t.Errorf("%d SQL filters, %d correlation filters (%v)", sql, correlation, err)
	}
}

func testFilterErrors(t *testing.T, s *stores, _ *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	strict := subscribe(t, s, topic, "strict", func(q *MessageQueue) { q.DeadLetterFilterErrors = true })
	lax := subscribe(t, s, topic, "lax")
	for _, sub := range []MessageQueue{strict, lax} {
		deleteRule(t, s, sub, "$Default")
		putRule(t, s, sub, "good", forebay.RuleSettings{SQLFilter: "n = 2", SQLAction: "SET good = TRUE"})
		putRule(t, s, sub, "bad", forebay.RuleSettings{SQLFilter: "1 / (n - 1) > 0 AND n < 3"})
	}
	send(t, s, topic, content("one", 1), content("two", 2), content("three", 3))
	for _, sub := range []MessageQueue{strict, lax} {
		if got := subjects(t, s, sub.Subqueue(false)); got != "two two" {
			t.Errorf("%s has %q", sub.Name, got)
		}
	}
	dead := peekAll(t, s, strict.Subqueue(true))
	if len(dead) != 1 || dead[0].Subject != "one" || dead[0].DeadLetterReason != forebay.ReasonFilter ||
		dead[0].DeadLetterDescription != "the filter of rule bad: an integer is divided by zero" {
		t.Errorf("dead-lettered %+v", dead)
	}
	if got := peekAll(t, s, lax.Subqueue(true)); len(got) != 0 {
		t.Errorf("dead-lettered %+v", got)
	}
}

// A copy whose properties an action would make too large is dead-lettered as it was sent. It does
// not matter what the subscription does with messages that its rules cannot judge. Copies of
// other rules are not affected.
func TestActionsThatMakeACopyTooLarge(t *testing.T) {
	s, topic := openTopic(t, filepath.Join(t.TempDir(), "f.db"))
	defer s.DB.Close()
	grow := "SET a = '" + strings.Repeat("x", 500) + "';" + strings.Repeat("SET a = a + a;", 6)
	for i, action := range []string{grow + "SET a = a + a", grow + "SET b = a, c = a"} {
		for _, strict := range []bool{false, true} {
			sub := subscribe(t, s, topic, fmt.Sprint("s", i, strict), func(q *MessageQueue) { q.DeadLetterFilterErrors = strict })
			putRule(t, s, sub, "grow", forebay.RuleSettings{SQLAction: action})
			send(t, s, topic, content("m", 1))
			dead := peekAll(t, s, sub.Subqueue(true))
			if len(dead) != 1 || dead[0].DeadLetterReason != forebay.ReasonHeaderSize || !strings.HasPrefix(dead[0].DeadLetterDescription, "the action of rule grow: ") ||
				string(dead[0].Properties) != `{"n":1}` {
				t.Errorf("%s: dead-lettered %+v", sub.Name, dead)
			}
			if got := subjects(t, s, sub.Subqueue(false)); got != "m" {
				t.Errorf("%s has %q", sub.Name, got)
			}
			if _, err := s.Bus.DropMessageQueue(t.Context(), sub); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What a topic holds back and what it drops, as its own settings say.
func testTopicSettings(t *testing.T, s *stores, c *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/set", DefaultTTL: time.Minute, DuplicateWindow: time.Hour})
	sub := subscribe(t, s, topic, "s", func(q *MessageQueue) { q.DeadLetterExpired = true })
	later := content("later", 1)
	at := c.time().Add(30 * time.Second)
	later.ScheduledAt = &at
	first := send(t, s, topic, later, content("now", 1))
	again := send(t, s, topic, content("now", 2), content("later", 2))
	if again != nil && (again[0] != first[1] || again[1] != first[0]) {
		t.Errorf("duplicates are %v, of %v", again, first)
	}
	if got := subjects(t, s, sub.Subqueue(false)); got != "now" {
		t.Errorf("at once: %q", got)
	}
	if counts, err := s.Bus.Entities().TopicCounts(t.Context(), topic, entity.CountLimit); err != nil || counts.Scheduled != 1 {
		t.Errorf("counts %+v (%v)", counts, err)
	}
	late := subscribe(t, s, topic, "late") // in time for what is scheduled
	c.pass(31 * time.Second)
	if got := subjects(t, s, sub.Subqueue(false)) + "; " + subjects(t, s, late.Subqueue(false)); got != "now later; later" {
		t.Errorf("after its time: %q", got)
	}
	c.pass(30 * time.Second)
	if got := subjects(t, s, sub.Subqueue(false)) + "; " + subjects(t, s, sub.Subqueue(true)); got != "later; now" {
		t.Errorf("after the topic's time to live: %q", got)
	}
}

// Subscriptions forward to queues and topics, and what goes in a circle ends.
func testForwardingThroughTopics(t *testing.T, s *stores, _ *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	q, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: 1, Name: "t/q", Lock: testLock, MaxDeliveries: 1}, 10)
	if err != nil {
		t.Fatal(err)
	}
	inner := putTopic(t, s, MessageQueue{Name: "t/inner"})
	subscribe(t, s, inner, "to-queue", func(sub *MessageQueue) { sub.ForwardTo = q.Name })
	subscribe(t, s, topic, "to-topic", func(sub *MessageQueue) { sub.ForwardTo = inner.Name })
	seqs := send(t, s, topic, content("m", 1))
	got := peekAll(t, s, q.Subqueue(false))
	if len(got) != 1 || seqs != nil && (got[0].hops != 2 || got[0].EnqueuedSeq != seqs[0]) {
		t.Errorf("forwarded %+v", got)
	}

	circle := putTopic(t, s, MessageQueue{Name: "t/circle"})
	loops := make([]MessageQueue, 2)
	for i := range loops {
		loops[i] = subscribe(t, s, circle, fmt.Sprint("s", i), func(sub *MessageQueue) { sub.ForwardTo = circle.Name })
	}
	send(t, s, circle, content("m", 1))
	for _, loop := range loops {
		dead := peekAll(t, s, loop.Subqueue(true))
		if len(dead) != 1<<maxHops || dead[0].DeadLetterReason != forebay.ReasonMaxHops {
			t.Errorf("%d messages ended in the circle", len(dead))
		}
	}
	// Messages that would multiply without end are dead-lettered where they are.
	for i := range 20 {
		subscribe(t, s, circle, fmt.Sprint("more", i), func(sub *MessageQueue) { sub.ForwardTo = circle.Name })
	}
	send(t, s, circle, content("many", 1))
	var bodies int64
	var reasons []string
	err = s.DB.Read(t.Context(), func(c driver.Conn) error {
		return c.Prep("SELECT count(*), dead_letter_reason FROM bodies WHERE subject = 'many' GROUP BY dead_letter_reason ORDER BY 2").Each(func(r driver.Row) error {
			bodies += r.Int(0)
			reasons = append(reasons, r.Text(1))
			return nil
		})
	})
	if err != nil || bodies > rules.MaxCopies+100 || !slices.Equal(reasons, []string{forebay.ReasonMaxHops, forebay.ReasonFanOut}) {
		t.Errorf("%d copies, dead-lettered for %v (%v)", bodies, reasons, err)
	}
}

// A queue that has forwarded to a topic of Forebay's since that was allowed keeps its messages.
func testNothingIsForwardedToOurTopics(t *testing.T, s *stores, _ *clock) {
	for name, ours := range map[string]bool{
		"t/" + forebay.TopicJobEvents: true, entity.OperationsTopic: true, "t/" + forebay.TopicOperations: false, "t/our/" + forebay.TopicJobEvents: false,
	} {
		if s.Broker.Client && !strings.HasPrefix(name, "t/") {
			continue // another tenant's, at which it cannot look
		}
		topic := putTopic(t, s, MessageQueue{Name: name})
		sub := subscribe(t, s, topic, "s")
		q := putNamed(t, s, "t/to/"+name, func(q *MessageQueue) { q.ForwardTo = topic.Name })
		send(t, s, q, content("forged", 1))
		dead, got := peekAll(t, s, q.Subqueue(true)), peekAll(t, s, sub.Subqueue(false))
		switch {
		case ours && (len(dead) != 1 || dead[0].DeadLetterReason != forebay.ReasonNoTarget || len(got) != 0):
			t.Errorf("%s got %+v, dead-lettered %+v", name, got, dead)
		case !ours && (len(dead) != 0 || len(got) != 1):
			t.Errorf("%s, which is like any other, got %+v, dead-lettered %+v", name, got, dead)
		}
		if _, err := s.Bus.DropMessageQueue(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
}

// A send whose copies would be too much is refused before anything is stored.
func testFanOutLimit(t *testing.T, s *stores, _ *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	for i := range 30 {
		sub := subscribe(t, s, topic, fmt.Sprint("s", i))
		if i > 0 {
			putRule(t, s, sub, "$Default", forebay.RuleSettings{CorrelationFilter: &forebay.CorrelationFilter{Subject: "all"}})
		}
	}
	large := content("one", 1)
	large.Body = make([]byte, 9<<20)
	send(t, s, topic, large) // one copy
	large.Subject = "all"
	if _, err := s.Bus.Send(t.Context(), topic, []MessageContent{large}); forebay.CodeOf(err) != forebay.CodePayloadTooLarge {
		t.Errorf("270 MiB of copies: %v", err)
	}
	if got := subjects(t, s, queue.SubqueueOf(topic.No+1, queue.SubqueueMain)); got != "one" {
		t.Errorf("stored %q", got)
	}
}

func testSubscriptionsAndRulesAreBounded(t *testing.T, s *stores, _ *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	ctx := t.Context()
	put := func(name string) error {
		_, _, err := s.Bus.PutSubscription(ctx, topic, MessageQueue{Tenant: 1, Name: entity.SubscriptionName(topic.Name, name), Lock: testLock, MaxDeliveries: 2}, defaultRule, 2)
		return err
	}
	if err := errors.Join(put("a"), put("b"), put("b")); err != nil {
		t.Fatal(err)
	}
	if err := put("c"); forebay.CodeOf(err) != forebay.CodeConflict {
		t.Errorf("a third subscription of two: %v", err)
	}
	subs, err := s.Bus.Subscriptions(ctx, topic)
	if err != nil || len(subs) != 2 || entity.SubscriptionOf(subs[1].Name) != "b" {
		t.Fatalf("subscriptions %+v (%v)", subs, err)
	}
	sql := forebay.RuleSettings{SQLFilter: "1 = 1"}
	for i := range 4 {
		putRule(t, s, subs[0], fmt.Sprint("r", i), sql)
		putRule(t, s, subs[1], fmt.Sprint("r", i), sql)
	}
	if _, _, err := s.Bus.Rules().Put(ctx, subs[0], Rule{Name: "r9"}, testRuleLimits, entity.PutAny); forebay.CodeOf(err) != forebay.CodeConflict || !strings.Contains(err.Error(), "at most 5 rules") {
		t.Errorf("a sixth rule: %v", err)
	}
	if _, _, err := s.Bus.Rules().Put(ctx, subs[0], Rule{Name: "$Default", Settings: sql}, testRuleLimits, entity.PutAny); forebay.CodeOf(err) != forebay.CodeConflict || !strings.Contains(err.Error(), "at most 8 rules with SQL") {
		t.Errorf("a ninth SQL filter: %v", err)
	}
	if _, created, err := s.Bus.Rules().Put(ctx, subs[0], Rule{Name: "r0", Settings: sql}, testRuleLimits, entity.PutAny); err != nil || created {
		t.Errorf("a rule put again: %t, %v", created, err)
	}
	// Neither topics nor subscriptions are queues to others, and each name stands for one thing.
	if queues, err := s.Bus.MessageQueues(ctx, 1); err != nil || len(queues) != 0 {
		t.Errorf("queues %+v (%v)", queues, err)
	}
	if topics, err := s.Bus.Topics(ctx, 1); err != nil || len(topics) != 1 || topics[0].No != topic.No {
		t.Errorf("topics %+v (%v)", topics, err)
	}
	if _, _, err := s.Bus.PutMessageQueue(ctx, MessageQueue{Tenant: 1, Name: "t/topic", Lock: testLock, MaxDeliveries: 1}, 10); forebay.CodeOf(err) != forebay.CodeConflict {
		t.Errorf("a queue under a topic's name: %v", err)
	}
}

// The rules of a new subscription count like those that are added later.
func TestFirstRulesAreBounded(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		put := func(name string, rules int, settings forebay.RuleSettings) error {
			first := make([]Rule, rules)
			for i := range first {
				first[i] = Rule{Name: fmt.Sprint("r", i), Settings: settings}
			}
			_, _, err := s.Bus.PutSubscription(t.Context(), topic, MessageQueue{Tenant: 1, Name: entity.SubscriptionName(topic.Name, name), Lock: testLock, MaxDeliveries: 2}, first, 2000)
			return err
		}
		sql := forebay.RuleSettings{SQLFilter: "1 = 1"}
		if err := put("many", forebay.MaxRules+1, forebay.RuleSettings{}); forebay.CodeOf(err) != forebay.CodeConflict {
			t.Errorf("a rule too many: %v", err)
		}
		for i := range forebay.MaxSQLFilters/forebay.MaxRules - 1 {
			if err := put(fmt.Sprint("s", i), forebay.MaxRules, sql); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(put("almost", forebay.MaxRules-1, sql), put("plain", 1, forebay.RuleSettings{})); err != nil {
			t.Fatal(err)
		}
		if err := put("two", 2, sql); forebay.CodeOf(err) != forebay.CodeConflict || !strings.Contains(err.Error(), "SQL filters") {
			t.Errorf("a SQL filter too many: %v", err)
		}
		if err := errors.Join(put("one", 1, sql), put("one", 2, sql)); err != nil { // the second changes no rules
			t.Errorf("the last SQL filter: %v", err)
		}
		if subs, err := s.Bus.Subscriptions(t.Context(), topic); err != nil || len(subs) != forebay.MaxSQLFilters/forebay.MaxRules+2 {
			t.Errorf("%d subscriptions (%v)", len(subs), err)
		}
	})
}

// A dropped topic takes its subscriptions and their rules along; a dropped subscription leaves at
// once.
func testDropTopic(t *testing.T, s *stores, _ *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	a, b := subscribe(t, s, topic, "a"), subscribe(t, s, topic, "b")
	send(t, s, topic, content("1", 1))
	if dropped, err := s.Bus.DropMessageQueue(t.Context(), a); err != nil || !dropped {
		t.Fatal(dropped, err)
	}
	send(t, s, topic, content("2", 1))
	if got := subjects(t, s, b.Subqueue(false)); got != "1 2" {
		t.Errorf("b has %q", got)
	}
	if dropped, err := s.Bus.DropMessageQueue(t.Context(), topic); err != nil || !dropped {
		t.Fatal(dropped, err)
	}
	if _, err := s.Broker.Messages.Send(background, topic, []MessageContent{content("3", 1)}); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("sent to a dropped topic: %v", err)
	}
	if _, _, err := s.Bus.Rules().Put(t.Context(), b, Rule{Name: "r"}, testRuleLimits, entity.PutAny); forebay.CodeOf(err) != forebay.CodeNotFound {
		t.Errorf("a rule of a dropped subscription: %v", err)
	}
	if _, _, err := s.Bus.PutSubscription(t.Context(), topic, b, nil, 1); forebay.CodeOf(err) != forebay.CodeNotFound {
		t.Errorf("a subscription of a dropped topic: %v", err)
	}
	if err := s.Bus.PurgeDropped(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := s.DB.Read(t.Context(), func(c driver.Conn) error {
		_, err := c.Prep("SELECT (SELECT count(*) FROM queues) + (SELECT count(*) FROM rules) + (SELECT count(*) FROM bodies)").One(func(r driver.Row) {
			if r.Int(0) != 0 {
				t.Errorf("%d rows are left", r.Int(0))
			}
		})
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// An idle subscription is deleted, and its topic goes on without it.
func testIdleSubscription(t *testing.T, s *stores, c *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	sub := subscribe(t, s, topic, "s", func(q *MessageQueue) { q.Idle = 5 * time.Minute })
	c.pass(6 * time.Minute)
	send(t, s, topic, content("m", 1))
	if _, found, err := s.Bus.MessageQueue(t.Context(), sub.Name); err != nil || found {
		t.Errorf("still there: %t (%v)", found, err)
	}
}

// Another process changes the rules: the next message is judged by the new ones.
func testRulesOfAnotherProcess(t *testing.T, s *stores, c *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	sub := subscribe(t, s, topic, "s")
	send(t, s, topic, content("1", 1))
	other := c.beside(false)
	deleteRule(t, other, sub, "$Default")
	send(t, s, topic, content("2", 1))
	putRule(t, other, sub, "r", forebay.RuleSettings{SQLFilter: "n = 1"})
	send(t, s, topic, content("3", 1), content("4", 2))
	if got := subjects(t, s, sub.Subqueue(false)); got != "1 3" {
		t.Errorf("selected %q", got)
	}
}

// A transition publishes as a part of its own transaction, and reads a topic once however often
// it does.
func testPublish(t *testing.T, s *stores, _ *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	sub := subscribe(t, s, topic, "s")
	putTopic(t, s, MessageQueue{Name: "t/quiet"})
	unasked := func() (MessageContent, error) {
		t.Error("asked for a message that nobody wants")
		return MessageContent{}, nil
	}
	failed := errors.New("failed")
	publish := func(fail bool, rule string) error {
		_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageSettle}, func(t *Tx) (struct{}, error) {
			if rule != "" {
				if err := t.Prep("DELETE FROM rules WHERE queue = ?").Int(sub.No).Exec(); err != nil {
					return struct{}{}, err
				}
				if err := errors.Join(entity.InsertRule(t.Conn, sub.No, Rule{Name: "r", Settings: forebay.RuleSettings{SQLFilter: rule}}, t.Now), t.Entities.ChangeTopic(topic.No)); err != nil {
					return struct{}{}, err
				}
			}
			for i := range int64(3) {
				err := errors.Join(
					t.Topics.Publish("t/none", unasked), t.Topics.Publish("t/quiet", unasked), t.Topics.Publish(sub.Name, unasked),
					t.Topics.Publish("t/topic", func() (MessageContent, error) { return content(fmt.Sprint(i), i), nil }))
				if err != nil {
					return struct{}{}, err
				}
			}
			if fail {
				return struct{}{}, failed
			}
			return struct{}{}, nil
		})
		return err
	}
	if err := publish(false, ""); err != nil {
		t.Fatal(err)
	}
	if got := subjects(t, s, sub.Subqueue(false)); got != "0 1 2" {
		t.Errorf("published %q", got)
	}
	// What a transaction that fails has read of its own change is forgotten with it.
	if err := publish(true, "n > 0"); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if err := publish(false, "n = 0"); err != nil {
		t.Fatal(err)
	}
	if err := publish(false, ""); err != nil {
		t.Fatal(err)
	}
	if got := subjects(t, s, sub.Subqueue(false)); got != "0 1 2 0 0" {
		t.Errorf("published %q", got)
	}
}

// A rule that another version wrote and this one cannot read judges nothing, and nothing else
// suffers.
func testUnreadableRule(t *testing.T, s *stores, _ *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	sub := subscribe(t, s, topic, "s", func(q *MessageQueue) { q.DeadLetterFilterErrors = true })
	other := subscribe(t, s, topic, "t")
	putRule(t, s, sub, "$Default", forebay.RuleSettings{SQLFilter: "a BETWEEN 1"})
	send(t, s, topic, content("m", 1))
	if got := subjects(t, s, other.Subqueue(false)) + "; " + subjects(t, s, sub.Subqueue(true)); got != "m; m" {
		t.Errorf("got %q", got)
	}
}

func TestTopicQueryPlans(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	s, _ := openTopic(t, filepath.Join(t.TempDir(), "f.db"))
	defer s.DB.Close()
	for _, sql := range []string{entity.SQLTopic, entity.SQLSubscriptions, entity.SQLTopicRules, entity.SQLRules, entity.SQLRule, entity.SQLOfTenant} {
		err := s.DB.Read(t.Context(), func(c driver.Conn) error {
			return c.Prep("EXPLAIN QUERY PLAN " + sql).Each(func(r driver.Row) error {
				if step := r.Text(3); strings.HasPrefix(step, "SCAN ") || strings.HasPrefix(step, "USE TEMP B-TREE") {
					t.Errorf("%s\n  in %s", step, sql)
				}
				return nil
			})
		})
		if err != nil {
			t.Errorf("%v: %.100s", err, sql)
		}
	}
}

// BenchmarkFanOut sends to a topic with 20 subscriptions, half of which have SQL filters.
func BenchmarkFanOut(b *testing.B) {
	s, topic := openTopic(b, filepath.Join(b.TempDir(), "f.db"))
	defer s.DB.Close()
	for i := range 20 {
		sub := subscribe(b, s, topic, fmt.Sprint("s", i))
		if i%2 == 0 {
			if _, _, err := s.Bus.Rules().Put(b.Context(), sub, Rule{Name: "$Default", Settings: forebay.RuleSettings{SQLFilter: "n >= 0 AND sys.Label LIKE 'm%'"}}, RuleLimits{PerSubscription: 5, SQLPerTopic: 100}, entity.PutAny); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.SetParallelism(64)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Bus.Send(context.Background(), topic, []MessageContent{content("m", 1)}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(20*float64(b.N)/b.Elapsed().Seconds(), "copies/s")
}
