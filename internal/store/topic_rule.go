package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/forebayhq/forebay"
)

// Rule is a rule of a subscription as stored.
type Rule struct {
	Name      string
	Settings  forebay.RuleSettings
	CreatedAt time.Time
}

// RuleLimits is how many rules there may be.
type RuleLimits struct {
	PerSubscription int
	SQLPerTopic     int // with a SQL filter: those are what costs time when a message is sent
}

// PutRule adds a rule to a subscription, or replaces the one of that name. created reports which.
func (s *BusStore) PutRule(ctx context.Context, sub MessageQueue, r Rule, limits RuleLimits) (stored Rule, created bool, err error) {
	type put struct {
		Rule
		created bool
	}
	p, err := transactIn(ctx, busKey, s.writer, op{stage: stageChange, party: sub.Tenant, rows: entityRows}, func(t *busTx) (p put, err error) {
		q, found, err := t.messageQueue(sub.No)
		if err != nil {
			return p, err
		}
		if !found || q.Topic == 0 {
			return p, errNoSubscription
		}
		if err := t.checkRuleLimits(q, r, limits); err != nil {
			return p, err
		}
		if err := t.used(q); err != nil {
			return p, err
		}
		p.Rule, p.created = r, true
		_, err = t.prep("DELETE FROM rules WHERE queue = ? AND name = ? RETURNING created_at").int(q.No).text(r.Name).one(func(row row) {
			p.created, p.CreatedAt = false, fromMillis(row.int(0))
		})
		if err != nil {
			return p, err
		}
		if p.created {
			p.CreatedAt = fromMillis(t.now)
		}
		if err := t.insertRule(q.No, p.Rule); err != nil {
			return p, err
		}
		if err := t.changeTopic(q.Topic); err != nil {
			return p, err
		}
		return p, auditIn(t.tx, ruleAudit(ctx, "put", q, r.Name, r.Settings))
	})
	return p.Rule, p.created, err
}

func (t *busTx) checkRuleLimits(sub MessageQueue, r Rule, limits RuleLimits) error {
	var others, sql int64
	if _, err := t.prep("SELECT count(*) FROM rules WHERE queue = ? AND name <> ?").int(sub.No).text(r.Name).one(func(row row) { others = row.int(0) }); err != nil {
		return err
	}
	if others >= int64(limits.PerSubscription) {
		return limits.errRules()
	}
	if r.Settings.SQLFilter == "" {
		return nil
	}
	_, err := t.prep("SELECT count(*) FROM queues q JOIN rules r ON r.queue = q.no WHERE q.topic = ? AND r.is_sql = 1 AND (r.queue <> ? OR r.name <> ?)").
		int(sub.Topic).int(sub.No).text(r.Name).one(func(row row) { sql = row.int(0) })
	if err == nil && sql >= int64(limits.SQLPerTopic) {
		return limits.errSQL()
	}
	return err
}

// checkFirstRules is checkRuleLimits for the rules that a subscription is made with. It comes before anything is
// changed, and has nothing to say of a subscription that exists: that one keeps the rules it has.
func (t *busTx) checkFirstRules(sub MessageQueue, rules []Rule, limits RuleLimits) error {
	var sql int64
	for _, r := range rules {
		sql += asInt(r.Settings.SQLFilter != "")
	}
	if sql == 0 && len(rules) <= limits.PerSubscription {
		return nil
	}
	if _, found, err := t.messageQueueNamed(sub.Name); err != nil || found {
		return err
	}
	if len(rules) > limits.PerSubscription {
		return limits.errRules()
	}
	_, err := t.prep("SELECT count(*) FROM queues q JOIN rules r ON r.queue = q.no WHERE q.topic = ? AND r.is_sql = 1").
		int(sub.Topic).one(func(row row) { sql += row.int(0) })
	if err == nil && sql > int64(limits.SQLPerTopic) {
		return limits.errSQL()
	}
	return err
}

func (l RuleLimits) errRules() error {
	return forebay.Errorf(forebay.CodeConflict, "a subscription may have at most %d rules", l.PerSubscription)
}

func (l RuleLimits) errSQL() error {
	return forebay.Errorf(forebay.CodeConflict, "the subscriptions of a topic may have at most %d rules with SQL filters", l.SQLPerTopic)
}

func (t *busTx) insertRule(queue int64, r Rule) error {
	settings, err := json.Marshal(r.Settings)
	if err != nil {
		return err
	}
	at := r.CreatedAt.UnixMilli()
	if r.CreatedAt.IsZero() {
		at = t.now
	}
	return t.prep("INSERT INTO rules (queue, name, is_sql, settings, created_at) VALUES (?, ?, ?, ?, ?)").
		int(queue).text(r.Name).int(asInt(r.Settings.SQLFilter != "")).blob(settings).int(at).exec()
}

// DeleteRule removes a rule and reports whether it was there.
func (s *BusStore) DeleteRule(ctx context.Context, sub MessageQueue, name string) (deleted bool, err error) {
	return transactIn(ctx, busKey, s.writer, op{stage: stageChange, party: sub.Tenant, rows: entityRows}, func(t *busTx) (bool, error) {
		q, found, err := t.messageQueue(sub.No)
		if err != nil {
			return false, err
		}
		if !found || q.Topic == 0 {
			return false, errNoSubscription
		}
		deleted, err = t.prep("DELETE FROM rules WHERE queue = ? AND name = ? RETURNING name").int(q.No).text(name).one(func(row) {})
		if err != nil || !deleted {
			return false, err
		}
		if err := t.changeTopic(q.Topic); err != nil {
			return false, err
		}
		return true, auditIn(t.tx, ruleAudit(ctx, "delete", q, name, nil))
	})
}

func ruleAudit(ctx context.Context, verb string, sub MessageQueue, name string, settings any) Audit {
	a := entityAudit(ctx, verb, sub, settings)
	a.Action, a.Target = verb+"-rule", a.Target+"/rules/"+name
	return a
}

const sqlRules = "SELECT name, settings, created_at FROM rules WHERE queue = ? ORDER BY name"

// Rules returns a subscription's rules by name.
func (s *BusStore) Rules(ctx context.Context, sub MessageQueue) (rules []Rule, err error) {
	err = s.read(ctx, func(c conn) error {
		return c.prep(sqlRules).int(sub.No).each(func(r row) error {
			rule := Rule{Name: r.text(0), CreatedAt: fromMillis(r.int(2))}
			rules = append(rules, rule)
			return json.Unmarshal(r.blob(1), &rules[len(rules)-1].Settings)
		})
	})
	return rules, err
}
