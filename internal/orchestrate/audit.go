package orchestrate

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dapr/durabletask-go/api/protos"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
)

// What an operator does to an instance by an API is in the audit log, with the act itself, but for inputs, outputs and reasons.
// What applications do, which start instances and send them events, is in the instances' histories.

// act is the audit row of what somebody does by an API. What the program does itself has none.
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

// actOf is the audit row of who sends an instance an event.
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

// restartDetail is what the audit log says of a restart. It says nothing of what the instance is given.
type restartDetail struct {
	Orchestrator string `json:"orchestrator"`
	NewID        string `json:"new_id,omitempty"`
}

// replacedDetail is what the audit log says of an instance that was purged because another was started with its id.
type replacedDetail struct {
	Replaced bool `json:"replaced"`
}

// purgeDetail is what the audit log says of which instances were deleted: those of them that were over.
type purgeDetail struct {
	Prefix   string                        `json:"prefix,omitempty"`
	Statuses []forebay.OrchestrationStatus `json:"statuses,omitempty"`
	From     time.Time                     `json:"created_from,omitzero"`
	Until    time.Time                     `json:"created_until,omitzero"`
}
