package bus

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
)

// updateTopic writes the columns that update does not.
func (t *entityTx) updateTopic(q MessageQueue) error {
	if !q.IsTopic && q.Topic == 0 {
		return nil
	}
	err := t.Prep("UPDATE queues SET is_topic = ?, topic = ?, dead_letter_filter_errors = ? WHERE no = ?").
		Int(driver.BoolInt(q.IsTopic)).IntOrNull(q.Topic).Int(driver.BoolInt(q.DeadLetterFilterErrors)).Int(q.No).Exec()
	if err != nil {
		return err
	}
	if q.IsTopic {
		return t.ChangeTopic(q.No)
	}
	return t.ChangeTopic(q.Topic)
}

// ChangeTopic gives the topic a new version, so that every process reads it again. Versions are
// sequence numbers, which are never given twice.
func (t *entityTx) ChangeTopic(no int64) error {
	version, err := t.Queue.NewSeq()
	if err != nil {
		return err
	}
	t.Topics.forget()
	t.After = append(t.After, func() { t.W.topics.Forget(no) })
	if err := t.Prep(schema.SQLCount).Text(topicsCounter).Int(version).Exec(); err != nil {
		return err
	}
	return t.Prep("UPDATE queues SET version = ? WHERE no = ? AND is_topic = 1").Int(version).Int(no).Exec()
}

// dropFromTopic does what only topics and subscriptions need when they are dropped.
func (t *entityTx) dropFromTopic(no int64) error {
	t.Topics.forget()
	var topic int64
	if _, err := t.Prep("SELECT topic FROM queues WHERE no = ? AND topic IS NOT NULL").Int(no).One(func(r driver.Row) { topic = r.Int(0) }); err != nil {
		return err
	}
	if topic != 0 {
		if err := t.Prep("DELETE FROM rules WHERE queue = ?").Int(no).Exec(); err != nil {
			return err
		}
		if err := t.Prep("UPDATE queues SET topic = NULL WHERE no = ?").Int(no).Exec(); err != nil {
			return err
		}
		return t.ChangeTopic(topic)
	}
	var subscriptions []int64
	err := t.Prep("SELECT no FROM queues WHERE topic = ? AND kind = 'messages' ORDER BY name").Int(no).Each(func(r driver.Row) error {
		subscriptions = append(subscriptions, r.Int(0))
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.ChangeTopic(no); err != nil {
		return err
	}
	for _, sub := range subscriptions {
		if _, err := t.Drop(sub); err != nil {
			return err
		}
	}
	return nil
}

const (
	sqlTopicNo       = messageQueueColumns + "AND no = ? AND is_topic = 1"
	sqlSubscriptions = messageQueueColumns + "AND topic = ? ORDER BY name"
)

// PutSubscription creates a subscription of the topic with these rules, or changes the settings
// of an existing one and leaves its rules. A topic may have at most limit subscriptions.
func (s *Store) PutSubscription(ctx context.Context, topic, sub MessageQueue, rules []Rule, limit int) (stored MessageQueue, created bool, err error) {
	return s.Entities().PutSubscription(ctx, topic, sub, rules, PutOptions{Limit: limit})
}

// PutSubscription is Store.PutSubscription with options.
func (s EntityStore) PutSubscription(ctx context.Context, topic, sub MessageQueue, rules []Rule, opts PutOptions) (stored MessageQueue, created bool, err error) {
	p, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: topic.Tenant, Rows: entityRows}, func(t *Tx) (p Put, err error) {
		known, err := t.Prep(sqlTopicNo).Int(topic.No).One(func(r driver.Row) { topic = readMessageQueue(r) })
		if err != nil {
			return p, err
		}
		if !known {
			return p, ErrNoTopic
		}
		if err := t.keep(topic.No, topic.Idle); err != nil {
			return p, err
		}
		sub.Topic, sub.TopicIdle = topic.No, topic.Idle
		if err := t.Entities.checkFirstRules(sub, rules, RuleLimits{PerSubscription: forebay.MaxRules, SQLPerTopic: forebay.MaxSQLFilters}); err != nil {
			return p, err
		}
		if p, err = t.Entities.put(sub, opts); err != nil || p.same {
			return p, err
		}
		if p.created {
			for _, r := range rules {
				if err := t.Entities.InsertRule(p.No, r); err != nil {
					return p, err
				}
			}
		}
		return p, audit.Append(t.Tx, entityAudit(ctx, "put", p.MessageQueue, p.AuditDetail()))
	})
	return p.MessageQueue, p.created, err
}

// Topics returns a tenant's topics by name.
func (s *Store) Topics(ctx context.Context, tenant int64) (topics []MessageQueue, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		return c.Prep(sqlTenantQueues).Int(tenant).Int(1).Each(func(r driver.Row) error {
			topics = append(topics, readMessageQueue(r))
			return nil
		})
	})
	return topics, err
}

// Subscriptions returns a topic's subscriptions by name.
func (s *Store) Subscriptions(ctx context.Context, topic MessageQueue) (subscriptions []MessageQueue, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		return c.Prep(sqlSubscriptions).Int(topic.No).Each(func(r driver.Row) error {
			subscriptions = append(subscriptions, readMessageQueue(r))
			return nil
		})
	})
	return subscriptions, err
}

const sqlTopicCounts = `
SELECT (SELECT count(*) FROM queues WHERE topic = ?1 AND kind = 'messages'), count(*), CAST(coalesce(sum(size), 0) AS BIGINT)
FROM (SELECT size FROM messages WHERE subqueue = ?2 AND flow >= ?3 AND flow <= ?5 LIMIT ?4 + 0) bounded`

// TopicCounts counts the subscriptions and scheduled messages of a topic.
type TopicCounts struct {
	Subscriptions, Scheduled int64
	Size                     int64 // bytes of the messages that were counted
}

// TopicCounts counts a topic's subscriptions and scheduled messages, up to limit messages.
func (s EntityStore) TopicCounts(ctx context.Context, topic MessageQueue, limit int64) (counts TopicCounts, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		_, err := c.Prep(sqlTopicCounts).
			Int(topic.No).Int(int64(topic.Subqueue(false))).Int(scheduledFlow).Int(limit).Int(pendingFlow).One(func(r driver.Row) { counts = TopicCounts{r.Int(0), r.Int(1), r.Int(2)} })
		return err
	})
	return counts, err
}
