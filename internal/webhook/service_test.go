package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
)

func openStore(t *testing.T, path string) *stores {
	t.Helper()
	s, err := openStores(context.Background(), db.Options{Path: path, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newService(t *testing.T, policy Policy) (*Service, *stores) {
	t.Helper()
	st := openStore(t, filepath.Join(t.TempDir(), "f.db"))
	t.Cleanup(func() { st.DB.Close() })
	return New(Options{Store: st.Webhooks, Bus: st.Bus, Sender: SenderOptions{Policy: policy}, Logger: slog.New(slog.DiscardHandler)}), st
}

// run has the service deliver until stop is called.
func run(s *Service) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	return func() { cancel(); <-done }
}

// publish sends an event to the tenant's topic.
func publish(t *testing.T, st *stores, tenant, id string, kind forebay.EventType) {
	t.Helper()
	topic, found, err := st.Bus.MessageQueue(t.Context(), tenant+"/"+forebay.TopicJobEvents)
	if err != nil || !found {
		t.Fatalf("topic of %s: %t (%v)", tenant, found, err)
	}
	body, err := json.Marshal(forebay.Event{Type: kind, JobID: "job_1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.Bus.Send(t.Context(), topic, []bus.MessageContent{{MessageID: id, Subject: string(kind), CorrelationID: "c", ContentType: "application/json", Text: true, Body: body}})
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, s *Service, tenant, name, url string, types ...forebay.EventType) forebay.Webhook {
	t.Helper()
	w, err := s.Create(t.Context(), tenant, forebay.NewWebhook{Name: name, WebhookSettings: forebay.WebhookSettings{URL: url, EventTypes: types}}, "key_1")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

type arrived struct {
	header http.Header
	body   string
}

func TestServiceDelivers(t *testing.T) {
	s, st := newService(t, local())
	got := make(chan arrived, 10)
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- arrived{r.Header, string(b)}
	})
	defer run(s)()
	w := create(t, s, "acme", "billing", server.URL+"/hook?token=urlsecret", forebay.EventSucceeded, forebay.EventFailed)
	create(t, s, "other", "billing", server.URL)
	if !strings.HasPrefix(w.Secret, "whsec_") || w.Secrets != 1 || w.Concurrency != forebay.DefaultWebhookConcurrency || w.DisabledAt != nil {
		t.Errorf("made %+v", w)
	}
	publish(t, st, "acme", "evt_1", forebay.EventStarted) // not one of its types
	publish(t, st, "acme", "evt_2", forebay.EventSucceeded)
	a := <-got
	var event forebay.Event
	if err := json.Unmarshal([]byte(a.body), &event); err != nil || event.Type != forebay.EventSucceeded {
		t.Errorf("body %s (%v)", a.body, err)
	}
	if a.header.Get("webhook-id") != "evt_2" || !verify(forebay.Secret(w.Secret), a.header, a.body) {
		t.Errorf("got %v", a.header)
	}

	// After a rotation both secrets sign.
	rotated, err := s.RotateSecret(t.Context(), "acme", "billing", forebay.RotateSecretRequest{}, "key_1")
	if err != nil || rotated.Secret == w.Secret || rotated.Secrets != 2 {
		t.Fatalf("rotated %+v (%v)", rotated, err)
	}
	try, err := s.Test(t.Context(), "acme", "billing")
	a = <-got
	if err != nil || try.Outcome != forebay.WebhookDelivered || try.Status != 200 || try.EventType != forebay.EventWebhookTest {
		t.Errorf("test: %+v (%v)", try, err)
	}
	if !verify(forebay.Secret(w.Secret), a.header, a.body) || !verify(forebay.Secret(rotated.Secret), a.header, a.body) || !strings.Contains(a.body, `"webhook.test"`) {
		t.Errorf("test: %+v", a)
	}
	for i := range 2 {
		if _, err := s.RotateSecret(t.Context(), "acme", "billing", forebay.RotateSecretRequest{}, "key_1"); err != nil {
			t.Errorf("rotation %d: %v", i, err)
		}
	}
	if _, err := s.RotateSecret(t.Context(), "acme", "billing", forebay.RotateSecretRequest{}, "key_1"); forebay.CodeOf(err) != forebay.CodeConflict {
		t.Errorf("a fifth secret: %v", err)
	}
	zero := 0.0
	if rotated, err = s.RotateSecret(t.Context(), "acme", "billing", forebay.RotateSecretRequest{Secret: vectorSecret, OverlapHours: &zero}, "key_1"); err != nil || rotated.Secrets != 1 {
		t.Errorf("at once: %+v (%v)", rotated, err)
	}

	// Nothing shows a secret a second time, and nobody sees another tenant's.
	read := until(t, s, "billing", func(w forebay.Webhook) bool { return w.DeliveredAt != nil }) // a moment after it has arrived
	if read.Secret != "" || read.LastTry == nil || read.LastTry.MessageID != "evt_2" || read.Pending != 0 || read.FailingSince != nil {
		t.Errorf("read %+v", read)
	}
	if list, err := s.Webhooks(t.Context(), "acme"); err != nil || len(list) != 1 || list[0].Secret != "" {
		t.Errorf("listed %+v (%v)", list, err)
	}
	if _, err := s.Webhook(t.Context(), "third", "billing"); forebay.CodeOf(err) != forebay.CodeNotFound {
		t.Errorf("another tenant's: %v", err)
	}
	entries, _, err := st.Audit.Entries(t.Context(), forebay.AuditFilter{Tenant: "acme"}, 0, 100)
	if err != nil || len(entries) != 5 || entries[4].Action != "create-webhook" || entries[0].Action != "rotate-webhook-secret" {
		t.Errorf("audit %+v (%v)", entries, err)
	}
	for _, e := range entries {
		if e.Actor != "key_1" || e.Target != "billing" || strings.Contains(e.Detail, "secret") || strings.Contains(e.Detail, "whsec") {
			t.Errorf("audit %+v", e)
		}
	}
}

func TestServiceRefuses(t *testing.T) {
	s, _ := newService(t, Policy{Resolver: (&fakeDNS{answers: map[string][]string{"ok.example.": {"8.8.8.8"}, "inside.example.": {"10.0.0.1"}}}).resolver()})
	ctx := t.Context()
	good := forebay.NewWebhook{Name: "w", WebhookSettings: forebay.WebhookSettings{URL: "https://ok.example/"}}
	for field, change := range map[string]func(*forebay.NewWebhook){
		"name":        func(w *forebay.NewWebhook) { w.Name = strings.Repeat("x", forebay.MaxWebhookNameBytes+1) },
		"name ":       func(w *forebay.NewWebhook) { w.Name = "a/b" },
		"url":         func(w *forebay.NewWebhook) { w.URL = "https://inside.example/" },
		"url ":        func(w *forebay.NewWebhook) { w.URL = "" },
		"event_types": func(w *forebay.NewWebhook) { w.EventTypes = []forebay.EventType{"nonsense"} },
		"event_types ": func(w *forebay.NewWebhook) {
			w.EventTypes = []forebay.EventType{forebay.EventFailed, forebay.EventFailed}
		},
		"concurrency": func(w *forebay.NewWebhook) { w.Concurrency = forebay.MaxWebhookConcurrency + 1 },
		"secret":      func(w *forebay.NewWebhook) { w.Secret = "whsec_short" },
	} {
		w := good
		change(&w)
		_, err := s.Create(ctx, "acme", w, "a")
		if forebay.CodeOf(err) != forebay.CodeInvalidRequest || !strings.HasPrefix(err.Error(), strings.TrimSpace(field)+": ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := s.Create(ctx, "acme", good, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(ctx, "acme", good, "a"); forebay.CodeOf(err) != forebay.CodeConflict {
		t.Errorf("made twice: %v", err)
	}
	inside := good.WebhookSettings
	inside.URL = "https://10.0.0.1/"
	if _, err := s.Update(ctx, "acme", "w", inside, "a"); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
		t.Errorf("moved inside: %v", err)
	}
	gone := forebay.WebhookSettings{URL: "https://gone.example/", Disabled: true}
	if w, err := s.Update(ctx, "acme", "w", gone, "a"); err != nil || w.DisabledAt == nil {
		t.Errorf("disabled with a name that leads nowhere: %+v (%v)", w, err)
	}
	gone.Disabled = false
	if _, err := s.Update(ctx, "acme", "w", gone, "a"); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
		t.Errorf("enabled with a name that leads nowhere: %v", err)
	}
	if _, err := s.Update(ctx, "acme", "none", good.WebhookSettings, "a"); forebay.CodeOf(err) != forebay.CodeNotFound {
		t.Errorf("an unknown one: %v", err)
	}
	for i := 1; i < forebay.MaxWebhooks; i++ {
		create(t, s, "acme", fmt.Sprint("w", i), "https://ok.example/")
	}
	good.Name = "one-more"
	if _, err := s.Create(ctx, "acme", good, "a"); forebay.CodeOf(err) != forebay.CodeConflict {
		t.Errorf("one more than the limit: %v", err)
	}
	for name, err := range map[string]error{
		"delete":    s.Delete(ctx, "acme", "none", "a"),
		"rotate":    second(s.RotateSecret(ctx, "acme", "none", forebay.RotateSecretRequest{}, "a")),
		"test":      second(s.Test(ctx, "acme", "none")),
		"tries":     second(s.Tries(ctx, "acme", "none")),
		"redeliver": second(s.Redeliver(ctx, "acme", "none", forebay.RedeliverRequest{All: true}, "a")),
	} {
		if forebay.CodeOf(err) != forebay.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	tooLong := 169.0
	for name, err := range map[string]error{
		"overlap": second(s.RotateSecret(ctx, "acme", "w", forebay.RotateSecretRequest{OverlapHours: &tooLong}, "a")),
		"nothing": second(s.Redeliver(ctx, "acme", "w", forebay.RedeliverRequest{}, "a")),
		"both":    second(s.Redeliver(ctx, "acme", "w", forebay.RedeliverRequest{All: true, SequenceNumbers: []int64{1}}, "a")),
		"many":    second(s.Redeliver(ctx, "acme", "w", forebay.RedeliverRequest{SequenceNumbers: make([]int64, 1001)}, "a")),
		"secret":  second(s.RotateSecret(ctx, "acme", "w", forebay.RotateSecretRequest{Secret: "x"}, "a")),
	} {
		if forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// bubble opens a service in a bubble whose deliveries go to the stub.
func bubble(t *testing.T, path string, stub http.RoundTripper) (*Service, *stores) {
	t.Helper()
	st := openStore(t, path)
	s := New(Options{Store: st.Webhooks, Bus: st.Bus, Logger: slog.New(slog.DiscardHandler)})
	s.sender.transport = stub
	return s, st
}

// On the real store: ten tries over three days, the dead letters, redelivery, and what is seen of
// it.
func TestServiceGivesUpAndRedelivers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		works := false
		stub := &endpointStub{answer: func(int, *http.Request) (int, http.Header) {
			if works {
				return 200, nil
			}
			return 503, nil
		}}
		s, st := bubble(t, path, stub)
		defer st.DB.Close()
		stop := run(s)
		defer func() { stop() }()
		create(t, s, "acme", "w", "https://8.8.8.8/")
		publish(t, st, "acme", "evt_1", forebay.EventSucceeded)
		<-time.After(time.Minute)
		// A restart in between loses no try and adds none.
		stop()
		stop = run(s)
		w, err := s.Webhook(t.Context(), "acme", "w")
		if err != nil || w.Pending != 1 || w.FailingSince == nil || w.LastTry == nil || w.LastTry.Outcome != forebay.WebhookRetry || w.LastTry.Detail != "status 503" || w.LastTry.NextTryAt == nil {
			t.Errorf("after a minute: %+v (%v)", w, err)
		}
		<-time.After(4 * 24 * time.Hour)
		if stub.count() != MaxTries {
			t.Errorf("%d tries", stub.count())
		}
		dead, err := s.DeadLetters(t.Context(), "acme", "w", 0, "")
		if err != nil || len(dead.Items) != 1 {
			t.Fatalf("dead letters %+v (%v)", dead, err)
		}
		if d := dead.Items[0]; d.MessageID != "evt_1" || d.EventType != "succeeded" || d.Tries != MaxTries || d.Reason != forebay.ReasonMaxDeliveries || d.CorrelationID != "c" {
			t.Errorf("got %+v", d)
		}
		tries, err := s.Tries(t.Context(), "acme", "w")
		if err != nil || len(tries) != MaxTries || tries[0].Number != 10 || tries[0].Outcome != forebay.WebhookDeadLettered || tries[9].Number != 1 {
			t.Errorf("tries %+v (%v)", tries, err)
		}

		if r, err := s.Redeliver(t.Context(), "acme", "w", forebay.RedeliverRequest{SequenceNumbers: []int64{1 << 40}}, "a"); err != nil || r.Redelivered != 0 {
			t.Errorf("a number there is not: %+v (%v)", r, err)
		}
		works = true
		r, err := s.Redeliver(t.Context(), "acme", "w", forebay.RedeliverRequest{SequenceNumbers: []int64{dead.Items[0].SequenceNumber}}, "a")
		if err != nil || r.Redelivered != 1 {
			t.Errorf("redelivered %+v (%v)", r, err)
		}
		<-time.After(11 * time.Minute) // the longest that the breaker stays open
		_, ids := stub.sent()
		w, err = s.Webhook(t.Context(), "acme", "w")
		if err != nil || w.Pending != 0 || w.DeadLetters != 0 || w.DeliveredAt == nil || w.FailingSince != nil || w.LastTry.Number != 1 || ids[10] != "evt_1" {
			t.Errorf("after the redelivery: %+v (%v)", w, err)
		}
	})
}

// The delivery count is on disk before anything is sent: a process that dies while it sends has
// spent a try.
func TestCrashCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		stub := &endpointStub{answer: always(200)}
		s, st := bubble(t, path, stub)
		defer st.DB.Close()
		create(t, s, "acme", "w", "https://8.8.8.8/")
		publish(t, st, "acme", "evt_1", forebay.EventSucceeded)
		active, err := st.Webhooks.ActiveWebhooks(t.Context())
		if err != nil || len(active) != 1 {
			t.Fatalf("%+v (%v)", active, err)
		}
		source := subscription{service: s, queue: bus.MessageQueue{No: active[0].Queue, Tenant: active[0].Tenant, Lock: MinLock, MaxDeliveries: MaxTries}}
		lost, err := source.Receive(t.Context()) // and never settled
		if err != nil || lost.Count != 1 {
			t.Fatalf("%+v (%v)", lost, err)
		}
		stop := run(s)
		<-time.After(MinLock + time.Second)
		stop()
		tries, err := s.Tries(t.Context(), "acme", "w")
		if err != nil || len(tries) != 1 || tries[0].Number != 2 || tries[0].Outcome != forebay.WebhookDelivered {
			t.Errorf("tries %+v (%v)", tries, err)
		}
		if err := source.Settle(t.Context(), lost, Outcome{Verb: Complete}); forebay.CodeOf(err) != forebay.CodeLockLost {
			t.Errorf("the lost delivery settled: %v", err)
		}
	})
}

// An endpoint that is gone, or fails for days, gets nothing more, and nothing gathers for it.
func TestServiceDisables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		stub := &endpointStub{answer: func(_ int, r *http.Request) (int, http.Header) {
			switch r.URL.Path {
			case "/gone":
				return http.StatusGone, nil
			case "/works":
				return 200, nil
			}
			return 500, nil
		}}
		s, st := bubble(t, path, stub)
		defer st.DB.Close()
		defer run(s)()
		create(t, s, "acme", "gone", "https://8.8.8.8/gone")
		create(t, s, "acme", "fails", "https://8.8.8.8/fails")
		view := func(name string) forebay.Webhook {
			t.Helper()
			w, err := s.Webhook(t.Context(), "acme", name)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		publish(t, st, "acme", "evt_1", forebay.EventSucceeded)
		<-time.After(time.Minute)
		if w := view("gone"); w.DisabledReason != forebay.WebhookGone || w.DisabledAt == nil || w.DeadLetters != 1 || w.LastTry.Status != http.StatusGone {
			t.Errorf("gone: %+v", w)
		}
		for i := range 9 {
			publish(t, st, "acme", fmt.Sprint("evt_", i+2), forebay.EventSucceeded)
			<-time.After(24 * time.Hour)
		}
		if w := view("gone"); w.Pending != 0 || w.DeadLetters != 1 {
			t.Errorf("gone, days later: %+v", w)
		}
		failing := view("fails")
		if failing.DisabledReason != forebay.WebhookFailing {
			t.Errorf("fails: %+v", failing)
		}
		before := stub.count()
		<-time.After(24 * time.Hour)
		if after := stub.count(); after != before {
			t.Errorf("%d tries of a disabled webhook", after-before)
		}

		// Enabled again it goes on with what still waits, and gets what comes.
		w, err := s.Update(t.Context(), "acme", "fails", forebay.WebhookSettings{URL: "https://8.8.8.8/works"}, "a")
		if err != nil || w.DisabledAt != nil || w.DisabledReason != "" || w.FailingSince != nil {
			t.Errorf("enabled: %+v (%v)", w, err)
		}
		publish(t, st, "acme", "evt_last", forebay.EventFailed)
		<-time.After(30 * time.Hour)
		if w := view("fails"); w.Pending != 0 || w.LastTry.Outcome != forebay.WebhookDelivered {
			t.Errorf("works: %+v", w)
		}
		// Disabled on request.
		if w, err = s.Update(t.Context(), "acme", "fails", forebay.WebhookSettings{URL: "https://8.8.8.8/works", Disabled: true}, "a"); err != nil || w.DisabledReason != forebay.WebhookDisabled {
			t.Errorf("disabled: %+v (%v)", w, err)
		}
		publish(t, st, "acme", "evt_unseen", forebay.EventFailed)
		<-time.After(time.Minute)
		if w := view("fails"); w.Pending != 0 || w.LastTry.MessageID == "evt_unseen" {
			t.Errorf("disabled: %+v", w)
		}
	})
}

// Deleting a webhook ends its deliveries and leaves nothing; its name can be used again.
func TestServiceDeletes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		stub := &endpointStub{answer: always(500)}
		s, st := bubble(t, path, stub)
		defer st.DB.Close()
		defer run(s)()
		create(t, s, "acme", "w", "https://8.8.8.8/")
		publish(t, st, "acme", "evt_1", forebay.EventSucceeded)
		<-time.After(time.Second)
		if err := s.Delete(t.Context(), "acme", "w", "a"); err != nil {
			t.Fatal(err)
		}
		called := stub.count()
		<-time.After(24 * time.Hour)
		if stub.count() != called {
			t.Errorf("%d calls after the deletion", stub.count()-called)
		}
		w := create(t, s, "acme", "w", "https://8.8.8.8/")
		if w.Pending != 0 || w.LastTry != nil {
			t.Errorf("made again: %+v", w)
		}

		// A subscription deleted from under its webhook comes back with the next change.
		sub, found, err := st.Bus.MessageQueue(t.Context(), entity.SubscriptionName("acme/"+forebay.TopicJobEvents, WebhookSubscription("w")))
		if err != nil || !found {
			t.Fatal(found, err)
		}
		if dropped, err := st.Bus.DropMessageQueue(t.Context(), sub); err != nil || !dropped {
			t.Fatal(dropped, err)
		}
		if w, err = s.Webhook(t.Context(), "acme", "w"); err != nil || w.DisabledReason != forebay.WebhookSubscriptionDeleted {
			t.Errorf("without a subscription: %+v (%v)", w, err)
		}
		if w, err = s.Update(t.Context(), "acme", "w", forebay.WebhookSettings{URL: "https://8.8.8.8/"}, "a"); err != nil || w.DisabledReason != "" {
			t.Errorf("with a new one: %+v (%v)", w, err)
		}
		publish(t, st, "acme", "evt_2", forebay.EventSucceeded)
		<-time.After(time.Minute)
		if _, ids := stub.sent(); ids[len(ids)-1] != "evt_2" {
			t.Errorf("calls %v", ids)
		}
	})
}
