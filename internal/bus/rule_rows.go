package bus

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
)

// Rule is a rule of a subscription as stored.
type Rule = rules.Rule

// RuleLimits is how many rules there may be.
type RuleLimits = rules.Limits

// Put adds a rule to a subscription, or replaces the one of that name. created reports which. The
// mode may leave one of both: the error is [entity.ErrExists] or [entity.ErrNoRule] then.
func (s RuleStore) Put(ctx context.Context, sub MessageQueue, r Rule, limits RuleLimits, mode entity.PutMode) (stored Rule, created bool, err error) {
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
			return p, entity.ErrNoSubscription
		}
		if err := mode.CheckRule(t.Conn, q, r.Name, forebay.ConditionOf(ctx)); err != nil {
			return p, err
		}
		if err := entity.CheckRuleLimits(t.Conn, q, r, limits); err != nil {
			return p, err
		}
		if err := t.used(q); err != nil {
			return p, err
		}
		p.Rule = r
		if p.created, err = entity.ReplaceRule(t.Conn, q, &p.Rule, t.Now); err != nil {
			return p, err
		}
		if err := entity.InsertRule(t.Conn, q.No, p.Rule, t.Now); err != nil {
			return p, err
		}
		if err := t.Entities.ChangeTopic(q.Topic); err != nil {
			return p, err
		}
		return p, audit.Append(t.Tx, q.RuleAct(ctx, "put", r.Name, r.Settings))
	})
	return p.Rule, p.created, err
}

// Delete removes a rule and reports whether it was there.
func (s RuleStore) Delete(ctx context.Context, sub MessageQueue, name string) (bool, error) {
	return db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: sub.Tenant, Rows: entityRows}, func(t *Tx) (bool, error) {
		q, found, err := t.MessageQueue(sub.No)
		if err != nil {
			return false, err
		}
		if !found || q.Topic == 0 {
			return false, entity.ErrNoSubscription
		}
		deleted, err := entity.DeleteRule(t.Conn, q, name, forebay.ConditionOf(ctx))
		if err != nil || !deleted {
			return false, err
		}
		if err := t.Entities.ChangeTopic(q.Topic); err != nil {
			return false, err
		}
		return true, audit.Append(t.Tx, q.RuleAct(ctx, "delete", name, nil))
	})
}
