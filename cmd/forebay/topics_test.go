package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

func TestTopicsAgainstAServer(t *testing.T) {
	url, _, _ := startServer(t)
	run := func(want int, args ...string) string {
		t.Helper()
		got := commandLine{url: url, in: "From standard input."}.run(t.Context(), args...)
		if got.code != want {
			t.Fatalf("forebay %s: exit code %d, want %d; %s%s", strings.Join(args, " "), got.code, want, got.out, got.err)
		}
		return got.out + got.err
	}
	contains := func(out string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("%q is missing in %s", part, out)
			}
		}
	}
	contains(run(0, "topics", "create", "orders", "--ttl", "24h", "--duplicate-window", "10m"), "orders", "10m")
	run(0, "subscriptions", "create", "orders", "audit", "--lock", "30s", "--ttl", "1h", "--dead-letter-expired")
	contains(run(0, "subscriptions", "create", "orders", "large", "--sql", "quantity > 10", "--action", "SET size = 'large'", "--drop-filter-errors"), "large", "60s")
	contains(run(0, "rules", "list", "orders", "large"), "$Default", "quantity > 10", "SET size = 'large'")
	run(0, "rules", "add", "orders", "large", "red", "--correlation", `{"application_properties":{"color":"red"}}`)
	run(0, "rules", "add", "orders", "audit", "nothing", "--none")
	contains(run(0, "rules", "test", "orders", "large", "--property", "quantity=12", "--property", "color=red"), "red", "selected", `"size":"large"`)
	contains(run(0, "rules", "test", "orders", "--property", "quantity=2"), "audit", "$Default", "selected", "large", "the condition is false", "color")
	var sent forebay.SentMessage
	out := run(0, "topics", "send", "orders", "--file", "-", "--subject", "new", "--property", "quantity=12", "--message-id", "m1", "-o", "json")
	if err := json.Unmarshal([]byte(out), &sent); err != nil || sent.MessageID != "m1" || sent.SequenceNumber == 0 {
		t.Errorf("sent %s (%v)", out, err)
	}
	run(0, "topics", "send", "orders", "--message-id", "m1") // a duplicate
	run(0, "topics", "send", "orders", "--message-id", "m2", "--scheduled-at", "1h")
	var subs []forebay.Subscription
	if err := json.Unmarshal([]byte(run(0, "subscriptions", "list", "orders", "-o", "json")), &subs); err != nil || len(subs) != 2 || subs[0].Active != 1 || subs[1].Active != 1 {
		t.Errorf("subscriptions %+v (%v)", subs, err)
	}
	contains(run(0, "messages", "receive", "orders/subscriptions/audit"), "m1", "From standard input.")
	contains(run(0, "messages", "peek", "orders/subscriptions/large"), "m1")
	run(0, "messages", "peek", "orders/subscriptions/large/$deadletterqueue")
	contains(run(0, "topics", "show", "orders"), "scheduled      ", "1")
	contains(run(0, "topics", "list"), "orders")
	contains(run(0, "subscriptions", "show", "orders", "audit"), "30s", "1h")
	contains(run(0, "topics", "set", "orders", "--entity-status", "send_disabled", "--note", "moved"), "send_disabled", "moved")
	contains(run(5, "topics", "send", "orders", "--message-id", "m3"), "nobody may send to it")
	contains(run(0, "topics", "create", "orders", "--duplicate-window", "10m"), "send_disabled", "moved")
	contains(run(0, "topics", "set", "orders", "--entity-status", "active", "--note", ""), "active")
	contains(run(0, "subscriptions", "set", "orders", "audit", "--entity-status", "receive_disabled"), "receive_disabled")
	run(2, "subscriptions", "set", "orders", "audit", "--entity-status", "send_disabled")
	run(5, "messages", "receive", "orders/subscriptions/audit")
	contains(run(0, "queues", "create", "mail", "--max-message-bytes", "100", "--entity-status", "disabled"), "100 bytes", "disabled")
	contains(run(0, "queues", "set", "mail", "--entity-status", "active"), "100 bytes", "active")
	run(0, "queues", "delete", "mail")
	run(0, "topics", "create", "eu/news")
	run(0, "subscriptions", "create", "eu/news", "all")
	run(0, "queues", "create", "eu/mail")
	run(0, "topics", "send", "eu/news", "--message-id", "m3")
	run(0, "messages", "send", "eu/mail", "--message-id", "m4")
	contains(run(0, "messages", "receive", "eu/news/subscriptions/all"), "m3")
	contains(run(0, "messages", "receive", "eu/mail"), "m4")
	run(0, "messages", "peek", "eu/mail/$deadletterqueue")
	contains(run(0, "queues", "get", "eu/mail"), "eu/mail")
	run(0, "queues", "delete", "eu/mail")
	contains(run(command.ExitUsage, "rules", "add", "orders", "large", "x", "--sql", "a ="), "sql_filter: at character 4: expected a value")
	run(0, "rules", "delete", "orders", "large", "red")
	run(0, "subscriptions", "delete", "orders", "large")
	contains(run(command.ExitNotFound, "subscriptions", "show", "orders", "large"), "there is no such subscription")
	run(0, "topics", "delete", "orders")
	contains(run(command.ExitNotFound, "topics", "send", "orders"), "there is no such topic")
}

// rules test judges without any server.
func TestRulesTest(t *testing.T) {
	var all strings.Builder
	for _, args := range [][]string{
		{"--sql", "quantity > 10", "--property", "quantity=12"},
		{"--sql", "quantity > 10", "--property", "quantity=1e1"},
		{"--sql", "quantity > 10", "--property", `quantity="12"`},
		{"--sql", "color LIKE 'r%' AND sys.Label = 'new'", "--action", "SET sys.To = color; REMOVE color", "--property", "color=red", "--subject", "new"},
		{"--correlation", `{"subject":"new"}`, "--subject", "old"},
		{"--none", "-o", "jsonl"},
	} {
		got := commandLine{}.run(t.Context(), append([]string{"rules", "test", "--message-id", "m"}, args...)...)
		if got.code != command.ExitOK {
			t.Errorf("%s: exit code %d: %s", args, got.code, got.err)
		}
		all.WriteString("$ forebay rules test " + strings.Join(args, " ") + "\n" + got.out + "\n")
	}
	golden(t, "rules", all.String())

	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %s", r.URL) }))
	defer server.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"rules", "test"}, "name a topic, or describe a rule"},
		{[]string{"rules", "test", "orders", "s", "--none"}, "name a topic, or describe a rule"},
		{[]string{"rules", "test", "--sql", "a"}, ""},
		{[]string{"rules", "test", "--none", "--property", "a"}, "--property must be name=value"},
		{[]string{"rules", "add", "t", "s", "r", "--sql", "a b"}, "at character 3"},
		{[]string{"rules", "add", "t", "s", "r", "--correlation", `{"sbject":"x"}`}, "--correlation must be a JSON object"},
		{[]string{"rules", "add", "t", "s", "r", "--none", "--sql", "a = 1"}, "a rule has one of"},
		{[]string{"topics", "send", "t", "--body", "a", "--file", "b"}, "give the body once"},
		{[]string{"topics", "create"}, "TOPIC is missing"},
		{[]string{"subscriptions", "show", "t"}, "SUBSCRIPTION is missing"},
	} {
		got := commandLine{url: server.URL}.run(t.Context(), c.args...)
		if c.want == "" && got.code != command.ExitOK || c.want != "" && (got.code != command.ExitUsage || !strings.Contains(got.err, c.want)) {
			t.Errorf("%s: exit code %d: %s", c.args, got.code, got.err)
		}
	}
}

// What was published over the client is received through the subscription's path.
func TestClientOfTopics(t *testing.T) {
	url, _, _ := startServer(t)
	c, err := client.New(client.Options{BaseURL: url, RetryTime: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if topic, err := c.PutTopic(ctx, "orders", forebay.TopicSettings{}); err != nil || topic.Name != "orders" {
		t.Fatal(topic, err)
	}
	if _, err := c.PutSubscription(ctx, "orders", "s", forebay.SubscriptionSettings{Rules: []forebay.NewRule{}}); err != nil {
		t.Fatal(err)
	}
	if rules, err := c.Rules(ctx, "orders", "s"); err != nil || len(rules) != 0 {
		t.Errorf("rules %+v (%v)", rules, err)
	}
	if rule, err := c.PutRule(ctx, "orders", "s", "r", forebay.RuleSettings{SQLFilter: "n = 2"}); err != nil || rule.SQLFilter != "n = 2" {
		t.Errorf("rule %+v (%v)", rule, err)
	}
	sent, err := c.Publish(ctx, "orders", forebay.NewMessage{Properties: forebay.Properties{"n": int64(1)}}, forebay.NewMessage{Properties: forebay.Properties{"n": 2.0}})
	if err != nil || len(sent) != 2 {
		t.Fatal(sent, err)
	}
	if sub, err := c.Subscription(ctx, "orders", "s"); err != nil || sub.Active != 1 {
		t.Errorf("subscription %+v (%v)", sub, err)
	}
	if err := c.DeleteRule(ctx, "orders", "s", "r"); err != nil {
		t.Error(err)
	}
	if _, err := c.Topic(ctx, ".."); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
		t.Errorf("a topic that is no name: %v", err)
	}
}
