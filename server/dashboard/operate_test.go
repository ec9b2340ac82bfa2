package dashboard_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// simulated configures two deployments, of which one is expensive, and a budget.
func simulated(o *server.Options) {
	usd := 50.0
	o.Deployments = []server.Deployment{
		{Name: "east", Provider: server.ProviderSim, TokensPerMinute: 100_000, RequestsPerMinute: 600, Price: forebay.Price{Input: 250, CachedInput: 25, Output: 1000}},
		{Name: "west", Provider: server.ProviderSim},
	}
	o.Models = map[string]server.Model{"chat": server.InOrder("east", "west"), "embedding": server.InOrder("west")}
	o.Tenants = map[string]server.Tenant{"acme": {Concurrency: 7, Budget: server.Budget{MonthlyUSD: &usd}}}
}

// operators are who looks at the pages of this test: an administrator, a viewer, and somebody of
// another tenant who submits and reads.
type operators struct {
	*dashboardtest.Running
	adminKey, readKey   string
	admin, view, reader *dashboardtest.Visitor
}

func operate(t *testing.T, database string, change ...func(*server.Options)) operators {
	t.Helper()
	s := dashboardtest.Start(t, database, append(change, simulated, dashboardtest.Parses)...)
	o := operators{Running: s, adminKey: s.Key(t, forebay.ScopeAdmin), readKey: s.KeyOf(t, "other", forebay.ScopeRead, forebay.ScopeSubmit)}
	o.admin, o.view, o.reader = s.Visit(t, o.adminKey), s.Visit(t, s.Key(t, forebay.ScopeView)), s.Visit(t, o.readKey)
	return o
}

func TestDeploymentPages(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		c := o.Client(t, o.adminKey)
		o.Job(t, o.adminKey, "chat", `"hello"`, forebay.StatusSucceeded)
		o.admin.Until("/deployments", "of 600").Has("east", "west", "simulated", "All deployments are simulated", "learned limit", "quota 600", "no limit known")
		o.view.Get("/deployments/east").Is(http.StatusOK).Has("Pace", "$250 input, $25 cached input, $1000 output", "Nothing has happened").NoForms()
		o.reader.Get("/deployments").Is(http.StatusForbidden)
		o.reader.Get("/deployments/east").Is(http.StatusForbidden)
		o.admin.Get("/deployments/north").Is(http.StatusNotFound)

		for _, act := range []string{"pause", "resume", "forget", "sim"} {
			o.view.Post("/deployments/east/"+act, url.Values{"confirm": {"east"}, "faults": {"{}"}}).Is(http.StatusForbidden)
			o.reader.Post("/deployments/east/"+act, url.Values{"confirm": {"east"}, "faults": {"{}"}}).Is(http.StatusForbidden)
		}
		o.admin.Post("/deployments/east/pause", nil).Is(http.StatusOK).Has("Calls in flight finish", "An operator has paused it", "Resume east")
		if d, err := c.Deployment(t.Context(), "east"); err != nil || !d.Paused {
			t.Errorf("paused: %+v, %v", d, err)
		}
		o.admin.Post("/deployments/east/resume", nil).Is(http.StatusOK).Has("Pause east").Lacks("An operator has paused it")
		o.admin.Post("/deployments/east/forget", url.Values{"confirm": {"East"}}).Is(http.StatusConflict).Has("nothing was done")
		o.admin.Post("/deployments/east/forget", url.Values{"confirm": {"east"}}).Is(http.StatusOK).Has("What was learned is forgotten")

		page := o.admin.Get("/deployments/east").Has("Faults of the simulation")
		before := page.Form("/ui/deployments/east/sim")
		set := func(before url.Values, faults string) dashboardtest.Answered {
			return o.admin.Post("/deployments/east/sim", with(before, "faults", faults))
		}
		set(before, `{"throttle_rate":</textarea><script>`).Is(http.StatusUnprocessableEntity).Has("no JSON", "&lt;/textarea&gt;&lt;script&gt;").Lacks("<script>").Still()
		set(before, `{"throttle_rat":1}`).Is(http.StatusUnprocessableEntity).Has("throttle_rat")
		set(before, `{"throttle_rate":0.25}`).Is(http.StatusOK).Has("The faults are set", "0.25")
		set(before, `{"throttle_rate":0.75}`).Is(http.StatusConflict).Has("Somebody has changed this", "0.75", "0.25")
		if faults, err := c.SimFaults(t.Context(), "east"); err != nil || !strings.Contains(string(faults), "0.25") {
			t.Errorf("faults: %s, %v", faults, err)
		}
	})
}

// A breaker that opened is told with its reason, and resuming lets a call try.
func TestBrokenDeploymentPage(t *testing.T) {
	t.Parallel()
	o := operate(t, "sqlite:"+dbtest.SQLite(t))
	c := o.Client(t, o.adminKey)
	if err := c.SetSimFaults(t.Context(), "east", []byte(`{"error_rate":1}`)); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		o.Job(t, o.adminKey, "chat", `"hello"`, "")
	}
	page := o.admin.Until("/deployments/east", "breaker opened")
	page.Has("Its breaker is ", "Let one call try now")
	o.view.Get("/deployments").Has("breaker <span class=\"badge ") // it is half-open while a call tries it
	o.admin.Post("/deployments/east/resume", nil).Is(http.StatusOK).Has("one call tries it now")
}

func TestUsagePage(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		o.Job(t, o.adminKey, "chat", `"hello"`, forebay.StatusSucceeded)
		o.Job(t, o.readKey, "chat", `"hello there, this one is longer"`, forebay.StatusSucceeded)
		o.admin.Until("/usage", "2 rows").Has(`href="/ui/tenants/acme"`, `href="/ui/tenants/other"`, `<svg class="chart"`, "cost by the hour", "The highest column is $")
		o.view.Get("/usage?by=tenant,deployment,task,model&step=day&metric=tokens").Is(http.StatusOK).Has(`href="/ui/deployments/east"`, "tokens by the day", "2 rows", `href="/ui/jobs?task=chat"`)
		o.view.Get("/usage?tenant=other").Is(http.StatusOK).Has("1 row,", `href="/ui/jobs?task=chat&amp;tenant=other"`).Lacks("/tenants/acme")
		o.reader.Get("/usage").Is(http.StatusOK).Has("1 row,", "chat").Lacks("acme", "all tenants", "/deployments/")
		o.reader.Get("/usage?tenant=acme").Is(http.StatusForbidden)
		o.reader.Get("/usage?by=tenant").Is(http.StatusOK).Lacks("acme")
		o.admin.Get("/usage?last=90d&step=hour").Is(http.StatusOK).Has("cost by the day").Lacks("by the hour")
		hour := time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04")
		o.admin.Get("/usage?since="+url.QueryEscape(hour)).Is(http.StatusOK).Has("2 rows", `value="`+hour+`"`)
		for _, bad := range []string{"since=yesterday", "last=1y", "step=minute", "by=color", "since=0002-01-01T00:00", "cursor=-1", "since=2030-01-02T00:00&until=2030-01-01T00:00"} {
			if page := o.admin.Get("/usage?" + bad); page.Status != http.StatusBadRequest && page.Status != http.StatusUnprocessableEntity {
				t.Errorf("%s: status %d: %s", bad, page.Status, page.Text())
			}
		}
		o.admin.Get("/usage?last=24h&x="+url.QueryEscape("<script>alert(1)</script>")+"&javascript:alert(1)=javascript:alert(1)").Is(http.StatusOK).Lacks("<script>", "<img", `href="javascript:`)
	})
}

func TestRetriesPage(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		o.Job(t, o.readKey, "parse", `{"good":true}`, forebay.StatusSucceeded)
		o.Job(t, o.adminKey, "parse", `{"good":false}`, forebay.StatusFailed)
		o.view.Until("/retries", "unreadable").Has("permanent", `href="/ui/dead-letters?reason=unreadable"`, `href="/ui/dead-letters?reason=unreadable&amp;task=parse"`,
			`href="/ui/jobs?task=parse"`, `<svg class="chart"`, "1 succeeded, 1 failed", "the most are 2 at ")
		o.view.Get("/retries?tenant=other").Is(http.StatusOK).Has("1 succeeded, 0 failed").Lacks("unreadable")
		o.reader.Get("/retries").Is(http.StatusOK).Lacks("unreadable", "all tenants")
		o.Job(t, o.readKey, "parse", `{"good":false}`, forebay.StatusFailed)
		o.reader.Until("/retries", "unreadable").Lacks("/ui/dead-letters")
		// Nothing leads somebody who only reads to what they may not open.
		now, queue := o.reader.Get("/").Is(http.StatusOK).Has("cannot succeed as they are"), o.reader.Get("/queues/default").Is(http.StatusOK)
		for _, closed := range []string{"/ui/dead-letters", "/ui/quarantine", "/ui/webhooks", "forebay dlq", "forebay queues pause"} {
			if strings.Contains(now.Body+queue.Body, closed) {
				t.Errorf("the pages of a reader lead to %s", closed)
			}
		}
		o.view.Get("/").Is(http.StatusOK).Has("/ui/dead-letters?queue=default", "/ui/quarantine", "forebay dlq list --queue default --all-tenants<")
		o.reader.Get("/retries?last=30d").Is(http.StatusOK)
		o.reader.Get("/retries?tenant=acme").Is(http.StatusForbidden)
		o.view.Get("/retries?since=2010-01-01T00:00&until=2010-01-02T00:00").Is(http.StatusOK).Has("No attempt ended")
	})
}

func TestTenantPages(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		c := o.Client(t, o.adminKey)
		o.Job(t, o.adminKey, "chat", `"hello"`, forebay.StatusSucceeded)
		o.view.Until("/tenants", "of $50.000 a month").Has("acme", "other", "no limit", "of 7", "begins again").NoForms()
		o.view.Get("/tenants?name=oth").Has("other").Lacks("/ui/tenants/acme")
		o.view.Get("/tenants/acme").Is(http.StatusOK).Has("This month", "This day", "configuration").NoForms()
		o.view.Get("/tenants/acme/limits").Is(http.StatusOK).Has("waiting_jobs", "default").NoForms()
		o.reader.Get("/tenants").Is(http.StatusForbidden)
		o.reader.Get("/tenants/other").Is(http.StatusForbidden)
		o.admin.Get("/tenants/nobody").Is(http.StatusNotFound)
		o.admin.Get("/tenants/nobody/limits").Is(http.StatusNotFound)
		for _, act := range []string{"pause", "resume", "budget", "concurrency", "limits"} {
			o.view.Post("/tenants/acme/"+act, url.Values{"etag": {""}}).Is(http.StatusForbidden)
			o.reader.Post("/tenants/other/"+act, url.Values{}).Is(http.StatusForbidden)
		}

		o.admin.Post("/tenants/acme/pause", nil).Is(http.StatusOK).Has("None of its jobs starts", "Resume acme")
		if got, err := c.Tenant(t.Context(), "acme"); err != nil || !got.Paused {
			t.Errorf("paused: %+v, %v", got, err)
		}
		o.admin.Post("/tenants/acme/resume", nil).Is(http.StatusOK).Has("Pause acme")

		before := o.admin.Get("/tenants/acme").Form("/ui/tenants/acme/budget", "monthly_tokens", "1,000,000")
		budget := func(v *dashboardtest.Visitor, before url.Values, usd string) dashboardtest.Answered {
			return v.Post("/tenants/acme/budget", with(before, "daily_usd", usd))
		}
		budget(o.view, before, "3").Is(http.StatusForbidden)
		budget(o.admin, before, `"><script>`).Is(http.StatusUnprocessableEntity).Has("daily_usd", "&#34;&gt;&lt;script&gt;").Lacks("<script>").Still()
		budget(o.admin, before, "-1").Is(http.StatusUnprocessableEntity)
		budget(o.admin, before, "12.5").Is(http.StatusOK).Has("The budget is set", "of $12.500 a day", "of 1.0 M tokens a month")
		again := budget(o.admin, before, "99").Is(http.StatusConflict).Has("Somebody has changed this", "daily_usd, nothing before, is 12.5 now", "monthly_tokens, ", `value="99"`)
		if next := again.Form("/ui/tenants/acme/budget"); next.Get("etag") == before.Get("etag") {
			t.Error("the page keeps the version that is not there any more")
		}
		got, err := c.Tenant(t.Context(), "acme")
		if err != nil || got.Budget.MonthlyUSD != nil || got.Budget.DailyUSD == nil || *got.Budget.DailyUSD != forebay.USD(12.5) || *got.Budget.MonthlyTokens != 1_000_000 {
			t.Errorf("budget: %+v, %v", got.Budget, err)
		}

		before = o.admin.Get("/tenants/acme").Form("/ui/tenants/acme/concurrency")
		concurrency := func(most string) dashboardtest.Answered {
			return o.admin.Post("/tenants/acme/concurrency", with(before, "concurrency", most))
		}
		concurrency("many").Is(http.StatusUnprocessableEntity).Has("whole number")
		concurrency("").Is(http.StatusUnprocessableEntity)
		concurrency("9").Is(http.StatusOK).Has("9 jobs run at once")
		concurrency("11").Is(http.StatusConflict).Has("concurrency, 7 before, is 9 now", `value="11"`)

		page := o.admin.Get("/tenants/acme/limits")
		before = page.Form("/ui/tenants/acme/limits", "topics", "0")
		limits := func(before url.Values, waiting string) dashboardtest.Answered {
			return o.admin.Post("/tenants/acme/limits", with(before, "waiting_jobs", waiting))
		}
		limits(before, "x").Is(http.StatusUnprocessableEntity).Has(`value="x"`)
		limits(before, "1234").Is(http.StatusOK).Has("The limits are set", `value="1234"`, `name="topics" value="0"`, `name="batches" value=""`)
		limits(before, "77").Is(http.StatusConflict).Has("waiting_jobs, nothing before, is 1234 now", `value="77"`, "1,234")
		if got, err = c.Tenant(t.Context(), "acme"); err != nil || !slices.ContainsFunc(got.Limits, func(l forebay.LimitUse) bool { return l.Name == forebay.LimitWaitingJobs && l.Limit == 1234 && l.Set }) {
			t.Errorf("limits: %+v, %v", got.Limits, err)
		}
	})
}

func TestKeyPages(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database)
		page := o.admin.Get("/keys").Is(http.StatusOK).Has("3 keys", "yours", "Make the key", "acme", "other")
		own := page.One(`/ui/keys/(key_[a-z0-9]+)">[^<]*</a> <span class="badge good">• yours`)
		o.view.Get("/keys").Is(http.StatusOK).Has("3 keys").NoForms()
		o.view.Get("/keys/" + own).Is(http.StatusOK).NoForms()
		o.reader.Get("/keys").Is(http.StatusForbidden)
		o.admin.Get("/keys/key_unknown").Is(http.StatusNotFound)
		o.admin.Get("/keys?of=other").Has("1 key,")

		form := url.Values{"tenant": {"third"}, "scopes": {"read", "submit"}, "expires": {"2050-01-02T03:04"}, "daily_usd": {"2.5"}}
		o.view.Post("/keys", form).Is(http.StatusForbidden)
		o.reader.Post("/keys", form).Is(http.StatusForbidden)
		o.admin.Post("/keys", url.Values{"tenant": {"third"}}).Is(http.StatusUnprocessableEntity).Has("scopes: choose one", `value="third"`).Still()
		o.admin.Post("/keys", url.Values{"tenant": {`"><script>`}, "scopes": {"read"}}).Is(http.StatusUnprocessableEntity).Lacks("<script>")
		o.admin.Post("/keys", url.Values{"tenant": {"third"}, "scopes": {"root"}}).Is(http.StatusUnprocessableEntity)
		o.admin.Post("/keys", url.Values{"tenant": {"third"}, "scopes": {"read"}, "expires": {"2001-01-01T00:00"}}).Is(http.StatusUnprocessableEntity)
		made := o.admin.Post("/keys", form).Is(http.StatusCreated).Has("the only time", "2050-01-02 03:04")
		secret := made.Still().One(`<pre[^>]*>(fb_[A-Za-z0-9_]+)</pre>`)
		if made.Header.Get("Cache-Control") != "no-store" || strings.Contains(fmt.Sprint(made.Header), secret) || strings.Contains(made.Path, secret) || made.Path != "/ui/keys" {
			t.Errorf("the key is elsewhere: %v, %s", made.Header, made.Path)
		}
		id := made.One(`/ui/keys/(key_[a-z0-9]+)"`)
		o.admin.Get("/keys").Has(id).Lacks(secret)
		visitor := o.Visit(t, secret)
		visitor.Get("/usage").Is(http.StatusOK)
		o.admin.Get("/keys/"+id).Is(http.StatusOK).Has("third", "of $2.500 a day", "Revoke "+id).Lacks(secret, "You have signed in")

		budget := o.admin.Get("/keys/"+id).Form("/ui/keys/"+id+"/budget", "monthly_usd", "7")
		o.view.Post("/keys/"+id+"/budget", budget).Is(http.StatusForbidden)
		o.admin.Post("/keys/"+id+"/budget", budget).Is(http.StatusOK).Has("of $7.000 a month").Lacks("a day <")
		o.admin.Post("/keys/"+id+"/budget", budget).Is(http.StatusConflict).Has("monthly_usd, nothing before, is 7 now")

		o.admin.Get("/keys/"+own).Has("You have signed in with this key", "signs you out")
		o.admin.Post("/keys/"+id+"/revoke", url.Values{"confirm": {own}}).Is(http.StatusConflict).Has("nothing was done")
		o.view.Post("/keys/"+id+"/revoke", url.Values{"confirm": {id}}).Is(http.StatusForbidden)
		o.admin.Post("/keys/"+id+"/revoke", url.Values{"confirm": {id}}).Is(http.StatusOK).Has("is revoked", "3 keys")
		o.admin.Get("/keys?show=all").Has("4 keys", "revoked")
		visitor.Get("/usage").Is(http.StatusUnauthorized)
		o.admin.Get("/keys/" + id).Has("revoked").Lacks("Set the budget of this key")
	})
}

func TestAuditPages(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		o := operate(t, database, func(o *server.Options) { o.Audit.JobEvents = []forebay.EventType{forebay.EventAccepted} })
		o.admin.Post("/deployments/east/pause", nil).Is(http.StatusOK)
		o.admin.Post("/tenants/acme/pause", nil).Is(http.StatusOK)
		o.view.Get("/audit").Is(http.StatusOK).Has("pause-deployment", "east", "pause-tenant", "create-key").NoForms()
		o.view.Get("/audit?action=pause-deployment").Is(http.StatusOK).Has("east", "remove the filter").Lacks("create-key")
		o.view.Get("/audit?of=other").Is(http.StatusOK).Has("other").Lacks("pause-tenant")
		o.view.Get("/audit?actor=local").Is(http.StatusOK).Has("create-key").Lacks("pause-deployment")
		o.view.Get("/audit?action="+url.QueryEscape("<script>\u202e")).Is(http.StatusOK).Has("No entry here", "&lt;script&gt;\ufffd").Lacks("<script>", "\u202e")
		o.view.Get("/audit?created_after=2020-01-02T15:04&action=pause-tenant").Is(http.StatusOK).Has("pause-tenant", "from <time", `name="created_after" value="2020-01-02T15:04"`,
			"forebay audit list --action=pause-tenant --after=2020-01-02T15:04:00Z", `href="/ui/audit?created_after=2020-01-02T15%3A04"`).Lacks("before <time")
		o.view.Get("/audit?created_before=2020-01-02T16:04:05.5%2B01:00").Is(http.StatusOK).Has("No entry matches", "before <time", `name="created_before" value="2020-01-02T15:04:05.5"`,
			"forebay audit list --before=2020-01-02T15:04:05.5Z")
		for range 26 {
			o.admin.Post("/deployments/east/resume", nil).Is(http.StatusOK)
			o.admin.Post("/deployments/east/pause", nil).Is(http.StatusOK)
		}
		next := o.view.Get("/audit?created_after=2020-01-02T15:04:05&of=").Is(http.StatusOK).Lacks("create-key").One(`rel="next" href="/ui([^"]*)"`)
		o.view.Get(html.UnescapeString(next)).Is(http.StatusOK).Has("create-key", `name="created_after" value="2020-01-02T15:04:05"`).Lacks(`rel="next"`)
		for _, field := range []string{"created_after", "created_before"} {
			o.view.Get("/audit?" + field + "=yesterday").Is(http.StatusUnprocessableEntity).Has(field + ": must be a time")
			o.view.Get("/audit?" + field + "=1900-01-02T15:04").Is(http.StatusUnprocessableEntity).Has(field + ": lies outside the years")
		}
		o.view.Get("/audit?cursor=x").IsOneOf(http.StatusBadRequest, http.StatusUnprocessableEntity)
		o.reader.Get("/audit").Is(http.StatusForbidden)
		o.reader.Get("/audit/verify?from=").Is(http.StatusForbidden)

		o.view.Get("/audit/verify").Is(http.StatusOK).Lacks("as they were written")
		page := o.view.Get("/audit/verify?from=").Is(http.StatusOK).Has("The entries 1 to ", "are as they were written", "end of the log").Lacks("Go on from")
		head := page.One(`<pre[^>]*>([0-9]+:[0-9a-f]{64})</pre>`)
		o.view.Get("/audit/verify?from="+url.QueryEscape(head)).Is(http.StatusOK).Has("as they were written", head)
		number, hash, _ := strings.Cut(head, ":")
		flipped := strings.Map(func(r rune) rune { return map[bool]rune{true: '1', false: '0'}[r == '0'] }, hash)
		o.view.Get("/audit/verify?from="+url.QueryEscape(number+":"+flipped)).Is(http.StatusOK).Has("not as it was written", "not the one this head is of")
		o.view.Get("/audit/verify?from=7").IsOneOf(http.StatusBadRequest, http.StatusUnprocessableEntity)
	})
}

// A read-only dashboard offers no act to anybody, and refuses all.
func TestReadOnlyPages(t *testing.T) {
	t.Parallel()
	o := operate(t, "sqlite:"+dbtest.SQLite(t), func(o *server.Options) { o.UI.ReadOnly = true })
	for _, path := range []string{"/deployments", "/deployments/east", "/tenants/acme", "/tenants/acme/limits", "/keys", "/audit", "/usage", "/retries"} {
		o.admin.Get(path).Is(http.StatusOK).NoForms()
	}
	o.admin.Post("/deployments/east/pause", nil).Is(http.StatusForbidden)
	o.admin.Post("/keys", url.Values{"tenant": {"acme"}, "scopes": {"admin"}}).Is(http.StatusForbidden)
}
