package dashboard_test

import (
	"net/http"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// with returns a form with other values.
func with(f url.Values, pairs ...string) url.Values {
	all := url.Values{}
	for name, values := range f {
		all[name] = values
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if all.Del(pairs[i]); pairs[i+1] != "" {
			all.Set(pairs[i], pairs[i+1])
		}
	}
	return all
}

// Queues of messages are made, changed and deleted. A form that makes one replaces none, one that
// changes says what has changed meanwhile, and a deletion asks for the name.
func TestQueuesAreMadeAndDeleted(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database)
		c := s.Client(t, s.Key(t, forebay.ScopeAdmin))
		v := s.Visit(t, s.Key(t, forebay.ScopeRead, forebay.ScopeManage))
		v.Get("/queues").Is(http.StatusOK).Has("Make a queue of messages")
		made := dashboardtest.Values("name", "eu/mail", "lock", "90s", "deliveries", "3", "time_to_live", "24h", "expired", "on", "sessions", "on", "duplicates", "on", "duplicate_window", "20m", "idle", "1h30m", "largest_message", "4096")
		for _, wrong := range [][]string{{"name", ""}, {"name", "a b"}, {"lock", "soon"}, {"lock", "1h"}, {"deliveries", "0"}, {"deliveries", "many"}, {"time_to_live", "-1s"}, {"largest_message", "1e9"}, {"forward_to", "nowhere"}} {
			v.Post("/queues", with(made, wrong...)).Is(http.StatusUnprocessableEntity).Has("Make the queue", `name="time_to_live"`, `role="alert"`).Still()
		}
		v.Post("/queues", with(made, "name", dashboardtest.Hostile[:20])).Is(http.StatusUnprocessableEntity).Lacks("<script")
		v.Post("/queues", with(made, "name", "default")).Is(http.StatusConflict).Has("this queue is for jobs")
		v.Post("/queues", made).Is(http.StatusOK).Has("The queue eu/mail is made", "Change the settings", `name="lock" value="1m30s"`, `name="time_to_live" value="24h"`, `name="idle" value="1h30m"`)
		q := dashboardtest.Must[[]forebay.MessageQueue](t)(c.MessageQueues(t.Context()))[0]
		if q.Name != "eu/mail" || q.LockSeconds != 90 || q.MaxDeliveryCount != 3 || *q.DefaultTTLSeconds != 86400 || !q.DeadLetterOnExpiration || !q.RequiresSession ||
			!q.DetectsDuplicates || *q.DuplicateWindowSeconds != 1200 || *q.AutoDeleteOnIdleSeconds != 5400 || q.MaxMessageBytes != 4096 {
			t.Errorf("it is made as %+v", q)
		}
		v.Post("/queues", with(made, "lock", "10s")).Is(http.StatusConflict).Has("there is one of this name already", `value="10s"`)

		// A change keeps the status and the note, and what is settled when a queue is made.
		v.SetStatus("/queues/eu%2Fmail", "status", "send_disabled", "user_metadata", "kept").Is(http.StatusOK)
		change := v.Get("/queues/eu%2Fmail").Form("/ui/queues/eu%2Fmail/settings", "lock", "30s", "duplicate_window", "10m")
		v.Post("/queues/eu%2Fmail/settings", with(change, "lock", "x")).Is(http.StatusUnprocessableEntity).Has(`value="x"`).Still()
		v.Post("/queues/eu%2Fmail/settings", change).Is(http.StatusOK).Has("The settings are changed", `name="lock" value="30s"`, `name="time_to_live" value=""`)
		v.Post("/queues/eu%2Fmail/settings", with(change, "lock", "40s")).Is(http.StatusConflict).
			Has("Somebody has changed this", "lock, 1m30s before, is 30s now", "time to live, 24h before, is nothing now", `value="40s"`).Lacks("deleted when idle for, 40s")
		q = dashboardtest.Must[[]forebay.MessageQueue](t)(c.MessageQueues(t.Context()))[0]
		if q.LockSeconds != 30 || q.MaxDeliveryCount != 10 || q.DefaultTTLSeconds != nil || q.AutoDeleteOnIdleSeconds != nil || !q.RequiresSession || !q.DetectsDuplicates ||
			q.Status != forebay.EntitySendDisabled || q.UserMetadata != "kept" {
			t.Errorf("it is changed to %+v", q)
		}

		viewer, rival := s.Visit(t, s.Key(t, forebay.ScopeView)), s.Visit(t, s.KeyOf(t, "rival", forebay.ScopeRead, forebay.ScopeOperate))
		viewer.Get("/queues").Is(http.StatusOK).NoForms()
		viewer.Get("/queues/eu%2Fmail").Is(http.StatusOK).NoForms().Lacks("Delete the queue")
		viewer.Get("/queues/eu%2Fmail/delete").Is(http.StatusOK).NoForms()
		viewer.Post("/queues", with(made, "name", "more")).Is(http.StatusForbidden)
		viewer.Post("/queues/eu%2Fmail/settings", change).Is(http.StatusForbidden)
		viewer.Post("/queues/eu%2Fmail/delete", dashboardtest.Values("confirm", "eu/mail")).Is(http.StatusForbidden)
		rival.Get("/queues/eu%2Fmail/delete").Is(http.StatusNotFound)
		rival.Post("/queues/eu%2Fmail/settings", change).Is(http.StatusNotFound)
		rival.Post("/queues/eu%2Fmail/delete", with(change, "confirm", "eu/mail")).Is(http.StatusNotFound)

		v.Get("/queues/default/delete").Is(http.StatusUnprocessableEntity)
		v.Post("/queues/default/delete", dashboardtest.Values("confirm", "default")).IsOneOf(http.StatusConflict, http.StatusUnprocessableEntity, http.StatusNotFound)
		sure := func() dashboardtest.Answered { return v.Get("/queues/eu%2Fmail/delete").Is(http.StatusOK) }
		first := sure().Has("0 messages and 0 dead letters go with it", "Type eu/mail to confirm").Still().Form("/ui/queues/eu%2Fmail/delete", "confirm", "eu/mail")
		v.Post("/queues/eu%2Fmail/delete", with(first, "confirm", "mail")).Is(http.StatusUnprocessableEntity).Has("Nothing was changed")
		v.Post("/queues/eu%2Fmail/delete", with(first, "etag", "")).Is(http.StatusUnprocessableEntity)
		// Somebody makes a queue of that name anew: nobody has agreed to its deletion.
		if err := c.DeleteMessageQueue(t.Context(), "eu/mail"); err != nil {
			t.Fatal(err)
		}
		dashboardtest.Must[forebay.MessageQueue](t)(c.PutMessageQueue(t.Context(), "eu/mail", forebay.MessageQueueSettings{}))
		v.Post("/queues/eu%2Fmail/delete", first).Is(http.StatusConflict).Has("made anew", "Nothing was deleted", "Type eu/mail to confirm")
		last := sure().Form("/ui/queues/eu%2Fmail/delete", "confirm", "eu/mail")
		v.Post("/queues/eu%2Fmail/delete", last).Is(http.StatusOK).Has("The queue eu/mail is deleted")
		v.Post("/queues/eu%2Fmail/delete", last).Is(http.StatusNotFound)
		if left := dashboardtest.Must[[]forebay.MessageQueue](t)(c.MessageQueues(t.Context())); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

// Topics and subscriptions are made, changed and deleted like queues.
func TestTopicsAreMadeAndDeleted(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database)
		c := s.Client(t, s.Key(t, forebay.ScopeAdmin))
		v := s.Visit(t, s.Key(t, forebay.ScopeRead, forebay.ScopeOperate))
		v.Post("/topics", dashboardtest.Values("name", "orders", "time_to_live", "soon")).Is(http.StatusUnprocessableEntity).Has("time_to_live", `value="soon"`)
		v.Post("/topics", dashboardtest.Values("name", "orders", "time_to_live", "48h", "duplicates", "on")).Is(http.StatusOK).Has("The topic orders is made", "Make a subscription")
		v.Post("/topics", dashboardtest.Values("name", "orders")).Is(http.StatusConflict)
		topic := dashboardtest.Must[forebay.Topic](t)(c.Topic(t.Context(), "orders"))
		if *topic.DefaultTTLSeconds != 172800 || !topic.DetectsDuplicates {
			t.Errorf("it is made as %+v", topic)
		}
		change := v.Get("/topics/orders").Form("/ui/topics/orders/settings", "idle", "1h")
		v.Post("/topics/orders/settings", change).Is(http.StatusOK).Has("The settings are changed")
		v.Post("/topics/orders/settings", with(change, "idle", "2h")).Is(http.StatusConflict).Has("deleted when idle for, nothing before, is 1h now", `value="2h"`)
		if topic = dashboardtest.Must[forebay.Topic](t)(c.Topic(t.Context(), "orders")); *topic.AutoDeleteOnIdleSeconds != 3600 || topic.DefaultTTLSeconds != nil || !topic.DetectsDuplicates {
			t.Errorf("it is changed to %+v", topic)
		}

		subs, large := "/topics/orders/subscriptions", "/topics/orders/subscriptions/large"
		v.Post(subs, dashboardtest.Values("name", "large", "filter", "quantity >")).Is(http.StatusUnprocessableEntity).Has("quantity &gt;</textarea>").Still()
		v.Post(subs, dashboardtest.Values("name", "large", "filter", "quantity > 10", "deliveries", "4", "filter_errors", "on")).Is(http.StatusOK).Has("The subscription large is made", "quantity &gt; 10", "1 rule.")
		v.Post(subs, dashboardtest.Values("name", "all")).Is(http.StatusOK).Has("selects every message")
		v.Post(subs, dashboardtest.Values("name", "large")).Is(http.StatusConflict)
		sub := dashboardtest.Must[forebay.Subscription](t)(c.Subscription(t.Context(), "orders", "large"))
		if all := dashboardtest.Must[forebay.Subscription](t)(c.Subscription(t.Context(), "orders", "all")); sub.MaxDeliveryCount != 4 || !sub.DeadLetterOnFilterError || all.DeadLetterOnFilterError {
			t.Errorf("they are made as %+v and %+v", sub, all)
		}
		change = v.Get(large).Form("/ui"+large+"/settings", "lock", "2m")
		v.Post(large+"/settings", change).Is(http.StatusOK).Has("The settings are changed", "quantity &gt; 10")
		v.Post(large+"/settings", with(change, "lock", "3m")).Is(http.StatusConflict).Has("dead-lettering of filter errors, on before, is off now", `value="3m"`)
		if sub = dashboardtest.Must[forebay.Subscription](t)(c.Subscription(t.Context(), "orders", "large")); sub.LockSeconds != 120 || sub.MaxDeliveryCount != 10 || sub.DeadLetterOnFilterError {
			t.Errorf("it is changed to %+v", sub)
		}

		viewer := s.Visit(t, s.Key(t, forebay.ScopeView))
		for _, path := range []string{"/topics", "/topics/orders", large, "/topics/orders/delete", large + "/delete"} {
			viewer.Get(path).Is(http.StatusOK).NoForms()
		}
		viewer.Post("/topics", dashboardtest.Values("name", "more")).Is(http.StatusForbidden)
		viewer.Post(subs, dashboardtest.Values("name", "more")).Is(http.StatusForbidden)
		viewer.Post(large+"/delete", dashboardtest.Values("confirm", "large")).Is(http.StatusForbidden)
		viewer.Post("/topics/orders/delete", dashboardtest.Values("confirm", "orders")).Is(http.StatusForbidden)

		v.Get(large+"/delete").Is(http.StatusOK).Has("Type large to confirm", "0 messages")
		v.Post(large+"/delete", dashboardtest.Values("confirm", "orders")).Is(http.StatusUnprocessableEntity)
		v.Post(large+"/delete", v.Get(large+"/delete").Form("/ui"+large+"/delete", "confirm", "large")).Is(http.StatusOK).Has("The subscription large is deleted", "1 subscription")
		v.Get(large).Is(http.StatusNotFound)
		v.Get("/topics/orders/delete").Is(http.StatusOK).Has("1 subscription with all messages", "Type orders to confirm")
		v.Post("/topics/orders/delete", dashboardtest.Values("confirm", "")).Is(http.StatusUnprocessableEntity)
		v.Post("/topics/orders/delete", v.Get("/topics/orders/delete").Form("/ui/topics/orders/delete", "confirm", "orders")).Is(http.StatusOK).Has("The topic orders is deleted")
		v.Get("/topics/orders").Is(http.StatusNotFound)
	})
}

// The forms fit all screens and themes when they are open, and axe-core finds nothing.
func TestEntityFormsLook(t *testing.T) {
	t.Parallel()
	browser, axe := browsertest.Start(t), dashboardtest.AxeSource(t, filepath.Join("testdata", "axe"))
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t))
	key := s.Key(t, forebay.ScopeAdmin)
	page := s.SignIn(t, browser, key)
	page.Go(s.URL + "/ui/queues")
	page.Evaluate(`document.querySelectorAll('main details').forEach(d => d.open = true)`, nil)
	page.Type("form[action$='/ui/queues'] input[name=name]", "mail")
	page.Submit("form[action$='/ui/queues'] button")
	page.WaitText("The queue mail is made")
	page.Go(s.URL + "/ui/topics")
	page.Evaluate(`document.querySelectorAll('main details').forEach(d => d.open = true)`, nil)
	page.Type("form[action$='/ui/topics'] input[name=name]", "orders")
	page.Submit("form[action$='/ui/topics'] button")
	page.WaitText("The topic orders is made")
	for _, path := range []string{"/queues", "/queues/mail", "/topics", "/topics/orders", "/queues/mail/delete"} {
		for _, look := range []dashboardtest.Look{{Width: 1280, Dark: false}, {Width: 390, Dark: true}} {
			page.Look(look.Width, look.Dark)
			page.Go(s.URL + "/ui" + path)
			page.Evaluate(`document.querySelectorAll('main details').forEach(d => d.open = true)`, nil)
			page.Accessible(axe, path)
			var wide int
			if page.Evaluate(`document.documentElement.scrollWidth - innerWidth`, &wide); wide > 0 {
				t.Errorf("%s is %d px wider than the screen of %d px", path, wide, look.Width)
			}
		}
	}
	for _, complaint := range page.Complaints() {
		t.Error(complaint)
	}
}
