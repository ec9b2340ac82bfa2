package bus

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/filter"
	"github.com/forebayhq/forebay/internal/turns"
)

// What the subscriptions of topics may make of the messages of one call. Forwarding multiplies: a
// subscription may forward to another topic, and that to more.
const (
	maxCopies    = 10_000
	maxCopyBytes = 256 << 20
	maxSteps     = 1 << 26 // of judging them by rules: about a second, and many times what rules need that are not made to be slow
	// txSteps is what judging may take within a transaction: of one message that is activated or forwarded, and of all events
	// that are told in one topic: some 8 ms. A step takes about 15 ns.
	txSteps = 1 << 19
	// eventSteps is what any event may take, however many others the transaction tells: some 50 rules.
	eventSteps = 1 << 13
)

// A transaction that has made so much for callers, and as much again of what is due and of what stands in queues that
// forward, takes on nothing more: the rest goes into the next one. So it makes three times this and what one call or one
// message may make at most, which PostgreSQL stores in half of the time after which a transaction is given up, even where
// each copy costs a round trip.
const (
	fullCopies    = 1_000
	fullCopyBytes = 16 << 20
	fullSteps     = txSteps
)

// spread counts what topics have made of one message, of one call, or in one transaction.
type spread struct {
	copies int
	bytes  int64
	steps  int
}

func (s *spread) exhausted() bool { return s.copies > maxCopies || s.bytes > maxCopyBytes }

// full reports whether a transaction that has made that much is to end.
func (s *spread) full() bool {
	return s.copies >= fullCopies || s.bytes >= fullCopyBytes || s.steps >= fullSteps
}

func (s *spread) add(copies int, size int64) {
	s.copies += copies
	s.bytes += int64(copies) * size
}

// compiledTopic is a topic with its rules ready to be asked.
type compiledTopic struct {
	topic         MessageQueue // as of its version
	subscriptions []compiledSubscription
	costly        atomic.Bool // a message took too long to judge for a transaction
}

type compiledSubscription struct {
	queue  MessageQueue
	stored []storedRule   // by name
	rules  []*filter.Rule // made of them
	all    bool           // the rules make one copy of every message, whatever it holds
}

// storedRule is a rule as the database has it.
type storedRule struct{ name, settings string }

// topicMemory is what a transaction has read of topics.
type topicMemory struct {
	named    map[string]MessageQueue // by their names; a zero queue: there is none
	targets  map[string]MessageQueue // of forwarding, by their names
	compiled map[int64]*compiledTopic
	followed *FollowedTenants // nil: not looked up yet
	judging  map[int64]int    // steps that events have taken, by their topics
	parts    map[int64]bool   // topics in which it has stored what waits for its copies
}

// topicNamed returns a topic, from the transaction's memory where possible.
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

// Publish sends a message to a topic, by its name in the store, as a part of the transaction under way.
// Where there is no such topic, or nobody subscribes to it, it does nothing and does not ask for the
// message; it has read the topic once then, however often the transaction publishes.
func (t *Tx) Publish(name string, message func() (MessageContent, error)) error {
	return t.Alone(func() error { return t.publish(name, message) })
}

func (t *Tx) publish(name string, message func() (MessageContent, error)) error {
	topic, found, err := t.topicNamed(name)
	if err != nil || !found {
		return err
	}
	c, err := t.readyTopic(topic)
	if err == nil && len(c.subscriptions) == 0 || err != nil && !errors.Is(err, errNotReady) {
		return err
	}
	m, err := message()
	if err != nil {
		return err
	}
	_, err = t.arrive(topic, arrival{MessageContent: &m})
	return err
}

// errNotReady says that rules are to be compiled outside of transactions. It never reaches a caller.
var errNotReady = errors.New("the rules of the topic are not ready")

// txRules is how many subscriptions and rules a transaction reads and compiles, of a topic of which it does not have them ready.
const txRules = 64

const sqlManyRules = "SELECT count(*) FROM (SELECT 1 FROM queues q LEFT JOIN rules r ON r.queue = q.no WHERE q.topic = ? LIMIT ? + 0) x"

// readyTopic is compiledTopic for what can wait. Of a topic with many rules that are not ready it returns errNotReady: they
// are read and compiled outside of transactions.
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

// knownTopic returns the topic with its rules if they are in memory; nil: they are not.
func (t *Tx) knownTopic(topic MessageQueue) *compiledTopic {
	if c := t.topics.compiled[topic.No]; c != nil && c.topic.Version == topic.Version {
		return c
	}
	if c := t.W.topics.get(topic.No); c != nil && c.topic.Version == topic.Version {
		return c
	}
	return nil
}

// compiledTopic returns the topic's subscriptions and rules as of its version: from memory, or else
// from the database. The writer's memory only takes in what was committed.
func (t *Tx) compiledTopic(topic MessageQueue) (*compiledTopic, error) {
	if c := t.knownTopic(topic); c != nil {
		return c, nil
	}
	c, err := readRules(t.Conn, topic)
	if err != nil {
		return nil, err
	}
	if err := c.compile(t.W.topics.latest(topic.No), nil); err != nil {
		return nil, err
	}
	if t.topics.compiled == nil {
		t.topics.compiled = map[int64]*compiledTopic{}
	}
	t.topics.compiled[topic.No] = c
	t.After = append(t.After, func() { t.W.topics.put(c) })
	return c, nil
}

const sqlTopicRules = "SELECT r.queue, r.name, r.settings FROM queues q JOIN rules r ON r.queue = q.no WHERE q.topic = ?"

// readRules reads the topic's subscriptions and their rules, which are to be compiled.
func readRules(db driver.Conn, topic MessageQueue) (*compiledTopic, error) {
	c := &compiledTopic{topic: topic}
	places := map[int64]int{}
	err := db.Prep(sqlSubscriptions).Int(topic.No).Each(func(r driver.Row) error {
		q := readMessageQueue(r)
		places[q.No] = len(c.subscriptions)
		c.subscriptions = append(c.subscriptions, compiledSubscription{queue: q})
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = db.Prep(sqlTopicRules).Int(topic.No).Each(func(r driver.Row) error {
		place, known := places[r.Int(0)]
		if !known {
			return nil
		}
		sub := &c.subscriptions[place]
		sub.stored = append(sub.stored, storedRule{r.Text(1), string(r.Blob(2))})
		return nil
	})
	return c, err
}

// compile makes the rules ready to be asked. It takes over those that an earlier version of the topic has ready: to compile
// thousands takes long. It pauses when it is not the turn's time, with an error if nobody wants them any more.
func (c *compiledTopic) compile(before *compiledTopic, turn *turns.Turn) error {
	ready := map[int64]compiledSubscription{}
	if before != nil {
		for _, sub := range before.subscriptions {
			ready[sub.queue.No] = sub
		}
	}
	byName := func(a, b storedRule) int { return strings.Compare(a.name, b.name) }
	for i := range c.subscriptions {
		sub := &c.subscriptions[i]
		slices.SortFunc(sub.stored, byName)
		sub.rules = make([]*filter.Rule, len(sub.stored))
		known := ready[sub.queue.No]
		for n, rule := range sub.stored {
			if at, found := slices.BinarySearchFunc(known.stored, rule, byName); found && known.stored[at] == rule {
				sub.rules[n] = known.rules[at]
				continue
			}
			if err := turn.Pause(); err != nil {
				return err
			}
			sub.rules[n] = compileRule(rule.name, []byte(rule.settings))
		}
		sub.all = len(sub.rules) == 1 && sub.rules[0].Filter == filter.Constant(true) && sub.rules[0].Action == nil
	}
	return nil
}

// compileRule prepares a rule. One that this version cannot read, though another wrote it, judges no
// message: that must not keep the others from being published.
func compileRule(name string, stored []byte) *filter.Rule {
	var settings forebay.RuleSettings
	err := json.Unmarshal(stored, &settings)
	if err == nil {
		var r *filter.Rule
		if r, err = filter.Compile(name, settings); err == nil {
			return r
		}
	}
	return &filter.Rule{Name: name, Filter: unreadable{err}}
}

// unreadable is the filter of such a rule.
type unreadable struct{ err error }

func (u unreadable) Matches(*filter.Message) (bool, error) {
	return false, &filter.EvaluationError{Message: u.err.Error()}
}

// picked is a copy that a subscription is to get; with a reason, in its dead-letter subqueue.
type picked struct {
	sub     *MessageQueue
	content *MessageContent
	why     *DeadLettering
}

// pick chooses the copies that the topic's subscriptions get of a message, as [compiledTopic.pick] does, and notes that
// the transaction has spent time on it. The error is errNotReady if the rules are to be compiled outside of transactions.
func (t *Tx) pick(topic MessageQueue, message *MessageContent, made *spread) ([]picked, error) {
	c, err := t.readyTopic(topic)
	if err != nil {
		return nil, err
	}
	may := min(maxSteps-made.steps, txSteps)
	left := may
	picks, err := c.pick(message, t.Now, made, &left, nil)
	t.copied.steps += may - left
	made.steps += may - left // judging is paid for, whatever came of it
	return picks, err
}

// pickEvent is pick for a message that cannot be refused. What takes too long to judge counts as what a rule
// cannot judge.
func (t *Tx) pickEvent(topic MessageQueue, message *MessageContent) ([]picked, error) {
	c, err := t.readyTopic(topic)
	if err != nil {
		return nil, err
	}
	may := max(txSteps-t.topics.judging[topic.No], eventSteps)
	left := may
	picks, err := c.pick(message, t.Now, nil, &left, nil)
	t.copied.steps += may - left
	if t.topics.judging == nil {
		t.topics.judging = map[int64]int{}
	}
	t.topics.judging[topic.No] += may - left
	return picks, err
}

// pick chooses the copies that the topic's subscriptions get of a message at that time and adds them to what has been made
// already. It takes the steps that judging needs off those that are left. If that would be too much, or choosing them takes too
// long, it adds no copies and returns errFanOut or errSteps, which is an errFanOut too. Without a spread it makes
// any number, and a subscription that takes too long counts as one whose rules cannot judge the message. Outside of
// transactions it pauses between rules when it is not its turn.
func (c *compiledTopic) pick(message *MessageContent, at int64, made *spread, left *int, turn *turns.Turn) ([]picked, error) {
	picks := []picked{}
	if len(c.subscriptions) == 0 {
		return picks, nil
	}
	content := *message
	content.TTL = lifetime(c.topic.DefaultTTL, message.TTL)
	var total spread
	if made != nil {
		total = *made
	}
	size := content.Size()
	err := c.selectCopies(&content, at, left, made == nil, turn, func(sub *MessageQueue, copied *MessageContent, why *DeadLettering) error {
		if total.add(1, size); made != nil && total.exhausted() {
			return errFanOut
		}
		picks = append(picks, picked{sub, copied, why})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if made != nil {
		*made = total
	}
	return picks, nil
}

// fanOut gives the topic's subscriptions their copies of a message that became active in it.
func (t *Tx) fanOut(topic MessageQueue, seq int64, a arrival) error {
	picks := a.picks
	a.picks = nil // they are not those of a topic that a copy is forwarded to
	if a.first == 0 {
		a.first = seq
	}
	if t.handsOut(topic) || a.inParts {
		return t.storePart(topic, seq, a, len(picks))
	}
	if picks == nil {
		var err error
		picks, err = t.pickEvent(topic, a.MessageContent)
		if errors.Is(err, errNotReady) { // it waits for them, and others behind it
			return t.storePart(topic, seq, a, 0)
		}
		if err != nil {
			return err
		}
	}
	if len(picks) > a.partMost() {
		return t.storePart(topic, seq, a, len(picks))
	}
	if a.spread == nil {
		a.spread = &spread{copies: len(picks), bytes: int64(len(picks)) * a.Size()}
	}
	return t.copyTo(picks, seq, a)
}

// copyTo makes copies of the message that became active in a topic under that number.
func (t *Tx) copyTo(picks []picked, seq int64, a arrival) error {
	a.inParts, a.bySender = false, false // which is not so of a topic that a copy is forwarded to
	t.copied.add(len(picks), a.shareAmong(seq, len(picks)))
	missing := len(picks) - len(t.Queue.Seqs)
	for _, p := range picks {
		missing += int(driver.BoolInt(p.sub.ForwardTo != "")) // where it goes it gets another
	}
	if missing > 1 {
		if err := t.Queue.ReserveSeqs(missing); err != nil {
			return err
		}
	}
	for _, p := range picks {
		a.MessageContent = p.content
		if p.why == nil {
			if _, err := t.arrive(*p.sub, a); err != nil {
				return err
			}
			continue
		}
		seq, err := t.Queue.NewSeq()
		if err != nil {
			return err
		}
		if err := t.arriveDead(*p.sub, seq, a, *p.why); err != nil {
			return err
		}
	}
	return nil
}

// selectCopies calls give for each copy that the subscriptions make of a message at that time; with a
// reason, for one that is to be dead-lettered. It takes the steps that judging the message needs off those that are left; where
// there are too few it goes on without those whose rules need them, if it may, or returns errSteps.
func (c *compiledTopic) selectCopies(content *MessageContent, at int64, left *int, goesOn bool, turn *turns.Turn, give func(*MessageQueue, *MessageContent, *DeadLettering) error) error {
	var view *filter.Message // made once one is needed
	for i := range c.subscriptions {
		sub := &c.subscriptions[i]
		if sub.all {
			if err := give(&sub.queue, content, nil); err != nil {
				return err
			}
			continue
		}
		if view == nil {
			var err error
			if view, err = content.view(at); err != nil {
				return err
			}
			if view.Steps = left; turn != nil {
				view.Pause = turn.Pause
			}
		}
		copies, ruleErr := filter.Select(sub.rules, view)
		if errors.Is(ruleErr, filter.ErrSteps) && !goesOn {
			return errSteps
		}
		if errors.Is(ruleErr, filter.ErrStopped) {
			return ruleErr
		}
		for _, made := range copies {
			if made.TooLarge != "" {
				if err := give(&sub.queue, content, &DeadLettering{Reason: forebay.ReasonHeaderSize, Description: made.TooLarge}); err != nil {
					return err
				}
				continue
			}
			copied := content
			if made.Rule != "" {
				var err error
				if copied, err = content.changed(made.Message); err != nil {
					return err
				}
			}
			if err := give(&sub.queue, copied, nil); err != nil {
				return err
			}
		}
		if ruleErr != nil && sub.queue.DeadLetterFilterErrors {
			if err := give(&sub.queue, content, &DeadLettering{Reason: forebay.ReasonFilter, Description: ruleErr.Error()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// view is the message as rules see it.
func (c *MessageContent) view(at int64) (*filter.Message, error) {
	m := &filter.Message{
		MessageID: c.MessageID, CorrelationID: c.CorrelationID, SessionID: c.SessionID, Subject: c.Subject, To: c.To, ReplyTo: c.ReplyTo,
		ReplyToSessionID: c.ReplyToSessionID, ContentType: c.ContentType, PartitionKey: c.PartitionKey, TimeToLive: c.TTL, EnqueuedTime: driver.FromMillis(at), Size: c.Size(),
	}
	if c.ScheduledAt != nil {
		m.ScheduledEnqueueTime = *c.ScheduledAt
	}
	if c.Properties == nil {
		return m, nil
	}
	return m, json.Unmarshal(c.Properties, &m.Properties)
}

// changed returns the message as a rule's action left it.
func (c *MessageContent) changed(m *filter.Message) (*MessageContent, error) {
	d := *c
	d.MessageID, d.CorrelationID, d.SessionID, d.Subject, d.To, d.ReplyTo = m.MessageID, m.CorrelationID, m.SessionID, m.Subject, m.To, m.ReplyTo
	d.ReplyToSessionID, d.ContentType, d.PartitionKey = m.ReplyToSessionID, m.ContentType, m.PartitionKey
	var err error
	d.Properties, err = json.Marshal(m.Properties)
	return &d, err
}
