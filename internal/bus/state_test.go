package bus

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/queue"
)

func setStatus(t testing.TB, s *stores, q MessageQueue, status forebay.EntityStatus) MessageQueue {
	t.Helper()
	changed, err := s.Bus.Entities().Change(background, q, forebay.EntityChange{Status: status})
	if err != nil || changed.Status != status {
		t.Fatalf("%s: the status is %q, %v", status, changed.Status, err)
	}
	return changed
}

func one(q MessageQueue) ReceiveRequest { return ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20} }

// refusedAs fails unless an error says that the entity is disabled.
func refusedAs(t testing.TB, what string, err error) {
	t.Helper()
	if forebay.CodeOf(err) != forebay.CodeEntityDisabled {
		t.Errorf("%s: %v, want %s", what, err, forebay.CodeEntityDisabled)
	}
}

func receiveOne(t testing.TB, s *stores, q MessageQueue) Message {
	t.Helper()
	got, err := s.receive(one(q), 1)
	mustDo(t, err)
	return got[0]
}

// A send is refused by what the status says in its transaction, however old the sender's copy of
// the queue is. Receivers go on.
func testNobodySends(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{})
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	sub := subscribe(t, s, topic, "s")
	sendBodies(t, s, q, "a")
	for _, status := range []forebay.EntityStatus{forebay.EntitySendDisabled, forebay.EntityDisabled} {
		for _, e := range []MessageQueue{q, topic} {
			setStatus(t, s, e, status)
			_, err := s.Broker.Messages.Send(background, e, []MessageContent{content("1", 1), content("2", 1)})
			refusedAs(t, "send to "+e.Name, err)
			if !s.Broker.Client && !strings.Contains(err.Error(), string(status)) {
				t.Errorf("the refusal does not name the status: %v", err)
			}
		}
	}
	setStatus(t, s, q, forebay.EntitySendDisabled)
	if m := receiveOne(t, s, q); s.complete(q, m.Lock) != nil {
		t.Error("a message cannot be completed where nobody sends")
	}
	for _, e := range []MessageQueue{q, topic} {
		setStatus(t, s, e, forebay.EntityActive)
		send(t, s, e, content("3", 1))
	}
	if n := len(peekAll(t, s, q.Subqueue(false))) + len(peekAll(t, s, sub.Subqueue(false))); n != 2 {
		t.Errorf("%d messages came after the entities were active again, want 2", n)
	}
}

// Nothing is received where nobody may receive, and nothing that was received leaves. Messages can
// be looked at, and given back.
func testNobodyReceives(t *testing.T, s *stores, _ *clock) {
	for _, status := range []forebay.EntityStatus{forebay.EntityReceiveDisabled, forebay.EntityDisabled} {
		q := putNamed(t, s, "t/"+string(status), func(*MessageQueue) {})
		sendTo(t, s, q, content("1", 1), content("2", 1), content("3", 1), content("4", 1), content("5", 1))
		deferred, dead, held, other, last := receiveOne(t, s, q), receiveOne(t, s, q), receiveOne(t, s, q), receiveOne(t, s, q), receiveOne(t, s, q)
		main := q.Subqueue(false)
		mustDo(t, s.postpone(q, deferred.Lock))
		mustDo(t, s.deadLetter(q, dead.Lock))
		_, err := s.receive(one(q), 0) // it is known to be empty
		mustDo(t, err)
		setStatus(t, s, q, status)

		for range 2 {
			_, err = s.receive(one(q), 1)
			refusedAs(t, "receive", err)
			_, err = s.receive(deadOne(q), 1)
			refusedAs(t, "receive a dead letter", err)
		}
		_, err = s.receiveDeferred(one(q), deferred.Seq)
		refusedAs(t, "receive a deferred message", err)
		refusedAs(t, "complete", s.complete(q, held.Lock))
		refusedAs(t, "defer", s.settle(StepDefer, q, other.Lock, func(step *Step) { step.Changed = forebay.Properties{"n": int64(9)} }))
		refusedAs(t, "dead-letter", s.deadLetter(q, last.Lock))
		stale := held.Lock
		stale.Token++
		if err := s.complete(q, stale); !errors.Is(err, forebay.ErrLockLost) {
			t.Errorf("complete by another token: %v", err)
		}
		if err := s.renew(q, held.Lock, testLock); err != nil {
			t.Errorf("renew: %v", err)
		}
		mustDo(t, s.abandon(q, held.Lock))
		mustDo(t, s.abandon(q, last.Lock))
		mustDo(t, s.Bus.ReleaseMessage(background, main, other.Lock)) // an SDK does so by itself
		if n := len(peekAll(t, s, main)) + len(peekAll(t, s, q.Subqueue(true))); n != 5 {
			t.Errorf("%d messages are left, want 5", n)
		}
		if m := peekAll(t, s, main)[2]; m.Properties != nil && strings.Contains(string(m.Properties), "9") {
			t.Errorf("a refused settlement changed the properties to %s", m.Properties)
		}

		setStatus(t, s, q, forebay.EntityActive)
		for range 3 {
			mustDo(t, s.complete(q, receiveOne(t, s, q).Lock))
		}
		if got, err := s.receiveDeferred(one(q), deferred.Seq); err != nil || len(got) != 1 {
			t.Errorf("received %d deferred messages, %v", len(got), err)
		}
		_, err = s.Bus.DropMessageQueue(background, q)
		mustDo(t, errors.Join(err, s.Bus.PurgeDropped(background)))
	}
}

// Messages that are completed together are completed each by itself.
func testCompleteMany(t *testing.T, s *stores, _ *clock) {
	q, sessions := putQueues(t, s)
	sendTo(t, s, q, content("1", 1), content("2", 1), content("3", 1))
	first, second, dead := receiveOne(t, s, q), receiveOne(t, s, q), receiveOne(t, s, q)
	main := q.Subqueue(false)
	mustDo(t, s.Bus.DeadLetter(background, main, dead.Lock, DeadLettering{Reason: "r"}, nil))
	stale := second.Lock
	stale.Token++
	setStatus(t, s, q, forebay.EntityReceiveDisabled)
	failed, err := s.Bus.CompleteMany(background, main, []queue.Lock{first.Lock, stale, second.Lock})
	mustDo(t, err)
	refusedAs(t, "the first while nobody receives", failed[0])
	if !errors.Is(failed[1], forebay.ErrLockLost) {
		t.Errorf("another token while nobody receives: %v", failed[1])
	}
	refusedAs(t, "the second while nobody receives", failed[2])
	if n := len(peekAll(t, s, main)); n != 2 {
		t.Errorf("%d messages are left, want 2", n)
	}

	setStatus(t, s, q, forebay.EntityActive)
	failed, err = s.Bus.CompleteMany(background, sessions.Subqueue(false), []queue.Lock{first.Lock})
	if mustDo(t, err); !errors.Is(failed[0], forebay.ErrLockLost) {
		t.Errorf("as of another queue: %v", failed[0])
	}
	failed, err = s.Bus.CompleteMany(background, main, []queue.Lock{first.Lock, stale, first.Lock, dead.Lock, second.Lock})
	mustDo(t, err)
	for i, lost := range []bool{false, true, true, true, false} {
		if errors.Is(failed[i], forebay.ErrLockLost) != lost || !lost && failed[i] != nil {
			t.Errorf("lock %d: %v", i, failed[i])
		}
	}
	if left, dead := len(peekAll(t, s, main)), len(peekAll(t, s, q.Subqueue(true))); left != 0 || dead != 1 {
		t.Errorf("%d messages and %d dead letters are left, want 0 and 1", left, dead)
	}
}

// Sessions are neither accepted nor received from. Their holder can renew and close.
func testNobodyReceivesSessions(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{RequiresSession: true})
	sendTo(t, s, q, MessageContent{MessageID: "1", SessionID: "x"}, MessageContent{MessageID: "2", SessionID: "y"})
	x := s.accept(t, q, "x")
	setStatus(t, s, q, forebay.EntityReceiveDisabled)
	_, err := s.Broker.Sessions.Accept(background, q, "y")
	refusedAs(t, "accept", err)
	_, err = s.Broker.Sessions.Accept(background, q, "new")
	refusedAs(t, "accept a session without messages", err)
	for range 2 {
		_, err = s.Broker.Sessions.AcceptNext(background, q, true)
		refusedAs(t, "accept the next", err)
	}
	if !s.Broker.Client { // whose link, and with it its session, ends so
		_, err = s.receive(in(q, x.SessionLock), 1)
		refusedAs(t, "receive in a session", err)
		_, err = s.receiveDeferred(in(q, x.SessionLock), 1)
		refusedAs(t, "receive deferred messages of a session", err)
	}
	_, err = s.Broker.Sessions.Renew(background, q, x.SessionLock)
	mustDo(t, err)
	mustDo(t, s.Broker.Sessions.SetState(background, q, x.SessionLock, []byte("kept")))
	s.closeSession(t, q, x.SessionLock)
	setStatus(t, s, q, forebay.EntityActive)
	if x := s.accept(t, q, "x"); string(x.State) != "kept" {
		t.Errorf("accepted %+v", x)
	}
}

// waiters let receivers of every kind wait, and return their answers.
func waiters(t *testing.T, c *clock, s *stores, q, sessions MessageQueue) (answers []<-chan waited[int]) {
	t.Helper()
	x := s.accept(t, sessions, "x")
	for _, change := range []func(*ReceiveRequest){
		func(r *ReceiveRequest) { r.Queue = q }, func(r *ReceiveRequest) { r.Queue = q },
		func(r *ReceiveRequest) { r.Queue, r.DeadLetter = q, true },
		func(r *ReceiveRequest) { r.Session = &x.SessionLock },
	} {
		req := one(sessions)
		change(&req)
		answers = append(answers, inBackground(c, s, len(answers)+1, func() (int, error) {
			got, err := s.await(req)
			return len(got), err
		}))
	}
	return append(answers, inBackground(c, s, len(answers)+1, func() (int, error) {
		_, err := s.awaitSession(sessions)
		return 0, err
	}))
}

func putQueues(t *testing.T, s *stores) (q, sessions MessageQueue) {
	t.Helper()
	q = putQueue(t, s, MessageQueue{})
	sessions, _, err := s.Bus.PutMessageQueue(background, MessageQueue{Tenant: 1, Name: "t/sessions", Lock: time.Hour, MaxDeliveries: 3, RequiresSession: true}, 10)
	mustDo(t, err)
	return q, sessions
}

// Receivers that wait end with the error, and a change that lets receivers be leaves them.
func testWaitingWhileDisabled(t *testing.T, s *stores, c *clock) {
	q, sessions := putQueues(t, s)
	answers := waiters(t, c, s, q, sessions)
	for _, e := range []MessageQueue{q, sessions} {
		setStatus(t, s, e, forebay.EntitySendDisabled)
		setStatus(t, s, e, forebay.EntityActive)
	}
	c.awaitReceivers(s, len(answers))
	setStatus(t, s, q, forebay.EntityDisabled)
	setStatus(t, s, sessions, forebay.EntityReceiveDisabled)
	for _, answer := range answers {
		refusedAs(t, "a waiting receiver", (<-answer).err)
	}
	_, err := s.await(one(q))
	refusedAs(t, "a receiver that comes later", err)
	setStatus(t, s, q, forebay.EntityActive)
	after := inBackground(c, s, 1, func() ([]Message, error) { return s.await(one(q)) })
	sendBodies(t, s, q, "a")
	if a := <-after; a.err != nil || len(a.got) != 1 {
		t.Errorf("once it is active, received %d messages, %v", len(a.got), a.err)
	}
}

// The same for receivers that wait in another process.
func testDisabledByAnotherProcess(t *testing.T, s *stores, c *clock) {
	other := c.beside(false)
	q, sessions := putQueues(t, s)
	answers := waiters(t, c, s, q, sessions)
	setStatus(t, other, q, forebay.EntityDisabled)
	setStatus(t, other, sessions, forebay.EntityReceiveDisabled)
	if !s.DB.Writer.Shared() {
		c.pass(time.Minute) // nobody tells it, but it looks
	}
	for _, answer := range answers {
		refusedAs(t, "a receiver that waits in another process", (<-answer).err)
	}
	setStatus(t, other, q, forebay.EntitySendDisabled)
	_, err := s.Broker.Messages.Send(background, q, []MessageContent{content("1", 1)})
	refusedAs(t, "send", err)
}

// What cannot go where its queue forwards to is dead-lettered there (Service Bus documentation,
// "service-bus-auto-forwarding").
func testForwardingToADisabledEntity(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{})
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	sub := subscribe(t, s, topic, "s", func(sub *MessageQueue) { sub.ForwardTo = q.Name })
	from, _, err := s.Bus.PutMessageQueue(background, MessageQueue{Tenant: 1, Name: "t/from", Lock: testLock, MaxDeliveries: 1, ForwardTo: topic.Name}, 10)
	mustDo(t, err)
	at := c.time().Add(time.Minute)
	later := content("later", 1)
	later.ScheduledAt = &at
	sendTo(t, s, from, later)
	setStatus(t, s, q, forebay.EntitySendDisabled)
	send(t, s, topic, content("1", 1))
	setStatus(t, s, topic, forebay.EntityDisabled)
	send(t, s, from, content("2", 1))
	c.pass(2 * time.Minute)
	for e, want := range map[MessageQueue]string{sub: "1", from: "2 later"} {
		dead := peekAll(t, s, e.Subqueue(true))
		var got []string
		for _, m := range dead {
			got = append(got, m.MessageID)
			if m.DeadLetterReason != forebay.ReasonTargetDisabled {
				t.Errorf("%s was dead-lettered for %q", m.MessageID, m.DeadLetterReason)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has the dead letters %q, want %q", e.Name, got, want)
		}
	}
	setStatus(t, s, q, forebay.EntityReceiveDisabled) // takes what comes
	setStatus(t, s, topic, forebay.EntityActive)
	send(t, s, from, content("3", 1))
	if got := peekAll(t, s, q.Subqueue(false)); len(got) != 1 || got[0].MessageID != "3" {
		t.Errorf("forwarded %+v", got)
	}
}

// A queue that nobody may receive from keeps what it would forward, in order, until it is active.
func testForwardingFromADisabledQueue(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{})
	from, _, err := s.Bus.PutMessageQueue(background, MessageQueue{Tenant: 1, Name: "t/from", Lock: testLock, MaxDeliveries: 1, ForwardTo: q.Name}, 10)
	mustDo(t, err)
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	sub := subscribe(t, s, topic, "s", func(sub *MessageQueue) { sub.ForwardTo = q.Name })
	for _, e := range []MessageQueue{from, sub} {
		setStatus(t, s, e, forebay.EntityReceiveDisabled)
	}
	send(t, s, from, content("1", 1), content("2", 1))
	send(t, s, topic, content("3", 1))
	c.pass(time.Minute)
	if n := len(peekAll(t, s, from.Subqueue(false))) + len(peekAll(t, s, sub.Subqueue(false))); n != 3 || len(peekAll(t, s, q.Subqueue(false))) != 0 {
		t.Errorf("%d messages stayed, want 3", n)
	}
	setStatus(t, s, from, forebay.EntityActive)
	send(t, s, from, content("4", 1))
	c.quiet()
	setStatus(t, s, sub, forebay.EntityActive)
	c.quiet()
	var got []string
	for _, m := range peekAll(t, s, q.Subqueue(false)) {
		got = append(got, m.MessageID)
	}
	if strings.Join(got, " ") != "1 2 4 3" {
		t.Errorf("forwarded %q", got)
	}
}

// What is scheduled becomes active whatever the status, and a disabled subscription gets its
// copies (description of Service Bus's EntityStatus).
func testCopiesIntoWhatIsDisabled(t *testing.T, s *stores, c *clock) {
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	sub := subscribe(t, s, topic, "s")
	q := putQueue(t, s, MessageQueue{})
	at := c.time().Add(time.Minute)
	later := content("later", 1)
	later.ScheduledAt = &at
	sendTo(t, s, topic, later)
	sendTo(t, s, q, later)
	setStatus(t, s, sub, forebay.EntityDisabled)
	send(t, s, topic, content("now", 1))
	setStatus(t, s, topic, forebay.EntityDisabled)
	setStatus(t, s, q, forebay.EntityDisabled)
	c.pass(2 * time.Minute)
	if got := peekAll(t, s, sub.Subqueue(false)); len(got) != 2 || got[0].MessageID != "now" || got[1].MessageID != "later" {
		t.Errorf("the subscription has %+v", got)
	}
	if got := peekAll(t, s, q.Subqueue(false)); len(got) != 1 || got[0].State != forebay.MessageActive {
		t.Errorf("the queue has %+v", got)
	}
	// A subscription of a disabled topic may be received from.
	setStatus(t, s, sub, forebay.EntityActive)
	receiveOne(t, s, sub)
}

// The use of an entity is recorded once a minute, so that few messages cost a write. A change of
// its settings is recorded apart from it.
func testUseIsRecorded(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{})
	read := func() MessageQueue {
		t.Helper()
		now, _, err := s.Bus.MessageQueue(background, q.Name)
		mustDo(t, err)
		return now
	}
	if now := read(); !now.AccessedAt.IsZero() || !now.UpdatedAt.Equal(now.CreatedAt) {
		t.Errorf("a new queue was used at %v and changed at %v", now.AccessedAt, now.UpdatedAt)
	}
	c.pass(time.Hour)
	first := c.time()
	sendBodies(t, s, q, "a")
	c.pass(30 * time.Second)
	sendBodies(t, s, q, "b")
	receiveOne(t, s, q)
	if now := read(); !s.near(now.AccessedAt, first) {
		t.Errorf("used at %v, want %v", now.AccessedAt, first)
	}
	c.pass(time.Minute)
	receiveOne(t, s, q)
	second := c.time()
	c.pass(time.Minute)
	setStatus(t, s, q, forebay.EntitySendDisabled)
	if now := read(); !s.near(now.AccessedAt, second) || !now.UpdatedAt.Equal(c.time()) {
		t.Errorf("used at %v, want %v; changed at %v, want %v", now.AccessedAt, second, now.UpdatedAt, c.time())
	}
	c.pass(time.Minute)
	setStatus(t, s, q, forebay.EntitySendDisabled) // changes nothing
	if now := read(); !now.UpdatedAt.Equal(c.time().Add(-time.Minute)) || !s.near(now.AccessedAt, second) {
		t.Errorf("without a change: changed at %v, used at %v", now.UpdatedAt, now.AccessedAt)
	}
}

// A put may be told to create only, or to change only. Names that differ in their case are the
// same for the first, and each tenant has its own.
func testPutOnlyNewOrExisting(t *testing.T, s *stores, _ *clock) {
	put := func(tenant int64, name string, mode entity.PutMode) error {
		q := MessageQueue{Tenant: tenant, Name: name, Lock: testLock, MaxDeliveries: 1, IsTopic: strings.HasSuffix(name, "topic")}
		_, _, err := s.Bus.Entities().Put(background, q, entity.PutOptions{Limit: 10, Mode: mode})
		return err
	}
	for _, try := range []struct {
		tenant int64
		name   string
		mode   entity.PutMode
		want   error
	}{
		{1, "t/Mail", entity.PutExisting, entity.ErrNoQueue},
		{1, "t/topic", entity.PutExisting, entity.ErrNoTopic},
		{1, "t/Mail", entity.PutNew, nil},
		{1, "t/Mail", entity.PutNew, entity.ErrExists},
		{1, "t/mAIL", entity.PutNew, entity.ErrExists},
		{2, "T/mail", entity.PutNew, nil},
		{1, "t/Mail", entity.PutExisting, nil},
		{1, "t/mail", entity.PutExisting, entity.ErrNoQueue},
		{1, "t/mail", entity.PutAny, nil},
		{1, "t/topic", entity.PutNew, nil},
	} {
		if err := put(try.tenant, try.name, try.mode); err != try.want {
			t.Errorf("%s of tenant %d in mode %d: %v, want %v", try.name, try.tenant, try.mode, err, try.want)
		}
	}
	for _, look := range []struct {
		tenant     int64
		name, want string
	}{{1, "t/mail", "t/mail"}, {1, "t/Mail", "t/Mail"}, {1, "t/MAIL", "t/Mail"}, {2, "t/mail", "T/mail"}, {2, "t/Mail", "T/mail"}, {3, "t/mail", ""}} {
		if q, found, err := s.Bus.Entities().Folded(background, look.tenant, look.name); err != nil || found != (look.want != "") || q.Name != look.want && found {
			t.Errorf("%s of tenant %d is %q, %t, %v; want %q", look.name, look.tenant, q.Name, found, err, look.want)
		}
	}
	topic, _, err := s.Bus.MessageQueue(background, "t/topic")
	mustDo(t, err)
	sub := MessageQueue{Tenant: 1, Name: entity.SubscriptionName(topic.Name, "s"), Lock: testLock, MaxDeliveries: 1}
	_, _, err = s.Bus.Entities().PutSubscription(background, topic, sub, defaultRule, entity.PutOptions{Limit: 10, Mode: entity.PutExisting})
	if err != entity.ErrNoSubscription {
		t.Errorf("a change of a missing subscription: %v", err)
	}
}

// A put keeps what it is told to keep, as it is in the transaction.
func testChangesKeepTheRest(t *testing.T, s *stores, _ *clock) {
	q := putQueue(t, s, MessageQueue{State: entity.State{Attributes: `{"a":1}`, MaxMessage: 7, UserMetadata: "old", Status: forebay.EntityDisabled}})
	note := "new\nline"
	changed, err := s.Bus.Entities().Change(background, q, forebay.EntityChange{UserMetadata: &note})
	if want := (entity.State{Attributes: `{"a":1}`, MaxMessage: 7, UserMetadata: note, Status: forebay.EntityDisabled, UpdatedAt: changed.UpdatedAt}); err != nil || changed.State != want {
		t.Errorf("changed to %+v, %v", changed.State, err)
	}
	wanted := MessageQueue{Tenant: 1, Name: q.Name, Lock: testLock, MaxDeliveries: 5}
	put, _, err := s.Bus.Entities().Put(background, wanted, entity.PutOptions{Limit: 10, Keep: entity.Keep{Status: true, UserMetadata: true, Attributes: true}})
	if err != nil || put.Status != forebay.EntityDisabled || put.UserMetadata != note || put.Attributes != `{"a":1}` || put.MaxMessage != 0 || put.MaxDeliveries != 5 {
		t.Errorf("put %+v, %v", put, err)
	}
	put, _, err = s.Bus.Entities().Put(background, wanted, entity.PutOptions{Limit: 10})
	if stored, _, readErr := s.Bus.MessageQueue(background, q.Name); err != nil || readErr != nil || stored != put || stored.State != (entity.State{Status: forebay.EntityActive, UpdatedAt: stored.UpdatedAt}) {
		t.Errorf("stored %+v, put %+v, %v, %v", stored, put, err, readErr)
	}
	_, err = s.Bus.DropMessageQueue(background, q)
	mustDo(t, err)
	if _, err := s.Bus.Entities().Change(background, q, forebay.EntityChange{UserMetadata: &note}); err != entity.ErrNoQueue {
		t.Errorf("a change of a deleted queue: %v", err)
	}
}
