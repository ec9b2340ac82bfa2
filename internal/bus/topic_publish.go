package bus

import (
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db/driver"
)

type (
	compiledTopic = rules.Topic[MessageQueue]
	pick          = rules.Copy[MessageQueue]
	judgement     = rules.Judgement[MessageQueue]
)

// topicTx publishes to topics, and judges messages by their rules. It reads a topic and its rules
// once a transaction.
type topicTx struct {
	*Tx
	byName   map[string]MessageQueue // a zero queue: there is no such topic
	compiled map[int64]*compiledTopic
	followed *FollowedTenants // nil: not read yet
	counter  *int64           // the counter of changes of topics; nil: not read yet
	judging  map[int64]int    // steps that judging events took, by topic
	soon     string           // the topic that was announced last
}

// named returns a topic. The transaction reads it once.
func (t *topicTx) named(name string) (topic MessageQueue, found bool, err error) {
	topic, known := t.byName[name]
	if !known {
		if topic, found, err = t.MessageQueueNamed(name); err != nil {
			return topic, false, err
		}
		if !found || !topic.IsTopic {
			topic = MessageQueue{}
		}
		if t.byName == nil {
			t.byName = map[string]MessageQueue{}
		}
		t.byName[name] = topic
	}
	return topic, topic.IsTopic, nil
}

// Publication is a message for a topic, by the topic's stored name.
type Publication struct {
	Topic   string
	Message func() (MessageContent, error)
}

// Publish sends a message to a topic, by its stored name; see PublishAll.
func (t *topicTx) Publish(name string, message func() (MessageContent, error)) error {
	return t.PublishAll([]Publication{{name, message}})
}

// PublishAll sends messages to topics, in their order, as a part of the transaction. A message
// whose topic does not exist, or has no subscription, is not asked for. The transaction reads a
// topic once.
func (t *topicTx) PublishAll(list []Publication) error {
	if t.W.Shared() {
		if err := t.foreseeTopics(list); err != nil {
			return err
		}
	}
	events := make([]event, 0, len(list))
	for _, p := range list {
		topic, found, err := t.named(p.Topic)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		c, err := t.ready(topic)
		if err == nil && len(c.Subscriptions) == 0 {
			continue
		}
		if unlessNotReady(err) != nil {
			return err
		}
		m, err := p.Message()
		if err != nil {
			return err
		}
		events = append(events, event{topic: topic, arrival: arrival{MessageContent: &m}})
	}
	if t.W.Shared() {
		if err := t.foreseeEvents(events); err != nil {
			return err
		}
	}
	return t.Alone(func() error { // for what a transaction makes of topics is counted
		for i := range events {
			if _, err := t.arrivals.add(events[i].topic, events[i].arrival); err != nil {
				return err
			}
		}
		return nil
	})
}

// event is a message on its way into a topic.
type event struct {
	topic MessageQueue
	arrival
}

// EventNumbers is how many numbers most events take: one, and one for each copy.
const EventNumbers = 4

// WillPublish tells that something will be published to the topic; "": to none. What that needs is
// fetched with whatever the transaction asks before. Entities do not change meanwhile: see
// [PrefetchReply].
func (t *topicTx) WillPublish(topic string) {
	if _, known := t.byName[topic]; !known && topic != "" && t.soon != topic { // most events go where the one before went
		t.soon = topic
		t.PrefetchSoon(t.asksOf(topic))
	}
}

// asksOf asks for a topic, and for its rules if they are not in memory and its number is known.
func (t *topicTx) asksOf(topic string) []driver.Prefetch {
	asks := []driver.Prefetch{shared(driver.NewPrefetch(entity.SQLNamed, driver.RowName{Of: "topics", ID: topic}).Text(topic))}
	if f := t.followed; f != nil && f.Numbers[topic] != 0 && t.W.topics.Get(f.Numbers[topic]) == nil {
		asks = append(asks, prefetchRules(f.Numbers[topic])...)
	}
	return asks
}

// foreseeTopics fetches topics and their rules, and numbers for their events, where each statement
// would cost a round trip.
func (t *topicTx) foreseeTopics(list []Publication) error {
	f := foresight{Tx: t.Tx, asked: map[driver.RowName]bool{}, taken: len(t.Queue.Seqs)}
	for _, p := range list {
		if _, known := t.byName[p.Topic]; !known && !f.asked[driver.RowName{Of: "topics", ID: p.Topic}] {
			if asks := t.asksOf(p.Topic); !t.Prefetched(asks[0]) {
				f.ask(func() error { return nil }, asks...)
			}
		}
	}
	if len(f.asks) > 0 {
		f.takeNumbers(EventNumbers * len(list))
	}
	if err := t.Prefetch(f.asks); err != nil {
		return err
	}
	if err := f.answer(); err != nil {
		return err
	}
	for _, p := range list {
		topic, found, err := t.named(p.Topic)
		if err != nil {
			return err
		}
		if found && t.known(topic) == nil {
			f.ask(func() error { return nil }, prefetchRules(topic.No)...)
		}
	}
	return t.Prefetch(f.asks)
}

// foreseeEvents picks the copies of events and fetches what they need. Without copies, an event is
// judged as it enters its topic.
func (t *topicTx) foreseeEvents(events []event) error {
	for i := range events {
		e := &events[i]
		if t.fanOut.copiesPending(e.topic) {
			continue
		}
		var err error
		if e.picks, err = t.pickEvent(e.topic, e.MessageContent); unlessNotReady(err) != nil {
			return err
		}
	}
	return t.foresee(len(t.Queue.Seqs), func(f *foresight) {
		for i := range events {
			e := &events[i]
			if f.numbers += 1 + len(e.picks); e.picks != nil {
				f.into(e.topic, e.MessageContent, e.picks, 0)
			}
		}
	})
}
