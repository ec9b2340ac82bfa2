package bus

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/raced"
)

func openMessages(t testing.TB, path string) (*stores, MessageQueue) {
	t.Helper()
	return openQueue(t, path, MessageQueue{MaxDeliveries: 1})
}

func sendBodies(t testing.TB, s *stores, q MessageQueue, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if _, err := s.Broker.Messages.Send(background, q, []MessageContent{{MessageID: "m", Body: []byte(body)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// Receivers wait in the store for a send and for the end of a lock. In the dead-letter subqueue
// they wait for a message whose deliveries run out while another receiver is served.
func testReceiversAreWoken(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{MaxDeliveries: 1})
	wait := func(deadLetter bool, receivers int) <-chan waited[[]Message] {
		return inBackground(c, s, receivers, func() ([]Message, error) {
			return s.await(ReceiveRequest{Queue: q, DeadLetter: deadLetter, Max: 1, MaxBytes: 1 << 20})
		})
	}
	first, dead := wait(false, 1), wait(true, 2)
	c.pass(time.Minute)
	begun := c.time()
	sendBodies(t, s, q, "poison")
	if a := <-first; a.err != nil || len(a.got) != 1 || string(a.got[0].Body) != "poison" || !s.near(c.time(), begun) {
		t.Fatalf("the sent message woke its receiver %v late: %+v, %v", c.time().Sub(begun), a.got, a.err)
	}
	second := wait(false, 2) // has nothing to get: the message's one delivery is spent
	c.pass(testLock - s.moment())
	c.awaitReceivers(s, 2)
	c.pass(s.moment())
	if a := <-dead; a.err != nil || len(a.got) != 1 || a.got[0].DeadLetterReason != forebay.ReasonMaxDeliveries || !s.near(c.time(), begun.Add(testLock)) {
		t.Fatalf("the dead-letter receiver got %+v after %v, %v", a.got, c.time().Sub(begun), a.err)
	}
	sendBodies(t, s, q, "sweet")
	if a := <-second; a.err != nil || len(a.got) != 1 || string(a.got[0].Body) != "sweet" {
		t.Fatalf("the second receiver got %+v, %v", a.got, a.err)
	}
}

func testReceiversThatGiveUpLeaveNothing(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{MaxDeliveries: 1})
	gone, cancel := context.WithCancel(context.Background())
	for range 200 {
		waiting, stop := context.WithTimeout(gone, time.Millisecond)
		if _, err := s.Bus.Receive(waiting, ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1, Wait: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		stop()
		if got, err := s.Bus.Receive(gone, ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1}); err != nil || got != nil {
			t.Fatal(got, err)
		}
	}
	cancel()
	if err := s.DB.Close(); err != nil { // the writer has stopped: its memory can be read
		t.Fatal(err)
	}
	if n := len(Key.In(s.DB.Writer).Waiters[q.Subqueue(false)]); n > 20 {
		t.Errorf("%d receivers are remembered that have gone", n)
	}
	if n := len(Key.In(s.DB.Writer).noWait); n != 0 {
		t.Errorf("%d impatient receivers are remembered", n)
	}
}

// A receive stops before the message that would make it too large, but always delivers one.
// Messages that are dead-lettered on the way do not count.
func testReceiveIsBoundedInBytes(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{MaxDeliveries: 1})
	receive := func() (bodies []string) {
		got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 10, MaxBytes: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got {
			bodies = append(bodies, string(m.Body))
		}
		return bodies
	}
	sendBodies(t, s, q, "larger than ten bytes")
	if got := fmt.Sprint(receive()); got != "[larger than ten bytes]" {
		t.Errorf("received %s", got)
	}
	sendBodies(t, s, q, "1234", "5678", "9") // and a byte of message id each
	if got := fmt.Sprint(receive()); got != "[1234 5678]" {
		t.Errorf("received %s", got)
	}
	if got := fmt.Sprint(receive()); got != "[9]" {
		t.Errorf("received %s", got)
	}
	c.pass(testLock) // all are spent now
	sendBodies(t, s, q, "abcd")
	if got := fmt.Sprint(receive()); got != "[abcd]" {
		t.Errorf("received %s", got)
	}
}

// Receivers of a queue that is dropped end, and nothing more is sent to it.
func testDroppedQueue(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{})
	sendBodies(t, s, q, "a", "b")
	receiveOne(t, s, q)
	waiting := inBackground(c, s, 1, func() ([]Message, error) { return s.await(deadOne(q)) })
	if dropped, err := s.Bus.DropMessageQueue(t.Context(), q); err != nil || !dropped {
		t.Fatal(dropped, err)
	}
	if a := <-waiting; forebay.CodeOf(a.err) != forebay.CodeUnknownQueue {
		t.Errorf("the waiting receiver got %v", a.err)
	}
	if _, err := s.Broker.Messages.Send(background, q, []MessageContent{{MessageID: "m"}}); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("sending to a dropped queue: %v", err)
	}
}

// Who remembers a queue that was dropped is refused at once, and gets nothing of what it held.
func testAQueueThatIsGone(t *testing.T, s *stores, _ *clock) {
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	q, sessions := putQueues(t, s)
	sendTo(t, s, q, content("1", 1), content("2", 1))
	deferred := receiveOne(t, s, q)
	mustDo(t, s.postpone(q, deferred.Lock))
	m := content("3", 1)
	m.SessionID = "x"
	sendTo(t, s, sessions, m)
	held, err := s.Bus.Sessions().Accept(ctx, sessions, "y")
	mustDo(t, err)
	inSession := func(wait bool) error {
		r := waitingOne(sessions, false, wait)
		r.Session = &held.SessionLock
		_, err := s.Bus.Receive(ctx, r)
		if errors.Is(err, forebay.ErrSessionLockLost) { // it is removed by now
			return entity.ErrNoQueue
		}
		return err
	}
	for _, gone := range []MessageQueue{q, sessions} {
		_, err := s.Bus.DropMessageQueue(ctx, gone)
		mustDo(t, err)
	}
	for what, receive := range map[string]func(wait bool) error{
		"a message":          func(wait bool) error { _, err := s.Bus.Receive(ctx, waitingOne(q, false, wait)); return err },
		"a dead letter":      func(wait bool) error { _, err := s.Bus.Receive(ctx, waitingOne(q, true, wait)); return err },
		"a deferred message": func(bool) error { _, err := s.Bus.ReceiveDeferred(ctx, one(q), []int64{deferred.Seq}); return err },
		"the next session":   func(wait bool) error { _, err := s.Bus.Sessions().AcceptNext(ctx, sessions, wait); return err },
		"one of a session":   inSession,
		"a session":          func(bool) error { _, err := s.Bus.Sessions().Accept(ctx, sessions, "x"); return err },
	} {
		for _, wait := range []bool{false, true} {
			if err := receive(wait); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
				t.Errorf("%s, waiting %t: %v", what, wait, err)
			}
		}
	}
}

func waitingOne(q MessageQueue, dead, wait bool) ReceiveRequest {
	r := one(q)
	r.DeadLetter, r.Wait = dead, wait
	return r
}

func testDropMessageQueue(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{MaxDeliveries: 1})
	ctx := t.Context()
	for range 3 {
		if _, err := s.Bus.Send(ctx, q, make([]MessageContent, 400)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: q, Max: 10, MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if dropped, err := s.Bus.DropMessageQueue(ctx, q); err != nil || !dropped {
		t.Fatal(dropped, err)
	}
	if dropped, err := s.Bus.DropMessageQueue(ctx, q); err != nil || dropped {
		t.Error("dropped twice", err)
	}
	// The process stops before it could purge. The next process does.
	if err := s.DB.Close(); err != nil {
		t.Fatal(err)
	}
	s = c.Reopen(t)
	t.Cleanup(func() { s.DB.Close() })
	c.stores[0] = s
	again := putQueue(t, s, MessageQueue{MaxDeliveries: 1})
	c.quiet()
	if again.No <= q.No {
		t.Errorf("the number %d was given again", again.No)
	}
	var left int64
	err := s.DB.Read(ctx, func(c driver.Conn) error {
		_, err := c.Prep("SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM bodies)").One(func(r driver.Row) { left = r.Int(0) })
		return err
	})
	if err != nil || left != 0 {
		t.Errorf("%d rows are left (%v)", left, err)
	}
}

func testMessageQueueLimit(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{MaxDeliveries: 1})
	put := func(tenant int64, name string) error {
		_, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: tenant, Name: name, Lock: time.Second, MaxDeliveries: 2}, 1)
		return err
	}
	if err := put(1, "t/another"); forebay.CodeOf(err) != forebay.CodeConflict {
		t.Errorf("one too many: %v", err)
	}
	if err := put(1, "t/q"); err != nil {
		t.Errorf("an existing one: %v", err)
	}
	if err := put(2, "u/q"); err != nil {
		t.Errorf("another tenant's: %v", err)
	}
	got, found, err := s.Bus.MessageQueue(t.Context(), "t/q")
	if err != nil || !found || got.No != q.No || got.Lock != time.Second || got.MaxDeliveries != 2 || !got.CreatedAt.Equal(q.CreatedAt) {
		t.Errorf("stored %+v (%v)", got, err)
	}
}

// Each message goes to exactly one of many receivers.
func testConcurrentReceivers(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{MaxDeliveries: 1})
	messages, most := 1000, 7
	if s.Broker.Client { // what is on its way to a link that closes stays locked
		messages, most = 100, 1
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	seen := map[int64]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				got, err := s.Broker.Waits.Await(ctx, ReceiveRequest{Queue: q, Max: most, MaxBytes: 1 << 20})
				if err != nil {
					return
				}
				for _, m := range got {
					if err := s.complete(q, m.Lock); err != nil {
						t.Error(err)
					}
					mu.Lock()
					seen[m.Seq]++
					done := len(seen) == messages
					mu.Unlock()
					if done {
						cancel()
					}
				}
			}
		})
	}
	for range messages / 20 {
		sendTo(t, s, q, make([]MessageContent, 20)...)
	}
	wg.Wait()
	if len(seen) != messages {
		t.Errorf("%d messages were received", len(seen))
	}
	for seq, n := range seen {
		if n != 1 {
			t.Errorf("message %d was received %d times", seq, n)
		}
	}
}

// BenchmarkMessageLife is the full life of a 1 KiB message: send, receive, complete.
func BenchmarkMessageLife(b *testing.B) {
	s, q := openMessages(b, filepath.Join(b.TempDir(), "f.db"))
	defer s.DB.Close()
	content := []MessageContent{{MessageID: "m", Body: make([]byte, 1024)}}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	work := make(chan struct{}, b.N)
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	var left sync.WaitGroup
	left.Add(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for range 64 {
		go func() {
			for range work {
				if _, err := s.Bus.Send(ctx, q, content); err != nil {
					b.Error(err)
				}
			}
		}()
		go func() {
			for {
				got, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20, Wait: true})
				if err != nil {
					return
				}
				for _, m := range got {
					if err := s.Bus.Complete(ctx, q.Subqueue(false), m.Lock); err != nil {
						b.Error(err)
					}
					left.Done()
				}
			}
		}()
	}
	left.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// The statements on messages use an index; none scans a table or sorts.
func TestMessageQueryPlans(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	s, _ := openMessages(t, filepath.Join(t.TempDir(), "f.db"))
	defer s.DB.Close()
	for _, sql := range []string{sqlReadyMessages, sqlDeferredMessage, sqlPeek, sqlHeld, sqlUnlock, entity.SQLNumbered, entity.SQLNamed, entity.SQLOfTenant, entity.SQLMessagesDue, entity.SQLLaterDueMessage, entity.SQLLaterForget, entity.SQLForgetsMore, entity.SQLLaterDueQueue, entity.SQLLaterIdleQueue, sqlNextSessions, sqlNamedSession, sqlSessionHolder, sqlCloseSession, sqlContentsOfSession, sqlReadyInSession, sqlHeldOfSession, sqlNextOfQueue, entity.SQLOldest} {
		err := s.DB.Read(t.Context(), func(c driver.Conn) error {
			err := c.Prep("EXPLAIN QUERY PLAN " + sql).Each(func(r driver.Row) error {
				if step := r.Text(3); strings.HasPrefix(step, "SCAN ") || strings.HasPrefix(step, "USE TEMP B-TREE") {
					t.Errorf("%s\n  in %s", step, sql)
				}
				return nil
			})
			return err
		})
		if err != nil {
			t.Errorf("%v: %.100s", err, sql)
		}
	}
}

// Deleting the oldest messages skips any number of held ones.
func testDeleteBeyondLocked(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{MaxDeliveries: 1})
	const held, free = entity.OldestAtOnce + 50, 30
	sendTo(t, s, q, make([]MessageContent, held+free)...)
	if got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: held, MaxBytes: 1 << 30}); err != nil || len(got) != held {
		t.Fatalf("received %d: %v", len(got), err)
	}
	for _, want := range []int{20, free - 20, 0} {
		if n, err := s.Bus.DeleteBefore(t.Context(), q.Subqueue(false), c.time().Add(time.Hour), 20); err != nil || n != want {
			t.Errorf("removed %d, expected %d: %v", n, want, err)
		}
	}
	if left, _, _, err := s.Bus.Peek(t.Context(), PeekQuery{Subqueue: q.Subqueue(false), Limit: held + free, MaxBytes: 1 << 30, AtLeast: 1}); err != nil || len(left) != held {
		t.Errorf("%d messages are left: %v", len(left), err)
	}
}

// The first of many sessions that became ready at the same time is found in an index, without a
// sort.
func TestSessionQueryPlansOnPostgres(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	s, err := openStores(t.Context(), db.Options{URL: dbtest.Postgres(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	for sql, parameters := range map[string]int{sqlNextSessions: 6, sqlNamedSession: 4, sqlCloseSession: 6, sqlReadyInSession: 7} {
		var plan strings.Builder
		err := s.DB.Read(t.Context(), func(c driver.Conn) error {
			st := c.Prep("EXPLAIN (COSTS OFF) " + sql)
			for n := range parameters {
				if n == 3 && sql == sqlNamedSession {
					st = st.Text("a")
				} else {
					st = st.Int(int64(n))
				}
			}
			return st.Each(func(r driver.Row) error { plan.WriteString(r.Text(0) + "\n"); return nil })
		})
		if err != nil || strings.Contains(plan.String(), "Sort") || strings.Contains(plan.String(), "Seq Scan") || !strings.Contains(plan.String(), "Index") {
			t.Errorf("%v: plan of%s\n%s", err, sql, &plan)
		}
	}
}

// A queue may be dropped in the very transaction that serves a receiver of it.
func testDropWhileReceiving(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{MaxDeliveries: 1})
	sendBodies(t, s, q, "a", "b")
	hold, held := make(chan struct{}), make(chan struct{})
	go func() {
		_, err := db.Transact(context.Background(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(*db.Tx) (struct{}, error) {
			close(held)
			<-hold
			return struct{}{}, nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	<-held
	done := make(chan error, 2)
	go func() {
		_, err := s.Bus.Receive(context.Background(), ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20})
		done <- err
	}()
	go func() {
		_, err := s.Bus.DropMessageQueue(context.Background(), q)
		done <- err
	}()
	for len(s.DB.Writer.Ops) < 1 || len(s.DB.Writer.Visits) < 1 {
		runtime.Gosched()
	}
	close(hold)
	for range 2 {
		<-done // either may come too late, but the writer lives on
	}
	if err := s.DB.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A queue for jobs that is created after queues of messages gets a number of its own, also after
// one was deleted.
func TestQueueNumbersAreNotGivenTwice(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e dbtest.Outside[*stores]) {
		s := e.Open()
		tenant, err := s.Queues.EnsureTenant(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		given := map[int64]bool{}
		for i := range 6 {
			q, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: tenant, Name: fmt.Sprintf("a/q%d", i), Lock: time.Minute, MaxDeliveries: 1}, 10)
			if err == nil && i%2 == 1 {
				_, err = s.Bus.DropMessageQueue(t.Context(), q)
				err = errors.Join(err, s.Bus.PurgeDropped(t.Context()))
			}
			if err != nil {
				t.Fatal(err)
			}
			no, err := s.Queues.EnsureQueue(t.Context(), fmt.Sprintf("jobs%d", i))
			if err != nil {
				t.Fatal(err)
			}
			if given[q.No] || given[no] || q.No == no {
				t.Fatalf("the numbers %d and %d, after %v", q.No, no, given)
			}
			given[q.No], given[no] = true, true
		}
	})
}

// A page that was cut because of its bytes is read again, in a turn. Others are not.
func TestPeekSaysWhyAPageEnded(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		q := putQueue(t, s, MessageQueue{MaxDeliveries: 1})
		for range 11 {
			sendTo(t, s, q, slices.Repeat([]MessageContent{{MessageID: "m", Body: make([]byte, 1000)}}, 100)...)
		}
		all := PeekQuery{Subqueue: q.Subqueue(false), Limit: 10, MaxBytes: 1 << 30}
		few, bytes, last, rare := all, all, all, all
		few.Limit, bytes.MaxBytes, last.Limit, rare.Reason = 3, 5000, 2000, "rare"
		for name, c := range map[string]struct {
			q         PeekQuery
			n         int
			more, cut bool
		}{"its limit": {few, 3, true, false}, "its bytes": {bytes, 4, true, true}, "the end": {last, 1100, false, false}, "a scan of many": {rare, 0, true, false}} {
			got, next, cut, err := s.Bus.Peek(t.Context(), c.q)
			if err != nil || len(got) != c.n || next != 0 != c.more || cut != c.cut {
				t.Errorf("%s: %d messages, next %d, cut %v (%v)", name, len(got), next, cut, err)
			}
		}
	})
}
