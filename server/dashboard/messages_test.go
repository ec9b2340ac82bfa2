package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// hostileBody is what somebody may send to whoever looks at it.
const hostileBody = "<script>alert(1)</script>\u202ejavascript:\x07"

// escapedBody is how pages show it.
const escapedBody = "&lt;script&gt;alert(1)&lt;/script&gt;\ufffdjavascript:\ufffd"

func TestQueuePages(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database)
		admin := s.Visit(t, s.Key(t, forebay.ScopeAdmin))
		c := s.Client(t, s.Key(t, forebay.ScopeAdmin))
		dashboardtest.Must[forebay.MessageQueue](t)(c.PutMessageQueue(t.Context(), "eu/mail", forebay.MessageQueueSettings{MaxDeliveryCount: 1}))

		admin.Get("/queues").Is(http.StatusOK).Has("eu/mail", "/ui/queues/eu%2Fmail", "/ui/queues/default", "Pause the queue default")
		admin.Post("/queues/default/pause", dashboardtest.Values()).Is(http.StatusOK).Has("is paused", "Resume the queue")
		if q := dashboardtest.Must[forebay.QueueInfo](t)(c.Queue(t.Context(), "default")); !q.Paused {
			t.Error("the queue is not paused")
		}
		admin.Post("/queues/default/resume", dashboardtest.Values()).Is(http.StatusOK).Has("goes on", "Pause the queue", "/ui/dead-letters?queue=default")

		// Send, with what somebody has typed shown again when it is wrong.
		box := "/queues/eu%2Fmail"
		admin.SetStatus(box, "status", "disabled", "user_metadata", "line\r\nbreak").Is(http.StatusOK).Has("The status is disabled", "Change the status")
		if q := dashboardtest.Must[[]forebay.MessageQueue](t)(c.MessageQueues(t.Context())); len(q) != 1 || q[0].Status != forebay.EntityDisabled || q[0].UserMetadata != "line\nbreak" {
			t.Errorf("the queues are %+v", q)
		}
		admin.Post(box+"/send", dashboardtest.Values("body", "x")).Is(http.StatusConflict).Has("nobody may send to it")
		stale := admin.Get(box).Form("/ui"+box+"/status", "status", "active", "user_metadata", "typed")
		dashboardtest.Must[forebay.MessageQueue](t)(c.ChangeMessageQueue(t.Context(), "eu/mail", forebay.EntityChange{Status: forebay.EntityReceiveDisabled}))
		admin.Post(box+"/status", stale).Is(http.StatusConflict).
			Has("Somebody has changed this", "status, disabled before, is receive_disabled now", `<option value="active" selected>`, "typed</textarea>")
		if q := dashboardtest.Must[[]forebay.MessageQueue](t)(c.MessageQueues(t.Context())); q[0].Status != forebay.EntityReceiveDisabled || q[0].UserMetadata != "line\nbreak" {
			t.Errorf("the change of another was overwritten: %+v", q[0])
		}
		admin.SetStatus(box, "status", "off").Is(http.StatusUnprocessableEntity)
		admin.SetStatus(box, "status", "active").Is(http.StatusOK)
		admin.Post(box+"/send", dashboardtest.Values("body", "kept", "properties", "no pair")).Is(http.StatusUnprocessableEntity).Has("part 1 must be name=value", "kept</textarea>")
		admin.Post(box+"/send", dashboardtest.Values("body", "kept", "schedule", "soon")).Is(http.StatusUnprocessableEntity).Has("must be a time in UTC")
		admin.Post(box+"/send", dashboardtest.Values("body", hostileBody, "subject", strings.ReplaceAll(hostileBody, "\x07", ""), "correlation_id", "c-1", "properties", "n=7\r\ncolor=red")).Is(http.StatusOK).Has("is sent")
		sent := dashboardtest.Peek(t, c, "eu/mail")
		if len(sent) != 1 || sent[0].Properties["n"] != int64(7) || sent[0].Properties["color"] != "red" || *sent[0].Body != hostileBody || sent[0].CorrelationID != "c-1" {
			t.Fatalf("sent %+v", sent)
		}
		number := strconv.FormatInt(sent[0].SequenceNumber, 10)
		admin.Get(box).Is(http.StatusOK).Has(number, "&lt;script&gt;", "Looking does not count").Lacks("<script", "\u202e")
		admin.Get(box+"/messages/"+number).Is(http.StatusOK).Has(escapedBody, "&#34;n&#34;: 7", "c-1").Lacks("<script>alert")
		admin.Get(box + "?from_sequence_number=" + strconv.FormatInt(sent[0].SequenceNumber+1, 10)).Is(http.StatusOK).Has("None here.")
		admin.Get(box + "?from_sequence_number=x").Is(http.StatusUnprocessableEntity)
		admin.Get(box + "/messages/x").Is(http.StatusNotFound)
		admin.Get(box + "/messages/999999").Is(http.StatusNotFound)
		if got := dashboardtest.Peek(t, c, "eu/mail"); got[0].DeliveryCount != 0 {
			t.Errorf("looking counted as %d deliveries", got[0].DeliveryCount)
		}

		// A scheduled message can be cancelled.
		admin.Post(box+"/send", dashboardtest.Values("body", "later", "schedule", "1h")).Is(http.StatusOK).Has("is scheduled", "scheduled")
		var scheduled string
		for _, m := range dashboardtest.Peek(t, c, "eu/mail") {
			if m.State == forebay.MessageScheduled {
				scheduled = strconv.FormatInt(m.SequenceNumber, 10)
			}
		}
		admin.Get(box + "/messages/" + scheduled).Is(http.StatusOK).Has("Cancel this scheduled message")
		admin.Post(box+"/messages/"+scheduled+"/cancel", dashboardtest.Values()).Is(http.StatusOK).Has("is cancelled")
		if left := dashboardtest.Peek(t, c, "eu/mail"); len(left) != 1 {
			t.Errorf("%d messages are left", len(left))
		}

		// Receive, and dead-letter what was received. The lock stands in no address.
		page := admin.Post(box+"/receive", dashboardtest.Values()).Is(http.StatusOK).Has("You hold it until", escapedBody)
		token := page.One(`name="lock_token" value="([^"]+)"`)
		if strings.Contains(page.Path, token) {
			t.Error("the lock token is in the address")
		}
		admin.Post(box+"/receive", dashboardtest.Values()).Is(http.StatusOK).Has("No message can be received now.")
		admin.Post(box+"/settle", dashboardtest.Values("lock_token", token, "act", "dead-letter", "reason", "Bad <b>", "description", "it was bad")).Is(http.StatusOK).Has("dead-letter subqueue")
		admin.Post(box+"/settle", dashboardtest.Values("lock_token", token, "act", "complete")).Is(http.StatusConflict)

		// Dead letters: by reason, redriven, purged once the name is typed.
		admin.Get(box+"?tab=dead-letters").Is(http.StatusOK).Has("1 dead letter by reason", "Bad &lt;b&gt;", "it was bad", "Redrive all", "/messages/groups")
		admin.Get(box + "?tab=dead-letters&reason=other").Is(http.StatusOK).Has("None here.")
		admin.Get("/dead-letters/messages").Is(http.StatusOK).Has("Bad &lt;b&gt;", "/ui/queues/eu%2Fmail?reason=Bad&#43;%3Cb%3E&amp;tab=dead-letters", "Redrive…", "forebay messages groups")
		admin.Get("/dead-letters").Is(http.StatusOK).Has("/ui/dead-letters/messages")
		mends(t, admin, c, box)
		admin.Get(box + "/redrive?reason=" + url.QueryEscape("Bad <b>")).Is(http.StatusOK).Has("1 message of eu/mail will go back")
		admin.Post(box+"/redrive", dashboardtest.Values("reason", "Bad <b>")).Is(http.StatusOK).Has("1 message redriven.")
		if q := dashboardtest.Peek(t, c, "eu/mail"); len(q) != 1 || q[0].DeliveryCount != 0 {
			t.Errorf("redriven: %+v", q)
		}
		token = admin.Post(box+"/receive", dashboardtest.Values()).One(`name="lock_token" value="([^"]+)"`)
		admin.Post(box+"/settle", dashboardtest.Values("lock_token", token, "act", "dead-letter")).Is(http.StatusOK)
		admin.Get(box+"/purge?tab=dead-letters").Is(http.StatusOK).Has("1 message of the dead letters", "Type eu/mail to confirm")
		admin.Post(box+"/purge", dashboardtest.Values("tab", "dead-letters", "confirm", "mail")).Is(http.StatusUnprocessableEntity).Has("Nothing was changed")
		admin.Post(box+"/purge", dashboardtest.Values("tab", "dead-letters", "confirm", "eu/mail")).Is(http.StatusOK).Has("1 message removed.")
		if q := dashboardtest.Peek(t, c, "eu/mail/$deadletterqueue"); len(q) != 0 {
			t.Errorf("%d dead letters are left", len(q))
		}
		for i := range 3 {
			dashboardtest.Must[[]forebay.SentMessage](t)(c.Messages("eu/mail").Send(t.Context(), forebay.NewMessage{Subject: strconv.Itoa(i)}))
		}
		// What is sent after the page was shown stays. It was not looked at.
		shown := admin.Get(box + "/purge").Is(http.StatusOK).One(`name="before" value="([^"]+)"`)
		for at := dashboardtest.Must[time.Time](t)(time.Parse(time.RFC3339Nano, shown)); time.Now().Before(at); {
			runtime.Gosched() // within a millisecond
		}
		dashboardtest.Must[[]forebay.SentMessage](t)(c.Messages("eu/mail").Send(t.Context(), forebay.NewMessage{Subject: "later"}))
		again := admin.Post(box+"/purge", dashboardtest.Values("confirm", "", "before", shown)).Is(http.StatusUnprocessableEntity)
		if kept := again.One(`name="before" value="([^"]+)"`); kept != shown {
			t.Errorf("the page shows what was there before %s, and then what was before %s", shown, kept)
		}
		admin.Post(box+"/purge", dashboardtest.Values("confirm", "eu/mail", "before", "now")).Is(http.StatusUnprocessableEntity)
		admin.Post(box+"/purge", dashboardtest.Values("confirm", "eu/mail", "before", shown)).Is(http.StatusOK).Has("3 messages removed.")
		if left := dashboardtest.Peek(t, c, "eu/mail"); len(left) != 1 || left[0].Subject != "later" {
			t.Errorf("left are %+v", left)
		}
		admin.Post(box+"/purge", dashboardtest.Values("confirm", "eu/mail")).Is(http.StatusOK).Has("1 message removed.")

		rights(t, s, c, database)
	})
}

// mends checks that a dead letter is edited with a view of the difference, and that nothing is
// stored before. It leaves the one dead letter as it was.
func mends(t *testing.T, admin *dashboardtest.Visitor, c *client.Client, box string) {
	t.Helper()
	before := dashboardtest.Peek(t, c, "eu/mail/$deadletterqueue")[0]
	at := box + "/messages/" + strconv.FormatInt(before.SequenceNumber, 10)
	admin.Get(at+"?tab=dead-letters").Is(http.StatusOK).Has("Edit and redrive", "forebay messages redrive", "characters that this page cannot show as they are")
	admin.Post(at, dashboardtest.Values("act", "check", "properties", "no pair")).Is(http.StatusUnprocessableEntity).Has("part 1 must be name=value", "no pair</textarea>")
	admin.Post(at, dashboardtest.Values("act", "check", "properties", "n=7\r\ncolor=blue")).Is(http.StatusOK).Has("What would change", "&#34;red&#34;", "&#34;blue&#34;", "Nothing was stored yet")
	if left := dashboardtest.Peek(t, c, "eu/mail/$deadletterqueue"); len(left) != 1 || left[0].Properties["color"] != "red" {
		t.Errorf("a check has changed %+v", left)
	}
	admin.Post(box+"/messages/999999", dashboardtest.Values("act", "redrive", "properties", "")).Is(http.StatusConflict).Has("your change was not stored")
	body := "first line\r\nsecond <line>"
	sent := dashboardtest.Must[[]forebay.SentMessage](t)(c.Messages("eu/mail").Send(t.Context(), forebay.NewMessage{Body: &body, Properties: forebay.Properties{"a": "b"}}))
	got := dashboardtest.Must[[]forebay.Message](t)(c.Messages("eu/mail").Receive(t.Context(), forebay.ReceiveRequest{}))
	if err := c.Messages("eu/mail").DeadLetter(t.Context(), got[0].LockToken, forebay.Settlement{Reason: "Typo"}); err != nil {
		t.Fatal(err)
	}
	at = box + "/messages/" + strconv.FormatInt(sent[0].SequenceNumber, 10)
	admin.Get(at + "?tab=dead-letters").Is(http.StatusOK).Has("second &lt;line&gt;</textarea>")
	admin.Post(at, dashboardtest.Values("act", "check", "body", body, "properties", `{"a":"b"}`)).Is(http.StatusOK).Has("The message stays as it is.")
	// A receiver changes the properties meanwhile.
	shown, dead := admin.Get(at+"?tab=dead-letters").Hidden("/ui"+at, "etag"), c.Messages("eu/mail/$deadletterqueue")
	for _, m := range dashboardtest.Must[[]forebay.Message](t)(dead.Receive(t.Context(), forebay.ReceiveRequest{MaxMessages: 10})) {
		var how forebay.Settlement
		if m.SequenceNumber == sent[0].SequenceNumber {
			how.Properties = forebay.Properties{"a": "c"}
		}
		if err := dead.Abandon(t.Context(), m.LockToken, how); err != nil {
			t.Fatal(err)
		}
	}
	admin.Post(at, dashboardtest.Values("act", "redrive", "body", body, "properties", `{"a":"b"}`, "etag", shown)).Is(http.StatusConflict).Has("has changed since the page was shown")
	edit := dashboardtest.Values("body", "first line\r\nlast line", "properties", "", "act", "check")
	admin.Post(at, edit).Is(http.StatusOK).Has("<del>- second &lt;line&gt;</del>", "<ins>+ last line</ins>")
	edit.Set("act", "redrive")
	admin.Post(at, edit).Is(http.StatusOK).Has("is redriven under a new number")
	admin.Post(at, edit).Is(http.StatusConflict)
	mended := dashboardtest.Peek(t, c, "eu/mail")
	if len(mended) != 1 || *mended[0].Body != "first line\r\nlast line" || len(mended[0].Properties) != 0 {
		t.Fatalf("mended %+v", mended)
	}
	// Two of them, sent back at a rate: the first at once, the other is scheduled.
	dashboardtest.Must[[]forebay.SentMessage](t)(c.Messages("eu/mail").Send(t.Context(), forebay.NewMessage{}))
	for _, m := range dashboardtest.Must[[]forebay.Message](t)(c.Messages("eu/mail").Receive(t.Context(), forebay.ReceiveRequest{MaxMessages: 10})) {
		if err := c.Messages("eu/mail").DeadLetter(t.Context(), m.LockToken, forebay.Settlement{Reason: "Typo"}); err != nil {
			t.Fatal(err)
		}
	}
	confirm := admin.Get(box+"/redrive?tab=dead-letters&reason=Typo").Is(http.StatusOK).Has("2 messages of eu/mail will go back", "Messages each second", "--reason Typo")
	upTo := confirm.Hidden("/ui"+box+"/redrive", "up_to")
	admin.Post(box+"/redrive", dashboardtest.Values("reason", "Typo", "up_to", upTo, "rate", "fast")).Is(http.StatusUnprocessableEntity).Has("must be a number of messages each second")
	admin.Post(box+"/redrive", dashboardtest.Values("reason", "Typo", "up_to", upTo, "rate", "5000")).Is(http.StatusUnprocessableEntity).Has("goes from 0.001 to 1000")
	admin.Post(box+"/redrive", dashboardtest.Values("reason", "Typo", "up_to", upTo, "max", "none")).Is(http.StatusUnprocessableEntity).Has("must be a number of messages")
	admin.Post(box+"/redrive", dashboardtest.Values("reason", "Typo", "up_to", upTo, "rate", "0.001", "max", "2")).Is(http.StatusOK).Has("2 messages redriven.", "until then they are scheduled")
	back := dashboardtest.Peek(t, c, "eu/mail")
	if len(back) != 2 || back[0].State != forebay.MessageActive || back[1].State != forebay.MessageScheduled {
		t.Fatalf("redriven at a rate: %+v", back)
	}
	if err := c.Messages("eu/mail").CancelScheduled(t.Context(), back[1].SequenceNumber); err != nil {
		t.Fatal(err)
	}
	dashboardtest.Must[[]forebay.Message](t)(c.Messages("eu/mail").Receive(t.Context(), forebay.ReceiveRequest{Mode: forebay.ReceiveAndDelete}))
	if left := dashboardtest.Peek(t, c, "eu/mail"); len(left) != 0 {
		t.Errorf("%d messages are left", len(left))
	}
	if left := dashboardtest.Peek(t, c, "eu/mail/$deadletterqueue"); len(left) != 1 || left[0].SequenceNumber != before.SequenceNumber {
		t.Fatalf("the dead letters are %+v", left)
	}
}

// rights checks that viewers and submitters see no forms that they may not send, and that what
// they send is refused. It also checks that other tenants find nothing.
func rights(t *testing.T, s *dashboardtest.Running, c *client.Client, database string) {
	t.Helper()
	dashboardtest.Must[[]forebay.SentMessage](t)(c.Messages("eu/mail").Send(t.Context(), forebay.NewMessage{Subject: "x"}))
	number := strconv.FormatInt(dashboardtest.Peek(t, c, "eu/mail")[0].SequenceNumber, 10)
	box := "/queues/eu%2Fmail"
	viewer := s.Visit(t, s.Key(t, forebay.ScopeView))
	viewer.Get("/queues").Is(http.StatusOK).Lacks("<form method=\"post\"", "<button")
	viewer.Get(box).Is(http.StatusOK).Lacks("method=\"post\"", "Purge", "Send a message")
	viewer.Get(box+"?tab=dead-letters").Is(http.StatusOK).Lacks("method=\"post\"", "Redrive")
	viewer.Get(box + "/messages/" + number).Is(http.StatusOK).Lacks("method=\"post\"")
	for _, act := range []string{"/queues/default/pause", box + "/send", box + "/receive", box + "/redrive"} {
		viewer.Post(act, dashboardtest.Values("body", "x")).Is(http.StatusForbidden)
	}
	viewer.Post(box+"/purge", dashboardtest.Values("confirm", "eu/mail")).Is(http.StatusForbidden)
	viewer.Post(box+"/settle", dashboardtest.Values("act", "complete", "lock_token", "x")).Is(http.StatusForbidden)

	submitter := s.Visit(t, s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead))
	submitter.Get(box).Is(http.StatusOK).Has("Send a message").Lacks("Purge", "Receive one")
	submitter.Post(box+"/send", dashboardtest.Values("body", "by a submitter")).Is(http.StatusOK).Has("is sent")
	submitter.Post(box+"/purge", dashboardtest.Values("confirm", "eu/mail")).Is(http.StatusForbidden)

	other := s.Visit(t, s.KeyOf(t, "rival", forebay.ScopeRead, forebay.ScopeOperate, forebay.ScopeSubmit))
	other.Get("/queues").Is(http.StatusOK).Lacks("eu/mail")
	other.Get("/dead-letters/messages").Is(http.StatusOK).Has("No message is a dead letter")
	for _, path := range []string{box, box + "/messages/" + number, box + "/redrive", box + "/purge?tab=dead-letters", "/sessions?queue=eu%2Fmail"} {
		other.Get(path).Is(http.StatusNotFound)
	}
	other.Post(box+"/send", dashboardtest.Values("body", "x")).Is(http.StatusNotFound)
	if left := dashboardtest.Peek(t, c, "eu/mail"); len(left) != 2 {
		t.Errorf("%d messages, want the two that were sent", len(left))
	}
	// An operator of all tenants sees another's messages, without their bodies.
	abroad := s.Visit(t, s.KeyOf(t, "ops", forebay.ScopeView))
	abroad.Get(box+"?tenant=acme").Is(http.StatusOK).Has(number, "/messages/"+number+"?tenant=acme")
	abroad.Get(box + "/messages/" + number + "?tenant=acme").Is(http.StatusOK).Has("You may not open the bodies")
	// A form of a page of another site is refused.
	if got := viewer.Do(http.MethodPost, box+"/send", dashboardtest.Values("body", "x"), "Sec-Fetch-Site", "cross-site"); got.Status != http.StatusForbidden {
		t.Errorf("a form of another site got %d", got.Status)
	}
}

func TestTopicPages(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database)
		admin := s.Visit(t, s.Key(t, forebay.ScopeAdmin))
		c := s.Client(t, s.Key(t, forebay.ScopeAdmin))
		dashboardtest.Must[forebay.Topic](t)(c.PutTopic(t.Context(), "orders", forebay.TopicSettings{}))
		dashboardtest.Must[forebay.Subscription](t)(c.PutSubscription(t.Context(), "orders", "large", forebay.SubscriptionSettings{
			Rules: []forebay.NewRule{{Name: "big", RuleSettings: forebay.RuleSettings{SQLFilter: "quantity > 10"}}}}))
		sub := "/topics/orders/subscriptions/large"
		admin.Get("/topics").Is(http.StatusOK).Has("orders")
		admin.Get("/topics/orders").Is(http.StatusOK).Has("/ui"+sub, "Publish a message")
		admin.Get(sub).Is(http.StatusOK).Has("quantity &gt; 10", "Add a rule")

		// Rules are added, never replaced, and removed once the name is typed.
		admin.Post(sub+"/rules", dashboardtest.Values("name", "red", "kind", "sql", "filter", "color = ")).Is(http.StatusUnprocessableEntity).Has("sql_filter", "color =</textarea>")
		admin.Post(sub+"/rules", dashboardtest.Values("name", "red", "kind", "correlation", "filter", `{"sbject":"x"}`)).Is(http.StatusUnprocessableEntity).Has("must be a JSON object")
		admin.Post(sub+"/rules", dashboardtest.Values("name", "red", "kind", "sql", "filter", "color = 'red'", "action", "SET size = 'l'")).Is(http.StatusOK).Has("applies to what is sent", "color = &#39;red&#39;")
		admin.Post(sub+"/rules", dashboardtest.Values("name", "red", "kind", "all")).Is(http.StatusConflict).Has("there is a rule red already")
		if rules := dashboardtest.Must[[]forebay.Rule](t)(c.Rules(t.Context(), "orders", "large")); len(rules) != 2 || rules[1].SQLFilter != "color = 'red'" {
			t.Errorf("the rules are %+v", rules)
		}

		// The status and the note are changed and shown. A status of another kind is refused.
		admin.SetStatus("/topics/orders", "status", "send_disabled", "user_metadata", hostileBody[:len(hostileBody)-1]).Is(http.StatusOK).Has("The status is send_disabled", "&lt;script&gt;").Lacks("<script>alert")
		admin.Post("/topics/orders/publish", dashboardtest.Values("body", "x")).Is(http.StatusConflict).Has("nobody may send to it")
		admin.SetStatus("/topics/orders", "status", "receive_disabled").Is(http.StatusUnprocessableEntity).Has("nobody receives from it")
		admin.SetStatus("/topics/orders", "status", "active").Is(http.StatusOK).Has("The status is active").Lacks("&lt;script&gt;")
		admin.SetStatus(sub, "status", "disabled", "user_metadata", "mended tomorrow").Is(http.StatusOK).Has("The status is disabled", "mended tomorrow")
		admin.SetStatus(sub, "status", "send_disabled").Is(http.StatusUnprocessableEntity)
		if got := dashboardtest.Must[forebay.Subscription](t)(c.Subscription(t.Context(), "orders", "large")); got.Status != forebay.EntityDisabled || got.UserMetadata != "mended tomorrow" {
			t.Errorf("the subscription is %+v", got.EntityState)
		}
		admin.SetStatus(sub, "status", "active").Is(http.StatusOK)

		// The tester says what each rule makes of a message, and sends nothing.
		admin.Get("/topics/orders/test?"+dashboardtest.Values("properties", "quantity=12; color=blue", "sql_filter", "color = 'blue'").Encode()).Is(http.StatusOK).
			Has("The condition", "selected", "1 copy", "the condition is false", "not selected")
		admin.Get("/topics/orders/test?"+dashboardtest.Values("properties", "color=red").Encode()).Is(http.StatusOK).Has("&#34;size&#34;: &#34;l&#34;", "is unknown")
		admin.Get("/topics/orders/test?" + dashboardtest.Values("sql_filter", "a =").Encode()).Is(http.StatusUnprocessableEntity).Has("rule.sql_filter")
		if got := dashboardtest.Must[forebay.Subscription](t)(c.Subscription(t.Context(), "orders", "large")); got.Active != 0 {
			t.Errorf("testing sent %d messages", got.Active)
		}
		admin.Post("/topics/orders/publish", dashboardtest.Values("body", hostileBody, "properties", `{"quantity": 11}`)).Is(http.StatusOK).Has("is sent")
		number := strconv.FormatInt(dashboardtest.Peek(t, c, "orders/subscriptions/large")[0].SequenceNumber, 10)
		admin.Get(sub).Is(http.StatusOK).Has(number)
		admin.Get(sub + "/messages/" + number).Is(http.StatusOK).Has(escapedBody).Lacks("<script>alert")
		admin.Post("/topics/orders/publish", dashboardtest.Values("body", "x", "time_to_live", "for ever")).Is(http.StatusUnprocessableEntity).Has("must be a length of time")
		page := admin.Post("/topics/orders/publish", dashboardtest.Values("body", "later", "schedule", "1h")).Is(http.StatusOK).Has("is scheduled", "Cancel a scheduled message")
		admin.Post("/topics/orders/cancel", dashboardtest.Values("number", page.One(`Message (\d+) is scheduled`))).Is(http.StatusOK).Has("is cancelled")
		admin.Post("/topics/orders/cancel", dashboardtest.Values("number", "x")).Is(http.StatusUnprocessableEntity)

		token := admin.Post(sub+"/receive", dashboardtest.Values()).Is(http.StatusOK).One(`name="lock_token" value="([^"]+)"`)
		admin.Post(sub+"/settle", dashboardtest.Values("lock_token", token, "act", "complete")).Is(http.StatusOK).Has("is removed")

		admin.Get(sub+"/rules/red/remove").Is(http.StatusOK).Has("Type red to confirm", "color = &#39;red&#39;")
		admin.Post(sub+"/rules/red/remove", dashboardtest.Values("confirm", "re")).Is(http.StatusUnprocessableEntity).Has("Nothing was changed")
		remove := admin.Get(sub+"/rules/red/remove").Form("/ui"+sub+"/rules/red/remove", "confirm", "red")
		dashboardtest.Must[forebay.Rule](t)(c.PutRule(t.Context(), "orders", "large", "red", forebay.RuleSettings{SQLFilter: "color = 'dark red'"}))
		remove = admin.Post(sub+"/rules/red/remove", remove).Is(http.StatusConflict).Has("Nothing was deleted", "dark red").Form("/ui"+sub+"/rules/red/remove", "confirm", "red")
		admin.Post(sub+"/rules/red/remove", remove).Is(http.StatusOK).Has("is removed")
		admin.Get(sub + "/rules/red/remove").Is(http.StatusNotFound)

		viewer := s.Visit(t, s.Key(t, forebay.ScopeView))
		viewer.Get(sub).Is(http.StatusOK).Lacks("method=\"post\"", "Remove…")
		viewer.Get("/topics/orders").Is(http.StatusOK).Lacks("method=\"post\"")
		viewer.Get("/topics/orders/test?properties=quantity%3D12").Is(http.StatusOK).Has("1 copy")
		viewer.Post("/topics/orders/publish", dashboardtest.Values("body", "x")).Is(http.StatusForbidden)
		viewer.Post("/topics/orders/status", dashboardtest.Values("status", "disabled")).Is(http.StatusForbidden)
		viewer.Post(sub+"/status", dashboardtest.Values("status", "disabled")).Is(http.StatusForbidden)
		viewer.Post(sub+"/rules", dashboardtest.Values("name", "x", "kind", "all")).Is(http.StatusForbidden)
		viewer.Post(sub+"/rules/big/remove", dashboardtest.Values("confirm", "big")).Is(http.StatusForbidden)
		other := s.Visit(t, s.KeyOf(t, "rival", forebay.ScopeRead, forebay.ScopeSubmit))
		for _, path := range []string{"/topics/orders", sub, "/topics/orders/test"} {
			other.Get(path).Is(http.StatusNotFound)
		}
	})
}

// A long list is shown in parts.
func TestTopicPagesOfManySubscriptions(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t))
	key := s.Key(t, forebay.ScopeAdmin)
	v, c := s.Visit(t, key), s.Client(t, key)
	dashboardtest.Must[forebay.Topic](t)(c.PutTopic(t.Context(), "orders", forebay.TopicSettings{}))
	for i := range 60 {
		dashboardtest.Must[forebay.Subscription](t)(c.PutSubscription(t.Context(), "orders", fmt.Sprintf("s%02d", i), forebay.SubscriptionSettings{}))
	}
	next := v.Get("/topics/orders").Has("60 subscriptions", "/s49\"").Lacks("/s50\"").One(`rel="next" href="/ui([^"]+)"`)
	v.Get(strings.ReplaceAll(next, "&amp;", "&")).Is(http.StatusOK).Has("/s50\"", "/s59\"").Lacks("/s49\"", "rel=\"next\"")
}

func TestSessionPages(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database)
		admin := s.Visit(t, s.Key(t, forebay.ScopeAdmin))
		c := s.Client(t, s.Key(t, forebay.ScopeAdmin))
		admin.Get("/sessions").Is(http.StatusOK).Has("No queue of messages requires sessions")
		dashboardtest.Must[forebay.MessageQueue](t)(c.PutMessageQueue(t.Context(), "steps", forebay.MessageQueueSettings{RequiresSession: new(true)}))
		for _, id := range []string{"a", "<b>"} {
			dashboardtest.Must[[]forebay.SentMessage](t)(c.Messages("steps").Send(t.Context(), forebay.NewMessage{SessionID: id}))
		}
		held, _, err := c.Messages("steps").AcceptSession(t.Context(), forebay.AcceptSessionRequest{SessionID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Messages("steps").SetSessionState(t.Context(), held.SessionToken, []byte("state")); err != nil {
			t.Fatal(err)
		}
		admin.Get("/sessions?queue=steps").Is(http.StatusOK).Has("held", "free", "5 B", "&lt;b&gt;", "Take back the session a")
		admin.Get("/queues/steps").Is(http.StatusOK).Has("/ui/sessions?queue=steps").Lacks("Receive one")
		viewer := s.Visit(t, s.Key(t, forebay.ScopeView))
		viewer.Get("/sessions?queue=steps").Is(http.StatusOK).Has("held").Lacks("method=\"post\"")
		viewer.Post("/sessions/release", dashboardtest.Values("queue", "steps", "session_id", "a")).Is(http.StatusForbidden)
		admin.Post("/sessions/release", dashboardtest.Values("queue", "steps", "session_id", "a")).Is(http.StatusOK).Has("is free").Lacks("Take back the session a")
		if _, err := c.Messages("steps").RenewSession(t.Context(), held.SessionToken); forebay.CodeOf(err) != forebay.CodeSessionLockLost {
			t.Errorf("the receiver renewed its lock: %v", err)
		}
		admin.Post("/sessions/release", dashboardtest.Values("queue", "steps", "session_id", "a")).Is(http.StatusConflict)
		admin.Get("/sessions?queue=none").Is(http.StatusNotFound)
	})
}

// A dead letter of a queue of messages is mended in a browser, as it is read there.
func TestDeadMessageIsMended(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database)
		key := s.Key(t, forebay.ScopeAdmin)
		page, c := s.SignIn(t, browser, key), s.Client(t, key)
		dashboardtest.Must[forebay.MessageQueue](t)(c.PutMessageQueue(t.Context(), "mail", forebay.MessageQueueSettings{}))
		dashboardtest.Letters(t, c, c.Messages("mail").Send, "mail")
		page.Go(s.URL + "/ui/queues/mail/messages/" + strconv.FormatInt(dashboardtest.Peek(t, c, "mail/$deadletterqueue")[0].SequenceNumber, 10) + "?tab=dead-letters")
		page.Type("textarea[name=body]", "a letter that can be read")
		page.Submit("button[value=check]")
		page.WaitText("What would change")
		page.Wait(`document.querySelector('.diff ins').textContent.includes('can be read')`)
		page.Submit("button[value=redrive]")
		page.WaitText("is redriven under a new number")
		if back := dashboardtest.Peek(t, c, "mail"); *back[len(back)-1].Body != "a letter that can be read" {
			t.Errorf("the mended message is %+v", back)
		}
	})
}
