package servicebus

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// Clients that are no SDK of Service Bus do what those never do.

// A client that settles what it sends gets no answer. Its link ends with the reason, instead of
// one message after the other being lost.
func TestARefusalThatHasNoAnswerEndsTheLink(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{RequiresSession: ptr(true)})
	p := b.connect("any", "any")
	p.begin(1000)
	p.sends(0, "orders")
	refused := transfer(0, 0) // it has no session
	refused.Settled = true
	p.send(refused, encoded(t, []byte("m")))
	if d := expect[*wire.Detach](p); d.Error == nil || d.Error.Condition != conditionNotAllowed {
		t.Errorf("%+v", d)
	}
	p.send(&wire.Detach{Handle: 0, Closed: true})
	p.sends(0, "orders") // the session lives
}

// A filter that is not in force is not in the answer. Otherwise a client takes it for granted, and
// gets messages that it does not expect.
func TestAFilterThatIsUnknownIsNotAnswered(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{})
	p := b.connect("any", "any")
	p.begin(1000)
	a := p.receives(0, "orders", func(a *wire.Attach) {
		a.Source.Filter = wire.Map{{Key: wire.Symbol("of-another-broker"), Value: wire.Described{Descriptor: wire.Symbol("of-another-broker"), Value: "x"}}}
	})
	if a.Source == nil || len(a.Source.Filter) > 0 {
		t.Errorf("%+v", a.Source)
	}
}

// Who sends to the wrong place learns the right one.
func TestSendingToASubscriptionNamesTheTopic(t *testing.T) {
	b := newBench(t, nil)
	if _, _, err := b.messages.Topics.Put(t.Context(), forebay.DefaultTenant, "news", forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.messages.Subscriptions.Put(t.Context(), forebay.DefaultTenant, "news", "all", forebay.SubscriptionSettings{}); err != nil {
		t.Fatal(err)
	}
	p := b.connect("any", "any")
	p.begin(1000)
	p.send(&wire.Attach{Name: "s", Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: ptr("news/Subscriptions/all")}, InitialDeliveryCount: new(uint32)})
	expect[*wire.Attach](p)
	if d := expect[*wire.Detach](p); d.Error == nil || d.Error.Description != errNeedsTopic.text {
		t.Errorf("%+v", d.Error)
	}
}

// Qpid Proton without Cyrus takes the mechanism EXTERNAL, although it has been given a key. It is
// not told that the key lacks a right.
func TestAConnectionWithoutAKeySaysSo(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{})
	p := b.connect("", "")
	p.begin(1000)
	p.receives(0, "orders", nil)
	d := expect[*wire.Detach](p)
	if d.Error == nil || d.Error.Condition != conditionUnauthorized || !strings.HasSuffix(d.Error.Description, "no key by SASL PLAIN.") {
		t.Errorf("%+v", d.Error)
	}
}
