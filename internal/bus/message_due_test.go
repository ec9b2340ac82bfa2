package bus

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// A message whose time ends while it is locked expires when it is given back, not before.
func testExpiryWaitsForTheLock(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{DeadLetterExpired: true, DefaultTTL: time.Second})
	for _, how := range []string{"abandon", "undeliver", "lock end"} {
		if how == "undeliver" && s.Broker.Client {
			continue // the SDK does so by itself, with what it does not want
		}
		sendTo(t, s, q, MessageContent{MessageID: how, TTL: time.Hour}) // capped by the default
		got, err := s.receive(one(q), 1)
		mustDo(t, err)
		c.pass(5 * time.Second)
		if c, err := s.Bus.MessageCounts(t.Context(), q, entity.CountLimit); err != nil || c.Locked != 1 {
			t.Fatalf("%s: a locked message expired: %+v, %v", how, c, err)
		}
		switch how {
		case "abandon":
			err = s.abandon(q, got[0].Lock)
		case "undeliver":
			err = s.Bus.Undeliver(t.Context(), q.Subqueue(false), []queue.Lock{got[0].Lock})
		default:
			c.pass(testLock)
		}
		c.quiet()
		if err != nil {
			t.Fatal(err)
		}
		dead, err := s.receive(ReceiveRequest{Queue: q, DeadLetter: true, Max: 1, MaxBytes: 1 << 20, Delete: true}, 1)
		if err != nil || dead[0].DeadLetterReason != forebay.ReasonExpired || dead[0].MessageID != how {
			t.Fatalf("%s: dead-lettered %+v, %v", how, dead, err)
		}
	}
}

// The same holds for deferred messages, also of a session, and for messages that expired before
// their lock ended. A message that its receiver deferred again stays.
func testTheLastLockOfADeferredMessageEnds(t *testing.T, s *stores, c *clock) {
	d := idleQueues{t, c, s}
	plain := d.put("t/plain", func(q *MessageQueue) { q.Idle, q.MaxDeliveries = 0, 2 })
	session := d.put("t/session", func(q *MessageQueue) { q.Idle, q.MaxDeliveries, q.RequiresSession = 0, 2, true })
	deferred := func(q MessageQueue, l *SessionLock, want int) (locks []Message) {
		d.Helper()
		req := ReceiveRequest{Queue: q, Session: l, Max: want, MaxBytes: 1 << 20}
		got, err := d.s.receive(req, want)
		mustDo(d, err)
		var seqs []int64
		for _, m := range got {
			mustDo(d, d.s.postpone(q, m.Lock))
			seqs = append(seqs, m.Seq)
		}
		locks, err = d.s.receiveDeferred(req, seqs...)
		if err != nil || len(locks) != want {
			d.Fatal(locks, err)
		}
		return locks
	}
	sendTo(d, d.s, plain, MessageContent{MessageID: "m"}, MessageContent{MessageID: "n", TTL: time.Minute}, MessageContent{MessageID: "stays"})
	sendTo(d, d.s, session, MessageContent{MessageID: "m", SessionID: "x"})
	held := deferred(plain, nil, 3)
	lock := d.s.accept(d, session, "x")
	deferred(session, &lock.SessionLock, 1)
	d.minutes(4)
	mustDo(d, d.s.renew(plain, held[0].Lock, 5*time.Minute))
	mustDo(d, d.s.postpone(plain, held[2].Lock))
	for _, want := range []struct{ plain, session string }{{"", ""}, {"n", "m"}, {"n", "m"}, {"n m", "m"}} {
		for q, want := range map[MessageQueue]string{plain: want.plain, session: want.session} {
			var ids []string
			for _, m := range peekAll(d, d.s, q.Subqueue(true)) {
				if ids = append(ids, m.MessageID); m.DeadLetterReason != forebay.ReasonMaxDeliveries || m.Deliveries != d.s.deliveries(2) || m.LockedUntil != nil {
					d.Errorf("%s: dead-lettered %+v", q.Name, m)
				}
			}
			slices.Sort(ids)
			expected := strings.Fields(want)
			slices.Sort(expected)
			if !slices.Equal(ids, expected) {
				d.Errorf("%s: dead-lettered %v, expected %v", q.Name, ids, expected)
			}
		}
		d.minutes(2)
	}
	if c := d.s.counts(d, plain); c.Deferred != 1 || c.Locked != 0 || c.DeadLetter != 2 {
		d.Errorf("%+v", c)
	}
}

// A message becomes active when its time comes, without any call, and wakes waiting receivers.
func testActivationWakes(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{})
	at := c.time().Add(time.Hour)
	seqs := sendTo(t, s, q, MessageContent{MessageID: "later", ScheduledAt: &at, TTL: time.Minute}, MessageContent{MessageID: "cancelled", ScheduledAt: &at})
	for _, want := range []bool{true, false} {
		if cancelled, err := s.cancel(q, seqs[1]); err != nil || cancelled != want {
			t.Fatal(cancelled, err)
		}
	}
	active := inBackground(c, s, 1, func() ([]Message, error) {
		return s.await(one(q))
	})
	c.pass(time.Hour - s.moment())
	c.awaitReceivers(s, 1)
	c.pass(s.moment())
	a := <-active
	if a.err != nil || len(a.got) != 1 || !s.near(c.time(), at) {
		t.Fatalf("received %+v at %v, %v", a.got, c.time(), a.err)
	}
	m := a.got[0]
	if m.Seq <= seqs[1] || m.EnqueuedSeq != seqs[0] || !m.EnqueuedAt.Equal(at) {
		t.Fatalf("activated %+v", m)
	}
	if !s.Broker.Client && (!m.ExpiresAt.Equal(at.Add(time.Minute)) || !m.ScheduledAt.Equal(at)) {
		t.Fatalf("activated %+v", m)
	}
	if cancelled, err := s.cancel(q, m.Seq); err != nil || cancelled {
		t.Fatal("an active message was cancelled", err)
	}
}

// Many messages that are due at once are activated in the order of their numbers, batch by batch.
func testManyAreActivated(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{})
	at := c.time().Add(time.Minute)
	messages := make([]MessageContent, 3*dueBatch)
	for i := range messages {
		messages[i] = MessageContent{MessageID: "m", ScheduledAt: &at}
	}
	sendTo(t, s, q, messages...)
	c.pass(time.Minute)
	got, err := s.receive(ReceiveRequest{Queue: q, Max: len(messages), MaxBytes: 1 << 20}, len(messages))
	mustDo(t, err)
	for i := 1; i < len(got); i++ {
		if got[i].EnqueuedSeq != got[i-1].EnqueuedSeq+1 || got[i].Seq != got[i-1].Seq+1 {
			t.Fatalf("%d (%d) after %d (%d)", got[i].Seq, got[i].EnqueuedSeq, got[i-1].Seq, got[i-1].EnqueuedSeq)
		}
	}
}

// Ids are forgotten in the background once their window is over.
func testMessageIDsAreForgotten(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{DuplicateWindow: time.Minute})
	seqs := sendTo(t, s, q, MessageContent{MessageID: "a"}, MessageContent{MessageID: "a"}, MessageContent{MessageID: "b"})
	if seqs != nil && (seqs[0] != seqs[1] || seqs[2] == seqs[0]) {
		t.Errorf("numbers %v", seqs)
	}
	if c := s.counts(t, q); c.Active != 2 {
		t.Errorf("%+v", c)
	}
	c.pass(time.Minute + entity.ForgetEvery*time.Millisecond)
	known, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (bool, error) { return t.any("SELECT 1 FROM message_ids") })
	if err != nil || known {
		t.Errorf("ids are still known (%v)", err)
	}
	sendTo(t, s, q, MessageContent{MessageID: "a"}, MessageContent{MessageID: "a"})
	if c := s.counts(t, q); c.Active != 3 {
		t.Errorf("once it is forgotten: %+v", c)
	}
}

// A queue that nobody uses is deleted; one that is used, or that a message was forwarded to, is
// not.
func testIdleQueues(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{Idle: 5 * time.Minute})
	exists := func() bool {
		_, found, err := s.Bus.MessageQueue(t.Context(), q.Name)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for range 4 {
		c.pass(4 * time.Minute)
		sendTo(t, s, q, MessageContent{MessageID: "m"})
	}
	c.pass(5*time.Minute - time.Second)
	if !exists() {
		t.Fatal("a queue in use was deleted")
	}
	c.pass(time.Minute)
	if exists() {
		t.Fatal("an idle queue was not deleted")
	}
	if left, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (bool, error) {
		return t.any("SELECT 1 FROM bodies UNION ALL SELECT 1 FROM messages UNION ALL SELECT 1 FROM queues")
	}); err != nil || left {
		t.Errorf("something is left of it (%v)", err)
	}
}

// Messages that were in a queue before it began to forward are forwarded too, locked ones once
// they are free.
func testForwardingOfABacklog(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{})
	target, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: 1, Name: "t/target", Lock: testLock, MaxDeliveries: 3}, 10)
	if err != nil {
		t.Fatal(err)
	}
	const backlog = purgeBatch + 10
	sendTo(t, s, q, make([]MessageContent, backlog)...)
	receiveOne(t, s, q)
	q.ForwardTo = target.Name
	if _, _, err := s.Bus.PutMessageQueue(t.Context(), q, 10); err != nil {
		t.Fatal(err)
	}
	c.quiet()
	count := func(q MessageQueue) int64 {
		c := s.counts(t, q)
		return c.Active + c.Locked
	}
	if count(target) != backlog-1 || count(q) != 1 {
		t.Errorf("%d were forwarded, %d stayed", count(target), count(q))
	}
	c.pass(testLock)
	if count(target) != backlog || count(q) != 0 {
		t.Errorf("%d were forwarded, %d stayed", count(target), count(q))
	}
	if _, err := s.Bus.DropMessageQueue(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	sendTo(t, s, q, MessageContent{MessageID: "lost"})
	dead := peekAll(t, s, q.Subqueue(true))
	if len(dead) != 1 || dead[0].DeadLetterReason != forebay.ReasonNoTarget {
		t.Errorf("without a target: %+v", dead)
	}
}

// Messages that were locked as their queue began to forward go on as soon as they are given back.
func testForwardingOfWhatIsGivenBack(t *testing.T, s *stores, c *clock) {
	q, target := putQueue(t, s, MessageQueue{}), putNamed(t, s, "t/target", func(*MessageQueue) {})
	sendTo(t, s, q, MessageContent{MessageID: "a"}, MessageContent{MessageID: "b"}, MessageContent{MessageID: "c"})
	abandoned, released, held := receiveOne(t, s, q), receiveOne(t, s, q), receiveOne(t, s, q)
	q.ForwardTo = target.Name
	_, _, err := s.Bus.PutMessageQueue(t.Context(), q, 10)
	mustDo(t, err)
	c.quiet()
	mustDo(t, s.Bus.Abandon(t.Context(), q, q.Subqueue(false), abandoned.Lock, nil))
	mustDo(t, s.Bus.ReleaseMessage(t.Context(), q.Subqueue(false), released.Lock))
	c.quiet()
	if active := s.counts(t, target).Active; active != 2 {
		t.Errorf("%d were forwarded", active)
	}
	mustDo(t, s.Bus.Complete(t.Context(), q.Subqueue(false), held.Lock))
}

func testQueueSettingsThatStay(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{DuplicateWindow: time.Minute})
	for _, c := range []struct {
		change func(*MessageQueue)
		code   forebay.Code
	}{
		{func(q *MessageQueue) { q.RequiresSession = true }, forebay.CodeConflict},
		{func(q *MessageQueue) { q.DuplicateWindow = 0 }, forebay.CodeConflict},
		{func(q *MessageQueue) { q.ForwardTo = "t/none" }, forebay.CodeInvalidRequest},
		{func(q *MessageQueue) { q.ForwardDeadLettersTo = q.Name }, forebay.CodeInvalidRequest},
	} {
		changed := q
		c.change(&changed)
		if _, _, err := s.Bus.PutMessageQueue(background, changed, 10); forebay.CodeOf(err) != c.code {
			t.Errorf("put %+v: %v", changed, err)
		}
	}
	q.DuplicateWindow, q.DefaultTTL, q.Idle, q.DeadLetterExpired = 2*time.Minute, time.Hour, time.Hour, true
	if _, _, err := s.Bus.PutMessageQueue(background, q, 10); err != nil {
		t.Fatal(err)
	}
	got, found, err := s.Bus.MessageQueue(background, q.Name)
	if err != nil || !found || !got.CreatedAt.Equal(q.CreatedAt) {
		t.Fatal(err)
	}
	got.CreatedAt = q.CreatedAt
	if got != q {
		t.Errorf("stored %+v, wanted %+v", got, q)
	}
}

// Over a network, messages that expire go together, each of another queue: everybody waits for
// the transaction.
func TestExpiredMessagesTakeFewRoundTrips(t *testing.T) {
	t.Parallel()
	s, few := fixture.OverANetwork(t)
	tenant := tenantOf(t, s, "t")
	const queues = 100
	var all []MessageQueue
	for i := range queues {
		all = append(all, putQueue(t, s, MessageQueue{Tenant: tenant, Name: fmt.Sprint("t/q", i)}))
	}
	begun, gate := make(chan struct{}), make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		if _, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(*db.Tx) (int, error) { close(begun); <-gate; return 0, nil }); err != nil {
			t.Error(err)
		}
	})
	<-begun
	for _, q := range all { // all in about one transaction, so that they expire together
		sending.Go(func() { sendTo(t, s, q, MessageContent{TTL: 3 * time.Second}) })
	}
	for len(s.DB.Writer.Ops) < queues {
		<-time.After(time.Millisecond)
	}
	close(gate)
	sending.Wait()
	left := func() (n int64) {
		if err := s.DB.Read(t.Context(), func(c driver.Conn) error {
			_, err := c.Prep("SELECT count(*) FROM bodies").One(func(r driver.Row) { n = r.Int(0) })
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := left(); n != queues {
		t.Fatalf("%d messages wait", n)
	}
	few(60, "expiring", func() {
		for left() > 0 {
			<-time.After(500 * time.Millisecond)
		}
	})
}
