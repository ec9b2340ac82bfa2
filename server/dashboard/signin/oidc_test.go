package signin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// People sign in at a real provider, act with the scopes of their roles, and sign out. The audit
// log has who they are.
func TestSignInByOpenIDConnect(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { testOIDC(t, "sqlite:"+dbtest.SQLite(t)) })
	t.Run("postgresql", func(t *testing.T) { testOIDC(t, dbtest.Postgres(t)) })
}

func testOIDC(t *testing.T, database string) {
	var signedIn *dashboardtest.Visitor // its cookies count for every port of the machine
	t.Run("people", func(t *testing.T) { signedIn = testPeople(t, database) })

	// A server without the provider takes no session of people.
	plain := dashboardtest.Start(t, database)
	signedIn.T = t
	signedIn.Base = plain.URL + "/ui"
	signedIn.Get("/keys").Is(http.StatusUnauthorized).Lacks("Example ID")
	signedIn.Get("/sign-in/begin").Is(http.StatusNotFound)
}

func testPeople(t *testing.T, database string) *dashboardtest.Visitor {
	f := federate(t, database, "")
	adminKey := f.Key(t, forebay.ScopeAdmin)

	olive := f.person(t)
	if got := f.signIn(olive, "olive", "/ui/keys?all=no").Is(http.StatusSeeOther).Header.Get("Location"); got != "/ui/keys?all=no" {
		t.Errorf("the sign-in leads to %q", got)
	}
	page := olive.Get("/keys").Is(http.StatusOK)
	actor := page.One(`action="/ui/sign-out"><button class="quiet" title="([^"]*)"`)
	if !strings.HasPrefix(actor, "person:olive@example.com#") {
		t.Errorf("the person is %q", actor)
	}
	olive.Post("/queues/default/pause", url.Values{}).Is(http.StatusSeeOther)
	if paused := f.AuditOf(t, adminKey, "pause"); len(paused) != 1 || paused[0].Actor != actor {
		t.Errorf("the pause is %+v; want by %s", paused, actor)
	}

	victor := f.person(t)
	f.signIn(victor, "victor", "/ui/jobs").Is(http.StatusSeeOther)
	victor.Get("/deployments").Is(http.StatusOK).NoForms()
	victor.Post("/queues/default/resume", url.Values{}).Is(http.StatusForbidden)

	// An operator ends another person's session. The person may sign in again.
	sessions, _, err := f.Client(t, adminKey).SignIns(t.Context(), "")
	if err != nil || len(sessions) != 2 || sessions[0].Owner == sessions[1].Owner {
		t.Fatalf("sessions: %+v, %v", sessions, err)
	}
	for _, one := range sessions {
		if one.Owner != actor {
			olive.Get("/sign-ins").Is(http.StatusOK).Has("2 sessions", one.Owner)
			olive.Post("/sign-ins/"+one.ID+"/end", url.Values{}).Is(http.StatusSeeOther)
		}
	}
	victor.Get("/deployments").Is(http.StatusUnauthorized)
	if ends := f.AuditOf(t, adminKey, "end-sign-in"); len(ends) != 1 || ends[0].Actor != actor || ends[0].Tenant != "acme" || !strings.HasPrefix(ends[0].Target, "person:victor") {
		t.Errorf("ends of sessions: %+v", ends)
	}

	signIns := f.AuditOf(t, adminKey, "sign-in")
	if len(signIns) != 2 || signIns[0].Actor != actor || signIns[0].Tenant != forebay.DefaultTenant || signIns[1].Tenant != "acme" ||
		signIns[1].Detail != fmt.Sprintf(`{"issuer":%q,"subject":"victor","roles":["Forebay.Viewer"]}`, f.provider.URL) {
		t.Errorf("sign-ins: %+v", signIns)
	}

	// Sign-out ends the session here, and leads to the provider's page for the one there.
	left := olive.Post("/sign-out", url.Values{}).Is(http.StatusSeeOther).Location(olive.Base)
	end := html.UnescapeString(olive.Get(strings.TrimPrefix(left, olive.Base)).Has("You have signed out here").One(`<a href="([^"]*)" rel="noreferrer">Sign out at Example ID too`))
	if page := olive.Open(http.MethodGet, end, nil); page.Status != http.StatusOK || !strings.Contains(page.Body, "sign-out") {
		t.Errorf("%s: %d %s", end, page.Status, page.Body)
	}
	olive.Get("/keys").Is(http.StatusUnauthorized)
	if outs := f.AuditOf(t, adminKey, "sign-out"); len(outs) != 1 || outs[0].Actor != actor {
		t.Errorf("sign-outs: %+v", outs)
	}

	// Another person with the same name is another one.
	double := f.person(t)
	f.signIn(double, "olive-2", "/ui/keys").Is(http.StatusSeeOther)
	if other := double.Get("/keys").Is(http.StatusOK).One(`title="(person:[^"]*)"`); other == actor || !strings.HasPrefix(other, "person:olive@example.com#") {
		t.Errorf("the double of %s is %s", actor, other)
	}

	return double
}

// What did not begin in this browser, was tampered with, or is not for this server is refused,
// and says nothing of why. The audit log says why.
func TestRefusedSignIns(t *testing.T) {
	t.Parallel()
	f := federate(t, "sqlite:"+dbtest.SQLite(t), "")
	adminKey := f.Key(t, forebay.ScopeAdmin)
	const notBegun, refused, noRole = "did not begin in this browser", "this sign-in was refused", "no role"
	change := func(address string, pairs ...string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		query := u.Query()
		for i := 0; i+1 < len(pairs); i += 2 {
			if query.Set(pairs[i], pairs[i+1]); pairs[i+1] == "" {
				query.Del(pairs[i])
			}
		}
		u.RawQuery = query.Encode()
		return u.String()
	}
	state := func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return u.Query().Get("state")
	}
	var reasons []string
	for _, c := range []struct {
		name   string
		finish func(v *dashboardtest.Visitor) dashboardtest.Answered
		status int
		text   string
		reason string // in the audit log; "": it has nothing
	}{
		{"another state", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			return v.Open(http.MethodGet, change(f.at(v, begin(v, "/ui/"), "olive"), "state", "AAAA"), nil)
		}, http.StatusUnauthorized, notBegun, ""},
		{"a state that begins alike", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			callback := f.at(v, begin(v, "/ui/"), "olive")
			return v.Open(http.MethodGet, change(callback, "state", state(callback)[:16]+strings.Repeat("A", 27)), nil)
		}, http.StatusUnauthorized, notBegun, ""},
		{"another browser", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			return f.person(t).Open(http.MethodGet, f.at(v, begin(v, "/ui/"), "olive"), nil)
		}, http.StatusUnauthorized, notBegun, ""},
		{"another browser that has begun too", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			other := f.person(t)
			own := state(begin(other, "/ui/"))
			return other.Open(http.MethodGet, change(f.at(v, begin(v, "/ui/"), "olive"), "state", own), nil)
		}, http.StatusUnauthorized, refused, "the provider does not take the code: invalid_grant"}, // PKCE
		{"a used callback", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			callback := f.at(v, begin(v, "/ui/"), "olive")
			v.Open(http.MethodGet, callback, nil).Is(http.StatusSeeOther)
			return v.Open(http.MethodGet, callback, nil)
		}, http.StatusUnauthorized, notBegun, ""},
		{"a used code with a fresh cookie", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			callback := f.at(v, begin(v, "/ui/"), "olive")
			v.Open(http.MethodGet, callback, nil).Is(http.StatusSeeOther)
			return v.Open(http.MethodGet, change(callback, "state", state(begin(v, "/ui/"))), nil)
		}, http.StatusUnauthorized, refused, "the provider does not take the code: invalid_grant"},
		{"a cookie that was kept", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			callback := f.at(v, begin(v, "/ui/"), "olive")
			site, err := url.Parse(f.public.URL + "/ui/sign-in/callback")
			if err != nil {
				t.Fatal(err)
			}
			kept := v.HTTP.Jar.Cookies(site)
			v.Open(http.MethodGet, callback, nil).Is(http.StatusSeeOther)
			for _, c := range kept {
				c.Path = "/ui/sign-in/"
			}
			v.HTTP.Jar.SetCookies(site, kept)
			return v.Open(http.MethodGet, callback, nil)
		}, http.StatusUnauthorized, refused, "the provider does not take the code: invalid_grant"},
		{"another nonce", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			return v.Open(http.MethodGet, f.at(v, change(begin(v, "/ui/"), "nonce", "another"), "olive"), nil)
		}, http.StatusUnauthorized, refused, "the ID token has another nonce"},
		{"another issuer's answer", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			return v.Open(http.MethodGet, change(f.at(v, begin(v, "/ui/"), "olive"), "iss", "https://other.example"), nil)
		}, http.StatusUnauthorized, refused, "the answer is another issuer's"},
		{"an answer without an issuer", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			return v.Open(http.MethodGet, change(f.at(v, begin(v, "/ui/"), "olive"), "iss", ""), nil)
		}, http.StatusUnauthorized, refused, "the answer is another issuer's"},
		{"no consent", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			return v.Open(http.MethodGet, f.at(v, change(begin(v, "/ui/"), "prompt", "none"), "olive"), nil)
		}, http.StatusUnauthorized, refused, "the provider refused: login_required"},
		{"a changed signature", func(v *dashboardtest.Visitor) dashboardtest.Answered {
			defer f.changeTokens(func(tokens map[string]any) {
				token := tokens["id_token"].(string)
				dot := strings.LastIndexByte(token, '.')
				tokens["id_token"] = token[:dot+1] + strings.Repeat("A", len(token)-dot-1)
			})()
			return f.signIn(v, "olive", "/ui/")
		}, http.StatusUnauthorized, refused, "the ID token is not valid: signature"},
		{"no role", func(v *dashboardtest.Visitor) dashboardtest.Answered { return f.signIn(v, "nobody", "/ui/") },
			http.StatusForbidden, noRole, "none of the person's roles is configured"},
		{"two tenants", func(v *dashboardtest.Visitor) dashboardtest.Answered { return f.signIn(v, "torn", "/ui/") },
			http.StatusForbidden, noRole, `the person's roles are in different tenants: "acme" and "other"`},
		{"a role that may not read", func(v *dashboardtest.Visitor) dashboardtest.Answered { return f.signIn(v, "sam", "/ui/") },
			http.StatusForbidden, noRole, `the dashboard needs a role with the scope "read" or "view"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := f.person(t)
			v.T = t
			c.finish(v).Is(c.status).Has(c.text, "Sign in with Example ID", "API key").Lacks("nonce", "token", "acme")
			if c.reason != "" {
				reasons = append(reasons, c.reason)
			}
		})
	}
	entries := f.AuditOf(t, adminKey, "refuse-sign-in")
	for i, e := range entries {
		var detail struct{ Reason, Subject string }
		if err := json.Unmarshal([]byte(e.Detail), &detail); err != nil || i >= len(reasons) || detail.Reason != reasons[i] {
			t.Errorf("entry %d: %+v", i, e)
		}
		if known := detail.Subject != ""; known == (e.Actor == "person:unknown") {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
	if len(entries) != len(reasons) {
		t.Errorf("%d entries of %d refusals", len(entries), len(reasons))
	}
}

// changeTokens changes what the token endpoint answers, until the function that it returns.
func (f *federated) changeTokens(change func(tokens map[string]any)) (restore func()) {
	tamper := func(r *http.Response) error {
		if r.Request.URL.Path != "/token" || r.StatusCode != http.StatusOK {
			return nil
		}
		var tokens map[string]any
		if err := json.NewDecoder(r.Body).Decode(&tokens); err != nil {
			return err
		}
		change(tokens)
		body, err := json.Marshal(tokens)
		if err != nil {
			return err
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Length", fmt.Sprint(len(body)))
		return nil
	}
	f.provider.tamper.Store(&tamper)
	return func() { f.provider.tamper.Store(nil) }
}

// A token that the same provider made for another client, or that has expired, is refused.
func TestForeignTokens(t *testing.T) {
	t.Parallel()
	f := federate(t, "sqlite:"+dbtest.SQLite(t), "")
	adminKey := f.Key(t, forebay.ScopeAdmin)
	serve := func(client string) *federated {
		other := &federated{public: f.public, provider: f.provider}
		other.Running = dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), other.with(func(o *server.OIDC) { o.ClientID, o.ClientSecret = client, oidcSecret(client) }))
		return other
	}
	other := serve("other")
	f.public.to(t, other.URL)
	var foreign any
	restore := f.changeTokens(func(tokens map[string]any) { foreign = tokens["id_token"] })
	f.signIn(f.person(t), "olive", "/ui/").Is(http.StatusSeeOther)
	restore()
	if foreign == nil {
		t.Fatal("there was no token")
	}

	f.public.to(t, f.URL)
	restore = f.changeTokens(func(tokens map[string]any) { tokens["id_token"] = foreign })
	f.signIn(f.person(t), "olive", "/ui/").Is(http.StatusUnauthorized).Has("this sign-in was refused")
	restore()
	if entries := f.AuditOf(t, adminKey, "refuse-sign-in"); len(entries) != 1 || !strings.Contains(entries[0].Detail, "audience") {
		t.Errorf("the audit log has %+v", entries)
	}

	hasty := serve("hasty")
	key := hasty.Key(t, forebay.ScopeAdmin)
	f.public.to(t, hasty.URL)
	f.signIn(f.person(t), "olive", "/ui/").Is(http.StatusUnauthorized).Has("this sign-in was refused")
	if entries := hasty.AuditOf(t, key, "refuse-sign-in"); len(entries) != 1 || !strings.Contains(entries[0].Detail, "it has expired") {
		t.Errorf("the audit log has %+v", entries)
	}
}

// A provider that is down is said to be so, and keys go on to sign in. Once it is there again,
// people sign in too.
func TestProviderDown(t *testing.T) {
	t.Parallel()
	f := federate(t, "sqlite:"+dbtest.SQLite(t), "thin")
	key := f.Key(t, forebay.ScopeAdmin)
	f.provider.down.Store(true)
	v := f.person(t)
	v.Get("/sign-in/begin").Is(http.StatusServiceUnavailable).Has("cannot be reached", "use an API key", "<details class=\"by-key\" open>")
	v.Post("/sign-in", url.Values{"key": {key}}).Is(http.StatusSeeOther)
	v.Get("/keys").Is(http.StatusOK)

	f.provider.down.Store(false)
	// ID tokens of this provider have no claims: they come from its userinfo endpoint.
	elsa := f.person(t)
	elsa.UntilStatus("/sign-in/begin", http.StatusSeeOther)
	f.signIn(elsa, "elsa", "/ui/jobs").Is(http.StatusSeeOther)
	elsa.Get("/jobs").Is(http.StatusOK)
	if entries := f.AuditOf(t, key, "sign-in"); len(entries) != 2 || entries[1].Tenant != "other" {
		t.Errorf("sign-ins: %+v", entries)
	}

	// It fails between the two halves of a sign-in.
	late := f.person(t)
	callback := f.at(late, begin(late, "/ui/"), "olive")
	f.provider.down.Store(true)
	late.Open(http.MethodGet, callback, nil).Is(http.StatusServiceUnavailable).Has("cannot be reached")
}

// A provider that names another issuer in its metadata is not used.
func TestWrongIssuer(t *testing.T) {
	t.Parallel()
	f := federate(t, "sqlite:"+dbtest.SQLite(t), "", func(o *server.OIDC) { o.Issuer = strings.Replace(o.Issuer, "127.0.0.1", "localhost", 1) })
	f.Key(t, forebay.ScopeAdmin)
	f.person(t).Get("/sign-in/begin").Is(http.StatusServiceUnavailable).Has("does not answer as it should")
}

// Refused strangers fill only so much of the audit log.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	f := federate(t, "sqlite:"+dbtest.SQLite(t), "")
	key := f.Key(t, forebay.ScopeAdmin)
	const tries = 40
	for range tries {
		v := f.person(t)
		u, err := url.Parse(v.Get("/sign-in/begin").Is(http.StatusSeeOther).Location(v.Base))
		if err != nil {
			t.Fatal(err)
		}
		v.Open(http.MethodGet, v.Base+"/sign-in/callback?"+url.Values{"state": {u.Query().Get("state")}, "iss": {f.provider.URL}, "error": {"access_denied"}}.Encode(), nil).Is(http.StatusUnauthorized)
	}
	entries := f.AuditOf(t, key, "refuse-sign-in")
	if len(entries) < 10 || len(entries) >= tries {
		t.Errorf("%d entries of %d refusals", len(entries), tries)
	}
	// Those whom the provider knows are still told of.
	f.signIn(f.person(t), "nobody", "/ui/").Is(http.StatusForbidden)
	if got := f.AuditOf(t, key, "refuse-sign-in"); got[len(got)-1].Actor == "person:unknown" {
		t.Errorf("the last of %d is %+v", len(got), got[len(got)-1])
	}
}

// Several tabs sign in at once. A browser keeps only so many sign-ins under way, and begins none
// because a page of another origin wants it.
func TestSignInsOfTabs(t *testing.T) {
	t.Parallel()
	f := federate(t, "sqlite:"+dbtest.SQLite(t), "")
	f.Key(t, forebay.ScopeAdmin)
	v := f.person(t)
	first, second := begin(v, "/ui/jobs"), begin(v, "/ui/keys")
	for _, tab := range []struct{ address, next string }{{first, "/ui/jobs"}, {second, "/ui/keys"}} {
		if got := v.Open(http.MethodGet, f.at(v, tab.address, "olive"), nil).Is(http.StatusSeeOther).Header.Get("Location"); got != tab.next {
			t.Errorf("a tab goes on at %q; want %q", got, tab.next)
		}
	}
	for range 20 {
		begin(v, "/ui/")
	}
	site, err := url.Parse(f.public.URL + "/ui/sign-in/callback")
	if err != nil {
		t.Fatal(err)
	}
	flows := 0
	for _, c := range v.HTTP.Jar.Cookies(site) {
		if strings.HasPrefix(c.Name, "forebay_sign_in_") {
			flows++
		}
	}
	if flows != 8 {
		t.Errorf("%d sign-ins are under way", flows)
	}
	if got := v.Open(http.MethodGet, v.Base+"/sign-in/begin?next=/ui/jobs", nil).Is(http.StatusSeeOther).Header.Get("Location"); got != "/ui/sign-in?next=%2Fui%2Fjobs" {
		t.Errorf("a page of another origin leads to %q", got)
	}
	for _, next := range []string{"https://evil.example/", "//evil.example/", "/\\evil.example", "/elsewhere", "/ui/" + strings.Repeat("x", 2000)} {
		stranger := f.person(t)
		if got := f.signIn(stranger, "olive", next).Is(http.StatusSeeOther).Header.Get("Location"); got != "/ui/" {
			t.Errorf("%.40s leads to %q", next, got)
		}
	}
}

// A person signs in and out in a browser, under the policy of the pages.
func TestOpenIDConnectInABrowser(t *testing.T) {
	t.Parallel()
	browser, axe := browsertest.Start(t), dashboardtest.AxeSource(t, filepath.Join("..", "testdata", "axe"))
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		f := federate(t, database, "")
		f.Key(t, forebay.ScopeAdmin)
		page := browser.Open(t)
		engine, in, axe := dashboardtest.LooksOn(database, axe)
		dashboardtest.Inspect(t, page, axe, f.public.URL+"/ui/sign-in", engine+" sign-in-oidc", "Sign in with Example ID", in...)
		page.Go(f.public.URL + "/ui/keys?all=no")
		page.WaitText("Sign in with Example ID")
		page.Complaints() // of the 401
		page.Submit("main a.button")
		page.Wait(`location.origin === "` + f.provider.URL + `" && document.querySelector('input[name=login]')`)
		page.Type("input[name=login]", "olive")
		page.Type("input[name=password]", "x")
		page.Submit("button[type=submit]")
		page.Wait(`document.querySelector('input[name=prompt][value=consent]')`)
		page.Submit("button[type=submit]")
		page.Wait(`location.href === "` + f.public.URL + `/ui/keys?all=no"`)
		page.WaitText("API keys")
		for _, complaint := range page.Complaints() {
			if strings.Contains(complaint, f.public.URL) {
				t.Error(complaint)
			}
		}
		var cookies string
		page.Evaluate(`document.cookie`, &cookies)
		if strings.Contains(cookies, "forebay_s") {
			t.Errorf("scripts see %s", cookies)
		}
		page.Submit("form[action$=sign-out] button")
		page.WaitText("Sign out at Example ID too")
		page.Submit("main a[rel=noreferrer]")
		page.Wait(`location.origin === "` + f.provider.URL + `"`)
		page.Go(f.public.URL + "/ui/keys")
		page.WaitText("Sign in with Example ID")
	})
}

// Behind TLS cookies are for TLS and for this host alone.
func TestSignInBehindTLS(t *testing.T) {
	t.Parallel()
	f := &federated{public: newTLSFront(t), provider: newFront(t)}
	f.provider.to(t, startProvider(t, f.provider.URL, f.public.URL+"/ui/sign-in/callback", ""))
	f.Running = dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), f.with())
	f.public.to(t, f.URL)
	f.Key(t, forebay.ScopeAdmin)
	v := f.person(t)
	began := v.Get("/sign-in/begin?next=/ui/jobs").Is(http.StatusSeeOther)
	finished := v.Open(http.MethodGet, f.at(v, began.Location(v.Base), "olive"), nil).Is(http.StatusSeeOther)
	v.Get("/jobs").Is(http.StatusOK)
	flow, session := cookies(began), cookies(finished)
	if len(flow) != 1 || len(session) != 2 || session[0].Name != flow[0].Name || session[0].MaxAge != -1 {
		t.Fatalf("cookies %v, then %v", flow, session)
	}
	for _, c := range append(flow, session...) {
		if !strings.HasPrefix(c.Name, "__Host-forebay") || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
			t.Errorf("a cookie is %v", c)
		}
	}
	if flow[0].MaxAge != 600 || strings.Contains(flow[0].Value, "=") {
		t.Errorf("the sign-in's cookie is %v", flow[0])
	}
}

// cookies are those that an answer sets.
func cookies(a dashboardtest.Answered) []*http.Cookie {
	return (&http.Response{Header: a.Header}).Cookies()
}
