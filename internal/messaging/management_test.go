package messaging

import (
	"errors"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
)

// Entities are created, changed, counted and deleted by paths in any case. Another tenant finds
// none of them.
func testManagedEntities(t *testing.T, b *Service) {
	ctx := t.Context()
	settings := forebay.SubscriptionSettings{}
	settings.LockSeconds, settings.MaxMessageBytes = 30, 500
	queue, created, err := b.Management.Put(ctx, "acme", ManagedPut{Kind: ManagedQueue, Path: "In/Mail", Mode: entity.PutNew, Settings: settings, Attributes: `{"EnablePartitioning":true}`})
	if err != nil || !created || queue.Kind != ManagedQueue || queue.Path != "In/Mail" || queue.Settings.Attributes != `{"EnablePartitioning":true}` {
		t.Fatalf("created %+v, %t, %v", queue, created, err)
	}
	if _, _, err := b.Management.Put(ctx, "acme", ManagedPut{Kind: ManagedTopic, Path: "Events", Mode: entity.PutNew}); err != nil {
		t.Fatal(err)
	}
	forward := forebay.SubscriptionSettings{}
	forward.ForwardTo = "In/Mail"
	sub, created, err := b.Management.Put(ctx, "acme", ManagedPut{Kind: ManagedSubscription, Path: "eVENTS/Subscriptions/All", Mode: entity.PutNew, Settings: forward})
	if err != nil || !created || sub.Path != "Events/subscriptions/All" || sub.Topic != "Events" || sub.Name() != "All" || sub.Settings.ForwardTo != "In/Mail" {
		t.Fatalf("created %+v, %t, %v", sub, created, err)
	}
	for _, taken := range []ManagedPut{{Kind: ManagedQueue, Path: "in/mail"}, {Kind: ManagedQueue, Path: "events"}, {Kind: ManagedTopic, Path: "IN/MAIL"}, {Kind: ManagedSubscription, Path: "events/subscriptions/ALL"}} {
		taken.Mode = entity.PutNew
		if _, _, err := b.Management.Put(ctx, "acme", taken); err != entity.ErrExists {
			t.Errorf("%s %s is created again: %v", taken.Kind, taken.Path, err)
		}
	}
	// The HTTP API changes what it knows, and leaves the attributes.
	if _, _, err := b.Queues.Put(ctx, "acme", "In/Mail", forebay.MessageQueueSettings{LockSeconds: 20}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Management.Get(ctx, "acme", "in/mail"); err != nil || got.Settings.Attributes != `{"EnablePartitioning":true}` || got.Settings.Lock.Seconds() != 20 || got.Settings.MaxMessage != 0 {
		t.Errorf("after a put by HTTP: %+v, %v", got, err)
	}
	changed, created, err := b.Management.Put(ctx, "acme", ManagedPut{Kind: ManagedQueue, Path: "IN/mail", Mode: entity.PutExisting, Settings: settings})
	if err != nil || created || changed.Path != "In/Mail" || changed.Settings.Attributes != "" || changed.Settings.Lock.Seconds() != 30 {
		t.Errorf("changed %+v, %t, %v", changed, created, err)
	}
	required := forebay.SubscriptionSettings{}
	required.RequiresSession = new(true)
	var refused *forebay.Error
	_, _, err = b.Management.Put(ctx, "acme", ManagedPut{Kind: ManagedQueue, Path: "in/mail", Mode: entity.PutExisting, Settings: required})
	if !errors.As(err, &refused) || refused.Code != forebay.CodeConflict || refused.Field != "requires_session" {
		t.Errorf("a setting that cannot change: %v", err)
	}

	if _, err := b.Messages.Publish(ctx, "acme", "Events", []forebay.NewMessage{text("12345")}); err != nil {
		t.Fatal(err)
	}
	if counts, err := b.Management.Counts(ctx, "acme", "in/MAIL"); err != nil || counts.Active != 1 || counts.SizeBytes < 5 || counts.AtLeast {
		t.Errorf("counted %+v, %v", counts, err)
	}
	if counts, err := b.Management.Counts(ctx, "acme", "events"); err != nil || counts != (EntityCounts{Subscriptions: 1, SQLFilters: 1}) {
		t.Errorf("counted %+v, %v", counts, err)
	}

	for path, missing := range map[string]error{"in/mail": entity.ErrNoQueue, "events": entity.ErrNoQueue, "events/subscriptions/all": entity.ErrNoSubscription} {
		for what, err := range map[string]error{
			"get":    func() error { _, err := b.Management.Get(ctx, "other", path); return err }(),
			"counts": func() error { _, err := b.Management.Counts(ctx, "other", path); return err }(),
			"delete": b.Management.Delete(ctx, "other", path),
		} {
			if err != missing {
				t.Errorf("another tenant's %s of %s: %v", what, path, err)
			}
		}
	}
	for _, path := range []string{"events/subscriptions/all", "events", "in/mail"} {
		if err := b.Management.Delete(ctx, "acme", path); err != nil {
			t.Errorf("delete %s: %v", path, err)
		}
		if _, err := b.Management.Get(ctx, "acme", path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
}

func testManagedEntitiesAreChecked(t *testing.T, b *Service) {
	ctx := t.Context()
	for _, attributes := range []string{"1", "{", `[1]`, `{"a":1}x`, `{"a":"\u0000"}`, "{\"a\":\"\xff\"}", `{"a":"` + strings.Repeat("x", forebay.MaxEntityAttributes) + `"}`} {
		_, _, err := b.Management.Put(ctx, "acme", ManagedPut{Kind: ManagedQueue, Path: "q", Attributes: attributes})
		var refused *forebay.Error
		if !errors.As(err, &refused) || refused.Field != "attributes" {
			t.Errorf("attributes %.20q: %v", attributes, err)
		}
	}
	large := `{"a":"` + strings.Repeat("x", forebay.MaxEntityAttributes-8) + `"}`
	if _, _, err := b.Management.Put(ctx, "acme", ManagedPut{Kind: ManagedQueue, Path: "q", Attributes: large}); err != nil {
		t.Errorf("attributes of %d bytes: %v", len(large), err)
	}
	for _, put := range []ManagedPut{
		{Kind: ManagedQueue, Path: "t/subscriptions/s"}, {Kind: ManagedSubscription, Path: "t"}, {Kind: ManagedQueue, Path: "q/$deadletterqueue"},
		{Kind: ManagedQueue, Path: "-"}, {Kind: "", Path: "q"}, {Kind: ManagedSubscription, Path: "none/subscriptions/s"}, {Kind: ManagedTopic, Path: "orders"},
	} {
		if _, _, err := b.Management.Put(ctx, "acme", put); err == nil {
			t.Errorf("%+v was put", put)
		}
	}
	for _, path := range []string{"", "none", "none/subscriptions/s", "orders/$deadletterqueue", "orders/subscriptions/s", "../other/q"} {
		if _, err := b.Management.Get(ctx, "acme", path); err == nil {
			t.Errorf("%q was found", path)
		}
	}
}

// Pages are in the order of names. They go on after what was skipped.
func testManagedPages(t *testing.T, b *Service) {
	ctx := t.Context()
	for _, path := range []string{"b", "a", "c"} {
		for kind, below := range map[ManagedKind]string{ManagedQueue: "q/", ManagedTopic: "t/"} {
			if _, _, err := b.Management.Put(ctx, "acme", ManagedPut{Kind: kind, Path: below + path}); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := b.Management.Put(ctx, "acme", ManagedPut{Kind: ManagedSubscription, Path: "t/b/subscriptions/" + path}); err != nil {
			t.Fatal(err)
		}
	}
	names := func(list []ManagedEntity, err error) string {
		var all []string
		for _, e := range list {
			all = append(all, e.Name())
		}
		if err != nil {
			return err.Error()
		}
		return strings.Join(all, " ")
	}
	for _, try := range []struct{ got, want string }{
		{names(b.Management.Queues(ctx, "acme", 0, 100)), "orders q/a q/b q/c"},
		{names(b.Management.Queues(ctx, "acme", 1, 2)), "q/a q/b"},
		{names(b.Management.Queues(ctx, "acme", 4, 2)), ""},
		{names(b.Management.Queues(ctx, "other", 0, 100)), ""},
		{names(b.Management.Topics(ctx, "acme", 0, 100)), "t/a t/b t/c"},
		{names(b.Management.Topics(ctx, "other", 0, 100)), ""},
		{names(b.Management.Subscriptions(ctx, "acme", "T/B", 1, 2)), "b c"},
		{names(b.Management.Subscriptions(ctx, "other", "t/b", 0, 2)), entity.ErrNoTopic.Error()},
		{names(b.Management.Subscriptions(ctx, "acme", "q/b", 0, 2)), entity.ErrNoTopic.Error()},
	} {
		if try.got != try.want {
			t.Errorf("a page has %q, want %q", try.got, try.want)
		}
	}
	for _, page := range [][2]int{{-1, 1}, {0, 0}, {0, MaxManagedPage + 1}} {
		if _, err := b.Management.Queues(ctx, "acme", page[0], page[1]); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("the page %v: %v", page, err)
		}
	}
}

// A put without a status or metadata leaves both. So what a program puts as it starts does not
// enable what an operator has disabled. A change leaves everything else.
func testStatusAndMetadata(t *testing.T, b *Service) {
	ctx := t.Context()
	note := strings.Repeat("é", forebay.MaxUserMetadata)
	q, err := b.Queues.Change(ctx, "acme", "orders", forebay.EntityChange{Status: forebay.EntityReceiveDisabled, UserMetadata: &note})
	if err != nil || q.Status != forebay.EntityReceiveDisabled || q.UserMetadata != note {
		t.Fatalf("changed %+v, %v", q, err)
	}
	if q, _, err = b.Queues.Put(ctx, "acme", "orders", forebay.MessageQueueSettings{LockSeconds: 7}); err != nil || q.Status != forebay.EntityReceiveDisabled || q.UserMetadata != note {
		t.Errorf("put %+v, %v", q, err)
	}
	if q, err = b.Queues.Change(ctx, "acme", "orders", forebay.EntityChange{Status: forebay.EntityDisabled}); err != nil || q.UserMetadata != note || q.LockSeconds != 7 {
		t.Errorf("changed %+v, %v", q, err)
	}
	if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{text("x")}); forebay.CodeOf(err) != forebay.CodeEntityDisabled {
		t.Errorf("send: %v", err)
	}
	if _, err := b.Messages.Receive(ctx, "acme", "orders", forebay.ReceiveRequest{WaitSeconds: 30}); forebay.CodeOf(err) != forebay.CodeEntityDisabled {
		t.Errorf("receive: %v", err)
	}
	if _, _, err := b.Messages.Peek(ctx, "acme", "orders", PeekFilter{}); err != nil {
		t.Errorf("peek: %v", err)
	}
	if _, err := b.Queues.Change(ctx, "other", "orders", forebay.EntityChange{Status: forebay.EntityActive}); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("another tenant's change: %v", err)
	}
	none := ""
	q, _, err = b.Queues.Put(ctx, "acme", "orders", forebay.MessageQueueSettings{EntityChange: forebay.EntityChange{Status: forebay.EntityActive, UserMetadata: &none}})
	if err != nil || q.Status != forebay.EntityActive || q.UserMetadata != "" || q.LockSeconds != 60 {
		t.Errorf("put %+v, %v", q, err)
	}
	for _, text := range []string{strings.Repeat("x", forebay.MaxUserMetadata+1), "a\x00b", "a\x1bb", "\xff"} {
		var refused *forebay.Error
		if _, err := b.Queues.Change(ctx, "acme", "orders", forebay.EntityChange{UserMetadata: &text}); !errors.As(err, &refused) || refused.Field != "user_metadata" {
			t.Errorf("the metadata %.10q: %v", text, err)
		}
	}
	for _, size := range []int64{-1, forebay.MaxEntityMessage + 1} {
		var refused *forebay.Error
		if _, _, err := b.Queues.Put(ctx, "acme", "orders", forebay.MessageQueueSettings{MaxMessageBytes: size}); !errors.As(err, &refused) || refused.Field != "max_message_bytes" {
			t.Errorf("at most %d bytes: %v", size, err)
		}
	}
}

// A topic is not received from, and a subscription not sent to. Topics that only Forebay publishes
// to stay active.
func testStatusOfEachKind(t *testing.T, b *Service) {
	ctx := t.Context()
	put := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, topic := range []string{"events", forebay.TopicJobEvents} {
		_, _, err := b.Topics.Put(ctx, "acme", topic, forebay.TopicSettings{})
		put(err)
		_, _, err = b.Subscriptions.Put(ctx, "acme", topic, "s", forebay.SubscriptionSettings{})
		put(err)
	}
	for _, try := range []struct {
		kind    string
		status  forebay.EntityStatus
		allowed bool
	}{
		{"queue", forebay.EntitySendDisabled, true}, {"queue", forebay.EntityReceiveDisabled, true}, {"queue", forebay.EntityDisabled, true}, {"queue", "paused", false},
		{"topic", forebay.EntitySendDisabled, true}, {"topic", forebay.EntityReceiveDisabled, false}, {"topic", forebay.EntityDisabled, true},
		{"subscription", forebay.EntitySendDisabled, false}, {"subscription", forebay.EntityReceiveDisabled, true}, {"subscription", forebay.EntityDisabled, true},
		{"topic of Forebay", forebay.EntitySendDisabled, false}, {"topic of Forebay", forebay.EntityDisabled, false}, {"topic of Forebay", forebay.EntityActive, true},
		{"subscription to Forebay", forebay.EntityDisabled, true},
	} {
		change := forebay.EntityChange{Status: try.status}
		var errs [2]error
		switch try.kind {
		case "queue":
			_, errs[0] = b.Queues.Change(ctx, "acme", "orders", change)
			_, _, errs[1] = b.Queues.Put(ctx, "acme", "orders", forebay.MessageQueueSettings{EntityChange: change})
		case "topic":
			_, errs[0] = b.Topics.Change(ctx, "acme", "events", change)
			_, _, errs[1] = b.Topics.Put(ctx, "acme", "events", forebay.TopicSettings{EntityChange: change})
		case "topic of Forebay":
			_, errs[0] = b.Topics.Change(ctx, "acme", forebay.TopicJobEvents, change)
			_, _, errs[1] = b.Topics.Put(ctx, "acme", forebay.TopicJobEvents, forebay.TopicSettings{EntityChange: change})
		default:
			topic := "events"
			if strings.HasSuffix(try.kind, "Forebay") {
				topic = forebay.TopicJobEvents
			}
			_, errs[0] = b.Subscriptions.Change(ctx, "acme", topic, "s", change)
			_, _, errs[1] = b.Subscriptions.Put(ctx, "acme", topic, "s", forebay.SubscriptionSettings{MessageQueueSettings: forebay.MessageQueueSettings{EntityChange: change}})
		}
		for i, err := range errs {
			var refused *forebay.Error
			if errors.As(err, &refused) && refused.Field != "status" || (err == nil) != try.allowed {
				t.Errorf("a %s is %s, way %d: %v", try.kind, try.status, i, err)
			}
		}
	}
	if _, err := b.Queues.Change(ctx, "acme", "events/subscriptions/s", forebay.EntityChange{}); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("a subscription is changed as a queue: %v", err)
	}
	if _, err := b.Subscriptions.Change(ctx, "other", "events", "s", forebay.EntityChange{Status: forebay.EntityActive}); forebay.CodeOf(err) != forebay.CodeNotFound {
		t.Errorf("another tenant's change of a subscription: %v", err)
	}
	if _, err := b.Topics.Change(ctx, "other", "events", forebay.EntityChange{Status: forebay.EntityActive}); forebay.CodeOf(err) != forebay.CodeNotFound {
		t.Errorf("another tenant's change of a topic: %v", err)
	}
}
