package bus

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// idleQueues are queues that are deleted after five minutes without use.
type idleQueues struct {
	*testing.T
	*clock
	s *stores
}

func (d idleQueues) put(name string, change func(*MessageQueue)) MessageQueue {
	d.Helper()
	q := MessageQueue{Tenant: 1, Name: name, Lock: 5 * time.Minute, MaxDeliveries: 3, Idle: 5 * time.Minute}
	change(&q)
	stored, _, err := d.s.Bus.PutMessageQueue(background, q, 20)
	if err != nil {
		d.Fatal(err)
	}
	return stored
}

// minutes lets time pass, minute by minute.
func (d idleQueues) minutes(n int) {
	for range n {
		d.pass(time.Minute)
	}
}

func (d idleQueues) want(q MessageQueue, exists bool, when string) {
	d.Helper()
	_, found, err := d.s.Bus.MessageQueue(background, q.Name)
	if err != nil || found != exists {
		d.Errorf("%s: %s exists: %t (%v)", when, q.Name, found, err)
	}
}

func (d idleQueues) receive(q MessageQueue, want int) []Message {
	d.Helper()
	got, err := d.s.receive(one(q), want)
	mustDo(d, err)
	return got
}

// Locked and scheduled messages keep their queue. The idle time begins when there are none left.
func testHeldAndScheduledKeepTheirQueue(t *testing.T, s *stores, c *clock) {
	d := idleQueues{t, c, s}
	locked := d.put("t/locked", func(q *MessageQueue) { q.Lock = 20 * time.Minute })
	dead := d.put("t/dead", func(q *MessageQueue) { q.Lock = 20 * time.Minute })
	session := d.put("t/session", func(q *MessageQueue) { q.Lock, q.RequiresSession = 20*time.Minute, true })
	scheduled := d.put("t/scheduled", func(*MessageQueue) {})
	soon := d.put("t/soon", func(*MessageQueue) {})
	sendTo(d, d.s, locked, MessageContent{MessageID: "m"})
	d.receive(locked, 1)
	sendTo(d, d.s, dead, MessageContent{MessageID: "m"})
	mustDo(d, d.s.deadLetter(dead, d.receive(dead, 1)[0].Lock))
	_, err := d.s.receive(deadOne(dead), 1)
	mustDo(d, err)
	d.s.accept(d, session, "x")
	at, next := time.UnixMilli(d.Now()).Add(21*time.Minute), time.UnixMilli(d.Now()).Add(4*time.Minute)
	sendTo(d, d.s, scheduled, MessageContent{MessageID: "m", ScheduledAt: &at})
	sendTo(d, d.s, soon, MessageContent{MessageID: "m", ScheduledAt: &next})
	d.minutes(8)
	d.want(soon, true, "active for four minutes")
	d.minutes(3)
	d.want(soon, false, "idle")
	for _, when := range []string{"held", "held no more"} {
		for _, q := range []MessageQueue{locked, dead, session, scheduled} {
			d.want(q, true, when)
		}
		d.minutes(13)
	}
	d.minutes(1)
	for _, q := range []MessageQueue{locked, dead, session, scheduled} {
		d.want(q, false, "idle")
	}
}

// Renewing a session and cancelling a scheduled message use the queue. So does forwarding.
func testUseKeepsAQueue(t *testing.T, s *stores, c *clock) {
	d := idleQueues{t, c, s}
	session := d.put("t/session", func(q *MessageQueue) { q.RequiresSession = true })
	target := d.put("t/target", func(q *MessageQueue) { q.Idle = 0 })
	forwards := d.put("t/forwards", func(q *MessageQueue) { q.ForwardTo = target.Name })
	unused := d.put("t/unused", func(*MessageQueue) {})
	got := d.s.accept(d, session, "x")
	for range 3 {
		d.minutes(4)
		if _, err := d.s.Broker.Sessions.Renew(background, session, got.SessionLock); err != nil {
			d.Fatal(err)
		}
	}
	d.s.closeSession(d, session, got.SessionLock)
	d.minutes(4)
	d.want(session, true, "in use")
	d.want(unused, false, "idle")
	d.minutes(2)
	d.want(session, false, "idle")
	d.want(forwards, true, "forwarding")
}

// Sends and the use of its subscriptions keep a topic. Only its receivers keep a subscription.
func testIdleTopics(t *testing.T, s *stores, c *clock) {
	d := idleQueues{t, c, s}
	topic := func(name string, idle time.Duration) MessageQueue {
		return d.put(name, func(q *MessageQueue) { q.IsTopic, q.Idle = true, idle })
	}
	subscribed := func(topic MessageQueue, name string, idle time.Duration) MessageQueue {
		return subscribe(d, d.s, topic, name, func(q *MessageQueue) { q.Lock, q.Idle = 5*time.Minute, idle })
	}
	received, sent, unused := topic("t/received", 5*time.Minute), topic("t/sent", 5*time.Minute), topic("t/unused", 5*time.Minute)
	receiver, abandoned, followed := subscribed(received, "s", 0), subscribed(sent, "abandoned", 5*time.Minute), subscribed(sent, "followed", 5*time.Minute)
	subscribed(unused, "s", 0)
	for i := range 4 {
		d.minutes(4)
		d.receive(receiver, 0)
		sendTo(d, d.s, sent, MessageContent{MessageID: fmt.Sprint(i)})
		d.receive(followed, 1)
	}
	for _, q := range []MessageQueue{received, receiver, sent, followed} {
		d.want(q, true, "in use")
	}
	d.want(abandoned, false, "though copies arrived")
	d.want(unused, false, "idle")
	d.minutes(11) // followed holds a message at first
	for _, q := range []MessageQueue{received, receiver, sent, followed} {
		d.want(q, false, "idle")
	}
}

// A message is dead-lettered when the lock of its last delivery ends, even if nobody receives.
// This happens not before, also if the lock is renewed. It does not happen if the delivery does
// not count.
func testTheLastLockEnds(t *testing.T, s *stores, c *clock) {
	d := idleQueues{t, c, s}
	plain := d.put("t/plain", func(q *MessageQueue) { q.Idle, q.MaxDeliveries = 0, 1 })
	other := d.put("t/other", func(q *MessageQueue) { q.Idle, q.MaxDeliveries = 0, 1 })
	session := d.put("t/session", func(q *MessageQueue) { q.Idle, q.MaxDeliveries, q.RequiresSession = 0, 1, true })
	sendTo(d, d.s, plain, MessageContent{MessageID: "m"})
	sendTo(d, d.s, other, MessageContent{MessageID: "released", TTL: time.Hour})
	sendTo(d, d.s, session, MessageContent{MessageID: "m", SessionID: "x"})
	held, released := d.receive(plain, 1)[0], d.receive(other, 1)[0]
	lock := d.s.accept(d, session, "x")
	_, err := d.s.receive(in(session, lock.SessionLock), 1)
	mustDo(d, err)
	d.minutes(4)
	mustDo(d, d.s.renew(plain, held.Lock, 5*time.Minute))
	if _, err := d.s.Broker.Sessions.Renew(background, session, lock.SessionLock); err != nil {
		d.Fatal(err)
	}
	mustDo(d, d.s.Bus.ReleaseMessage(background, other.Subqueue(false), released.Lock)) // the SDK does so by itself
	d.minutes(4)
	for _, want := range []int{0, 1} {
		for _, q := range []MessageQueue{plain, session} {
			dead := peekAll(d, d.s, q.Subqueue(true))
			if len(dead) != want || want == 1 && (dead[0].MessageID != "m" || dead[0].DeadLetterReason != forebay.ReasonMaxDeliveries) {
				d.Errorf("%s: dead-lettered %+v, expected %d", q.Name, dead, want)
			}
		}
		d.minutes(2)
	}
	if c := d.s.counts(d, other); c.Active != 1 || c.Locked != 0 || c.DeadLetter != 0 {
		d.Errorf("%+v", c)
	}
	d.minutes(51)
	if left := peekAll(d, d.s, other.Subqueue(false)); len(left) != 0 {
		d.Errorf("not expired: %+v", left)
	}
}

// Every settlement checks whether its queue is deleted when idle; most queues are not.
func TestUseOfAQueueThatStaysCostsNothing(t *testing.T) {
	q := MessageQueue{No: 7}
	if allocs := testing.AllocsPerRun(100, func() {
		if err := Used(background, nil, q); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
