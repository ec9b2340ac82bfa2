package bus

import (
	"errors"

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

// Publish sends a message to a topic, by its stored name, as a part of the transaction. It does
// nothing, and does not ask for the message, if there is no such topic or no subscription. It
// reads the topic once a transaction.
func (t *topicTx) Publish(name string, message func() (MessageContent, error)) error {
	if t.W.Shared() {
		if err := t.foreseeTopic(name); err != nil {
			return err
		}
	}
	topic, found, err := t.named(name)
	if err != nil || !found {
		return err
	}
	c, err := t.ready(topic)
	if err == nil && len(c.Subscriptions) == 0 || err != nil && !errors.Is(err, errNotReady) {
		return err
	}
	m, err := message()
	if err != nil {
		return err
	}
	a := arrival{MessageContent: &m}
	if t.W.Shared() {
		if a.picks, err = t.foreseeEvent(topic, &m); err != nil {
			return err
		}
	}
	return t.Alone(func() error { // for what a transaction makes of topics is counted
		_, err := t.arrivals.add(topic, a)
		return err
	})
}

// eventNumbers is how many numbers most events take: one, and one for each copy.
const eventNumbers = 4

// foreseeTopic fetches a topic and its rules, and numbers for an event, where each statement would
// cost a round trip.
func (t *topicTx) foreseeTopic(name string) error {
	f := foresight{Tx: t.Tx, asked: map[driver.RowName]bool{}}
	f.takeNumbers(eventNumbers)
	f.ask(func() error { return nil }, shared(driver.NewPrefetch(sqlQueueName, driver.RowName{Of: "topics", ID: name}).Text(name)))
	if err := t.Prefetch(f.asks); err != nil {
		return err
	}
	if err := f.answer(); err != nil {
		return err
	}
	topic, found, err := t.named(name)
	if err != nil || !found || t.known(topic) != nil {
		return err
	}
	return t.Prefetch(prefetchRules(topic.No))
}

// foreseeEvent picks the copies of an event and fetches what they need. Without copies, the event
// is judged as it enters the topic.
func (t *topicTx) foreseeEvent(topic MessageQueue, m *MessageContent) (picks []pick, err error) {
	if !t.fanOut.copiesPending(topic) {
		if picks, err = t.pickEvent(topic, m); unlessNotReady(err) != nil {
			return nil, err
		}
	}
	return picks, t.foresee(eventNumbers, func(f *foresight) {
		f.numbers += 1 + len(picks)
		if picks != nil {
			f.into(topic, m, picks, 0)
		}
	})
}
