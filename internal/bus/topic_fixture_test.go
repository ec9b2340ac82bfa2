package bus

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

var testRuleLimits = RuleLimits{PerSubscription: 5, SQLPerTopic: 8}

var defaultRule = []Rule{{Name: "$Default"}}

func openTopic(t testing.TB, path string) (*stores, MessageQueue) {
	t.Helper()
	s, err := openStores(context.Background(), db.Options{Path: path, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	return s, putTopic(t, s, MessageQueue{Name: "t/topic"})
}

func putTopic(t testing.TB, s *stores, q MessageQueue) MessageQueue {
	t.Helper()
	q.Tenant, q.IsTopic = max(q.Tenant, 1), true
	stored, _, err := s.Bus.PutMessageQueue(context.Background(), q, 10)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func subscribe(t testing.TB, s *stores, topic MessageQueue, name string, change ...func(*MessageQueue)) MessageQueue {
	t.Helper()
	q := MessageQueue{Tenant: 1, Name: entity.SubscriptionName(topic.Name, name), Lock: testLock, MaxDeliveries: 2}
	for _, c := range change {
		c(&q)
	}
	sub, _, err := s.Bus.PutSubscription(context.Background(), topic, q, defaultRule, 2000)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func putRule(t testing.TB, s *stores, sub MessageQueue, name string, settings forebay.RuleSettings) {
	t.Helper()
	if _, _, err := s.Bus.Rules().Put(context.Background(), sub, Rule{Name: name, Settings: settings}, testRuleLimits, entity.PutAny); err != nil {
		t.Fatal(err)
	}
}

func deleteRule(t testing.TB, s *stores, sub MessageQueue, name string) {
	t.Helper()
	if deleted, err := s.Bus.Rules().Delete(context.Background(), sub, name); err != nil || !deleted {
		t.Fatalf("delete rule %s: %t, %v", name, deleted, err)
	}
}

// content is a message with that subject and a property "n".
func content(subject string, n int64) MessageContent {
	return MessageContent{MessageID: subject, Subject: subject, Body: []byte(subject), Properties: fmt.Appendf(nil, `{"n":%d}`, n)}
}

func send(t testing.TB, s *stores, q MessageQueue, messages ...MessageContent) []int64 {
	t.Helper()
	seqs, err := s.Broker.Messages.Send(background, q, messages)
	if err != nil {
		t.Fatal(err)
	}
	return seqs
}

func peekAll(t testing.TB, s *stores, subqueue queue.Subqueue) []Message {
	t.Helper()
	got, next, _, err := s.Broker.Messages.Peek(background, PeekQuery{Subqueue: subqueue, Limit: 1000, MaxBytes: 1 << 30, AtLeast: 1})
	if err != nil || next != 0 {
		t.Fatalf("peek: next %d, %v", next, err)
	}
	return got
}

// subjects are those of the messages in the subqueue, by their numbers.
func subjects(t testing.TB, s *stores, subqueue queue.Subqueue) string {
	t.Helper()
	var all []string
	for _, m := range peekAll(t, s, subqueue) {
		all = append(all, m.Subject)
	}
	return strings.Join(all, " ")
}
