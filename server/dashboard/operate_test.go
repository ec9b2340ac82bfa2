package dashboard_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

// simulated configures two deployments, of which one is expensive, and a budget.
func simulated(o *server.Options) {
	usd := 50.0
	o.Deployments = []server.Deployment{
		{Name: "east", Provider: server.ProviderSim, TokensPerMinute: 100_000, RequestsPerMinute: 600, Price: forebay.Price{Input: 250, Output: 1000}},
		{Name: "west", Provider: server.ProviderSim},
	}
	o.Models = map[string]server.Model{"chat": server.InOrder("east", "west"), "embedding": server.InOrder("west")}
	o.Tenants = map[string]server.Tenant{"acme": {Concurrency: 7, Budget: server.Budget{MonthlyUSD: &usd}}}
}

// operators are who looks at the pages of this test: an administrator, a viewer, and somebody of
// another tenant who submits and reads.
type operators struct {
	*running
	adminKey, readKey   string
	admin, view, reader *visitor
}

func operate(t *testing.T, database string, change ...func(*server.Options)) operators {
	t.Helper()
	s := start(t, database, append(change, simulated, parses)...)
	o := operators{running: s, adminKey: s.key(t, forebay.ScopeAdmin), readKey: s.keyOf(t, "other", forebay.ScopeRead, forebay.ScopeSubmit)}
	o.admin, o.view, o.reader = s.visit(t, o.adminKey), s.visit(t, s.key(t, forebay.ScopeView)), s.visit(t, o.readKey)
	return o
}

// noForms checks that who may not change anything sees no form that does.
func (a answered) noForms() answered {
	a.t.Helper()
	for _, form := range regexp.MustCompile(`<form[^>]*method="post"[^>]*>`).FindAllString(a.text(), -1) {
		a.t.Errorf("%s: the page has a form: %s", a.what, form)
	}
	return a
}

// still checks that the script does not fetch the page again: an act answered.
func (a answered) still() answered {
	a.t.Helper()
	if strings.Contains(a.body, "data-live") {
		a.t.Errorf("%s: the page would be fetched again", a.what)
	}
	return a
}

// until opens a page again until its main part has a text.
func (v *visitor) until(path, text string) answered {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	defer cancel()
	for {
		page := v.get(path)
		if strings.Contains(page.text(), text) || sleep.For(ctx, 50*time.Millisecond) != nil {
			return page.has(text)
		}
	}
}

// hidden returns the value of a hidden field of the form that goes to an address.
func (a answered) hidden(action, name string) string {
	a.t.Helper()
	_, form, found := strings.Cut(a.text(), `action="`+action+`"`)
	if !found {
		a.t.Fatalf("%s: no form goes to %s: %s", a.what, action, a.text())
	}
	form, _, _ = strings.Cut(form, "</form>")
	return unescape(answered{a.t, a.what, a.status, a.path, form, a.header}.one(`name="` + name + `" value="([^"]*)"`))
}

// form returns the form of the page that goes to an address, with the version that it carries and
// these fields.
func (a answered) form(action string, pairs ...string) url.Values {
	a.t.Helper()
	f := form(pairs...)
	f.Set("etag", a.hidden(action, "etag"))
	if _, rest, _ := strings.Cut(a.text(), `action="`+action+`"`); strings.Contains(strings.SplitN(rest, "</form>", 2)[0], `name="shown"`) {
		f.Set("shown", a.hidden(action, "shown"))
	}
	return f
}

func unescape(s string) string {
	return strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">", "&#43;", "+", "&amp;", "&").Replace(s)
}

func TestDeploymentPages(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		c := o.client(t, o.adminKey)
		o.job(t, o.adminKey, "chat", `"hello"`, forebay.StatusSucceeded)
		o.admin.until("/deployments", "of 600").has("east", "west", "simulated", "All deployments are simulated", "learned limit", "quota 600", "no limit known")
		o.view.get("/deployments/east").is(http.StatusOK).has("Pace", "$250 input", "Nothing has happened").noForms()
		o.reader.get("/deployments").is(http.StatusForbidden)
		o.reader.get("/deployments/east").is(http.StatusForbidden)
		o.admin.get("/deployments/north").is(http.StatusNotFound)

		for _, act := range []string{"pause", "resume", "forget", "sim"} {
			o.view.post("/deployments/east/"+act, url.Values{"confirm": {"east"}, "faults": {"{}"}}).is(http.StatusForbidden)
			o.reader.post("/deployments/east/"+act, url.Values{"confirm": {"east"}, "faults": {"{}"}}).is(http.StatusForbidden)
		}
		o.admin.post("/deployments/east/pause", nil).is(http.StatusOK).has("Calls in flight finish", "An operator has paused it", "Resume east")
		if d, err := c.Deployment(t.Context(), "east"); err != nil || !d.Paused {
			t.Errorf("paused: %+v, %v", d, err)
		}
		o.admin.post("/deployments/east/resume", nil).is(http.StatusOK).has("Pause east").lacks("An operator has paused it")
		o.admin.post("/deployments/east/forget", url.Values{"confirm": {"East"}}).is(http.StatusConflict).has("nothing was done")
		o.admin.post("/deployments/east/forget", url.Values{"confirm": {"east"}}).is(http.StatusOK).has("What was learned is forgotten")

		page := o.admin.get("/deployments/east").has("Faults of the simulation")
		before := page.form("/ui/deployments/east/sim")
		set := func(before url.Values, faults string) answered {
			return o.admin.post("/deployments/east/sim", with(before, "faults", faults))
		}
		set(before, `{"throttle_rate":</textarea><script>`).is(http.StatusUnprocessableEntity).has("no JSON", "&lt;/textarea&gt;&lt;script&gt;").lacks("<script>").still()
		set(before, `{"throttle_rat":1}`).is(http.StatusUnprocessableEntity).has("throttle_rat")
		set(before, `{"throttle_rate":0.25}`).is(http.StatusOK).has("The faults are set", "0.25")
		set(before, `{"throttle_rate":0.75}`).is(http.StatusConflict).has("Somebody has changed this", "0.75", "0.25")
		if faults, err := c.SimFaults(t.Context(), "east"); err != nil || !strings.Contains(string(faults), "0.25") {
			t.Errorf("faults: %s, %v", faults, err)
		}
	})
}

// A breaker that opened is told with its reason, and resuming lets a call try.
func TestBrokenDeploymentPage(t *testing.T) {
	t.Parallel()
	o := operate(t, "sqlite:"+dbtest.SQLite(t))
	c := o.client(t, o.adminKey)
	if err := c.SetSimFaults(t.Context(), "east", []byte(`{"error_rate":1}`)); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		o.job(t, o.adminKey, "chat", `"hello"`, "")
	}
	page := o.admin.until("/deployments/east", "breaker opened")
	page.has("Its breaker is ", "Let one call try now")
	o.view.get("/deployments").has("breaker <span class=\"badge ") // it is half-open while a call tries it
	o.admin.post("/deployments/east/resume", nil).is(http.StatusOK).has("one call tries it now")
}

func TestUsagePage(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		o.job(t, o.adminKey, "chat", `"hello"`, forebay.StatusSucceeded)
		o.job(t, o.readKey, "chat", `"hello there, this one is longer"`, forebay.StatusSucceeded)
		o.admin.until("/usage", "2 rows").has(`href="/ui/tenants/acme"`, `href="/ui/tenants/other"`, `<svg class="chart"`, "cost by the hour", "The highest column is $")
		o.view.get("/usage?by=tenant,deployment,task,model&step=day&metric=tokens").is(http.StatusOK).has(`href="/ui/deployments/east"`, "tokens by the day", "2 rows", `href="/ui/jobs?task=chat"`)
		o.view.get("/usage?tenant=other").is(http.StatusOK).has("1 row,", `href="/ui/jobs?task=chat&amp;tenant=other"`).lacks("/tenants/acme")
		o.reader.get("/usage").is(http.StatusOK).has("1 row,", "chat").lacks("acme", "all tenants", "/deployments/")
		o.reader.get("/usage?tenant=acme").is(http.StatusForbidden)
		o.reader.get("/usage?by=tenant").is(http.StatusOK).lacks("acme")
		o.admin.get("/usage?last=90d&step=hour").is(http.StatusOK).has("cost by the day").lacks("by the hour")
		hour := time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04")
		o.admin.get("/usage?since="+url.QueryEscape(hour)).is(http.StatusOK).has("2 rows", `value="`+hour+`"`)
		for _, bad := range []string{"since=yesterday", "last=1y", "step=minute", "by=color", "since=0002-01-01T00:00", "cursor=-1", "since=2030-01-02T00:00&until=2030-01-01T00:00"} {
			if page := o.admin.get("/usage?" + bad); page.status != http.StatusBadRequest && page.status != http.StatusUnprocessableEntity {
				t.Errorf("%s: status %d: %s", bad, page.status, page.text())
			}
		}
		o.admin.get("/usage?last=24h&x="+url.QueryEscape("<script>alert(1)</script>")+"&javascript:alert(1)=javascript:alert(1)").is(http.StatusOK).lacks("<script>", "<img", `href="javascript:`)
	})
}

func TestRetriesPage(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		o.job(t, o.readKey, "parse", `{"good":true}`, forebay.StatusSucceeded)
		o.job(t, o.adminKey, "parse", `{"good":false}`, forebay.StatusFailed)
		o.view.until("/retries", "unreadable").has("permanent", `href="/ui/dead-letters?reason=unreadable"`, `href="/ui/dead-letters?reason=unreadable&amp;task=parse"`,
			`href="/ui/jobs?task=parse"`, `<svg class="chart"`, "1 succeeded, 1 failed", "the most are 2 at ")
		o.view.get("/retries?tenant=other").is(http.StatusOK).has("1 succeeded, 0 failed").lacks("unreadable")
		o.reader.get("/retries").is(http.StatusOK).lacks("unreadable", "all tenants")
		o.reader.get("/retries?last=30d").is(http.StatusOK)
		o.reader.get("/retries?tenant=acme").is(http.StatusForbidden)
		o.view.get("/retries?since=2010-01-01T00:00&until=2010-01-02T00:00").is(http.StatusOK).has("No attempt ended")
	})
}

func TestTenantPages(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		c := o.client(t, o.adminKey)
		o.job(t, o.adminKey, "chat", `"hello"`, forebay.StatusSucceeded)
		o.view.until("/tenants", "of $50.000 a month").has("acme", "other", "no limit", "of 7", "begins again").noForms()
		o.view.get("/tenants?name=oth").has("other").lacks("/ui/tenants/acme")
		o.view.get("/tenants/acme").is(http.StatusOK).has("This month", "This day", "configuration").noForms()
		o.view.get("/tenants/acme/limits").is(http.StatusOK).has("waiting_jobs", "default").noForms()
		o.reader.get("/tenants").is(http.StatusForbidden)
		o.reader.get("/tenants/other").is(http.StatusForbidden)
		o.admin.get("/tenants/nobody").is(http.StatusNotFound)
		o.admin.get("/tenants/nobody/limits").is(http.StatusNotFound)
		for _, act := range []string{"pause", "resume", "budget", "concurrency", "limits"} {
			o.view.post("/tenants/acme/"+act, url.Values{"etag": {""}}).is(http.StatusForbidden)
			o.reader.post("/tenants/other/"+act, url.Values{}).is(http.StatusForbidden)
		}

		o.admin.post("/tenants/acme/pause", nil).is(http.StatusOK).has("None of its jobs starts", "Resume acme")
		if got, err := c.Tenant(t.Context(), "acme"); err != nil || !got.Paused {
			t.Errorf("paused: %+v, %v", got, err)
		}
		o.admin.post("/tenants/acme/resume", nil).is(http.StatusOK).has("Pause acme")

		before := o.admin.get("/tenants/acme").form("/ui/tenants/acme/budget", "monthly_tokens", "1,000,000")
		budget := func(v *visitor, before url.Values, usd string) answered {
			return v.post("/tenants/acme/budget", with(before, "daily_usd", usd))
		}
		budget(o.view, before, "3").is(http.StatusForbidden)
		budget(o.admin, before, `"><script>`).is(http.StatusUnprocessableEntity).has("daily_usd", "&#34;&gt;&lt;script&gt;").lacks("<script>").still()
		budget(o.admin, before, "-1").is(http.StatusUnprocessableEntity)
		budget(o.admin, before, "12.5").is(http.StatusOK).has("The budget is set", "of $12.500 a day", "of 1.0 M tokens a month")
		again := budget(o.admin, before, "99").is(http.StatusConflict).has("Somebody has changed this", "daily_usd, nothing before, is 12.5 now", "monthly_tokens, ", `value="99"`)
		if next := again.form("/ui/tenants/acme/budget"); next.Get("etag") == before.Get("etag") {
			t.Error("the page keeps the version that is not there any more")
		}
		got, err := c.Tenant(t.Context(), "acme")
		if err != nil || got.Budget.MonthlyUSD != nil || got.Budget.DailyUSD == nil || *got.Budget.DailyUSD != forebay.USD(12.5) || *got.Budget.MonthlyTokens != 1_000_000 {
			t.Errorf("budget: %+v, %v", got.Budget, err)
		}

		before = o.admin.get("/tenants/acme").form("/ui/tenants/acme/concurrency")
		concurrency := func(most string) answered {
			return o.admin.post("/tenants/acme/concurrency", with(before, "concurrency", most))
		}
		concurrency("many").is(http.StatusUnprocessableEntity).has("whole number")
		concurrency("").is(http.StatusUnprocessableEntity)
		concurrency("9").is(http.StatusOK).has("9 jobs run at once")
		concurrency("11").is(http.StatusConflict).has("concurrency, 7 before, is 9 now", `value="11"`)

		page := o.admin.get("/tenants/acme/limits")
		before = page.form("/ui/tenants/acme/limits", "topics", "0")
		limits := func(before url.Values, waiting string) answered {
			return o.admin.post("/tenants/acme/limits", with(before, "waiting_jobs", waiting))
		}
		limits(before, "x").is(http.StatusUnprocessableEntity).has(`value="x"`)
		limits(before, "1234").is(http.StatusOK).has("The limits are set", `value="1234"`, `name="topics" value="0"`, `name="batches" value=""`)
		limits(before, "77").is(http.StatusConflict).has("waiting_jobs, nothing before, is 1234 now", `value="77"`, "1,234")
		if got, err = c.Tenant(t.Context(), "acme"); err != nil || !slices.ContainsFunc(got.Limits, func(l forebay.LimitUse) bool { return l.Name == forebay.LimitWaitingJobs && l.Limit == 1234 && l.Set }) {
			t.Errorf("limits: %+v, %v", got.Limits, err)
		}
	})
}

// isOneOf checks the status.
func (a answered) isOneOf(status ...int) {
	a.t.Helper()
	if !slices.Contains(status, a.status) {
		a.t.Errorf("%s: status %d", a.what, a.status)
	}
}

func TestKeyPages(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		page := o.admin.get("/keys").is(http.StatusOK).has("3 keys", "yours", "Make the key", "acme", "other")
		own := page.one(`/ui/keys/(key_[a-z0-9]+)">[^<]*</a> <span class="badge good">• yours`)
		o.view.get("/keys").is(http.StatusOK).has("3 keys").noForms()
		o.view.get("/keys/" + own).is(http.StatusOK).noForms()
		o.reader.get("/keys").is(http.StatusForbidden)
		o.admin.get("/keys/key_unknown").is(http.StatusNotFound)
		o.admin.get("/keys?of=other").has("1 key,")

		form := url.Values{"tenant": {"third"}, "scopes": {"read", "submit"}, "expires": {"2050-01-02T03:04"}, "daily_usd": {"2.5"}}
		o.view.post("/keys", form).is(http.StatusForbidden)
		o.reader.post("/keys", form).is(http.StatusForbidden)
		o.admin.post("/keys", url.Values{"tenant": {"third"}}).is(http.StatusUnprocessableEntity).has("scopes: choose one", `value="third"`).still()
		o.admin.post("/keys", url.Values{"tenant": {`"><script>`}, "scopes": {"read"}}).is(http.StatusUnprocessableEntity).lacks("<script>")
		o.admin.post("/keys", url.Values{"tenant": {"third"}, "scopes": {"root"}}).is(http.StatusUnprocessableEntity)
		o.admin.post("/keys", url.Values{"tenant": {"third"}, "scopes": {"read"}, "expires": {"2001-01-01T00:00"}}).is(http.StatusUnprocessableEntity)
		made := o.admin.post("/keys", form).is(http.StatusCreated).has("the only time", "2050-01-02 03:04")
		secret := made.still().one(`<pre[^>]*>(fb_[A-Za-z0-9_]+)</pre>`)
		if made.header.Get("Cache-Control") != "no-store" || strings.Contains(fmt.Sprint(made.header), secret) || strings.Contains(made.path, secret) || made.path != "/ui/keys" {
			t.Errorf("the key is elsewhere: %v, %s", made.header, made.path)
		}
		id := made.one(`/ui/keys/(key_[a-z0-9]+)"`)
		o.admin.get("/keys").has(id).lacks(secret)
		visitor := o.visit(t, secret)
		visitor.get("/usage").is(http.StatusOK)
		o.admin.get("/keys/"+id).is(http.StatusOK).has("third", "of $2.500 a day", "Revoke "+id).lacks(secret, "You have signed in")

		budget := o.admin.get("/keys/"+id).form("/ui/keys/"+id+"/budget", "monthly_usd", "7")
		o.view.post("/keys/"+id+"/budget", budget).is(http.StatusForbidden)
		o.admin.post("/keys/"+id+"/budget", budget).is(http.StatusOK).has("of $7.000 a month").lacks("a day <")
		o.admin.post("/keys/"+id+"/budget", budget).is(http.StatusConflict).has("monthly_usd, nothing before, is 7 now")

		o.admin.get("/keys/"+own).has("You have signed in with this key", "signs you out")
		o.admin.post("/keys/"+id+"/revoke", url.Values{"confirm": {own}}).is(http.StatusConflict).has("nothing was done")
		o.view.post("/keys/"+id+"/revoke", url.Values{"confirm": {id}}).is(http.StatusForbidden)
		o.admin.post("/keys/"+id+"/revoke", url.Values{"confirm": {id}}).is(http.StatusOK).has("is revoked", "3 keys")
		o.admin.get("/keys?show=all").has("4 keys", "revoked")
		visitor.get("/usage").is(http.StatusUnauthorized)
		o.admin.get("/keys/" + id).has("revoked").lacks("Set the budget of this key")
	})
}

func TestAuditPages(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database, func(o *server.Options) { o.Audit.JobEvents = []forebay.EventType{forebay.EventAccepted} })
		o.admin.post("/deployments/east/pause", nil).is(http.StatusOK)
		o.admin.post("/tenants/acme/pause", nil).is(http.StatusOK)
		o.view.get("/audit").is(http.StatusOK).has("pause-deployment", "east", "pause-tenant", "create-key").noForms()
		o.view.get("/audit?action=pause-deployment").is(http.StatusOK).has("east", "remove the filter").lacks("create-key")
		o.view.get("/audit?of=other").is(http.StatusOK).has("other").lacks("pause-tenant")
		o.view.get("/audit?actor=local").is(http.StatusOK).has("create-key").lacks("pause-deployment")
		o.view.get("/audit?action="+url.QueryEscape("<script>\u202e")).is(http.StatusOK).has("No entry here", "&lt;script&gt;\ufffd").lacks("<script>", "\u202e")
		o.view.get("/audit?created_after=2020-01-02T15:04&action=pause-tenant").is(http.StatusOK).has("pause-tenant", "from <time", `name="created_after" value="2020-01-02T15:04"`,
			"forebay audit list --action=pause-tenant --after=2020-01-02T15:04:00Z", `href="/ui/audit?created_after=2020-01-02T15%3A04"`).lacks("before <time")
		o.view.get("/audit?created_before=2020-01-02T16:04:05.5%2B01:00").is(http.StatusOK).has("No entry matches", "before <time", `name="created_before" value="2020-01-02T15:04:05.5"`,
			"forebay audit list --before=2020-01-02T15:04:05.5Z")
		for range 26 {
			o.admin.post("/deployments/east/resume", nil).is(http.StatusOK)
			o.admin.post("/deployments/east/pause", nil).is(http.StatusOK)
		}
		next := o.view.get("/audit?created_after=2020-01-02T15:04:05&of=").is(http.StatusOK).lacks("create-key").one(`rel="next" href="/ui([^"]*)"`)
		o.view.get(html.UnescapeString(next)).is(http.StatusOK).has("create-key", `name="created_after" value="2020-01-02T15:04:05"`).lacks(`rel="next"`)
		for _, field := range []string{"created_after", "created_before"} {
			o.view.get("/audit?" + field + "=yesterday").is(http.StatusUnprocessableEntity).has(field + ": must be a time")
			o.view.get("/audit?" + field + "=1900-01-02T15:04").is(http.StatusUnprocessableEntity).has(field + ": lies outside the years")
		}
		o.view.get("/audit?cursor=x").isOneOf(http.StatusBadRequest, http.StatusUnprocessableEntity)
		o.reader.get("/audit").is(http.StatusForbidden)
		o.reader.get("/audit/verify?from=").is(http.StatusForbidden)

		o.view.get("/audit/verify").is(http.StatusOK).lacks("as they were written")
		page := o.view.get("/audit/verify?from=").is(http.StatusOK).has("The entries 1 to ", "are as they were written", "end of the log").lacks("Go on from")
		head := page.one(`<pre[^>]*>([0-9]+:[0-9a-f]{64})</pre>`)
		o.view.get("/audit/verify?from="+url.QueryEscape(head)).is(http.StatusOK).has("as they were written", head)
		number, hash, _ := strings.Cut(head, ":")
		flipped := strings.Map(func(r rune) rune { return map[bool]rune{true: '1', false: '0'}[r == '0'] }, hash)
		o.view.get("/audit/verify?from="+url.QueryEscape(number+":"+flipped)).is(http.StatusOK).has("not as it was written", "not the one this head is of")
		o.view.get("/audit/verify?from=7").isOneOf(http.StatusBadRequest, http.StatusUnprocessableEntity)
	})
}

// A read-only dashboard offers no act to anybody, and refuses all.
func TestReadOnlyPages(t *testing.T) {
	t.Parallel()
	o := operate(t, "sqlite:"+dbtest.SQLite(t), func(o *server.Options) { o.UI.ReadOnly = true })
	for _, path := range []string{"/deployments", "/deployments/east", "/tenants/acme", "/tenants/acme/limits", "/keys", "/audit", "/usage", "/retries"} {
		o.admin.get(path).is(http.StatusOK).noForms()
	}
	o.admin.post("/deployments/east/pause", nil).is(http.StatusForbidden)
	o.admin.post("/keys", url.Values{"tenant": {"acme"}, "scopes": {"admin"}}).is(http.StatusForbidden)
}
