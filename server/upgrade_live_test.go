package server_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
)

// These are the parts of TestUpgradeOfLiveData: what the old server was doing, and that it is
// brought to its end.

func (u upgraded) jobsOver(t *testing.T) {
	id := u.job(t, "echo", "finished", func(r *forebay.SubmitRequest) {
		correlation := "corr"
		r.CorrelationID, r.Metadata = &correlation, map[string]string{"kind": "done"}
	})
	job := must(u.Get(t.Context(), id))(t)
	if job.Status != forebay.StatusSucceeded || string(job.Result) != `"finished"` || job.Metadata["kind"] != "done" {
		t.Errorf("the finished job is %+v", job)
	}
	if events := all(t, u.Events(t.Context(), id, 0)); len(events) != 3 || events[2].Type != forebay.EventSucceeded {
		t.Errorf("its events are %+v", events)
	}
	cancelled := u.job(t, "stubborn", "cancelled", inSession("s2"))
	if job := must(u.Get(t.Context(), cancelled))(t); job.Status != forebay.StatusCancelled {
		t.Errorf("the cancelled job is %s", job.Status)
	}

	dead := u.job(t, "broken", "dead")
	set := all(t, u.DeadLetters(forebay.DefaultQueue).List(t.Context(), forebay.SetAsideFilter{}, 0))
	if len(set) != 1 || set[0].JobID != dead || set[0].Reason != "bad_input" || set[0].Description != "cannot be done" {
		t.Errorf("the dead letters are %+v", set)
	}
	must(u.Redrive(t.Context(), dead))(t)
	if job := must(u.Wait(t.Context(), dead))(t); job.Status != forebay.StatusSucceeded || job.Generation != 2 {
		t.Errorf("the redriven job is %s in generation %d", job.Status, job.Generation)
	}

	later := all(t, u.List(t.Context(), forebay.JobFilter{Status: []forebay.Status{forebay.StatusScheduled}}))
	if len(later) != 1 || later[0].Task != "echo" {
		t.Fatalf("the scheduled jobs are %+v", later)
	}
	if job := must(u.Cancel(t.Context(), later[0].ID))(t); job.Status != forebay.StatusCancelled {
		t.Errorf("the scheduled job is %s", job.Status)
	}
}

func (u upgraded) jobsUnderWay(t *testing.T) {
	for _, c := range []struct {
		task, input string
		attempts    []forebay.Outcome
	}{
		{"echo", "waiting", []forebay.Outcome{forebay.OutcomeSucceeded}},
		{"hang", "running", []forebay.Outcome{forebay.OutcomeLost, forebay.OutcomeSucceeded}},
		{"limited", "limited", []forebay.Outcome{forebay.OutcomeLost, forebay.OutcomeSucceeded}},
		{"flaky", "retried", []forebay.Outcome{forebay.OutcomeRetried, forebay.OutcomeSucceeded}},
	} {
		id := u.job(t, c.task, c.input, func(r *forebay.SubmitRequest) {
			if c.input == "waiting" {
				r.Queue = "later"
			}
		})
		job := must(u.Wait(t.Context(), id))(t)
		attempts := servertest.Outcomes(must(u.Attempts(t.Context(), id))(t))
		if job.Status != forebay.StatusSucceeded || string(job.Result) != string(jsonText(c.input)) || !slices.Equal(attempts, c.attempts) {
			t.Errorf("%s is %s with the result %s, its attempts are %s", c.input, job.Status, job.Result, attempts)
		}
	}
}

func inSession(id string) func(*forebay.SubmitRequest) {
	return func(r *forebay.SubmitRequest) { r.SessionID = &id }
}

func (u upgraded) jobSessions(t *testing.T) {
	later := func(r *forebay.SubmitRequest) { r.Queue = "later" }
	first := must(u.Wait(t.Context(), u.job(t, "echo", "first of a session", inSession("s1"), later)))(t)
	second := must(u.Wait(t.Context(), u.job(t, "echo", "second of a session", inSession("s1"), later)))(t)
	if first.CompletedAt == nil || second.StartedAt == nil || second.StartedAt.Before(*first.CompletedAt) {
		t.Errorf("the first ended at %v, the second began at %v", first.CompletedAt, second.StartedAt)
	}
	// Its turn comes when the lock of the cancelled job before it has ended.
	if job := must(u.Wait(t.Context(), u.job(t, "echo", "after the cancelled", inSession("s2"))))(t); job.Status != forebay.StatusSucceeded {
		t.Errorf("the job after the cancelled one is %s", job.Status)
	}
}

func (u upgraded) budgets(t *testing.T) {
	job := must(u.server.Wait(t.Context(), "metered", oldBroke, 0))(t)
	if job.WaitingFor == nil || *job.WaitingFor != forebay.WaitBudget {
		t.Errorf("the job without budget is %s and waits for %v", job.Status, job.WaitingFor)
	}
	must(u.SetBudget(t.Context(), "metered", forebay.Budget{}))(t)
	for _, id := range []string{oldSpending, oldBroke} {
		if job := must(u.server.Wait(t.Context(), "metered", id, time.Minute))(t); job.Status != forebay.StatusSucceeded {
			t.Errorf("%s is %s: %+v", id, job.Status, job.Error)
		}
	}
}

func (u upgraded) messages(t *testing.T) {
	mail := u.Messages("mail")
	// The old server has seen this message id.
	body := "locked"
	must(mail.Send(t.Context(), forebay.NewMessage{MessageID: "locked", Body: &body}))(t)
	q := u.queue(t, "mail")
	if q.Active != 1 || q.Locked != 1 || q.Deferred != 1 || q.Scheduled != 1 || q.DeadLetter != 1 {
		t.Errorf("the queue is %+v", q)
	}
	until := must(mail.Renew(t.Context(), oldMailLock))(t)
	if time.Until(until) < 4*time.Minute {
		t.Errorf("the old lock was renewed until %s", until)
	}
	mustDo(t, mail.Complete(t.Context(), oldMailLock))
	u.receive(t, "mail", "deferred", forebay.ReceiveRequest{DeferredSequenceNumbers: []int64{oldMailDeferred}})
	u.receive(t, "mail", "active", forebay.ReceiveRequest{})
	mustDo(t, mail.CancelScheduled(t.Context(), oldMailTimed))

	dead := all(t, u.Messages("mail/$deadletterqueue").Peek(t.Context(), 0))
	if len(dead) != 1 || dead[0].DeadLetterReason != "unreadable" || dead[0].DeadLetterDescription != "by hand" {
		t.Errorf("the dead letters are %+v", dead)
	}
	must(u.Messages("mail/$deadletterqueue").Redrive(t.Context(), forebay.RedriveMessagesRequest{DeadMessageFilter: forebay.DeadMessageFilter{All: true}}))(t)
	u.receive(t, "mail", "dead", forebay.ReceiveRequest{})
	if q := u.queue(t, "mail"); q.Active+q.Locked+q.Deferred+q.Scheduled+q.DeadLetter != 0 {
		t.Errorf("in the end the queue is %+v", q)
	}
}

func (u upgraded) queue(t *testing.T, name string) *forebay.MessageQueue {
	t.Helper()
	_, q, err := u.FindQueue(t.Context(), name)
	mustDo(t, err)
	if q == nil {
		t.Fatalf("%s has no messages", name)
	}
	return q
}

// receive takes a message of that body and completes it.
func (u upgraded) receive(t *testing.T, entity, body string, req forebay.ReceiveRequest) forebay.Message {
	t.Helper()
	got := must(u.Messages(entity).Receive(t.Context(), req))(t)
	if len(got) != 1 || *got[0].Body != body {
		t.Fatalf("received %+v, want %s", got, body)
	}
	mustDo(t, u.Messages(entity).Complete(t.Context(), got[0].LockToken))
	return got[0]
}

func (u upgraded) sessions(t *testing.T) {
	talk := u.Messages("talk")
	if state := must(talk.SessionState(t.Context(), oldSession))(t); string(state) != "half way" {
		t.Errorf("the state of the session is %q", state)
	}
	mustDo(t, talk.Complete(t.Context(), oldSessionLock))
	next := func(token, body string) {
		t.Helper()
		got := must(talk.ReceiveSession(t.Context(), token, forebay.ReceiveRequest{}))(t)
		if len(got) != 1 || *got[0].Body != body {
			t.Fatalf("received %+v, want %s", got, body)
		}
		mustDo(t, talk.Complete(t.Context(), got[0].LockToken))
	}
	next(oldSession, "a2")
	mustDo(t, talk.CloseSession(t.Context(), oldSession))
	other, _, err := talk.AcceptSession(t.Context(), forebay.AcceptSessionRequest{})
	mustDo(t, err)
	if other.SessionID != "b" {
		t.Errorf("the next session is %q", other.SessionID)
	}
	next(other.SessionToken, "b1")
}

func (u upgraded) topics(t *testing.T) {
	all, large := "orders/subscriptions/all", "orders/subscriptions/large"
	u.receive(t, all, "twenty", forebay.ReceiveRequest{})
	u.receive(t, all, "five", forebay.ReceiveRequest{})
	if m := u.receive(t, large, "twenty", forebay.ReceiveRequest{}); m.Properties["size"] != "large" {
		t.Errorf("the rule's action left %v", m.Properties)
	}
	for _, subject := range []string{"", "urgent"} {
		body := "one " + subject
		must(u.Publish(t.Context(), "orders", forebay.NewMessage{Body: &body, Subject: subject, Properties: forebay.Properties{"amount": int64(1)}}))(t)
	}
	u.receive(t, large, "one urgent", forebay.ReceiveRequest{})
	u.receive(t, all, "one ", forebay.ReceiveRequest{})
}

func (u upgraded) orchestrations(t *testing.T) {
	mustDo(t, u.RaiseEvent(t.Context(), "trip", "paid", []byte("7")))
	if o := must(u.Orchestration(t.Context(), "suspended"))(t); o.Status != forebay.OrchestrationSuspended {
		t.Errorf("the suspended instance is %s", o.Status)
	}
	mustDo(t, u.ResumeOrchestration(t.Context(), "suspended", ""))
	mustDo(t, u.RaiseEvent(t.Context(), "suspended", "go", jsonText("went on")))
	for id, output := range map[string]string{
		"done": "went", "trip": "Oslo booked confirmed for 7", "nap": "awake", "caller": "called", "retrying": "x steady", "suspended": "went on",
	} {
		o := must(u.WaitOrchestration(t.Context(), id))(t)
		if o.Status != forebay.OrchestrationCompleted || string(o.Output) != string(jsonText(output)) {
			t.Errorf("%s is %s with the output %s: %+v", id, o.Status, o.Output, o.Failure)
		}
	}
	var attempts []string
	for _, a := range must(u.ActivityAttempts(t.Context(), "retrying"))(t) {
		attempts = append(attempts, fmt.Sprint(a.Name, " ", a.Number, " ", a.Outcome))
	}
	if want := []string{"unsteady 1 retried", "unsteady 2 succeeded"}; !slices.Equal(attempts, want) {
		t.Errorf("the attempts are %q", attempts)
	}
}

func (u upgraded) documents(t *testing.T) {
	// found returns the metadata of the revisions that a search finds.
	found := func(query string) (all []string) {
		t.Helper()
		for _, r := range must(u.Search(t.Context(), forebay.SearchRequest{Query: query, Mode: forebay.SearchKeyword}))(t).Items {
			all = append(all, r.DocumentID+" "+r.Metadata["shelf"])
		}
		return all
	}
	d := must(u.Document(t.Context(), "lease"))(t)
	if d.Status != forebay.DocumentProcessing || !d.Searchable {
		t.Errorf("the document is %+v", d)
	}
	if !slices.Equal(found("breakwater"), []string{"lease 3"}) || found("lanterns") != nil {
		t.Error("searches do not find the first revision alone")
	}
	must(u.ResumeDeployment(t.Context(), "good"))(t)
	if d = must(u.WaitDocument(t.Context(), "lease"))(t); d.Status != forebay.DocumentReady {
		t.Errorf("the document is %+v", d)
	}
	if found("breakwater") != nil || !slices.Equal(found("lanterns"), []string{"lease "}) {
		t.Error("searches do not find the second revision alone")
	}
}

func (u upgraded) webhooks(t *testing.T) {
	servertest.Eventually(t, time.Minute, func() error {
		u.hooks.mu.Lock()
		defer u.hooks.mu.Unlock()
		for _, name := range []string{"/slow", "/refuses"} {
			if u.hooks.got[name] != "dead_lettered" {
				return fmt.Errorf("received %v", u.hooks.got)
			}
		}
		return nil
	})
	w := must(u.Webhook(t.Context(), "refuses"))(t)
	tries := must(u.WebhookTries(t.Context(), "refuses"))(t)
	if w.Pending != 0 || len(tries) < 2 || tries[0].Outcome != "delivered" || tries[len(tries)-1].Status != 500 {
		t.Errorf("the webhook is %+v, its tries are %+v", w, tries)
	}
}

func (u upgraded) audit(t *testing.T) {
	v := must(u.VerifyAudit(t.Context(), ""))(t)
	if !v.Intact || !v.Done || v.Checked < 5 {
		t.Errorf("the audit log is %+v", v)
	}
	if acts := all(t, u.Audit(t.Context(), forebay.AuditFilter{Action: "pause"}, 0)); len(acts) != 1 || acts[0].Target != "later" {
		t.Errorf("the pauses are %+v", acts)
	}
}

// must returns what a call has returned, if that was no error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		mustDo(t, err)
		return v
	}
}

// all returns what a sequence yields.
func all[T any](t *testing.T, seq iter.Seq2[T, error]) (list []T) {
	t.Helper()
	for v, err := range seq {
		mustDo(t, err)
		list = append(list, v)
	}
	return list
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func jsonText(s string) json.RawMessage { return json.RawMessage(`"` + s + `"`) }
