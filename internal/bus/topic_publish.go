package bus

import (
	"errors"

	"github.com/forebayhq/forebay/internal/bus/rules"
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
	return t.Alone(func() error { return t.publish(name, message) })
}

func (t *topicTx) publish(name string, message func() (MessageContent, error)) error {
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
	_, err = t.arrivals.add(topic, arrival{MessageContent: &m})
	return err
}
