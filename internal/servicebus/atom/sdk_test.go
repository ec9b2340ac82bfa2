package atom_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/forebayhq/forebay"
)

const never = "P10675199DT2H48M5.4775807S"

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s is\n%s, expected\n%s", what, shown(got), shown(want))
	}
}

// shown writes a struct with what its pointers point to.
func shown(v any) string {
	x := reflect.ValueOf(v)
	if x.Kind() != reflect.Struct {
		return fmt.Sprintf("%+v", v)
	}
	var b strings.Builder
	for i := range x.NumField() {
		f := x.Field(i)
		if f.Kind() == reflect.Pointer && !f.IsNil() {
			f = f.Elem()
		}
		fmt.Fprintf(&b, "%s:%+v ", x.Type().Field(i).Name, f)
	}
	return b.String()
}

func wantStatus(t *testing.T, what string, err error, status int, says string) {
	t.Helper()
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.StatusCode != status || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v; expected %d with %q", what, err, status, says)
	}
}

func TestGoClientManagesQueues(t *testing.T) {
	n := newNamespace(t)
	client, ctx := n.client(t, n.connection(t, "acme", forebay.ScopeManage)), t.Context()
	if q, err := client.GetQueue(ctx, "orders", nil); q != nil || err != nil {
		t.Errorf("a queue that is missing: %v, %v", q, err)
	}
	made, err := client.CreateQueue(ctx, "plain", nil)
	mustDo(t, err)
	wantEqual(t, "a queue of defaults", made.QueueProperties, admin.QueueProperties{
		LockDuration: new("PT1M"), MaxSizeInMegabytes: new(int32(1024)), RequiresDuplicateDetection: new(false), RequiresSession: new(false), DefaultMessageTimeToLive: new(never),
		DeadLetteringOnMessageExpiration: new(false), DuplicateDetectionHistoryTimeWindow: new("PT10M"), MaxDeliveryCount: new(int32(10)), EnableBatchedOperations: new(true),
		Status: new(admin.EntityStatusActive), AutoDeleteOnIdle: new(never), EnablePartitioning: new(false), MaxMessageSizeInKilobytes: new(int64(1024)),
	})
	props := admin.QueueProperties{
		LockDuration: new("PT45S"), MaxSizeInMegabytes: new(int32(4096)), EnablePartitioning: new(true), RequiresDuplicateDetection: new(true), RequiresSession: new(true),
		DefaultMessageTimeToLive: new("PT6H"), DeadLetteringOnMessageExpiration: new(true), DuplicateDetectionHistoryTimeWindow: new("PT4H"), MaxDeliveryCount: new(int32(100)),
		EnableBatchedOperations: new(false), Status: new(admin.EntityStatusReceiveDisabled), AutoDeleteOnIdle: new("PT10M"), UserMetadata: new("some <metadata>"),
		MaxMessageSizeInKilobytes: new(int64(256)),
		AuthorizationRules: []admin.AuthorizationRule{{AccessRights: []admin.AccessRight{admin.AccessRightSend, admin.AccessRightListen}, KeyName: new("k"), PrimaryKey: new("p&q"), SecondaryKey: new("s"),
			CreatedTime: new(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}},
	}
	created, err := client.CreateQueue(ctx, "a/Orders", &admin.CreateQueueOptions{Properties: &props})
	mustDo(t, err)
	want := props
	want.MaxSizeInMegabytes = new(int32(16 * 4096)) // of all partitions
	wantEqual(t, "what was created", created.QueueProperties, want)
	got, err := client.GetQueue(ctx, "A/orders", nil) // whatever the case
	mustDo(t, err)
	wantEqual(t, "what is read", got.QueueProperties, want)
	updated, err := client.UpdateQueue(ctx, "a/orders", got.QueueProperties, nil)
	mustDo(t, err)
	wantEqual(t, "what is unchanged", updated.QueueProperties, want)
	want.Status, want.LockDuration, want.UserMetadata = new(admin.EntityStatusActive), new("PT1M30S"), nil
	updated, err = client.UpdateQueue(ctx, "a/Orders", want, nil)
	mustDo(t, err)
	wantEqual(t, "what is changed", updated.QueueProperties, want)
	stored, err := n.messages.Queues.Get(ctx, "acme", "a/Orders")
	mustDo(t, err)
	if stored.LockSeconds != 90 || !stored.RequiresSession || stored.Status != forebay.EntityActive || stored.MaxMessageBytes != 256<<10 {
		t.Errorf("stored is %+v", stored)
	}

	_, err = client.CreateQueue(ctx, "A/ORDERS", nil)
	wantStatus(t, "a queue made twice", err, http.StatusConflict, "SubCode=40900")
	for element, change := range map[string]func(*admin.QueueProperties){
		"The value for the RequiresSession property of an existing Queue cannot be changed":            func(p *admin.QueueProperties) { p.RequiresSession = new(false) },
		"The value for the RequiresDuplicateDetection property of an existing Queue cannot be changed": func(p *admin.QueueProperties) { p.RequiresDuplicateDetection = new(false) },
		"Partitioning cannot be changed for Queue. ":                                                   func(p *admin.QueueProperties) { p.EnablePartitioning = new(false) },
		"LockDuration is not an ISO 8601 duration":                                                     func(p *admin.QueueProperties) { p.LockDuration = new("1m") },
		"lock_seconds goes from 1 to 300":                                                              func(p *admin.QueueProperties) { p.LockDuration = new("PT1H") },
		"ForwardTo is about an entity that does not exist":                                             func(p *admin.QueueProperties) { p.ForwardTo = new("sb://x/nowhere") },
		"user_metadata must be at most 1024 characters":                                                func(p *admin.QueueProperties) { p.UserMetadata = new(strings.Repeat("x", 1025)) },
	} {
		wrong := want
		change(&wrong)
		_, err := client.UpdateQueue(ctx, "a/Orders", wrong, nil)
		wantStatus(t, element, err, http.StatusBadRequest, element)
	}
	_, err = client.UpdateQueue(ctx, "missing", admin.QueueProperties{}, nil)
	wantStatus(t, "an update of nothing", err, http.StatusNotFound, "404 Not Found")
	_, err = client.CreateQueue(ctx, "not$valid", nil)
	wantStatus(t, "a name", err, http.StatusBadRequest, "SubCode=40000")
	_, err = client.DeleteQueue(ctx, "missing", nil)
	wantStatus(t, "a delete of nothing", err, http.StatusNotFound, "SubCode=40400")

	_, err = n.messages.Messages.Send(ctx, "acme", "plain", []forebay.NewMessage{{Body: new("1")}, {Body: new("2"), ScheduledTime: new(time.Now().Add(time.Hour))}})
	mustDo(t, err)
	runtime, err := client.GetQueueRuntimeProperties(ctx, "plain", nil)
	mustDo(t, err)
	if runtime.ActiveMessageCount != 1 || runtime.ScheduledMessageCount != 1 || runtime.TotalMessageCount != 2 || runtime.SizeInBytes == 0 || runtime.CreatedAt.IsZero() || runtime.UpdatedAt.IsZero() {
		t.Errorf("the runtime properties are %+v", runtime)
	}
	_, err = client.DeleteQueue(ctx, "A/ORDERS", nil)
	mustDo(t, err)
	if q, err := client.GetQueue(ctx, "a/Orders", nil); q != nil || err != nil {
		t.Errorf("the deleted queue: %v, %v", q, err)
	}
}

func TestGoClientListsPages(t *testing.T) {
	n := newNamespace(t)
	client, ctx := n.client(t, n.connection(t, "acme", forebay.ScopeManage)), t.Context()
	for i := range 5 {
		_, err := client.CreateQueue(ctx, fmt.Sprintf("q%d", i), nil)
		mustDo(t, err)
	}
	_, err := client.CreateTopic(ctx, "t", nil)
	mustDo(t, err)
	for i := range 103 { // more than are read at once
		_, _, err := n.messages.Subscriptions.Put(ctx, "acme", "t", fmt.Sprintf("s%03d", i), forebay.SubscriptionSettings{})
		mustDo(t, err)
	}
	for size, pages := range map[int32]int{2: 3, 5: 1, 100: 1} {
		var names []string
		pager := client.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: size})
		count := 0
		for pager.More() {
			page, err := pager.NextPage(ctx)
			mustDo(t, err)
			for _, q := range page.Queues {
				names = append(names, q.QueueName)
			}
			if len(page.Queues) > 0 {
				count++
			}
		}
		if strings.Join(names, " ") != "q0 q1 q2 q3 q4" || count != pages {
			t.Errorf("pages of %d: %v in %d pages", size, names, count)
		}
	}
	for _, size := range []int32{40, 102, 103, 2000} {
		count := 0
		pager := client.NewListSubscriptionsRuntimePropertiesPager("t", &admin.ListSubscriptionsRuntimePropertiesOptions{MaxPageSize: size})
		for pager.More() {
			page, err := pager.NextPage(ctx)
			mustDo(t, err)
			for _, s := range page.SubscriptionRuntimeProperties {
				if want := fmt.Sprintf("s%03d", count); s.SubscriptionName != want || s.AccessedAt.IsZero() {
					t.Fatalf("%+v, expected %s", s, want)
				}
				count++
			}
		}
		if count != 103 {
			t.Errorf("pages of %d have %d subscriptions", size, count)
		}
	}
	topics, err := client.NewListTopicsRuntimePropertiesPager(nil).NextPage(ctx)
	if mustDo(t, err); len(topics.TopicRuntimeProperties) != 1 || topics.TopicRuntimeProperties[0].SubscriptionCount != 103 {
		t.Errorf("the topics are %+v", topics)
	}
	_, err = client.NewListSubscriptionsPager("missing", nil).NextPage(ctx)
	if err != nil {
		wantStatus(t, "subscriptions of no topic", err, http.StatusNotFound, "")
	}
}

func TestGoClientManagesTopicsAndSubscriptions(t *testing.T) {
	n := newNamespace(t)
	client, ctx := n.client(t, n.connection(t, "acme", forebay.ScopeManage)), t.Context()
	props := admin.TopicProperties{
		MaxSizeInMegabytes: new(int32(2048)), RequiresDuplicateDetection: new(true), DefaultMessageTimeToLive: new("PT3M"), DuplicateDetectionHistoryTimeWindow: new("PT4M"),
		EnableBatchedOperations: new(true), Status: new(admin.EntityStatusActive), AutoDeleteOnIdle: new("PT7M"), SupportOrdering: new(true), UserMetadata: new("user metadata"),
		EnablePartitioning: new(false), MaxMessageSizeInKilobytes: new(int64(1024)),
	}
	topic, err := client.CreateTopic(ctx, "events", &admin.CreateTopicOptions{Properties: &props})
	mustDo(t, err)
	wantEqual(t, "the topic", topic.TopicProperties, props)
	changed := props
	changed.EnablePartitioning = new(true)
	_, err = client.UpdateTopic(ctx, "events", changed, nil)
	wantStatus(t, "partitioning", err, http.StatusBadRequest, "Partitioning cannot be changed for Topic. ")
	props.AutoDeleteOnIdle = new("PT11M")
	updated, err := client.UpdateTopic(ctx, "events", props, nil)
	mustDo(t, err)
	wantEqual(t, "the changed topic", updated.TopicProperties, props)
	_, err = client.UpdateTopic(ctx, "missing", props, nil)
	wantStatus(t, "an update of nothing", err, http.StatusNotFound, "404 Not Found")
	_, err = client.CreateTopic(ctx, "EVENTS", nil)
	wantStatus(t, "a topic made twice", err, http.StatusConflict, "SubCode=40900")
	_, err = client.DeleteTopic(ctx, "missing", nil)
	wantStatus(t, "a delete of no topic", err, http.StatusNotFound, "SubCode=40400")
	if topic, err := client.GetTopic(ctx, "missing", nil); topic != nil || err != nil {
		t.Errorf("a missing topic: %v, %v", topic, err)
	}
	_, err = client.CreateQueue(ctx, "Events", nil)
	wantStatus(t, "a queue of a topic's name", err, http.StatusConflict, "SubCode=40900")
	_, err = client.UpdateQueue(ctx, "events", admin.QueueProperties{}, nil)
	wantStatus(t, "a topic updated as a queue", err, http.StatusNotFound, "")

	_, err = client.CreateQueue(ctx, "Target", nil)
	mustDo(t, err)
	target := "sb://" + strings.TrimPrefix(n.URL, "https://") + "/target"
	sub := admin.SubscriptionProperties{
		LockDuration: new("PT3M"), RequiresSession: new(false), DefaultMessageTimeToLive: new("PT7M"), DeadLetteringOnMessageExpiration: new(true),
		EnableDeadLetteringOnFilterEvaluationExceptions: new(false), MaxDeliveryCount: new(int32(11)), Status: new(admin.EntityStatusActive), EnableBatchedOperations: new(false),
		AutoDeleteOnIdle: new("PT11M"), UserMetadata: new("x"), ForwardTo: &target, ForwardDeadLetteredMessagesTo: &target,
	}
	made, err := client.CreateSubscription(ctx, "EVENTS", "Sub", &admin.CreateSubscriptionOptions{Properties: &sub})
	mustDo(t, err)
	wantEqual(t, "the subscription", made.SubscriptionProperties, sub)
	stored, err := n.messages.Subscriptions.Get(ctx, "acme", "events", "Sub")
	if mustDo(t, err); stored.ForwardTo != "Target" || stored.ForwardDeadLettersTo != "Target" {
		t.Errorf("it forwards to %q and %q", stored.ForwardTo, stored.ForwardDeadLettersTo)
	}
	sub.RequiresSession = new(true)
	_, err = client.UpdateSubscription(ctx, "events", "sub", sub, nil)
	wantStatus(t, "sessions", err, http.StatusBadRequest, "The value for the RequiresSession property of an existing Subscription cannot be changed")
	sub.RequiresSession, sub.LockDuration, sub.ForwardTo = new(false), new("PT4M"), nil
	again, err := client.UpdateSubscription(ctx, "events", "sub", sub, nil)
	mustDo(t, err)
	wantEqual(t, "the changed subscription", again.SubscriptionProperties, sub)
	_, err = client.CreateSubscription(ctx, "events", "sub", nil)
	wantStatus(t, "a subscription made twice", err, http.StatusConflict, "SubCode=40900")
	_, err = client.CreateSubscription(ctx, "missing", "sub", nil)
	wantStatus(t, "a subscription of nothing", err, http.StatusNotFound, "")
	_, err = client.UpdateSubscription(ctx, "events", "missing", sub, nil)
	wantStatus(t, "an update of nothing", err, http.StatusNotFound, "404 Not Found")
	wrong := sub
	wrong.LockDuration = new("PT1H")
	_, err = client.CreateSubscription(ctx, "events", "wrong", &admin.CreateSubscriptionOptions{Properties: &wrong})
	wantStatus(t, "a subscription that is badly defined", err, http.StatusBadRequest, "lock_seconds goes from 1 to 300")
	_, err = client.DeleteSubscription(ctx, "events", "missing", nil)
	wantStatus(t, "a delete of no subscription", err, http.StatusNotFound, "SubCode=40400")
	runtime, err := client.GetTopicRuntimeProperties(ctx, "events", nil)
	if mustDo(t, err); runtime.SubscriptionCount != 1 || runtime.CreatedAt.IsZero() {
		t.Errorf("the topic has %+v", runtime)
	}
	_, err = client.DeleteSubscription(ctx, "events", "sub", nil)
	mustDo(t, err)
	if s, err := client.GetSubscription(ctx, "events", "sub", nil); s != nil || err != nil {
		t.Errorf("the deleted subscription: %v, %v", s, err)
	}
	_, err = client.DeleteTopic(ctx, "events", nil)
	mustDo(t, err)
	namespace, err := client.GetNamespaceProperties(ctx, nil)
	if mustDo(t, err); namespace.Name != "acme" || namespace.SKU != "Premium" || *namespace.MessagingUnits != 1 || namespace.CreatedTime.IsZero() {
		t.Errorf("the namespace is %+v", namespace)
	}
}

func TestGoClientManagesRules(t *testing.T) {
	n := newNamespace(t)
	client, ctx := n.client(t, n.connection(t, "acme", forebay.ScopeManage)), t.Context()
	_, err := client.CreateTopic(ctx, "t", nil)
	mustDo(t, err)
	_, err = client.CreateSubscription(ctx, "t", "s", nil)
	mustDo(t, err)
	parameters := map[string]any{"@s": "it's", "@i": int64(100), "@x": 100.25, "@at": time.Date(2001, 1, 1, 1, 2, 3, 0, time.UTC), "@b": true}
	action := &admin.SQLAction{Expression: "SET a=@s SET b=@i SET c=@x SET d=@at SET e=@b", Parameters: parameters}
	for _, rule := range []admin.RuleProperties{
		{Name: "true", Filter: &admin.TrueFilter{}},
		{Name: "false", Filter: &admin.FalseFilter{}},
		{Name: "sql", Filter: &admin.SQLFilter{Expression: " a = 1"}},
		{Name: "parameters", Filter: &admin.SQLFilter{Expression: "a=@s OR b=@i OR c=@x OR d=@at OR e=@b", Parameters: parameters}, Action: action},
		{Name: "action", Filter: &admin.TrueFilter{}, Action: action},
		{Name: "correlation", Filter: &admin.CorrelationFilter{ContentType: new("a"), CorrelationID: new("b"), MessageID: new("c"), ReplyTo: new("d"), ReplyToSessionID: new("e"), SessionID: new("f"),
			Subject: new("g"), To: new("<h>"), ApplicationProperties: map[string]any{"s": "x", "i": int64(7), "x": 1.5, "b": false}}},
	} {
		made, err := client.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: &rule.Name, Filter: rule.Filter, Action: rule.Action})
		mustDo(t, err)
		wantEqual(t, "a created rule", made.RuleProperties, rule)
		updated, err := client.UpdateRule(ctx, "t", "s", rule)
		mustDo(t, err)
		wantEqual(t, "an updated rule", updated.RuleProperties, rule)
		got, err := client.GetRule(ctx, "T", "S", strings.ToUpper(rule.Name), nil)
		mustDo(t, err)
		wantEqual(t, "a rule that is read", got.RuleProperties, rule)
		_, err = client.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: &rule.Name, Filter: rule.Filter})
		wantStatus(t, "a rule made twice", err, http.StatusConflict, "SubCode=40900")
	}
	var names []string
	pager := client.NewListRulesPager("t", "s", &admin.ListRulesOptions{MaxPageSize: 3})
	for pager.More() {
		page, err := pager.NextPage(ctx)
		mustDo(t, err)
		for _, r := range page.Rules {
			names = append(names, r.Name)
		}
	}
	wantEqual(t, "the list", names, []string{"$Default", "action", "correlation", "false", "parameters", "sql", "true"})
	runtime, err := client.GetTopicRuntimeProperties(ctx, "t", nil)
	if mustDo(t, err); runtime.SQLFilterCount != 6 || runtime.CorrelationFilterCount != 1 {
		t.Errorf("the topic has %+v", runtime)
	}
	for name, rule := range map[string]admin.RuleProperties{
		"at character 3":            {Name: "r", Filter: &admin.SQLFilter{Expression: "a = = 1"}},
		"no value is given":         {Name: "r", Filter: &admin.SQLFilter{Expression: "a = @b"}},
		"at least one property":     {Name: "r", Filter: &admin.CorrelationFilter{}},
		"must be 1 to 50 letters":   {Name: "r r", Filter: &admin.TrueFilter{}},
		"SET or REMOVE":             {Name: "r", Filter: &admin.TrueFilter{}, Action: &admin.SQLAction{Expression: "DROP TABLE"}},
		"longer than 1024":          {Name: "r", Filter: &admin.SQLFilter{Expression: strings.Repeat("x", 1025)}},
		"has names that begin with": {Name: "r", Filter: &admin.SQLFilter{Expression: "a=1", Parameters: map[string]any{"b": 1}}},
	} {
		_, err := client.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: &rule.Name, Filter: rule.Filter, Action: rule.Action})
		var response *azcore.ResponseError
		if !errors.As(err, &response) || response.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	n.crowded(t)
	_, err = client.CreateRule(ctx, "crowded", "sub", &admin.CreateRuleOptions{Name: new("more"), Filter: &admin.TrueFilter{}})
	wantStatus(t, "a rule too many", err, http.StatusForbidden, "SubCode=40300")
	_, err = client.CreateRule(ctx, "t", "missing", &admin.CreateRuleOptions{Name: new("r"), Filter: &admin.TrueFilter{}})
	wantStatus(t, "a rule of nothing", err, http.StatusNotFound, "SubCode=40400")
	_, err = client.UpdateRule(ctx, "t", "s", admin.RuleProperties{Name: "missing", Filter: &admin.TrueFilter{}})
	wantStatus(t, "an update of nothing", err, http.StatusNotFound, "")
	if r, err := client.GetRule(ctx, "t", "s", "missing", nil); r != nil || err != nil {
		t.Errorf("a missing rule: %v, %v", r, err)
	}
	_, err = client.DeleteRule(ctx, "t", "s", "SQL", nil)
	mustDo(t, err)
	_, err = client.DeleteRule(ctx, "t", "s", "sql", nil)
	wantStatus(t, "a rule deleted twice", err, http.StatusNotFound, "")
	for i, rule := range []*admin.RuleProperties{
		{Filter: &admin.FalseFilter{}}, {Name: "First", Filter: &admin.SQLFilter{Expression: "p LIKE 'O%'"}, Action: action}, {Action: action},
	} {
		name := fmt.Sprint("s", i)
		_, err := client.CreateSubscription(ctx, "t", name, &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{DefaultRule: rule}})
		mustDo(t, err)
		page, err := client.NewListRulesPager("t", name, nil).NextPage(ctx)
		mustDo(t, err)
		want := *rule
		if want.Name == "" {
			want.Name = "$Default"
		}
		if want.Filter == nil {
			want.Filter = &admin.TrueFilter{}
		}
		wantEqual(t, "the first rules", page.Rules, []admin.RuleProperties{want})
	}
}

func TestRightsAreChecked(t *testing.T) {
	n := newNamespace(t)
	all, ctx := n.client(t, n.connection(t, "acme", forebay.ScopeManage)), t.Context()
	for _, name := range []string{"q", "other"} {
		_, err := all.CreateQueue(ctx, name, nil)
		mustDo(t, err)
	}
	_, err := all.CreateTopic(ctx, "t", nil)
	mustDo(t, err)
	_, err = all.CreateSubscription(ctx, "t", "s", nil)
	mustDo(t, err)

	weak := n.client(t, n.connection(t, "acme", forebay.ScopeListen))
	for says, call := range map[string]func() error{
		">Manage,EntityRead claims required for this operation":           func() error { _, err := weak.GetQueue(ctx, "q", nil); return err },
		"Manage,EntityRead claims required":                               func() error { _, err := weak.NewListTopicsPager(nil).NextPage(ctx); return err },
		"Authorization failed for specified action: Manage,EntityWrite":   func() error { _, err := weak.CreateQueue(ctx, "new", nil); return err },
		"Authorization failed for specified action: Manage,EntityDelete.": func() error { _, err := weak.DeleteTopic(ctx, "t", nil); return err },
		"401 SubCode=40100: Unauthorized : Unauthorized access for 'GetSubscription'": func() error {
			_, err := weak.GetSubscription(ctx, "t", "s", nil)
			return err
		},
		"401 SubCode=40100: Unauthorized : Unauthorized access for 'EnumerateSubscriptions' operation": func() error {
			_, err := weak.NewListSubscriptionsPager("t", nil).NextPage(ctx)
			return err
		},
		"401 SubCode=40100: Unauthorized : Unauthorized access for 'CreateOrUpdateSubscription'": func() error {
			_, err := weak.CreateSubscription(ctx, "t", "new", nil)
			return err
		},
		"401 SubCode=40100: Unauthorized : Unauthorized access for 'DeleteSubscription'": func() error {
			_, err := weak.DeleteSubscription(ctx, "t", "s", nil)
			return err
		},
	} {
		wantStatus(t, says, call(), http.StatusUnauthorized, says)
	}

	bound := n.client(t, n.connection(t, "acme", forebay.ScopeManage, "q", "t"))
	if _, err := bound.GetQueue(ctx, "Q", nil); err != nil {
		t.Errorf("the queue of a key: %v", err)
	}
	if _, err := bound.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: new("r"), Filter: &admin.TrueFilter{}}); err != nil {
		t.Errorf("a rule below the topic of a key: %v", err)
	}
	_, err = bound.GetQueue(ctx, "other", nil)
	wantStatus(t, "another queue", err, http.StatusUnauthorized, "claims required")
	_, err = bound.NewListQueuesPager(nil).NextPage(ctx)
	wantStatus(t, "the list of all", err, http.StatusUnauthorized, "claims required")
	_, err = bound.UpdateQueue(ctx, "q", admin.QueueProperties{ForwardTo: new(strings.Replace(n.URL, "https", "sb", 1) + "/other")}, nil)
	wantStatus(t, "forwarding to another queue", err, http.StatusUnauthorized, "ForwardTo")
	if q, err := n.messages.Queues.Get(ctx, "acme", "q"); err != nil || q.ForwardTo != "" {
		t.Errorf("the queue forwards to %q, %v", q.ForwardTo, err)
	}

	foreign := n.client(t, n.connection(t, "rival", forebay.ScopeManage))
	if q, err := foreign.GetQueue(ctx, "q", nil); q != nil || err != nil {
		t.Errorf("another tenant's queue: %v, %v", q, err)
	}
	_, err = foreign.DeleteQueue(ctx, "q", nil)
	wantStatus(t, "a delete of another tenant's", err, http.StatusNotFound, "")
	page, err := foreign.NewListQueuesPager(nil).NextPage(ctx)
	if err != nil || len(page.Queues) != 0 {
		t.Errorf("another tenant's list: %+v, %v", page, err)
	}
	if _, err := n.messages.Queues.Get(context.Background(), "acme", "q"); err != nil {
		t.Error(err)
	}
	wrong := n.client(t, strings.Replace(n.connection(t, "acme", forebay.ScopeManage), "SharedAccessKey=", "SharedAccessKey=x", 1))
	_, err = wrong.GetQueue(ctx, "q", nil)
	wantStatus(t, "a wrong key", err, http.StatusUnauthorized, "401 SubCode=40100")
}
