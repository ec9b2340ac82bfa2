package bus

import (
	"context"
	"encoding/json"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Rule is a rule of a subscription as stored.
type Rule = rules.Rule

// RuleLimits is how many rules there may be.
type RuleLimits = rules.Limits

// ErrNoRule refuses to change a rule that does not exist.
var ErrNoRule = &forebay.Error{Code: forebay.CodeNotFound, Field: "rule", Message: "there is no such rule"}

// Put adds a rule to a subscription, or replaces the one of that name. created reports which. The
// mode may leave one of both: the error is ErrExists or ErrNoRule then.
func (s RuleStore) Put(ctx context.Context, sub MessageQueue, r Rule, limits RuleLimits, mode PutMode) (stored Rule, created bool, err error) {
	type put struct {
		Rule
		created bool
	}
	p, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: sub.Tenant, Rows: entityRows}, func(t *Tx) (p put, err error) {
		q, found, err := t.MessageQueue(sub.No)
		if err != nil {
			return p, err
		}
		if !found || q.Topic == 0 {
			return p, ErrNoSubscription
		}
		if err := t.Entities.checkRuleMode(q, r.Name, mode); err != nil {
			return p, err
		}
		if err := t.Entities.checkRuleLimits(q, r, limits); err != nil {
			return p, err
		}
		if err := t.used(q); err != nil {
			return p, err
		}
		p.Rule, p.created = r, true
		_, err = t.Prep("DELETE FROM rules WHERE queue = ? AND name = ? RETURNING created_at").Int(q.No).Text(r.Name).One(func(row driver.Row) {
			p.created, p.CreatedAt = false, driver.FromMillis(row.Int(0))
		})
		if err != nil {
			return p, err
		}
		if p.created {
			p.CreatedAt = driver.FromMillis(t.Now)
		}
		if err := t.Entities.InsertRule(q.No, p.Rule); err != nil {
			return p, err
		}
		if err := t.Entities.ChangeTopic(q.Topic); err != nil {
			return p, err
		}
		return p, audit.Append(t.Tx, ruleAudit(ctx, "put", q, r.Name, r.Settings))
	})
	return p.Rule, p.created, err
}

// checkRuleMode compares the mode with what is there.
func (t *entityTx) checkRuleMode(sub MessageQueue, name string, mode PutMode) error {
	if mode == PutAny {
		return nil
	}
	found, err := t.Prep(sqlHasRule).Int(sub.No).Text(name).One(func(driver.Row) {})
	switch {
	case err != nil:
		return err
	case mode == PutNew && found:
		return ErrExists
	case mode == PutExisting && !found:
		return ErrNoRule
	}
	return nil
}

func (t *entityTx) checkRuleLimits(sub MessageQueue, r Rule, limits RuleLimits) error {
	var others, sql int64
	if _, err := t.Prep("SELECT count(*) FROM rules WHERE queue = ? AND name <> ?").Int(sub.No).Text(r.Name).One(func(row driver.Row) { others = row.Int(0) }); err != nil {
		return err
	}
	if others >= int64(limits.PerSubscription) {
		return limits.ErrRules()
	}
	if r.Settings.SQLFilter == "" {
		return nil
	}
	_, err := t.Prep("SELECT count(*) FROM queues q JOIN rules r ON r.queue = q.no WHERE q.topic = ? AND r.is_sql = 1 AND (r.queue <> ? OR r.name <> ?)").
		Int(sub.Topic).Int(sub.No).Text(r.Name).One(func(row driver.Row) { sql = row.Int(0) })
	if err == nil && sql >= int64(limits.SQLPerTopic) {
		return limits.ErrSQL()
	}
	return err
}

// checkFirstRules is checkRuleLimits for the rules of a new subscription, before anything is
// written. It accepts any rules for an existing subscription, which keeps those it has.
func (t *entityTx) checkFirstRules(sub MessageQueue, rules []Rule, limits RuleLimits) error {
	var sql int64
	for _, r := range rules {
		sql += driver.BoolInt(r.Settings.SQLFilter != "")
	}
	if sql == 0 && len(rules) <= limits.PerSubscription {
		return nil
	}
	if _, found, err := t.MessageQueueNamed(sub.Name); err != nil || found {
		return err
	}
	if len(rules) > limits.PerSubscription {
		return limits.ErrRules()
	}
	_, err := t.Prep("SELECT count(*) FROM queues q JOIN rules r ON r.queue = q.no WHERE q.topic = ? AND r.is_sql = 1").
		Int(sub.Topic).One(func(row driver.Row) { sql += row.Int(0) })
	if err == nil && sql > int64(limits.SQLPerTopic) {
		return limits.ErrSQL()
	}
	return err
}

func (t *entityTx) InsertRule(queue int64, r Rule) error {
	settings, err := json.Marshal(r.Settings)
	if err != nil {
		return err
	}
	at := r.CreatedAt.UnixMilli()
	if r.CreatedAt.IsZero() {
		at = t.Now
	}
	return t.Prep("INSERT INTO rules (queue, name, is_sql, settings, created_at) VALUES (?, ?, ?, ?, ?)").
		Int(queue).Text(r.Name).Int(driver.BoolInt(r.Settings.SQLFilter != "")).Blob(settings).Int(at).Exec()
}

// Delete removes a rule and reports whether it was there.
func (s RuleStore) Delete(ctx context.Context, sub MessageQueue, name string) (bool, error) {
	return db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: sub.Tenant, Rows: entityRows}, func(t *Tx) (bool, error) {
		q, found, err := t.MessageQueue(sub.No)
		if err != nil {
			return false, err
		}
		if !found || q.Topic == 0 {
			return false, ErrNoSubscription
		}
		deleted, err := t.Prep("DELETE FROM rules WHERE queue = ? AND name = ? RETURNING name").Int(q.No).Text(name).One(func(driver.Row) {})
		if err != nil || !deleted {
			return false, err
		}
		if err := t.Entities.ChangeTopic(q.Topic); err != nil {
			return false, err
		}
		return true, audit.Append(t.Tx, ruleAudit(ctx, "delete", q, name, nil))
	})
}

func ruleAudit(ctx context.Context, verb string, sub MessageQueue, name string, settings any) audit.Act {
	a := entityAudit(ctx, verb, sub, settings)
	a.Action, a.Target = verb+"-rule", a.Target+"/rules/"+name
	return a
}

const sqlHasRule = "SELECT queue FROM rules WHERE queue = ? AND name = ?"

const sqlRules = "SELECT name, settings, created_at FROM rules WHERE queue = ? ORDER BY name"

// List returns a subscription's rules by name.
func (s RuleStore) List(ctx context.Context, sub MessageQueue) (rules []Rule, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		return c.Prep(sqlRules).Int(sub.No).Each(func(r driver.Row) error {
			rule := Rule{Name: r.Text(0), CreatedAt: driver.FromMillis(r.Int(2))}
			rules = append(rules, rule)
			return json.Unmarshal(r.Blob(1), &rules[len(rules)-1].Settings)
		})
	})
	return rules, err
}
