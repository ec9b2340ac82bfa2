package servicebus

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// manages attaches a link for the answers of an entity's management node, by handle 0, and links
// for requests by the handles after it.
func (p *peer) manages(entity string, links int) {
	p.Helper()
	p.receives(0, entity+"/$management", nil)
	for handle := range uint32(links) {
		p.sends(handle+1, entity+"/$management")
	}
}

// asks is a request to a management node, encoded.
func asks(t testing.TB, operation string, body wire.Map) []byte {
	t.Helper()
	b, err := (&wire.Message{Properties: &wire.Properties{MessageID: operation, ReplyTo: ptr("me")}, Value: body, HasValue: true,
		ApplicationProperties: wire.Map{{Key: "operation", Value: operationPrefix + operation}}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An answer that its client does not take holds memory of the tenant.
func TestAnAnswerHoldsMemoryUntilItIsSent(t *testing.T) {
	const size, n = 40_000, 3
	b := newBench(t, nil)
	b.delivered(string(make([]byte, size)))
	p := b.connect("any", "any")
	p.begin(1000)
	p.manages("orders", 1)
	for id := range uint32(n) {
		p.send(transfer(1, id), asks(t, "peek-message", wire.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(1)}}))
	}
	for answered := uint32(0); answered < n; {
		d := expect[*wire.Disposition](p)
		answered += *d.Last - d.First + 1
	}
	if held := b.sent.Held(); held < n*size {
		t.Errorf("%d bytes are held for %d answers of %d", held, n, size)
	}
	p.credit(0, n, 1000)
	for range n {
		expect[*wire.Transfer](p)
	}
	eventually(t, "no memory is held", func() bool { return b.sent.Held() == 0 })
}

// A client that takes no answers has only so many requests carried out, however many links it has.
func TestRequestsOfAConnectionAreBounded(t *testing.T) {
	inBubble(t, forebay.DefaultMaxMessageBytes, func(b bubble) {
		b.queue("orders", forebay.MessageQueueSettings{})
		p, leave := b.peer()
		defer leave()
		p.begin(1000)
		const links, each = 25, 15
		p.manages("orders", links)
		var answered atomic.Int32
		go func() {
			for {
				switch f, _, err := p.read(); f := f.(type) {
				case *wire.Disposition:
					answered.Add(int32(*f.Last - f.First + 1))
				default:
					if err != nil {
						return
					}
				}
			}
		}()
		for id := range uint32(links * each) {
			p.send(transfer(1+id%links, id), asks(b, "peek-message", wire.Map{}))
		}
		synctest.Wait()
		if n := answered.Load(); n != maxRequests {
			b.Errorf("%d requests were carried out for a client that takes no answers, want %d", n, maxRequests)
		}
	})
}
