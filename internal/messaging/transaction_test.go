package messaging_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/stores"
)

// openService is a service on a new database of that kind, without limits of tenants.
func openService(t *testing.T, opts db.Options) *messaging.Service {
	t.Helper()
	opts.Serve = true
	s, err := stores.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.DB.Close() })
	return messaging.New(messaging.Options{Store: s.Bus, MaxMessageBytes: 1000})
}

func plain(id string) bus.MessageContent {
	return bus.MessageContent{MessageID: id, Text: true, Body: []byte(id)}
}

func putQueue(t *testing.T, b *messaging.Service, tenant, name string) {
	t.Helper()
	if _, _, err := b.Queues.Put(t.Context(), tenant, name, forebay.MessageQueueSettings{}); err != nil {
		t.Fatal(err)
	}
}

func receiveOne(t *testing.T, b *messaging.Service, tenant, path string) forebay.Message {
	t.Helper()
	got, err := b.Messages.Receive(t.Context(), tenant, path, forebay.ReceiveRequest{})
	if err != nil || len(got) != 1 {
		t.Fatalf("received %d messages: %v", len(got), err)
	}
	return got[0]
}

// What a transaction does is checked like single calls: another tenant's entity does not exist, a
// step is bounded, and so are all together.
func TestTransactionIsChecked(t *testing.T) {
	t.Parallel()
	for kind, database := range dbtest.Databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := openService(t, database(t))
			ctx := t.Context()
			putQueue(t, b, "acme", "orders")
			putQueue(t, b, "acme", "done")
			putQueue(t, b, "other", "theirs")
			if _, _, err := b.Topics.Put(ctx, "acme", "news", forebay.TopicSettings{}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.Subscriptions.Put(ctx, "acme", "news", "sub", forebay.SubscriptionSettings{}); err != nil {
				t.Fatal(err)
			}
			body := "x"
			for range 3 {
				if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{{Body: &body}}); err != nil {
					t.Fatal(err)
				}
			}
			first, second, third := receiveOne(t, b, "acme", "orders"), receiveOne(t, b, "acme", "orders"), receiveOne(t, b, "acme", "orders")
			good := []messaging.Step{
				{Kind: bus.StepComplete, Path: "orders", Token: first.LockToken}, {Kind: bus.StepSend, Path: "news", Messages: []bus.MessageContent{plain("told")}},
				{Kind: bus.StepDeadLetter, Path: "orders", Token: second.LockToken, How: forebay.Settlement{Reason: "r"}},
				{Kind: bus.StepSend, Path: "done", Messages: []bus.MessageContent{plain("a"), plain("b")}},
			}
			refused := map[string]struct {
				step messaging.Step
				code forebay.Code
			}{
				"another tenant's queue":   {messaging.Step{Kind: bus.StepSend, Path: "theirs", Messages: []bus.MessageContent{plain("x")}}, forebay.CodeUnknownQueue},
				"another tenant's lock":    {messaging.Step{Kind: bus.StepComplete, Path: "theirs", Token: first.LockToken}, forebay.CodeUnknownQueue},
				"no such topic":            {messaging.Step{Kind: bus.StepSend, Path: "none", Messages: []bus.MessageContent{plain("x")}}, forebay.CodeUnknownQueue},
				"a subscription":           {messaging.Step{Kind: bus.StepSend, Path: "news/subscriptions/sub", Messages: []bus.MessageContent{plain("x")}}, forebay.CodeNotSupported},
				"a dead-letter subqueue":   {messaging.Step{Kind: bus.StepSend, Path: "done/$deadletterqueue", Messages: []bus.MessageContent{plain("x")}}, forebay.CodeNotSupported},
				"Forebay's topic":          {messaging.Step{Kind: bus.StepSend, Path: forebay.TopicJobEvents, Messages: []bus.MessageContent{plain("x")}}, forebay.CodeUnknownQueue},
				"no message":               {messaging.Step{Kind: bus.StepSend, Path: "done"}, forebay.CodeInvalidRequest},
				"a large message":          {messaging.Step{Kind: bus.StepSend, Path: "done", Messages: []bus.MessageContent{plain(strings.Repeat("x", 600))}}, forebay.CodePayloadTooLarge},
				"no token":                 {messaging.Step{Kind: bus.StepAbandon, Path: "done", Token: "x"}, forebay.CodeInvalidRequest},
				"a reason for an abandon":  {messaging.Step{Kind: bus.StepAbandon, Path: "orders", Token: first.LockToken, How: forebay.Settlement{Reason: "r"}}, forebay.CodeInvalidRequest},
				"a reason that is large":   {messaging.Step{Kind: bus.StepDeadLetter, Path: "orders", Token: first.LockToken, How: forebay.Settlement{Reason: strings.Repeat("r", 5000)}}, forebay.CodeInvalidRequest},
				"a large state":            {messaging.Step{Kind: bus.StepState, Path: "orders", Token: first.LockToken, State: make([]byte, forebay.MaxSessionStateBytes+1)}, forebay.CodePayloadTooLarge},
				"a state without session":  {messaging.Step{Kind: bus.StepState, Path: "orders", Token: first.LockToken}, forebay.CodeSessionLockLost},
				"nothing scheduled":        {messaging.Step{Kind: bus.StepCancel, Path: "news", Seq: 1}, forebay.CodeNotFound},
				"a kind that is none":      {messaging.Step{Kind: 99, Path: "orders"}, forebay.CodeInvalidRequest},
				"more messages than fit":   {messaging.Step{Kind: bus.StepSend, Path: "done", Messages: slices.Repeat([]bus.MessageContent{plain("x")}, bus.MaxCommitSteps)}, forebay.CodeInvalidRequest},
				"numbers of other length":  {messaging.Step{Kind: bus.StepSend, Path: "done", Messages: []bus.MessageContent{plain("x")}, Numbers: make([]bus.Number, 2)}, forebay.CodeInvalidRequest},
				"a token of another queue": {messaging.Step{Kind: bus.StepDefer, Path: "done", Token: third.LockToken}, forebay.CodeLockLost},
			}
			for name, r := range refused {
				_, err := b.Transactions.Commit(ctx, "acme", append(slices.Clone(good), r.step))
				var e *forebay.Error
				if !errors.As(err, &e) || e.Code != r.code && (name != "Forebay's topic" || e.Code != forebay.CodeNotSupported) {
					t.Errorf("%s: %v", name, err)
				} else if !strings.HasPrefix(e.Field, "steps") {
					t.Errorf("%s: the refusal is about %q", name, e.Field)
				}
			}
			if got, _, err := b.Messages.Peek(ctx, "acme", "done", messaging.PeekFilter{}); err != nil || len(got) != 0 {
				t.Errorf("what was refused has sent %d messages (%v)", len(got), err)
			}
			seqs, err := b.Transactions.Commit(ctx, "acme", good)
			if err != nil || len(seqs) != 4 || len(seqs[3]) != 2 {
				t.Fatalf("%v, %v", seqs, err)
			}
			for path, want := range map[string]int{"orders": 1, "orders/$deadletterqueue": 1, "done": 2, "news/subscriptions/sub": 1} {
				if got, _, err := b.Messages.Peek(ctx, "acme", path, messaging.PeekFilter{}); err != nil || len(got) != want {
					t.Errorf("%s has %d messages (%v)", path, len(got), err)
				}
			}
		})
	}
}

// The limits of a tenant hold for all steps together.
func TestTransactionIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting, scheduled, sessions := int64(3), int64(1), int64(1)
		b := limited(t, forebay.TenantLimits{WaitingMessages: &waiting, Scheduled: &scheduled, Sessions: &sessions})
		putQueue(t, b, "acme", "plain")
		at := time.Now().Add(time.Hour)
		step := func(path, session string, later bool) messaging.Step {
			m := plain("m")
			if m.SessionID = session; later {
				m.ScheduledAt = &at
			}
			return messaging.Step{Kind: bus.StepSend, Path: path, Messages: []bus.MessageContent{m}}
		}
		one, a := step("plain", "", false), step("orders", "a", false)
		for name, steps := range map[string][]messaging.Step{
			"messages": {one, one, one, one}, "scheduled": {step("plain", "", true), one, step("plain", "", true)}, "sessions": {a, step("orders", "b", false)},
		} {
			if _, err := b.Transactions.Commit(t.Context(), "acme", steps); forebay.CodeOf(err) != forebay.CodeTenantLimit {
				t.Errorf("too many %s: %v", name, err)
			}
		}
		if _, err := b.Transactions.Commit(t.Context(), "acme", []messaging.Step{a, step("plain", "", true), a}); err != nil { // which is one session
			t.Error(err)
		}
		if _, err := b.Transactions.Commit(t.Context(), "acme", []messaging.Step{one}); forebay.CodeOf(err) != forebay.CodeTenantLimit {
			t.Errorf("a message too many: %v", err)
		}
	})
}

// A scheduled message is not cancelled by the path of a dead-letter subqueue, which has none.
func TestCancelByDeadLetterPath(t *testing.T) {
	t.Parallel()
	for kind, database := range dbtest.Databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := openService(t, database(t))
			putQueue(t, b, "acme", "orders")
			later := time.Now().Add(time.Hour)
			sent, err := b.Messages.Send(t.Context(), "acme", "orders", []forebay.NewMessage{{ScheduledTime: &later}})
			if err != nil {
				t.Fatal(err)
			}
			seq := sent[0].SequenceNumber
			if err := b.Messages.CancelScheduled(t.Context(), "acme", "orders/"+forebay.SubqueueDeadLetter, seq); forebay.CodeOf(err) != forebay.CodeNotFound {
				t.Errorf("it was cancelled: %v", err)
			}
			if err := b.Messages.CancelScheduled(t.Context(), "acme", "orders", seq); err != nil {
				t.Errorf("it is gone: %v", err)
			}
		})
	}
}
