package entity

import (
	"context"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Reader reads queues, topics and subscriptions outside of transactions.
type Reader struct{ *queue.Store }

// MessageQueue returns the queue of that name, if there is one.
func (s Reader) MessageQueue(ctx context.Context, name string) (q Queue, found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		q, found, err = Named(c, name)
		return err
	})
	return q, found, err
}

// Folded returns a tenant's queue, topic or subscription by its name in any case, see [Folded].
func (s Reader) Folded(ctx context.Context, tenant int64, name string) (q Queue, found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		q, found, err = Folded(c, tenant, name)
		return err
	})
	return q, found, err
}

const (
	// SQLOfTenant finds a tenant's queues, or its topics.
	SQLOfTenant         = columns + "AND tenant = ? AND is_topic = ? AND topic IS NULL ORDER BY name"
	SQLPage             = SQLOfTenant + " LIMIT ? + 0 OFFSET ? + 0"
	SQLSubscriptionPage = SQLSubscriptions + " LIMIT ? + 0 OFFSET ? + 0"
)

// MessageQueues returns a tenant's queues by name.
func (s Reader) MessageQueues(ctx context.Context, tenant int64) ([]Queue, error) {
	return s.all(ctx, func(c driver.Conn) driver.Statement { return c.Prep(SQLOfTenant).Int(tenant).Int(0) })
}

// Topics returns a tenant's topics by name.
func (s Reader) Topics(ctx context.Context, tenant int64) ([]Queue, error) {
	return s.all(ctx, func(c driver.Conn) driver.Statement { return c.Prep(SQLOfTenant).Int(tenant).Int(1) })
}

// Subscriptions returns a topic's subscriptions by name.
func (s Reader) Subscriptions(ctx context.Context, topic Queue) ([]Queue, error) {
	return s.all(ctx, func(c driver.Conn) driver.Statement { return c.Prep(SQLSubscriptions).Int(topic.No) })
}

// Page returns a tenant's queues or topics by name, so many after leaving out the first skip.
func (s Reader) Page(ctx context.Context, tenant int64, topics bool, skip, limit int) ([]Queue, error) {
	return s.all(ctx, func(c driver.Conn) driver.Statement {
		return c.Prep(SQLPage).Int(tenant).Int(driver.BoolInt(topics)).Int(int64(limit)).Int(int64(skip))
	})
}

// SubscriptionPage does the same for the subscriptions of a topic.
func (s Reader) SubscriptionPage(ctx context.Context, topic Queue, skip, limit int) ([]Queue, error) {
	return s.all(ctx, func(c driver.Conn) driver.Statement {
		return c.Prep(SQLSubscriptionPage).Int(topic.No).Int(int64(limit)).Int(int64(skip))
	})
}

func (s Reader) all(ctx context.Context, find func(driver.Conn) driver.Statement) (found []Queue, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err = list(find(c))
		return err
	})
	return found, err
}

// MessageCounts counts a queue's messages, up to limit of each kind.
func (s Reader) MessageCounts(ctx context.Context, q Queue, limit int64) (counts Counts, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		counts, err = Count(c, q.No, limit)
		return err
	})
	return counts, err
}

const SQLTopicCounts = `
SELECT (SELECT count(*) FROM queues WHERE topic = ?1 AND kind = 'messages'), count(*), CAST(coalesce(sum(size), 0) AS BIGINT)
FROM (SELECT size FROM messages WHERE subqueue = ?2 AND flow >= ?3 AND flow <= ?5 LIMIT ?4 + 0) bounded`

// TopicCounts counts the subscriptions and scheduled messages of a topic.
type TopicCounts struct {
	Subscriptions, Scheduled int64
	Size                     int64 // bytes of the messages that were counted
}

// TopicCounts counts a topic's subscriptions and scheduled messages, up to limit messages.
func (s Reader) TopicCounts(ctx context.Context, topic Queue, limit int64) (counts TopicCounts, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		_, err := c.Prep(SQLTopicCounts).Int(topic.No).Int(int64(topic.Subqueue(false))).Int(ScheduledFlow).Int(limit).Int(PendingFlow).One(func(r driver.Row) {
			counts = TopicCounts{r.Int(0), r.Int(1), r.Int(2)}
		})
		return err
	})
	return counts, err
}

// SQLTopicFilters counts rules by the beginning of their settings, which names the filter. Service
// Bus takes filters that are true or false for SQL filters.
const SQLTopicFilters = `
SELECT count(*) FILTER (WHERE correlates = 0), count(*) FILTER (WHERE correlates = 1)
FROM (SELECT CASE WHEN substr(r.settings, 1, 21) = ?2 THEN 1 ELSE 0 END AS correlates
  FROM queues q JOIN rules r ON r.queue = q.no WHERE q.topic = ?1 AND q.kind = 'messages' LIMIT ?3 + 0) bounded`

// TopicFilters counts the filters of all subscriptions of a topic, up to limit.
func (s Reader) TopicFilters(ctx context.Context, topic Queue, limit int64) (sql, correlation int64, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		_, err := c.Prep(SQLTopicFilters).Int(topic.No).Blob([]byte(`{"correlation_filter"`)).Int(limit).One(func(r driver.Row) {
			sql, correlation = r.Int(0), r.Int(1)
		})
		return err
	})
	return sql, correlation, err
}

// CountLimit is the highest count of messages of one state in one queue or topic.
const CountLimit = 10_000

// CountLimitOf is the limit where so many queues or topics are listed together.
func CountLimitOf(listed int) int64 {
	return min(CountLimit, max(100, 4*CountLimit/int64(max(1, listed))))
}
