package servicebus

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// written is a log.
type written struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *written) says(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.buf.String(), text)
}

// delivered is a peer that has received a message of the queue "orders" of the default tenant.
func (b *bench) delivered(body string) (p *peer, id uint32) {
	b.Helper()
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{})
	p = b.connect("any", "any")
	p.begin(1000)
	p.sends(0, "orders")
	p.send(transfer(0, 0), encoded(b, []byte(body)))
	expect[*wire.Disposition](p)
	p.receives(1, "orders", nil)
	p.credit(1, 1, 1000)
	return p, *expect[*wire.Transfer](p).DeliveryID
}

// Nobody is told that a settlement failed if the client does not wait for it, but the log.
func TestASettlementThatFailsUnheardIsLogged(t *testing.T) {
	log := &written{}
	b := newBench(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	p, id := b.delivered("m")
	if err := b.store.DB.Close(); err != nil {
		t.Fatal(err)
	}
	p.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, Settled: true, State: &wire.Released{}})
	eventually(t, "the log tells of the settlement", func() bool {
		return log.says("a settlement that a Service Bus client does not wait for was not stored")
	})
}
