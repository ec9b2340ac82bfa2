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

func (w *written) says(text string) bool { return w.count(text) > 0 }

func (w *written) count(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.buf.String(), text)
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
	for name, state := range map[string]wire.DeliveryState{"released": &wire.Released{}, "accepted": &wire.Accepted{}} {
		t.Run(name, func(t *testing.T) { failUnheard(t, state) })
	}
}

func failUnheard(t *testing.T, state wire.DeliveryState) {
	log := &written{}
	b := newBench(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	p, id := b.delivered("m")
	if err := b.store.DB.Close(); err != nil {
		t.Fatal(err)
	}
	p.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, Settled: true, State: state})
	eventually(t, "the log tells of the settlement", func() bool {
		return log.says("a settlement that a Service Bus client does not wait for was not stored")
	})
	if log.says("panic contained") {
		t.Error("it panicked")
	}
}

// One frame that completes many messages is answered for each of them.
func TestManyCompletionsAreAnsweredEach(t *testing.T) {
	const all, lost = 300, 123
	b := newBench(t, nil)
	b.queue(forebay.DefaultTenant, "orders", forebay.MessageQueueSettings{})
	for range all / 100 { // as many as one call takes
		if _, err := b.messages.Messages.Send(t.Context(), forebay.DefaultTenant, "orders", make([]forebay.NewMessage, 100)); err != nil {
			t.Fatal(err)
		}
	}
	p := b.connect("any", "any")
	p.begin(2 * all)
	p.receives(0, "orders", nil)
	p.credit(0, all, 2*all)
	tags := map[uint32][]byte{}
	for range all {
		d := expect[*wire.Transfer](p)
		tags[*d.DeliveryID] = d.DeliveryTag
	}
	token, err := tokenOfTag(tags[lost])
	if err == nil {
		err = b.messages.Messages.Complete(t.Context(), forebay.DefaultTenant, "orders", token)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.send(&wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: ptr(uint32(all - 1)), State: &wire.Accepted{}})
	for answered := 0; answered < all; {
		d := expect[*wire.Disposition](p)
		for id := d.First; id <= wire.ValueOr(d.Last, d.First); id++ {
			refusal, refused := d.State.(*wire.Rejected)
			if _, ok := tags[id]; !ok || !d.Settled || refused != (id == lost) {
				t.Errorf("delivery %d: %+v with %T %+v", id, d, d.State, d.State)
			}
			if refused && refusal.Error.Condition != conditionLockLost {
				t.Errorf("refused with %+v", refusal.Error)
			}
			delete(tags, id)
			answered++
		}
	}
	q, err := b.messages.Queues.Get(t.Context(), forebay.DefaultTenant, "orders")
	if err != nil || q.Active+q.Locked != 0 {
		t.Errorf("%+v is left, %v", q, err)
	}
}
