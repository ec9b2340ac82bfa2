package bus

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// receiveIDs receives what is ready at once, and returns the locks and the ids.
func receiveIDs(t *testing.T, s *stores, req ReceiveRequest) (locks []queue.Lock, ids []string) {
	t.Helper()
	list, err := s.Bus.Receive(t.Context(), req)
	mustDo(t, err)
	for i := range list {
		locks, ids = append(locks, list[i].Lock), append(ids, list[i].MessageID)
	}
	return locks, ids
}

// sendApart sends messages at times of their own.
func sendApart(t *testing.T, s *stores, e *dbtest.ClockSchema[*stores], q MessageQueue, bodySize int, ids ...string) {
	t.Helper()
	for _, id := range ids {
		sendTo(t, s, q, MessageContent{MessageID: id, Body: make([]byte, bodySize)})
		e.Advance(5 * time.Millisecond)
	}
}

// A message that was deferred is no sign that those before it were taken.
func TestDeferredMessagePassesNoReadyOne(t *testing.T) {
	t.Parallel()
	e := fixture.ClockSchema(dbtest.NewClockServer(t))
	s := e.Open(t)
	t.Cleanup(func() { s.DB.Close() })
	q := putQueue(t, s, MessageQueue{})
	sendApart(t, s, e, q, 1, "a", "b", "c")
	one, all := ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20}, ReceiveRequest{Queue: q, Max: 3, MaxBytes: 1 << 20}
	locks, ids := receiveIDs(t, s, all)
	if len(locks) != 3 {
		t.Fatal("received", ids)
	}
	mustDo(t, s.Bus.Defer(t.Context(), q.Subqueue(false), locks[2], nil))
	mustDo(t, s.Bus.Undeliver(t.Context(), q.Subqueue(false), locks[:2]))
	if _, ids := receiveIDs(t, s, one); fmt.Sprint(ids) != "[a]" {
		t.Fatal("received", ids)
	}
	got, err := s.Bus.ReceiveDeferred(t.Context(), one, []int64{locks[2].Seq})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if _, ids := receiveIDs(t, s, one); fmt.Sprint(ids) != "[b]" {
		t.Error("received", ids)
	}
}

// Messages that are dead-lettered on the way leave room for those behind, which were not read
// with them.
func TestReceiverPassesNoMessageBehindRemovedOnes(t *testing.T) {
	t.Parallel()
	e := fixture.ClockSchema(dbtest.NewClockServer(t))
	s := e.Open(t)
	t.Cleanup(func() { s.DB.Close() })
	q := putQueue(t, s, MessageQueue{MaxDeliveries: 2})
	const size = 1000
	sendApart(t, s, e, q, size, "a", "b")
	locks, _ := receiveIDs(t, s, ReceiveRequest{Queue: q, Max: 2, MaxBytes: 1 << 20})
	for _, l := range locks {
		mustDo(t, s.Bus.Abandon(t.Context(), q, q.Subqueue(false), l, nil))
	}
	q = putQueue(t, s, MessageQueue{MaxDeliveries: 1})
	sendApart(t, s, e, q, size, "c", "d")
	if _, ids := receiveIDs(t, s, ReceiveRequest{Queue: q, Max: 10, MaxBytes: 5 * size / 2}); fmt.Sprint(ids) != "[c d]" {
		t.Error("received", ids)
	}
}

// The writer that stores new jobs may store messages, too. It tells the first writer when one is
// due, but not of each.
func TestMessagesOfTheWriterBesideAreDueInTime(t *testing.T) {
	t.Parallel()
	e := fixture.ClockSchema(dbtest.NewClockServer(t))
	s := e.Open(t)
	t.Cleanup(func() { s.DB.Close() })
	q := putQueue(t, s, MessageQueue{})
	const ttl = 100 * time.Millisecond
	wants := func(after time.Duration, messages int64) {
		t.Helper()
		e.Advance(after)
		e.Settle(s, nil)
		var left int64
		mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) error {
			_, err := c.Prep("SELECT count(*) FROM messages").One(func(r driver.Row) { left = r.Int(0) })
			return err
		}))
		if left != messages {
			t.Errorf("%d messages are left, not %d", left, messages)
		}
	}
	beside := func(id string) {
		t.Helper()
		_, err := db.TransactIn(t.Context(), Key, s.DB.Inserter, db.Op{Stage: db.StageSubmit}, func(t *Tx) (int64, error) {
			if t.Concurrent {
				return 0, db.ErrNotAlone
			}
			seq, err := t.Queue.NewSeq()
			if err != nil {
				return 0, err
			}
			return 0, t.arrivals.enter(q, seq, arrival{MessageContent: &MessageContent{MessageID: id, TTL: ttl}})
		})
		mustDo(t, err)
	}
	sendTo(t, s, q, MessageContent{MessageID: "first", TTL: ttl})
	wants(ttl, 0)
	beside("second")
	e.Advance(ttl / 4)
	beside("third")
	wants(0, 2)
	wants(ttl*3/4, 1)
	wants(ttl/4, 0)
}
