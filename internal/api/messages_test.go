package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

type received struct {
	Messages []forebay.Message `json:"messages"`
}

const (
	orders  = "/v1/queues/orders"
	deadSub = orders + "/$deadletterqueue"
)

func (f *fixture) putQueue(path, body string) forebay.MessageQueue {
	f.t.Helper()
	return into[forebay.MessageQueue](f.t, f.do("PUT", path, body), http.StatusCreated)
}

func (f *fixture) sendMessage(path, body string) int64 {
	f.t.Helper()
	sent := into[received](f.t, f.do("POST", path+"/messages", body), http.StatusCreated)
	return sent.Messages[0].SequenceNumber
}

func (f *fixture) receive(path, body string) []forebay.Message {
	f.t.Helper()
	got := into[received](f.t, f.do("POST", path+"/messages/receive", body), http.StatusOK).Messages
	if got == nil {
		f.t.Error("messages is null, not empty")
	}
	return got
}

func (f *fixture) receiveOne(path, body string) forebay.Message {
	f.t.Helper()
	got := f.receive(path, body)
	if len(got) != 1 {
		f.t.Fatalf("received %d messages from %s", len(got), path)
	}
	return got[0]
}

func (f *fixture) settleMessage(path string, m forebay.Message, verb, body string) reply {
	f.t.Helper()
	return f.do("POST", path+"/locks/"+m.LockToken+"/"+verb, body)
}

func (f *fixture) wantSettled(path string, m forebay.Message, verb, body string) {
	f.t.Helper()
	if r := f.settleMessage(path, m, verb, body); r.StatusCode != http.StatusNoContent || len(r.body) > 0 {
		f.t.Fatalf("%s answered %d: %s", verb, r.StatusCode, r.body)
	}
}

func TestMessageLife(t *testing.T) {
	f := newFixture(t)
	q := f.putQueue(orders, "")
	if q.Name != "orders" || q.Kind != forebay.KindMessages || q.LockSeconds != 60 || q.MaxDeliveryCount != 10 {
		t.Errorf("made %+v", q)
	}
	seq := f.sendMessage(orders, `{"message_id":"m-1","correlation_id":"c","subject":"s","to":"t","reply_to":"r","content_type":"text/plain","body":"<é\u0000>",
		"application_properties":{"s":"x","i":7,"f":2.0,"b":true,"at":{"type":"time","value":"2030-01-02T03:04:05.000000006Z"},
		"raw":{"type":"bytes","value":"AP8="},"id":{"type":"uuid","value":"00112233-4455-6677-8899-aabbccddeeff"},"big":{"type":"int","value":"9223372036854775807"}}}`)
	if f.sendMessage(orders, `{"messages":[{"body_base64":"AP8="},{"body":""}]}`) <= seq {
		t.Error("sequence numbers do not grow")
	}

	peeked := into[forebay.Page[forebay.Message]](t, f.do("GET", fmt.Sprintf("%s/messages?peek&limit=2", orders), ""), http.StatusOK)
	if len(peeked.Items) != 2 || peeked.NextCursor == "" || peeked.Items[0].DeliveryCount != 0 || peeked.Items[0].LockToken != "" {
		t.Errorf("peeked %+v", peeked)
	}
	rest := into[forebay.Page[forebay.Message]](t, f.do("GET", orders+"/messages?from_sequence_number="+peeked.NextCursor, ""), http.StatusOK)
	if len(rest.Items) != 1 || rest.NextCursor != "" {
		t.Errorf("peeked on %+v", rest)
	}
	if same := f.do("GET", orders+"/messages?cursor="+peeked.NextCursor, ""); into[forebay.Page[forebay.Message]](t, same, http.StatusOK).Items[0].SequenceNumber != rest.Items[0].SequenceNumber {
		t.Errorf("peeked on with a cursor %s", same.body)
	}

	got := f.receive(orders, `{"max_messages":10}`)
	if len(got) != 3 || *got[0].Body != "<é\x00>" || got[0].BodyBase64 != nil || got[1].Body != nil || !bytes.Equal(got[1].BodyBase64, []byte{0, 255}) || *got[2].Body != "" {
		t.Fatalf("received %+v", got)
	}
	m := got[0]
	if m.SequenceNumber != seq || m.MessageID != "m-1" || m.CorrelationID != "c" || m.Subject != "s" || m.To != "t" || m.ReplyTo != "r" ||
		m.ContentType != "text/plain" || m.DeliveryCount != 1 || m.State != forebay.MessageLocked || got[1].MessageID == "" {
		t.Errorf("received %+v", m)
	}
	if left := time.Until(*m.LockedUntil); left < 50*time.Second || left > 61*time.Second {
		t.Errorf("locked for another %v", left)
	}
	id, _ := forebay.ParseUUID("00112233-4455-6677-8899-aabbccddeeff")
	want := forebay.Properties{"s": "x", "i": int64(7), "f": 2.0, "b": true, "at": time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC), "id": id, "big": int64(1<<63 - 1)}
	for name, value := range want {
		if m.Properties[name] != value {
			t.Errorf("property %s is %v (%T), want %v", name, m.Properties[name], m.Properties[name], value)
		}
	}
	if raw, _ := m.Properties["raw"].([]byte); !bytes.Equal(raw, []byte{0, 255}) {
		t.Errorf("property raw is %v", m.Properties["raw"])
	}
	if again := f.receive(orders, `{"max_messages":10}`); len(again) != 0 {
		t.Errorf("received locked messages again: %+v", again)
	}
	counts := into[forebay.MessageQueue](t, f.do("GET", orders, ""), http.StatusOK)
	if counts.Locked != 3 || counts.Active != 0 {
		t.Errorf("counts %+v", counts)
	}
	f.wantSettled(orders, m, "complete", "")
	wantProblem(t, f.settleMessage(orders, m, "complete", ""), http.StatusConflict, forebay.CodeLockLost)
	wantProblem(t, f.settleMessage(deadSub, got[1], "complete", ""), http.StatusConflict, forebay.CodeLockLost)
	renewed := into[struct {
		LockedUntil time.Time `json:"locked_until"`
	}](t, f.settleMessage(orders, got[1], "renew", ""), http.StatusOK)
	if renewed.LockedUntil.Before(*got[1].LockedUntil) {
		t.Errorf("renewed until %v, was %v", renewed.LockedUntil, got[1].LockedUntil)
	}

	f.sendMessage(orders, `{"body":"once"}`)
	if once := f.receiveOne(orders, `{"mode":"receive_and_delete"}`); *once.Body != "once" || once.LockToken != "" || once.LockedUntil != nil {
		t.Errorf("received %+v", once)
	}
	if r := f.do("DELETE", orders, ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("delete answered %d: %s", r.StatusCode, r.body)
	}
	wantProblem(t, f.do("POST", orders+"/messages", `{"body":"x"}`), http.StatusNotFound, forebay.CodeUnknownQueue)
	wantProblem(t, f.settleMessage(orders, got[1], "complete", ""), http.StatusNotFound, forebay.CodeUnknownQueue)
}

func TestAbandonDeferDeadLetter(t *testing.T) {
	f := newFixture(t)
	f.putQueue(orders, `{"max_delivery_count":2}`)
	seq := f.sendMessage(orders, `{"body":"1","application_properties":{"a":1,"b":"kept"}}`)

	m := f.receiveOne(orders, `{}`)
	f.wantSettled(orders, m, "abandon", `{"application_properties":{"a":"changed","c":true}}`)
	m = f.receiveOne(orders, ``)
	if m.DeliveryCount != 2 || m.Properties["a"] != "changed" || m.Properties["b"] != "kept" || m.Properties["c"] != true {
		t.Errorf("after abandon: %+v", m)
	}
	f.wantSettled(orders, m, "abandon", "") // its second and last delivery
	if got := f.receive(orders, ``); len(got) != 0 {
		t.Fatalf("delivered a third time: %+v", got)
	}
	for _, path := range []string{deadSub, orders + "/%24deadletterqueue"} {
		m = f.receiveOne(path, ``)
		if m.SequenceNumber != seq || m.DeadLetterReason != "MaxDeliveryCountExceeded" || m.DeadLetterDescription == "" || m.DeliveryCount != 2 {
			t.Errorf("in the dead-letter subqueue: %+v", m)
		}
		f.wantSettled(path, m, "abandon", "")
	}
	wantProblem(t, f.do("POST", deadSub+"/messages", `{"body":"x"}`), http.StatusMethodNotAllowed, forebay.CodeMethodNotAllowed)

	seq = f.sendMessage(orders, `{"body":"2"}`)
	f.wantSettled(orders, f.receiveOne(orders, ``), "defer", `{"application_properties":{"why":"later"}}`)
	if got := f.receive(orders, ``); len(got) != 0 {
		t.Errorf("a deferred message was received: %+v", got)
	}
	peeked := into[forebay.Page[forebay.Message]](t, f.do("GET", orders+"/messages?peek", ""), http.StatusOK)
	if len(peeked.Items) != 1 || peeked.Items[0].State != forebay.MessageDeferred {
		t.Errorf("peeked %+v", peeked)
	}
	deferred := fmt.Sprintf(`{"deferred_sequence_numbers":[%d,99999999]}`, seq)
	m = f.receiveOne(orders, deferred)
	if *m.Body != "2" || m.Properties["why"] != "later" || m.State != forebay.MessageDeferred || m.DeliveryCount != 2 {
		t.Errorf("received deferred %+v", m)
	}
	if got := f.receive(orders, deferred); len(got) != 0 {
		t.Errorf("a locked deferred message was received: %+v", got)
	}
	peeked = into[forebay.Page[forebay.Message]](t, f.do("GET", orders+"/messages?peek", ""), http.StatusOK)
	if len(peeked.Items) != 1 || peeked.Items[0].State != forebay.MessageLocked || peeked.Items[0].LockedUntil == nil {
		t.Errorf("peeked at the locked one: %+v", peeked)
	}
	f.wantSettled(orders, m, "dead-letter", `{"reason":"bad","description":"very bad","application_properties":{"n":1}}`)
	counts := into[forebay.MessageQueue](t, f.do("GET", orders, ""), http.StatusOK)
	if counts.DeadLetter != 2 || counts.Deferred != 0 || counts.Active != 0 {
		t.Errorf("counts %+v", counts)
	}
	dead := into[forebay.Page[forebay.Message]](t, f.do("GET", fmt.Sprintf("%s/messages?from_sequence_number=%d", deadSub, seq), ""), http.StatusOK)
	if len(dead.Items) != 1 || dead.Items[0].DeadLetterReason != "bad" || dead.Items[0].DeadLetterDescription != "very bad" || dead.Items[0].Properties["n"] != int64(1) {
		t.Errorf("dead-lettered %+v", dead)
	}
}

// A released message is as if it had not been delivered: it can be received as often as before.
func TestRelease(t *testing.T) {
	f := newFixture(t)
	f.putQueue(orders, `{"max_delivery_count":1}`)
	f.sendMessage(orders, `{"body":"1"}`)
	f.sendMessage(orders, `{"body":"2"}`)
	for range 3 {
		m := f.receiveOne(orders, ``)
		if *m.Body != "1" || m.DeliveryCount != 1 {
			t.Errorf("received %+v", m)
		}
		f.wantSettled(orders, m, "release", "")
		wantProblem(t, f.settleMessage(orders, m, "release", ""), http.StatusConflict, forebay.CodeLockLost)
	}
	f.wantSettled(orders, f.receiveOne(orders, ``), "dead-letter", "")
	dead := f.receiveOne(deadSub, ``)
	f.wantSettled(deadSub, dead, "release", "")
	if again := f.receiveOne(deadSub, ``); again.DeliveryCount != dead.DeliveryCount {
		t.Errorf("in the dead-letter subqueue: %+v after %+v", again, dead)
	}
}

// A lock that has ended settles nothing, though nobody else has received the message.
func TestLockEnds(t *testing.T) {
	f := newFixture(t)
	f.putQueue(orders, `{"lock_seconds":1}`)
	f.sendMessage(orders, `{"body":"slow"}`)
	stale := f.receiveOne(orders, ``)
	ended := time.NewTimer(time.Until(*stale.LockedUntil) + time.Millisecond)
	<-ended.C
	for _, verb := range []string{"complete", "abandon", "release", "defer", "dead-letter", "renew"} {
		wantProblem(t, f.settleMessage(orders, stale, verb, ""), http.StatusConflict, forebay.CodeLockLost)
	}
	into[forebay.MessageQueue](t, f.do("PUT", orders, `{"lock_seconds":60}`), http.StatusOK) // the next lock is not to end
	again := f.receiveOne(orders, `{"wait_seconds":5}`)
	if again.DeliveryCount != 2 || again.LockToken == stale.LockToken {
		t.Errorf("delivered again: %+v", again)
	}
	wantProblem(t, f.settleMessage(orders, stale, "complete", ""), http.StatusConflict, forebay.CodeLockLost)
	f.wantSettled(orders, again, "complete", "")
}

func TestReceiveWaits(t *testing.T) {
	f := newFixture(t)
	f.putQueue(orders, ``)
	answers := make(chan []forebay.Message)
	wait := func() {
		r := f.send(f.request("POST", orders+"/messages/receive", strings.NewReader(`{"wait":"1m"}`)))
		var got received
		if err := json.Unmarshal(r.body, &got); err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("status %d: %s", r.StatusCode, r.body)
		}
		answers <- got.Messages
	}
	begun := time.Now()
	go wait()
	f.sendMessage(orders, `{"body":"hello"}`)
	if got := <-answers; len(got) != 1 || time.Since(begun) > 30*time.Second {
		t.Errorf("after %v the waiting receiver got %+v", time.Since(begun), got)
	}
	if got := f.receive(orders, `{"wait_seconds":0.01}`); len(got) != 0 {
		t.Errorf("received %+v", got)
	}
	go wait()
	f.api.Drain()
	if got := <-answers; got == nil || len(got) != 0 || time.Since(begun) > 30*time.Second {
		t.Errorf("after Drain the waiting receiver got %+v", got)
	}
}

// Of many receivers each message has exactly one.
func TestMessageHasOneReceiver(t *testing.T) {
	f := newFixture(t)
	f.putQueue(orders, ``)
	const messages, receivers = 300, 6
	var mu sync.Mutex
	seen := map[int64]int{}
	note := func(got []forebay.Message) (done bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range got {
			seen[m.SequenceNumber]++
		}
		return len(seen) == messages
	}
	var wg sync.WaitGroup
	for range receivers {
		wg.Go(func() {
			for done := false; !done; {
				r := f.send(f.request("POST", orders+"/messages/receive", strings.NewReader(`{"max_messages":3,"wait_seconds":0.2}`)))
				var got received
				if err := json.Unmarshal(r.body, &got); err != nil || r.StatusCode != http.StatusOK {
					t.Errorf("a receiver got %s", r.body)
					return
				}
				done = note(got.Messages)
				for _, m := range got.Messages {
					if r := f.settleMessage(orders, m, "complete", ""); r.StatusCode != http.StatusNoContent {
						t.Errorf("complete: %s", r.body)
					}
				}
			}
		})
	}
	for i := range messages {
		f.sendMessage(orders, fmt.Sprintf(`{"body":"%d"}`, i))
	}
	wg.Wait()
	for seq, n := range seen {
		if n != 1 {
			t.Errorf("message %d was received %d times", seq, n)
		}
	}
}

func TestMessagesOfTenants(t *testing.T) {
	f := newFixture(t)
	f.key = f.newKey("acme", forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate)
	other := f.newKey("other", forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate)
	acme := f.key
	f.putQueue(orders, ``)
	f.sendMessage(orders, `{"body":"acme's"}`)
	m := f.receiveOne(orders, ``)

	f.key = other
	wantProblem(t, f.do("GET", orders, ""), http.StatusNotFound, forebay.CodeUnknownQueue)
	wantProblem(t, f.do("POST", orders+"/messages", `{"body":"x"}`), http.StatusNotFound, forebay.CodeUnknownQueue)
	wantProblem(t, f.do("DELETE", orders, ""), http.StatusNotFound, forebay.CodeUnknownQueue)
	f.putQueue(orders, ``) // the name is each tenant's own
	if got := f.receive(orders, ``); len(got) != 0 {
		t.Errorf("another tenant received %+v", got)
	}
	wantProblem(t, f.settleMessage(orders, m, "complete", ""), http.StatusConflict, forebay.CodeLockLost)
	if list := into[forebay.Page[forebay.MessageQueue]](t, f.do("GET", "/v1/queues?kind=messages", ""), http.StatusOK); len(list.Items) != 1 || list.Items[0].Locked != 0 {
		t.Errorf("another tenant lists %+v", list)
	}
	f.key = acme
	f.wantSettled(orders, m, "complete", "")

	for _, c := range []struct {
		scope        forebay.Scope
		method, path string
	}{
		{forebay.ScopeRead, "PUT", orders}, {forebay.ScopeRead, "POST", orders + "/messages"}, {forebay.ScopeSubmit, "POST", orders + "/messages/receive"},
		{forebay.ScopeOperate, "GET", orders + "/messages"}, {forebay.ScopeSubmit, "POST", orders + "/locks/x/complete"}, {forebay.ScopeSubmit, "DELETE", orders},
	} {
		f.key = f.newKey("acme", c.scope)
		wantProblem(t, f.do(c.method, c.path, `{}`), http.StatusForbidden, forebay.CodeForbidden)
	}
}

func TestQueueKinds(t *testing.T) {
	f := newFixture(t)
	const jobs = "/v1/queues/" + forebay.DefaultQueue
	wantProblem(t, f.do("PUT", jobs, `{}`), http.StatusConflict, forebay.CodeConflict)
	wantProblem(t, f.do("DELETE", jobs, ``), http.StatusConflict, forebay.CodeConflict)
	wantProblem(t, f.do("POST", jobs+"/messages", `{"body":"x"}`), http.StatusNotFound, forebay.CodeUnknownQueue)
	if q := into[forebay.QueueInfo](t, f.do("GET", jobs, ""), http.StatusOK); q.Concurrency != 4 {
		t.Errorf("the queue for jobs is %+v", q)
	}
	f.putQueue(orders, ``)
	if q := into[forebay.MessageQueue](t, f.do("PUT", orders, `{"lock_seconds":2.5,"max_delivery_count":3}`), http.StatusOK); q.LockSeconds != 2.5 || q.MaxDeliveryCount != 3 {
		t.Errorf("changed to %+v", q)
	}
	wantProblem(t, f.do("POST", "/v1/jobs", `{"task":"echo","input":1,"queue":"orders"}`), http.StatusUnprocessableEntity, forebay.CodeUnknownQueue)
	if list := into[forebay.Page[forebay.QueueInfo]](t, f.do("GET", "/v1/queues", ""), http.StatusOK); len(list.Items) != 1 {
		t.Errorf("queues for jobs are %+v", list)
	}
}

// An empty body comes back in the form in which it was sent.
func TestEmptyMessageBodies(t *testing.T) {
	f := newFixture(t)
	f.putQueue(orders, ``)
	for sent, want := range map[string]string{
		`{}`:                              `"body":""`,
		`{"subject":"s"}`:                 `"body":""`,
		`{"body":""}`:                     `"body":""`,
		`{"body":null}`:                   `"body":""`,
		`{"body_base64":""}`:              `"body_base64":""`,
		`{"messages":[{}]}`:               `"body":""`,
		`{"body":"\ud83d\ude00 \\ud800"}`: `"body":"😀 \\ud800"`,
	} {
		f.sendMessage(orders, sent)
		r := f.do("POST", orders+"/messages/receive", `{"mode":"receive_and_delete"}`)
		if !strings.Contains(string(r.body), want) || strings.Count(string(r.body), `"body`) != 1 {
			t.Errorf("%s came back as %s", sent, r.body)
		}
	}
}

func TestWaitingReceiversAreLimited(t *testing.T) {
	f := newFixture(t)
	f.putQueue(orders, ``)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	refused := make(chan *httptest.ResponseRecorder, 1)
	for range 513 {
		wg.Go(func() {
			r := httptest.NewRequestWithContext(ctx, "POST", orders+"/messages/receive", strings.NewReader(`{"wait_seconds":60}`))
			r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
			w := httptest.NewRecorder()
			f.api.ServeHTTP(w, r)
			if w.Code == http.StatusServiceUnavailable && strings.Contains(w.Body.String(), string(forebay.CodeTooManyRequests)) {
				refused <- w
			}
		})
	}
	if w := <-refused; w.Header().Get("Retry-After") == "" {
		t.Errorf("refused with %v", w.Header())
	}
	if got := f.receive(orders, `{}`); len(got) != 0 {
		t.Errorf("received %+v", got)
	}
	cancel()
	wg.Wait()
	if got := f.receive(orders, `{"wait_seconds":0.01}`); len(got) != 0 {
		t.Errorf("received %+v", got)
	}
}

// Dead letters are counted by reason, an edit is tried, and they are sent back at a rate.
func TestDeadMessagesOverHTTP(t *testing.T) {
	f := newFixture(t)
	f.key = f.newKey("t", forebay.ScopeOperate, forebay.ScopeSubmit, forebay.ScopeRead)
	f.putQueue(orders, `{}`)
	var last int64
	for range 3 {
		last = f.sendMessage(orders, `{"body":"x","application_properties":{"a":1}}`)
		if r := f.settleMessage(orders, f.receiveOne(orders, ``), "dead-letter", `{"reason":"Bad"}`); r.StatusCode != http.StatusNoContent {
			t.Fatalf("%d %s", r.StatusCode, r.body)
		}
	}
	groups := into[forebay.DeadMessageGroups](t, f.do("GET", deadSub+"/messages/groups", ""), http.StatusOK)
	if len(groups.Groups) != 1 || groups.Groups[0].Reason != "Bad" || groups.Groups[0].Count != 3 || groups.UpTo != last || !groups.Complete {
		t.Errorf("%+v", groups)
	}
	all := into[forebay.DeadMessageGroups](t, f.do("GET", "/v1/dead-letter-messages/groups", ""), http.StatusOK)
	if len(all.Groups) != 1 || all.Groups[0].Queue != "orders" || all.Groups[0].Count != 3 {
		t.Errorf("of all queues %+v", all)
	}
	redrive := func(body string, status int) reply {
		t.Helper()
		r := f.do("POST", deadSub+"/messages/redrive", body)
		if r.StatusCode != status {
			t.Errorf("%s: %d %s", body, r.StatusCode, r.body)
		}
		return r
	}
	one := fmt.Sprintf(`"sequence_numbers":[%d]`, last)
	redrive(`{`+one+`,"dry_run":true,"edit":{"application_properties":{}}}`, http.StatusOK)
	redrive(`{"all":true,"dry_run":true,"edit":{"application_properties":{}}}`, http.StatusUnprocessableEntity)
	redrive(`{"all":true,"rate_per_second":-1}`, http.StatusUnprocessableEntity)
	redrive(`{"all":true,"first_at":"2030-01-01T00:00:00Z"}`, http.StatusUnprocessableEntity)
	report := into[forebay.RedrivenMessages](t, redrive(`{"all":true,"rate_per_second":0.001,"max_messages":2}`, http.StatusOK), http.StatusOK)
	if report.Redriven != 2 || !report.More || report.NextAt == nil || report.UpTo != last {
		t.Fatalf("%+v", report)
	}
	next, err := report.NextAt.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	rest := into[forebay.RedrivenMessages](t, redrive(fmt.Sprintf(`{"all":true,"rate_per_second":0.001,"up_to":%d,"first_at":%q}`, last, next), http.StatusOK), http.StatusOK)
	if rest.Redriven != 1 || rest.More || rest.NextAt != nil {
		t.Errorf("%+v", rest)
	}
	if q := into[forebay.MessageQueue](t, f.do("GET", orders, ""), http.StatusOK); q.Active != 1 || q.Scheduled != 2 || q.DeadLetter != 0 {
		t.Errorf("%+v", q)
	}
	f.key = f.newKey("other", forebay.Scopes...)
	wantProblem(t, f.do("GET", deadSub+"/messages/groups", ""), http.StatusNotFound, forebay.CodeUnknownQueue)
	f.key = f.newKey("t", forebay.ScopeSubmit)
	if r := f.do("GET", deadSub+"/messages/groups", ""); r.StatusCode != http.StatusForbidden {
		t.Errorf("without the right to peek: %d", r.StatusCode)
	}
}
