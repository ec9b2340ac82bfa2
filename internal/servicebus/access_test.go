package servicebus

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// counting counts the functions that are to be called at its end.
type counting struct {
	context.Context
	registered atomic.Int64
}

func (c *counting) AfterFunc(f func()) (stop func() bool) {
	c.registered.Add(1)
	stopped := context.AfterFunc(c.Context, f)
	return func() bool {
		c.registered.Add(-1)
		return stopped()
	}
}

// Value hides the context below, which would otherwise be registered with instead.
func (*counting) Value(any) any { return nil }

// However many tokens a link sees, its context keeps one function for all.
func TestAGuardKeepsNothingOfOldTokens(t *testing.T) {
	b := newBench(t, nil)
	given, err := b.verifier.From(netip.MustParseAddr("127.0.0.1")).Plain(t.Context(), "any", "any")
	if err != nil {
		t.Fatal(err)
	}
	put := func() *grant {
		g := &grant{Grant: given}
		held, release := b.verifier.Hold(t.Context(), given)
		g.held, g.release = &counting{Context: held}, release
		return g
	}
	watched := func(g *grant) bool { return g.held.(*counting).registered.Load() > 0 }
	ctx, end := context.WithCancel(t.Context())
	link := &counting{Context: ctx}
	c := &client{Endpoint: b.Endpoint, grants: map[string]*grant{"": put()}}
	ended := make(chan *failure, 1)
	c.guard(link, c.grants[""], forebay.ScopeSend, "orders", func(f *failure) { ended <- f })
	for range 50 {
		next := put()
		c.mu.Lock()
		old := c.grants[""]
		c.grants[""] = next
		c.mu.Unlock()
		old.release()
		eventually(t, "the new token is watched", func() bool { return watched(next) })
	}
	if n := link.registered.Load(); n != 1 {
		t.Errorf("the context of the link keeps %d functions", n)
	}
	end()
	eventually(t, "no token is watched", func() bool { return !watched(c.grants[""]) })
	c.grants[""].release()
	if len(ended) > 0 {
		t.Error("a link with tokens in force was ended")
	}
}

// A link that waits for a session ends when its key is revoked.
func TestARevokedKeyWaitsForNoSession(t *testing.T) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "talks", forebay.MessageQueueSettings{RequiresSession: ptr(true)})
	key, err := b.keys.Create(t.Context(), forebay.DefaultTenant, []forebay.Scope{forebay.ScopeListen}, nil, forebay.Budget{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	p := b.connect(key.ID, key.Key)
	p.begin(1000)
	from := "talks"
	p.send(&wire.Attach{Name: "next", Role: wire.RoleReceiver, Target: &wire.Target{Address: ptr("me")},
		Source: &wire.Source{Address: &from, Filter: wire.Map{{Key: wire.Symbol(filterSession)}}}})
	eventually(t, "the link waits", func() bool {
		b.places.mu.Lock()
		defer b.places.mu.Unlock()
		return b.places.all == 1
	})
	if _, err := b.keys.Revoke(t.Context(), key.ID, "test"); err != nil {
		t.Fatal(err)
	}
	if a := expect[*wire.Attach](p); a.Source != nil {
		t.Errorf("the link was accepted: %+v", a)
	}
	if d := expect[*wire.Detach](p); d.Error == nil || d.Error.Condition != conditionUnauthorized {
		t.Errorf("%+v", d)
	}
}

// Microsoft's SDK for Java attaches links to a management node before it puts their token. They
// wait for it, but not for ever.
func TestManagementLinksWaitForTheirToken(t *testing.T) {
	inBubble(t, forebay.DefaultMaxMessageBytes, func(b bubble) {
		b.queue("orders", forebay.MessageQueueSettings{})
		near, far := net.Pipe()
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		go b.serveAMQP(ctx, remoteConn{far, "127.0.0.1:5671"}, nil)
		defer near.Close()
		p := open(b, near, "", "")
		p.begin(1000)
		attach := func(handle uint32, entity string) {
			node := entity + "/$management"
			p.send(&wire.Attach{Name: "answers", Handle: handle, Role: wire.RoleReceiver, Source: &wire.Source{Address: &node}, Target: &wire.Target{Address: ptr("me")}},
				&wire.Attach{Name: "requests", Handle: handle + 1, Role: wire.RoleSender, Source: &wire.Source{Address: ptr("me")}, Target: &wire.Target{Address: &node}, InitialDeliveryCount: new(uint32)})
		}
		attach(0, "orders")
		p.receives(2, nodeCBS, nil)
		p.sends(3, nodeCBS)
		token, err := (&wire.Message{Properties: &wire.Properties{MessageID: "token", ReplyTo: ptr("me")}, HasValue: true,
			Value:                 "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Forders&sig=" + strings.Repeat("A", 43) + "%3D&se=4000000000&skn=any",
			ApplicationProperties: wire.Map{{Key: "operation", Value: "put-token"}, {Key: "type", Value: typeSAS}, {Key: "name", Value: "sb://localhost/orders"}}}).Append(nil)
		b.ok(err)
		p.send(transfer(3, 0), token)
		for attached := 0; attached < 2; {
			f, _, err := p.read()
			b.ok(err)
			switch f := f.(type) {
			case *wire.Attach:
				attached++
			case *wire.Detach:
				b.Fatalf("a link was refused: %+v", f.Error)
			}
		}

		begun := time.Now()
		attach(4, "others")
		for refused := 0; refused < 2; {
			f, _, err := p.read()
			b.ok(err)
			if d, ok := f.(*wire.Detach); ok {
				refused++
				if waited := time.Since(begun); d.Error == nil || d.Error.Condition != conditionUnauthorized || waited < tokenTime {
					b.Errorf("%+v after %v", d.Error, waited)
				}
			}
		}
	})
}
