package dashboard_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// endless is a word without an end.
var endless = strings.Repeat("W", 250)

// What tenants choose as names and write in errors moves nothing on an operator's pages. It
// neither turns the direction of text nor makes a page wider than the window.
func TestNamesOfTenants(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), func(o *server.Options) {
		o.Functions = append(o.Functions, forebay.Task{Name: "refuse", Run: func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
			return forebay.TaskResult{}, forebay.Permanent("unreadable", endless)
		}})
	})
	const turned = "x\u202e\u061c\u2066gnp.exe"
	tenant := s.Client(t, s.KeyOf(t, "acme", forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate))
	job, _, err := tenant.Submit(t.Context(), forebay.SubmitRequest{
		Task: "refuse", Input: json.RawMessage(`"x"`), CorrelationID: new(turned), SessionID: new(turned),
		Metadata: map[string]string{turned: turned, endless[:64]: endless},
	})
	if err == nil {
		job, err = tenant.Wait(t.Context(), job.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	long := endless[:200]
	for _, name := range []string{"orders/eu", long} {
		if _, err := tenant.PutMessageQueue(t.Context(), name, forebay.MessageQueueSettings{}); err != nil {
			t.Fatal(err)
		}
	}

	key := s.Key(t, forebay.ScopeAdmin)
	v := s.Visit(t, key)
	v.Get("/queues/orders%2Feu?tenant=acme").Is(http.StatusOK).
		Has(`href="/ui/queues/orders%2Feu?tab=dead-letters&amp;tenant=acme"`).Lacks(`href="/ui/queues/orders/eu`)
	page := s.SignIn(t, browser, key)
	page.Look(1200, false)
	for _, path := range []string{
		"/jobs/" + job.ID + "?tenant=acme", "/dead-letters/default/" + job.ID + "?tenant=acme", "/dead-letters?tenant=acme",
		"/queues?tenant=acme", "/queues/" + long + "?tenant=acme", "/queues/" + long + "/delete?tenant=acme",
	} {
		v.Get(path).Is(http.StatusOK).Lacks("\u202e", "\u061c", "\u2066")
		page.Go(s.URL + "/ui" + path)
		var wide []string
		page.Evaluate(`[...document.querySelectorAll('main, .scroll')].filter(e => e.scrollWidth > e.clientWidth + 200).map(e => e.scrollWidth + " of " + e.ariaLabel)`, &wide)
		if len(wide) > 0 {
			t.Errorf("%s has parts that are too wide: %q", path, wide)
		}
	}
}
