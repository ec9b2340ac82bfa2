package bus

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/queue"
)

// On PostgreSQL, the round trips of a transaction do not grow with the number of its operations.
// The test covers each transition of a plain message and of a session.
func TestRoundTripsOfMessages(t *testing.T) {
	t.Parallel()
	const n = 24
	trips := fixture.Trips(t)
	s, ctx := trips.Stores, t.Context()
	made := makesQueues(t, s)
	dead := made(nil)
	kinds := map[string]func(*MessageQueue){
		"plain":     nil,
		"idle":      func(q *MessageQueue) { q.Idle = time.Hour },
		"expiring":  func(q *MessageQueue) { q.DefaultTTL = time.Hour },
		"duplicate": func(q *MessageQueue) { q.DuplicateWindow = time.Hour },
		"limited":   func(q *MessageQueue) { q.MaxMessage = 1 << 10 },
	}
	content := func(i int) MessageContent {
		return MessageContent{MessageID: fmt.Sprint("m", i), Body: []byte("1"), Text: true}
	}
	received := func(q MessageQueue, many int) []Message {
		var all []MessageContent
		for i := range many {
			all = append(all, content(i))
		}
		sendTo(t, s, q, all...)
		got, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: q, Max: many, MaxBytes: 1 << 20})
		if err != nil || len(got) != many {
			t.Fatalf("%d messages: %v", len(got), err)
		}
		return got
	}
	changed := forebay.Properties{"again": true}
	settlements := map[string]func(q MessageQueue, l queue.Lock) error{
		"complete": func(q MessageQueue, l queue.Lock) error { return s.Bus.Complete(ctx, q.Subqueue(false), l) },
		"abandon":  func(q MessageQueue, l queue.Lock) error { return s.Bus.Abandon(ctx, q, q.Subqueue(false), l, changed) },
		"release":  func(q MessageQueue, l queue.Lock) error { return s.Bus.ReleaseMessage(ctx, q.Subqueue(false), l) },
		"undeliver": func(q MessageQueue, l queue.Lock) error {
			return s.Bus.Undeliver(ctx, q.Subqueue(false), []queue.Lock{l})
		},
		"defer": func(q MessageQueue, l queue.Lock) error { return s.Bus.Defer(ctx, q.Subqueue(false), l, nil) },
		"dead-letter": func(q MessageQueue, l queue.Lock) error {
			return s.Bus.DeadLetter(ctx, q.Subqueue(false), l, DeadLettering{Reason: "r"}, nil)
		},
		"renew": func(q MessageQueue, l queue.Lock) error {
			_, err := s.Bus.RenewMessage(ctx, q.Subqueue(false), l, time.Minute)
			return err
		},
	}
	settled := func(name string, change func(*MessageQueue), many int) func() []func() error {
		return func() (calls []func() error) {
			q := made(change)
			for _, m := range received(q, many) {
				calls = append(calls, func() error { return settlements[name](q, m.Lock) })
			}
			return calls
		}
	}
	sent := func(change func(*MessageQueue), message func(i int) MessageContent, many int) func() []func() error {
		return func() (calls []func() error) {
			q := made(change)
			for i := range many {
				m := message(i)
				calls = append(calls, func() error { _, err := s.Bus.Send(ctx, q, []MessageContent{m}); return err })
			}
			return calls
		}
	}
	several := func(i int) MessageContent { return content(i / 2) } // each twice
	later := func(i int) MessageContent {
		at, m := time.Now().Add(time.Hour), content(i)
		m.ScheduledAt = &at
		return m
	}
	inSession := func(sessions int) func(i int) MessageContent {
		return func(i int) MessageContent {
			m := content(i)
			m.SessionID = fmt.Sprint("s", i%sessions)
			return m
		}
	}
	sessions := func(q *MessageQueue) { q.RequiresSession = true }
	receives := func(queues, many int) func() []func() error {
		return func() (calls []func() error) {
			for range queues {
				q := made(nil)
				var all []MessageContent
				for i := range many {
					all = append(all, content(i))
				}
				sendTo(t, s, q, all...)
				for range many {
					calls = append(calls, func() error {
						got, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20})
						if err == nil && len(got) != 1 {
							err = fmt.Errorf("%d messages", len(got))
						}
						return err
					})
				}
			}
			return calls
		}
	}
	held := func(many int) (MessageQueue, []Session) {
		q := made(sessions)
		var all []MessageContent
		for i := range many {
			all = append(all, inSession(many)(i))
		}
		sendTo(t, s, q, all...)
		var list []Session
		for i := range many {
			one, err := s.Bus.Sessions().Accept(ctx, q, fmt.Sprint("s", i))
			mustDo(t, err)
			list = append(list, one)
		}
		return q, list
	}
	withSessions := func(do func(q MessageQueue, l SessionLock) error, many int) func() []func() error {
		return func() (calls []func() error) {
			q, list := held(many)
			for _, one := range list {
				calls = append(calls, func() error { return do(q, one.SessionLock) })
			}
			return calls
		}
	}
	mixes := map[string]func(many int) func() []func() error{
		"send twice":          func(many int) func() []func() error { return sent(kinds["duplicate"], several, many) },
		"schedule":            func(many int) func() []func() error { return sent(nil, later, many) },
		"send to sessions":    func(many int) func() []func() error { return sent(sessions, inSession(many), many) },
		"send to one session": func(many int) func() []func() error { return sent(sessions, inSession(1), many) },
		"receive":             func(many int) func() []func() error { return receives(1, many) },
		"receive of many":     func(many int) func() []func() error { return receives(many, 1) },
		"dead-letter and send": func(many int) func() []func() error {
			return settled("dead-letter", func(q *MessageQueue) { q.ForwardDeadLettersTo = dead.Name }, 1)
		},
		"cancel scheduled": func(many int) func() []func() error {
			return func() (calls []func() error) {
				q := made(nil)
				for i := range many {
					seq := sendTo(t, s, q, later(i))[0]
					calls = append(calls, func() error { _, err := s.Bus.CancelScheduled(ctx, q, seq); return err })
				}
				return calls
			}
		},
		"receive deferred": func(many int) func() []func() error {
			return func() (calls []func() error) {
				q := made(nil)
				for _, m := range received(q, many) {
					mustDo(t, s.Bus.Defer(ctx, q.Subqueue(false), m.Lock, nil))
					calls = append(calls, func() error {
						_, err := s.Bus.ReceiveDeferred(ctx, ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20}, []int64{m.Seq})
						return err
					})
				}
				return calls
			}
		},
		"accept": func(many int) func() []func() error {
			return func() (calls []func() error) {
				q := made(sessions)
				for i := range many {
					sendTo(t, s, q, inSession(many)(i))
					calls = append(calls, func() error { _, err := s.Bus.Sessions().Accept(ctx, q, fmt.Sprint("s", i)); return err })
				}
				return calls
			}
		},
		"accept next": func(many int) func() []func() error {
			return func() (calls []func() error) {
				q := made(sessions)
				for i := range many {
					sendTo(t, s, q, inSession(many)(i))
					calls = append(calls, func() error {
						got, err := s.Bus.Sessions().AcceptNext(ctx, q, false)
						if err == nil && got == nil {
							err = fmt.Errorf("no session")
						}
						return err
					})
				}
				return calls
			}
		},
		"receive in sessions": func(many int) func() []func() error {
			return withSessions(func(q MessageQueue, l SessionLock) error {
				_, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: q, Session: &l, Max: 1, MaxBytes: 1 << 20})
				return err
			}, many)
		},
		"close sessions": func(many int) func() []func() error {
			return withSessions(func(q MessageQueue, l SessionLock) error { return s.Bus.Sessions().Close(ctx, q, l) }, many)
		},
		"close sessions and give back": func(many int) func() []func() error {
			return func() (calls []func() error) {
				q, list := held(many)
				for _, one := range list {
					got, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: q, Session: &one.SessionLock, Max: 1, MaxBytes: 1 << 20})
					if err != nil || len(got) != 1 {
						t.Fatalf("%d messages: %v", len(got), err)
					}
					calls = append(calls, func() error { return s.Bus.Sessions().Close(ctx, q, one.SessionLock) })
				}
				return calls
			}
		},
		"renew sessions": func(many int) func() []func() error {
			return withSessions(func(q MessageQueue, l SessionLock) error { _, err := s.Bus.Sessions().Renew(ctx, q, l); return err }, many)
		},
		"session state": func(many int) func() []func() error {
			return withSessions(func(q MessageQueue, l SessionLock) error { return s.Bus.Sessions().SetState(ctx, q, l, []byte("x")) }, many)
		},
		"read session state": func(many int) func() []func() error {
			return withSessions(func(q MessageQueue, l SessionLock) error { _, err := s.Bus.Sessions().State(ctx, q, l); return err }, many)
		},
	}
	for name := range settlements {
		mixes[name] = func(many int) func() []func() error { return settled(name, nil, many) }
	}
	for kind, change := range kinds {
		mixes["send "+kind] = func(many int) func() []func() error { return sent(change, content, many) }
		mixes["complete "+kind] = func(many int) func() []func() error { return settled("complete", change, many) }
	}
	x := tripping{T: t, stores: s, made: made, content: content}
	for name, mix := range x.onward() {
		mixes[name] = mix
	}
	for name, mix := range x.bulk(received) {
		mixes[name] = mix
	}
	for name, mix := range x.commits(received) {
		mixes[name] = mix
	}
	for name, mix := range x.drops() {
		mixes[name] = mix
	}
	for name, mix := range mixes {
		trips.Together(t, name, mix(n))
	}
	// A receiver that finds nothing costs a round trip of its own, so it is not among the others.
	trips.Together(t, "receive where disabled", func() (calls []func() error) {
		for range n {
			q := made(func(q *MessageQueue) { q.Status = forebay.EntityReceiveDisabled })
			calls = append(calls, func() error {
				if _, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20}); forebay.CodeOf(err) != forebay.CodeEntityDisabled {
					return fmt.Errorf("it is not refused: %v", err)
				}
				return nil
			})
		}
		return calls
	})
	trips.Together(t, "all", func() (calls []func() error) {
		for _, mix := range mixes {
			calls = append(calls, mix(2)()...)
		}
		x.settled()
		return calls
	})
	trips.Together(t, "all, many times", func() (calls []func() error) {
		for _, mix := range mixes {
			calls = append(calls, mix(4)()...)
		}
		x.settled()
		return calls
	})
	trips.Plans(t)
}
