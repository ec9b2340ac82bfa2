package bus

import (
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Forwarded messages, messages that become active and events are judged inside the transaction.
// It uses rules that are in memory, or reads a few.

// errNotReady says that rules must be compiled outside of transactions. It never reaches a
// caller.
var errNotReady = errors.New("the rules of the topic are not ready")

// txRules is how many subscriptions and rules of a topic a transaction reads and compiles.
const txRules = 64

const sqlManyRules = "SELECT count(*) FROM (SELECT 1 FROM queues q LEFT JOIN rules r ON r.queue = q.no WHERE q.topic = ? LIMIT ? + 0) x"

// unlessNotReady takes errNotReady for no error.
func unlessNotReady(err error) error {
	if errors.Is(err, errNotReady) {
		return nil
	}
	return err
}

// ready returns the topic with its compiled rules. If there are many and they are not compiled
// yet, it returns errNotReady: that is then done outside of transactions.
func (t *topicTx) ready(topic MessageQueue) (*compiledTopic, error) {
	if c := t.known(topic); c != nil {
		return c, nil
	}
	many := false
	if _, err := t.Prep(sqlManyRules).Int(topic.No).Int(txRules + 1).One(func(r driver.Row) { many = r.Int(0) > txRules }); err != nil {
		return nil, err
	}
	if many {
		return nil, errNotReady
	}
	return t.compile(topic)
}

// known returns the topic with its rules if they are in memory, or nil.
func (t *topicTx) known(topic MessageQueue) *compiledTopic {
	if c := t.compiled[topic.No]; c != nil && c.Version == topic.Version {
		return c
	}
	if c := t.W.topics.Get(topic.No); c != nil && c.Version == topic.Version {
		return c
	}
	return nil
}

// compile reads and compiles the topic's subscriptions and rules as of its version. The writer's
// memory takes in only what was committed.
func (t *topicTx) compile(topic MessageQueue) (*compiledTopic, error) {
	c, err := entity.ReadTopic(t.Conn, topic)
	if err != nil {
		return nil, err
	}
	if err := c.Compile(t.W.topics.Former(topic.No), nil); err != nil {
		return nil, err
	}
	if t.compiled == nil {
		t.compiled = map[int64]*compiledTopic{}
	}
	t.compiled[topic.No] = c
	t.After = append(t.After, func() { t.W.topics.Put(c) })
	return c, nil
}

// pick picks the copies that the topic's subscriptions get of a message, like [rules.Topic.Pick],
// and counts the steps that it takes. It returns errNotReady if the rules must be compiled
// outside of transactions.
func (t *topicTx) pick(topic MessageQueue, message *MessageContent, fanOut *rules.FanOut) ([]pick, error) {
	c, err := t.ready(topic)
	if err != nil {
		return nil, err
	}
	may := min(rules.MaxSteps-fanOut.Steps, rules.TxSteps)
	left := may
	picks, err := c.Pick(message, t.Now, fanOut, &left, nil)
	t.copied.Steps += may - left
	fanOut.Steps += may - left // steps count even if judging failed
	return picks, err
}

// pickEvent is pick for a message that cannot be refused. A subscription whose rules take too
// long counts as one whose rules cannot judge the message.
func (t *topicTx) pickEvent(topic MessageQueue, message *MessageContent) ([]pick, error) {
	c, err := t.ready(topic)
	if err != nil {
		return nil, err
	}
	may := max(rules.TxSteps-t.judging[topic.No], rules.EventSteps)
	left := may
	picks, err := c.Pick(message, t.Now, nil, &left, nil)
	t.copied.Steps += may - left
	if t.judging == nil {
		t.judging = map[int64]int{}
	}
	t.judging[topic.No] += may - left
	return picks, err
}

// pickDue is pick for a message that can be judged later. If the topic's rules took too long for
// another message, it returns rules.ErrSteps at once as long as messages can be judged outside.
// Trying again and again would delay everybody.
func (t *topicTx) pickDue(topic MessageQueue, message *MessageContent, fanOut *rules.FanOut) ([]pick, error) {
	c, err := t.ready(topic)
	if err != nil {
		return nil, err
	}
	if c.Costly.Load() && t.W.slow.Room(topic.Tenant) {
		return nil, rules.ErrSteps
	}
	picks, err := t.pick(topic, message, fanOut)
	var refused *forebay.Error
	if errors.As(err, &refused) && refused == rules.ErrSteps {
		c.Costly.Store(true)
	}
	return picks, err
}

// judgeLater has a message judged outside the transaction if the error says that judging takes
// too long within.
func (t *topicTx) judgeLater(why error, m rules.SlowMessage) {
	var refused *forebay.Error
	if errors.As(why, &refused); refused != rules.ErrSteps && !errors.Is(why, errNotReady) {
		return
	}
	t.After = append(t.After, func() { t.W.slow.Put(m) })
}

// judged returns what was judged before the transaction, if the topic has not changed. Without a
// judgement it judges now.
func (t *topicTx) judged(topic MessageQueue, messages []MessageContent, j *judgement) (picks [][]pick, fanOut *rules.FanOut, err error) {
	if j != nil {
		if j.Version != topic.Version {
			return nil, nil, errTopicChanged
		}
		all := j.FanOut // the transaction may be tried again
		return j.Copies, &all, nil
	}
	picks, fanOut = make([][]pick, len(messages)), &rules.FanOut{}
	for i := range messages {
		if fanOut.Steps > rules.TxSteps {
			return nil, nil, rules.ErrSteps
		}
		picks[i], err = t.pick(topic, &messages[i], fanOut)
		if errors.Is(err, errNotReady) {
			err = errTopicChanged
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return picks, fanOut, nil
}
