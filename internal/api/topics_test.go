package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

// The routes of topics, with those of queues of messages under each subscription.
func init() {
	subscription := "/v1/topics/{topic}/subscriptions/{subscription}"
	for path, methods := range map[string][]string{
		"/v1/topics": {"get"}, "/v1/topics/{topic}": {"get", "put", "delete"}, "/v1/topics/{topic}/messages": {"post"}, "/v1/topics/{topic}/test": {"post"},
		"/v1/queues/{queue}/status": {"put"}, "/v1/topics/{topic}/status": {"put"}, subscription + "/status": {"put"},
		"/v1/topics/{topic}/messages/{sequence_number}/cancel": {"post"}, "/v1/topics/{topic}/subscriptions": {"get"},
		subscription: {"get", "put", "delete"}, subscription + "/rules": {"get"}, subscription + "/rules/{rule}": {"get", "put", "delete"},
	} {
		paths[path] = methods
	}
	for path, methods := range maps.Clone(paths) {
		below, ok := strings.CutPrefix(path, "/v1/queues/{queue}")
		kind, _, _ := strings.Cut(strings.TrimPrefix(below, "/"), "/")
		switch {
		case !ok || !slices.Contains([]string{"messages", "locks", "sessions", "$deadletterqueue"}, kind) || strings.HasSuffix(below, "/cancel"):
		case below == "/messages":
			paths[subscription+below] = []string{"get"}
		default:
			paths[subscription+below] = methods
		}
	}
}

// A subscription's routes speak of the subscription, and of no queue.
func TestOpenAPIOfSubscriptions(t *testing.T) {
	f := newFixture(t)
	doc := into[object](t, f.do("GET", "/openapi.json", ""), 200)
	receive := doc["paths"].(object)["/v1/topics/{topic}/subscriptions/{subscription}/messages/receive"].(object)["post"].(object)
	var names []string
	for _, p := range receive["parameters"].([]any) {
		names = append(names, p.(object)["name"].(string))
	}
	if !slices.Equal(names, []string{"Forebay-Tenant", "topic", "subscription"}) || receive["summary"] != "Receive messages from the subscription" {
		t.Errorf("receive takes %v: %v", names, receive["summary"])
	}
}

type list[T any] struct {
	Items []T `json:"items"`
}

func TestTopicsOverHTTP(t *testing.T) {
	f := newFixture(t)
	topic := into[forebay.Topic](t, f.do("PUT", "/v1/topics/orders", `{"default_message_ttl_seconds": 3600}`), 201)
	if topic.Name != "orders" || *topic.DefaultTTLSeconds != 3600 || topic.AutoDeleteOnIdleSeconds != nil {
		t.Errorf("made %+v", topic)
	}
	into[forebay.Topic](t, f.do("PUT", "/v1/topics/orders", ""), 200)
	sub := into[forebay.Subscription](t, f.do("PUT", "/v1/topics/orders/subscriptions/audit", `{"lock_seconds": 5}`), 201)
	if sub.Name != "audit" || sub.Topic != "orders" || sub.LockSeconds != 5 || !sub.DeadLetterOnFilterError {
		t.Errorf("made %+v", sub)
	}
	into[forebay.Subscription](t, f.do("PUT", "/v1/topics/orders/subscriptions/red", `{"dead_letter_on_filter_error": false, "rules": [
		{"name": "red", "sql_filter": "color = 'red' AND quantity > 1", "sql_action": "SET quantity = quantity / 2"},
		{"name": "blue", "correlation_filter": {"subject": "blue", "application_properties": {"n": {"type": "int", "value": "7"}}}}]}`), 201)
	rules := into[list[forebay.Rule]](t, f.do("GET", "/v1/topics/orders/subscriptions/red/rules", ""), 200)
	if len(rules.Items) != 2 || rules.Items[0].CorrelationFilter.Properties["n"] != int64(7) || rules.Items[1].SQLAction == "" {
		t.Errorf("rules %+v", rules)
	}
	into[forebay.Rule](t, f.do("PUT", "/v1/topics/orders/subscriptions/red/rules/none", `{"boolean_filter": false}`), 201)
	into[forebay.Rule](t, f.do("PUT", "/v1/topics/orders/subscriptions/red/rules/none", `{"boolean_filter": false}`), 200)
	if rule := into[forebay.Rule](t, f.do("GET", "/v1/topics/orders/subscriptions/red/rules/none", ""), 200); rule.Name != "none" || *rule.BooleanFilter {
		t.Errorf("rule %+v", rule)
	}

	sent := into[struct {
		Messages []forebay.SentMessage `json:"messages"`
	}](t, f.do("POST", "/v1/topics/orders/messages", `{"messages": [
		{"message_id": "1", "body": "one", "application_properties": {"color": "red", "quantity": 10}}, {"message_id": "2", "subject": "green"}]}`), 201)
	subs := into[list[forebay.Subscription]](t, f.do("GET", "/v1/topics/orders/subscriptions", ""), 200)
	if len(subs.Items) != 2 || subs.Items[0].Active != 2 || subs.Items[1].Active != 1 {
		t.Errorf("subscriptions %+v", subs)
	}
	if topics := into[list[forebay.Topic]](t, f.do("GET", "/v1/topics", ""), 200); len(topics.Items) != 1 || topics.Items[0].Subscriptions != 2 {
		t.Errorf("topics %+v", topics)
	}

	// A subscription is received from like a queue, under either address.
	for _, base := range []string{"/v1/topics/orders/subscriptions/red", "/v1/queues/orders%2Fsubscriptions%2Fred"} {
		got := into[struct {
			Messages []forebay.Message `json:"messages"`
		}](t, f.do("POST", base+"/messages/receive", ""), 200)
		if len(got.Messages) != 1 {
			t.Fatalf("%s: received %+v", base, got)
		}
		m := got.Messages[0]
		if m.MessageID != "1" || *m.Body != "one" || m.EnqueuedSequenceNumber != sent.Messages[0].SequenceNumber ||
			m.Properties["quantity"] != int64(5) || m.Properties["RuleName"] != "red" {
			t.Errorf("received %+v", m)
		}
		if r := f.do("POST", base+"/locks/"+m.LockToken+"/abandon", ""); r.StatusCode != http.StatusNoContent {
			t.Errorf("abandon: %s", r.body)
		}
	}
	if got := into[list[forebay.Message]](t, f.do("GET", "/v1/topics/orders/subscriptions/audit/messages?limit=1", ""), 200); len(got.Items) != 1 || got.Items[0].MessageID != "1" {
		t.Errorf("peeked %+v", got)
	}
	if got := into[list[forebay.Message]](t, f.do("GET", "/v1/topics/orders/subscriptions/audit/$deadletterqueue/messages", ""), 200); len(got.Items) != 0 {
		t.Errorf("dead letters %+v", got)
	}

	// In an address a name's slashes are escaped, so that it is one segment.
	into[forebay.MessageQueue](t, f.do("PUT", "/v1/queues/eu%2Fmail", ""), 201)
	into[forebay.Topic](t, f.do("PUT", "/v1/topics/eu%2Fnews", ""), 201)
	into[forebay.Subscription](t, f.do("PUT", "/v1/topics/eu%2Fnews/subscriptions/s", ""), 201)
	wantProblem(t, f.do("PUT", "/v1/queues/eu%2Fsubscriptions%2Fs", ""), 422, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("PUT", "/v1/queues/eu%2Fmail%2F$deadletterqueue", ""), 422, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("PUT", "/v1/topics/eu%2F..%2Fnews", ""), 422, forebay.CodeInvalidRequest)
	into[map[string]any](t, f.do("POST", "/v1/queues/eu%2Fmail/messages", `{"body": "1"}`), 201)
	into[map[string]any](t, f.do("POST", "/v1/topics/eu%2Fnews/messages", `{"body": "2"}`), 201)
	for address, messages := range map[string]int{
		"/v1/queues/eu%2Fmail": 1, "/v1/queues/eu%2Fmail/$deadletterqueue": 0, "/v1/queues/eu%2Fmail%2F$deadletterqueue": 0,
		"/v1/topics/eu%2Fnews/subscriptions/s": 1, "/v1/queues/eu%2Fnews%2Fsubscriptions%2Fs": 1,
		"/v1/topics/eu%2Fnews/subscriptions/s/$deadletterqueue": 0, "/v1/queues/eu%2Fnews%2Fsubscriptions%2Fs/$deadletterqueue": 0,
	} {
		if got := into[list[forebay.Message]](t, f.do("GET", address+"/messages", ""), 200); len(got.Items) != messages {
			t.Errorf("%s has %+v", address, got)
		}
	}
	if q := into[forebay.MessageQueue](t, f.do("GET", "/v1/queues/eu%2Fmail", ""), 200); q.Name != "eu/mail" {
		t.Errorf("queue %+v", q)
	}
	for _, address := range []string{"/v1/queues/eu/mail", "/v1/queues/eu%2Fnone", "/v1/topics/eu%2Fmail", "/v1/topics/x%2Fsubscriptions%2Feu/subscriptions/s"} {
		if r := f.do("GET", address, ""); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", address, r.body)
		}
	}
	if r := f.do("DELETE", "/v1/topics/eu%2Fnews", ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("delete: %s", r.body)
	}

	// What is scheduled stays with the topic and can be taken back.
	later := into[struct {
		Messages []forebay.SentMessage `json:"messages"`
	}](t, f.do("POST", "/v1/topics/orders/messages", `{"scheduled_enqueue_time": "2999-01-01T00:00:00Z"}`), 201)
	if topic := into[forebay.Topic](t, f.do("GET", "/v1/topics/orders", ""), 200); topic.Scheduled != 1 {
		t.Errorf("scheduled %+v", topic)
	}
	cancel := "/v1/topics/orders/messages/" + fmt.Sprint(later.Messages[0].SequenceNumber) + "/cancel"
	if r := f.do("POST", cancel, ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("cancel: %s", r.body)
	}
	wantProblem(t, f.do("POST", cancel, ""), 404, forebay.CodeNotFound)

	into[forebay.Topic](t, f.do("PUT", "/v1/topics/job-events", ""), 201)
	wantProblem(t, f.do("POST", "/v1/topics/job-events/messages", `{"subject": "succeeded"}`), 422, forebay.CodeNotSupported)
	into[forebay.Topic](t, f.do("PUT", "/v1/topics/operations", ""), 201)
	wantProblem(t, f.do("POST", "/v1/topics/operations/messages", `{"messages": [{"subject": "breaker_closed"}, {"subject": "paused"}]}`), 422, forebay.CodeNotSupported)

	for _, path := range []string{"/v1/topics/orders/subscriptions/red/rules/none", "/v1/topics/orders/subscriptions/red", "/v1/topics/orders"} {
		if r := f.do("DELETE", path, ""); r.StatusCode != http.StatusNoContent {
			t.Errorf("delete %s: %s", path, r.body)
		}
		wantProblem(t, f.do("DELETE", path, ""), 404, forebay.CodeNotFound)
		wantProblem(t, f.do("GET", path, ""), 404, forebay.CodeNotFound)
	}
	wantProblem(t, f.do("GET", "/v1/topics/orders/subscriptions/audit", ""), 404, forebay.CodeNotFound)
	wantProblem(t, f.do("GET", "/v1/topics/orders/subscriptions/audit/messages", ""), 404, forebay.CodeUnknownQueue)
}

func TestTopicErrors(t *testing.T) {
	f := newFixture(t)
	into[forebay.Topic](t, f.do("PUT", "/v1/topics/orders", ""), 201)
	into[forebay.Subscription](t, f.do("PUT", "/v1/topics/orders/subscriptions/s", ""), 201)
	into[forebay.MessageQueue](t, f.do("PUT", "/v1/queues/mail", ""), 201)
	const rule = "/v1/topics/orders/subscriptions/s/rules/r"
	for _, c := range []struct {
		method, path, body string
		status             int
		code               forebay.Code
		detail             string
	}{
		{"PUT", rule, `{"sql_filter": "color = "}`, 422, forebay.CodeInvalidRequest, "at character 9: expected a value or a condition, found the end"},
		{"PUT", rule, `{"sql_action": "SET a"}`, 422, forebay.CodeInvalidRequest, "at character 6: expected =, found the end"},
		{"PUT", rule, `{"sql_filter": "a = 1", "boolean_filter": true}`, 422, forebay.CodeInvalidRequest, "one of sql_filter"},
		{"PUT", rule, `{"correlation_filter": {}}`, 422, forebay.CodeInvalidRequest, "at least one property"},
		{"PUT", rule, `{"sql": "a = 1"}`, 422, forebay.CodeUnknownField, "not a known field; known are boolean_filter, correlation_filter, sql_action, sql_action_parameters, sql_filter, sql_filter_parameters"},
		{"PUT", "/v1/topics/orders/subscriptions/s/rules/a%20b", ``, 422, forebay.CodeInvalidRequest, "1 to 50"},
		{"PUT", "/v1/topics/orders/subscriptions/none/rules/r", ``, 404, forebay.CodeNotFound, "no such subscription"},
		{"PUT", "/v1/topics/none/subscriptions/s", ``, 404, forebay.CodeNotFound, "no such topic"},
		{"PUT", "/v1/topics/orders/subscriptions/" + strings.Repeat("x", 51), ``, 422, forebay.CodeInvalidRequest, "1 to 50"},
		{"PUT", "/v1/topics/orders/subscriptions/t", `{"rules": [{"name": "a"}, {"name": "a"}]}`, 422, forebay.CodeInvalidRequest, "another rule's"},
		{"PUT", "/v1/topics/orders/subscriptions/t", `{"rules": [{"name": "a", "sql_filter": "("}]}`, 422, forebay.CodeInvalidRequest, "at character 2"},
		{"PUT", "/v1/topics/orders/subscriptions/t", `{"requires_duplicate_detection": true}`, 422, forebay.CodeInvalidRequest, "setting of the topic"},
		{"PUT", "/v1/topics/orders/subscriptions/t", `{"lock_seconds": 1000}`, 422, forebay.CodeInvalidRequest, "goes from"},
		{"PUT", "/v1/topics/orders", `{"lock_seconds": 10}`, 422, forebay.CodeUnknownField, "not a known field"},
		{"PUT", "/v1/topics/mail", ``, 409, forebay.CodeConflict, "there is a queue of messages of that name"},
		{"PUT", "/v1/queues/orders", ``, 409, forebay.CodeConflict, "there is a topic of that name"},
		{"PUT", "/v1/topics/default", ``, 409, forebay.CodeConflict, "for jobs"},
		{"PUT", "/v1/topics/a%20b", ``, 422, forebay.CodeInvalidRequest, "1 to 260"},
		{"POST", "/v1/topics/none/messages", `{}`, 404, forebay.CodeNotFound, "no such topic"},
		{"POST", "/v1/topics/mail/messages", `{}`, 404, forebay.CodeNotFound, "no such topic"},
		{"POST", "/v1/queues/orders/messages", `{}`, 404, forebay.CodeUnknownQueue, "no such queue"},
		{"POST", "/v1/queues/orders/messages/receive", ``, 404, forebay.CodeUnknownQueue, "no such queue"},
		{"DELETE", "/v1/queues/orders", ``, 404, forebay.CodeUnknownQueue, "no such queue"},
		{"POST", "/v1/topics/orders/subscriptions/s/messages", `{}`, 422, forebay.CodeNotSupported, "send to its topic"},
		{"DELETE", "/v1/topics/orders/subscriptions/s/messages", ``, 405, forebay.CodeMethodNotAllowed, ""},
		{"POST", "/v1/topics/orders/subscriptions/s/locks/x/complete", ``, 422, forebay.CodeInvalidRequest, "token"},
		{"GET", "/v1/topics/orders/subscriptions/s/nothing", ``, 404, forebay.CodeNotFound, ""},
	} {
		p := wantProblem(t, f.do(c.method, c.path, c.body), c.status, c.code)
		if !strings.Contains(p.Detail, c.detail) {
			t.Errorf("%s %s: %q", c.method, c.path, p.Detail)
		}
	}
}

// Topics are their tenant's, and keys do what their scopes say.
func TestTopicTenantsAndScopes(t *testing.T) {
	f := newFixture(t)
	operator, submitter, stranger := f.newKey("acme", forebay.ScopeOperate, forebay.ScopeRead), f.newKey("acme", forebay.ScopeSubmit), f.newKey("other", forebay.ScopeOperate, forebay.ScopeRead)
	as := func(key, method, path, body string) reply {
		f.key = key
		return f.do(method, path, body)
	}
	into[forebay.Topic](t, as(operator, "PUT", "/v1/topics/orders", ""), 201)
	into[forebay.Subscription](t, as(operator, "PUT", "/v1/topics/orders/subscriptions/s", ""), 201)
	into[struct{}](t, as(submitter, "POST", "/v1/topics/orders/messages", "{}"), 201)
	wantProblem(t, as(submitter, "PUT", "/v1/topics/orders", ""), 403, forebay.CodeForbidden)
	wantProblem(t, as(submitter, "POST", "/v1/topics/orders/subscriptions/s/messages/receive", ""), 403, forebay.CodeForbidden)
	wantProblem(t, as(stranger, "GET", "/v1/topics/orders", ""), 404, forebay.CodeNotFound)
	wantProblem(t, as(stranger, "POST", "/v1/topics/orders/subscriptions/s/messages/receive", ""), 404, forebay.CodeUnknownQueue)
	if topics := into[list[forebay.Topic]](t, as(stranger, "GET", "/v1/topics", ""), 200); len(topics.Items) != 0 {
		t.Errorf("another tenant sees %+v", topics)
	}
	if sub := into[forebay.Subscription](t, as(operator, "GET", "/v1/topics/orders/subscriptions/s", ""), 200); sub.Active != 1 {
		t.Errorf("subscription %+v", sub)
	}
}

// The status of a queue, a topic and a subscription is changed by operators of their tenant.
func TestStatusOverHTTP(t *testing.T) {
	f := newFixture(t)
	operator, submitter, stranger := f.newKey("acme", forebay.ScopeOperate, forebay.ScopeRead, forebay.ScopeSubmit), f.newKey("acme", forebay.ScopeSubmit, forebay.ScopeRead), f.newKey("other", forebay.ScopeOperate)
	f.key = operator
	f.putQueue(orders, `{"max_message_bytes":100,"user_metadata":"of the shop"}`)
	into[forebay.Topic](t, f.do("PUT", "/v1/topics/news", ""), 201)
	sub := "/v1/topics/news/subscriptions/s"
	into[forebay.Subscription](t, f.do("PUT", sub, ""), 201)

	q := into[forebay.MessageQueue](t, f.do("PUT", orders+"/status", `{"status":"send_disabled"}`), 200)
	if q.Status != forebay.EntitySendDisabled || q.UserMetadata != "of the shop" || q.MaxMessageBytes != 100 || q.AccessedAt != nil || q.UpdatedAt.Before(q.CreatedAt) {
		t.Errorf("the queue is %+v", q)
	}
	wantProblem(t, f.do("POST", orders+"/messages", `{"body":"x"}`), 409, forebay.CodeEntityDisabled)
	into[forebay.MessageQueue](t, f.do("PUT", orders+"/status", `{"status":"receive_disabled","user_metadata":""}`), 200)
	f.sendMessage(orders, `{"body":"x"}`)
	wantProblem(t, f.do("POST", orders+"/messages", `{"body":"`+strings.Repeat("x", 101)+`"}`), 413, forebay.CodePayloadTooLarge)
	wantProblem(t, f.do("POST", orders+"/messages/receive", `{"wait":"30s"}`), 409, forebay.CodeEntityDisabled)
	if q = into[forebay.MessageQueue](t, f.do("GET", orders, ""), 200); q.UserMetadata != "" || q.Active != 1 || q.SizeBytes < 1 || q.AccessedAt == nil {
		t.Errorf("the queue is %+v", q)
	}
	if topic := into[forebay.Topic](t, f.do("PUT", "/v1/topics/news/status", `{"status":"disabled"}`), 200); topic.Status != forebay.EntityDisabled {
		t.Errorf("the topic is %+v", topic)
	}
	wantProblem(t, f.do("POST", "/v1/topics/news/messages", `{}`), 409, forebay.CodeEntityDisabled)
	if s := into[forebay.Subscription](t, f.do("PUT", sub+"/status", `{"user_metadata":"kept"}`), 200); s.Status != forebay.EntityActive || s.UserMetadata != "kept" || s.Topic != "news" {
		t.Errorf("the subscription is %+v", s)
	}
	for path, body := range map[string]string{orders: `{"status":"off"}`, "/v1/topics/news": `{"status":"receive_disabled"}`, sub: `{"status":"send_disabled"}`} {
		wantProblem(t, f.do("PUT", path+"/status", body), 422, forebay.CodeInvalidRequest)
		wantProblem(t, f.do("PUT", path+"/status", `{"attributes":"{}"}`), 422, forebay.CodeUnknownField)
		f.key = submitter
		wantProblem(t, f.do("PUT", path+"/status", `{"status":"active"}`), 403, forebay.CodeForbidden)
		f.key = stranger
		if r := f.do("PUT", path+"/status", `{"status":"active"}`); r.StatusCode != 404 {
			t.Errorf("another tenant's change of %s is answered with %d", path, r.StatusCode)
		}
		f.key = operator
	}
}

// A test of rules says what each of them makes of a message, and why not.
func TestRuleTestOverHTTP(t *testing.T) {
	f := newFixture(t)
	into[forebay.Topic](t, f.do("PUT", "/v1/topics/orders", ""), 201)
	into[forebay.Subscription](t, f.do("PUT", "/v1/topics/orders/subscriptions/all", ""), 201)
	into[forebay.Subscription](t, f.do("PUT", "/v1/topics/orders/subscriptions/some", `{"rules": [
		{"name": "action", "sql_filter": "quantity > 1", "sql_action": "SET quantity = quantity * 2"},
		{"name": "false", "sql_filter": "quantity > 100"},
		{"name": "other", "correlation_filter": {"subject": "blue", "application_properties": {"n": 7}}},
		{"name": "unknown", "sql_filter": "missing = 1"},
		{"name": "wrong", "sql_filter": "quantity = 'x'"}]}`), 201)
	test := into[forebay.RuleTest](t, f.do("POST", "/v1/topics/orders/test",
		`{"message": {"body": "not sent", "subject": "green", "application_properties": {"quantity": 5}}, "rule": {"sql_filter": "quantity = 5"}}`), 200)
	if test.Rule == nil || test.Rule.Result != forebay.RuleSelected || test.More || len(test.Subscriptions) != 2 {
		t.Fatalf("the test says %+v", test)
	}
	all, some := test.Subscriptions[0], test.Subscriptions[1]
	if all.Subscription != "all" || all.Copies != 1 || all.Rules[0].Result != forebay.RuleSelected || all.DeadLettered {
		t.Errorf("all: %+v", all)
	}
	if some.Copies != 1 || !some.DeadLettered {
		t.Errorf("some: %+v", some)
	}
	for i, want := range []struct{ rule, result, why string }{
		{"action", forebay.RuleSelected, ""}, {"false", forebay.RuleNotSelected, "is false"}, {"other", forebay.RuleNotSelected, "subject, application_properties.n"},
		{"unknown", forebay.RuleNotSelected, "is unknown"}, {"wrong", forebay.RuleFailed, "cannot be compared"},
	} {
		if got := some.Rules[i]; got.Rule != want.rule || got.Result != want.result || !strings.Contains(got.Why, want.why) {
			t.Errorf("rule %d: %+v, want %+v", i, got, want)
		}
	}
	if c := some.Rules[0].Copy; c == nil || c.Properties["quantity"] != int64(10) || c.Body != nil {
		t.Errorf("the copy is %+v", c)
	}
	if one := into[forebay.RuleTest](t, f.do("POST", "/v1/topics/orders/test", `{"message": {}, "subscription": "all"}`), 200); len(one.Subscriptions) != 1 || one.Rule != nil {
		t.Errorf("of one subscription: %+v", one)
	}
	if sub := into[forebay.Subscription](t, f.do("GET", "/v1/topics/orders/subscriptions/all", ""), 200); sub.Active != 0 {
		t.Errorf("a test has sent %d messages", sub.Active)
	}
	wantProblem(t, f.do("POST", "/v1/topics/orders/test", `{"message": {}, "rule": {"sql_filter": "a ="}}`), 422, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("POST", "/v1/topics/orders/test", `{"message": {"body": "a", "body_base64": "YQ=="}}`), 422, forebay.CodeInvalidRequest)
	wantProblem(t, f.do("POST", "/v1/topics/orders/test", `{"message": {}, "subscription": "none"}`), 404, forebay.CodeNotFound)
	wantProblem(t, f.do("POST", "/v1/topics/none/test", `{"message": {}}`), 404, forebay.CodeNotFound)
}

// A test looks at all rules of a subscription or at none, and at a bounded number.
func TestRuleTestsAreBounded(t *testing.T) {
	f := newFixture(t)
	into[forebay.Topic](t, f.do("PUT", "/v1/topics/many", ""), 201)
	var rules []string
	for i := range forebay.MaxRules {
		rules = append(rules, fmt.Sprintf(`{"name": "r%d", "boolean_filter": false}`, i))
	}
	for i := range forebay.MaxRulesPerTest/forebay.MaxRules + 1 {
		into[forebay.Subscription](t, f.do("PUT", fmt.Sprintf("/v1/topics/many/subscriptions/s%02d", i), `{"rules": [`+strings.Join(rules, ",")+`]}`), 201)
	}
	test := into[forebay.RuleTest](t, f.do("POST", "/v1/topics/many/test", `{"message": {}}`), 200)
	if !test.More || len(test.Subscriptions) != forebay.MaxRulesPerTest/forebay.MaxRules || test.Subscriptions[0].Subscription != "s00" {
		t.Errorf("the test says more: %v, of %d subscriptions", test.More, len(test.Subscriptions))
	}
}
