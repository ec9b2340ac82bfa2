package server_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// declared is a server with these topics, started and stopped, and what it then has.
func declared(t *testing.T, database string, topics map[string]server.Topic) (rules []forebay.Rule, sub forebay.Subscription) {
	t.Helper()
	t.Run("start", func(t *testing.T) {
		s := servertest.Start(t, server.Options{Database: database, Topics: topics})
		read := func(path string, into any) {
			res, err := http.Get("http://" + s.Addr(t.Context()).String() + path)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode != http.StatusOK {
				t.Fatalf("%s: status %d, %v", path, res.StatusCode, err)
			}
		}
		var page forebay.Page[forebay.Rule]
		read("/v1/topics/orders/subscriptions/s/rules", &page)
		read("/v1/topics/orders/subscriptions/s", &sub)
		rules = page.Items
	})
	return rules, sub
}

// Declared topics are made once, brought to a changed declaration, and left alone otherwise.
func TestDeclaredTopics(t *testing.T) {
	database := "sqlite:" + filepath.Join(t.TempDir(), "f.db")
	topics := func(s server.Subscription) map[string]server.Topic {
		return map[string]server.Topic{
			"orders": {DuplicateDetection: time.Minute, Subscriptions: map[string]server.Subscription{"s": s}},
			"inner":  {},
		}
	}
	rules, _ := declared(t, database, topics(server.Subscription{ForwardTo: "inner"}))
	if len(rules) != 1 || rules[0].Name != forebay.DefaultRule {
		t.Fatalf("rules %+v", rules)
	}
	with := server.Subscription{LockDuration: 5 * time.Second, Rules: map[string]server.Rule{
		"big": {SQLFilter: "n > 1"}, "red": {CorrelationFilter: &server.CorrelationFilter{Properties: map[string]string{"color": "red"}}}}}
	rules, sub := declared(t, database, topics(with))
	if len(rules) != 2 || rules[0].Name != "big" || rules[1].CorrelationFilter.Properties["color"] != "red" || sub.LockSeconds != 5 || sub.ForwardTo != "" {
		t.Fatalf("rules %+v of %+v", rules, sub)
	}
	with.Rules["big"] = server.Rule{SQLFilter: "n > 2"}
	again, _ := declared(t, database, topics(with))
	if again[0].SQLFilter != "n > 2" || !again[0].CreatedAt.Equal(rules[0].CreatedAt) {
		t.Errorf("rules %+v", again)
	}
	with.Rules = nil
	if again, _ := declared(t, database, topics(with)); len(again) != 2 {
		t.Errorf("rules %+v", again)
	}
}

func TestTopicOptionErrors(t *testing.T) {
	sub := func(s server.Subscription) server.Topic {
		return server.Topic{Subscriptions: map[string]server.Subscription{"s": s}}
	}
	for _, c := range []struct {
		name  string
		topic server.Topic
		want  string
	}{
		{"a b", server.Topic{}, "topics.a b: must be 1 to 260"},
		{"default", server.Topic{}, "topics.default: is the name of a queue for jobs too"},
		{"t", server.Topic{Tenant: "a/b"}, "topics.t.tenant: is not a valid name"},
		{"t", server.Topic{DuplicateDetection: time.Second}, "topics.t.duplicate_detection_window: goes from 20 to 604800"},
		{"t", server.Topic{DefaultMessageTTL: -1}, "topics.t.default_message_ttl: goes from"},
		{"t", server.Topic{Subscriptions: map[string]server.Subscription{strings.Repeat("s", 51): {}}}, "must be 1 to 50"},
		{"t", sub(server.Subscription{LockDuration: time.Hour}), "topics.t.subscriptions.s.lock_duration: goes from 1 to 300"},
		{"t", sub(server.Subscription{ForwardTo: "a b"}), "topics.t.subscriptions.s.forward_to: is not"},
		{"t", sub(server.Subscription{Rules: map[string]server.Rule{"r": {SQLFilter: "a ="}}}), "topics.t.subscriptions.s.rules.r.sql_filter: at character 4"},
		{"t", sub(server.Subscription{Rules: map[string]server.Rule{"r": {CorrelationFilter: &server.CorrelationFilter{}}}}), "topics.t.subscriptions.s.rules.r.correlation_filter: must name"},
		{"t", sub(server.Subscription{Rules: map[string]server.Rule{"r r": {}}}), "topics.t.subscriptions.s.rules.r r: must be 1 to 50"},
	} {
		err := server.Options{Topics: map[string]server.Topic{c.name: c.topic}}.WithDefaults().Validate()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, expected %s", c.topic, err, c.want)
		}
	}
	// What only the database knows is said at start-up.
	_, err := server.New(server.Options{Database: "sqlite:" + filepath.Join(t.TempDir(), "f.db"), Topics: map[string]server.Topic{"t": sub(server.Subscription{ForwardTo: "none"})}})
	if err == nil || err.Error() != "topics.t.subscriptions.s.forward_to: there is no such queue of messages" {
		t.Errorf("forwarding to nowhere: %v", err)
	}
}
