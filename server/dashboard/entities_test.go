package dashboard_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
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
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database)
		c := s.client(t, s.key(t, forebay.ScopeAdmin))
		v := s.visit(t, s.key(t, forebay.ScopeRead, forebay.ScopeManage))
		v.get("/queues").is(http.StatusOK).has("Make a queue of messages")
		made := form("name", "eu/mail", "lock", "90s", "deliveries", "3", "time_to_live", "24h", "expired", "on", "sessions", "on", "duplicates", "on", "duplicate_window", "20m", "idle", "1h30m", "largest_message", "4096")
		for _, wrong := range [][]string{{"name", ""}, {"name", "a b"}, {"lock", "soon"}, {"lock", "1h"}, {"deliveries", "0"}, {"deliveries", "many"}, {"time_to_live", "-1s"}, {"largest_message", "1e9"}, {"forward_to", "nowhere"}} {
			v.post("/queues", with(made, wrong...)).is(http.StatusUnprocessableEntity).has("Make the queue", `name="time_to_live"`, `role="alert"`).still()
		}
		v.post("/queues", with(made, "name", hostile[:20])).is(http.StatusUnprocessableEntity).lacks("<script")
		v.post("/queues", with(made, "name", "default")).is(http.StatusConflict).has("this queue is for jobs")
		v.post("/queues", made).is(http.StatusOK).has("The queue eu/mail is made", "Change the settings", `name="lock" value="1m30s"`, `name="time_to_live" value="24h"`, `name="idle" value="1h30m"`)
		q := must[[]forebay.MessageQueue](t)(c.MessageQueues(t.Context()))[0]
		if q.Name != "eu/mail" || q.LockSeconds != 90 || q.MaxDeliveryCount != 3 || *q.DefaultTTLSeconds != 86400 || !q.DeadLetterOnExpiration || !q.RequiresSession ||
			!q.DetectsDuplicates || *q.DuplicateWindowSeconds != 1200 || *q.AutoDeleteOnIdleSeconds != 5400 || q.MaxMessageBytes != 4096 {
			t.Errorf("it is made as %+v", q)
		}
		v.post("/queues", with(made, "lock", "10s")).is(http.StatusConflict).has("there is one of this name already", `value="10s"`)

		// A change keeps the status and the note, and what is settled when a queue is made.
		v.setStatus("/queues/eu%2Fmail", "status", "send_disabled", "user_metadata", "kept").is(http.StatusOK)
		change := v.get("/queues/eu%2Fmail").form("/ui/queues/eu%2Fmail/settings", "lock", "30s", "duplicate_window", "10m")
		v.post("/queues/eu%2Fmail/settings", with(change, "lock", "x")).is(http.StatusUnprocessableEntity).has(`value="x"`).still()
		v.post("/queues/eu%2Fmail/settings", change).is(http.StatusOK).has("The settings are changed", `name="lock" value="30s"`, `name="time_to_live" value=""`)
		v.post("/queues/eu%2Fmail/settings", with(change, "lock", "40s")).is(http.StatusConflict).
			has("Somebody has changed this", "lock, 1m30s before, is 30s now", "time to live, 24h before, is nothing now", `value="40s"`).lacks("deleted when idle for, 40s")
		q = must[[]forebay.MessageQueue](t)(c.MessageQueues(t.Context()))[0]
		if q.LockSeconds != 30 || q.MaxDeliveryCount != 10 || q.DefaultTTLSeconds != nil || q.AutoDeleteOnIdleSeconds != nil || !q.RequiresSession || !q.DetectsDuplicates ||
			q.Status != forebay.EntitySendDisabled || q.UserMetadata != "kept" {
			t.Errorf("it is changed to %+v", q)
		}

		viewer, rival := s.visit(t, s.key(t, forebay.ScopeView)), s.visit(t, s.keyOf(t, "rival", forebay.ScopeRead, forebay.ScopeOperate))
		viewer.get("/queues").is(http.StatusOK).noForms()
		viewer.get("/queues/eu%2Fmail").is(http.StatusOK).noForms().lacks("Delete the queue")
		viewer.get("/queues/eu%2Fmail/delete").is(http.StatusOK).noForms()
		viewer.post("/queues", with(made, "name", "more")).is(http.StatusForbidden)
		viewer.post("/queues/eu%2Fmail/settings", change).is(http.StatusForbidden)
		viewer.post("/queues/eu%2Fmail/delete", form("confirm", "eu/mail")).is(http.StatusForbidden)
		rival.get("/queues/eu%2Fmail/delete").is(http.StatusNotFound)
		rival.post("/queues/eu%2Fmail/settings", change).is(http.StatusNotFound)
		rival.post("/queues/eu%2Fmail/delete", with(change, "confirm", "eu/mail")).is(http.StatusNotFound)

		v.get("/queues/default/delete").is(http.StatusUnprocessableEntity)
		v.post("/queues/default/delete", form("confirm", "default")).isOneOf(http.StatusConflict, http.StatusUnprocessableEntity, http.StatusNotFound)
		sure := func() answered { return v.get("/queues/eu%2Fmail/delete").is(http.StatusOK) }
		first := sure().has("0 messages and 0 dead letters go with it", "Type eu/mail to confirm").still().form("/ui/queues/eu%2Fmail/delete", "confirm", "eu/mail")
		v.post("/queues/eu%2Fmail/delete", with(first, "confirm", "mail")).is(http.StatusUnprocessableEntity).has("Nothing was changed")
		v.post("/queues/eu%2Fmail/delete", with(first, "etag", "")).is(http.StatusUnprocessableEntity)
		// Somebody makes a queue of that name anew: nobody has agreed to its deletion.
		if err := c.DeleteMessageQueue(t.Context(), "eu/mail"); err != nil {
			t.Fatal(err)
		}
		must[forebay.MessageQueue](t)(c.PutMessageQueue(t.Context(), "eu/mail", forebay.MessageQueueSettings{}))
		v.post("/queues/eu%2Fmail/delete", first).is(http.StatusConflict).has("made anew", "Nothing was deleted", "Type eu/mail to confirm")
		last := sure().form("/ui/queues/eu%2Fmail/delete", "confirm", "eu/mail")
		v.post("/queues/eu%2Fmail/delete", last).is(http.StatusOK).has("The queue eu/mail is deleted")
		v.post("/queues/eu%2Fmail/delete", last).is(http.StatusNotFound)
		if left := must[[]forebay.MessageQueue](t)(c.MessageQueues(t.Context())); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

// Topics and subscriptions are made, changed and deleted like queues.
func TestTopicsAreMadeAndDeleted(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database)
		c := s.client(t, s.key(t, forebay.ScopeAdmin))
		v := s.visit(t, s.key(t, forebay.ScopeRead, forebay.ScopeOperate))
		v.post("/topics", form("name", "orders", "time_to_live", "soon")).is(http.StatusUnprocessableEntity).has("time_to_live", `value="soon"`)
		v.post("/topics", form("name", "orders", "time_to_live", "48h", "duplicates", "on")).is(http.StatusOK).has("The topic orders is made", "Make a subscription")
		v.post("/topics", form("name", "orders")).is(http.StatusConflict)
		topic := must[forebay.Topic](t)(c.Topic(t.Context(), "orders"))
		if *topic.DefaultTTLSeconds != 172800 || !topic.DetectsDuplicates {
			t.Errorf("it is made as %+v", topic)
		}
		change := v.get("/topics/orders").form("/ui/topics/orders/settings", "idle", "1h")
		v.post("/topics/orders/settings", change).is(http.StatusOK).has("The settings are changed")
		v.post("/topics/orders/settings", with(change, "idle", "2h")).is(http.StatusConflict).has("deleted when idle for, nothing before, is 1h now", `value="2h"`)
		if topic = must[forebay.Topic](t)(c.Topic(t.Context(), "orders")); *topic.AutoDeleteOnIdleSeconds != 3600 || topic.DefaultTTLSeconds != nil || !topic.DetectsDuplicates {
			t.Errorf("it is changed to %+v", topic)
		}

		subs, large := "/topics/orders/subscriptions", "/topics/orders/subscriptions/large"
		v.post(subs, form("name", "large", "filter", "quantity >")).is(http.StatusUnprocessableEntity).has("quantity &gt;</textarea>").still()
		v.post(subs, form("name", "large", "filter", "quantity > 10", "deliveries", "4", "filter_errors", "on")).is(http.StatusOK).has("The subscription large is made", "quantity &gt; 10", "1 rule.")
		v.post(subs, form("name", "all")).is(http.StatusOK).has("selects every message")
		v.post(subs, form("name", "large")).is(http.StatusConflict)
		sub := must[forebay.Subscription](t)(c.Subscription(t.Context(), "orders", "large"))
		if all := must[forebay.Subscription](t)(c.Subscription(t.Context(), "orders", "all")); sub.MaxDeliveryCount != 4 || !sub.DeadLetterOnFilterError || all.DeadLetterOnFilterError {
			t.Errorf("they are made as %+v and %+v", sub, all)
		}
		change = v.get(large).form("/ui"+large+"/settings", "lock", "2m")
		v.post(large+"/settings", change).is(http.StatusOK).has("The settings are changed", "quantity &gt; 10")
		v.post(large+"/settings", with(change, "lock", "3m")).is(http.StatusConflict).has("dead-lettering of filter errors, on before, is off now", `value="3m"`)
		if sub = must[forebay.Subscription](t)(c.Subscription(t.Context(), "orders", "large")); sub.LockSeconds != 120 || sub.MaxDeliveryCount != 10 || sub.DeadLetterOnFilterError {
			t.Errorf("it is changed to %+v", sub)
		}

		viewer := s.visit(t, s.key(t, forebay.ScopeView))
		for _, path := range []string{"/topics", "/topics/orders", large, "/topics/orders/delete", large + "/delete"} {
			viewer.get(path).is(http.StatusOK).noForms()
		}
		viewer.post("/topics", form("name", "more")).is(http.StatusForbidden)
		viewer.post(subs, form("name", "more")).is(http.StatusForbidden)
		viewer.post(large+"/delete", form("confirm", "large")).is(http.StatusForbidden)
		viewer.post("/topics/orders/delete", form("confirm", "orders")).is(http.StatusForbidden)

		v.get(large+"/delete").is(http.StatusOK).has("Type large to confirm", "0 messages")
		v.post(large+"/delete", form("confirm", "orders")).is(http.StatusUnprocessableEntity)
		v.post(large+"/delete", v.get(large+"/delete").form("/ui"+large+"/delete", "confirm", "large")).is(http.StatusOK).has("The subscription large is deleted", "1 subscription")
		v.get(large).is(http.StatusNotFound)
		v.get("/topics/orders/delete").is(http.StatusOK).has("1 subscription with all messages", "Type orders to confirm")
		v.post("/topics/orders/delete", form("confirm", "")).is(http.StatusUnprocessableEntity)
		v.post("/topics/orders/delete", v.get("/topics/orders/delete").form("/ui/topics/orders/delete", "confirm", "orders")).is(http.StatusOK).has("The topic orders is deleted")
		v.get("/topics/orders").is(http.StatusNotFound)
	})
}

// The forms fit all screens and themes when they are open, and axe-core finds nothing.
func TestEntityFormsLook(t *testing.T) {
	t.Parallel()
	browser, axe := browsertest.Start(t), axeSource(t)
	s := start(t, "sqlite:"+dbtest.SQLite(t))
	key := s.key(t, forebay.ScopeAdmin)
	page := s.signIn(t, browser, key)
	page.Go(s.url + "/ui/queues")
	page.Evaluate(`document.querySelectorAll('main details').forEach(d => d.open = true)`, nil)
	page.Type("form[action$='/ui/queues'] input[name=name]", "mail")
	page.Submit("form[action$='/ui/queues'] button")
	page.WaitText("The queue mail is made")
	page.Go(s.url + "/ui/topics")
	page.Evaluate(`document.querySelectorAll('main details').forEach(d => d.open = true)`, nil)
	page.Type("form[action$='/ui/topics'] input[name=name]", "orders")
	page.Submit("form[action$='/ui/topics'] button")
	page.WaitText("The topic orders is made")
	for _, path := range []string{"/queues", "/queues/mail", "/topics", "/topics/orders", "/queues/mail/delete"} {
		for _, look := range []look{{1280, false}, {390, true}} {
			page.Look(look.width, look.dark)
			page.Go(s.url + "/ui" + path)
			page.Evaluate(`document.querySelectorAll('main details').forEach(d => d.open = true)`, nil)
			page.Accessible(axe, path)
			var wide int
			if page.Evaluate(`document.documentElement.scrollWidth - innerWidth`, &wide); wide > 0 {
				t.Errorf("%s is %d px wider than the screen of %d px", path, wide, look.width)
			}
		}
	}
	for _, complaint := range page.Complaints() {
		t.Error(complaint)
	}
}
