package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
)

// asker sends jobs that answer messages.
type asker struct {
	*rapid.T
	s      *stores
	tenant int64
	queue  int64
	serial int
}

func (a *asker) ok(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// ask submits a job for a message that names that queue or topic, and claims it.
func (a *asker) ask(to, session string, change ...func(*NewJob)) *LockedJob {
	a.Helper()
	a.submit(to, session, change...)
	got, err := a.s.Jobs.Claim(context.Background(), ClaimRequest{Subqueue: queue.SubqueueOf(a.queue, queue.SubqueueMain), Max: 1, MaxBytes: 1, Lock: time.Minute,
		MaxDeliveries: 1, FailureSubqueue: queue.SubqueueDeadLetter})
	a.ok(err)
	if len(got) != 1 {
		a.Fatalf("claimed %d jobs", len(got))
	}
	return &got[0]
}

func (a *asker) submit(to, session string, change ...func(*NewJob)) Submitted {
	a.Helper()
	a.serial++
	reply, err := request.EncodeReply("acme", &forebay.ReplyTo{Entity: to, SessionID: session, CorrelationID: fmt.Sprint("m", a.serial)})
	a.ok(err)
	j := NewJob{ID: fmt.Sprint("job_", a.serial), Tenant: a.tenant, Queue: a.queue, Task: "echo", MaxAttempts: 5, Reply: reply}
	for _, f := range change {
		f(&j)
	}
	made, err := a.s.Jobs.Submit(context.Background(), []NewJob{j})
	a.ok(err)
	return made[0]
}

func (a *asker) put(tenant int64, name string, change ...func(*bus.MessageQueue)) bus.MessageQueue {
	a.Helper()
	q := bus.MessageQueue{Tenant: tenant, Name: name, Lock: time.Minute, MaxDeliveries: 5}
	for _, f := range change {
		f(&q)
	}
	q, _, err := a.s.Bus.PutMessageQueue(context.Background(), q, 100)
	a.ok(err)
	return q
}

// take receives all messages of a queue, deleting them.
func (a *asker) take(q bus.MessageQueue) []bus.Message {
	a.Helper()
	got, err := a.s.Bus.Receive(context.Background(), bus.ReceiveRequest{Queue: q, Max: 100, MaxBytes: 8 << 20, Delete: true})
	a.ok(err)
	return got
}

// events are the types of the events of the latest job. Their numbers have no gaps.
func (a *asker) events() (types []forebay.EventType) {
	a.Helper()
	job, err := a.s.Jobs.Job(context.Background(), a.tenant, fmt.Sprint("job_", a.serial))
	a.ok(err)
	kept, err := a.s.Jobs.Events(context.Background(), job.Seq, 0, 100)
	a.ok(err)
	for i, e := range kept {
		types = append(types, e.Type)
		if e.Number != int64(i+1) {
			a.Fatalf("event %d has the number %d: %v", i, e.Number, types)
		}
	}
	return types
}

func askerOf(t *rapid.T, s *stores) *asker {
	a := &asker{T: t, s: s}
	var err error
	a.tenant, err = s.Queues.EnsureTenant(context.Background(), "acme")
	a.ok(err)
	a.queue, err = s.Queues.EnsureQueue(context.Background(), "q")
	a.ok(err)
	return a
}

var (
	wentWell = AttemptRecord{Outcome: forebay.OutcomeSucceeded}
	wentBad  = AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: "bad_input", ErrorMessage: []byte("no \xff good")}
)

// However a generation of a job ends, its message is answered once.
func TestEveryEndIsAnswered(t *testing.T) {
	fixture.Once(t, func(rt *rapid.T, e engine) {
		s := e.Open(rt)
		defer s.DB.Close()
		ctx, a := context.Background(), askerOf(rt, s)
		replies := a.put(a.tenant, "acme/Replies")
		expect := func(status forebay.Status, generation int, body string, properties forebay.Properties) {
			a.Helper()
			got := a.take(replies)
			if len(got) != 1 {
				a.Fatalf("%s: %d answers", status, len(got))
			}
			m, id := got[0], fmt.Sprint("job_", a.serial)
			if m.MessageID != fmt.Sprintf("%s-reply-%d", id, generation) || m.CorrelationID != fmt.Sprint("m", a.serial) || m.SessionID != "s1" || m.Subject != string(status) ||
				m.ContentType != "application/json" || !m.Text || string(m.Body) != body || m.ReplyTo != "" {
				a.Errorf("%s: %+v with the body %s", status, m.MessageContent, m.Body)
			}
			properties["job_id"], properties["status"], properties["generation"] = id, string(status), int64(generation)
			want, err := json.Marshal(properties)
			a.ok(err)
			if !bytes.Equal(m.Properties, want) {
				a.Errorf("%s: properties %s, not %s", status, m.Properties, want)
			}
			if slices.Contains(a.events(), forebay.EventReplyFailed) {
				a.Errorf("%s: it is told that the reply failed", status)
			}
		}
		failed := `{"error":{"class":"permanent","code":"bad_input","message":"no ` + "\uFFFD" + ` good"}}`

		a.ok(s.Jobs.Succeed(ctx, a.ask("replies", "s1"), wentWell, Output{Inline: []byte(`{"a": 1}`), Size: 8}))
		expect(forebay.StatusSucceeded, 1, `{"a": 1}`, forebay.Properties{})
		a.ok(s.Jobs.Fail(ctx, a.ask("/replies", "s1"), wentBad))
		expect(forebay.StatusFailed, 1, failed, forebay.Properties{"error_code": "bad_input"})
		a.ok(s.Jobs.Expire(ctx, a.ask("sb://any.example/REPLIES", "s1"), wentBad))
		expired := `{"error":{"class":"permanent","code":"deadline_exceeded","message":"the deadline passed before the job ended"}}`
		expect(forebay.StatusExpired, 1, expired, forebay.Properties{"error_code": "deadline_exceeded"})
		if _, err := s.Jobs.Cancel(ctx, a.ask("replies", "s1").Seq); err != nil {
			a.Fatal(err)
		}
		expect(forebay.StatusCancelled, 1, `{"error":null}`, forebay.Properties{})

		// A redrive answers again.
		d := a.ask("replies", "s1")
		a.ok(s.Jobs.DeadLetter(ctx, d, wentBad, queue.SubqueueDeadLetter, "poison"))
		expect(forebay.StatusFailed, 1, failed, forebay.Properties{"error_code": "bad_input"})
		redriven, err := s.Jobs.Redrive(ctx, []Redrive{{Seq: d.Seq}}, audit.Act{Tenant: "acme", Actor: "key_1", Action: "redrive"})
		if err != nil || !redriven[0] {
			a.Fatal(redriven, err)
		}
		again, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(a.queue, queue.SubqueueMain), Max: 1, MaxBytes: 1, Lock: time.Second, MaxDeliveries: 1,
			FailureSubqueue: queue.SubqueueDeadLetter})
		if err != nil || len(again) != 1 {
			a.Fatal(len(again), err)
		}
		if lost := s.Jobs.Succeed(ctx, d, wentWell, Output{Inline: []byte("1"), Size: 1}); lost != forebay.ErrLockLost {
			a.Fatalf("the first generation ends twice: %v", lost)
		}
		a.ok(s.Jobs.Succeed(ctx, &again[0], wentWell, Output{Inline: []byte("2"), Size: 1}))
		expect(forebay.StatusSucceeded, 2, "2", forebay.Properties{})

		// A worker that dies too often, and a deadline that nobody watches.
		a.ask("replies", "s1")
		e.Pass(s, 2*time.Minute)
		next, err := s.Jobs.Submit(ctx, []NewJob{{ID: "job_next", Tenant: a.tenant, Queue: a.queue, Task: "echo", MaxAttempts: 5}})
		if err != nil || next[0].Err != nil {
			a.Fatal(err, next)
		}
		got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(a.queue, queue.SubqueueMain), Max: 1, MaxBytes: 1, Lock: time.Minute, MaxDeliveries: 1,
			FailureSubqueue: queue.SubqueueDeadLetter})
		if err != nil || len(got) != 1 || got[0].ID != "job_next" {
			a.Fatal(got, err)
		}
		m := a.take(replies)
		if len(m) != 1 || m[0].Subject != "failed" || !strings.Contains(string(m[0].Body), "MaxDeliveryCountExceeded") {
			a.Fatalf("%+v", m)
		}
		deadline, at := time.UnixMilli(e.Now()).Add(time.Minute), time.UnixMilli(e.Now()).Add(time.Hour)
		a.submit("replies", "s1", func(j *NewJob) { j.Deadline, j.ScheduledAt = &deadline, &at })
		e.Pass(s, 2*time.Minute)
		expect(forebay.StatusExpired, 1, expired, forebay.Properties{"error_code": "deadline_exceeded"})
	})
}

// A job ends even if nobody can be answered. An event says so, and the next generation tries
// again.
func TestRepliesThatCannotBeSent(t *testing.T) {
	fixture.Once(t, func(rt *rapid.T, e engine) {
		s := e.Open(rt)
		defer s.DB.Close()
		ctx, a := context.Background(), askerOf(rt, s)
		other, err := s.Queues.EnsureTenant(ctx, "other")
		a.ok(err)
		theirs := a.put(other, "other/replies")
		sessions := a.put(a.tenant, "acme/sessions", func(q *bus.MessageQueue) { q.RequiresSession = true })
		topic := a.put(a.tenant, "acme/topic", func(q *bus.MessageQueue) { q.IsTopic = true })
		sub := bus.MessageQueue{Tenant: a.tenant, Name: entity.SubscriptionName(topic.Name, "all"), Lock: time.Minute, MaxDeliveries: 5}
		everything := true
		sub, _, err = s.Bus.PutSubscription(ctx, topic, sub, []bus.Rule{{Name: "$Default", Settings: forebay.RuleSettings{BooleanFilter: &everything}}}, 10)
		a.ok(err)
		for _, status := range []forebay.EntityStatus{forebay.EntityDisabled, forebay.EntitySendDisabled} {
			a.put(a.tenant, "acme/"+string(status), func(q *bus.MessageQueue) { q.Status = status })
		}
		a.put(a.tenant, "acme/tiny", func(q *bus.MessageQueue) { q.MaxMessage = 10 })
		a.put(a.tenant, "acme/"+forebay.TopicJobEvents, func(q *bus.MessageQueue) { q.IsTopic = true })
		tail := func() []forebay.EventType {
			types := a.events()
			return types[max(len(types)-3, 0):]
		}
		for to, code := range map[string]forebay.Code{
			"none": "unknown_queue", "q": "unknown_queue", "other/replies": "unknown_queue", "topic/subscriptions/all": "unknown_queue", "sessions/$deadletterqueue": "unknown_queue",
			"": "unknown_queue", "%zz://": "unknown_queue", "../other/replies": "unknown_queue", strings.Repeat("é", 16000): "unknown_queue", "sessions": "invalid_request",
			forebay.TopicJobEvents: "forbidden", string(forebay.EntityDisabled): "entity_disabled", string(forebay.EntitySendDisabled): "entity_disabled", "tiny": "payload_too_large",
		} {
			a.ok(s.Jobs.Succeed(ctx, a.ask(to, ""), wentWell, Output{Inline: []byte("1"), Size: 1}))
			if got := tail(); !slices.Equal(got, []forebay.EventType{forebay.EventStarted, forebay.EventSucceeded, forebay.EventReplyFailed}) {
				a.Errorf("%.40q: %v", to, got)
			}
			job, err := s.Jobs.Job(ctx, a.tenant, fmt.Sprint("job_", a.serial))
			a.ok(err)
			kept, err := s.Jobs.Events(ctx, job.Seq, 3, 10)
			if err != nil || len(kept) != 1 || kept[0].ErrorCode != string(code) || kept[0].Status != forebay.StatusSucceeded {
				a.Errorf("%.40q: %+v (%v)", to, kept, err)
			}
			if len(job.Reply) > 2048 || job.Status != forebay.StatusSucceeded {
				a.Errorf("%.40q: %d bytes, %s", to, len(job.Reply), job.Status)
			}
		}
		d := a.ask("later", "")
		a.ok(s.Jobs.DeadLetter(ctx, d, wentBad, queue.SubqueueDeadLetter, "poison"))
		if got := tail(); !slices.Equal(got, []forebay.EventType{forebay.EventFailed, forebay.EventDeadLettered, forebay.EventReplyFailed}) {
			a.Errorf("dead-lettered: %v", got)
		}
		later := a.put(a.tenant, "acme/later", func(q *bus.MessageQueue) { q.ForwardTo = topic.Name })
		if _, err := s.Jobs.Redrive(ctx, []Redrive{{Seq: d.Seq}}, audit.Act{Tenant: "acme", Actor: "key_1", Action: "redrive"}); err != nil {
			a.Fatal(err)
		}
		if got := tail(); got[2] != forebay.EventRedriven {
			a.Errorf("redriven: %v", got)
		}
		again, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(a.queue, queue.SubqueueMain), Max: 1, MaxBytes: 1, Lock: time.Minute, MaxDeliveries: 9})
		if err != nil || len(again) != 1 {
			a.Fatal(len(again), err)
		}
		a.ok(s.Jobs.Succeed(ctx, &again[0], wentWell, Output{Inline: []byte("7"), Size: 1}))
		if got := tail(); got[2] != forebay.EventSucceeded {
			a.Errorf("answered: %v", got)
		}
		// It is forwarded to a topic, whose subscription gets a copy.
		got, err := s.Bus.Receive(ctx, bus.ReceiveRequest{Queue: sub, Max: 1, MaxBytes: 1 << 20, Delete: true, Wait: true})
		if err != nil || len(got) != 1 || string(got[0].Body) != "7" {
			a.Fatalf("%d copies (%v)", len(got), err)
		}
		if got := a.take(later); len(got) != 0 {
			a.Errorf("%d stay where they are forwarded", len(got))
		}
		if got := a.take(theirs); len(got) != 0 {
			a.Errorf("another tenant got %d", len(got))
		}
		a.ok(s.Jobs.Succeed(ctx, a.ask("sessions", "mine"), wentWell, Output{Inline: []byte("8"), Size: 1}))
		if got := tail(); got[2] != forebay.EventSucceeded {
			a.Errorf("with a session: %v", got)
		}
		if count, err := s.Bus.MessageCounts(ctx, sessions, 10); err != nil || count.Active+count.DeadLetter != 1 || count.DeadLetter != 0 {
			a.Errorf("in the queue with sessions: %+v (%v)", count, err)
		}
	})
}

// A result that is too large for a message is named.
func TestLargeReplies(t *testing.T) {
	fixture.Once(t, func(rt *rapid.T, e engine) {
		s := e.Open(rt)
		defer s.DB.Close()
		ctx, a := context.Background(), askerOf(rt, s)
		replies := a.put(a.tenant, "acme/replies")
		small := a.put(a.tenant, "acme/small", func(q *bus.MessageQueue) { q.MaxMessage = 1024 })
		a.ok(s.Jobs.Succeed(ctx, a.ask("small", ""), wentWell, Output{Inline: bytes.Repeat([]byte("1"), 2000), Size: 2000}))
		if got := a.take(small); len(got) != 1 || !bytes.Contains(got[0].Body, []byte(`"result_bytes":2000`)) {
			a.Errorf("a queue for small messages has %d", len(got))
		}
		s.Jobs.MaxReplyBytes.Store(200 << 10)
		large := []byte(`"` + strings.Repeat("x", 150<<10) + `"`)
		huge := []byte(`"` + strings.Repeat("x", 200<<10) + `"`)
		for _, out := range []Output{{Blob: "1/a", Size: int64(len(large)), Reply: large}, {Blob: "1/b", Size: int64(len(huge)), Reply: huge}, {Blob: "1/c", Size: 5 << 20}} {
			a.ok(s.Jobs.Succeed(ctx, a.ask("replies", ""), wentWell, out))
			got := a.take(replies)
			if len(got) != 1 {
				a.Fatalf("%d answers", len(got))
			}
			if out.Blob == "1/a" {
				if !bytes.Equal(got[0].Body, large) || bytes.Contains(got[0].Properties, []byte("claim_check")) {
					a.Errorf("%d bytes, %s", len(got[0].Body), got[0].Properties)
				}
				continue
			}
			var ref forebay.ReplyReference
			a.ok(json.Unmarshal(got[0].Body, &ref))
			id := fmt.Sprint("job_", a.serial)
			if ref.JobID != id || ref.ResultBytes != out.Size || ref.Links.Result != "/v1/jobs/"+id+"/result" || !bytes.Contains(got[0].Properties, []byte(`"claim_check":true`)) {
				a.Errorf("%s, %s", got[0].Body, got[0].Properties)
			}
		}
	})
}
