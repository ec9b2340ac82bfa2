package bus

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// enqueued are the times at which what stands in these subqueues came there: a transaction has
// one.
func enqueued(t *testing.T, s *stores, subqueues ...queue.Subqueue) (times []int64) {
	t.Helper()
	for _, subqueue := range subqueues {
		for _, m := range peekAll(t, s, subqueue) {
			if at := m.EnqueuedAt.UnixMilli(); len(times) == 0 || times[len(times)-1] != at {
				times = append(times, at)
			}
		}
	}
	return times
}

// fullBatch is more bytes than any batch holds.
const fullBatch = math.MaxInt32

// inBubble tests a store on SQLite in a bubble.
func inBubble(t *testing.T, test func(*testing.T, *stores)) {
	e := fixture.Bubble(filepath.Join(t.TempDir(), "f.db"))
	synctest.Test(t, func(t *testing.T) {
		s := e.Open(t)
		defer s.DB.Close()
		test(t, s)
	})
}

// Copies made for callers leave due messages a full share of the transaction.
func TestDueHasAShareOfItsOwn(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		q := putQueue(t, s, MessageQueue{})
		send(t, s, q, scheduled(20)...)
		for _, err := range dbtest.InOneTransaction(t, s.DB, func() error { // but this ends its batch, and what it makes due is so in the next
			_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange, Size: fullBatch}, func(t *Tx) (int, error) {
				t.DueBy(t.Now)
				return 0, t.Prep("UPDATE bodies SET due_at = ?1, scheduled_at = ?1 WHERE due_at > ?1").Int(t.Now).Exec()
			})
			return err
		}, func() error {
			_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) {
				t.copied.Add(rules.FullCopies, 1)
				return 0, nil
			})
			return err
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		untilEmpty(t, s, "SELECT count(*) FROM messages WHERE flow = 1")
		if times := enqueued(t, s, q.Subqueue(false)); len(times) != 1 {
			t.Errorf("20 messages became active in %d transactions", len(times))
		}
	})
}

// What stands in a queue that forwards has one as well, whatever has become active.
func TestForwardingHasAShareOfItsOwn(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		subs := manySubscriptions(t, s, topic, 50)
		send(t, s, topic, scheduled(rules.FullCopies/50+1)...)
		there, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: 1, Name: "t/there", Lock: testLock, MaxDeliveries: 1}, 10)
		if err != nil {
			t.Fatal(err)
		}
		q := putQueue(t, s, MessageQueue{})
		send(t, s, q, numbered(0, 20)...)
		q.ForwardTo = there.Name
		for _, err := range dbtest.InOneTransaction(t, s.DB, func() error {
			_, _, err := s.Bus.PutMessageQueue(t.Context(), q, 10)
			return err
		}, func() error {
			_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) {
				t.DueBy(t.Now)
				return 0, t.Prep("UPDATE bodies SET due_at = ?1, scheduled_at = ?1 WHERE due_at > ?1").Int(t.Now).Exec()
			})
			return err
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		untilEmpty(t, s, "SELECT count(*) FROM messages WHERE flow = 1")
		untilEmpty(t, s, fmt.Sprint("SELECT count(*) FROM messages WHERE subqueue = ", int64(q.Subqueue(false))))
		active, forwarded := enqueued(t, s, subs[0].Subqueue(false)), enqueued(t, s, there.Subqueue(false))
		if len(forwarded) != 1 || len(active) == 0 || forwarded[0] != active[0] {
			t.Errorf("became active at %v, forwarded at %v", active, forwarded)
		}
	})
}

// A receiver may find only messages that go elsewhere. Its transaction then ends when topics have
// made enough copies.
func TestReceivingIsBounded(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		subs := manySubscriptions(t, s, topic, 50)
		q := putQueue(t, s, MessageQueue{MaxDeliveries: 1, ForwardDeadLettersTo: topic.Name})
		const messages = 2 * rules.FullCopies / 50
		send(t, s, q, numbered(0, messages)...)
		_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) {
			return 0, t.Prep("UPDATE messages SET deliveries = 1 WHERE subqueue = ?").Int(int64(q.Subqueue(false))).Exec()
		})
		if err != nil {
			t.Fatal(err)
		}
		for range messages {
			if got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20}); err != nil || len(got) > 0 {
				t.Fatalf("received %+v, %v", got, err)
			}
		}
		if got := strings.Fields(subjects(t, s, subs[0].Subqueue(false))); len(got) != messages {
			t.Fatalf("%d of %d messages were dead-lettered", len(got), messages)
		}
		err = s.DB.Read(t.Context(), func(c driver.Conn) error {
			return c.Prep("SELECT count(*) FROM bodies GROUP BY enqueued_at").Each(func(r driver.Row) error {
				if r.Int(0) > rules.FullCopies+50 {
					t.Errorf("one transaction has made %d copies", r.Int(0))
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// Messages sent through a queue go behind the messages that wait there.
func TestSendThroughQueueKeepsTheOrder(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		subs := manySubscriptions(t, s, topic, 50)
		q := putQueue(t, s, MessageQueue{ForwardTo: topic.Name})
		const first, all = 4 * rules.FullCopies / 50, 4*rules.FullCopies/50 + 10
		for _, err := range dbtest.InOneTransaction(t, s.DB, func() error {
			_, err := s.Bus.Send(t.Context(), q, numbered(0, first))
			return err
		}, func() error {
			_, err := s.Bus.Send(t.Context(), q, numbered(first, all-first))
			return err
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		untilEmpty(t, s, fmt.Sprint("SELECT count(*) FROM messages WHERE subqueue = ", int64(q.Subqueue(false))))
		var want []string
		for _, m := range numbered(0, all) {
			want = append(want, m.Subject)
		}
		if got := subjects(t, s, subs[49].Subqueue(false)); got != strings.Join(want, " ") {
			t.Errorf("came as %s", got)
		}
	})
}

// Calls that a transaction leaves for the next one wait for nothing else, and those that come
// after them do not overtake them.
func TestPostponedCallsGoNext(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores) {
		var done []int
		var calls []func() error
		for i := range 6 {
			calls = append(calls, func() error { // the second of two fills a batch, and one all that a transaction should make
				_, err := db.TransactIn(context.Background(), Key, s.DB.Writer, db.Op{Stage: db.StageChange, Size: i % 2 * fullBatch}, func(t *Tx) (int, error) {
					done = append(done, i)
					t.copied.Add(rules.FullCopies, 1)
					return 0, nil
				})
				return err
			})
		}
		began := time.Now()
		for _, err := range dbtest.InOneTransaction(t, s.DB, calls...) {
			if err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > time.Second { // by a clock that stands still while anything runs
			t.Errorf("took %s", took)
		}
		if !slices.Equal(done, []int{0, 1, 2, 3, 4, 5}) {
			t.Errorf("done in the order %v", done)
		}
	})
}

// Calls that were left for the next transaction are carried out, and answered, by a store that is
// closed meanwhile.
func TestPostponedCallsAreDoneAtTheClose(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores) {
		var closing sync.WaitGroup
		done := 0
		var calls []func() error
		for i := range 3 {
			calls = append(calls, func() error {
				_, err := db.TransactIn(context.Background(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) {
					if done++; i == 0 {
						closing.Go(func() { _ = s.DB.Close() })
						synctest.Wait() // until it waits for the writer
					}
					t.copied.Add(rules.FullCopies, 1)
					return 0, nil
				})
				return err
			})
		}
		for _, err := range dbtest.InOneTransaction(t, s.DB, calls...) {
			if err != nil {
				t.Error(err)
			}
		}
		if closing.Wait(); done != 3 {
			t.Errorf("%d of 3 calls were carried out", done)
		}
	})
}

// A topic is in use while a scheduled message of which it would make too much is postponed.
func testPostponedMessageKeepsItsTopic(t *testing.T, s *stores, c *clock) {
	d := idleQueues{t, c, s}
	topic := d.put("t/topic", func(q *MessageQueue) { q.IsTopic = true })
	at := time.UnixMilli(d.Now()).Add(2 * time.Minute)
	m := content("large", 1)
	m.Body, m.ScheduledAt = make([]byte, 9<<20), &at
	send(d, d.s, topic, m)
	manySubscriptions(d.T, d.s, topic, 30)
	d.minutes(17) // at which it is looked at 2, 3, 4, 6 and 10 minutes from the beginning, and next at 18
	d.want(topic, true, "while a message of it is postponed")
}
