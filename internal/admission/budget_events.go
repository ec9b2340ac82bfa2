package admission

import (
	"encoding/json"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Each event of a budget is sent once a period. It goes to subscribers of the tenant's job
// events, to the audit log, and to listeners in this process, which log it.

const (
	notifiedMost      = 1
	notifiedExhausted = 2
	mostOfIt          = 0.8
)

// warn tells that most of a budget is used.
func (t *Tx) warn(b *Budget, s *Spending) error {
	l := b.Limits[s.kind]
	most := func(limit, used int64) bool { return limit > 0 && float64(used) >= mostOfIt*float64(limit) }
	if s.notified&notifiedMost != 0 || !most(l.Tokens, s.settled.Tokens) && !most(l.Cost, s.settled.Cost) {
		return nil
	}
	s.notified |= notifiedMost
	return t.publishBudget(b, s, forebay.EventBudgetWarning)
}

// WarnExhausted tells that there is no room for a job, even if no call in flight used anything.
func (t *Tx) WarnExhausted(b *Budget, need Amount) error {
	for kind, s := range b.Current {
		if s.notified&notifiedExhausted != 0 || b.Limits[kind].Allows(s.certain(), need) {
			continue
		}
		s.notified |= notifiedExhausted
		s.Changed = true
		if err := t.publishBudget(b, s, forebay.EventBudgetExhausted); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tx) publishBudget(b *Budget, s *Spending, kind forebay.EventType) error {
	return t.Alone(func() error { return t.publishBudgetAlone(b, s, kind) })
}

func (t *Tx) publishBudgetAlone(b *Budget, s *Spending, kind forebay.EventType) error {
	use := s.use()
	e := forebay.BudgetEvent{Type: kind, KeyID: b.key, Period: use.Period, StartsAt: use.StartsAt, EndsAt: use.EndsAt,
		Timestamp: driver.FromMillis(t.Now), Tokens: use.Tokens, CostUSD: use.CostUSD, Budget: b.Stated()}
	if _, err := t.Prep("SELECT name FROM tenants WHERE no = ?").Int(b.tenant).One(func(r driver.Row) { e.Tenant = r.Text(0) }); err != nil {
		return err
	}
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	t.After = append(t.After, func() { t.W.store.budgets.Notify(e) })
	target := "tenant " + e.Tenant
	if b.key != "" {
		target = b.key
	}
	if err := audit.Append(t.Tx, audit.Act{Tenant: e.Tenant, Actor: forebay.ServerActor, Action: string(kind), Target: target, Detail: string(body)}); err != nil {
		return err
	}
	topics := &bus.Key.Of(t.Tx).Topics
	f, err := topics.Followed()
	if err != nil || f.Topics[b.tenant] == "" {
		return err
	}
	return topics.Publish(f.Topics[b.tenant], func() (m bus.MessageContent, err error) {
		m = bus.MessageContent{
			MessageID: fmt.Sprintf("%s-%d-%s-%s", kind, b.No, e.Period, e.StartsAt.Format("2006-01-02")), CorrelationID: e.Tenant, Subject: string(kind),
			ContentType: "application/json", Text: true, Body: body,
		}
		m.Properties, err = json.Marshal(forebay.Properties{"tenant": e.Tenant, "key_id": e.KeyID, "period": string(e.Period)})
		return m, err
	})
}
