package bus

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// A transaction does only so much of what is due. The next one must go on at once. In each of
// these tests nothing else is due that would bring it on. None of the times is one at which a
// writer looks at everything.

func putNamed(t *testing.T, s *stores, name string, change func(*MessageQueue)) MessageQueue {
	t.Helper()
	q := MessageQueue{Tenant: 1, Name: name, Lock: testLock, MaxDeliveries: testMaxDeliveries}
	change(&q)
	stored, _, err := s.Bus.PutMessageQueue(background, q, 100)
	mustDo(t, err)
	return stored
}

// sendMany sends that many messages, each with another id.
func sendMany(t *testing.T, s *stores, q MessageQueue, many int, change func(*MessageContent)) {
	t.Helper()
	list := make([]MessageContent, many)
	for i := range list {
		list[i].MessageID = fmt.Sprint(i)
		change(&list[i])
	}
	for len(list) > 0 {
		n := min(300, len(list))
		sendTo(t, s, q, list[:n]...)
		list = list[n:]
	}
}

// wantNone fails if a statement counts more than none at this time.
func (c *clock) wantNone(s *stores, what, sql string) {
	c.t.Helper()
	var left int64
	err := s.DB.Read(background, func(conn driver.Conn) error {
		_, err := conn.Prep(sql).Int(c.time().UnixMilli()).One(func(r driver.Row) { left = r.Int(0) })
		return err
	})
	if err != nil || left > 0 {
		c.t.Errorf("%d %s are still due: %v", left, what, err)
	}
}

func testMoreMessagesAreDueThanFit(t *testing.T, s *stores, c *clock) {
	at := c.time().Add(47 * time.Second)
	sendMany(t, s, putQueue(t, s, MessageQueue{}), 2*dueBatch+3, func(m *MessageContent) { m.ScheduledAt = &at })
	c.pass(47 * time.Second)
	c.wantNone(s, "messages", "SELECT count(*) FROM bodies WHERE due_at <= ?")
}

func testMoreIDsAreForgottenThanFit(t *testing.T, s *stores, c *clock) {
	sendMany(t, s, putQueue(t, s, MessageQueue{DuplicateWindow: time.Minute}), 2*entity.ForgetBatch+3, func(*MessageContent) {})
	c.pass(75 * time.Second)
	c.wantNone(s, "message ids", "SELECT count(*) FROM message_ids WHERE forget_at <= ?")
}

// Queues that forward are kept. That leaves nothing else to do, unlike queues that are dropped.
func testMoreQueuesSeemIdleThanFit(t *testing.T, s *stores, c *clock) {
	target := putNamed(t, s, "t/target", func(*MessageQueue) {})
	for i := range entity.IdleAtOnce + 4 {
		putNamed(t, s, fmt.Sprint("t/forwards", i), func(q *MessageQueue) { q.ForwardTo, q.Idle = target.Name, time.Minute })
	}
	c.quiet() // their backlog
	c.pass(75 * time.Second)
	c.wantNone(s, "idle queues", "SELECT count(*) FROM queues WHERE delete_at <= ?")
}

// Topics with many subscriptions are not all dropped in one transaction.
func testIdleTopicsWithManySubscriptions(t *testing.T, s *stores, c *clock) {
	const topics, each = 3, entity.IdleSubscriptions/3 + 1
	for i := range topics {
		topic := putNamed(t, s, fmt.Sprint("t/topic", i), func(q *MessageQueue) { q.IsTopic, q.Idle = true, time.Minute })
		for n := range each {
			subscribe(t, s, topic, fmt.Sprint(n))
		}
	}
	dropped, err := db.TransactIn(background, Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (n int64, err error) {
		var idle []entity.Idle
		later := t.Now + int64(75*time.Second/time.Millisecond)
		if err := t.RunPipeline([]driver.PipelineQuery{entity.AskIdle(later, &idle)}); err != nil {
			return 0, err
		}
		if _, err := t.due.dropIdle(idle); err != nil {
			return 0, err
		}
		_, err = t.Prep("SELECT count(*) FROM queues WHERE kind = 'deleting'").One(func(r driver.Row) { n = r.Int(0) })
		return n, err
	})
	mustDo(t, err)
	if dropped != each+1 {
		t.Errorf("dropped %d entities at once", dropped)
	}
	c.pass(75 * time.Second)
	c.wantNone(s, "idle topics", "SELECT count(*) FROM queues WHERE delete_at <= ?")
}

// Queues that forward are due when the locks of their backlog end.
func testSeveralQueuesAreDue(t *testing.T, s *stores, c *clock) {
	const forwarding = 3
	target := putNamed(t, s, "t/target", func(*MessageQueue) {})
	for i := range forwarding {
		q := putNamed(t, s, fmt.Sprint("t/forwards", i), func(*MessageQueue) {})
		sendTo(t, s, q, MessageContent{MessageID: "m"})
		receiveOne(t, s, q)
		putNamed(t, s, q.Name, func(q *MessageQueue) { q.ForwardTo = target.Name })
	}
	c.quiet()
	c.pass(testLock)
	c.wantNone(s, "queues", "SELECT count(*) FROM queues WHERE due_at <= ?")
	if n, err := s.Bus.MessageCounts(background, target, entity.CountLimit); err != nil || n.Active != forwarding {
		t.Errorf("forwarded %+v, %v", n, err)
	}
}

// A queue that a lock kept is looked at again when the lock has ended and nobody has used it
// since.
func testKeptQueueIsIdleLater(t *testing.T, s *stores, c *clock) {
	q := putNamed(t, s, "t/q", func(q *MessageQueue) { q.Lock, q.Idle = 4*time.Second, 3*time.Second })
	sendTo(t, s, q, MessageContent{MessageID: "m"})
	if got, err := s.Bus.Receive(background, ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20}); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	for _, step := range []struct {
		pass   time.Duration
		exists bool
	}{{3100 * time.Millisecond, true}, {3800 * time.Millisecond, true}, {200 * time.Millisecond, false}} {
		if silent, ok := c.engine.(interface{ Advance(time.Duration) }); ok { // nobody is told to look at everything
			silent.Advance(step.pass)
			c.quiet()
		} else {
			c.pass(step.pass)
		}
		if _, found, err := s.Bus.MessageQueue(background, q.Name); err != nil || found != step.exists {
			t.Errorf("%v after its first use, the queue exists: %t (%v)", c.time(), found, err)
		}
	}
}

// A due time may have been stored by somebody who told nobody. It is found within a while.
func testWhatWasMissedIsDoneLater(t *testing.T, s *stores, c *clock) {
	sendTo(t, s, putQueue(t, s, MessageQueue{}), MessageContent{MessageID: "m"})
	_, err := db.TransactIn(background, Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) {
		return 0, t.Prep("UPDATE bodies SET due_at = ?").Int(t.Now - 1000).Exec()
	})
	mustDo(t, err)
	c.quiet()
	c.pass(time.Minute)
	c.wantNone(s, "messages", "SELECT count(*) FROM bodies WHERE due_at <= ?")
}

// What leaves nothing to do does not bring another transaction on.
func testWhatIsDoneIsNotDueAgain(t *testing.T, s *stores, _ *clock) {
	inOne := func(do func(t *Tx) error) {
		t.Helper()
		_, err := db.TransactIn(background, Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) { return 0, do(t) })
		mustDo(t, err)
	}
	for messages, again := range []bool{false, true} {
		q := putNamed(t, s, "t/dropped", func(*MessageQueue) {})
		sendMany(t, s, q, messages, func(*MessageContent) {})
		inOne(func(tx *Tx) error {
			if _, err := tx.Entities.Drop(q.No); err != nil {
				return err
			}
			tx.nextDue = 0
			if err := tx.Entities.purgeOnce(); err != nil {
				return err
			}
			if (tx.nextDue == tx.Now) != again {
				t.Errorf("after a purge of a queue with %d messages, something is due at %d", messages, tx.nextDue)
			}
			return nil
		})
	}
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	sub := subscribe(t, s, topic, "s", func(*MessageQueue) {})
	sendTo(t, s, topic, MessageContent{MessageID: "known"}) // after which the topic's rules are known
	inOne(func(tx *Tx) error {
		seq, err := tx.Queue.NewSeq()
		if err != nil {
			return err
		}
		if err := tx.fanOut.storePending(topic, seq, arrival{MessageContent: &MessageContent{MessageID: "m"}}, 0); err != nil {
			return err
		}
		tx.nextDue = 0
		if err := tx.fanOut.resume(dueMessage{sized: sized{seq: seq}, subqueue: topic.Subqueue(false)}); err != nil {
			return err
		}
		if tx.nextDue != 0 {
			t.Errorf("after the last copies, something is due at %d", tx.nextDue)
		}
		return nil
	})
	if n, err := s.Bus.MessageCounts(background, sub, entity.CountLimit); err != nil || n.Active != 2 {
		t.Errorf("the subscription has %+v, %v", n, err)
	}
}

// All messages of a queue may have had their deliveries, or have expired, when somebody receives.
// A transaction removes only so many of them. Even who does not wait gets what comes behind.
func testReceiversRemoveOnlySoMuch(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{MaxDeliveries: 1})
	const spent = 3*dueBatch + 1
	sendMany(t, s, q, spent+1, func(*MessageContent) {})
	req := ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20}
	dead, err := db.TransactIn(background, Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (n int64, err error) {
		main := int64(q.Subqueue(false))
		if err := t.Prep("UPDATE messages SET deliveries = 1 WHERE subqueue = ?1 AND seq < (SELECT max(seq) FROM messages WHERE subqueue = ?1)").Int(main).Exec(); err != nil {
			return 0, err
		}
		c := req.receiver(t.W)
		if err := t.Deliveries.TakeReady(Source{subqueue: c.Subqueue, before: t.Now, Until: t.Now + 1000}, c); err != nil {
			return 0, err
		}
		_, err = t.Prep("SELECT count(*) FROM messages WHERE subqueue = ?").Int(int64(q.Subqueue(true))).One(func(r driver.Row) { n = r.Int(0) })
		return n, err
	})
	mustDo(t, err)
	if dead != dueBatch {
		t.Errorf("one transaction has dead-lettered %d messages", dead)
	}
	if got, err := s.Bus.Receive(background, req); err != nil || len(got) != 1 {
		t.Errorf("received %d messages: %v", len(got), err)
	}
}

// What is passed over because it stays may be much, so the writer has no part in that.
func TestMessagesThatStayArePassedOverOutsideOfTransactions(t *testing.T) {
	t.Parallel()
	e := fixture.Bubble(filepath.Join(t.TempDir(), "f.db"))
	synctest.Test(t, func(t *testing.T) {
		s := e.Open(t)
		defer s.DB.Close()
		q := putQueue(t, s, MessageQueue{})
		later := time.Now().Add(time.Hour)
		sendMany(t, s, q, entity.OldestAtOnce+3, func(m *MessageContent) { m.ScheduledAt = &later })
		deleted, err := db.TransactIn(background, Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(*Tx) (int, error) {
			ctx, cancel := context.WithTimeout(background, time.Minute)
			defer cancel()
			return s.Bus.DeleteBefore(ctx, q.Subqueue(false), later, 1)
		})
		if err != nil || deleted != 0 {
			t.Errorf("deleted %d: %v", deleted, err)
		}
	})
}

// Sessions whose messages are gone are passed over, however many, even for who does not wait.
func testSessionsWithoutMessagesArePassedOver(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{RequiresSession: true})
	const gone = dueBatch + 3
	sendMany(t, s, q, gone, func(m *MessageContent) { m.SessionID = m.MessageID })
	if n, err := s.Bus.DeleteBefore(background, q.Subqueue(false), c.time().Add(time.Hour), gone); err != nil || n != gone {
		t.Fatalf("deleted %d: %v", n, err)
	}
	sendTo(t, s, q, MessageContent{MessageID: "m", SessionID: "with a message"})
	if got, err := s.Bus.Sessions().AcceptNext(background, q, false); err != nil || got == nil || got.ID != "with a message" {
		t.Errorf("accepted %v: %v", got, err)
	}
}
