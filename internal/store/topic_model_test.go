package store

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/filter"
)

// newsstand is the plain model of two topics and their subscriptions.
type newsstand struct {
	engine    engine
	s         *Store
	topics    []MessageQueue
	subs      []map[string]*modelSubscription // of each topic, by name
	scheduled []modelScheduled
}

type modelSubscription struct {
	queue  MessageQueue
	strict bool
	rules  map[string]forebay.RuleSettings
	active []modelCopy
	dead   []modelCopy
}

type modelCopy struct {
	first   int64
	subject string
	props   forebay.Properties
}

type modelScheduled struct {
	topic int
	at    int64
	seq   int64
	m     MessageContent
}

var modelRules = []forebay.RuleSettings{
	{},
	{BooleanFilter: new(bool)},
	{SQLFilter: "n > 2"},
	{SQLFilter: "color = 'red' OR n = 1"},
	{SQLFilter: "color > n"}, // an error where the message has both
	{SQLFilter: "sys.Label LIKE 'm%' AND color IS NULL"},
	{CorrelationFilter: &forebay.CorrelationFilter{Properties: forebay.Properties{"COLOR": "red"}}},
	{SQLFilter: "n >= 0", SQLAction: "SET n = n + 1; SET sys.Label = 'x' + sys.Label"},
	{SQLAction: "SET n = 10 / n; REMOVE color"}, // an error where n is 0
}

func (w *newsstand) drawSub(t *rapid.T) (topic int, sub *modelSubscription) {
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

func (w *newsstand) subscribe(t *rapid.T) {
	topic := rapid.IntRange(0, 1).Draw(t, "topic")
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	strict := rapid.Bool().Draw(t, "strict")
	q, created, err := w.s.PutSubscription(background, w.topics[topic], MessageQueue{Tenant: 1, Name: SubscriptionName(w.topics[topic].Name, name),
		Lock: testLock, MaxDeliveries: 2, topicPart: topicPart{DeadLetterFilterErrors: strict}}, defaultRule, 10)
	before, found := w.subs[topic][name]
	if err != nil || created == found {
		t.Fatalf("created %t: %v", created, err)
	}
	if !found {
		before = &modelSubscription{queue: q, rules: map[string]forebay.RuleSettings{"$Default": {}}}
		w.subs[topic][name] = before
	}
	before.strict = strict
}

func (w *newsstand) unsubscribe(t *rapid.T) {
	topic, sub := w.drawSub(t)
	if dropped, err := w.s.DropMessageQueue(background, sub.queue); err != nil || !dropped {
		t.Fatal(dropped, err)
	}
	delete(w.subs[topic], SubscriptionOf(sub.queue))
}

func (w *newsstand) changeRules(t *rapid.T) {
	_, sub := w.drawSub(t)
	name := rapid.SampledFrom([]string{"$Default", "r1"}).Draw(t, "rule")
	_, found := sub.rules[name]
	if rapid.Bool().Draw(t, "delete") {
		if deleted, err := w.s.DeleteRule(background, sub.queue, name); err != nil || deleted != found {
			t.Fatalf("deleted %t: %v", deleted, err)
		}
		delete(sub.rules, name)
		return
	}
	settings := rapid.SampledFrom(modelRules).Draw(t, "settings")
	if _, created, err := w.s.PutRule(background, sub.queue, Rule{Name: name, Settings: settings}, RuleLimits{10, 100}); err != nil || created == found {
		t.Fatalf("created %t: %v", created, err)
	}
	sub.rules[name] = settings
}

func (w *newsstand) send(t *rapid.T) {
	topic := rapid.IntRange(0, 1).Draw(t, "topic")
	var messages []MessageContent
	for i := range rapid.IntRange(1, 3).Draw(t, "messages") {
		props := forebay.Properties{}
		if rapid.Bool().Draw(t, "has color") {
			props["color"] = rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "color")
		}
		if rapid.Bool().Draw(t, "has n") {
			props["n"] = rapid.Int64Range(-1, 4).Draw(t, "n")
		}
		m := MessageContent{MessageID: fmt.Sprint(i), Subject: rapid.SampledFrom([]string{"m", "k"}).Draw(t, "subject")}
		if len(props) > 0 {
			var err error
			if m.Properties, err = json.Marshal(props); err != nil {
				t.Fatal(err)
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "scheduled") == 0 {
			at := fromMillis(w.engine.now() + 1000*rapid.Int64Range(-5, 20).Draw(t, "seconds"))
			m.ScheduledAt = &at
		}
		messages = append(messages, m)
	}
	seqs, err := w.s.Send(background, w.topics[topic], messages)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range messages {
		if m.ScheduledAt != nil && m.ScheduledAt.UnixMilli() > w.engine.now() {
			w.scheduled = append(w.scheduled, modelScheduled{topic, m.ScheduledAt.UnixMilli(), seqs[i], m})
			continue
		}
		w.publish(t, topic, seqs[i], m)
	}
}

// publish does to the model what a message that becomes active should do.
func (w *newsstand) publish(t *rapid.T, topic int, seq int64, m MessageContent) {
	for _, sub := range w.subs[topic] {
		var rules []*filter.Rule
		for name, settings := range sub.rules {
			r, err := filter.Compile(name, settings)
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, r)
		}
		slices.SortFunc(rules, func(a, b *filter.Rule) int { return strings.Compare(a.Name, b.Name) })
		view := &filter.Message{MessageID: m.MessageID, Subject: m.Subject}
		if m.Properties != nil {
			if err := json.Unmarshal(m.Properties, &view.Properties); err != nil {
				t.Fatal(err)
			}
		}
		copies, err := filter.Select(rules, view)
		for _, c := range copies {
			sub.active = append(sub.active, modelCopy{seq, c.Message.Subject, c.Message.Properties})
		}
		if err != nil && sub.strict {
			sub.dead = append(sub.dead, modelCopy{seq, m.Subject, view.Properties})
		}
	}
}

func (w *newsstand) receive(t *rapid.T) {
	_, sub := w.drawSub(t)
	n := rapid.IntRange(1, 3).Draw(t, "max")
	got, err := w.s.Receive(background, ReceiveRequest{Queue: sub.queue, Max: n, MaxBytes: 1 << 20, Delete: true})
	if err != nil {
		t.Fatal(err)
	}
	want := sub.active[:min(n, len(sub.active))]
	sub.active = sub.active[len(want):]
	compareCopies(t, sub, got, want)
}

func (w *newsstand) passTime(t *rapid.T) {
	w.engine.pass(w.s, time.Duration(rapid.IntRange(1, 15_000).Draw(t, "ms"))*time.Millisecond)
	slices.SortStableFunc(w.scheduled, func(a, b modelScheduled) int { return int(a.at - b.at) })
	for len(w.scheduled) > 0 && w.scheduled[0].at <= w.engine.now() {
		due := w.scheduled[0]
		w.scheduled = w.scheduled[1:]
		w.publish(t, due.topic, due.seq, due.m)
	}
}

func (w *newsstand) restart(t *rapid.T) {
	if err := w.s.Close(); err != nil {
		t.Fatal(err)
	}
	w.s = w.engine.reopen(t)
}

func (w *newsstand) check(t *rapid.T) {
	for topic, subs := range w.subs {
		for _, sub := range subs {
			for deadLetter, want := range map[bool][]modelCopy{false: sub.active, true: sub.dead} {
				got, _, err := w.s.Peek(background, sub.queue.Lane(deadLetter), 0, 10_000, 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				compareCopies(t, sub, got, want)
			}
		}
		counts, err := w.s.TopicCounts(background, w.topics[topic])
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

func compareCopies(t *rapid.T, sub *modelSubscription, got []Message, want []modelCopy) {
	if len(got) != len(want) {
		t.Fatalf("%s has %d messages, expected %d", sub.queue.Name, len(got), len(want))
	}
	for i, g := range got {
		var props forebay.Properties
		if g.Properties != nil {
			if err := json.Unmarshal(g.Properties, &props); err != nil {
				t.Fatal(err)
			}
		}
		if len(props)+len(want[i].props) > 0 && !reflect.DeepEqual(props, want[i].props) || g.Subject != want[i].subject || g.EnqueuedSeq != want[i].first {
			t.Fatalf("%s: message %d is %s %v of %d, expected %+v", sub.queue.Name, i, g.Subject, props, g.EnqueuedSeq, want[i])
		}
	}
}

// TestTopicModel drives random operations on topics and compares with the plain model.
func TestTopicModel(t *testing.T) {
	onEveryEngine(t, func(t *rapid.T, e engine) {
		w := &newsstand{engine: e, s: e.open(t), subs: []map[string]*modelSubscription{{}, {}}}
		defer func() { w.s.Close() }()
		for i := range 2 {
			topic, _, err := w.s.PutMessageQueue(background, MessageQueue{Tenant: 1, Name: fmt.Sprint("t/", i), topicPart: topicPart{IsTopic: true}}, 10)
			if err != nil {
				t.Fatal(err)
			}
			w.topics = append(w.topics, topic)
		}
		for range 3 {
			w.subscribe(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"subscribe": w.subscribe, "subscribe2": w.subscribe, "unsubscribe": w.unsubscribe, "rules": w.changeRules, "rules2": w.changeRules, "rules3": w.changeRules,
			"send": w.send, "send2": w.send, "send3": w.send, "send4": w.send, "receive": w.receive, "time": w.passTime, "restart": w.restart, "": w.check,
		})
	})
}
