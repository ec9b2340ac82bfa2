package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// hostileBody is what somebody may send to whoever looks at it.
const hostileBody = "<script>alert(1)</script>\u202ejavascript:\x07"

// escapedBody is how pages show it.
const escapedBody = "&lt;script&gt;alert(1)&lt;/script&gt;\ufffdjavascript:\ufffd"

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func form(pairs ...string) url.Values {
	f := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		f.Add(pairs[i], pairs[i+1])
	}
	return f
}

func peek(t testing.TB, c *client.Client, entity string) (all []forebay.Message) {
	t.Helper()
	for m, err := range c.Messages(entity).Peek(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// setStatus sends the form of a page that changes the status and the note of an entity.
func (v *visitor) setStatus(path string, pairs ...string) answered {
	v.t.Helper()
	return v.post(path+"/status", v.get(path).form("/ui"+path+"/status", pairs...))
}

func TestQueuePages(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database)
		admin := s.visit(t, s.key(t, forebay.ScopeAdmin))
		c := s.client(t, s.key(t, forebay.ScopeAdmin))
		must[forebay.MessageQueue](t)(c.PutMessageQueue(t.Context(), "eu/mail", forebay.MessageQueueSettings{MaxDeliveryCount: 1}))

		admin.get("/queues").is(http.StatusOK).has("eu/mail", "/ui/queues/eu%2Fmail", "/ui/queues/default", "Pause the queue default")
		admin.post("/queues/default/pause", form()).is(http.StatusOK).has("is paused", "Resume the queue")
		if q := must[forebay.QueueInfo](t)(c.Queue(t.Context(), "default")); !q.Paused {
			t.Error("the queue is not paused")
		}
		admin.post("/queues/default/resume", form()).is(http.StatusOK).has("goes on", "Pause the queue", "/ui/dead-letters?queue=default")

		// Send, with what somebody has typed shown again when it is wrong.
		box := "/queues/eu%2Fmail"
		admin.setStatus(box, "status", "disabled", "user_metadata", "line\r\nbreak").is(http.StatusOK).has("The status is disabled", "Change the status")
		if q := must[[]forebay.MessageQueue](t)(c.MessageQueues(t.Context())); len(q) != 1 || q[0].Status != forebay.EntityDisabled || q[0].UserMetadata != "line\nbreak" {
			t.Errorf("the queues are %+v", q)
		}
		admin.post(box+"/send", form("body", "x")).is(http.StatusConflict).has("nobody may send to it")
		stale := admin.get(box).form("/ui"+box+"/status", "status", "active", "user_metadata", "typed")
		must[forebay.MessageQueue](t)(c.ChangeMessageQueue(t.Context(), "eu/mail", forebay.EntityChange{Status: forebay.EntityReceiveDisabled}))
		admin.post(box+"/status", stale).is(http.StatusConflict).
			has("Somebody has changed this", "status, disabled before, is receive_disabled now", `<option value="active" selected>`, "typed</textarea>")
		if q := must[[]forebay.MessageQueue](t)(c.MessageQueues(t.Context())); q[0].Status != forebay.EntityReceiveDisabled || q[0].UserMetadata != "line\nbreak" {
			t.Errorf("the change of another was overwritten: %+v", q[0])
		}
		admin.setStatus(box, "status", "off").is(http.StatusUnprocessableEntity)
		admin.setStatus(box, "status", "active").is(http.StatusOK)
		admin.post(box+"/send", form("body", "kept", "properties", "no pair")).is(http.StatusUnprocessableEntity).has("part 1 must be name=value", "kept</textarea>")
		admin.post(box+"/send", form("body", "kept", "schedule", "soon")).is(http.StatusUnprocessableEntity).has("must be a time in UTC")
		admin.post(box+"/send", form("body", hostileBody, "subject", strings.ReplaceAll(hostileBody, "\x07", ""), "correlation_id", "c-1", "properties", "n=7\r\ncolor=red")).is(http.StatusOK).has("is sent")
		sent := peek(t, c, "eu/mail")
		if len(sent) != 1 || sent[0].Properties["n"] != int64(7) || sent[0].Properties["color"] != "red" || *sent[0].Body != hostileBody || sent[0].CorrelationID != "c-1" {
			t.Fatalf("sent %+v", sent)
		}
		number := strconv.FormatInt(sent[0].SequenceNumber, 10)
		admin.get(box).is(http.StatusOK).has(number, "&lt;script&gt;", "Looking does not count").lacks("<script", "\u202e")
		admin.get(box+"/messages/"+number).is(http.StatusOK).has(escapedBody, "&#34;n&#34;: 7", "c-1").lacks("<script>alert")
		admin.get(box + "?from_sequence_number=" + strconv.FormatInt(sent[0].SequenceNumber+1, 10)).is(http.StatusOK).has("None here.")
		admin.get(box + "?from_sequence_number=x").is(http.StatusUnprocessableEntity)
		admin.get(box + "/messages/x").is(http.StatusNotFound)
		admin.get(box + "/messages/999999").is(http.StatusNotFound)
		if got := peek(t, c, "eu/mail"); got[0].DeliveryCount != 0 {
			t.Errorf("looking counted as %d deliveries", got[0].DeliveryCount)
		}

		// A scheduled message can be cancelled.
		admin.post(box+"/send", form("body", "later", "schedule", "1h")).is(http.StatusOK).has("is scheduled", "scheduled")
		var scheduled string
		for _, m := range peek(t, c, "eu/mail") {
			if m.State == forebay.MessageScheduled {
				scheduled = strconv.FormatInt(m.SequenceNumber, 10)
			}
		}
		admin.get(box + "/messages/" + scheduled).is(http.StatusOK).has("Cancel this scheduled message")
		admin.post(box+"/messages/"+scheduled+"/cancel", form()).is(http.StatusOK).has("is cancelled")
		if left := peek(t, c, "eu/mail"); len(left) != 1 {
			t.Errorf("%d messages are left", len(left))
		}

		// Receive, and dead-letter what was received. The lock stands in no address.
		page := admin.post(box+"/receive", form()).is(http.StatusOK).has("You hold it until", escapedBody)
		token := page.one(`name="lock_token" value="([^"]+)"`)
		if strings.Contains(page.path, token) {
			t.Error("the lock token is in the address")
		}
		admin.post(box+"/receive", form()).is(http.StatusOK).has("No message can be received now.")
		admin.post(box+"/settle", form("lock_token", token, "act", "dead-letter", "reason", "Bad <b>", "description", "it was bad")).is(http.StatusOK).has("dead-letter subqueue")
		admin.post(box+"/settle", form("lock_token", token, "act", "complete")).is(http.StatusConflict)

		// Dead letters: by reason, redriven, purged once the name is typed.
		admin.get(box+"?tab=dead-letters").is(http.StatusOK).has("1 dead letter by reason", "Bad &lt;b&gt;", "it was bad", "Redrive all", "/messages/groups")
		admin.get(box + "?tab=dead-letters&reason=other").is(http.StatusOK).has("None here.")
		admin.get("/dead-letters/messages").is(http.StatusOK).has("Bad &lt;b&gt;", "/ui/queues/eu%2Fmail?reason=Bad&#43;%3Cb%3E&amp;tab=dead-letters", "Redrive…", "forebay messages groups")
		admin.get("/dead-letters").is(http.StatusOK).has("/ui/dead-letters/messages")
		mends(t, admin, c, box)
		admin.get(box + "/redrive?reason=" + url.QueryEscape("Bad <b>")).is(http.StatusOK).has("1 message of eu/mail will go back")
		admin.post(box+"/redrive", form("reason", "Bad <b>")).is(http.StatusOK).has("1 message redriven.")
		if q := peek(t, c, "eu/mail"); len(q) != 1 || q[0].DeliveryCount != 0 {
			t.Errorf("redriven: %+v", q)
		}
		token = admin.post(box+"/receive", form()).one(`name="lock_token" value="([^"]+)"`)
		admin.post(box+"/settle", form("lock_token", token, "act", "dead-letter")).is(http.StatusOK)
		admin.get(box+"/purge?tab=dead-letters").is(http.StatusOK).has("1 message of the dead letters", "Type eu/mail to confirm")
		admin.post(box+"/purge", form("tab", "dead-letters", "confirm", "mail")).is(http.StatusUnprocessableEntity).has("Nothing was changed")
		admin.post(box+"/purge", form("tab", "dead-letters", "confirm", "eu/mail")).is(http.StatusOK).has("1 message removed.")
		if q := peek(t, c, "eu/mail/$deadletterqueue"); len(q) != 0 {
			t.Errorf("%d dead letters are left", len(q))
		}
		for i := range 3 {
			must[[]forebay.SentMessage](t)(c.Messages("eu/mail").Send(t.Context(), forebay.NewMessage{Subject: strconv.Itoa(i)}))
		}
		admin.post(box+"/purge", form("confirm", "")).is(http.StatusUnprocessableEntity)
		admin.post(box+"/purge", form("confirm", "eu/mail")).is(http.StatusOK).has("3 messages removed.")

		rights(t, s, c, database)
	})
}

// mends checks that a dead letter is edited with a view of the difference, and that nothing is
// stored before. It leaves the one dead letter as it was.
func mends(t *testing.T, admin *visitor, c *client.Client, box string) {
	t.Helper()
	before := peek(t, c, "eu/mail/$deadletterqueue")[0]
	at := box + "/messages/" + strconv.FormatInt(before.SequenceNumber, 10)
	admin.get(at+"?tab=dead-letters").is(http.StatusOK).has("Edit and redrive", "forebay messages redrive", "characters that this page cannot show as they are")
	admin.post(at, form("act", "check", "properties", "no pair")).is(http.StatusUnprocessableEntity).has("part 1 must be name=value", "no pair</textarea>")
	admin.post(at, form("act", "check", "properties", "n=7\r\ncolor=blue")).is(http.StatusOK).has("What would change", "&#34;red&#34;", "&#34;blue&#34;", "Nothing was stored yet")
	if left := peek(t, c, "eu/mail/$deadletterqueue"); len(left) != 1 || left[0].Properties["color"] != "red" {
		t.Errorf("a check has changed %+v", left)
	}
	admin.post(box+"/messages/999999", form("act", "redrive", "properties", "")).is(http.StatusConflict).has("your change was not stored")
	body := "first line\r\nsecond <line>"
	sent := must[[]forebay.SentMessage](t)(c.Messages("eu/mail").Send(t.Context(), forebay.NewMessage{Body: &body, Properties: forebay.Properties{"a": "b"}}))
	got := must[[]forebay.Message](t)(c.Messages("eu/mail").Receive(t.Context(), forebay.ReceiveRequest{}))
	if err := c.Messages("eu/mail").DeadLetter(t.Context(), got[0].LockToken, forebay.Settlement{Reason: "Typo"}); err != nil {
		t.Fatal(err)
	}
	at = box + "/messages/" + strconv.FormatInt(sent[0].SequenceNumber, 10)
	admin.get(at + "?tab=dead-letters").is(http.StatusOK).has("second &lt;line&gt;</textarea>")
	admin.post(at, form("act", "check", "body", body, "properties", `{"a":"b"}`)).is(http.StatusOK).has("The message stays as it is.")
	// A receiver changes the properties meanwhile.
	shown, dead := admin.get(at+"?tab=dead-letters").hidden("/ui"+at, "etag"), c.Messages("eu/mail/$deadletterqueue")
	for _, m := range must[[]forebay.Message](t)(dead.Receive(t.Context(), forebay.ReceiveRequest{MaxMessages: 10})) {
		var how forebay.Settlement
		if m.SequenceNumber == sent[0].SequenceNumber {
			how.Properties = forebay.Properties{"a": "c"}
		}
		if err := dead.Abandon(t.Context(), m.LockToken, how); err != nil {
			t.Fatal(err)
		}
	}
	admin.post(at, form("act", "redrive", "body", body, "properties", `{"a":"b"}`, "etag", shown)).is(http.StatusConflict).has("has changed since the page was shown")
	edit := form("body", "first line\r\nlast line", "properties", "", "act", "check")
	admin.post(at, edit).is(http.StatusOK).has("<del>- second &lt;line&gt;</del>", "<ins>+ last line</ins>")
	edit.Set("act", "redrive")
	admin.post(at, edit).is(http.StatusOK).has("is redriven under a new number")
	admin.post(at, edit).is(http.StatusConflict)
	mended := peek(t, c, "eu/mail")
	if len(mended) != 1 || *mended[0].Body != "first line\r\nlast line" || len(mended[0].Properties) != 0 {
		t.Fatalf("mended %+v", mended)
	}
	// Two of them, sent back at a rate: the first at once, the other is scheduled.
	must[[]forebay.SentMessage](t)(c.Messages("eu/mail").Send(t.Context(), forebay.NewMessage{}))
	for _, m := range must[[]forebay.Message](t)(c.Messages("eu/mail").Receive(t.Context(), forebay.ReceiveRequest{MaxMessages: 10})) {
		if err := c.Messages("eu/mail").DeadLetter(t.Context(), m.LockToken, forebay.Settlement{Reason: "Typo"}); err != nil {
			t.Fatal(err)
		}
	}
	confirm := admin.get(box+"/redrive?tab=dead-letters&reason=Typo").is(http.StatusOK).has("2 messages of eu/mail will go back", "Messages each second", "--reason Typo")
	upTo := confirm.hidden("/ui"+box+"/redrive", "up_to")
	admin.post(box+"/redrive", form("reason", "Typo", "up_to", upTo, "rate", "fast")).is(http.StatusUnprocessableEntity).has("must be a number of messages each second")
	admin.post(box+"/redrive", form("reason", "Typo", "up_to", upTo, "rate", "5000")).is(http.StatusUnprocessableEntity).has("goes from 0.001 to 1000")
	admin.post(box+"/redrive", form("reason", "Typo", "up_to", upTo, "max", "none")).is(http.StatusUnprocessableEntity).has("must be a number of messages")
	admin.post(box+"/redrive", form("reason", "Typo", "up_to", upTo, "rate", "0.001", "max", "2")).is(http.StatusOK).has("2 messages redriven.", "until then they are scheduled")
	back := peek(t, c, "eu/mail")
	if len(back) != 2 || back[0].State != forebay.MessageActive || back[1].State != forebay.MessageScheduled {
		t.Fatalf("redriven at a rate: %+v", back)
	}
	if err := c.Messages("eu/mail").CancelScheduled(t.Context(), back[1].SequenceNumber); err != nil {
		t.Fatal(err)
	}
	must[[]forebay.Message](t)(c.Messages("eu/mail").Receive(t.Context(), forebay.ReceiveRequest{Mode: forebay.ReceiveAndDelete}))
	if left := peek(t, c, "eu/mail"); len(left) != 0 {
		t.Errorf("%d messages are left", len(left))
	}
	if left := peek(t, c, "eu/mail/$deadletterqueue"); len(left) != 1 || left[0].SequenceNumber != before.SequenceNumber {
		t.Fatalf("the dead letters are %+v", left)
	}
}

// rights checks that viewers and submitters see no forms that they may not send, and that what
// they send is refused. It also checks that other tenants find nothing.
func rights(t *testing.T, s *running, c *client.Client, database string) {
	t.Helper()
	must[[]forebay.SentMessage](t)(c.Messages("eu/mail").Send(t.Context(), forebay.NewMessage{Subject: "x"}))
	number := strconv.FormatInt(peek(t, c, "eu/mail")[0].SequenceNumber, 10)
	box := "/queues/eu%2Fmail"
	viewer := s.visit(t, s.key(t, forebay.ScopeView))
	viewer.get("/queues").is(http.StatusOK).lacks("<form method=\"post\"", "<button")
	viewer.get(box).is(http.StatusOK).lacks("method=\"post\"", "Purge", "Send a message")
	viewer.get(box+"?tab=dead-letters").is(http.StatusOK).lacks("method=\"post\"", "Redrive")
	viewer.get(box + "/messages/" + number).is(http.StatusOK).lacks("method=\"post\"")
	for _, act := range []string{"/queues/default/pause", box + "/send", box + "/receive", box + "/redrive"} {
		viewer.post(act, form("body", "x")).is(http.StatusForbidden)
	}
	viewer.post(box+"/purge", form("confirm", "eu/mail")).is(http.StatusForbidden)
	viewer.post(box+"/settle", form("act", "complete", "lock_token", "x")).is(http.StatusForbidden)

	submitter := s.visit(t, s.key(t, forebay.ScopeSubmit, forebay.ScopeRead))
	submitter.get(box).is(http.StatusOK).has("Send a message").lacks("Purge", "Receive one")
	submitter.post(box+"/send", form("body", "by a submitter")).is(http.StatusOK).has("is sent")
	submitter.post(box+"/purge", form("confirm", "eu/mail")).is(http.StatusForbidden)

	other := s.visit(t, s.keyOf(t, "rival", forebay.ScopeRead, forebay.ScopeOperate, forebay.ScopeSubmit))
	other.get("/queues").is(http.StatusOK).lacks("eu/mail")
	other.get("/dead-letters/messages").is(http.StatusOK).has("No message is a dead letter")
	for _, path := range []string{box, box + "/messages/" + number, box + "/redrive", box + "/purge?tab=dead-letters", "/sessions?queue=eu%2Fmail"} {
		other.get(path).is(http.StatusNotFound)
	}
	other.post(box+"/send", form("body", "x")).is(http.StatusNotFound)
	if left := peek(t, c, "eu/mail"); len(left) != 2 {
		t.Errorf("%d messages, want the two that were sent", len(left))
	}
	// An operator of all tenants sees another's messages, without their bodies.
	abroad := s.visit(t, s.keyOf(t, "ops", forebay.ScopeView))
	abroad.get(box+"?tenant=acme").is(http.StatusOK).has(number, "/messages/"+number+"?tenant=acme")
	abroad.get(box + "/messages/" + number + "?tenant=acme").is(http.StatusOK).has("You may not open the bodies")
	// A form of a page of another site is refused.
	if got := viewer.do(http.MethodPost, box+"/send", form("body", "x"), "Sec-Fetch-Site", "cross-site"); got.status != http.StatusForbidden {
		t.Errorf("a form of another site got %d", got.status)
	}
}

func TestTopicPages(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database)
		admin := s.visit(t, s.key(t, forebay.ScopeAdmin))
		c := s.client(t, s.key(t, forebay.ScopeAdmin))
		must[forebay.Topic](t)(c.PutTopic(t.Context(), "orders", forebay.TopicSettings{}))
		must[forebay.Subscription](t)(c.PutSubscription(t.Context(), "orders", "large", forebay.SubscriptionSettings{
			Rules: []forebay.NewRule{{Name: "big", RuleSettings: forebay.RuleSettings{SQLFilter: "quantity > 10"}}}}))
		sub := "/topics/orders/subscriptions/large"
		admin.get("/topics").is(http.StatusOK).has("orders")
		admin.get("/topics/orders").is(http.StatusOK).has("/ui"+sub, "Publish a message")
		admin.get(sub).is(http.StatusOK).has("quantity &gt; 10", "Add a rule")

		// Rules are added, never replaced, and removed once the name is typed.
		admin.post(sub+"/rules", form("name", "red", "kind", "sql", "filter", "color = ")).is(http.StatusUnprocessableEntity).has("sql_filter", "color =</textarea>")
		admin.post(sub+"/rules", form("name", "red", "kind", "correlation", "filter", `{"sbject":"x"}`)).is(http.StatusUnprocessableEntity).has("must be a JSON object")
		admin.post(sub+"/rules", form("name", "red", "kind", "sql", "filter", "color = 'red'", "action", "SET size = 'l'")).is(http.StatusOK).has("applies to what is sent", "color = &#39;red&#39;")
		admin.post(sub+"/rules", form("name", "red", "kind", "all")).is(http.StatusConflict).has("there is a rule red already")
		if rules := must[[]forebay.Rule](t)(c.Rules(t.Context(), "orders", "large")); len(rules) != 2 || rules[1].SQLFilter != "color = 'red'" {
			t.Errorf("the rules are %+v", rules)
		}

		// The status and the note are changed and shown. A status of another kind is refused.
		admin.setStatus("/topics/orders", "status", "send_disabled", "user_metadata", hostileBody[:len(hostileBody)-1]).is(http.StatusOK).has("The status is send_disabled", "&lt;script&gt;").lacks("<script>alert")
		admin.post("/topics/orders/publish", form("body", "x")).is(http.StatusConflict).has("nobody may send to it")
		admin.setStatus("/topics/orders", "status", "receive_disabled").is(http.StatusUnprocessableEntity).has("nobody receives from it")
		admin.setStatus("/topics/orders", "status", "active").is(http.StatusOK).has("The status is active").lacks("&lt;script&gt;")
		admin.setStatus(sub, "status", "disabled", "user_metadata", "mended tomorrow").is(http.StatusOK).has("The status is disabled", "mended tomorrow")
		admin.setStatus(sub, "status", "send_disabled").is(http.StatusUnprocessableEntity)
		if got := must[forebay.Subscription](t)(c.Subscription(t.Context(), "orders", "large")); got.Status != forebay.EntityDisabled || got.UserMetadata != "mended tomorrow" {
			t.Errorf("the subscription is %+v", got.EntityState)
		}
		admin.setStatus(sub, "status", "active").is(http.StatusOK)

		// The tester says what each rule makes of a message, and sends nothing.
		admin.get("/topics/orders/test?"+form("properties", "quantity=12; color=blue", "sql_filter", "color = 'blue'").Encode()).is(http.StatusOK).
			has("The condition", "selected", "1 copy", "the condition is false", "not selected")
		admin.get("/topics/orders/test?"+form("properties", "color=red").Encode()).is(http.StatusOK).has("&#34;size&#34;: &#34;l&#34;", "is unknown")
		admin.get("/topics/orders/test?" + form("sql_filter", "a =").Encode()).is(http.StatusUnprocessableEntity).has("rule.sql_filter")
		if got := must[forebay.Subscription](t)(c.Subscription(t.Context(), "orders", "large")); got.Active != 0 {
			t.Errorf("testing sent %d messages", got.Active)
		}
		admin.post("/topics/orders/publish", form("body", hostileBody, "properties", `{"quantity": 11}`)).is(http.StatusOK).has("is sent")
		number := strconv.FormatInt(peek(t, c, "orders/subscriptions/large")[0].SequenceNumber, 10)
		admin.get(sub).is(http.StatusOK).has(number)
		admin.get(sub + "/messages/" + number).is(http.StatusOK).has(escapedBody).lacks("<script>alert")
		admin.post("/topics/orders/publish", form("body", "x", "time_to_live", "for ever")).is(http.StatusUnprocessableEntity).has("must be a length of time")
		page := admin.post("/topics/orders/publish", form("body", "later", "schedule", "1h")).is(http.StatusOK).has("is scheduled", "Cancel a scheduled message")
		admin.post("/topics/orders/cancel", form("number", page.one(`Message (\d+) is scheduled`))).is(http.StatusOK).has("is cancelled")
		admin.post("/topics/orders/cancel", form("number", "x")).is(http.StatusUnprocessableEntity)

		token := admin.post(sub+"/receive", form()).is(http.StatusOK).one(`name="lock_token" value="([^"]+)"`)
		admin.post(sub+"/settle", form("lock_token", token, "act", "complete")).is(http.StatusOK).has("is removed")

		admin.get(sub+"/rules/red/remove").is(http.StatusOK).has("Type red to confirm", "color = &#39;red&#39;")
		admin.post(sub+"/rules/red/remove", form("confirm", "re")).is(http.StatusUnprocessableEntity).has("Nothing was changed")
		remove := admin.get(sub+"/rules/red/remove").form("/ui"+sub+"/rules/red/remove", "confirm", "red")
		must[forebay.Rule](t)(c.PutRule(t.Context(), "orders", "large", "red", forebay.RuleSettings{SQLFilter: "color = 'dark red'"}))
		remove = admin.post(sub+"/rules/red/remove", remove).is(http.StatusConflict).has("Nothing was deleted", "dark red").form("/ui"+sub+"/rules/red/remove", "confirm", "red")
		admin.post(sub+"/rules/red/remove", remove).is(http.StatusOK).has("is removed")
		admin.get(sub + "/rules/red/remove").is(http.StatusNotFound)

		viewer := s.visit(t, s.key(t, forebay.ScopeView))
		viewer.get(sub).is(http.StatusOK).lacks("method=\"post\"", "Remove…")
		viewer.get("/topics/orders").is(http.StatusOK).lacks("method=\"post\"")
		viewer.get("/topics/orders/test?properties=quantity%3D12").is(http.StatusOK).has("1 copy")
		viewer.post("/topics/orders/publish", form("body", "x")).is(http.StatusForbidden)
		viewer.post("/topics/orders/status", form("status", "disabled")).is(http.StatusForbidden)
		viewer.post(sub+"/status", form("status", "disabled")).is(http.StatusForbidden)
		viewer.post(sub+"/rules", form("name", "x", "kind", "all")).is(http.StatusForbidden)
		viewer.post(sub+"/rules/big/remove", form("confirm", "big")).is(http.StatusForbidden)
		other := s.visit(t, s.keyOf(t, "rival", forebay.ScopeRead, forebay.ScopeSubmit))
		for _, path := range []string{"/topics/orders", sub, "/topics/orders/test"} {
			other.get(path).is(http.StatusNotFound)
		}
	})
}

// A long list is shown in parts.
func TestTopicPagesOfManySubscriptions(t *testing.T) {
	t.Parallel()
	s := start(t, "sqlite:"+dbtest.SQLite(t))
	key := s.key(t, forebay.ScopeAdmin)
	v, c := s.visit(t, key), s.client(t, key)
	must[forebay.Topic](t)(c.PutTopic(t.Context(), "orders", forebay.TopicSettings{}))
	for i := range 60 {
		must[forebay.Subscription](t)(c.PutSubscription(t.Context(), "orders", fmt.Sprintf("s%02d", i), forebay.SubscriptionSettings{}))
	}
	next := v.get("/topics/orders").has("60 subscriptions", "/s49\"").lacks("/s50\"").one(`rel="next" href="/ui([^"]+)"`)
	v.get(strings.ReplaceAll(next, "&amp;", "&")).is(http.StatusOK).has("/s50\"", "/s59\"").lacks("/s49\"", "rel=\"next\"")
}

func TestSessionPages(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database)
		admin := s.visit(t, s.key(t, forebay.ScopeAdmin))
		c := s.client(t, s.key(t, forebay.ScopeAdmin))
		admin.get("/sessions").is(http.StatusOK).has("No queue of messages requires sessions")
		must[forebay.MessageQueue](t)(c.PutMessageQueue(t.Context(), "steps", forebay.MessageQueueSettings{RequiresSession: new(true)}))
		for _, id := range []string{"a", "<b>"} {
			must[[]forebay.SentMessage](t)(c.Messages("steps").Send(t.Context(), forebay.NewMessage{SessionID: id}))
		}
		held, _, err := c.Messages("steps").AcceptSession(t.Context(), forebay.AcceptSessionRequest{SessionID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Messages("steps").SetSessionState(t.Context(), held.SessionToken, []byte("state")); err != nil {
			t.Fatal(err)
		}
		admin.get("/sessions?queue=steps").is(http.StatusOK).has("held", "free", "5 B", "&lt;b&gt;", "Take back the session a")
		admin.get("/queues/steps").is(http.StatusOK).has("/ui/sessions?queue=steps").lacks("Receive one")
		viewer := s.visit(t, s.key(t, forebay.ScopeView))
		viewer.get("/sessions?queue=steps").is(http.StatusOK).has("held").lacks("method=\"post\"")
		viewer.post("/sessions/release", form("queue", "steps", "session_id", "a")).is(http.StatusForbidden)
		admin.post("/sessions/release", form("queue", "steps", "session_id", "a")).is(http.StatusOK).has("is free").lacks("Take back the session a")
		if _, err := c.Messages("steps").RenewSession(t.Context(), held.SessionToken); forebay.CodeOf(err) != forebay.CodeSessionLockLost {
			t.Errorf("the receiver renewed its lock: %v", err)
		}
		admin.post("/sessions/release", form("queue", "steps", "session_id", "a")).is(http.StatusConflict)
		admin.get("/sessions?queue=none").is(http.StatusNotFound)
	})
}

// A dead letter of a queue of messages is mended in a browser, as it is read there.
func TestDeadMessageIsMended(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database)
		key := s.key(t, forebay.ScopeAdmin)
		page, c := s.signIn(t, browser, key), s.client(t, key)
		must[forebay.MessageQueue](t)(c.PutMessageQueue(t.Context(), "mail", forebay.MessageQueueSettings{}))
		letters(t, c, c.Messages("mail").Send, "mail")
		page.Go(s.url + "/ui/queues/mail/messages/" + strconv.FormatInt(peek(t, c, "mail/$deadletterqueue")[0].SequenceNumber, 10) + "?tab=dead-letters")
		page.Type("textarea[name=body]", "a letter that can be read")
		page.Submit("button[value=check]")
		page.WaitText("What would change")
		page.Wait(`document.querySelector('.diff ins').textContent.includes('can be read')`)
		page.Submit("button[value=redrive]")
		page.WaitText("is redriven under a new number")
		if back := peek(t, c, "mail"); *back[len(back)-1].Body != "a letter that can be read" {
			t.Errorf("the mended message is %+v", back)
		}
	})
}
