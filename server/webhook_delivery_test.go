package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// A job's events arrive at a webhook, signed, also after the receiver has failed once.
func TestWebhookGetsTheEventsOfAJob(t *testing.T) {
	t.Parallel()
	type delivery struct {
		id     string
		event  forebay.Event
		header http.Header
		body   []byte
	}
	got := make(chan delivery, 20)
	failed := map[string]bool{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := delivery{id: r.Header.Get("webhook-id"), header: r.Header}
		d.body, _ = io.ReadAll(r.Body)
		if err := json.Unmarshal(d.body, &d.event); err != nil {
			t.Errorf("body %s: %v", d.body, err)
		}
		if d.event.Type == forebay.EventSucceeded && !failed[d.id] {
			failed[d.id] = true
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		got <- d
	}))
	t.Cleanup(receiver.Close)

	s := servertest.Start(t, server.Options{Webhooks: server.Webhooks{AllowHTTP: true, AllowAddresses: []string{"127.0.0.0/8"}}})
	c, err := client.New(client.Options{BaseURL: "http://" + s.Addr(t.Context()).String()})
	if err != nil {
		t.Fatal(err)
	}
	hook, err := c.CreateWebhook(t.Context(), forebay.NewWebhook{Name: "hook", WebhookSettings: forebay.WebhookSettings{
		URL: receiver.URL, Concurrency: 1, EventTypes: []forebay.EventType{forebay.EventAccepted, forebay.EventSucceeded}}})
	if err != nil {
		t.Fatal(err)
	}
	job := servertest.Submit(t, s, "summarize", "The sky is blue.")
	for _, want := range []forebay.EventType{forebay.EventAccepted, forebay.EventSucceeded} {
		select {
		case d := <-got:
			if d.event.Type != want || d.event.JobID != job.ID || !strings.HasPrefix(d.id, job.ID+"-") {
				t.Errorf("got %+v as %s, want %s", d.event, d.id, want)
			}
			if err := client.VerifyWebhook(d.header, d.body, hook.Secret); err != nil {
				t.Errorf("%s: %v", want, err)
			}
			if client.VerifyWebhook(d.header, append(d.body, ' '), hook.Secret) == nil {
				t.Errorf("%s: another body is verified too", want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event %s", want)
		}
	}
}
