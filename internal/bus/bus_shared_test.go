package bus

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// Several processes serve one database: each activates, expires and forwards what is due, at once
// with the others, and delivers. Every message comes to one receiver, once.
func TestBusOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	e := fixture.ClockSchema(dbtest.NewClockServer(t))
	first := e.Open(t)
	t.Cleanup(func() { first.DB.Close() })
	c := &clock{t: t, engine: e, stores: []*stores{first}}
	c.beside(true)
	c.beside(true)
	together := func(do func(n int, s *stores) error) {
		t.Helper()
		var processes sync.WaitGroup
		for n, s := range c.stores {
			processes.Go(func() {
				if err := do(n, s); err != nil {
					t.Error(err)
				}
			})
		}
		processes.Wait()
	}

	put := func(name string, change func(*MessageQueue)) MessageQueue {
		t.Helper()
		q := MessageQueue{Tenant: 1, Name: name, Lock: time.Hour, MaxDeliveries: 1}
		change(&q)
		stored, _, err := first.Bus.PutMessageQueue(t.Context(), q, 10)
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	plain, end := put("t/plain", func(*MessageQueue) {}), put("t/end", func(*MessageQueue) {})
	topic := putTopic(t, first, MessageQueue{Name: "t/topic"})
	sub := subscribe(t, first, topic, "s", func(q *MessageQueue) { q.ForwardTo = end.Name })
	scheduled := put("t/scheduled", func(q *MessageQueue) { q.ForwardTo = topic.Name })
	expiring := put("t/expiring", func(q *MessageQueue) {
		q.DefaultTTL, q.DeadLetterExpired, q.ForwardDeadLettersTo = time.Minute, true, end.Name
	})
	backlog := put("t/backlog", func(*MessageQueue) {})

	// What each process sends. Of what is due, and of the backlog, one transaction cannot take
	// all.
	const ofDue, ofBacklog, ofPlain = dueBatch / 3, purgeBatch / 2, 50
	at := c.time().Add(time.Minute)
	together(func(n int, s *stores) error {
		send := func(q MessageQueue, messages int) error {
			contents := make([]MessageContent, messages)
			for i := range contents {
				contents[i].MessageID = fmt.Sprint(q.Name, " ", n, " ", i)
				if q == scheduled {
					contents[i].ScheduledAt = &at
				}
			}
			_, err := s.Bus.Send(t.Context(), q, contents)
			return err
		}
		return errors.Join(send(scheduled, ofDue), send(expiring, ofDue), send(backlog, ofBacklog), send(plain, ofPlain))
	})

	backlog.ForwardTo = end.Name
	e.Advance(time.Minute)
	together(func(_ int, s *stores) error {
		if _, _, err := s.Bus.PutMessageQueue(t.Context(), backlog, 10); err != nil {
			return err
		}
		s.DB.Notified(&db.Notification{Lost: true})
		return rest(s)
	})
	for _, q := range []MessageQueue{scheduled, expiring, backlog, sub} {
		if n, err := first.Bus.MessageCounts(t.Context(), q, entity.CountLimit); err != nil || n != (entity.Counts{}) {
			t.Errorf("%s still has %+v (%v)", q.Name, n, err)
		}
	}

	var mu sync.Mutex
	received := map[string]int{}
	together(func(_ int, s *stores) error {
		for _, q := range []MessageQueue{plain, end} {
			for {
				got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 20, MaxBytes: 1 << 20, Delete: q == end})
				if err != nil {
					return err
				}
				if len(got) == 0 {
					break
				}
				for _, m := range got {
					mu.Lock()
					received[m.MessageID]++
					mu.Unlock()
					if q == plain {
						err = errors.Join(err, s.Bus.Complete(t.Context(), q.Subqueue(false), m.Lock))
					}
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	if sent := len(c.stores) * (2*ofDue + ofBacklog + ofPlain); len(received) != sent {
		t.Errorf("of %d messages %d were received", sent, len(received))
	}
	for id, times := range received {
		if times != 1 {
			t.Errorf("%s was received %d times", id, times)
		}
	}
	for _, q := range []MessageQueue{plain, end} {
		if n, err := first.Bus.MessageCounts(t.Context(), q, entity.CountLimit); err != nil || n != (entity.Counts{}) {
			t.Errorf("%s still has %+v (%v)", q.Name, n, err)
		}
	}
}

// A process forgets the queues that another one has dropped, also those that nobody waits for any
// more: clients may make a queue each for a short time.
func TestQueuesDroppedByAnotherProcessAreForgotten(t *testing.T) {
	t.Parallel()
	e := fixture.ClockSchema(dbtest.NewClockServer(t))
	first := e.Open(t)
	t.Cleanup(func() { first.DB.Close() })
	c := &clock{t: t, engine: e, stores: []*stores{first}}
	other := c.beside(false)
	known := func() map[int64]bool {
		t.Helper()
		known, err := db.TransactIn(t.Context(), Key, other.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (map[int64]bool, error) { return t.W.Queues(), nil })
		mustDo(t, err)
		return known
	}
	var queues []MessageQueue
	for i := range 20 {
		q, _, err := first.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: 1, Name: fmt.Sprint("t/", i), Lock: time.Hour, MaxDeliveries: 1}, 100)
		mustDo(t, err)
		queues = append(queues, q)
		if got, err := other.Bus.Receive(t.Context(), one(q)); err != nil || len(got) > 0 {
			t.Fatalf("received %d messages (%v)", len(got), err)
		}
	}
	if n := len(known()); n != len(queues) {
		t.Fatalf("%d queues are known, want %d", n, len(queues))
	}
	for _, q := range queues[1:] {
		if dropped, err := first.Bus.DropMessageQueue(t.Context(), q); err != nil || !dropped {
			t.Fatalf("dropped: %t (%v)", dropped, err)
		}
	}
	c.pass(time.Minute) // nobody need tell it
	if n := known(); len(n) != 1 || !n[queues[0].No] {
		t.Errorf("%d queues are known, want the one that is left", len(n))
	}
}
