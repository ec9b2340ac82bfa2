package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// openQueue returns a new store with one queue of these settings.
func openQueue(t testing.TB, path string, q MessageQueue) (*stores, MessageQueue) {
	t.Helper()
	s := fixture.Serve(t, db.Options{Path: path})
	return s, putQueue(t, s, q)
}

// putQueue makes the queue "t/q" with these settings.
func putQueue(t testing.TB, s *stores, q MessageQueue) MessageQueue {
	t.Helper()
	q.Tenant, q.Name, q.Lock, q.MaxDeliveries = 1, "t/q", testLock, cmp.Or(q.MaxDeliveries, testMaxDeliveries)
	stored, _, err := s.Bus.PutMessageQueue(background, q, 10)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func sendTo(t testing.TB, s *stores, q MessageQueue, messages ...MessageContent) []int64 {
	t.Helper()
	seqs, err := s.Broker.Messages.Send(background, q, messages)
	if err != nil {
		t.Fatal(err)
	}
	return seqs
}

// Receivers wait for a session, or for messages of one. A send, a closed session and the end of a
// lock wake them. A receiver whose session is lost gets an error.
func testSessionReceiversAreWoken(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{RequiresSession: true})
	accept := func(receivers int) <-chan waited[*Session] {
		return inBackground(c, s, receivers, func() (*Session, error) { return s.awaitSession(q) })
	}
	accepted := func(from <-chan waited[*Session], at time.Time) SessionLock {
		t.Helper()
		a := <-from
		if a.err != nil || a.got.ID != "x" || !s.near(c.time(), at) {
			t.Fatalf("%v late accepted %+v, %v", c.time().Sub(at), a.got, a.err)
		}
		return a.got.SessionLock
	}
	first, second := accept(1), accept(2)
	c.pass(30 * time.Second) // less than a server waits at once
	begun := c.time()
	sendTo(t, s, q, MessageContent{MessageID: "1", SessionID: "x"})
	x := accepted(first, begun)
	if got, err := s.receive(in(q, x), 1); err != nil || got[0].MessageID != "1" {
		t.Fatalf("received %+v, %v", got, err)
	}
	// A message that arrives later comes to the same receiver, at once.
	later := inBackground(c, s, 2, func() ([]Message, error) { return s.await(in(q, x)) })
	c.pass(3 * time.Second)
	sendTo(t, s, q, MessageContent{MessageID: "2", SessionID: "x"})
	if a := <-later; a.err != nil || len(a.got) != 1 || a.got[0].MessageID != "2" || !s.near(c.time(), begun.Add(3*time.Second)) {
		t.Fatalf("after %v received %+v, %v", c.time().Sub(begun), a.got, a.err)
	}
	if s.Broker.Client { // which would accept the session again by itself
		c.pass(testLock - 3*time.Second)
	} else {
		lost := inBackground(c, s, 2, func() ([]Message, error) { return s.await(in(q, x)) })
		c.pass(testLock - 3*time.Second - time.Millisecond)
		c.awaitReceivers(s, 2)
		c.pass(time.Millisecond)
		if a := <-lost; !errors.Is(a.err, forebay.ErrSessionLockLost) || c.time().Sub(begun) != testLock {
			t.Fatalf("after %v: %v", c.time().Sub(begun), a.err)
		}
	}
	again := accepted(second, begun.Add(testLock))
	third := accept(1)
	s.closeSession(t, q, again)
	last := accepted(third, begun.Add(testLock))
	// Nothing of a session stays in memory once nobody waits for its messages.
	_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *Tx) (struct{}, error) {
		remembered := slices.Concat(slices.Collect(maps.Keys(tx.W.DueAt)), slices.Collect(maps.Keys(tx.W.Waiters)))
		if slices.ContainsFunc(remembered, func(subqueue queue.Subqueue) bool { return subqueue < 0 }) {
			t.Errorf("of the lanes %d something is remembered", remembered)
		}
		for _, l := range []SessionLock{x, again, last} {
			if !s.Broker.Client && tx.W.Tracks(l.subqueue()) {
				t.Errorf("the subqueue %d is heeded", l.subqueue())
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// When the lock of a session ends, so do those of its messages, even if nobody has received them
// since.
func testSessionLockEnds(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{RequiresSession: true})
	sendTo(t, s, q, MessageContent{MessageID: "1", SessionID: "x"})
	x := s.accept(t, q, "x")
	got, err := s.receive(in(q, x.SessionLock), 1)
	mustDo(t, err)
	if _, err := s.Broker.Sessions.Accept(background, q, "x"); !errors.Is(err, forebay.ErrSessionLocked) {
		t.Errorf("a held session: %v", err)
	}
	c.pass(testLock)
	if !s.Broker.Client { // which would accept the session again by itself
		for name, err := range map[string]error{"complete": s.complete(q, got[0].Lock), "abandon": s.abandon(q, got[0].Lock)} {
			if !errors.Is(err, forebay.ErrLockLost) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	again, err := s.Broker.Sessions.AcceptNext(background, q, true)
	if err != nil || again == nil || again.ID != "x" {
		t.Fatal(again, err)
	}
	got, err = s.receive(in(q, again.SessionLock), 1)
	if err != nil || got[0].Deliveries != 2 {
		t.Fatalf("the expired lock counts: %+v, %v", got, err)
	}
	s.closeSession(t, q, again.SessionLock)
	if peeked := peekAll(t, s, q.Subqueue(false)); peeked[0].Deliveries != s.deliveries(1) {
		t.Fatalf("closing does not count: %+v", peeked)
	}
	if _, err := s.Broker.Messages.Send(background, q, []MessageContent{{MessageID: "2"}}); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
		t.Errorf("a message without a session was sent: %v", err)
	}
}

// A session leaves nothing behind once it has neither messages nor a state.
func testSessionsAreForgotten(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{RequiresSession: true})
	rows := func() (n int64) {
		err := s.DB.Read(background, func(c driver.Conn) error {
			_, err := c.Prep("SELECT count(*) FROM sessions").One(func(r driver.Row) { n = r.Int(0) })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i, state := range [][]byte{nil, []byte("kept")} {
		x := s.accept(t, q, "x")
		mustDo(t, s.Broker.Sessions.SetState(background, q, x.SessionLock, state))
		s.closeSession(t, q, x.SessionLock)
		if n := rows(); n != int64(i) {
			t.Errorf("with the state %q %d rows are left", state, n)
		}
	}
	if x := s.accept(t, q, "x"); string(x.State) != "kept" {
		t.Errorf("accepted %+v", x)
	}
}

// Each session has one of many receivers at a time, which gets its messages in order, each once.
func testSessionsInOrder(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{RequiresSession: true})
	sessions, each, most := 20, 10, 3
	if s.Broker.Client {
		sessions, each, most = 6, 4, 1
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	next, busy, left := map[string]int{}, map[string]bool{}, sessions*each
	take := func(session Session) error {
		mu.Lock()
		if busy[session.ID] {
			t.Errorf("session %s has two receivers", session.ID)
		}
		busy[session.ID] = true
		mu.Unlock()
		got, err := s.Broker.Waits.Await(ctx, ReceiveRequest{Queue: q, Session: &session.SessionLock, Max: most, MaxBytes: 1 << 20})
		for _, m := range got {
			mu.Lock()
			if m.SessionID != session.ID || m.MessageID != fmt.Sprint(next[session.ID]) {
				t.Errorf("session %s received %s/%s, expected %d", session.ID, m.SessionID, m.MessageID, next[session.ID])
			}
			next[session.ID]++
			if left--; left == 0 {
				cancel()
			}
			mu.Unlock()
			err = errors.Join(err, s.complete(q, m.Lock))
		}
		mu.Lock()
		busy[session.ID] = false
		mu.Unlock()
		return errors.Join(err, s.Broker.Sessions.Close(background, q, session.SessionLock))
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for {
				session, err := s.Broker.Waits.AwaitSession(ctx, q)
				if err != nil {
					return
				}
				if err := take(*session); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range each {
		var round []MessageContent
		for j := range sessions {
			round = append(round, MessageContent{MessageID: fmt.Sprint(i), SessionID: fmt.Sprint(j)})
		}
		sendTo(t, s, q, round...)
	}
	wg.Wait()
	if left != 0 {
		t.Errorf("%d messages were not received", left)
	}
}

// A queue that is dropped refuses receivers that wait for its sessions and their messages.
func testDropQueueWithSessions(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{RequiresSession: true})
	x := s.accept(t, q, "x")
	next := inBackground(c, s, 1, func() (*Session, error) { return s.awaitSession(q) })
	message := inBackground(c, s, 2, func() ([]Message, error) {
		return s.await(in(q, x.SessionLock))
	})
	if dropped, err := s.Bus.DropMessageQueue(t.Context(), q); err != nil || !dropped {
		t.Fatal(dropped, err)
	}
	for _, err := range []error{(<-next).err, (<-message).err} {
		if forebay.CodeOf(err) != forebay.CodeUnknownQueue {
			t.Errorf("a receiver got %v", err)
		}
	}
	if err := s.Bus.PurgeDropped(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (bool, error) { return t.any("SELECT 1 FROM sessions") }); err != nil || left {
		t.Errorf("sessions are left (%v)", err)
	}
}

// BenchmarkSessions accepts, drains and closes sessions of a queue that holds ten thousand.
func BenchmarkSessions(b *testing.B) {
	s, q := openQueue(b, filepath.Join(b.TempDir(), "f.db"), MessageQueue{RequiresSession: true})
	defer s.DB.Close()
	const sessions = 10_000
	for i := 0; i < sessions; i += 100 {
		var messages []MessageContent
		for j := range 100 {
			messages = append(messages, MessageContent{MessageID: "m", SessionID: fmt.Sprint(i + j), Body: make([]byte, 1024)})
		}
		sendTo(b, s, q, messages...)
	}
	b.ReportAllocs()
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			x, err := s.Bus.Sessions().AcceptNext(context.Background(), q, true)
			if err != nil {
				b.Error(err)
				return
			}
			got, err := s.Bus.Receive(background, ReceiveRequest{Queue: q, Session: &x.SessionLock, Max: 5, MaxBytes: 1 << 20})
			if err != nil {
				b.Error(err)
				return
			}
			for _, m := range got {
				if err := s.Bus.Complete(background, q.Subqueue(false), m.Lock); err != nil {
					b.Error(err)
				}
			}
			if _, err := s.Bus.Send(background, q, []MessageContent{{MessageID: "m", SessionID: x.ID, Body: make([]byte, 1024)}}); err != nil {
				b.Error(err)
			}
			if err := s.Bus.Sessions().Close(background, q, x.SessionLock); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sessions/s")
}

// A list of sessions shows those that have messages, a state or a receiver, page by page.
func testSessionsAreListed(t *testing.T, s *stores, _ *clock) {
	q, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: 1, Name: "t/q", Lock: testLock, MaxDeliveries: 10, RequiresSession: true}, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c", "e"} {
		sendTo(t, s, q, MessageContent{MessageID: "m", SessionID: id})
	}
	s.accept(t, q, "b") // stays locked
	mustDo(t, s.Broker.Sessions.SetState(background, q, s.accept(t, q, "d").SessionLock, []byte("four")))
	e := s.accept(t, q, "e").SessionLock // has nothing after this
	got, err := s.receive(in(q, e), 1)
	mustDo(t, err)
	mustDo(t, s.complete(q, got[0].Lock))
	s.closeSession(t, q, e)
	if ids, err := s.Broker.Sessions.Used(background, q); err != nil || !slices.Equal(ids, []string{"a", "b", "c", "d"}) {
		t.Errorf("sessions with messages or a state are %q (%v)", ids, err)
	}
	var all []entity.SessionRow
	for after, more := "", true; more; {
		page, err := s.Bus.Sessions().ListSessions(t.Context(), q, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		if more = len(page) == 2; more {
			after = page[1].ID
		}
	}
	var shown []string
	for _, s := range all {
		shown = append(shown, fmt.Sprintf("%s %t %t %d", s.ID, s.HasMessages, s.LockedUntil != nil, s.StateBytes))
	}
	if want := []string{"a true false 0", "b true true 0", "c true false 0", "d false true 4"}; !slices.Equal(shown, want) {
		t.Errorf("sessions are %q, expected %q", shown, want)
	}
}
