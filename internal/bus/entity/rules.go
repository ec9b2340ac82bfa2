package entity

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// ErrNoRule refuses to change a rule that does not exist.
var ErrNoRule = &forebay.Error{Code: forebay.CodeNotFound, Field: "rule", Message: "there is no such rule"}

const (
	sqlHasRule = "SELECT queue FROM rules WHERE queue = ? AND name = ?"
	SQLRules   = "SELECT name, settings, created_at FROM rules WHERE queue = ? ORDER BY name"
)

// ListRules returns a subscription's rules by name.
func (s Reader) ListRules(ctx context.Context, sub Queue) (found []rules.Rule, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		return c.Prep(SQLRules).Int(sub.No).Each(func(r driver.Row) error {
			rule, err := readRule(r)
			found = append(found, rule)
			return err
		})
	})
	return found, err
}

// HasRule reports whether a subscription has a rule of that name.
func (s Reader) HasRule(ctx context.Context, sub Queue, name string) (found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err = hasRule(c, sub, name)
		return err
	})
	return found, err
}

func hasRule(c driver.Conn, sub Queue, name string) (bool, error) {
	return c.Prep(sqlHasRule).Int(sub.No).Text(name).One(func(driver.Row) {})
}

// CheckRule compares the mode and the condition of a put with what is there. The error is
// ErrExists, ErrNoRule or that of the condition.
func (m PutMode) CheckRule(c driver.Conn, sub Queue, name string, condition forebay.Condition) error {
	if !condition.Empty() {
		etag, err := ruleETag(c, sub, name)
		if err == nil {
			err = condition.Check(etag)
		}
		if err != nil {
			return err
		}
	}
	if m == PutAny {
		return nil
	}
	found, err := hasRule(c, sub, name)
	switch {
	case err != nil:
		return err
	case m == PutNew && found:
		return ErrExists
	case m == PutExisting && !found:
		return ErrNoRule
	}
	return nil
}

// SQLRule finds one rule of a subscription.
const SQLRule = "SELECT name, settings, created_at FROM rules WHERE queue = ? AND name = ?"

// ruleETag returns the entity tag of the rule of that name, or "" if there is none.
func ruleETag(c driver.Conn, sub Queue, name string) (etag string, err error) {
	var problem error
	_, err = c.Prep(SQLRule).Int(sub.No).Text(name).One(func(r driver.Row) {
		var rule rules.Rule
		if rule, problem = readRule(r); problem == nil {
			etag = rule.ETag(sub.No)
		}
	})
	return etag, errors.Join(err, problem)
}

func readRule(r driver.Row) (rules.Rule, error) {
	rule := rules.Rule{Name: r.Text(0), CreatedAt: driver.FromMillis(r.Int(2))}
	return rule, json.Unmarshal(r.Blob(1), &rule.Settings)
}

// CheckRuleLimits refuses a rule that would be one too many.
func CheckRuleLimits(c driver.Conn, sub Queue, r rules.Rule, limits rules.Limits) error {
	var others, sql int64
	if _, err := c.Prep("SELECT count(*) FROM rules WHERE queue = ? AND name <> ?").Int(sub.No).Text(r.Name).One(func(row driver.Row) { others = row.Int(0) }); err != nil {
		return err
	}
	if others >= int64(limits.PerSubscription) {
		return limits.ErrRules()
	}
	if r.Settings.SQLFilter == "" {
		return nil
	}
	_, err := c.Prep("SELECT count(*) FROM queues q JOIN rules r ON r.queue = q.no WHERE q.topic = ? AND r.is_sql = 1 AND (r.queue <> ? OR r.name <> ?)").
		Int(sub.Topic).Int(sub.No).Text(r.Name).One(func(row driver.Row) { sql = row.Int(0) })
	if err == nil && sql >= int64(limits.SQLPerTopic) {
		return limits.ErrSQL()
	}
	return err
}

// CheckFirstRules is CheckRuleLimits for the rules of a new subscription, before anything is
// written. It accepts any rules for an existing subscription, which keeps those it has.
func CheckFirstRules(c driver.Conn, sub Queue, first []rules.Rule, limits rules.Limits) error {
	var sql int64
	for _, r := range first {
		sql += driver.BoolInt(r.Settings.SQLFilter != "")
	}
	if sql == 0 && len(first) <= limits.PerSubscription {
		return nil
	}
	if _, found, err := Named(c, sub.Name); err != nil || found {
		return err
	}
	if len(first) > limits.PerSubscription {
		return limits.ErrRules()
	}
	_, err := c.Prep("SELECT count(*) FROM queues q JOIN rules r ON r.queue = q.no WHERE q.topic = ? AND r.is_sql = 1").
		Int(sub.Topic).One(func(row driver.Row) { sql += row.Int(0) })
	if err == nil && sql > int64(limits.SQLPerTopic) {
		return limits.ErrSQL()
	}
	return err
}

// InsertRule stores a rule of the subscription with that number.
func InsertRule(c driver.Conn, no int64, r rules.Rule, now int64) error {
	settings, err := json.Marshal(r.Settings)
	if err != nil {
		return err
	}
	at := r.CreatedAt.UnixMilli()
	if r.CreatedAt.IsZero() {
		at = now
	}
	return c.Prep("INSERT INTO rules (queue, name, is_sql, settings, created_at) VALUES (?, ?, ?, ?, ?)").
		Int(no).Text(r.Name).Int(driver.BoolInt(r.Settings.SQLFilter != "")).Blob(settings).Int(at).Exec()
}

// ReplaceRule deletes the rule of that name to make room for another. It sets when the rule was
// created, and reports whether there was none.
func ReplaceRule(c driver.Conn, sub Queue, r *rules.Rule, now int64) (created bool, err error) {
	r.CreatedAt = driver.FromMillis(now)
	found, err := c.Prep("DELETE FROM rules WHERE queue = ? AND name = ? RETURNING created_at").Int(sub.No).Text(r.Name).One(func(row driver.Row) {
		r.CreatedAt = driver.FromMillis(row.Int(0))
	})
	return !found, err
}

// DeleteRule removes a rule and reports whether it was there. The condition is about one that is.
func DeleteRule(c driver.Conn, sub Queue, name string, condition forebay.Condition) (bool, error) {
	if !condition.Empty() {
		etag, err := ruleETag(c, sub, name)
		if err != nil || etag == "" {
			return false, err
		}
		if err := condition.Check(etag); err != nil {
			return false, err
		}
	}
	return c.Prep("DELETE FROM rules WHERE queue = ? AND name = ? RETURNING name").Int(sub.No).Text(name).One(func(driver.Row) {})
}

// SQLTopicRules finds the rules of all subscriptions of a topic.
const SQLTopicRules = "SELECT r.queue, r.name, r.settings FROM queues q JOIN rules r ON r.queue = q.no WHERE q.topic = ?"

// ReadTopic reads the topic's subscriptions and their rules, which are still to be compiled.
func ReadTopic(c driver.Conn, topic Queue) (*rules.Topic[Queue], error) {
	t := &rules.Topic[Queue]{No: topic.No, Version: topic.Version, DefaultTTL: topic.DefaultTTL}
	subscriptions, err := Subscriptions(c, topic.No)
	if err != nil {
		return nil, err
	}
	indexes := map[int64]int{} // of subscriptions, by their numbers
	for _, q := range subscriptions {
		indexes[q.No] = len(t.Subscriptions)
		t.Subscriptions = append(t.Subscriptions, rules.Subscription[Queue]{No: q.No, Queue: q, DeadLetterFilterErrors: q.DeadLetterFilterErrors})
	}
	err = c.Prep(SQLTopicRules).Int(topic.No).Each(func(r driver.Row) error {
		if i, known := indexes[r.Int(0)]; known {
			t.Subscriptions[i].AddRule(r.Text(1), r.Blob(2))
		}
		return nil
	})
	return t, err
}

// CurrentTopic is ReadTopic outside of transactions, for the topic with that number. It returns
// known if that is of the current version, and nil if there is no such topic.
func (s Reader) CurrentTopic(ctx context.Context, no int64, known *rules.Topic[Queue]) (t *rules.Topic[Queue], err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		for {
			topic, found, err := Topic(c, no)
			if t = nil; err != nil || !found {
				return err
			}
			if t = known; t != nil && t.Version == topic.Version {
				return nil
			}
			if t, err = ReadTopic(c, topic); err != nil {
				return err
			}
			// The rules are read by several statements. They belong to one version if the version
			// is the same afterwards.
			after, found, err := Topic(c, no)
			if err != nil || found && after.Version == topic.Version {
				return err
			}
			if err := c.Limit(); err != nil {
				return err
			}
		}
	})
	return t, err
}
