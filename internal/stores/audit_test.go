package stores_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/raced"
)

// An act that is refused, and one whose transaction fails, leave no entry.
func TestAuditFollowsTheAct(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.FromOutside(t, testAuditFollowsTheAct)
}

func testAuditFollowsTheAct(t *testing.T, e outside) {
	s := e.Open()
	paused := audit.Act{Actor: "key_1", Action: "pause"}
	mustDo(t, s.Queues.SetPaused(t.Context(), queueOf(t, s, "q"), true, paused))
	ctx := t.Context()
	if _, err := s.Keys.Revoke(ctx, "none", audit.Act{Action: "revoke-key"}); !errors.Is(err, forebay.ErrNotFound) {
		t.Fatal(err)
	}
	key := forebay.APIKey{ID: "key_1", Tenant: "acme", Scopes: []forebay.Scope{forebay.ScopeRead}}
	for i, want := range []bool{true, false} { // the second has the same id
		if err := s.Keys.Insert(ctx, key, 1, []byte{byte(i)}, nil, audit.Act{Tenant: "acme", Actor: "a", Action: "create-key", Target: "key_1"}); (err == nil) != want {
			t.Fatal(err)
		}
	}
	// What no database can hold as text is hashed as it is stored.
	if _, err := s.Jobs.Redrive(ctx, nil, audit.Act{Action: "redrive", Target: "a\x00b", Detail: "c\xffd"}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second changes nothing
		if _, err := s.Keys.Revoke(ctx, "key_1", audit.Act{Actor: "b", Action: "revoke-key", Target: "key_1"}); err != nil {
			t.Fatal(err)
		}
	}
	entries, _, err := s.Audit.Entries(ctx, forebay.AuditFilter{}, 0, 10)
	if err != nil || len(entries) != 4 || entries[1].Target != "a\uFFFDb" || entries[1].Detail != "c\uFFFDd" {
		t.Fatalf("%d entries (%v)", len(entries), err)
	}
	if e := entries[0]; e.Action != "revoke-key" || e.Tenant != "acme" || e.Actor != "b" {
		t.Errorf("got %+v", e)
	}
	if v, err := s.Audit.Verify(ctx, forebay.AuditHead{}, 100); err != nil || !v.Intact || !v.Done {
		t.Errorf("got %+v (%v)", v, err)
	}
}

// Changes of queues, topics, subscriptions and rules are recorded, and what changes nothing is
// not.
func TestAuditOfEntities(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s := e.Open()
		ctx := forebay.WithActor(t.Context(), "key_1")
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		queue := bus.MessageQueue{Tenant: 1, Name: "acme/mail", Lock: time.Minute, MaxDeliveries: 10}
		topic := bus.MessageQueue{Tenant: 1, Name: "acme/news"}
		topic.IsTopic = true
		stored, _, err := s.Bus.PutMessageQueue(ctx, queue, 10)
		must(err)
		_, _, err = s.Bus.PutMessageQueue(ctx, queue, 10) // the same
		must(err)
		_, err = s.Bus.Send(ctx, stored, []bus.MessageContent{{MessageID: "m"}})
		must(err)
		for range 2 { // the second finds none
			_, err = s.Bus.DeleteBefore(ctx, stored.Subqueue(false), time.Now().Add(time.Hour), 10)
			must(err)
		}
		queue.MaxDeliveries = 3
		_, _, err = s.Bus.PutMessageQueue(ctx, queue, 10)
		must(err)
		madeTopic, _, err := s.Bus.PutMessageQueue(ctx, topic, 10)
		must(err)
		sub := bus.MessageQueue{Tenant: 1, Name: entity.SubscriptionName(madeTopic.Name, "all"), Lock: time.Minute, MaxDeliveries: 10}
		madeSub, _, err := s.Bus.PutSubscription(ctx, madeTopic, sub, nil, 10)
		must(err)
		_, _, err = s.Bus.PutSubscription(ctx, madeTopic, sub, nil, 10) // the same
		must(err)
		_, _, err = s.Bus.Rules().Put(ctx, madeSub, bus.Rule{Name: "r", Settings: forebay.RuleSettings{SQLFilter: "a = 1"}}, bus.RuleLimits{PerSubscription: 10, SQLPerTopic: 10}, entity.PutAny)
		must(err)
		for range 2 { // the second finds none
			_, err = s.Bus.Rules().Delete(ctx, madeSub, "r")
			must(err)
			_, err = s.Bus.DropMessageQueue(ctx, stored)
			must(err)
		}
		_, err = s.Bus.DropMessageQueue(t.Context(), madeTopic) // by nobody in particular
		must(err)
		var acts []string
		entries, _, err := s.Audit.Entries(ctx, forebay.AuditFilter{Tenant: "acme"}, 0, 100)
		must(err)
		slices.Reverse(entries)
		for _, entry := range entries {
			acts = append(acts, entry.Actor+" "+entry.Action+" "+entry.Target)
		}
		want := []string{"key_1 put-queue mail", "key_1 purge-queue mail", "key_1 put-queue mail", "key_1 put-topic news", "key_1 put-subscription news/subscriptions/all",
			"key_1 put-rule news/subscriptions/all/rules/r", "key_1 delete-rule news/subscriptions/all/rules/r", "key_1 delete-queue mail", "local delete-topic news"}
		if !slices.Equal(acts, want) {
			t.Errorf("got %q\nwant %q", acts, want)
		}
		if d := entries[2].Detail; !strings.Contains(d, `"max_delivery_count":3`) || !strings.Contains(d, `"lock_seconds":60`) {
			t.Errorf("detail %s", d)
		}
		if v, err := s.Audit.Verify(ctx, forebay.AuditHead{}, 100); err != nil || !v.Intact || !v.Done {
			t.Errorf("got %+v (%v)", v, err)
		}
	})
}
