package bus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/filter/filtertest"
	"github.com/forebayhq/forebay/internal/raced"
	"pgregory.net/rapid"
)

// topicModel is the plain model of two topics and their subscriptions. The entities are made by
// the calls of the store, also where messages go through a client: the SDK for Go manages rules by
// another protocol.
type topicModel struct {
	to        broker
	store     *storeBroker
	topics    []MessageQueue
	subs      []map[string]*modelSubscription // of each topic, by name
	scheduled []modelScheduled
}

type modelSubscription struct {
	queue  MessageQueue
	strict bool
	rules  map[string]modelRule
	active []modelCopy
	dead   []modelCopy
}

type modelCopy struct {
	first   int64
	subject string
	props   map[string]any // by names in lower case
	amqp    []byte
}

type modelScheduled struct {
	topic int
	at    int64
	seq   int64
	m     MessageContent
}

// modelRule is a rule, and what it does by the reference.
type modelRule struct {
	settings forebay.RuleSettings
	selects  func(*filtertest.Message) (bool, error)
	action   filtertest.Action
}

func constantRule(selects bool) modelRule {
	return modelRule{forebay.RuleSettings{BooleanFilter: &selects}, func(*filtertest.Message) (bool, error) { return selects, nil }, nil}
}

func drawRule(t *rapid.T) (r modelRule) {
	switch rapid.IntRange(0, 7).Draw(t, "filter") {
	case 0:
		r = constantRule(rapid.Bool().Draw(t, "constant"))
	case 1:
		r = constantRule(true)
		r.settings.BooleanFilter = nil
	case 2:
		r.settings.CorrelationFilter = &forebay.CorrelationFilter{Properties: forebay.Properties{"COLOR": "red"}}
		r.selects = func(m *filtertest.Message) (bool, error) { return m.User["color"] == "red", nil }
	default:
		condition := filtertest.DrawCondition(t)
		r.settings.SQLFilter = condition.String()
		r.selects = func(m *filtertest.Message) (bool, error) {
			truth, err := condition.Truth(m)
			return truth == true, err
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "action") == 0 {
		r.action = filtertest.DrawAction(t)
		r.settings.SQLAction = r.action.String()
	}
	return r
}

func (w *topicModel) drawSub(t *rapid.T) (topic int, sub *modelSubscription) {
	topic = rapid.IntRange(0, 1).Draw(t, "topic")
	names := make([]string, 0, len(w.subs[topic]))
	for name := range w.subs[topic] {
		names = append(names, name)
	}
	if len(names) == 0 {
		t.Skip("no subscription")
	}
	slices.Sort(names)
	return topic, w.subs[topic][rapid.SampledFrom(names).Draw(t, "subscription")]
}

func (w *topicModel) subscribe(t *rapid.T) {
	topic := rapid.IntRange(0, 1).Draw(t, "topic")
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	strict := rapid.Bool().Draw(t, "strict")
	q, created, err := w.store.PutSubscription(background, w.topics[topic], MessageQueue{Tenant: w.topics[topic].Tenant, Name: entity.SubscriptionName(w.topics[topic].Name, name),
		Lock: testLock, MaxDeliveries: 2, DeadLetterFilterErrors: strict}, defaultRule, 10)
	before, found := w.subs[topic][name]
	if err != nil || created == found {
		t.Fatalf("created %t: %v", created, err)
	}
	if !found {
		before = &modelSubscription{queue: q, rules: map[string]modelRule{"$Default": constantRule(true)}}
		w.subs[topic][name] = before
	}
	before.strict = strict
}

func (w *topicModel) unsubscribe(t *rapid.T) {
	topic, sub := w.drawSub(t)
	if dropped, err := w.store.DropMessageQueue(background, sub.queue); err != nil || !dropped {
		t.Fatal(dropped, err)
	}
	delete(w.subs[topic], entity.SubscriptionOf(sub.queue.Name))
}

func (w *topicModel) changeRules(t *rapid.T) {
	_, sub := w.drawSub(t)
	name := rapid.SampledFrom([]string{"$Default", "r1"}).Draw(t, "rule")
	_, found := sub.rules[name]
	if rapid.Bool().Draw(t, "delete") {
		if deleted, err := w.store.Rules().Delete(background, sub.queue, name); err != nil || deleted != found {
			t.Fatalf("deleted %t: %v", deleted, err)
		}
		delete(sub.rules, name)
		return
	}
	r := drawRule(t)
	if _, created, err := w.store.Rules().Put(background, sub.queue, Rule{Name: name, Settings: r.settings}, RuleLimits{PerSubscription: 10, SQLPerTopic: 100}, entity.PutAny); err != nil || created == found {
		t.Fatalf("created %t: %v", created, err)
	}
	sub.rules[name] = r
}

// drawSections draws what a message has that came over AMQP. Some are so large that copies share
// them.
func drawSections(t *rapid.T) []byte {
	n := rapid.SampledFrom([]int{0, 0, 1, minSharedBytes}).Draw(t, "sections")
	if n == 0 {
		return nil
	}
	return bytes.Repeat([]byte{1, 2, 3}, n)
}

func (w *topicModel) send(t *rapid.T) {
	topic := rapid.IntRange(0, 1).Draw(t, "topic")
	var messages []MessageContent
	for i := range rapid.IntRange(1, 3).Draw(t, "messages") {
		m := MessageContent{MessageID: fmt.Sprint(i), Subject: filtertest.DrawSystem(t), CorrelationID: filtertest.DrawSystem(t),
			To: filtertest.DrawSystem(t), ContentType: filtertest.DrawSystem(t), AMQP: drawSections(t)}
		if w.to.Client && strings.ContainsFunc(m.ContentType, func(r rune) bool { return r > unicode.MaxASCII }) {
			m.ContentType = "" // AMQP has a symbol there
		}
		if props := filtertest.DrawProperties(t); len(props) > 0 {
			var err error
			if m.Properties, err = json.Marshal(props); err != nil {
				t.Fatal(err)
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "scheduled") == 0 {
			at := driver.FromMillis(w.to.Clock.Now() + 1000*rapid.Int64Range(-5, 20).Draw(t, "seconds"))
			m.ScheduledAt = &at
		}
		messages = append(messages, m)
	}
	seqs, err := w.to.Messages.Send(background, w.topics[topic], messages)
	if err != nil {
		t.Fatal(err)
	}
	if seqs == nil {
		seqs = make([]int64, len(messages)) // which nobody knows
	}
	for i, m := range messages {
		if m.ScheduledAt != nil && m.ScheduledAt.UnixMilli() > w.to.Clock.Now() {
			w.scheduled = append(w.scheduled, modelScheduled{topic, m.ScheduledAt.UnixMilli(), seqs[i], m})
			continue
		}
		w.publish(t, topic, seqs[i], m)
	}
}

// publish does to the model what a message that becomes active should do. Each subscription gets
// one copy for all selecting rules without an action, and one for each selecting rule with an
// action.
func (w *topicModel) publish(t *rapid.T, topic int, seq int64, m MessageContent) {
	sent := &filtertest.Message{User: propertiesOf(t, m.Properties), System: map[string]string{
		"MessageId": m.MessageID, "Label": m.Subject, "CorrelationId": m.CorrelationID, "To": m.To, "ContentType": m.ContentType}}
	for _, sub := range w.subs[topic] {
		selected, failed := false, false
		for _, name := range slices.Sorted(maps.Keys(sub.rules)) {
			r := sub.rules[name]
			if r.action == nil && selected {
				continue
			}
			copied := sent
			selects, err := r.selects(sent)
			if err == nil && selects && r.action != nil {
				if copied, err = r.action.Apply(sent); err == nil {
					copied.User["rulename"] = name
				}
			}
			switch {
			case err != nil:
				failed = true
			case selects:
				selected = selected || r.action == nil
				sub.active = append(sub.active, modelCopy{seq, copied.System["Label"], copied.User, m.AMQP})
			}
		}
		if failed && sub.strict {
			sub.dead = append(sub.dead, modelCopy{seq, m.Subject, sent.User, m.AMQP})
		}
	}
}

// propertiesOf are stored properties by their names in lower case.
func propertiesOf(t *rapid.T, stored []byte) map[string]any {
	by := map[string]any{}
	if stored == nil {
		return by
	}
	var props forebay.Properties
	if err := json.Unmarshal(stored, &props); err != nil {
		t.Fatal(err)
	}
	for name, value := range props {
		by[strings.ToLower(name)] = value
	}
	return by
}

func (w *topicModel) receive(t *rapid.T) {
	_, sub := w.drawSub(t)
	n := rapid.IntRange(1, 3).Draw(t, "max")
	want := sub.active[:min(n, len(sub.active))]
	if len(want) == 0 && w.to.Client {
		t.Skip("a client would wait")
	}
	got, err := w.to.Messages.Receive(background, ReceiveRequest{Queue: sub.queue, Max: n, MaxBytes: 1 << 20, Delete: true}, len(want))
	if err != nil {
		t.Fatal(err)
	}
	sub.active = sub.active[len(want):]
	w.compareCopies(t, sub, got, want)
}

func (w *topicModel) passTime(t *rapid.T) {
	w.to.Clock.Pass(time.Duration(rapid.IntRange(1, 15_000).Draw(t, "ms")) * time.Millisecond)
	slices.SortStableFunc(w.scheduled, func(a, b modelScheduled) int { return int(a.at - b.at) })
	for len(w.scheduled) > 0 && w.scheduled[0].at <= w.to.Clock.Now() {
		due := w.scheduled[0]
		w.scheduled = w.scheduled[1:]
		w.publish(t, due.topic, due.seq, due.m)
	}
}

func (w *topicModel) restart(t *rapid.T) { w.store.restart(t) }

func (w *topicModel) check(t *rapid.T) {
	for topic, subs := range w.subs {
		for _, sub := range subs {
			for deadLetter, want := range map[bool][]modelCopy{false: sub.active, true: sub.dead} {
				got, _, _, err := w.to.Messages.Peek(background, PeekQuery{Subqueue: sub.queue.Subqueue(deadLetter), Limit: 10_000, MaxBytes: 1 << 30, AtLeast: 1})
				if err != nil {
					t.Fatal(err)
				}
				w.compareCopies(t, sub, got, want)
			}
		}
		counts, err := w.store.Entities().TopicCounts(background, w.topics[topic], entity.CountLimit)
		waiting := 0
		for _, m := range w.scheduled {
			if m.topic == topic {
				waiting++
			}
		}
		if err != nil || counts.Subscriptions != int64(len(subs)) || counts.Scheduled != int64(waiting) {
			t.Fatalf("counts %+v (%v), expected %d and %d", counts, err, len(subs), waiting)
		}
	}
}

func (w *topicModel) compareCopies(t *rapid.T, sub *modelSubscription, got []Message, want []modelCopy) {
	if len(got) != len(want) {
		t.Fatalf("%s has %d messages, expected %d", sub.queue.Name, len(got), len(want))
	}
	for i, g := range got {
		props := propertiesOf(t, g.Properties)
		if !filtertest.SameProperties(props, want[i].props) || g.Subject != want[i].subject || want[i].first != 0 && g.EnqueuedSeq != want[i].first || !w.to.Client && !bytes.Equal(g.AMQP, want[i].amqp) {
			t.Fatalf("%s: message %d is %s %v of %d, expected %+v", sub.queue.Name, i, g.Subject, props, g.EnqueuedSeq, want[i])
		}
	}
}

// putModelTopics makes two topics for a tenant.
func putModelTopics(t *rapid.T, s *stores, name string) (topics []MessageQueue) {
	tenant, err := s.Queues.EnsureTenant(background, name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		topic, _, err := s.Bus.PutMessageQueue(background, MessageQueue{Tenant: tenant, Name: fmt.Sprint(name, "/", i), IsTopic: true}, 10)
		if err != nil {
			t.Fatal(err)
		}
		topics = append(topics, topic)
	}
	return topics
}

// driveTopics does random operations on topics and compares with the plain model.
func driveTopics(t *rapid.T, to broker, store *storeBroker, topics []MessageQueue) {
	w := &topicModel{to: to, store: store, topics: topics, subs: []map[string]*modelSubscription{{}, {}}}
	for range 3 {
		w.subscribe(t)
	}
	actions := map[string]func(*rapid.T){
		"subscribe": w.subscribe, "subscribe2": w.subscribe, "rules": w.changeRules, "rules2": w.changeRules, "rules3": w.changeRules,
		"send": w.send, "send2": w.send, "send3": w.send, "send4": w.send, "receive": w.receive, "time": w.passTime, "": w.check,
	}
	if !to.Client { // a server remembers an entity for a while after another process has deleted it
		actions["unsubscribe"], actions["restart"] = w.unsubscribe, w.restart
	}
	t.Repeat(actions)
}

// TestTopicModel drives random operations on topics and compares with the plain model.
func TestTopicModel(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.OnEveryEngine(t, func(t *rapid.T, e engine) {
		b := &storeBroker{engine: e}
		b.open(e.Open(t))
		defer func() { b.s.DB.Close() }()
		driveTopics(t, b.broker(), b, putModelTopics(t, b.s, "t"))
	})
}
