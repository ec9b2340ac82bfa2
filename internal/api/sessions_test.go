package api_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

func (f *fixture) accept(body string) forebay.Session {
	f.t.Helper()
	return into[forebay.Session](f.t, f.do("POST", orders+"/sessions/accept", body), http.StatusOK)
}

func sessionPath(s forebay.Session, verb string) string {
	return orders + "/sessions/" + s.SessionToken + "/" + verb
}

func (f *fixture) receiveSession(s forebay.Session, body string) []forebay.Message {
	f.t.Helper()
	return into[received](f.t, f.do("POST", sessionPath(s, "receive"), body), http.StatusOK).Messages
}

func TestSessionLife(t *testing.T) {
	f := newFixture(t)
	if q := f.putQueue(orders, `{"requires_session":true}`); !q.RequiresSession {
		t.Errorf("made %+v", q)
	}
	wantProblem(t, f.do("POST", orders+"/messages", `{"body":"x"}`), 422, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("POST", orders+"/messages/receive", ``), http.StatusConflict, forebay.CodeConflict)
	if r := f.do("POST", orders+"/sessions/accept", ``); r.StatusCode != http.StatusNoContent || len(r.body) > 0 {
		t.Errorf("without messages accepted %d %s", r.StatusCode, r.body)
	}
	for _, m := range []string{"a/1", "b/1", "a/2"} {
		session, body, _ := strings.Cut(m, "/")
		f.sendMessage(orders, fmt.Sprintf(`{"session_id":%q,"body":%q}`, session, body))
	}
	a := f.accept(``)
	if a.SessionID != "a" || a.State != nil || time.Until(a.LockedUntil) < 30*time.Second {
		t.Errorf("accepted %+v", a)
	}
	b := f.accept(`{"wait_seconds":5}`)
	wantProblem(t, f.do("POST", orders+"/sessions/accept", `{"session_id":"a"}`), http.StatusConflict, forebay.CodeSessionLocked)

	got := f.receiveSession(a, `{"max_messages":10,"wait_seconds":5}`)
	if len(got) != 2 || *got[0].Body != "1" || *got[1].Body != "2" || got[0].SessionID != "a" || !got[0].LockedUntil.Equal(a.LockedUntil) {
		t.Fatalf("received %+v", got)
	}
	f.wantSettled(orders, got[0], "complete", "")
	wantProblem(t, f.settleMessage(orders, got[1], "renew", ""), 422, forebay.CodeNotSupported)
	renewed := into[struct {
		LockedUntil time.Time `json:"locked_until"`
	}](t, f.do("POST", sessionPath(a, "renew"), ""), http.StatusOK)
	if renewed.LockedUntil.Before(a.LockedUntil) {
		t.Errorf("renewed until %v", renewed.LockedUntil)
	}
	state := base64.StdEncoding.EncodeToString([]byte{0, 255})
	if r := f.do("PUT", sessionPath(a, "state"), `{"state_base64":"`+state+`"}`); r.StatusCode != http.StatusNoContent {
		t.Errorf("state: %d %s", r.StatusCode, r.body)
	}
	if s := into[forebay.SessionState](t, f.do("GET", sessionPath(a, "state"), ""), http.StatusOK); string(s.State) != "\x00\xff" {
		t.Errorf("state %v", s.State)
	}
	if r := f.do("POST", sessionPath(a, "close"), ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("close: %d %s", r.StatusCode, r.body)
	}
	for _, verb := range []string{"receive", "renew", "close"} {
		wantProblem(t, f.do("POST", sessionPath(a, verb), ""), http.StatusConflict, forebay.CodeSessionLockLost)
	}
	wantProblem(t, f.settleMessage(orders, got[1], "complete", ""), http.StatusConflict, forebay.CodeLockLost)

	a = f.accept(`{"session_id":"a"}`)
	if string(a.State) != "\x00\xff" {
		t.Errorf("the state did not outlive the lock: %+v", a)
	}
	got = f.receiveSession(a, ``)
	if len(got) != 1 || *got[0].Body != "2" || got[0].DeliveryCount != 1 {
		t.Errorf("received %+v", got)
	}
	f.wantSettled(orders, got[0], "dead-letter", `{"reason":"r"}`)
	if dead := f.receiveOne(deadSub, ``); dead.SessionID != "a" {
		t.Errorf("dead-lettered %+v", dead)
	}
	if got := f.receiveSession(b, ``); len(got) != 1 || got[0].SessionID != "b" {
		t.Errorf("received %+v", got)
	}
}

func TestSessionInput(t *testing.T) {
	f := newFixture(t)
	f.putQueue(orders, `{"requires_session":true}`)
	f.putQueue("/v1/queues/plain", ``)
	s := f.accept(`{"session_id":"x/é?"}`)
	large := base64.StdEncoding.EncodeToString(make([]byte, forebay.MaxSessionStateBytes+1))
	for _, c := range []struct {
		method, path, body string
		status             int
		code               forebay.Code
		field              string
	}{
		{"PUT", orders, `{"requires_session":false}`, 409, forebay.CodeConflict, "requires_session"},
		{"PUT", orders, `{"requires_duplicate_detection":true}`, 409, forebay.CodeConflict, "requires_duplicate_detection"},
		{"PUT", orders, `{"forward_to":"plain"}`, 422, forebay.CodeInvalidRequest, "forward_to"},
		{"PUT", "/v1/queues/plain", `{"forward_to":"none"}`, 422, forebay.CodeInvalidRequest, "forward_to"},
		{"PUT", "/v1/queues/plain", `{"forward_to":"plain"}`, 422, forebay.CodeInvalidRequest, "forward_to"},
		{"PUT", "/v1/queues/plain", `{"forward_dead_lettered_messages_to":"a/b"}`, 422, forebay.CodeInvalidRequest, "forward_dead_lettered_messages_to"},
		{"PUT", "/v1/queues/plain", `{"duplicate_detection_window_seconds":60}`, 422, forebay.CodeInvalidRequest, "duplicate_detection_window_seconds"},
		{"PUT", "/v1/queues/new", `{"requires_duplicate_detection":true,"duplicate_detection_window_seconds":19}`, 422, forebay.CodeInvalidRequest, "duplicate_detection_window_seconds"},
		{"PUT", "/v1/queues/plain", `{"auto_delete_on_idle_seconds":299}`, 422, forebay.CodeInvalidRequest, "auto_delete_on_idle_seconds"},
		{"PUT", "/v1/queues/plain", `{"default_message_ttl_seconds":-1}`, 422, forebay.CodeInvalidRequest, "default_message_ttl_seconds"},
		{"POST", orders + "/sessions/accept", `{"session_id":"a","wait_seconds":1}`, 422, forebay.CodeInvalidRequest, "wait_seconds"},
		{"POST", orders + "/sessions/accept", `{"session_id":"` + strings.Repeat("é", 129) + `"}`, 422, forebay.CodeInvalidRequest, "session_id"},
		{"POST", orders + "/sessions/accept", `{"wait_seconds":61}`, 422, forebay.CodeInvalidRequest, "wait_seconds"},
		{"POST", "/v1/queues/plain/sessions/accept", ``, 409, forebay.CodeConflict, "queue"},
		{"POST", orders + "/sessions/x/renew", ``, 422, forebay.CodeInvalidRequest, "session_token"},
		{"PUT", sessionPath(s, "state"), `{"state_base64":"` + large + `"}`, 413, forebay.CodePayloadTooLarge, "state_base64"},
		{"POST", orders + "/messages", `{"session_id":"a","partition_key":"b"}`, 422, forebay.CodeInvalidRequest, "partition_key"},
		{"POST", orders + "/messages", `{"time_to_live_seconds":-1}`, 422, forebay.CodeInvalidRequest, "time_to_live_seconds"},
		{"POST", orders + "/messages/7/cancel", ``, 404, forebay.CodeNotFound, ""},
		{"POST", orders + "/messages/delete", `{}`, 422, forebay.CodeInvalidRequest, "enqueued_before"},
		{"POST", orders + "/messages/delete", `{"enqueued_before":"2030-01-01T00:00:00Z","max_messages":4001}`, 422, forebay.CodeInvalidRequest, "max_messages"},
	} {
		p := wantProblem(t, f.do(c.method, c.path, c.body), c.status, c.code)
		if p.Field != c.field {
			t.Errorf("%s %s %.80s: field %q", c.method, c.path, c.body, p.Field)
		}
	}
}

func TestScheduledExpiringAndUniqueMessages(t *testing.T) {
	f := newFixture(t)
	q := f.putQueue(orders, `{"requires_duplicate_detection":true,"default_message_ttl_seconds":3600,"dead_letter_on_expiration":true,"auto_delete_on_idle_seconds":600}`)
	if *q.DuplicateWindowSeconds != 600 || *q.DefaultTTLSeconds != 3600 || !q.DeadLetterOnExpiration || *q.AutoDeleteOnIdleSeconds != 600 {
		t.Errorf("made %+v", q)
	}
	if q := into[forebay.MessageQueue](t, f.do("PUT", orders, `{"lock_seconds":5}`), http.StatusOK); !q.DetectsDuplicates || q.DefaultTTLSeconds != nil {
		t.Errorf("changed to %+v", q)
	}
	seq := f.sendMessage(orders, `{"message_id":"m","scheduled_enqueue_time":"2100-01-01T00:00:00Z","time_to_live_seconds":0.5,"reply_to_session_id":"r","partition_key":"p"}`)
	if again := f.sendMessage(orders, `{"message_id":"m"}`); again != seq {
		t.Errorf("a duplicate of %d was given the number %d", seq, again)
	}
	peeked := into[forebay.Page[forebay.Message]](t, f.do("GET", orders+"/messages", ""), http.StatusOK).Items
	if len(peeked) != 1 || peeked[0].State != forebay.MessageScheduled || peeked[0].ScheduledTime.Year() != 2100 || peeked[0].TimeToLiveSeconds != 0.5 ||
		peeked[0].ReplyToSessionID != "r" || peeked[0].PartitionKey != "p" || peeked[0].EnqueuedSequenceNumber != seq {
		t.Errorf("peeked %+v", peeked)
	}
	if r := f.do("POST", fmt.Sprintf("%s/messages/%d/cancel", orders, seq), ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("cancel: %d %s", r.StatusCode, r.body)
	}
	wantProblem(t, f.do("POST", fmt.Sprintf("%s/messages/%d/cancel", orders, seq), ""), http.StatusNotFound, forebay.CodeNotFound)

	f.do("PUT", orders, `{"dead_letter_on_expiration":true}`)
	f.sendMessage(orders, `{"body":"brief","time_to_live_seconds":0.001}`)
	if dead := f.receiveOne(deadSub, `{"wait_seconds":10}`); dead.DeadLetterReason != "TTLExpiredException" || dead.ExpiresAt == nil {
		t.Errorf("expired: %+v", dead)
	}
	f.sendMessage(orders, `{"messages":[{},{},{}]}`)
	if d := into[forebay.DeletedMessages](t, f.do("POST", orders+"/messages/delete", `{"enqueued_before":"2100-01-01T00:00:00Z","max_messages":2}`), http.StatusOK); d.Deleted != 2 {
		t.Errorf("deleted %+v", d)
	}
}

func TestForwardedMessages(t *testing.T) {
	f := newFixture(t)
	f.putQueue("/v1/queues/all", ``)
	q := f.putQueue(orders, `{"forward_dead_lettered_messages_to":"all","max_delivery_count":1}`)
	if q.ForwardDeadLettersTo != "all" || q.ForwardTo != "" {
		t.Errorf("made %+v", q)
	}
	seq := f.sendMessage(orders, `{"body":"1"}`)
	f.wantSettled(orders, f.receiveOne(orders, ``), "dead-letter", `{"reason":"why"}`)
	if m := f.receiveOne("/v1/queues/all", ``); m.DeadLetterSource != "orders" || m.DeadLetterReason != "why" || m.EnqueuedSequenceNumber != seq || m.SequenceNumber <= seq {
		t.Errorf("forwarded %+v", m)
	}
	f.do("PUT", orders, `{"forward_to":"all"}`)
	f.sendMessage(orders, `{"body":"2"}`)
	if m := f.receiveOne("/v1/queues/all", `{"wait_seconds":5}`); *m.Body != "2" || m.DeadLetterSource != "" {
		t.Errorf("forwarded %+v", m)
	}
	wantProblem(t, f.do("POST", orders+"/messages/receive", ``), http.StatusConflict, forebay.CodeConflict)
}

// A session can be taken from a receiver that does not give it back.
func TestReleaseSession(t *testing.T) {
	f := newFixture(t)
	f.putQueue(orders, `{"requires_session":true}`)
	f.sendMessage(orders, `{"session_id":"a","body":"1"}`)
	wantProblem(t, f.do("POST", orders+"/sessions/release", `{"session_id":"a"}`), http.StatusConflict, forebay.CodeConflict)
	held := f.accept(``)
	if got := f.receiveSession(held, ``); len(got) != 1 {
		t.Fatalf("received %+v", got)
	}
	if r := f.do("POST", orders+"/sessions/release", `{"session_id":"a"}`); r.StatusCode != http.StatusNoContent {
		t.Fatalf("release: %s", r.body)
	}
	wantProblem(t, f.do("POST", sessionPath(held, "renew"), ""), http.StatusConflict, forebay.CodeSessionLockLost)
	if got := f.receiveSession(f.accept(``), ``); len(got) != 1 || *got[0].Body != "1" || got[0].DeliveryCount != 1 {
		t.Errorf("received again %+v", got)
	}
	f.putQueue("/v1/queues/plain", ``)
	wantProblem(t, f.do("POST", "/v1/queues/plain/sessions/release", `{"session_id":"a"}`), http.StatusConflict, forebay.CodeConflict)
	wantProblem(t, f.do("POST", "/v1/queues/none/sessions/release", `{"session_id":"a"}`), http.StatusNotFound, forebay.CodeUnknownQueue)
}
