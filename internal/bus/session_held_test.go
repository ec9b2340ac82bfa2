package bus

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/leftovers"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// A receiver may hold any number of messages of a session. One transaction frees only so many of
// them, and nobody gets the session before all are free.
func testManyHeldMessagesOfASession(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{RequiresSession: true})
	const many = 2*maxFreed + 1
	sendMany(t, s, q, many, func(m *MessageContent) { m.SessionID = "s" })
	first, err := s.Bus.Sessions().Accept(background, q, "s")
	mustDo(t, err)
	got := receiveOfSession(t, s, q, first, many, 1)
	mustDo(t, s.Bus.Defer(background, q.Subqueue(false), got[many-1].Lock, nil))
	_, err = s.Bus.ReceiveDeferred(background, ReceiveRequest{Queue: q, Session: &first.SessionLock, Max: 1, MaxBytes: 1 << 20}, []int64{got[many-1].Seq})
	mustDo(t, err)

	rest, err := db.TransactIn(background, Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (SessionLock, error) {
		return t.sessions.close(q, first.SessionLock)
	})
	mustDo(t, err)
	wantHeld(t, s, q, many-maxFreed)
	if _, err := s.Bus.Receive(background, ReceiveRequest{Queue: q, Session: &first.SessionLock, Max: 1, MaxBytes: 1 << 20}); !errors.Is(err, forebay.ErrSessionLockLost) {
		t.Errorf("the receiver gets messages while it closes the session: %v", err)
	}
	if _, err := s.Bus.Sessions().Accept(background, q, "s"); !errors.Is(err, forebay.ErrSessionLocked) {
		t.Errorf("the session was accepted while messages are held: %v", err)
	}
	if got, err := s.Bus.Sessions().AcceptNext(background, q, false); got != nil || err != nil {
		t.Errorf("the session was accepted while messages are held: %+v, %v", got, err)
	}
	mustDo(t, s.Bus.Sessions().Close(background, q, rest))
	wantHeld(t, s, q, 0)

	next, err := s.Bus.Sessions().AcceptNext(background, q, false)
	if err != nil || next == nil {
		t.Fatalf("the session is not free: %v", err)
	}
	receiveOfSession(t, s, q, *next, many-1, 1) // those deliveries did not count
	c.pass(testLock)
	_, err = db.TransactIn(background, Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *Tx) (struct{}, error) {
		c := &Receiver{ReceiveRequest: ReceiveRequest{Queue: q}, participant: tx.W, Subqueue: queue.SubqueueOf(q.No, subqueueSessions), accept: true}
		tx.W.Waiters[c.Subqueue] = []*Receiver{c}
		defer delete(tx.W.Waiters, c.Subqueue)
		err := tx.sessions.acceptNext(c)
		if !c.cut || c.accepted != nil {
			t.Errorf("one transaction has done it all, or gave up: %+v", c.accepted)
		}
		return struct{}{}, err
	})
	mustDo(t, err)
	wantHeld(t, s, q, many-1-maxFreed)
	next, err = s.Bus.Sessions().AcceptNext(background, q, false)
	if err != nil || next == nil {
		t.Fatalf("the session is not given in the end: %v", err)
	}
	receiveOfSession(t, s, q, *next, many-1, 2)
	c.pass(testLock)
	named, err := s.Bus.Sessions().Accept(background, q, "s")
	mustDo(t, err)
	receiveOfSession(t, s, q, named, many-1, 3)
	if n := s.counts(t, q); n.Deferred != 1 || n.DeadLetter != 0 {
		t.Errorf("the queue has %+v", n)
	}
}

// What a receiver held may have expired, however many.
func testManyHeldMessagesExpire(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{RequiresSession: true, DeadLetterExpired: true})
	const many = maxFreed + 1
	sendMany(t, s, q, many, func(m *MessageContent) { m.SessionID, m.TTL = "s", testLock/2 })
	session, err := s.Bus.Sessions().Accept(background, q, "s")
	mustDo(t, err)
	receiveOfSession(t, s, q, session, many, 1)
	c.pass(testLock / 2)
	mustDo(t, s.Bus.Sessions().Close(background, q, session.SessionLock))
	if n := s.counts(t, q); n.DeadLetter != many || n.Active != 0 {
		t.Errorf("the queue has %+v", n)
	}
	if got, err := s.Bus.Sessions().AcceptNext(background, q, false); got != nil || err != nil {
		t.Errorf("a session without messages was accepted: %+v, %v", got, err)
	}
}

// receiveOfSession receives all messages of a session, in order.
func receiveOfSession(t *testing.T, s *stores, q MessageQueue, session Session, many, deliveries int) []Message {
	t.Helper()
	got, err := s.Bus.Receive(background, ReceiveRequest{Queue: q, Session: &session.SessionLock, Max: many + 1, MaxBytes: 1 << 20})
	if err != nil || len(got) != many {
		t.Fatalf("received %d messages of %d: %v", len(got), many, err)
	}
	for i, m := range got {
		if m.Deliveries != deliveries || i > 0 && m.Seq <= got[i-1].Seq {
			t.Fatalf("message %d has the number %d and %d deliveries", i, m.Seq, m.Deliveries)
		}
	}
	return got
}

func wantHeld(t *testing.T, s *stores, q MessageQueue, want int64) {
	t.Helper()
	held, err := db.TransactIn(background, Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (n int64, err error) {
		_, err = t.Prep("SELECT count(*) FROM messages WHERE subqueue / 4 = ? AND visible_at = ?").Int(q.No).Int(sessionHeld).One(func(r driver.Row) { n = r.Int(0) })
		return n, err
	})
	if err != nil || held != want {
		t.Errorf("%d messages are held, expected %d (%v)", held, want, err)
	}
}

// Sessions that hold nothing are forgotten, although nobody gave them back or asks for any
// session.
func testEmptySessionsAreForgotten(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{RequiresSession: true})
	sendTo(t, s, q, MessageContent{MessageID: "a", SessionID: "expired", TTL: time.Second}, MessageContent{MessageID: "b", SessionID: "deferred"},
		MessageContent{MessageID: "c", SessionID: "message"}, MessageContent{MessageID: "d", SessionID: "held", TTL: time.Second})
	s.accept(t, q, "never closed")
	mustDo(t, s.Bus.Sessions().SetState(background, q, s.accept(t, q, "state").SessionLock, []byte("kept")))
	deferring := s.accept(t, q, "deferred")
	mustDo(t, s.Bus.Defer(background, q.Subqueue(false), receiveOfSession(t, s, q, deferring, 1, 1)[0].Lock, nil))
	receiveOfSession(t, s, q, s.accept(t, q, "held"), 1, 1)
	forgets := func(want ...string) {
		t.Helper()
		mustDo(t, leftovers.ForgetSessions(t.Context(), s.DB))
		var left []string
		mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) error {
			left = nil
			return c.Prep("SELECT id FROM sessions ORDER BY id").Each(func(r driver.Row) error { left = append(left, r.Text(0)); return nil })
		}))
		if !slices.Equal(left, want) {
			t.Errorf("%q are left, expected %q", left, want)
		}
	}
	c.pass(testLock / 2)
	forgets("deferred", "held", "message", "never closed", "state")
	c.pass(testLock)
	s.accept(t, q, "new")
	forgets("deferred", "message", "new", "state")
	if got := receiveOfSession(t, s, q, s.accept(t, q, "message"), 1, 1); got[0].MessageID != "c" {
		t.Errorf("received %+v", got)
	}
}
