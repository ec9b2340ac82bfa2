package bus

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/bus/dead"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// tripping makes what the mixes of TestRoundTripsOfMessages need.
type tripping struct {
	*testing.T
	*stores
	made    func(func(*MessageQueue)) MessageQueue
	content func(int) MessageContent
}

// makesQueues returns what makes queues of a tenant, each with a name of its own.
func makesQueues(t *testing.T, s *stores) func(change func(*MessageQueue)) MessageQueue {
	serial, tenant := 0, tenantOf(t, s, "acme")
	return func(change func(*MessageQueue)) MessageQueue {
		serial++
		q := MessageQueue{Name: fmt.Sprintf("t/q%d", serial), Tenant: tenant, Lock: time.Hour, MaxDeliveries: 3}
		if change != nil {
			change(&q)
		}
		stored, _, err := s.Bus.PutMessageQueue(t.Context(), q, 10_000)
		mustDo(t, err)
		return stored
	}
}

// topic makes a topic with a subscription that has these settings.
func (t tripping) topic(change func(*MessageQueue), sub func(*MessageQueue)) MessageQueue {
	topic := t.made(func(q *MessageQueue) {
		if q.IsTopic = true; change != nil {
			change(q)
		}
	})
	t.subscription(topic, "s", sub)
	return topic
}

func (t tripping) subscription(topic MessageQueue, name string, change func(*MessageQueue)) {
	q := MessageQueue{Tenant: topic.Tenant, Name: entity.SubscriptionName(topic.Name, name), Lock: time.Hour, MaxDeliveries: 3}
	if change != nil {
		change(&q)
	}
	_, _, err := t.Bus.PutSubscription(t.Context(), topic, q, defaultRule, 2000)
	mustDo(t, err)
}

func (t tripping) forwards(to MessageQueue) MessageQueue {
	return t.made(func(q *MessageQueue) { q.ForwardTo = to.Name })
}

// sends returns as many calls as messages, each of which sends one to the queue of its number.
func (t tripping) sends(queues []MessageQueue, many int, message func(int) MessageContent) (calls []func() error) {
	t.settled()
	for i := range many {
		m, q := message(i), queues[i%len(queues)]
		calls = append(calls, func() error { _, err := t.Bus.Send(t.Context(), q, []MessageContent{m}); return err })
	}
	return calls
}

// settled waits until no queue is due: one that begins to forward is, for its backlog.
func (t tripping) settled() {
	for due := true; due; {
		err := t.DB.Read(t.Context(), func(c driver.Conn) (err error) {
			due, err = c.Prep("SELECT 1 FROM queues WHERE due_at IS NOT NULL LIMIT 1").One(func(driver.Row) {})
			return err
		})
		mustDo(t, err)
	}
}

// passed returns once what was due by that time has been done: a later try would find it as well.
func (t tripping) passed(at time.Time, q MessageQueue) {
	<-time.After(time.Until(at.Add(50 * time.Millisecond)))
	_, err := t.Bus.Send(t.Context(), q, []MessageContent{{MessageID: "m"}}) // its transaction does so
	mustDo(t, err)
	t.settled()
}

type mix = func(many int) func() []func() error

// sent returns mixes of sends to one queue, and to another each.
func (t tripping) sent(mixes map[string]mix, name string, made func() MessageQueue, message func(int) MessageContent) {
	mixes[name] = func(many int) func() []func() error {
		return func() []func() error { return t.sends([]MessageQueue{made()}, many, message) }
	}
	mixes[name+", each to another"] = func(many int) func() []func() error {
		return func() []func() error {
			queues := make([]MessageQueue, many)
			for i := range queues {
				queues[i] = made()
			}
			return t.sends(queues, many, message)
		}
	}
}

func (t tripping) sessionContent(i int) MessageContent {
	m := t.content(i)
	m.SessionID = fmt.Sprint("s", i)
	return m
}

func (t tripping) large(i int) MessageContent {
	m := t.content(i)
	m.Body = make([]byte, 8<<10)
	return m
}

func (t tripping) twice(i int) MessageContent { return t.content(i / 2) }

func duplicates(q *MessageQueue) { q.DuplicateWindow = time.Hour }
func needsSessions(q *MessageQueue) {
	q.RequiresSession = true
}

// onward are mixes of messages that go on from where they are sent to.
func (t tripping) onward() map[string]mix {
	mixes := map[string]mix{}
	t.sent(mixes, "publish", func() MessageQueue { return t.topic(nil, nil) }, t.content)
	t.sent(mixes, "publish to sessions", func() MessageQueue { return t.topic(nil, needsSessions) }, t.sessionContent)
	t.sent(mixes, "publish twice", func() MessageQueue { return t.topic(duplicates, nil) }, t.twice)
	t.sent(mixes, "publish large bodies", func() MessageQueue {
		topic := t.topic(nil, nil)
		t.subscription(topic, "other", nil)
		return topic
	}, t.large)
	to := func(change func(*MessageQueue)) func() MessageQueue {
		return func() MessageQueue { return t.forwards(t.made(change)) }
	}
	t.sent(mixes, "publish and forward", func() MessageQueue {
		target := t.made(nil)
		return t.topic(nil, func(q *MessageQueue) { q.ForwardTo = target.Name })
	}, t.content)
	t.sent(mixes, "send on", to(nil), t.content)
	t.sent(mixes, "send on to sessions", to(needsSessions), t.sessionContent)
	t.sent(mixes, "send on without a session", to(needsSessions), t.content)
	t.sent(mixes, "send on twice", to(duplicates), t.twice)
	t.sent(mixes, "send on to a topic", func() MessageQueue { return t.forwards(t.topic(nil, nil)) }, t.content)
	t.sent(mixes, "send on four times", func() MessageQueue {
		return t.forwards(t.forwards(t.forwards(t.forwards(t.made(needsSessions)))))
	}, t.sessionContent)
	t.sent(mixes, "send on from topic to topic", func() MessageQueue {
		last := t.topic(nil, needsSessions)
		return t.topic(nil, func(q *MessageQueue) { q.ForwardTo = last.Name })
	}, t.sessionContent)
	mixes["publish events"] = func(many int) func() []func() error {
		return func() (calls []func() error) {
			for i := range many {
				topic := t.topic(nil, nil)
				sendTo(t, t.stores, topic, t.content(i)) // after which its rules are known
				calls = append(calls, func() error {
					o := db.Op{Stage: db.StageSettle, Local: true, Interleaves: true}
					_, err := db.TransactIn(t.Context(), Key, t.DB.Writer, o, func(tx *Tx) (int, error) {
						return 0, tx.Topics.Publish(topic.Name, func() (MessageContent, error) { return t.content(i), nil })
					})
					return err
				})
			}
			return calls
		}
	}
	return mixes
}

// bulk are mixes of what operators do to many messages, each in another queue, and of receiving
// deferred messages.
func (t tripping) bulk(received func(MessageQueue, int) []Message) map[string]mix {
	const each = 3
	died := func(change func(*MessageQueue), do func(q MessageQueue, seqs []int64) error) mix {
		return func(many int) func() []func() error {
			return func() (calls []func() error) {
				for range many {
					q := t.made(change)
					var seqs []int64
					for _, m := range received(q, each) {
						mustDo(t, t.Bus.DeadLetter(t.Context(), q.Subqueue(false), m.Lock, DeadLettering{Reason: "r"}, nil))
						seqs = append(seqs, m.Seq)
					}
					calls = append(calls, func() error { return do(q, seqs) })
				}
				return calls
			}
		}
	}
	all := func(step dead.Step, err error) error {
		if err == nil && step.Done != each {
			err = fmt.Errorf("%d messages", step.Done)
		}
		return err
	}
	return map[string]mix{
		"redrive": died(nil, func(q MessageQueue, _ []int64) error {
			return all(t.Bus.DeadLetters().Redrive(t.Context(), q, dead.Selection{Limit: 200}, dead.Pace{}, nil))
		}),
		"redrive by numbers": died(nil, func(q MessageQueue, seqs []int64) error {
			return all(t.Bus.DeadLetters().Redrive(t.Context(), q, dead.Selection{Numbers: seqs, Limit: 200}, dead.Pace{}, nil))
		}),
		"redrive at a pace": died(nil, func(q MessageQueue, _ []int64) error {
			return all(t.Bus.DeadLetters().Redrive(t.Context(), q, dead.Selection{Limit: 200}, dead.Pace{Every: time.Hour}, nil))
		}),
		"purge": died(nil, func(q MessageQueue, _ []int64) error {
			return all(t.Bus.DeadLetters().Purge(t.Context(), q, dead.Selection{Limit: 200}))
		}),
		"delete": died(nil, func(q MessageQueue, _ []int64) error {
			n, err := t.Bus.DeleteBefore(t.Context(), q.Subqueue(true), time.Now().Add(time.Hour), 100)
			if err == nil && n != each {
				err = fmt.Errorf("%d messages", n)
			}
			return err
		}),
		"receive several deferred": func(many int) func() []func() error {
			return func() (calls []func() error) {
				for range many {
					q := t.made(nil)
					var seqs []int64
					for _, m := range received(q, each) {
						mustDo(t, t.Bus.Defer(t.Context(), q.Subqueue(false), m.Lock, nil))
						seqs = append(seqs, m.Seq)
					}
					calls = append(calls, func() error {
						got, err := t.Bus.ReceiveDeferred(t.Context(), ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20}, seqs)
						if err == nil && len(got) != each {
							err = fmt.Errorf("%d messages", len(got))
						}
						return err
					})
				}
				return calls
			}
		},
	}
}

// On PostgreSQL, the round trips of a transaction do not grow with the messages that are due in
// it.
func TestRoundTripsOfDueMessages(t *testing.T) {
	t.Parallel()
	const n = 24
	trips := fixture.Trips(t)
	x := tripping{T: t, stores: trips.Stores, content: func(i int) MessageContent {
		return MessageContent{MessageID: fmt.Sprint("m", i), Body: []byte("1"), Text: true}
	}}
	x.made = makesQueues(t, x.stores)
	later := func(message func(int) MessageContent) func(int, time.Time) MessageContent {
		return func(i int, at time.Time) MessageContent {
			m := message(i)
			m.ScheduledAt = &at
			return m
		}
	}
	expiring := func(i int, at time.Time) MessageContent {
		m := x.content(i)
		m.TTL = time.Until(at)
		return m
	}
	dead := x.made(nil)
	kinds := map[string]struct {
		made    func() MessageQueue
		message func(int, time.Time) MessageContent
		stored  int // of two messages, once they were due
	}{
		"activate":                     {func() MessageQueue { return x.made(nil) }, later(x.content), 2},
		"activate in sessions":         {func() MessageQueue { return x.made(needsSessions) }, later(x.sessionContent), 2},
		"activate and publish":         {func() MessageQueue { return x.topic(nil, nil) }, later(x.content), 2},
		"activate and forward":         {func() MessageQueue { return x.forwards(x.made(needsSessions)) }, later(x.sessionContent), 2},
		"expire":                       {func() MessageQueue { return x.made(nil) }, expiring, 0},
		"expire to dead letter":        {func() MessageQueue { return x.made(func(q *MessageQueue) { q.DeadLetterExpired = true }) }, expiring, 2},
		"activate twice":               {func() MessageQueue { return x.made(duplicates) }, later(x.content), 2},
		"activate, publish, take part": {func() MessageQueue { return x.topic(nil, needsSessions) }, later(x.sessionContent), 2},
		"activate, forward, publish": {func() MessageQueue {
			return x.forwards(x.topic(nil, needsSessions))
		}, later(x.sessionContent), 2},
		"expire and forward": {func() MessageQueue {
			return x.made(func(q *MessageQueue) { q.DeadLetterExpired, q.ForwardDeadLettersTo = true, dead.Name })
		}, expiring, 2},
	}
	every := slices.Collect(maps.Keys(kinds))
	// due returns one call, when so many messages of each kind in so many queues are due. It fails
	// unless its transaction does what is due. receive has receivers wait for what becomes active:
	// it fails unless they get all.
	const least = 300 * time.Millisecond
	wait := least
	due := func(names []string, queues, many int, receive bool) func() []func() error {
		wait = max(wait/2, least) // so that the first try has what was enough for the kind before
		return func() []func() error {
			for {
				wait *= 2
				all, stored := map[string][]MessageQueue{}, int64(1)
				for _, name := range names {
					for range queues {
						all[name] = append(all[name], kinds[name].made())
					}
				}
				x.settled()
				at, slowest := time.Now().Add(wait), time.Duration(0)
				for name, list := range all {
					for i := range many {
						began := time.Now()
						sendTo(t, x.stores, list[i%queues], kinds[name].message(i, at))
						slowest = max(slowest, time.Since(began)) // a lifetime begins when it is stored
					}
					stored += int64(many * kinds[name].stored / 2)
				}
				q := x.made(nil)
				if time.Until(at) < wait/3 { // some might be due before the writer is kept from its next transaction
					x.passed(at.Add(slowest), q)
					continue
				}
				received := make(chan int, queues)
				if receive {
					for _, q := range all["activate"] {
						go func() {
							got, _ := x.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: many, MaxBytes: 1 << 20, Wait: true})
							received <- len(got)
						}()
					}
				}
				return []func() error{func() error {
					<-time.After(time.Until(at.Add(slowest + 50*time.Millisecond)))
					sent, err := x.Bus.Send(t.Context(), q, []MessageContent{x.content(0)})
					if err != nil {
						return err
					}
					for got := 0; receive && got < many; {
						got += <-received
					}
					if receive { // receiving stores them again
						return nil
					}
					return x.storedWith(sent[0], stored)
				}}
			}
		}
	}
	for _, name := range every {
		trips.Together(t, name, due([]string{name}, 1, n, false))
		trips.Together(t, name+", each in another queue", due([]string{name}, n, n, false))
	}
	trips.Together(t, "receive", due([]string{"activate"}, 1, n, true))
	trips.Together(t, "receive, each from another queue", due([]string{"activate"}, n, n, true))
	trips.Together(t, "all", due(every, 3, 6, false))
	trips.Plans(t)
}

// storedWith fails unless the transaction that stored a message stored so many in all.
func (t tripping) storedWith(seq, want int64) error {
	return t.DB.Read(t.Context(), func(c driver.Conn) error {
		var got int64
		_, err := c.Prep("SELECT count(*) FROM bodies WHERE xmin = (SELECT xmin FROM bodies WHERE seq = ?)").Int(seq).One(func(r driver.Row) { got = r.Int(0) })
		if err == nil && got != want {
			err = fmt.Errorf("%w: %d messages were stored together, not %d", dbtest.ErrApart, got, want)
		}
		return err
	})
}
