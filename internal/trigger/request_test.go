package trigger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// The fields of a message become those of its job.
func TestRequest(t *testing.T) {
	i := &Maker{Source: "intake/orders", Task: "echo", Queue: "slow"}
	at := time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)
	soon, never := time.Now().Add(time.Hour), time.Now().Add(50*365*24*time.Hour)
	m := forebay.Message{ExpiresAt: &soon, NewMessage: forebay.NewMessage{
		MessageID: "m1", SessionID: "s1", CorrelationID: "c1", ContentType: "application/json; charset=utf-8", BodyBase64: []byte(`{"a": 1}`),
		Properties: forebay.Properties{"s": "x", "i": int64(-3), "f": 2.5, "b": true, "t": at, "d": []byte{0, 255}, "u": forebay.UUID{1}},
	}}
	req, print, err := i.request(&m)
	if err != nil {
		t.Fatal(err)
	}
	if req.Task != "echo" || req.Queue != "slow" || req.IdempotencyKey != "intake/orders/m1" || string(req.Input) != `{"a": 1}` ||
		*req.CorrelationID != "c1" || *req.SessionID != "s1" || !req.Deadline.Equal(soon) {
		t.Errorf("got %+v", req)
	}
	want := map[string]string{"s": "x", "i": "-3", "f": "2.5", "b": "true", "t": "2030-01-02T03:04:05.000006Z", "d": "AP8=", "u": forebay.UUID{1}.String()}
	if !maps.Equal(req.Metadata, want) {
		t.Errorf("metadata %v", req.Metadata)
	}
	// Sent again it is the same; with another body it is not.
	again := m
	again.SequenceNumber, again.DeliveryCount, again.ExpiresAt, again.ScheduledTime = 7, 3, &never, &at
	req, other, err := i.request(&again)
	if err != nil || string(other) != string(print) || req.Deadline != nil {
		t.Errorf("another fingerprint, or the deadline %v (%v)", req.Deadline, err)
	}
	again.BodyBase64 = []byte(`{"a": 2}`)
	if _, other, err = i.request(&again); err != nil || string(other) == string(print) {
		t.Errorf("another body has the same fingerprint (%v)", err)
	}
}

func TestKeys(t *testing.T) {
	i := &Maker{Source: "intake/" + strings.Repeat("t", 64) + "/subscriptions/" + strings.Repeat("s", 50)}
	keys := map[string]bool{}
	for _, id := range []string{"1", strings.Repeat("x", 120), strings.Repeat("\U0001F600", 128), strings.Repeat("\U0001F600", 127) + "x"} {
		key := i.key(id)
		if !forebay.ValidText(key, forebay.MaxIdempotencyKeyBytes) || keys[key] || !strings.HasPrefix(key, i.Source+"/") {
			t.Errorf("%q", key)
		}
		keys[key] = true
	}
}

// A store that takes too long is not the message's fault.
func TestSlowStoreIsWaitedFor(t *testing.T) {
	for _, err := range []error{context.DeadlineExceeded, fmt.Errorf("submit: %w", context.Canceled)} {
		if v := verdict(err); v.Verb != Wait || !errors.Is(v.Err, err) {
			t.Errorf("%v: %+v", err, v)
		}
	}
	if v := verdict(errors.New("other")); v.Verb != Abandon {
		t.Errorf("%+v", v)
	}
}

// Messages become jobs; those that cannot are dead-lettered and say why.
func TestMessagesBecomeJobs(t *testing.T) {
	onBothEngines(t, func(t *testing.T, w *world) {
		w.queue(forebay.MessageQueueSettings{})
		with := func(m forebay.NewMessage, change func(*forebay.NewMessage)) forebay.NewMessage {
			change(&m)
			return m
		}
		large := strings.Repeat("x", 3*forebay.InlineBytes)
		w.send(
			text("text", "a \"text\"\n"),
			with(text("json", `{"a":1}`), func(m *forebay.NewMessage) { m.ContentType = "application/json" }),
			text("large", large),
			forebay.NewMessage{MessageID: "utf-8", BodyBase64: []byte("bytes")},
			with(text("lives", "x"), func(m *forebay.NewMessage) { m.TimeToLiveSeconds = 600 }),
			with(text("again", "x"), func(m *forebay.NewMessage) { m.TimeToLiveSeconds = 600 }),
			with(text("again", "x"), func(m *forebay.NewMessage) { m.TimeToLiveSeconds = 600 }),
			text("again", "y"),
			with(text("not json", `{"a":`), func(m *forebay.NewMessage) { m.ContentType = "application/cloudevents+json" }),
			forebay.NewMessage{MessageID: "bytes", BodyBase64: []byte{0xff}},
			with(text("correlated", "x"), func(m *forebay.NewMessage) { m.CorrelationID = strings.Repeat("é", 128) }),
			with(text("properties", "x"), func(m *forebay.NewMessage) { m.Properties = forebay.Properties{"p": strings.Repeat("x", 20<<10)} }),
		)
		w.ok(w.trigger().pass(t.Context()))
		want := map[string]string{
			"text": `"a \"text\"\n"`, "json": `{"a":1}`, "large": fmt.Sprintf("%d bytes elsewhere", len(large)+2), "utf-8": `"bytes"`, "lives": `"x"`, "again": `"x"`,
		}
		for _, job := range w.all() {
			if id := job.Metadata["id"]; (id == "lives" || id == "again") != (job.Deadline != nil) {
				t.Errorf("%s has the deadline %v", id, job.Deadline)
			}
		}
		if got := w.inputs(); !maps.Equal(got, want) {
			t.Errorf("inputs %.1000v", got)
		}
		reasons := map[string]string{
			"again": "idempotency_mismatch", "not json": "invalid_json", "bytes": "invalid_request", "correlated": "invalid_request", "properties": "invalid_request",
		}
		dead := w.deadLetters()
		for id, reason := range reasons {
			if !strings.HasPrefix(dead[id], reason+": ") || len(dead[id]) < len(reason)+10 {
				t.Errorf("%s: %q", id, dead[id])
			}
		}
		if q := w.counts(); len(dead) != len(reasons) || q.Active+q.Locked != 0 {
			t.Errorf("%v, %+v", dead, q)
		}
	})
}

// Without a configured task the subject names the task. The task may not exist, or may refuse the
// input.
func TestSubjectNamesTheTask(t *testing.T) {
	onBothEngines(t, func(t *testing.T, w *world) {
		w.queue(forebay.MessageQueueSettings{})
		for _, task := range []string{"echo", "picky", "none", ""} {
			m := text("to "+task, "x")
			m.Subject = task
			w.send(m)
		}
		w.ok(w.trigger(func(o *Options) { o.Task, o.Queue = "", "slow" }).pass(t.Context()))
		jobs, dead := w.all(), w.deadLetters()
		if len(jobs) != 1 || jobs[0].Task != "echo" || jobs[0].Queue != "slow" {
			t.Errorf("jobs %+v", jobs)
		}
		for id, want := range map[string]string{"to picky": "nothing is good enough", "to none": "unknown_task: ", "to ": "invalid_request: task"} {
			if !strings.Contains(dead[id], want) {
				t.Errorf("%s: %q", id, dead[id])
			}
		}
	})
}

// The trigger waits for a queue that does not exist, or was deleted.
func TestQueueIsMissing(t *testing.T) {
	onBothEngines(t, func(t *testing.T, w *world) {
		i := w.trigger()
		if err := i.pass(t.Context()); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
			t.Fatal(err)
		}
		w.queue(forebay.MessageQueueSettings{})
		w.send(text("m", "x"))
		w.ok(i.pass(t.Context()))
		if n := len(w.all()); n != 1 {
			t.Fatalf("%d jobs", n)
		}
	})
}
