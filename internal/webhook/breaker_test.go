package webhook

import (
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
)

// While an endpoint fails, one delivery after the other probes it, ever more seldom; the rest
// wait and lose no tries. Once it works, everything goes out.
func TestBreaker(t *testing.T) {
	const events = 200
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		var works atomic.Bool
		stub := &endpointStub{answer: func(int, *http.Request) (int, http.Header) {
			if works.Load() {
				return 200, nil
			}
			return 500, nil
		}}
		s, st := bubble(t, path, stub)
		defer st.DB.Close()
		create(t, s, "acme", "w", "https://8.8.8.8/")
		for i := range events {
			publish(t, st, "acme", fmt.Sprint("evt_", i), forebay.EventSucceeded)
		}
		defer run(s)()
		<-time.After(10 * time.Second)
		calls, _ := stub.sent()
		opened := len(calls)
		if opened < 5 || opened > 5+forebay.DefaultWebhookConcurrency-1 {
			t.Errorf("%d calls before the breaker opened", opened)
		}
		w, err := s.Webhook(t.Context(), "acme", "w")
		if err != nil || w.PausedUntil == nil || w.PausedUntil.Before(calls[4].Add(15*time.Second)) || w.PausedUntil.After(calls[opened-1].Add(17*time.Second)) {
			t.Errorf("open until %v (%v)", w.PausedUntil, err)
		}
		<-time.After(2 * time.Hour)
		probes := stub.count() - opened
		// 15 s, 30 s, … 8 min: six probes in 16 minutes; then one every ten or eleven minutes.
		if probes < 13 || probes > 18 {
			t.Errorf("%d probes in two hours", probes)
		}
		works.Store(true)
		<-time.After(12 * time.Minute)
		// Those that failed are tried again by the schedule, the earliest with the others.
		failed := map[string]bool{}
		_, ids := stub.sent()
		for _, id := range ids[:opened+probes] {
			failed[id] = true
		}
		w, err = s.Webhook(t.Context(), "acme", "w")
		if err != nil || w.PausedUntil != nil || w.FailingSince != nil || w.DeadLetters != 0 || w.Pending > int64(len(failed)) {
			t.Errorf("once it worked: %+v (%v)", w, err)
		}
		// Each event was sent as often as its message says, and none but the probes more than
		// once meanwhile.
		<-time.After(4 * time.Hour)
		if w, err = s.Webhook(t.Context(), "acme", "w"); err != nil || w.Pending != 0 || w.DeadLetters != 0 || stub.count() != events+opened+probes {
			t.Errorf("%d calls for %d events, of which %d failed: %+v (%v)", stub.count(), events, opened+probes, w, err)
		}
	})
}

// An endpoint that says when to come back is left alone until then, also if something that was
// under way arrives meanwhile.
func TestRetryAfterHoldsAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		stub := &endpointStub{answer: func(call int, _ *http.Request) (int, http.Header) {
			switch call {
			case 0:
				<-time.After(time.Second)
			case 1:
				return 429, http.Header{"Retry-After": {"60"}}
			}
			return 200, nil
		}}
		s, st := bubble(t, path, stub)
		defer st.DB.Close()
		if _, err := s.Create(t.Context(), "acme", forebay.NewWebhook{Name: "w", WebhookSettings: forebay.WebhookSettings{URL: "https://8.8.8.8/", Concurrency: 2}}, "a"); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			publish(t, st, "acme", fmt.Sprint("evt_", i), forebay.EventSucceeded)
		}
		defer run(s)()
		<-time.After(59 * time.Second)
		if stub.count() != 2 {
			t.Errorf("%d calls in the first minute", stub.count())
		}
		<-time.After(7 * time.Second)
		if w, err := s.Webhook(t.Context(), "acme", "w"); err != nil || stub.count() != 5 || w.Pending != 0 {
			t.Errorf("%d calls afterwards, %+v (%v)", stub.count(), w, err)
		}
	})
}

// A new URL begins without failures, and so does a webhook that is enabled again. Deliveries to
// the former URL say nothing about the new one.
func TestBreakerReset(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		var works atomic.Bool
		stub := &endpointStub{answer: func(call int, r *http.Request) (int, http.Header) {
			if call == 0 {
				<-time.After(2 * time.Second)
				return 410, nil
			}
			if r.URL.Path == "/fixed" || works.Load() {
				return 200, nil
			}
			return 500, nil
		}}
		s, st := bubble(t, path, stub)
		defer st.DB.Close()
		settings := forebay.WebhookSettings{URL: "https://8.8.8.8/", Concurrency: 2}
		if _, err := s.Create(t.Context(), "acme", forebay.NewWebhook{Name: "w", WebhookSettings: settings}, "a"); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			publish(t, st, "acme", fmt.Sprint("evt_", i), forebay.EventSucceeded)
		}
		defer run(s)()
		<-time.After(time.Second)
		if stub.count() != 6 {
			t.Fatalf("%d calls before the breaker opened, of which one is under way", stub.count())
		}
		settings.URL = "https://8.8.8.8/fixed"
		w, err := s.Update(t.Context(), "acme", "w", settings, "a")
		if err != nil || w.PausedUntil != nil {
			t.Fatalf("%+v (%v)", w, err)
		}
		<-time.After(2 * time.Second)
		if w, err = s.Webhook(t.Context(), "acme", "w"); err != nil || w.DisabledAt != nil || w.FailingSince != nil || stub.count() != 10 {
			t.Errorf("%d calls after the change: %+v (%v)", stub.count(), w, err)
		}
		settings.URL = "https://8.8.8.8/again"
		if _, err = s.Update(t.Context(), "acme", "w", settings, "a"); err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			publish(t, st, "acme", fmt.Sprint("more_", i), forebay.EventSucceeded)
		}
		<-time.After(time.Second)
		before := stub.count()
		works.Store(true)
		settings.Disabled = true
		if _, err = s.Update(t.Context(), "acme", "w", settings, "a"); err != nil {
			t.Fatal(err)
		}
		settings.Disabled = false
		if w, err = s.Update(t.Context(), "acme", "w", settings, "a"); err != nil || w.PausedUntil != nil {
			t.Fatalf("%+v (%v)", w, err)
		}
		<-time.After(time.Second)
		if stub.count() == before {
			t.Error("nothing was sent once it was enabled again")
		}
		// Tests that fail are no reason to leave it alone.
		<-time.After(time.Hour)
		works.Store(false)
		for range 6 {
			if try, err := s.Test(t.Context(), "acme", "w"); err != nil || try.Status != 500 {
				t.Errorf("test %+v (%v)", try, err)
			}
		}
		if w, err = s.Webhook(t.Context(), "acme", "w"); err != nil || w.PausedUntil != nil || w.FailingSince != nil {
			t.Errorf("after tests %+v (%v)", w, err)
		}
	})
}
