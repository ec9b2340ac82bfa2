package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

func TestWebhookPages(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		var status atomic.Int64
		status.Store(http.StatusOK)
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
		t.Cleanup(receiver.Close)
		s := dashboardtest.Start(t, database, func(o *server.Options) {
			o.Webhooks = server.Webhooks{AllowHTTP: true, AllowAddresses: []string{"127.0.0.0/8"}}
		})
		admin := s.Visit(t, s.Key(t, forebay.ScopeAdmin))
		c := s.Client(t, s.Key(t, forebay.ScopeAdmin))
		admin.Post("/webhooks", dashboardtest.Values("name", "hook", "url", "ftp://x", "event_types", "failed")).Is(http.StatusUnprocessableEntity).Has("ftp://x", "value=\"failed\" checked")

		// A secret is shown on the page that answers, and nowhere else.
		page := admin.Post("/webhooks", dashboardtest.Values("name", "hook", "url", receiver.URL, "event_types", "failed")).Is(http.StatusOK).Has("is made", "whsec_")
		secret := page.One(`>(whsec_[^<]+)<`)
		kept := func(page dashboardtest.Answered) {
			t.Helper()
			if page.Header.Get("Cache-Control") != "no-store" || strings.Contains(page.Path, "whsec") || page.Header.Get("Set-Cookie") != "" {
				t.Errorf("the secret's page: %s %v", page.Path, page.Header)
			}
		}
		kept(page)
		admin.Get("/webhooks").Is(http.StatusOK).Has("hook", receiver.URL, "enabled").Lacks("whsec_")
		show := admin.Get("/webhooks/hook").Is(http.StatusOK).Has("Send a test event").Lacks("whsec_")
		rotate := admin.Get("/webhooks/hook/rotate").Is(http.StatusOK).Has("Overlap").Form("/ui/webhooks/hook/rotate", "overlap_hours", "2")
		page = admin.Post("/webhooks/hook/rotate", rotate).Is(http.StatusOK).Has("another secret")
		kept(page)
		if other := page.One(`>(whsec_[^<]+)<`); other == secret {
			t.Error("the secret is the one before")
		}
		admin.Post("/webhooks/hook/rotate", rotate).Is(http.StatusConflict).Has("rotated its secret", `value="2"`).Lacks("whsec_")
		admin.Post("/webhooks/hook/rotate", dashboardtest.Values("overlap_hours", "x")).Is(http.StatusUnprocessableEntity)

		admin.Post("/webhooks/hook/test", dashboardtest.Values()).Is(http.StatusOK).Has("was delivered, status 200")
		status.Store(http.StatusInternalServerError)
		admin.Post("/webhooks/hook/test", dashboardtest.Values()).Is(http.StatusOK).Has("was not delivered", "status 500")
		admin.Post("/webhooks/hook/redeliver", dashboardtest.Values()).Is(http.StatusOK).Has("No event was selected")
		admin.Post("/webhooks/hook/redeliver", dashboardtest.Values("all", "true")).Is(http.StatusOK).Has("0 events will be delivered again")

		// What somebody else has changed is not overwritten.
		seen := show.Form("/ui/webhooks/hook/disable")
		dashboardtest.Must[forebay.Webhook](t)(c.UpdateWebhook(t.Context(), "hook", forebay.WebhookSettings{URL: receiver.URL, EventTypes: []forebay.EventType{forebay.EventSucceeded}, Concurrency: 7}))
		admin.Post("/webhooks/hook/disable", seen).Is(http.StatusConflict).Has("Somebody has changed this", "deliveries at once, 4 before, is 7 now", "Disable")
		seen = admin.Get("/webhooks/hook").Form("/ui/webhooks/hook/disable")
		admin.Post("/webhooks/hook/disable", seen).Is(http.StatusOK).Has("is disabled", "Somebody disabled it", "Enable")
		if w := dashboardtest.Must[forebay.Webhook](t)(c.Webhook(t.Context(), "hook")); w.DisabledAt == nil || w.URL != receiver.URL || len(w.EventTypes) != 1 {
			t.Errorf("disabled: %+v", w)
		}
		seen = admin.Get("/webhooks/hook").Form("/ui/webhooks/hook/enable")
		admin.Post("/webhooks/hook/enable", seen).Is(http.StatusOK).Has("is enabled")

		viewer := s.Visit(t, s.Key(t, forebay.ScopeView))
		viewer.Get("/webhooks").Is(http.StatusOK).Has("hook").Lacks("Make a webhook")
		viewer.Get("/webhooks/hook").Is(http.StatusOK).Has("Tries").Lacks("method=\"post\"", "Send a test event", "Rotate", "Disable")
		seen = admin.Get("/webhooks/hook").Form("/ui/webhooks/hook/disable", "all", "true")
		for _, act := range []string{"test", "rotate", "redeliver", "disable", "enable"} {
			viewer.Post("/webhooks/hook/"+act, seen).Is(http.StatusForbidden)
		}
		viewer.Post("/webhooks/hook/delete", dashboardtest.Values("confirm", "hook")).Is(http.StatusForbidden)
		s.Visit(t, s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead)).Get("/webhooks").Is(http.StatusForbidden)
		s.Visit(t, s.KeyOf(t, "rival", forebay.ScopeOperate, forebay.ScopeRead)).Get("/webhooks/hook").Is(http.StatusNotFound)

		admin.Post("/webhooks/hook/delete", dashboardtest.Values("confirm", "x")).Is(http.StatusUnprocessableEntity)
		remove := admin.Get("/webhooks/hook/delete").Form("/ui/webhooks/hook/delete", "confirm", "hook")
		dashboardtest.Must[forebay.Webhook](t)(c.UpdateWebhook(t.Context(), "hook", forebay.WebhookSettings{URL: receiver.URL}))
		remove = admin.Post("/webhooks/hook/delete", remove).Is(http.StatusConflict).Has("Nothing was deleted").Form("/ui/webhooks/hook/delete", "confirm", "hook")
		admin.Post("/webhooks/hook/delete", remove).Is(http.StatusOK).Has("is deleted", "No webhook.")
		admin.Get("/webhooks/hook").Is(http.StatusNotFound)
	})
}

func TestDocumentPages(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database)
		admin := s.Visit(t, s.Key(t, forebay.ScopeAdmin))
		c := s.Client(t, s.Key(t, forebay.ScopeAdmin))
		admin.Get("/documents").Is(http.StatusOK).Has("No document here")
		add := func(c *client.Client, id, text string) forebay.Document {
			t.Helper()
			_, _, err := c.AddDocument(t.Context(), forebay.NewDocument{ID: id, Name: "harbour.txt", ContentType: "text/plain", Metadata: map[string]string{"by": "<b>Ada"}}, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return dashboardtest.Must[forebay.Document](t)(c.WaitDocument(t.Context(), id))
		}
		d := add(c, "harbour", "The breakwater of the harbour <script>alert(1)</script> was repaired by the city.")
		if d.Status != forebay.DocumentReady {
			t.Fatalf("the document is %+v", d)
		}
		admin.Get("/documents").Is(http.StatusOK).Has("harbour", "ready", "/ui/documents/harbour")
		admin.Get("/documents?created_after=x").Is(http.StatusUnprocessableEntity)
		admin.Get("/documents/harbour").Is(http.StatusOK).Has("Split", "Embedding", "Metadata", "1 of 1", d.Revision, "&lt;b&gt;Ada").Lacks("Do again")
		admin.Post("/documents/harbour/retry", dashboardtest.Values()).Is(http.StatusConflict)

		found := admin.Get("/search?query=breakwater&mode=keyword&limit=5").Is(http.StatusOK).Has("1 passage", "&lt;script&gt;alert(1)", "/ui/documents/harbour")
		found.Lacks("<script>alert")
		admin.Get("/search?query=breakwater").Is(http.StatusOK).Has("1/(60 + place)", "/ui/documents/harbour")
		admin.Get("/search?query=nothing-like-it&mode=keyword").Is(http.StatusOK).Has("Nothing was found")
		admin.Get("/search?query=x&limit=0").Is(http.StatusUnprocessableEntity).Has("goes from 1 to 100")
		admin.Get("/search?query=x&mode=other").Is(http.StatusUnprocessableEntity)
		// A link on another site makes no model embed anything.
		admin.Get("/search?query=breakwater", "Sec-Fetch-Site", "cross-site").Is(http.StatusOK).Has("Press Search").Lacks("passage,")

		reader := s.Visit(t, s.Key(t, forebay.ScopeRead))
		reader.Get("/search?query=breakwater").Is(http.StatusOK).Has("You may search by words", "1 passage")
		reader.Get("/search?query=breakwater&mode=vector").Is(http.StatusForbidden).Has("needs the scope")
		reader.Get("/documents/harbour").Is(http.StatusOK).Lacks("method=\"post\"", "Delete…")
		reader.Post("/documents/harbour/delete", dashboardtest.Values("confirm", "harbour")).Is(http.StatusForbidden)
		reader.Post("/documents/harbour/retry", dashboardtest.Values()).Is(http.StatusForbidden)
		other := s.Visit(t, s.KeyOf(t, "rival", forebay.ScopeRead, forebay.ScopeOperate))
		other.Get("/documents").Is(http.StatusOK).Lacks("harbour")
		other.Get("/documents/harbour").Is(http.StatusNotFound)
		other.Get("/search?query=breakwater&mode=keyword").Is(http.StatusOK).Has("Nothing was found")

		// A document is deleted once its id is typed, unless it has got other content since.
		page := admin.Get("/documents/harbour/delete").Is(http.StatusOK).Has("Type harbour to confirm")
		remove := page.Form("/ui/documents/harbour/delete", "confirm", "harbour")
		admin.Post("/documents/harbour/delete", with(remove, "confirm", "x")).Is(http.StatusUnprocessableEntity).Has("Nothing was deleted")
		add(c, "harbour", "Other content, which somebody has uploaded since.")
		remove = admin.Post("/documents/harbour/delete", remove).Is(http.StatusConflict).Has("other content").Form("/ui/documents/harbour/delete", "confirm", "harbour")
		admin.Post("/documents/harbour/delete", remove).Is(http.StatusOK).Has("is deleted")
		admin.Get("/documents/harbour").Is(http.StatusNotFound)
	})
}

// A part of a pipeline that has failed leads to the job, and can be done again.
func TestDocumentPageOfAFailure(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t))
	key := s.Key(t, forebay.ScopeAdmin)
	v, c := s.Visit(t, key), s.Client(t, key)
	if _, _, err := c.AddDocument(t.Context(), forebay.NewDocument{ID: "broken", ContentType: "application/pdf"}, []byte("%PDF-1.4 no document")); err != nil {
		t.Fatal(err)
	}
	d := dashboardtest.Must[forebay.Document](t)(c.WaitDocument(t.Context(), "broken"))
	failures := d.Branches.Split.Errors
	if d.Status != forebay.DocumentFailed || len(failures) == 0 {
		t.Fatalf("the document is %+v", d)
	}
	v.Get("/documents/broken").Is(http.StatusOK).Has("failed", failures[0].Code, fmt.Sprintf("/ui/jobs/%s", failures[0].JobID), "Do again what failed")
	v.Post("/documents/broken/retry", dashboardtest.Values()).Is(http.StatusOK).Has("is done again")
}
