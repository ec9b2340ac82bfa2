package entity

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
)

// Act returns the audit row of a change to a queue of messages, a topic or a subscription, or to
// its messages.
func (q Queue) Act(ctx context.Context, verb string, detail any) audit.Act {
	tenant, name, _ := strings.Cut(q.Name, "/")
	kind := "queue"
	switch {
	case q.IsTopic:
		kind = "topic"
	case q.Topic != 0:
		kind = "subscription"
	}
	a := audit.Act{Tenant: tenant, Actor: forebay.ActorOf(ctx), Action: verb + "-" + kind, Target: name}
	if detail != nil {
		if b, err := json.Marshal(detail); err == nil {
			a.Detail = string(b)
		}
	}
	return a
}

// RuleAct returns the audit row of a change to a rule of a subscription.
func (q Queue) RuleAct(ctx context.Context, verb, name string, settings any) audit.Act {
	a := q.Act(ctx, verb, settings)
	a.Action, a.Target = verb+"-rule", a.Target+"/rules/"+name
	return a
}
