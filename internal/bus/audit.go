package bus

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
)

// entityAudit returns the audit row of a change to a queue of messages, a topic or a
// subscription, or to its messages.
func entityAudit(ctx context.Context, verb string, q MessageQueue, detail any) audit.Act {
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

// auditDetail returns a queue's settings as the audit log shows them.
func (q MessageQueue) auditDetail() any {
	return struct {
		forebay.MessageQueueSettings
		DeadLetterFilterErrors bool `json:"dead_letter_filter_errors,omitempty"`
	}{forebay.MessageQueueSettings{
		LockSeconds: q.Lock.Seconds(), MaxDeliveryCount: q.MaxDeliveries, DefaultTTLSeconds: q.DefaultTTL.Seconds(),
		DeadLetterOnExpiration: q.DeadLetterExpired, DuplicateWindowSeconds: q.DuplicateWindow.Seconds(), RequiresSession: &q.RequiresSession,
		ForwardTo: q.ForwardTo, ForwardDeadLettersTo: q.ForwardDeadLettersTo, AutoDeleteOnIdleSeconds: q.Idle.Seconds(),
	}, q.DeadLetterFilterErrors}
}

// sameSettings reports whether a put changes nothing. Programs often put their queue each time
// they start.
func sameSettings(before, after MessageQueue) bool {
	before.No, before.CreatedAt, before.Version, before.TopicIdle, before.CopiesPending = after.No, after.CreatedAt, after.Version, after.TopicIdle, after.CopiesPending
	return before == after
}
