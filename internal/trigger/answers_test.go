package trigger

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

// A message with reply_to makes a job that answers it. Others make jobs that answer nobody.
func TestMessagesAskForAnswers(t *testing.T) {
	onBothEngines(t, func(t *testing.T, w *world) {
		w.queue(forebay.MessageQueueSettings{})
		for _, who := range []string{tenant, "other"} {
			_, _, err := w.bus.Queues.Put(t.Context(), who, "answers", forebay.MessageQueueSettings{LockSeconds: 30})
			w.ok(err)
		}
		asks, silent := text("asks", "x"), text("silent", "x")
		asks.ReplyTo, asks.ReplyToSessionID, asks.CorrelationID = "answers", "mine", "its own"
		w.send(asks, silent, asks) // a repeat makes no second job, and no second answer
		w.ok(w.trigger().pass(t.Context()))
		jobs := w.all()
		if len(jobs) != 2 {
			t.Fatalf("%d jobs", len(jobs))
		}
		for _, job := range jobs {
			if asked := job.Metadata["id"] == "asks"; (job.ReplyTo != nil) != asked {
				t.Errorf("%s answers to %+v", job.Metadata["id"], job.ReplyTo)
			} else if asked && (*job.ReplyTo != forebay.ReplyTo{Entity: "answers", SessionID: "mine", CorrelationID: "asks"} || job.CorrelationID != "its own") {
				t.Errorf("%+v, %s", *job.ReplyTo, job.CorrelationID)
			}
			if _, err := w.jobs.Cancel(t.Context(), tenant, job.ID); err != nil {
				t.Fatal(err)
			}
		}
		got, err := w.bus.Messages.Receive(t.Context(), tenant, "answers", forebay.ReceiveRequest{MaxMessages: 10})
		w.ok(err)
		if len(got) != 1 || got[0].CorrelationID != "asks" || got[0].SessionID != "mine" || got[0].Subject != "cancelled" || *got[0].Body != `{"error":null}` {
			t.Fatalf("answers %+v", got)
		}
		if got, err = w.bus.Messages.Receive(t.Context(), "other", "answers", forebay.ReceiveRequest{MaxMessages: 10}); err != nil || len(got) != 0 {
			t.Errorf("another tenant got %d answers (%v)", len(got), err)
		}
	})
}

// What a tenant is answered counts in its limits. At a limit it is answered all the same, and new
// messages wait.
func TestAnswersCount(t *testing.T) {
	onBothEngines(t, func(t *testing.T, w *world) {
		w.ok(w.store.DB.Close())
		bytes := int64(30_000)
		w.limits.StoredBytes = &bytes
		w.open()
		w.queue(forebay.MessageQueueSettings{})
		_, _, err := w.bus.Queues.Put(t.Context(), tenant, "answers", forebay.MessageQueueSettings{LockSeconds: 30})
		w.ok(err)
		ask := text("asks", "x")
		ask.ReplyTo = "answers"
		w.send(ask)
		w.ok(w.trigger().pass(t.Context()))
		q := w.jobs.Worker().Configured()[0]
		for _, other := range w.jobs.Worker().Configured() {
			if other.Name == forebay.DefaultQueue {
				q = other
			}
		}
		claimed, err := w.jobs.Worker().Claim(t.Context(), q, false, 1, 1<<20)
		w.ok(err)
		result := json.RawMessage(`"` + strings.Repeat("r", 40_000) + `"`)
		_, err = w.jobs.Worker().Finish(t.Context(), claimed[0], forebay.TaskResult{Output: result}, nil)
		w.ok(err)
		got, err := w.bus.Messages.Receive(t.Context(), tenant, "answers", forebay.ReceiveRequest{MaxMessages: 1})
		w.ok(err)
		if len(got) != 1 || *got[0].Body != string(result) {
			t.Fatalf("%d answers", len(got))
		}
		w.ok(w.store.DB.Close()) // another process counts at once
		w.open()
		used, err := w.store.Tenants.LimitUsed(t.Context(), w.tenantNo(), forebay.LimitStoredBytes, 1<<40)
		w.ok(err)
		if used < 2*int64(len(result)) {
			t.Errorf("the result and its answer count as %d bytes", used)
		}
		if results := w.jobs.SubmitMany(t.Context(), tenant, []forebay.SubmitRequest{{Task: "echo", Input: json.RawMessage("1")}}); forebay.CodeOf(results[0].Error) != forebay.CodeTenantLimit {
			t.Errorf("over the limit: %v", results[0].Error)
		}
	})
}
