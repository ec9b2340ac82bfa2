package bus

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/schema"
)

// updateTopic writes the columns that update does not.
func (t *entityTx) updateTopic(q MessageQueue) error {
	if !q.IsTopic && q.Topic == 0 {
		return nil
	}
	err := entity.UpdateTopic(t.Conn, q)
	if err != nil {
		return err
	}
	if q.IsTopic {
		return t.ChangeTopic(q.No)
	}
	return t.ChangeTopic(q.Topic)
}

// ChangeTopic gives topics a new version, so that every process reads them again. Versions are
// sequence numbers, which are never given twice.
func (t *entityTx) ChangeTopic(topics ...int64) error {
	version, err := t.Queue.NewSeq()
	if err != nil {
		return err
	}
	t.Topics.forget()
	t.DropAllPrefetched() // a webhook's settlement may come behind a read of the topic for events
	t.After = append(t.After, func() {
		for _, no := range topics {
			t.W.topics.Forget(no)
		}
	})
	if err := t.Prep(schema.SQLCount).Text(topicsCounter).Int(version).Exec(); err != nil {
		return err
	}
	for _, no := range topics {
		if err := t.Prep(entity.SQLSetVersion).Int(version).Int(no).Exec(); err != nil {
			return err
		}
	}
	return nil
}

// PutSubscription creates a subscription of the topic with these rules, or changes the settings
// of an existing one and leaves its rules. A topic may have at most limit subscriptions.
func (s *Store) PutSubscription(ctx context.Context, topic, sub MessageQueue, rules []Rule, limit int) (stored MessageQueue, created bool, err error) {
	return s.Entities().PutSubscription(ctx, topic, sub, rules, entity.PutOptions{Limit: limit})
}

// PutSubscription is Store.PutSubscription with options.
func (s EntityStore) PutSubscription(ctx context.Context, topic, sub MessageQueue, rules []Rule, opts entity.PutOptions) (stored MessageQueue, created bool, err error) {
	p, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: topic.Tenant, Rows: entityRows}, func(t *Tx) (p Put, err error) {
		if err := t.Entities.DropNow(); err != nil {
			return p, err
		}
		topic, found, err := entity.Topic(t.Conn, topic.No)
		if err == nil && !found {
			err = entity.ErrNoTopic
		}
		if err != nil {
			return p, err
		}
		if err := t.keep(topic.No, topic.Idle); err != nil {
			return p, err
		}
		sub.Topic, sub.TopicIdle = topic.No, topic.Idle
		if err := entity.CheckFirstRules(t.Conn, sub, rules, RuleLimits{PerSubscription: forebay.MaxRules, SQLPerTopic: forebay.MaxSQLFilters}); err != nil {
			return p, err
		}
		if p, err = t.Entities.put(sub, opts); err != nil || p.same {
			return p, err
		}
		if p.created {
			for _, r := range rules {
				if err := entity.InsertRule(t.Conn, p.No, r, t.Now); err != nil {
					return p, err
				}
			}
		}
		return p, audit.Append(t.Tx, p.Act(ctx, "put", p.AuditDetail()))
	})
	return p.MessageQueue, p.created, err
}
