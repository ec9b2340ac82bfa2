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
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

func TestWebhookPages(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		var status atomic.Int64
		status.Store(http.StatusOK)
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
		t.Cleanup(receiver.Close)
		s := start(t, database, func(o *server.Options) {
			o.Webhooks = server.Webhooks{AllowHTTP: true, AllowAddresses: []string{"127.0.0.0/8"}}
		})
		admin := s.visit(t, s.key(t, forebay.ScopeAdmin))
		c := s.client(t, s.key(t, forebay.ScopeAdmin))
		admin.post("/webhooks", form("name", "hook", "url", "ftp://x", "event_types", "failed")).is(http.StatusUnprocessableEntity).has("ftp://x", "value=\"failed\" checked")

		// A secret is shown on the page that answers, and nowhere else.
		page := admin.post("/webhooks", form("name", "hook", "url", receiver.URL, "event_types", "failed")).is(http.StatusOK).has("is made", "whsec_")
		secret := page.one(`>(whsec_[^<]+)<`)
		kept := func(page answered) {
			t.Helper()
			if page.header.Get("Cache-Control") != "no-store" || strings.Contains(page.path, "whsec") || page.header.Get("Set-Cookie") != "" {
				t.Errorf("the secret's page: %s %v", page.path, page.header)
			}
		}
		kept(page)
		admin.get("/webhooks").is(http.StatusOK).has("hook", receiver.URL, "enabled").lacks("whsec_")
		show := admin.get("/webhooks/hook").is(http.StatusOK).has("Send a test event").lacks("whsec_")
		rotate := admin.get("/webhooks/hook/rotate").is(http.StatusOK).has("Overlap").form("/ui/webhooks/hook/rotate", "overlap_hours", "2")
		page = admin.post("/webhooks/hook/rotate", rotate).is(http.StatusOK).has("another secret")
		kept(page)
		if other := page.one(`>(whsec_[^<]+)<`); other == secret {
			t.Error("the secret is the one before")
		}
		admin.post("/webhooks/hook/rotate", rotate).is(http.StatusConflict).has("rotated its secret", `value="2"`).lacks("whsec_")
		admin.post("/webhooks/hook/rotate", form("overlap_hours", "x")).is(http.StatusUnprocessableEntity)

		admin.post("/webhooks/hook/test", form()).is(http.StatusOK).has("was delivered, status 200")
		status.Store(http.StatusInternalServerError)
		admin.post("/webhooks/hook/test", form()).is(http.StatusOK).has("was not delivered", "status 500")
		admin.post("/webhooks/hook/redeliver", form()).is(http.StatusOK).has("No event was selected")
		admin.post("/webhooks/hook/redeliver", form("all", "true")).is(http.StatusOK).has("0 events will be delivered again")

		// What somebody else has changed is not overwritten.
		seen := show.form("/ui/webhooks/hook/disable")
		must[forebay.Webhook](t)(c.UpdateWebhook(t.Context(), "hook", forebay.WebhookSettings{URL: receiver.URL, EventTypes: []forebay.EventType{forebay.EventSucceeded}, Concurrency: 7}))
		admin.post("/webhooks/hook/disable", seen).is(http.StatusConflict).has("Somebody has changed this", "deliveries at once, 4 before, is 7 now", "Disable")
		seen = admin.get("/webhooks/hook").form("/ui/webhooks/hook/disable")
		admin.post("/webhooks/hook/disable", seen).is(http.StatusOK).has("is disabled", "Somebody disabled it", "Enable")
		if w := must[forebay.Webhook](t)(c.Webhook(t.Context(), "hook")); w.DisabledAt == nil || w.URL != receiver.URL || len(w.EventTypes) != 1 {
			t.Errorf("disabled: %+v", w)
		}
		seen = admin.get("/webhooks/hook").form("/ui/webhooks/hook/enable")
		admin.post("/webhooks/hook/enable", seen).is(http.StatusOK).has("is enabled")

		viewer := s.visit(t, s.key(t, forebay.ScopeView))
		viewer.get("/webhooks").is(http.StatusOK).has("hook").lacks("Make a webhook")
		viewer.get("/webhooks/hook").is(http.StatusOK).has("Tries").lacks("method=\"post\"", "Send a test event", "Rotate", "Disable")
		seen = admin.get("/webhooks/hook").form("/ui/webhooks/hook/disable", "all", "true")
		for _, act := range []string{"test", "rotate", "redeliver", "disable", "enable"} {
			viewer.post("/webhooks/hook/"+act, seen).is(http.StatusForbidden)
		}
		viewer.post("/webhooks/hook/delete", form("confirm", "hook")).is(http.StatusForbidden)
		s.visit(t, s.key(t, forebay.ScopeSubmit, forebay.ScopeRead)).get("/webhooks").is(http.StatusForbidden)
		s.visit(t, s.keyOf(t, "rival", forebay.ScopeOperate, forebay.ScopeRead)).get("/webhooks/hook").is(http.StatusNotFound)

		admin.post("/webhooks/hook/delete", form("confirm", "x")).is(http.StatusUnprocessableEntity)
		remove := admin.get("/webhooks/hook/delete").form("/ui/webhooks/hook/delete", "confirm", "hook")
		must[forebay.Webhook](t)(c.UpdateWebhook(t.Context(), "hook", forebay.WebhookSettings{URL: receiver.URL}))
		remove = admin.post("/webhooks/hook/delete", remove).is(http.StatusConflict).has("Nothing was deleted").form("/ui/webhooks/hook/delete", "confirm", "hook")
		admin.post("/webhooks/hook/delete", remove).is(http.StatusOK).has("is deleted", "No webhook.")
		admin.get("/webhooks/hook").is(http.StatusNotFound)
	})
}

func TestDocumentPages(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database)
		admin := s.visit(t, s.key(t, forebay.ScopeAdmin))
		c := s.client(t, s.key(t, forebay.ScopeAdmin))
		admin.get("/documents").is(http.StatusOK).has("No document here")
		add := func(c *client.Client, id, text string) forebay.Document {
			t.Helper()
			_, _, err := c.AddDocument(t.Context(), forebay.NewDocument{ID: id, Name: "harbour.txt", ContentType: "text/plain", Metadata: map[string]string{"by": "<b>Ada"}}, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return must[forebay.Document](t)(c.WaitDocument(t.Context(), id))
		}
		d := add(c, "harbour", "The breakwater of the harbour <script>alert(1)</script> was repaired by the city.")
		if d.Status != forebay.DocumentReady {
			t.Fatalf("the document is %+v", d)
		}
		admin.get("/documents").is(http.StatusOK).has("harbour", "ready", "/ui/documents/harbour")
		admin.get("/documents?created_after=x").is(http.StatusUnprocessableEntity)
		admin.get("/documents/harbour").is(http.StatusOK).has("Split", "Embedding", "Metadata", "1 of 1", d.Revision, "&lt;b&gt;Ada").lacks("Do again")
		admin.post("/documents/harbour/retry", form()).is(http.StatusConflict)

		found := admin.get("/search?query=breakwater&mode=keyword&limit=5").is(http.StatusOK).has("1 passage", "&lt;script&gt;alert(1)", "/ui/documents/harbour")
		found.lacks("<script>alert")
		admin.get("/search?query=breakwater").is(http.StatusOK).has("1/(60 + place)", "/ui/documents/harbour")
		admin.get("/search?query=nothing-like-it&mode=keyword").is(http.StatusOK).has("Nothing was found")
		admin.get("/search?query=x&limit=0").is(http.StatusUnprocessableEntity).has("goes from 1 to 100")
		admin.get("/search?query=x&mode=other").is(http.StatusUnprocessableEntity)
		// A link on another site makes no model embed anything.
		admin.get("/search?query=breakwater", "Sec-Fetch-Site", "cross-site").is(http.StatusOK).has("Press Search").lacks("passage,")

		reader := s.visit(t, s.key(t, forebay.ScopeRead))
		reader.get("/search?query=breakwater").is(http.StatusOK).has("You may search by words", "1 passage")
		reader.get("/search?query=breakwater&mode=vector").is(http.StatusForbidden).has("needs the scope")
		reader.get("/documents/harbour").is(http.StatusOK).lacks("method=\"post\"", "Delete…")
		reader.post("/documents/harbour/delete", form("confirm", "harbour")).is(http.StatusForbidden)
		reader.post("/documents/harbour/retry", form()).is(http.StatusForbidden)
		other := s.visit(t, s.keyOf(t, "rival", forebay.ScopeRead, forebay.ScopeOperate))
		other.get("/documents").is(http.StatusOK).lacks("harbour")
		other.get("/documents/harbour").is(http.StatusNotFound)
		other.get("/search?query=breakwater&mode=keyword").is(http.StatusOK).has("Nothing was found")

		// A document is deleted once its id is typed, unless it has got other content since.
		page := admin.get("/documents/harbour/delete").is(http.StatusOK).has("Type harbour to confirm")
		remove := page.form("/ui/documents/harbour/delete", "confirm", "harbour")
		admin.post("/documents/harbour/delete", with(remove, "confirm", "x")).is(http.StatusUnprocessableEntity).has("Nothing was deleted")
		add(c, "harbour", "Other content, which somebody has uploaded since.")
		remove = admin.post("/documents/harbour/delete", remove).is(http.StatusConflict).has("other content").form("/ui/documents/harbour/delete", "confirm", "harbour")
		admin.post("/documents/harbour/delete", remove).is(http.StatusOK).has("is deleted")
		admin.get("/documents/harbour").is(http.StatusNotFound)
	})
}

// A part of a pipeline that has failed leads to the job, and can be done again.
func TestDocumentPageOfAFailure(t *testing.T) {
	t.Parallel()
	s := start(t, "sqlite:"+dbtest.SQLite(t))
	key := s.key(t, forebay.ScopeAdmin)
	v, c := s.visit(t, key), s.client(t, key)
	if _, _, err := c.AddDocument(t.Context(), forebay.NewDocument{ID: "broken", ContentType: "application/pdf"}, []byte("%PDF-1.4 no document")); err != nil {
		t.Fatal(err)
	}
	d := must[forebay.Document](t)(c.WaitDocument(t.Context(), "broken"))
	failures := d.Branches.Split.Errors
	if d.Status != forebay.DocumentFailed || len(failures) == 0 {
		t.Fatalf("the document is %+v", d)
	}
	v.get("/documents/broken").is(http.StatusOK).has("failed", failures[0].Code, fmt.Sprintf("/ui/jobs/%s", failures[0].JobID), "Do again what failed")
	v.post("/documents/broken/retry", form()).is(http.StatusOK).has("is done again")
}
