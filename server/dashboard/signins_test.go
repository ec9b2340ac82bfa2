package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// Operators see who has signed in. An administrator ends sessions, with their pages.
func TestSignInPages(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		page := o.admin.get("/sign-ins").is(http.StatusOK).has("3 sessions", "• you", "read, submit")
		o.view.get("/sign-ins").is(http.StatusOK).has("3 sessions").noForms()
		o.reader.get("/sign-ins").is(http.StatusForbidden)
		reader := keyID(t, o.client(t, o.adminKey), "other")
		page.has("/ui/keys/" + reader)
		of := "/sign-ins?of=" + reader
		one := o.admin.get(of).is(http.StatusOK).has("1 session ", "End all sessions of "+reader).one(`/ui(/sign-ins/signin_[0-9a-f]{32}/end)"`)
		o.view.get(of).is(http.StatusOK).has("1 session ").noForms()

		o.reader.post(one, url.Values{}).is(http.StatusForbidden)
		o.view.post(one, url.Values{}).is(http.StatusForbidden)
		o.view.post("/sign-ins", url.Values{"owner": {reader}}).is(http.StatusForbidden)
		o.admin.post("/sign-ins/signin_x/end", url.Values{}).is(http.StatusNotFound)
		o.admin.post("/sign-ins", url.Values{}).is(http.StatusUnprocessableEntity)
		o.reader.get("/usage").is(http.StatusOK)
		o.admin.post(one, url.Values{"of": {reader}}).is(http.StatusOK).has("The session is ended", "Nobody here")
		o.reader.get("/usage").is(http.StatusUnauthorized)
		again := o.visit(t, o.readKey) // the key is as good as before
		o.visit(t, o.readKey)
		o.admin.post("/sign-ins", url.Values{"owner": {reader}}).is(http.StatusOK).has("2 sessions ended")
		again.get("/usage").is(http.StatusUnauthorized)
		if ends := o.auditOf(t, o.adminKey, "end-sign-in"); len(ends) != 2 || ends[0].Target != reader || ends[0].Tenant != "other" || !strings.HasPrefix(ends[0].Actor, "key_") {
			t.Errorf("the audit log has %+v", ends)
		}
	})
}

// The stream of a page ends with its session also while nothing happens.
func TestEndedSessionEndsAQuietStream(t *testing.T) {
	t.Parallel()
	s := start(t, "sqlite:"+dbtest.SQLite(t))
	admin := s.client(t, s.key(t, forebay.ScopeAdmin))
	v := s.visit(t, s.key(t, forebay.ScopeRead))
	sessions, _, err := admin.SignIns(t.Context(), "")
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%+v, %v", sessions, err)
	}
	begun := false
	stream, found := v.liveUntil("/usage", func(stream string) bool {
		if !begun && stream != "" {
			begun = true
			if err := admin.EndSignIn(t.Context(), sessions[0].ID); err != nil {
				t.Error(err)
			}
		}
		return strings.Contains(stream, "event: ended")
	})
	if !found {
		t.Errorf("the stream has %q", stream)
	}
}

// keyID is the id of a tenant's only key.
func keyID(t testing.TB, c *client.Client, tenant string) (id string) {
	t.Helper()
	keys, err := c.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.Tenant == tenant {
			return k.ID
		}
	}
	t.Fatalf("%s has no key", tenant)
	return ""
}

// The page and the stream of a session that is ended ask to sign in, and nothing more is sent to
// them.
func TestEndedSessionEndsPages(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	onDatabases(t, func(t *testing.T, database string) {
		parts, configure := writer(t)
		s := start(t, database, configure)
		admin := s.client(t, s.key(t, forebay.ScopeAdmin))
		readKey := s.key(t, forebay.ScopeRead)
		job := s.job(t, s.key(t, forebay.ScopeSubmit), "chat", `"Which river?"`, "")
		page := s.signIn(t, browser, readKey)
		page.Go(s.url + "/ui/jobs/" + job.ID)
		give(t, parts, "The Limmat")
		page.WaitText("The Limmat")
		sessions, _, err := admin.SignIns(t.Context(), "")
		if err != nil || len(sessions) != 1 {
			t.Fatalf("%+v, %v", sessions, err)
		}
		v := s.visit(t, readKey)
		ended, err := admin.EndSignIns(t.Context(), sessions[0].Owner)
		if err != nil || ended != 2 {
			t.Fatalf("%d sessions ended: %v", ended, err)
		}
		v.get("/live?page=/jobs/" + job.ID).is(http.StatusUnauthorized)
		page.WaitText("API key")
		give(t, parts, "")
	})
}
