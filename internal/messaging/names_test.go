package messaging

import (
	"testing"

	"github.com/forebayhq/forebay"
)

// A property has any name that is text: databases store it, and rules, settlements and edits of
// dead letters know it.
func testNamesOfProperties(t *testing.T, b *Service) {
	ctx := t.Context()
	const name, added, edited = "a\x00\n\u0085\"'\\\u202e", "b\x00", "c\x1b[2J"
	if _, _, err := b.Topics.Put(ctx, "acme", "news", forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Subscriptions.Put(ctx, "acme", "news", "s", forebay.SubscriptionSettings{}); err != nil {
		t.Fatal(err)
	}
	rule := forebay.RuleSettings{CorrelationFilter: &forebay.CorrelationFilter{Properties: forebay.Properties{name: int64(1)}}}
	if _, _, err := b.Rules.Put(ctx, "acme", "news", "s", forebay.DefaultRule, rule); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Rules.Get(ctx, "acme", "news", "s", forebay.DefaultRule); err != nil || got.CorrelationFilter.Properties[name] != int64(1) {
		t.Errorf("the rule is %+v (%v)", got, err)
	}
	body := "x"
	messages := []forebay.NewMessage{{Body: &body, Properties: forebay.Properties{name: int64(1)}}, {Body: &body, Properties: forebay.Properties{name: int64(2)}}}
	if _, err := b.Messages.Publish(ctx, "acme", "news", messages); err != nil {
		t.Fatal(err)
	}
	path := forebay.SubscriptionPath("news", "s")
	got, err := b.Messages.Receive(ctx, "acme", path, forebay.ReceiveRequest{MaxMessages: 2})
	if err != nil || len(got) != 1 || got[0].Properties[name] != int64(1) {
		t.Fatalf("received %+v (%v)", got, err)
	}
	if err := b.Messages.DeadLetter(ctx, "acme", path, got[0].LockToken, forebay.Settlement{Properties: forebay.Properties{added: true}}); err != nil {
		t.Fatal(err)
	}
	dead, _, err := b.Messages.Peek(ctx, "acme", path+"/$deadletterqueue", PeekFilter{Limit: 2})
	if err != nil || len(dead) != 1 || dead[0].Properties[name] != int64(1) || dead[0].Properties[added] != true {
		t.Fatalf("dead-lettered %+v (%v)", dead, err)
	}
	edit := &forebay.MessageEdit{Properties: forebay.Properties{edited: "x"}}
	redrive := forebay.RedriveMessagesRequest{DeadMessageFilter: forebay.DeadMessageFilter{SequenceNumbers: []int64{dead[0].SequenceNumber}}, Edit: edit}
	if r, err := b.DeadLetters.Redrive(ctx, "acme", path, redrive); err != nil || r.Redriven != 1 {
		t.Fatalf("redriven %+v (%v)", r, err)
	}
	again, _, err := b.Messages.Peek(ctx, "acme", path, PeekFilter{Limit: 2})
	if err != nil || len(again) != 1 || len(again[0].Properties) != 1 || again[0].Properties[edited] != "x" {
		t.Errorf("mended %+v (%v)", again, err)
	}
	test, err := b.Rules.Test(ctx, "acme", "news", forebay.RuleTestRequest{Message: messages[0]})
	if err != nil || len(test.Subscriptions) != 1 || test.Subscriptions[0].Copies != 1 {
		t.Errorf("tested %+v (%v)", test, err)
	}
}
