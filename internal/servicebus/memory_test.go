package servicebus

import (
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// A client that does not read holds memory only for the messages that it has not got.
func TestASlowReaderHoldsOnlyWhatIsLeft(t *testing.T) {
	t.Run("receiver", func(t *testing.T) { readSlowly(t, nil) })
	t.Run("browser", func(t *testing.T) { readSlowly(t, copies) })
}

func readSlowly(t *testing.T, change func(*wire.Attach)) {
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{})
	p := b.connect("any", "any")
	p.begin(1000)
	p.sends(0, "orders")
	const n, size = 10, 50_000 // one frame each
	for id := range uint32(n) {
		p.send(transfer(0, id), encoded(t, make([]byte, size)))
	}
	for id := uint32(0); id < n; {
		id = *expect[*wire.Disposition](p).Last + 1
	}
	slow := b.connect("any", "any")
	slow.begin(0)
	slow.receives(0, "orders", change)
	slow.credit(0, n, 0)
	eventually(t, "all messages wait to be sent", func() bool { return b.sent.Held() >= 2*n*size })
	slow.credit(0, n, n-2)
	for range n - 2 {
		expect[*wire.Transfer](slow)
	}
	eventually(t, "two messages wait to be sent", func() bool { return b.sent.Held() < 2*3*size })
	if held := b.sent.Held(); held < 2*2*size {
		t.Errorf("%d bytes are held for two messages of %d", held, size)
	}
}

// What a connection holds counts for the tenant of its first token, and for none before.
func TestMemoryCountsForTheTenantOfTheFirstToken(t *testing.T) {
	p := newPools(minMemory)
	r := p.reserve()
	const half = minMemory / 2
	if !r[0].TryGrow(half - 1000) {
		t.Fatal("the first claim is refused")
	}
	r.move("acme")
	if p.received.Claim("acme").TryGrow(2000) {
		t.Error("the tenant has room beyond its share: what its connection holds does not count")
	}
	if !p.received.Claim("").TryGrow(2000) {
		t.Error("connections without a token still hold what moved to the tenant")
	}
	r.release()
}
