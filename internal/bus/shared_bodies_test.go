package bus

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// sharedBodies counts the rows that copies share, and the bytes that copies have in rows of their
// own.
func sharedBodies(t *testing.T, s *stores) (rows, own int64) {
	t.Helper()
	err := s.DB.Read(t.Context(), func(c driver.Conn) error {
		_, err := c.Prep("SELECT (SELECT count(*) FROM shared_bodies), (SELECT coalesce(sum(coalesce(length(body), 0) + coalesce(length(properties), 0) + coalesce(length(amqp), 0)), 0) FROM bodies)").
			One(func(r driver.Row) { rows, own = r.Int(0), r.Int(1) })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows, own
}

// The copies of a large message have one body. Each is the whole message, wherever it goes, and
// the body is removed with the last.
func TestCopiesShareTheirBody(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic, second := putTopic(t, s, MessageQueue{Name: "t/topic"}), putTopic(t, s, MessageQueue{Name: "t/second"})
		forwarded := manySubscriptions(t, s, second, 2)
		subs := manySubscriptions(t, s, topic, 8)
		forwards := subscribe(t, s, topic, "forwards", func(q *MessageQueue) { q.ForwardTo = second.Name })
		changes := subscribe(t, s, topic, "changes")
		deleteRule(t, s, changes, defaultRule[0].Name)
		putRule(t, s, changes, "r", forebay.RuleSettings{SQLAction: "SET n = 7"})

		m := content("one", 1)
		m.Body, m.Properties = bytes.Repeat([]byte("body"), 50_000), []byte(`{"long":"`+string(bytes.Repeat([]byte("p"), 8_000))+`","n":1}`)
		m.AMQP = bytes.Repeat([]byte("section"), 3_000)
		send(t, s, topic, m)
		if rows, own := sharedBodies(t, s); rows != 1 || own > 10_000 { // the properties that were changed
			t.Errorf("%d bodies are shared, and copies have %d bytes of their own", rows, own)
		}
		whole := func(what string, got []Message) {
			t.Helper()
			if len(got) != 1 || !bytes.Equal(got[0].Body, m.Body) || !bytes.Equal(got[0].Properties, m.Properties) || !bytes.Equal(got[0].AMQP, m.AMQP) || got[0].Size() != m.Size() {
				t.Errorf("%s: %d messages, or another one", what, len(got))
			}
		}
		for _, sub := range append(forwarded, subs...) {
			whole(sub.Name, peekAll(t, s, sub.Subqueue(false)))
		}
		if got := peekAll(t, s, changes.Subqueue(false)); len(got) != 1 || !bytes.Equal(got[0].Body, m.Body) || !bytes.Equal(got[0].AMQP, m.AMQP) || !bytes.Contains(got[0].Properties, []byte(`"n":7`)) {
			t.Errorf("the changed copy: %d, or another one", len(got))
		}

		receive := func(sub MessageQueue, deadLetter, gone bool) Message {
			t.Helper()
			got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: sub, DeadLetter: deadLetter, Max: 1, MaxBytes: 1 << 20, Delete: gone})
			if err != nil || len(got) != 1 || !bytes.Equal(got[0].Body, m.Body) || !bytes.Equal(got[0].AMQP, m.AMQP) {
				t.Fatalf("%s: received %d messages, or another one: %v", sub.Name, len(got), err)
			}
			return got[0]
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		// Each leaves its subscription in another way.
		must(s.Bus.Complete(t.Context(), subs[0].Subqueue(false), receive(subs[0], false, false).Lock))
		receive(subs[1], false, true)
		_, err := s.Bus.DropMessageQueue(t.Context(), subs[2])
		must(err)
		must(s.Bus.PurgeDropped(t.Context()))
		_, err = s.Bus.DeleteBefore(t.Context(), subs[3].Subqueue(false), time.Now().Add(time.Hour), 10)
		must(err)
		must(s.Bus.DeadLetter(t.Context(), subs[4].Subqueue(false), receive(subs[4], false, false).Lock, DeadLettering{Reason: "r"}, forebay.Properties{"n": int64(2)}))
		if got := receive(subs[4], true, true); !bytes.Contains(got.Properties, []byte(`"n":2`)) || !bytes.Contains(got.Properties, []byte(`"long"`)) {
			t.Errorf("dead-lettered with properties %.40s", got.Properties)
		}
		must(s.Bus.Defer(t.Context(), subs[5].Subqueue(false), receive(subs[5], false, false).Lock, nil))
		_, err = s.Bus.DropMessageQueue(t.Context(), subs[5])
		must(err)
		must(s.Bus.PurgeDropped(t.Context()))
		receive(changes, false, true)
		for _, sub := range forwarded {
			receive(sub, false, true)
		}
		if rows, _ := sharedBodies(t, s); rows != 1 {
			t.Errorf("%d bodies are shared while two copies are left", rows)
		}
		// What stands in a subscription that begins to forward shares it still, and has it back
		// when it is the last.
		q, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: 1, Name: "t/q", Lock: testLock, MaxDeliveries: 1}, 10)
		must(err)
		for _, sub := range subs[6:] {
			sub.ForwardTo = q.Name
			_, _, err := s.Bus.PutSubscription(t.Context(), topic, sub, nil, 2000)
			must(err)
		}
		untilEmpty(t, s, fmt.Sprint("SELECT count(*) - 2 FROM messages WHERE subqueue = ", int64(q.Subqueue(false))))
		for range 2 {
			receive(q, false, true)
		}
		if rows, own := sharedBodies(t, s); rows != 0 || own != 0 || forwards.No == 0 {
			t.Errorf("%d bodies and %d bytes are left", rows, own)
		}
	})
}

// What is small, or has one copy, needs no row beside its own.
func TestSmallCopiesShareNothing(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		subscribe(t, s, topic, "one")
		m := content("one", 1)
		m.Body = make([]byte, minSharedBytes)
		send(t, s, topic, m)
		subscribe(t, s, topic, "two")
		send(t, s, topic, content("small", 1))
		if rows, own := sharedBodies(t, s); rows != 0 || own < minSharedBytes {
			t.Errorf("%d bodies are shared, %d bytes are not", rows, own)
		}
	})
}
