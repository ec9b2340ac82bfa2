package bus

import (
	"context"
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/turns"
)

// Senders judge messages before the transaction that stores the copies. Rules may be slow, and
// the transaction keeps everybody else waiting. The transaction compares the topic's version with
// the one that was judged, and the sender judges again if it differs.

// judgeTries is how often a send is judged before its transaction if the topic changes each time.
const judgeTries = 4

// errTopicChanged ends a transaction whose messages were judged by rules that have changed since.
var errTopicChanged = forebay.Errorf(forebay.CodeUnavailable, "the topic is being changed; try again")

// topicChanged tells errTopicChanged from other errors of its code, after which it is not known
// whether the messages were stored.
func topicChanged(err error) bool {
	var refused *forebay.Error
	return errors.As(err, &refused) && refused == errTopicChanged
}

// judge applies a topic's rules to all messages, or to none. With fresh it reads the topic's
// version first. A refusal always holds for the current version. It returns nil if there is no
// such topic.
func (s *Store) judge(ctx context.Context, no int64, messages []MessageContent, fresh bool) (*judgement, error) {
	c := s.topics.Get(no)
	for {
		if fresh || c == nil {
			known, read, err := s.topicFor(ctx, no, fresh)
			if known == nil || err != nil {
				return nil, err
			}
			c, fresh = known, read
		}
		j, err := c.Judge(ctx, messages, s.Writer.Conn.Now())
		var refused *forebay.Error
		if fresh || !errors.As(err, &refused) {
			return j, err
		}
		now, _, readErr := s.topicFor(ctx, no, true)
		switch {
		case now == nil || readErr != nil:
			return nil, readErr
		case now.Version == c.Version:
			return nil, err
		}
		c, fresh = now, true
	}
}

// Explain says what a topic's rules, and one more unless it is nil, make of a message. chosen is
// the name of the only subscription to look at; "": all.
func Explain(ctx context.Context, s *Store, topic MessageQueue, m *MessageContent, extra *forebay.RuleSettings, chosen string) (forebay.RuleTest, error) {
	c, _, err := s.topicFor(ctx, topic.No, true)
	if err != nil {
		return forebay.RuleTest{}, err
	}
	if c == nil {
		return forebay.RuleTest{}, entity.ErrNoTopic
	}
	return c.Explain(ctx, m, s.Writer.Conn.Now(), extra, chosen, func(q MessageQueue) string { return entity.SubscriptionOf(q.Name) })
}

// topicFor returns the topic with its compiled rules, or nil if there is none, and whether it was
// read. Otherwise another caller has read it meanwhile, which is not good enough if it must be
// fresh.
func (s *Store) topicFor(ctx context.Context, no int64, fresh bool) (c *compiledTopic, read bool, err error) {
	// If several callers need the rules, one compiles them.
	leave, err := s.topics.Enter(ctx, no)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	if c = s.topics.Get(no); c != nil && !fresh {
		return c, false, nil
	}
	c, err = s.compileTopic(ctx, no)
	return c, true, err
}

// compileTopic returns the current topic for topicFor, which has entered.
func (s *Store) compileTopic(ctx context.Context, no int64) (*compiledTopic, error) {
	known := s.topics.Get(no)
	c, err := s.CurrentTopic(ctx, no, known)
	if c == nil || c == known || err != nil {
		return c, err
	}
	// Compiling takes long, so it does not hold the connection.
	turn := turns.Begin(ctx)
	defer turn.End()
	if err := c.Compile(s.topics.Former(no), turn); err != nil {
		return nil, err
	}
	s.topics.Put(c)
	return c, nil
}

// activateSlow judges a scheduled message and then activates it, unless the message or its topic
// has changed meanwhile.
func (s *Store) activateSlow(ctx context.Context, m rules.SlowMessage) error {
	var a arrival
	var p pendingMessage
	waits := false
	err := s.Read(ctx, func(c driver.Conn) (err error) {
		if p, waits, err = readPending(c, m.Seq); err != nil || waits {
			a = p.arrival
			return err
		}
		a, err = arrivalOf(c, m.Seq, c.Now())
		return err
	})
	if err != nil || a.MessageContent == nil {
		return err
	}
	if waits {
		return s.copySlow(ctx, m, p)
	}
	j, err := s.judge(ctx, m.Topic, []MessageContent{*a.MessageContent}, true)
	if j == nil || err != nil {
		return err
	}
	_, err = db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		topic, found, err := entity.Topic(t.Conn, m.Topic)
		if err != nil || !found || topic.Version != j.Version {
			return struct{}{}, err
		}
		waits, err := t.any("SELECT 1 FROM messages WHERE seq = ? AND subqueue + 0 = ? AND flow + 0 = ?", m.Seq, int64(topic.Subqueue(false)), scheduledFlow)
		if err != nil || !waits {
			return struct{}{}, err
		}
		a := a // the transaction may be tried again
		fanOut := j.FanOut
		a.picks, a.fanOut = j.Copies[0], &fanOut
		return struct{}{}, t.due.activateScheduled(topic, m.Seq, a)
	})
	return err
}
