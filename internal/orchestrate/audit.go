package orchestrate

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dapr/durabletask-go/api/protos"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
)

// The audit log records what operators do to instances, without inputs, outputs and reasons.
// Starts and events of applications are not in it: they are in the instances' histories.

// act returns the audit row of an action of an API caller. Actions of the program itself have
// none.
func act(ctx context.Context, tenant, action, instance string, detail any) audit.Act {
	if !forebay.HasActor(ctx) {
		return audit.Act{}
	}
	a := audit.Act{Tenant: tenant, Actor: forebay.ActorOf(ctx), Action: action, Target: instance}
	if detail != nil {
		if b, err := json.Marshal(detail); err == nil {
			a.Detail = string(b)
		}
	}
	return a
}

// actOf returns the audit row of an event that a caller sends to an instance.
func actOf(ctx context.Context, tenant, instance string, e *protos.HistoryEvent) audit.Act {
	switch EffectOf(e) {
	case Suspends:
		return act(ctx, tenant, "suspend-orchestration", instance, nil)
	case Resumes:
		return act(ctx, tenant, "resume-orchestration", instance, nil)
	case Terminates:
		return act(ctx, tenant, "terminate-orchestration", instance, nil)
	}
	return audit.Act{}
}

// restartDetail is the audit detail of a restart. It leaves out the input.
type restartDetail struct {
	Orchestrator string `json:"orchestrator"`
	NewID        string `json:"new_id,omitempty"`
}

// replacedDetail is the audit detail of an instance that was purged so that a new one could take
// its id.
type replacedDetail struct {
	Replaced bool `json:"replaced"`
}

// purgeDetail is the audit detail of a bulk purge: the filter. Only ended instances were purged.
type purgeDetail struct {
	Prefix   string                        `json:"prefix,omitempty"`
	Statuses []forebay.OrchestrationStatus `json:"statuses,omitempty"`
	From     time.Time                     `json:"created_from,omitzero"`
	Until    time.Time                     `json:"created_until,omitzero"`
}
