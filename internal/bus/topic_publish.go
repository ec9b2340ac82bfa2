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

// topicMemory is what a transaction has read of topics.
type topicMemory struct {
	named    map[string]MessageQueue // topics by name; a zero queue: there is none
	targets  map[string]MessageQueue // queues that others forward to, by name
	compiled map[int64]*compiledTopic
	followed *FollowedTenants // nil: not read yet
	judging  map[int64]int    // steps that judging events took, by topic
	pending  map[int64]bool   // topics in which it has stored pending messages
}

// topicNamed returns a topic. The transaction reads it once.
func (t *Tx) topicNamed(name string) (topic MessageQueue, found bool, err error) {
	topic, known := t.topics.named[name]
	if !known {
		if topic, found, err = t.MessageQueueNamed(name); err != nil {
			return topic, false, err
		}
		if !found || !topic.IsTopic {
			topic = MessageQueue{}
		}
		if t.topics.named == nil {
			t.topics.named = map[string]MessageQueue{}
		}
		t.topics.named[name] = topic
	}
	return topic, topic.IsTopic, nil
}

// Publish sends a message to a topic, by its stored name, as a part of the transaction. It does
// nothing, and does not ask for the message, if there is no such topic or no subscription. It
// reads the topic once a transaction.
func (t *Tx) Publish(name string, message func() (MessageContent, error)) error {
	return t.Alone(func() error { return t.publish(name, message) })
}

func (t *Tx) publish(name string, message func() (MessageContent, error)) error {
	topic, found, err := t.topicNamed(name)
	if err != nil || !found {
		return err
	}
	c, err := t.readyTopic(topic)
	if err == nil && len(c.Subscriptions) == 0 || err != nil && !errors.Is(err, errNotReady) {
		return err
	}
	m, err := message()
	if err != nil {
		return err
	}
	_, err = t.arrive(topic, arrival{MessageContent: &m})
	return err
}

// errNotReady says that rules must be compiled outside of transactions. It never reaches a
// caller.
var errNotReady = errors.New("the rules of the topic are not ready")

// txRules is how many subscriptions and rules of a topic a transaction reads and compiles.
const txRules = 64

const sqlManyRules = "SELECT count(*) FROM (SELECT 1 FROM queues q LEFT JOIN rules r ON r.queue = q.no WHERE q.topic = ? LIMIT ? + 0) x"

// readyTopic returns the topic with its compiled rules. If there are many and they are not
// compiled yet, it returns errNotReady: that is then done outside of transactions.
func (t *Tx) readyTopic(topic MessageQueue) (*compiledTopic, error) {
	if c := t.knownTopic(topic); c != nil {
		return c, nil
	}
	many := false
	if _, err := t.Prep(sqlManyRules).Int(topic.No).Int(txRules + 1).One(func(r driver.Row) { many = r.Int(0) > txRules }); err != nil {
		return nil, err
	}
	if many {
		return nil, errNotReady
	}
	return t.compiledTopic(topic)
}

// knownTopic returns the topic with its rules if they are in memory, or nil.
func (t *Tx) knownTopic(topic MessageQueue) *compiledTopic {
	if c := t.topics.compiled[topic.No]; c != nil && c.Version == topic.Version {
		return c
	}
	if c := t.W.topics.Get(topic.No); c != nil && c.Version == topic.Version {
		return c
	}
	return nil
}

// compiledTopic returns the topic's subscriptions and rules as of its version, from memory or
// from the database. The writer's memory takes in only what was committed.
func (t *Tx) compiledTopic(topic MessageQueue) (*compiledTopic, error) {
	if c := t.knownTopic(topic); c != nil {
		return c, nil
	}
	c, err := readRules(t.Conn, topic)
	if err != nil {
		return nil, err
	}
	if err := c.Compile(t.W.topics.Former(topic.No), nil); err != nil {
		return nil, err
	}
	if t.topics.compiled == nil {
		t.topics.compiled = map[int64]*compiledTopic{}
	}
	t.topics.compiled[topic.No] = c
	t.After = append(t.After, func() { t.W.topics.Put(c) })
	return c, nil
}

const sqlTopicRules = "SELECT r.queue, r.name, r.settings FROM queues q JOIN rules r ON r.queue = q.no WHERE q.topic = ?"

// readRules reads the topic's subscriptions and their rules, which are still to be compiled.
func readRules(db driver.Conn, topic MessageQueue) (*compiledTopic, error) {
	c := &compiledTopic{No: topic.No, Version: topic.Version, DefaultTTL: topic.DefaultTTL}
	indexes := map[int64]int{} // of subscriptions, by their numbers
	err := db.Prep(sqlSubscriptions).Int(topic.No).Each(func(r driver.Row) error {
		q := readMessageQueue(r)
		indexes[q.No] = len(c.Subscriptions)
		c.Subscriptions = append(c.Subscriptions, rules.Subscription[MessageQueue]{No: q.No, Queue: q, DeadLetterFilterErrors: q.DeadLetterFilterErrors})
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = db.Prep(sqlTopicRules).Int(topic.No).Each(func(r driver.Row) error {
		if i, known := indexes[r.Int(0)]; known {
			c.Subscriptions[i].AddRule(r.Text(1), r.Blob(2))
		}
		return nil
	})
	return c, err
}

// pick picks the copies that the topic's subscriptions get of a message, like [rules.Topic.Pick],
// and counts the steps that it takes. It returns errNotReady if the rules must be compiled
// outside of transactions.
func (t *Tx) pick(topic MessageQueue, message *MessageContent, fanOut *rules.FanOut) ([]pick, error) {
	c, err := t.readyTopic(topic)
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
func (t *Tx) pickEvent(topic MessageQueue, message *MessageContent) ([]pick, error) {
	c, err := t.readyTopic(topic)
	if err != nil {
		return nil, err
	}
	may := max(rules.TxSteps-t.topics.judging[topic.No], rules.EventSteps)
	left := may
	picks, err := c.Pick(message, t.Now, nil, &left, nil)
	t.copied.Steps += may - left
	if t.topics.judging == nil {
		t.topics.judging = map[int64]int{}
	}
	t.topics.judging[topic.No] += may - left
	return picks, err
}

// fanOut gives the topic's subscriptions their copies of a message that became active in it.
func (t *Tx) fanOut(topic MessageQueue, seq int64, a arrival) error {
	picks := a.picks
	a.picks = nil // they do not hold for a topic that a copy is forwarded to
	if a.first == 0 {
		a.first = seq
	}
	if t.copiesPending(topic) || a.inBatches {
		return t.storePending(topic, seq, a, len(picks))
	}
	if picks == nil {
		var err error
		picks, err = t.pickEvent(topic, a.MessageContent)
		if errors.Is(err, errNotReady) { // it waits for its rules, and later messages wait for it
			return t.storePending(topic, seq, a, 0)
		}
		if err != nil {
			return err
		}
	}
	if len(picks) > a.batchSize() {
		return t.storePending(topic, seq, a, len(picks))
	}
	if a.fanOut == nil {
		a.fanOut = &rules.FanOut{Copies: len(picks), Bytes: int64(len(picks)) * a.Size()}
	}
	return t.copyTo(picks, seq, a)
}

// copyTo makes copies of the message that became active in a topic under that number.
func (t *Tx) copyTo(picks []pick, seq int64, a arrival) error {
	a.inBatches, a.bySender = false, false // these do not hold for a topic that a copy is forwarded to
	t.copied.Add(len(picks), a.shareAmong(seq, len(picks)))
	missing := len(picks) - len(t.Queue.Seqs)
	for _, p := range picks {
		missing += int(driver.BoolInt(p.To.Queue.ForwardTo != "")) // it gets another number where it is forwarded to
	}
	if missing > 1 {
		if err := t.Queue.ReserveSeqs(missing); err != nil {
			return err
		}
	}
	for _, p := range picks {
		a.MessageContent = p.Content
		if p.Why == nil {
			if _, err := t.arrive(p.To.Queue, a); err != nil {
				return err
			}
			continue
		}
		seq, err := t.Queue.NewSeq()
		if err != nil {
			return err
		}
		if err := t.arriveDead(p.To.Queue, seq, a, *p.Why); err != nil {
			return err
		}
	}
	return nil
}
