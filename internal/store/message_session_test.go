package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
)

// openQueue returns a new store with one queue of these settings.
func openQueue(t testing.TB, path string, q MessageQueue) (*Store, MessageQueue) {
	t.Helper()
	s, err := Open(background, Options{Path: path, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	q.Tenant, q.Name, q.Lock, q.MaxDeliveries = 1, "t/q", testLock, testMaxDeliveries
	stored, _, err := s.PutMessageQueue(background, q, 10)
	if err != nil {
		t.Fatal(err)
	}
	return s, stored
}

func sendTo(t testing.TB, s *Store, q MessageQueue, messages ...MessageContent) []int64 {
	t.Helper()
	seqs, err := s.Send(background, q, messages)
	if err != nil {
		t.Fatal(err)
	}
	return seqs
}

// Who waits for a session, or for messages of one, is woken: by a send, by a closed session, by the end
// of a lock. A receiver whose session is lost learns it.
func TestSessionReceiversAreWoken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		s, q := openQueue(t, path, MessageQueue{RequiresSession: true})
		defer s.Close()
		accept := func() <-chan Session {
			c := make(chan Session, 1)
			go func() {
				if got, err := s.AcceptNextSession(t.Context(), q, true); err != nil {
					t.Error(err)
				} else {
					c <- *got
				}
			}()
			synctest.Wait()
			return c
		}
		receive := func(l SessionLock) ([]Message, error) {
			return s.Receive(t.Context(), ReceiveRequest{Queue: q, Session: &l, Max: 5, MaxBytes: 1 << 20, Wait: true})
		}
		first, second := accept(), accept()
		<-time.After(time.Minute)
		sendTo(t, s, q, MessageContent{MessageID: "1", SessionID: "x"})
		begun, x := time.Now(), <-first
		if x.ID != "x" || time.Now() != begun {
			t.Fatalf("after %v accepted %+v", time.Since(begun), x)
		}
		if got, err := receive(x.SessionLock); err != nil || len(got) != 1 || got[0].MessageID != "1" {
			t.Fatalf("received %+v, %v", got, err)
		}
		// A message that arrives later comes to the same receiver, at once.
		go func() {
			<-time.After(3 * time.Second)
			sendTo(t, s, q, MessageContent{MessageID: "2", SessionID: "x"})
		}()
		if got, err := receive(x.SessionLock); err != nil || len(got) != 1 || got[0].MessageID != "2" || time.Since(begun) != 3*time.Second {
			t.Fatalf("after %v received %+v, %v", time.Since(begun), got, err)
		}
		if _, err := receive(x.SessionLock); !errors.Is(err, forebay.ErrSessionLockLost) || time.Since(begun) != testLock {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		again := <-second
		if again.ID != "x" || time.Since(begun) != testLock {
			t.Fatalf("after %v accepted %+v", time.Since(begun), again)
		}
		third := accept()
		if err := s.CloseSession(t.Context(), q, again.SessionLock); err != nil {
			t.Fatal(err)
		}
		if got := <-third; got.ID != "x" || time.Since(begun) != testLock {
			t.Fatalf("after %v accepted %+v", time.Since(begun), got)
		}
		// Nothing of a session stays in memory once nobody waits for its messages.
		_, err := transact(t.Context(), s, stageChange, func(tx *tx) (struct{}, error) {
			remembered := slices.Concat(slices.Collect(maps.Keys(tx.w.dueAt)), slices.Collect(maps.Keys(tx.w.lines)), slices.Collect(maps.Keys(tx.w.parked)))
			if slices.ContainsFunc(remembered, func(lane int64) bool { return lane < 0 }) {
				t.Errorf("of the lanes %d something is remembered", remembered)
			}
			return struct{}{}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// With the lock of a session end those of its messages, though nobody has received them since.
func TestSessionLockEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		s, q := openQueue(t, path, MessageQueue{RequiresSession: true})
		defer s.Close()
		sendTo(t, s, q, MessageContent{MessageID: "1", SessionID: "x"})
		x, err := s.AcceptSession(t.Context(), q, "x")
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Receive(t.Context(), ReceiveRequest{Queue: q, Session: &x.SessionLock, Max: 5, MaxBytes: 1 << 20})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if _, err := s.AcceptSession(t.Context(), q, "x"); !errors.Is(err, forebay.ErrSessionLocked) {
			t.Errorf("a held session: %v", err)
		}
		<-time.After(testLock)
		for name, err := range map[string]error{
			"complete": s.Complete(t.Context(), q.Lane(false), got[0].Lock), "abandon": s.Abandon(t.Context(), q, q.Lane(false), got[0].Lock, nil),
		} {
			if !errors.Is(err, forebay.ErrLockLost) {
				t.Errorf("%s: %v", name, err)
			}
		}
		again, err := s.AcceptNextSession(t.Context(), q, false)
		if err != nil || again == nil || again.ID != "x" {
			t.Fatal(again, err)
		}
		got, err = s.Receive(t.Context(), ReceiveRequest{Queue: q, Session: &again.SessionLock, Max: 5, MaxBytes: 1 << 20})
		if err != nil || len(got) != 1 || got[0].Deliveries != 2 {
			t.Fatalf("the expired lock counts: %+v, %v", got, err)
		}
		if err := s.CloseSession(t.Context(), q, again.SessionLock); err != nil {
			t.Fatal(err)
		}
		if peeked, _, err := s.Peek(t.Context(), q.Lane(false), 1, 1, 1<<20); err != nil || peeked[0].Deliveries != 1 {
			t.Fatalf("closing does not count: %+v, %v", peeked, err)
		}
		if _, err := s.Send(t.Context(), q, []MessageContent{{MessageID: "2"}}); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("a message without a session was sent: %v", err)
		}
	})
}

// A session leaves nothing behind once it has neither messages nor a state.
func TestSessionsAreForgotten(t *testing.T) {
	s, q := openQueue(t, filepath.Join(t.TempDir(), "f.db"), MessageQueue{RequiresSession: true})
	defer s.Close()
	rows := func() (n int64) {
		err := s.read(background, func(c conn) error {
			_, err := c.prep("SELECT count(*) FROM sessions").one(func(r row) { n = r.int(0) })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i, state := range [][]byte{nil, []byte("kept")} {
		x, err := s.AcceptSession(background, q, "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetSessionState(background, q, x.SessionLock, state); err != nil {
			t.Fatal(err)
		}
		if err := s.CloseSession(background, q, x.SessionLock); err != nil {
			t.Fatal(err)
		}
		if n := rows(); n != int64(i) {
			t.Errorf("with the state %q %d rows are left", state, n)
		}
	}
	if x, err := s.AcceptSession(background, q, "x"); err != nil || string(x.State) != "kept" {
		t.Errorf("accepted %+v, %v", x, err)
	}
}

// Of many receivers each session has one at a time, which gets its messages in order, each once.
func TestSessionsInOrder(t *testing.T) {
	s, q := openQueue(t, filepath.Join(t.TempDir(), "f.db"), MessageQueue{RequiresSession: true})
	defer s.Close()
	const sessions, each = 30, 20
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
		got, err := s.Receive(ctx, ReceiveRequest{Queue: q, Session: &session.SessionLock, Max: 3, MaxBytes: 1 << 20})
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
			err = errors.Join(err, s.Complete(background, q.Lane(false), m.Lock))
		}
		mu.Lock()
		busy[session.ID] = false
		mu.Unlock()
		return errors.Join(err, s.CloseSession(background, q, session.SessionLock))
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for {
				session, err := s.AcceptNextSession(ctx, q, true)
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
		for j := range sessions {
			sendTo(t, s, q, MessageContent{MessageID: fmt.Sprint(i), SessionID: fmt.Sprint(j)})
		}
	}
	wg.Wait()
	if left != 0 {
		t.Errorf("%d messages were not received", left)
	}
}

// A queue that is dropped turns away who waits for its sessions and their messages.
func TestDropQueueWithSessions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		s, q := openQueue(t, path, MessageQueue{RequiresSession: true})
		defer s.Close()
		x, err := s.AcceptSession(t.Context(), q, "x")
		if err != nil {
			t.Fatal(err)
		}
		turned := make(chan error, 2)
		go func() {
			_, err := s.AcceptNextSession(t.Context(), q, true)
			turned <- err
		}()
		go func() {
			_, err := s.Receive(t.Context(), ReceiveRequest{Queue: q, Session: &x.SessionLock, Max: 1, MaxBytes: 1, Wait: true})
			turned <- err
		}()
		synctest.Wait()
		if dropped, err := s.DropMessageQueue(t.Context(), q); err != nil || !dropped {
			t.Fatal(dropped, err)
		}
		for range 2 {
			if err := <-turned; forebay.CodeOf(err) != forebay.CodeUnknownQueue {
				t.Errorf("a receiver was told %v", err)
			}
		}
		if err := s.PurgeDropped(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := transact(t.Context(), s, stageChange, func(t *tx) (bool, error) { return t.any("SELECT 1 FROM sessions") }); err != nil || left {
			t.Errorf("sessions are left (%v)", err)
		}
	})
}

// BenchmarkSessions accepts, drains and closes sessions of a queue that holds ten thousand.
func BenchmarkSessions(b *testing.B) {
	s, q := openQueue(b, filepath.Join(b.TempDir(), "f.db"), MessageQueue{RequiresSession: true})
	defer s.Close()
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
			x, err := s.AcceptNextSession(context.Background(), q, true)
			if err != nil {
				b.Error(err)
				return
			}
			got, err := s.Receive(background, ReceiveRequest{Queue: q, Session: &x.SessionLock, Max: 5, MaxBytes: 1 << 20})
			if err != nil {
				b.Error(err)
				return
			}
			for _, m := range got {
				if err := s.Complete(background, q.Lane(false), m.Lock); err != nil {
					b.Error(err)
				}
			}
			if _, err := s.Send(background, q, []MessageContent{{MessageID: "m", SessionID: x.ID, Body: make([]byte, 1024)}}); err != nil {
				b.Error(err)
			}
			if err := s.CloseSession(background, q, x.SessionLock); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sessions/s")
}

// A list of sessions shows those that have messages, a state or a receiver, page by page.
func TestSessionsAreListed(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		q, _, err := s.PutMessageQueue(t.Context(), MessageQueue{Tenant: 1, Name: "t/q", Lock: testLock, MaxDeliveries: 10, RequiresSession: true}, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b", "c", "e"} {
			sendTo(t, s, q, MessageContent{MessageID: "m", SessionID: id})
		}
		accept := func(id string) SessionLock {
			session, err := s.AcceptSession(t.Context(), q, id)
			if err != nil {
				t.Fatal(err)
			}
			return session.SessionLock
		}
		accept("b") // stays locked
		if err := s.SetSessionState(t.Context(), q, accept("d"), []byte("four")); err != nil {
			t.Fatal(err)
		}
		e := accept("e") // has nothing after this
		if got, err := s.Receive(t.Context(), ReceiveRequest{Queue: q, Session: &e, Max: 1, MaxBytes: 1, Delete: true}); err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if err := s.CloseSession(t.Context(), q, e); err != nil {
			t.Fatal(err)
		}
		var all []SessionRow
		for after, more := "", true; more; {
			page, err := s.Sessions(t.Context(), q, after, 2)
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
	})
}
