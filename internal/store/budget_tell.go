package store

import (
	"encoding/json"
	"fmt"

	"github.com/forebayhq/forebay"
)

// What is told of a budget, once a period each: to subscribers of the tenant's job events, in the audit
// log, and to whoever listens in this process, which logs it.

const (
	toldMost      = 1
	toldExhausted = 2
	mostOfIt      = 0.8
)

// warn tells that most of a budget is used.
func (t *admissionTx) warn(b *budget, s *spending) error {
	l := b.limits[s.kind]
	most := func(limit, used int64) bool { return limit > 0 && float64(used) >= mostOfIt*float64(limit) }
	if s.told&toldMost != 0 || !most(l.tokens, s.settled.Tokens) && !most(l.cost, s.settled.Cost) {
		return nil
	}
	s.told |= toldMost
	return t.tellBudget(b, s, forebay.EventBudgetWarning)
}

// warnExhausted tells that there is no room for a job, even if no call in flight used anything.
func (t *admissionTx) warnExhausted(b *budget, need Amount) error {
	for kind, s := range b.current {
		if s.told&toldExhausted != 0 || b.limits[kind].allows(s.certain(), need) {
			continue
		}
		s.told |= toldExhausted
		s.changed = true
		if err := t.tellBudget(b, s, forebay.EventBudgetExhausted); err != nil {
			return err
		}
	}
	return nil
}

func (t *admissionTx) tellBudget(b *budget, s *spending, kind forebay.EventType) error {
	use := s.use()
	e := forebay.BudgetEvent{Type: kind, KeyID: b.key, Period: use.Period, StartsAt: use.StartsAt, EndsAt: use.EndsAt,
		Timestamp: fromMillis(t.now), Tokens: use.Tokens, CostUSD: use.CostUSD, Budget: b.stated()}
	if _, err := t.prep("SELECT name FROM tenants WHERE no = ?").int(b.tenant).one(func(r row) { e.Tenant = r.text(0) }); err != nil {
		return err
	}
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	t.after = append(t.after, func() { t.w.store.budgets.tell(e) })
	target := "tenant " + e.Tenant
	if b.key != "" {
		target = b.key
	}
	if err := auditIn(t.tx, Audit{Tenant: e.Tenant, Actor: forebay.ServerActor, Action: string(kind), Target: target, Detail: string(body)}); err != nil {
		return err
	}
	bus := busKey.of(t.tx)
	f, err := bus.followed()
	if err != nil || f.topics[b.tenant] == "" {
		return err
	}
	return bus.publish(f.topics[b.tenant], func() (m MessageContent, err error) {
		m = MessageContent{
			MessageID: fmt.Sprintf("%s-%d-%s-%s", kind, b.no, e.Period, e.StartsAt.Format("2006-01-02")), CorrelationID: e.Tenant, Subject: string(kind),
			ContentType: "application/json", Text: true, Body: body,
		}
		m.Properties, err = json.Marshal(forebay.Properties{"tenant": e.Tenant, "key_id": e.KeyID, "period": string(e.Period)})
		return m, err
	})
}
