package bus

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/bus/dead"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// tripping makes what the mixes of TestRoundTripsOfMessages need.
type tripping struct {
	*testing.T
	*stores
	made    func(func(*MessageQueue)) MessageQueue
	content func(int) MessageContent
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
	serial := 0
	x := tripping{T: t, stores: trips.Stores, content: func(i int) MessageContent {
		return MessageContent{MessageID: fmt.Sprint("m", i), Body: []byte("1"), Text: true}
	}}
	tenant := tenantOf(t, x.stores, "acme")
	x.made = func(change func(*MessageQueue)) MessageQueue {
		serial++
		q := MessageQueue{Name: fmt.Sprintf("t/q%d", serial), Tenant: tenant, Lock: time.Hour, MaxDeliveries: 3}
		if change != nil {
			change(&q)
		}
		stored, _, err := x.Bus.PutMessageQueue(t.Context(), q, 10_000)
		mustDo(t, err)
		return stored
	}
	const wait = 1500 * time.Millisecond
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
	}{
		"activate":                     {func() MessageQueue { return x.made(nil) }, later(x.content)},
		"activate in sessions":         {func() MessageQueue { return x.made(needsSessions) }, later(x.sessionContent)},
		"activate and publish":         {func() MessageQueue { return x.topic(nil, nil) }, later(x.content)},
		"activate and forward":         {func() MessageQueue { return x.forwards(x.made(needsSessions)) }, later(x.sessionContent)},
		"expire":                       {func() MessageQueue { return x.made(nil) }, expiring},
		"expire to dead letter":        {func() MessageQueue { return x.made(func(q *MessageQueue) { q.DeadLetterExpired = true }) }, expiring},
		"activate twice":               {func() MessageQueue { return x.made(duplicates) }, later(x.twice)},
		"activate, publish, take part": {func() MessageQueue { return x.topic(nil, needsSessions) }, later(x.sessionContent)},
		"activate, forward, publish": {func() MessageQueue {
			return x.forwards(x.topic(nil, needsSessions))
		}, later(x.sessionContent)},
		"expire and forward": {func() MessageQueue {
			return x.made(func(q *MessageQueue) { q.DeadLetterExpired, q.ForwardDeadLettersTo = true, dead.Name })
		}, expiring},
	}
	var latest []MessageQueue // in which messages become due
	due := func(name string, queues, many int) func() []func() error {
		kind := kinds[name]
		return func() (calls []func() error) {
			var all []MessageQueue
			for range queues {
				all = append(all, kind.made())
			}
			x.settled()
			latest = all
			at := time.Now().Add(wait)
			for i := range many {
				sendTo(t, x.stores, all[i%queues], kind.message(i, at))
			}
			q := x.made(nil)
			return append(calls, func() error {
				<-time.After(time.Until(at.Add(50 * time.Millisecond)))
				_, err := x.Bus.Send(t.Context(), q, []MessageContent{x.content(0)})
				return err
			})
		}
	}
	// Receivers wait for what becomes active.
	received := func(queues, many int) func() []func() error {
		return func() []func() error {
			calls := due("activate", queues, many)()
			for _, q := range latest {
				go func() {
					_, _ = x.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: many, MaxBytes: 1 << 20, Wait: true})
				}()
			}
			return calls
		}
	}
	for name := range kinds {
		trips.Together(t, name, due(name, 1, n))
		trips.Together(t, name+", each in another queue", due(name, n, n))
	}
	trips.Together(t, "receive", received(1, n))
	trips.Together(t, "receive, each from another queue", received(n, n))
	trips.Together(t, "all", func() (calls []func() error) {
		for name := range kinds {
			calls = append(calls, due(name, 3, 6)()...)
		}
		return calls
	})
}
