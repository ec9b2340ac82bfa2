package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// Operators see who has signed in. An administrator ends sessions, with their pages.
func TestSignInPages(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		page := o.admin.Get("/sign-ins").Is(http.StatusOK).Has("3 sessions", "• you", "read, submit")
		o.view.Get("/sign-ins").Is(http.StatusOK).Has("3 sessions").NoForms()
		o.reader.Get("/sign-ins").Is(http.StatusForbidden)
		reader := dashboardtest.KeyID(t, o.Client(t, o.adminKey), "other")
		page.Has("/ui/keys/" + reader)
		of := "/sign-ins?of=" + reader
		one := o.admin.Get(of).Is(http.StatusOK).Has("1 session ", "End all sessions of "+reader).One(`/ui(/sign-ins/signin_[0-9a-f]{32}/end)"`)
		o.view.Get(of).Is(http.StatusOK).Has("1 session ").NoForms()

		o.reader.Post(one, url.Values{}).Is(http.StatusForbidden)
		o.view.Post(one, url.Values{}).Is(http.StatusForbidden)
		o.view.Post("/sign-ins", url.Values{"owner": {reader}}).Is(http.StatusForbidden)
		o.admin.Post("/sign-ins/signin_x/end", url.Values{}).Is(http.StatusNotFound)
		o.admin.Post("/sign-ins", url.Values{}).Is(http.StatusUnprocessableEntity)
		o.reader.Get("/usage").Is(http.StatusOK)
		o.admin.Post(one, url.Values{"of": {reader}}).Is(http.StatusOK).Has("The session is ended", "Nobody here")
		o.reader.Get("/usage").Is(http.StatusUnauthorized)
		again := o.Visit(t, o.readKey) // the key is as good as before
		o.Visit(t, o.readKey)
		o.admin.Post("/sign-ins", url.Values{"owner": {reader}}).Is(http.StatusOK).Has("2 sessions ended")
		again.Get("/usage").Is(http.StatusUnauthorized)
		if ends := o.AuditOf(t, o.adminKey, "end-sign-in"); len(ends) != 2 || ends[0].Target != reader || ends[0].Tenant != "other" || !strings.HasPrefix(ends[0].Actor, "key_") {
			t.Errorf("the audit log has %+v", ends)
		}
	})
}

// The stream of a page ends with its session also while nothing happens.
func TestEndedSessionEndsAQuietStream(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t))
	admin := s.Client(t, s.Key(t, forebay.ScopeAdmin))
	v := s.Visit(t, s.Key(t, forebay.ScopeRead))
	sessions, _, err := admin.SignIns(t.Context(), "")
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%+v, %v", sessions, err)
	}
	begun := false
	stream, found := v.LiveUntil("/usage", func(stream string) bool {
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

// The page and the stream of a session that is ended ask to sign in, and nothing more is sent to
// them.
func TestEndedSessionEndsPages(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		parts, configure := writer(t)
		s := dashboardtest.Start(t, database, configure)
		admin := s.Client(t, s.Key(t, forebay.ScopeAdmin))
		readKey := s.Key(t, forebay.ScopeRead)
		job := s.Job(t, s.Key(t, forebay.ScopeSubmit), "chat", `"Which river?"`, "")
		page := s.SignIn(t, browser, readKey)
		page.Go(s.URL + "/ui/jobs/" + job.ID)
		give(t, parts, "The Limmat")
		page.WaitText("The Limmat")
		sessions, _, err := admin.SignIns(t.Context(), "")
		if err != nil || len(sessions) != 1 {
			t.Fatalf("%+v, %v", sessions, err)
		}
		v := s.Visit(t, readKey)
		ended, err := admin.EndSignIns(t.Context(), sessions[0].Owner)
		if err != nil || ended != 2 {
			t.Fatalf("%d sessions ended: %v", ended, err)
		}
		v.Get("/live?page=/jobs/" + job.ID).Is(http.StatusUnauthorized)
		page.WaitText("API key")
		give(t, parts, "")
	})
}
